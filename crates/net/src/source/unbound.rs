//! A source without sockets, clock and thread: a simulation hands it datagrams and the time.
//!
//! ```text
//!   handle_datagram ─┐                              ┌─► poll_transmit, until there is none
//!   on_woken ────────┼─► handle_timeout, always ────┤
//!   poll_timeout ────┘                              └─► poll_timeout: when to call again
//! ```
//!
//! Session and feed are those of [`Source`](super::Source), so that simulations measure the same
//! code that runs over sockets.

use std::sync::Arc;

use freshline_core::path::PathId;
use freshline_core::session::{self, Datagram, Paths, Secret, SourceEvent, SourceParams};
use freshline_core::source::RateLaw;
#[cfg(feature = "status")]
use freshline_core::unit::Span;
use freshline_core::unit::{Bytes, Time};

use super::feed::{Feed, Trouble};
use super::report::SourceReport;
#[cfg(feature = "status")]
use super::status::Status;
use super::{Event, Receive, SourceError, States, Watch};
use crate::clock::Clock;
use crate::waker::Waker;

/// The configuration of an [`UnboundSource`].
pub struct UnboundConfig {
    /// The paths to the monitor.
    pub paths: Paths,
    /// The session's settings, `max_datagram` included.
    pub params: SourceParams,
    /// When to send.
    pub law: Box<dyn RateLaw>,
    /// What to send, from samplers that read no clock of their own.
    pub states: States,
    /// The secret of the session. A reproducible simulation draws it from its seed.
    pub secret: Secret,
}

/// A source that its caller drives. After [`UnboundSource::handle_datagram`], after
/// [`UnboundSource::on_woken`] and at [`UnboundSource::poll_timeout`], the caller calls
/// [`UnboundSource::handle_timeout`], then [`UnboundSource::poll_transmit`] until there is nothing left.
pub struct UnboundSource {
    session: session::Source,
    incoming: Option<Box<dyn Receive + Send>>,
    feed: Feed,
    #[cfg(feature = "status")]
    status: Option<Status>,
    began_at: Time,
}

impl UnboundSource {
    /// Starts the session at `now`. Samplers call `waker` when they have an awaited state; the
    /// caller then calls [`UnboundSource::on_woken`].
    ///
    /// # Errors
    /// [`SourceError`] if names, topics or paths are invalid.
    pub fn new(config: UnboundConfig, now: Time, waker: &Arc<Waker>) -> Result<Self, SourceError> {
        let UnboundConfig { paths, params, law, states, secret } = config;
        let session = session::Source::new(params, secret, law, now)?;
        let (topics, inputs) = states.split();
        let session = session.with_topics(topics)?;
        let feed = inputs.feed(&session, Clock::new(), waker)?;
        Ok(Self {
            session: session.over(paths),
            incoming: None,
            feed,
            #[cfg(feature = "status")]
            status: None,
            began_at: now,
        })
    }

    /// Also receives data that the monitor sends. To be called before the first datagram.
    #[must_use]
    pub fn receiving(mut self, incoming: Box<dyn Receive + Send>) -> Self {
        self.session.want_return();
        self.incoming = Some(incoming);
        self
    }

    /// Adds a status, as [`Source::with_status`](super::Source::with_status), without paths.
    #[cfg(feature = "status")]
    #[must_use]
    pub fn with_status(mut self, interval: Span) -> Self {
        self.status = Some(Status::new(interval));
        self
    }

    // ---- the contract ----

