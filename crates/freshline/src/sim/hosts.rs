//! The hosts of a simulation: a source each, and the monitor.
//!
//! The driver and the application's handle share a host: the handle ends it, and asks for its report.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_core::path::PathId;
use freshline_core::unit::{Bytes, Time};
use freshline_net::Waker;
use freshline_net::monitor::{MonitorReport, SourceStatus, UnboundMonitor, UnboundPeer};
use freshline_net::source::{SourceError, SourceReport, UnboundSource};

use super::tally::Measuring;
use crate::clock::Clock;
use crate::error::Error;
use crate::running::Simulated;
use crate::{monitor, source};

/// Headers of IPv4 and UDP around each datagram, in bytes.
pub(super) const HEADERS: Bytes = Bytes::new(28);

/// Set by handles when a host has something to do.
#[derive(Debug, Clone, Default)]
pub(super) struct Flag(Arc<AtomicBool>);

impl Flag {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    pub(super) fn waker(&self) -> Arc<Waker> {
        let flag = self.clone();
        Arc::new(Waker::new(move || {
            flag.set();
            Ok(())
        }))
    }
}

/// A host that the driver and a handle share.
pub(super) struct Host<E, W, G>(Arc<Mutex<Inner<E, W, G>>>, Flag);

pub(super) struct Inner<E, W, G> {
    pub(super) endpoint: E,
    pub(super) watch: W,
    clock: Clock,
    /// Dropped at the end: tells the application's handles.
    guard: Option<G>,
    /// Why it cannot go on.
    error: Option<Error>,
}

/// A source of a simulation.
pub(super) type SourceHost = Host<UnboundSource, source::Watch, source::Ended>;

/// The monitor of a simulation.
pub(super) type MonitorHost = Host<UnboundMonitor, Measuring, monitor::Ended>;

impl<E, W, G> Clone for Host<E, W, G> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), self.1.clone())
    }
}

impl<E, W, G> Host<E, W, G> {
    pub(super) fn new(endpoint: E, watch: W, guard: G, clock: Clock, woken: Flag) -> Self {
        let inner = Inner { endpoint, watch, clock, guard: Some(guard), error: None };
        Self(Arc::new(Mutex::new(inner)), woken)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner<E, W, G>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Set while the host has something to do.
    pub(super) fn woken(&self) -> &Flag {
        &self.1
    }

    /// The simulation has ended: nothing more comes to the application.
    pub(super) fn abandon(&self) {
        // It may call what locks the host.
        let guard = self.lock().guard.take();
        drop(guard);
    }
}

impl<E, W, G> Inner<E, W, G> {
    fn has_ended(&self) -> bool {
        self.guard.is_none()
    }
}

// ---- sources ----

impl Inner<UnboundSource, source::Watch, source::Ended> {
    /// A datagram has come by a path.
    pub(super) fn handle_datagram(&mut self, now: Time, by: PathId, datagram: &[u8]) {
        if !self.has_ended() {
            let handled = self.endpoint.handle_datagram(now, by, datagram, &mut self.watch);
            self.settle(handled);
        }
    }

    /// A topic has a state that was awaited.
    pub(super) fn on_woken(&mut self, now: Time) {
        if !self.has_ended() {
            self.endpoint.on_woken(now);
        }
    }

    /// Does what is due, and sends; gives when it is to be called again.
    pub(super) fn turn(
        &mut self,
        now: Time,
        out: &mut Vec<u8>,
        mut send: impl FnMut(PathId, &[u8]),
    ) -> Option<Time> {
        if !self.has_ended() {
            let handled = self.endpoint.handle_timeout(now, &mut self.watch);
            self.settle(handled);
        }
        while let Some((path, len)) = self.endpoint.poll_transmit(now, out) {
            self.endpoint.on_sent(now, Bytes::new(len as u64) + HEADERS);
            send(path, &out[..len]);
        }
        self.endpoint.poll_timeout().filter(|_| !self.has_ended())
    }

    fn settle(&mut self, handled: Result<(), SourceError>) {
        if let Err(error) = handled {
            self.error = Some(error.into());
            self.guard = None;
        }
    }
}

impl Simulated<SourceReport> for SourceHost {
    fn has_ended(&self) -> bool {
        self.lock().has_ended()
    }

    fn end(&mut self) -> Result<SourceReport, Error> {
        let guard = {
            let mut host = self.lock();
            if let Some(error) = host.error.take() {
                return Err(error);
            }
            host.endpoint.close();
            host.guard.take()
        };
        drop(guard);
        self.woken().set();
        let host = self.lock();
        Ok(host.endpoint.report(host.clock.now()))
    }
}

// ---- the monitor ----

impl Inner<UnboundMonitor, Measuring, monitor::Ended> {
    /// A datagram has come; the answer is in `reply`, if there is one.
    pub(super) fn handle_datagram(
        &mut self,
        now: Time,
        from: UnboundPeer,
        datagram: &[u8],
        reply: &mut Vec<u8>,
    ) {
        reply.clear();
        if !self.has_ended() {
            self.endpoint.handle_datagram(now, from, datagram, reply, &mut self.watch);
        }
    }

    /// Does what is due, and sends; gives when it is to be called again.
    pub(super) fn turn(
        &mut self,
        now: Time,
        out: &mut Vec<u8>,
        mut send: impl FnMut(UnboundPeer, &[u8]),
    ) -> Option<Time> {
        if !self.has_ended() {
            self.endpoint.handle_timeout(now, &mut self.watch);
        }
        while let Some(transmit) = self.endpoint.poll_transmit(now, out) {
            let bytes = Bytes::new(transmit.len as u64) + HEADERS;
            self.endpoint.on_sent(now, &transmit, bytes);
            send(transmit.to, &out[..transmit.len]);
        }
        self.endpoint.poll_timeout().filter(|_| !self.has_ended())
    }

    /// At most `most` sources.
    pub(super) fn statuses(&self, most: usize) -> Option<Vec<SourceStatus>> {
        let now = self.clock.now();
        (!self.has_ended()).then(|| self.endpoint.statuses(now, most, &self.watch))
    }
}

impl Simulated<MonitorReport> for MonitorHost {
    fn has_ended(&self) -> bool {
        self.lock().has_ended()
    }

    fn end(&mut self) -> Result<MonitorReport, Error> {
        let (report, guard) = {
            let mut host = self.lock();
            let now = host.clock.now();
            let report = host.endpoint.report(now, &host.watch);
            host.endpoint.close(now);
            (report, host.guard.take())
        };
        drop(guard);
        self.woken().set();
        Ok(report)
    }
}
