//! What a source writes: the update that is due, its copies for other paths, and the close.

use alloc::vec::Vec;

use super::{Reach, Source, SourceParams, Transmit};
use crate::dscp::Dscp;
use crate::path::{PathId, PathSet};
use crate::session::paths::Route;
use crate::unit::{Span, Time};
use crate::wire::{Close, CloseReason, Opening, Update};

/// What is still to be written of an update or a close.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// The last update, and the paths by which it has not left yet.
    copies: Option<(u64, Time, PathSet)>,
    /// The number of the path by which the next close leaves.
    close_by: Option<u8>,
}

impl Outgoing {
    pub(super) fn close(&mut self) {
        self.close_by = self.close_by.or(Some(0));
    }

    pub(super) fn is_closing(&self) -> bool {
        self.close_by.is_some()
    }

    /// The session is another one.
    pub(super) fn forget_copies(&mut self) {
        self.copies = None;
    }

    /// The next copy: the number of its update, when that was sampled, and the path.
    fn next_copy(&mut self) -> Option<(u64, Time, PathId)> {
        let (seq, generated_at, paths) = self.copies.as_mut()?;
        let next = paths.iter().next().map(|path| {
            *paths = paths.without(path);
            (*seq, *generated_at, path)
        });
        if next.is_none() {
            self.copies = None;
        }
        next
    }
}

impl Source {
    /// Writes the next datagram that may leave now to the front of `out`, which grows to its length; call
    /// it until there is none.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.outgoing.is_closing() {
            return self.write_close(out);
        }
        if let Some((seq, generated_at, path)) = self.outgoing.next_copy() {
            return self.write_copy(now, seq, generated_at, path, out);
        }
        self.write_update(now, out)
    }

    fn write_update(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        let may_leave = self.opener.is_open() || self.opener.is_ready();
        let generated_at =
            self.states.ready_generated_at().filter(|_| may_leave && self.is_due(now))?;
        let Some(route) = self.route(now) else {
            self.states.on_no_path();
            return None;
        };
        let (seq, path) = (self.acks.next_seq(), route.first);
        let wants_ack = self.wants_ack(now, path);
        let state = self.states.ready_state();
        let update = Update { wants_ack, ..self.update(seq, path, generated_at, state) };
        let (dscp, payload_len) = (self.mark(), state.len());
        let len = write(&update, out)?;
        match wants_ack {
            true => {
                self.paths.on_sent(now, path, seq, false);
                self.opener.on_sent_by(path);
            }
            false => self.paths.on_sent_without_ack_request(now, path),
        }
        self.counters.ack_requests += u64::from(wants_ack);
        self.states.take(seq);
        self.on_sent(now, generated_at, payload_len);
        let copies = route.copies.without(path);
        self.outgoing.copies = (!copies.is_empty()).then_some((seq, generated_at, copies));
        Some(Transmit { path, len, dscp, seq: Some(seq), is_copy: false })
    }

    fn write_copy(
        &mut self,
        now: Time,
        seq: u64,
        generated_at: Time,
        path: PathId,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let len = write(&self.update(seq, path, generated_at, self.states.last()), out)?;
        self.paths.on_sent(now, path, seq, true);
        self.opener.on_sent_by(path);
        Some(Transmit { path, len, dscp: self.mark(), seq: Some(seq), is_copy: true })
    }

    fn write_close(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let number = self.outgoing.close_by.filter(|by| usize::from(*by) < self.paths.count())?;
        self.outgoing.close_by = Some(number + 1);
        let close = Close { session: self.session, reason: CloseReason::Done }.bytes();
        grow(out, close.len());
        out[..close.len()].copy_from_slice(&close);
        let (path, dscp) = (PathId(number), Dscp::DEFAULT);
        Some(Transmit { path, len: close.len(), dscp, seq: None, is_copy: false })
    }

    /// Which paths the update takes that is due now; `None` where none is up. An opening takes all
    /// of them: the first answer counts.
    fn route(&mut self, now: Time) -> Option<Route> {
        if self.opener.is_open() {
            // A lone path is taken at any interval.
            let has_choice = self.paths.count() > 1;
            let interval = if has_choice { self.law.rate().period() } else { Span::ZERO };
            return self.paths.route(now, interval, self.acks.clock_offset().nanos());
        }
        let by = self.opener.prompted_by();
        let challenged = self.paths.up().filter(|path| by.contains(*path));
        Route::over(challenged).or_else(|| Route::over(self.paths.up()))
    }

    fn update<'a>(
        &'a self,
        seq: u64,
        by: PathId,
        generated_at: Time,
        payload: &'a [u8],
    ) -> Update<'a> {
        Update {
            session: self.session,
            seq,
            generated_at,
            clock_offset: self.acks.clock_offset().nanos(),
            wants_ack: true,
            ack_mark: self.params.ack_mark,
            opening: self.opener.must_open(by).then(|| self.opening(by)),
            payload,
        }
    }

    pub(super) fn opening(&self, by: PathId) -> Opening<'_> {
        let SourceParams { name, token, .. } = &self.params;
        Opening { cookie: self.opener.cookie(by), name, token }
    }

    /// Whether the update that leaves now asks for an ack. All openings do, and what leaves when a word
    /// of the monitor is overdue, as a state that is repeated.
    fn wants_ack(&self, now: Time, by: PathId) -> bool {
        self.opener.must_open(by)
            || self.paths.want_every_ack()
            || self.repeat_at().is_some_and(|at| at <= now)
            || self.law.wants_ack(now)
    }

    /// The code point with which an update leaves now.
    fn mark(&self) -> Dscp {
        match self.opener.reach() {
            Reach::Open => self.params.dscp,
            Reach::Opening { .. } => Dscp::DEFAULT,
        }
    }

    fn on_sent(&mut self, now: Time, generated_at: Time, payload_len: usize) {
        let seq = self.acks.next_seq();
        self.acks.on_sent(now, generated_at, payload_len);
        self.liveness.on_sent(now);
        self.counters.sent += 1;
        self.counters.payload_bytes += payload_len as u64;
        if self.opener.is_open() {
            self.law.on_sent(now, seq);
        } else {
            self.law.on_opening(now);
            self.marks.on_opening(seq);
            let earliest = self.earliest_opening();
            self.opener.on_sent(now, earliest);
        }
    }
}

/// Writes an update to the front of `out`; gives its length.
fn write(update: &Update<'_>, out: &mut Vec<u8>) -> Option<usize> {
    grow(out, update.len());
    update.write(out)
}

fn grow(out: &mut Vec<u8>, len: usize) {
    if out.len() < len {
        out.resize(len, 0);
    }
}
