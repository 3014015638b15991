//! The hosts of a simulation: a source each, and the monitor.
//!
//! The driver and the application's handle share a host: the handle ends it, and asks for its
//! report.
//!
//! The driver holds a host's lock while it runs a step of it. A step can call a function of the
//! application, such as that of `Topic::sample_with`, and this function can use the handle of the
//! same host. So no call of a handle takes the lock then: `has_ended` reads an atomic, and `end`
//! sets one that the driver acts on after the step. A step's values of the application are dropped
//! outside of the lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use freshline_core::path::PathId;
use freshline_core::unit::{Bytes, Time};
use freshline_net::Waker;
use freshline_net::monitor::{MonitorReport, SourceStatus, UnboundMonitor, UnboundPeer};
use freshline_net::source::{SourceError, SourceReport, UnboundSource};

use super::tally::MeasuredStore;
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
pub(super) struct Host<E, W, G> {
    inner: Arc<Mutex<Inner<E, W, G>>>,
    shared: Arc<Shared>,
}

/// The fields that are read without the lock of [`Inner`].
#[derive(Default)]
struct Shared {
    woken: Flag,
    /// The host has ended, or ends after the current step.
    has_ended: AtomicBool,
    /// The thread that runs a step.
    steps_on: Mutex<Option<ThreadId>>,
}

pub(super) struct Inner<E, W, G> {
    pub(super) endpoint: E,
    pub(super) watch: W,
    clock: Clock,
    /// Dropped at the end: notifies the application's handles.
    guard: Option<G>,
    /// Why it cannot go on.
    error: Option<Error>,
}

/// A source of a simulation.
pub(super) type SourceHost = Host<UnboundSource, source::Watch, source::Ended>;

/// The monitor of a simulation.
pub(super) type MonitorHost = Host<UnboundMonitor, MeasuredStore, monitor::Ended>;

impl<E, W, G> Clone for Host<E, W, G> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), shared: Arc::clone(&self.shared) }
    }
}

/// A step that runs; it is over when this is dropped, also by a panic.
struct Step<'a>(&'a Shared);

impl<'a> Step<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.set_steps_on(Some(thread::current().id()));
        Self(shared)
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.0.set_steps_on(None);
    }
}

impl Shared {
    fn set_steps_on(&self, thread: Option<ThreadId>) {
        *self.steps_on.lock().unwrap_or_else(PoisonError::into_inner) = thread;
    }

    /// Whether the caller is a function that a step calls, so that this thread holds the lock of
    /// [`Inner`].
    fn is_in_step(&self) -> bool {
        let thread = self.steps_on.lock().unwrap_or_else(PoisonError::into_inner);
        thread.is_some_and(|id| id == thread::current().id())
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    fn set_ended(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // It may have a close message to send.
        self.woken.set();
    }
}

/// An endpoint that sends a close message.
pub(super) trait Close {
    fn close(&mut self, now: Time);
}

impl Close for UnboundSource {
    fn close(&mut self, _: Time) {
        UnboundSource::close(self);
    }
}

impl Close for UnboundMonitor {
    fn close(&mut self, now: Time) {
        UnboundMonitor::close(self, now);
    }
}

impl<E: Close, W, G> Host<E, W, G> {
    pub(super) fn new(endpoint: E, watch: W, guard: G, clock: Clock, woken: Flag) -> Self {
        let inner = Inner { endpoint, watch, clock, guard: Some(guard), error: None };
        let shared = Shared { woken, ..Shared::default() };
        Self { inner: Arc::new(Mutex::new(inner)), shared: Arc::new(shared) }
    }

    /// Runs a step of the driver, then ends the host if the step failed or if one of its functions
    /// asked for the end.
    pub(super) fn step<R>(&self, step: impl FnOnce(&mut Inner<E, W, G>) -> R) -> R {
        let running = Step::new(&self.shared);
        let mut inner = self.lock();
        let result = step(&mut inner);
        let guard = if inner.error.is_some() {
            self.shared.set_ended();
            inner.guard.take()
        } else if self.shared.has_ended() {
            inner.close()
        } else {
            None
        };
        drop(inner);
        drop(running);
        drop(guard);
        result
    }

    /// Set while the host has something to do.
    pub(super) fn woken(&self) -> &Flag {
        &self.shared.woken
    }

    /// The simulation has ended: the application gets no more events.
    pub(super) fn abandon(&self) {
        let guard = self.lock().guard.take();
        self.shared.set_ended();
        drop(guard);
    }

    fn lock(&self) -> MutexGuard<'_, Inner<E, W, G>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Close, W, G> Inner<E, W, G> {
    /// Sends the close message, once; the caller drops the guard after the lock.
    fn close(&mut self) -> Option<G> {
        let guard = self.guard.take()?;
        self.endpoint.close(self.clock.now());
        Some(guard)
    }

    fn has_ended(&self) -> bool {
        self.guard.is_none()
    }
}

// ---- sources ----

impl Inner<UnboundSource, source::Watch, source::Ended> {
    /// A datagram has arrived by a path.
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

    /// Handles due events, and sends; returns the time of the next call.
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

    /// [`Host::step`] ends the host after an error.
    fn settle(&mut self, handled: Result<(), SourceError>) {
        if let Err(error) = handled {
            self.error = Some(error.into());
        }
    }
}

impl Simulated<SourceReport> for SourceHost {
    fn has_ended(&self) -> bool {
        self.shared.has_ended()
    }

    fn end(&mut self) -> Result<SourceReport, Error> {
        if self.shared.is_in_step() {
            self.shared.set_ended();
            return Err(Error::Ended);
        }
        let mut host = self.lock();
        if let Some(error) = host.error.take() {
            return Err(error);
        }
        let guard = host.close();
        let report = host.endpoint.report(host.clock.now());
        self.shared.set_ended();
        drop(host);
        drop(guard);
        Ok(report)
    }
}

// ---- the monitor ----

impl Inner<UnboundMonitor, MeasuredStore, monitor::Ended> {
    /// A datagram has arrived; the answer is in `reply`, if there is one.
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

    /// Handles due events, and sends; returns the time of the next call.
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
}

impl MonitorHost {
    /// At most `max` sources; `None` at its end, and for a function that a step calls.
    pub(super) fn statuses(&self, max: usize) -> Option<Vec<SourceStatus>> {
        if self.shared.is_in_step() {
            return None;
        }
        let host = self.lock();
        let now = host.clock.now();
        (!host.has_ended()).then(|| host.endpoint.statuses(now, max, &host.watch))
    }
}

impl Simulated<MonitorReport> for MonitorHost {
    fn has_ended(&self) -> bool {
        self.shared.has_ended()
    }

    fn end(&mut self) -> Result<MonitorReport, Error> {
        if self.shared.is_in_step() {
            self.shared.set_ended();
            return Err(Error::Ended);
        }
        let mut host = self.lock();
        let report = host.endpoint.report(host.clock.now(), &host.watch);
        let guard = host.close();
        self.shared.set_ended();
        drop(host);
        drop(guard);
        Ok(report)
    }
}
