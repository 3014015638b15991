//! Processing of received datagrams at a source: acks, challenges and closes.

use super::acked_parts::AckedParts;
use super::ahead::Ahead;
use super::by_record::Lent;
use super::memory::SentUpdate;
use super::transfers::Completed;
use super::{Ignored, Source, SourceEvent};
use crate::path::PathId;
use crate::session::datagram::Datagram;
use crate::session::paths::PathAck;
use crate::source;
use crate::state::schedule::HEADERS;
use crate::unit::Time;
use crate::wire::{self, CloseReason, Cookie, Message};

impl Source {
    pub(super) fn take_in(
        &mut self,
        now: Time,
        by: PathId,
        datagram: Datagram<'_>,
    ) -> Result<SourceEvent, Ignored> {
        // Matched in place: a message is expensive to move.
        let parsed = Message::parse(datagram.bytes);
        let message = parsed.as_ref().map_err(|error| *error)?;
        // A late datagram on a path that is gone must not open a session without a usable path.
        if message.session() != self.session || !self.paths.is_up(by) {
            return Err(Ignored::Misplaced);
        }
        match message {
            Message::Ack(ack) => {
                let sent = self.acks.find(now, ack)?;
                self.marks.on_ack(by, self.params.dscp, datagram.dscp, ack);
                self.on_ack(now, by, sent, ack)
            }
            Message::Challenge(challenge) => Ok(self.on_challenge(now, by, challenge.cookie)),
            Message::Close(close) => Ok(self.on_close(now, close.reason)),
            _ => Err(Ignored::Misplaced),
        }
    }

    fn on_ack(
        &mut self,
        now: Time,
        by: PathId,
        sent: SentUpdate,
        ack: &wire::Ack,
    ) -> Result<SourceEvent, Ignored> {
        let wire::Ack { seq, hold, received_at, .. } = *ack;
        self.paths.on_ack(now, by, &PathAck { seq, hold, received_at });
        self.opener.on_ack(by);
        if !self.acks.is_newest(seq) {
            if let Some(parts) = &ack.parts {
                self.transfers.on_late_ack(seq, parts);
            }
            if self.topics.has_any() {
                match ack.parts {
                    Some(_) => self.topics.on_late_ack(now, &self.acked_parts(&sent, ack)),
                    None => self.topics.on_lone_ack(now, seq),
                }
            }
            return Err(Ignored::Late);
        }
        // While opening, the ack of a copy is as good: the record exists, only the first ack is
        // missing.
        let is_open = self.opener.is_open();
        let several_paths = self.paths.count() > 1;
        if !ack.was_fresh && (is_open || !several_paths) {
            if self.liveness.on_overtaken(now, several_paths, self.params.silence) {
                self.begin_session();
                self.open_again(now);
            }
            return Err(Ignored::Late);
        }
        // On an unproven path, updates carry the opening: a restarted monitor has created a record
        // from such an update, although the session has been open at the source all the time.
        let is_elsewhere = is_open && several_paths && self.acks.is_of_other_record(ack);
        if is_elsewhere && self.opener.is_short_lived(now) {
            // Another source may use the same name: reopen after a wait, which the ack of a copy
            // does not end.
            self.acks.ignore_sent();
            self.open_again(now);
            return Err(Ignored::Late);
        }
        if is_elsewhere {
            self.forget_monitor();
        }
        let is_open = is_open && !is_elsewhere;
        let answers_all = seq + 1 == self.acks.next_seq();
        self.liveness.on_ack(now, ack.was_fresh, answers_all);
        let rtt = self.acks.on_ack(now, &sent, ack, is_open, &mut self.counters);
        self.on_parts(now, &sent, ack);
        if !is_open {
            self.on_opened(now, by);
            return Ok(SourceEvent::Opened);
        }
        // The law restarted with the opening. An update sent before may have been queued during an
        // outage, so its round trip is not that of the present path.
        if self.acks.is_since_opening(seq) {
            self.law.on_ack(now, &law_ack(&sent, ack));
        }
        Ok(SourceEvent::Acked { rtt })
    }

    /// The session is open, and the monitor has only the update that opened it.
    fn on_opened(&mut self, now: Time, by: PathId) {
        self.opener.on_opened(now, by);
        self.acks.on_opened();
        self.counters.opened += 1;
        self.paths.on_opened();
        self.law.restart(now);
        (self.ahead, self.lent) = (Ahead::default(), Lent::default());
        self.transfers.on_opened();
        self.topics.on_opened(now);
        self.states.on_session_changed();
    }

    /// Processes an ack's report on states in several updates, and on topics.
    fn on_parts(&mut self, now: Time, sent: &SentUpdate, ack: &wire::Ack) {
        if ack.parts.is_none() {
            // It reports on its own update only.
            self.topics.on_lone_ack(now, ack.seq);
            return;
        }
        let acked = self.acked_parts(sent, ack);
        if self.topics.has_any() {
            let (states, bytes) = self.topics.on_ack(now, &acked);
            self.counters.large_states += states;
            self.counters.delivered_bytes += bytes;
            return;
        }
        let completed = self.transfers.on_ack(now, &acked);
        self.counters.abandoned_states = self.transfers.abandoned();
        if let Some(Completed { generated_at, len, .. }) = completed {
            self.acks.on_delivered(now, generated_at);
            self.counters.large_states += 1;
            self.counters.delivered_bytes += len as u64;
        }
    }

    fn acked_parts(&self, sent: &SentUpdate, ack: &wire::Ack) -> AckedParts {
        AckedParts {
            seq: ack.seq,
            sent_at: sent.sent_at,
            parts: ack.parts.unwrap_or_default(),
            srtt: self.acks.srtt().unwrap_or(self.params.first_wait),
            several_paths: self.paths.count() > 1,
            is_of_topic: true,
        }
    }

    fn on_challenge(&mut self, now: Time, by: PathId, cookie: Cookie) -> SourceEvent {
        let earliest = self.earliest_opening();
        if self.opener.on_challenge(now, earliest, by, cookie) {
            self.open_again(now);
        }
        SourceEvent::Challenged
    }

    fn on_close(&mut self, now: Time, reason: CloseReason) -> SourceEvent {
        if !self.opener.is_just_open(now) {
            if self.opener.is_open() {
                self.acks.ignore_sent();
                self.open_again(now);
            }
            self.opener.on_close(now, reason);
        }
        SourceEvent::Closed(reason)
    }
}

/// The law's view of an ack.
fn law_ack(sent: &SentUpdate, ack: &wire::Ack) -> source::Ack {
    source::Ack {
        seq: ack.seq,
        // A part counts as a separate state.
        generated_at: sent.generated_at.unwrap_or(sent.sent_at),
        sent_at: sent.sent_at,
        len: sent.len.saturating_add(HEADERS as u32),
        hold: ack.hold,
        received_at: ack.received_at,
        fresh: ack.fresh,
        stale: ack.stale,
    }
}
