//! The listening end: a monitor, and a source for each peer that wants states.

use alloc::vec::Vec;
use core::hash::Hash;

use super::Ignored;
use super::returns::{ReturnError, ReturnParams, Returns};
use crate::dscp::Dscp;
use crate::session::access::Access;
use crate::session::datagram::Datagram;
use crate::session::monitor::{
    Clocked, Ignored as MonitorIgnored, Monitor, MonitorEvent, MonitorTransmit,
};
use crate::session::record::SourceKey;
use crate::session::source::{Source, SourceEvent, Transmit};
use crate::unit::Time;
use crate::wire::{Heading, heading};

/// An event of a [`Listener`], or a request to its driver.
#[derive(Debug)]
pub enum ListenerEvent<P> {
    /// An event of the forward direction.
    Monitor(MonitorEvent<P>),
    /// A source wants states of the return direction; once per forward session. A driver that has
    /// states answers with [`Listener::open_return`], now or later.
    ReturnWanted {
        /// Which.
        source: SourceKey,
    },
    /// The return session to this source has ended with the forward one, or will not be opened any
    /// more.
    ReturnEnded {
        /// Which.
        source: SourceKey,
    },
    /// An event of the return session to this source: see [`Listener::return_source_mut`].
    Return {
        /// Which.
        source: SourceKey,
        /// The event; never [`SourceEvent::RenewTransports`].
        event: SourceEvent,
    },
}

/// A datagram of a [`Listener`], written to a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerTransmit<P> {
    /// The destination.
    pub peer: P,
    /// Its length.
    pub len: usize,
    /// Its code point.
    pub dscp: Dscp,
    /// The source whose return session has written it; `None` for an answer. Report its size on the
    /// wire to that session ([`Source::handle_wire_bytes`]), whose bandwidth limit counts it.
    pub source: Option<SourceKey>,
}

/// A monitor that may also send states to the sources that want them. It follows the contract of
/// the endpoints of [`session`](crate::session).
///
/// There is at most one return session per source, so
/// [`MonitorParams::max_sources`](super::super::MonitorParams) bounds them. It ends with the
/// source's session, and its datagrams go to the address from which the source was last received.
pub struct Listener<P> {
    monitor: Monitor<P>,
    returns: Option<Returns<P>>,
}

impl<P: Copy + Hash + PartialEq> Listener<P> {
    /// A monitor without return sessions.
    pub fn new(monitor: Monitor<P>) -> Self {
        Self { monitor, returns: None }
    }

    /// The same, with return sessions for the sources that want states.
    #[must_use]
    pub fn returning(mut self) -> Self {
        self.returns = Some(Returns::new());
        self
    }

    /// The same with another monitor, made from this one.
    #[must_use]
    pub fn map_monitor(self, map: impl FnOnce(Monitor<P>) -> Monitor<P>) -> Self {
        Self { monitor: map(self.monitor), ..self }
    }

    // ---- the contract ----