    /// Handles a datagram that has arrived by a path.
    ///
    /// # Errors
    /// [`SourceError::Sampler`] if a sampler has failed permanently.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        by: PathId,
        datagram: &[u8],
        watch: &mut dyn Watch,
    ) -> Result<(), SourceError> {
        let datagram = Datagram::from(datagram);
        let forward = self.session.session();
        let is_theirs = self
            .incoming
            .as_mut()
            .is_some_and(|incoming| incoming.handle_datagram(now, forward, by, datagram));
        let ours = if is_theirs { datagram.rider() } else { Some(datagram) };
        match ours.is_some_and(|ours| self.session.handle_datagram(now, by, ours).is_ok()) {
            true => self.attend(now, watch),
            false => Ok(()),
        }
    }

    /// A sampler has called the waker; returns whether its state was awaited.
    pub fn on_woken(&mut self, now: Time) -> bool {
        self.feed.on_woken(now, &mut self.session)
    }

    /// Handles due timers.
    ///
    /// # Errors
    /// [`SourceError::Sampler`] if a sampler has failed permanently.
    pub fn handle_timeout(&mut self, now: Time, watch: &mut dyn Watch) -> Result<(), SourceError> {
        self.session.handle_timeout(now);
        if let Some(incoming) = &mut self.incoming {
            incoming.turn(now);
        }
        self.attend(now, watch)?;
        #[cfg(feature = "status")]
        if let Some(status) = &mut self.status {
            status.turn(now, &mut self.session, |_| Vec::new());
        }
        watch.turn(now, &self.session);
        Ok(())
    }

    /// Writes the next datagram to the front of `out`; returns its path and its length in bytes.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<(PathId, usize)> {
        if let Some(incoming) = &mut self.incoming
            && let Some((path, len, _)) = incoming.poll_transmit(now, out)
        {
            return Some((path, len));
        }
        let mut transmit = self.session.poll_transmit(now, out)?;
        if let Some(incoming) = &mut self.incoming {
            transmit.len = incoming.board(now, &transmit, self.session.max_datagram(), out);
        }
        Some((transmit.path, transmit.len))
    }

    /// Notes that a datagram of this many bytes, with all headers, has left.
    pub fn on_sent(&mut self, now: Time, bytes: Bytes) {
        self.session.handle_wire_bytes(now, bytes);
    }

    /// When to call [`UnboundSource::handle_timeout`], even if no datagram has arrived.
    pub fn poll_timeout(&self) -> Option<Time> {
        let incoming = self.incoming.as_ref().and_then(|incoming| incoming.poll_timeout());
        #[cfg(feature = "status")]
        let status = self.status.as_ref().and_then(|status| status.poll_timeout(&self.session));
        #[cfg(not(feature = "status"))]
        let status = None;
        Time::earliest([self.session.poll_timeout(), incoming, status])
    }

    /// Ends the session; [`UnboundSource::poll_transmit`] writes the close.
    pub fn close(&mut self) {
        self.session.close();
    }

    // ---- getters ----

    /// The session, for reports.
    pub fn session(&self) -> &session::Source {
        &self.session
    }

    /// A summary of the run until `now`, without paths.
    pub fn report(&self, now: Time) -> SourceReport {
        SourceReport::of(&self.session, &self.feed, None, self.began_at, now)
    }

    // ---- steps ----

    fn attend(&mut self, now: Time, watch: &mut dyn Watch) -> Result<(), SourceError> {
        let Self { session, feed, .. } = self;
        let report = |trouble: &Trouble, session: &session::Source, watch: &mut dyn Watch| {
            watch.event(now, session, &Event::from(trouble));
        };
        for trouble in feed.take_troubles() {
            report(&trouble, session, watch);
        }
        while let Some(event) = session.poll_event() {
            match event {
                SourceEvent::StateWanted(need) => {
                    let answered = feed.answer(now, need, session).map_err(SourceError::Sampler)?;
                    answered.iter().for_each(|trouble| report(trouble, session, watch));
                }
                // There are no transports.
                SourceEvent::RenewTransports { .. } => {}
                event => {
                    if let SourceEvent::RecordsDone { topic } = event {
                        feed.on_records_done(now, topic, session);
                    }
                    watch.event(now, session, &Event::Session(event));
                }
            }
        }
        Ok(())
    }
}