    /// A datagram has arrived from `peer`, as in [`Monitor::handle_checked_datagram`].
    ///
    /// # Errors
    /// [`Ignored`] if it had no effect.
    pub fn handle_datagram<'a>(
        &mut self,
        now: impl Into<Clocked>,
        peer: P,
        access: Option<&dyn Access>,
        datagram: impl Into<Datagram<'a>>,
    ) -> Result<(), Ignored> {
        let (at, datagram) = (now.into(), datagram.into());
        let Self { monitor, returns } = self;
        let Some(returns) = returns else {
            return Ok(monitor.handle_checked_datagram(at, peer, access, datagram)?);
        };
        let heading = heading(datagram.bytes);
        if let Some(Heading::Answer(session) | Heading::Close(session)) = heading
            && let Some(key) = returns.find(session)
        {
            let forward = returns.forward_of(key);
            if forward.and_then(|forward| monitor.source_of(forward, &peer)) != Some(key) {
                return Err(MonitorIgnored::Misplaced.into());
            }
            return Ok(returns.handle_answer(at.received_at, key, peer, datagram)?);
        }
        let result = monitor.handle_checked_datagram(at, peer, access, datagram);
        if let Some(Heading::Update { session, seq, wants_return, .. }) = heading
            && let Some(key) = monitor.source_of(session, &peer)
        {
            returns.end_former(key, session);
            if wants_return && result.is_ok() {
                let len = datagram.bytes.len();
                returns.on_wanted(at.now, key, (session, seq), (peer, len));
            }
            if let Some(ack) = datagram.rider() {
                // The ack may belong to a former session; the update counts in any case.
                let _ = returns.handle_rider(at.received_at, key, peer, ack);
            }
            returns.pass_ack(at.now, key, session, monitor);
        }
        Ok(result?)
    }

    /// Time has passed. Calls before [`Listener::poll_timeout`] have no effect.
    pub fn handle_timeout(&mut self, now: Time) {
        self.monitor.handle_timeout(now);
        if let Some(returns) = &mut self.returns {
            returns.handle_timeout(now, &mut self.monitor);
        }
    }

    /// The machine has slept, as in [`Source::handle_resume`], for all return sessions.
    pub fn handle_resume(&mut self, now: Time) {
        if let Some(returns) = &mut self.returns {
            returns.handle_resume(now);
        }
    }

    /// The next event, or request to the driver.
    pub fn poll_event(&mut self) -> Option<ListenerEvent<P>> {
        let event = self.monitor.poll_event();
        let Some(returns) = &mut self.returns else { return event.map(ListenerEvent::Monitor) };
        if let Some(event) = event {
            if let MonitorEvent::Gone { source, record, .. } = &event
                && returns.forward_of(*source) == Some(record.session)
            {
                returns.end(*source);
            }
            return Some(ListenerEvent::Monitor(event));
        }
        if let Some(source) = returns.poll_ended() {
            return Some(ListenerEvent::ReturnEnded { source });
        }
        if let Some(source) = returns.poll_wanted() {
            return Some(ListenerEvent::ReturnWanted { source });
        }
        returns.poll_event().map(|(source, event)| ListenerEvent::Return { source, event })
    }

    /// Writes the next datagram to the front of `out`, which grows to its length; call until it
    /// returns `None`. Answers to the forward direction come first.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<ListenerTransmit<P>> {
        if let Some(answer) = self.monitor.poll_transmit(now, out) {
            let MonitorTransmit { peer, len, dscp } = answer;
            return Some(ListenerTransmit { peer, len, dscp, source: None });
        }
        let (key, peer, transmit) = self.returns.as_mut()?.poll_transmit(now, out)?;
        let Transmit { len, dscp, .. } = transmit;
        Some(ListenerTransmit { peer, len, dscp, source: Some(key) })
    }

    /// When to call [`Listener::handle_timeout`] next; `None` if never.
    pub fn poll_timeout(&self) -> Option<Time> {
        let returns = self.returns.as_ref().and_then(Returns::poll_timeout);
        Time::earliest([self.monitor.poll_timeout(), returns])
    }

    /// Ends all sessions, of either direction.
    pub fn close(&mut self, now: Time) {
        self.monitor.close(now);
        if let Some(returns) = &mut self.returns {
            returns.close();
        }
    }

    // ---- return sessions ----

    /// Opens the return session to a source that wants it ([`ListenerEvent::ReturnWanted`]). If the
    /// source was restarted after that event, and its new session wants states too, this opens the
    /// return session of the new one: no earlier event of this source follows the call.
    ///
    /// # Errors
    /// [`ReturnError`] if it cannot be opened.
    pub fn open_return(
        &mut self,
        now: Time,
        source: SourceKey,
        params: ReturnParams,
    ) -> Result<(), ReturnError> {
        self.returns.as_mut().ok_or(ReturnError::NotWanted)?.open(now, source, params)
    }

    /// The return session to a source.
    pub fn return_source(&self, source: SourceKey) -> Option<&Source> {
        self.returns.as_ref()?.source(source)
    }

    /// The same, to hand in states.
    pub fn return_source_mut(&mut self, source: SourceKey) -> Option<&mut Source> {
        self.returns.as_mut()?.source_mut(source)
    }

    /// The sources with a return session.
    pub fn return_sources(&self) -> impl Iterator<Item = SourceKey> {
        self.returns.iter().flat_map(Returns::keys)
    }

    // ---- the forward direction ----

    /// The receiver of the forward direction.
    pub fn monitor(&self) -> &Monitor<P> {
        &self.monitor
    }

    /// The same, for functions that only a monitor has.
    pub fn monitor_mut(&mut self) -> &mut Monitor<P> {
        &mut self.monitor
    }
}
