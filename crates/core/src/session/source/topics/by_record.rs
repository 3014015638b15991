//! Topics of records: when their records are sent, alongside the states of other topics.
//!
//! | update | records in it |
//! |---|---|
//! | no state is ready | as many as fit |
//! | states lead, and datagrams are scarce | as many as fit along with the states |
//! | states lead, and bytes are scarce | as many as the credit allows, or, on a free path, a fifth of a period |
//! | the credit covers a whole datagram, and no record fitted along with the last states | they lead |
//! | an urgent topic has records | they lead, ahead of the law's pace; after four in a row, states lead |
//!
//! Each byte of states that is sent gives 1/15 byte of **credit**. So if states could use the whole
//! rate, records get a sixteenth, and the mean interval between states grows by a factor of 1/(1 −
//! 1/16) = 1.07. With a much larger share, the 95th percentile of ages would be determined by
//! intervals in which a datagram of records has replaced one of states.
//!
//! **Free paths.** A law that sends few updates per round trip leaves the path free for most of the
//! time. If an update is sent every T and its ack arrives after R, it keeps the bottleneck busy for
//! at most R/T of the time. While that is below a half, records whose transmission takes at most
//! T/5 join each update without credit: they need no further datagram, delay each state by at most
//! T/5, and leave the path free for at least a quarter of the time. The transmission of a byte
//! takes at most R/b if the ack of an update of b bytes arrives after R; long updates, such as
//! those with records, give the tightest bound. Without this bound, a chunk in every third update
//! would make the states a third older on a path of 20 kbit/s. Records that would replace states
//! need credit in any case.
//!
//! Records that lead because no state is ready must not delay the next state: it is sent at once,
//! within the limits, although it is not due by the law, and later records repay that time
//! ([`Source::records_not_before`](super::super::Source)). They also leave a part of the burst of
//! `max_bandwidth` for it.

use alloc::vec::Vec;

use super::super::acked_parts::AckedParts;
use super::super::ahead::BURST;
use super::records::{Done, Records};
use super::{Content, RecordError, Slot, TopicId, Topics};
use crate::state::schedule::HEADERS;
use crate::unit::{Span, Time};
use crate::wire::{Frame, Frames};

/// Bytes of states per byte of records, if states could use the whole rate.
const STATES_PER_RECORD: usize = 15;

/// The maximum credit in bytes: two datagrams on most paths.
const MAX_CREDIT: usize = 3_000;

/// The maximum fraction of a period that records may take when they join an update on a free path.
const FREE: f64 = 0.2;

/// The growth factor of the bound of the time per byte, per update that indicates a longer time.
/// The path may have changed.
const LONGER: f64 = 1.125;

/// The maximum credit that is needed for records to lead.
const MAX_LEAD: usize = 1_500;

/// How records share the path with states.
#[derive(Debug)]
pub(super) struct Share {
    /// Bytes of states sent since the credit was spent, at most [`MAX_CREDIT`] times
    /// [`STATES_PER_RECORD`].
    earned: usize,
    /// The upper bound of the transmission time of a byte, in seconds; infinite while unknown.
    byte_time: f64,
    /// Whether the monitor is known to support records. Until then, records and states are in
    /// separate updates: a monitor without support skips records, and its ack would concern the
    /// states.
    is_understood: bool,
    /// In the chosen update: bytes of frames of records, and whether they are charged to the
    /// credit.
    bytes: usize,
    is_charged: bool,
    /// Bytes of records in it.
    payload: usize,
    /// Whether they took a turn for which there was no state: the next state need not wait for it.
    is_lending: bool,
    /// Whether the first topic's records found no room when records were last written.
    were_left_out: bool,
    /// Indices of topics in the order of their turns, while records are written.
    order: Vec<usize>,
    /// Consecutive updates led by urgent records. After a [`BURST`] it is the turn of states.
    in_a_row: u64,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            earned: MAX_CREDIT * STATES_PER_RECORD,
            byte_time: f64::INFINITY,
            is_understood: false,
            bytes: 0,
            is_charged: false,
            payload: 0,
            is_lending: false,
            were_left_out: false,
            order: Vec::new(),
            in_a_row: 0,
        }
    }
}

impl Share {
    fn credit(&self) -> usize {
        self.earned / STATES_PER_RECORD
    }

    /// Bytes of records that may join an update without credit.
    fn free(&self, slot: &Slot) -> usize {
        let time = slot.period.as_secs_f64() * FREE;
        if slot.is_path_free() { (time / self.byte_time) as usize } else { 0 }
    }

    /// The ack of an update of this many bytes arrived after this time.
    fn on_acked(&mut self, bytes: usize, after: Span) {
        // A coarse clock may give zero, which would never grow.
        let time = after.as_secs_f64().max(1e-9) / bytes.max(1) as f64;
        self.byte_time = time.min(self.byte_time * LONGER);
    }

    fn clear(&mut self) {
        (self.bytes, self.is_charged, self.payload) = (0, false, 0);
        self.is_lending = false;
    }
}

impl Topics {
    /// Puts the next record of a topic; returns its first number.
    ///
    /// # Errors
    /// [`RecordError`] if it is not accepted.
    pub(in super::super) fn put_record(
        &mut self,
        topic: TopicId,
        generated_at: Time,
        record: &[u8],
    ) -> Result<u64, RecordError> {
        let Some(records) = self.records_mut(topic) else {
            let name = self.params(topic).map(|params| params.name.clone());
            return Err(RecordError::NotEvery(name.unwrap_or_default()));
        };
        let first = records.put(generated_at, record)?;
        let (ready_at, hurried_at) = (records.ready_at(), records.hurried_at());
        self.wants.records_at = Time::earliest([self.wants.records_at, ready_at]);
        self.wants.ready_at = Time::earliest([self.wants.ready_at, hurried_at]);
        Ok(first)
    }

    /// The records of a topic, if it is of records.
    pub(in super::super) fn records(&self, topic: TopicId) -> Option<&Records> {
        let number = self.number_of(topic)?;
        self.records.iter().find(|records| records.number == number)
    }

    fn records_mut(&mut self, topic: TopicId) -> Option<&mut Records> {
        let number = self.number_of(topic)?;
        self.records.iter_mut().find(|records| records.number == number)
    }

    /// A topic with newly done records that were not reported to the driver yet.
    #[inline]
    pub(in super::super) fn poll_done(&mut self) -> Option<TopicId> {
        let news = self.records.iter_mut().find(|records| records.has_news)?;
        news.has_news = false;
        let place = self.keys.iter().position(|keys| keys.topic() == news.number)?;
        Some(TopicId(place as u8))
    }

    // ---- inputs ----

    pub(super) fn on_records_opened(&mut self) {
        self.records.iter_mut().for_each(Records::on_opened);
        self.share = Share::default();
    }

    pub(super) fn on_records_ack(&mut self, now: Time, ack: &AckedParts, is_late: bool) {
        for place in 0..self.records.len() {
            let records = &mut self.records[place];
            if !is_late && let Some((bytes, sent_at)) = records.sent_in(ack.seq) {
                self.share.on_acked(bytes, now.since(sent_at));
            }
            self.share.is_understood |= records.leads(ack.seq);
            let done = match is_late {
                true => records.on_late_ack(ack),
                false => records.on_ack(now, ack),
            };
            let Some(Done { records: count, generated_at }) = done else { continue };
            let topic = &mut self.list[usize::from(records.number)];
            topic.counters.delivered += count;
            if generated_at > Time::ZERO {
                topic.age.on_update(now, generated_at);
            }
        }
    }

    // ---- sending ----

    pub(super) fn clear_records(&mut self) {
        self.share.clear();
        self.records.iter_mut().for_each(Records::clear);
    }

    /// Writes the update if records, or a request for a cursor, lead it, with states that join
    /// them; returns whether they do.
    pub(super) fn lead_by_records(&mut self, slot: &Slot) -> bool {
        if self.records.is_empty() {
            return false;
        }
        let may_hurry = self.may_hurry() || self.leader(slot).is_none();
        let leads = (may_hurry && self.write_records(slot, usize::MAX, true))
            || self.ask_for_cursor(slot)
            || self.lead_by_turn(slot);
        if leads
            && self.share.is_understood
            && let Some((place, index)) = self.leader(slot)
        {
            self.keep_joining(slot, self.list[place].is_unbounded(slot, Content::Whole));
            self.join(slot, usize::MAX, if slot.are_bytes_scarce { index } else { 0.0 });
        }
        leads
    }

    /// Writes records if it is their turn: no state is ready, or there is credit for a datagram of
    /// them and none has joined the states before. Returns whether it did.
    fn lead_by_turn(&mut self, slot: &Slot) -> bool {
        let ready = self.records.iter().filter(|records| records.can_send(slot.now));
        let wanted: usize = ready.map(Records::wanted).sum();
        if wanted == 0 {
            return false;
        }
        if self.leader(slot).is_none() {
            self.share.is_lending = slot.are_records_due;
            return slot.are_records_due && self.write_records(slot, usize::MAX, false);
        }
        let credit = self.share.credit();
        let is_paid =
            (slot.may_begin || slot.are_records_due) && credit >= (HEADERS + wanted).min(MAX_LEAD);
        let can_join = self.share.is_understood && !self.share.were_left_out;
        if can_join || !is_paid {
            return false;
        }
        self.share.is_charged = true;
        self.write_records(slot, credit - HEADERS, false)
    }

    /// Records join states that lead. They are written before the states if the ack need not have
    /// the number of a state.
    pub(super) fn join_records(&mut self, slot: &Slot) {
        if self.records.is_empty() || slot.is_ahead || !slot.may_begin || !self.share.is_understood
        {
            return;
        }
        let states = core::mem::take(&mut self.frames);
        let room = slot.room.saturating_sub(states.len());
        let free = if slot.are_bytes_scarce { self.share.free(slot) } else { usize::MAX };
        self.write_records(&Slot { room, ..*slot }, free.max(self.share.credit()), false);
        self.share.is_charged = self.share.bytes > free || !slot.is_path_free();
        match self.carried.iter().all(|it| matches!(it.content, Content::Whole)) {
            true => self.frames.extend_from_slice(&states),
            false => drop(self.frames.splice(0..0, states)),
        }
    }

    /// Writes records of topics, in the order of their oldest records; returns whether there are
    /// any. If the records of the first topic find no room, they count as left out, even if others
    /// fit.
    fn write_records(&mut self, slot: &Slot, budget: usize, are_urgent: bool) -> bool {
        let Self { records, share, frames, .. } = self;
        let can_send = |records: &Records| {
            records.can_send(slot.now)
                && records.params.is_urgent >= are_urgent
                && (slot.may_begin || slot.are_records_due || are_urgent)
        };
        share.order.clear();
        share.order.extend((0..records.len()).filter(|place| can_send(&records[*place])));
        share.order.sort_by_key(|place| records[*place].turn());
        let start = frames.len();
        for (at, place) in share.order.iter().enumerate() {
            let budget = budget.saturating_sub(frames.len() - start);
            share.payload += records[*place].write(slot, budget, frames);
            if at == 0 {
                share.were_left_out = !records[*place].is_chosen();
            }
        }
        share.bytes += frames.len() - start;
        frames.len() > start
    }

    /// Writes a request for a cursor if one is due; an ack has one cursor.
    fn ask_for_cursor(&mut self, slot: &Slot) -> bool {
        let may_ask = slot.may_begin || slot.are_records_due;
        let is_due =
            |records: &&mut Records| may_ask && records.ask_at().is_some_and(|at| at <= slot.now);
        let Some(records) = self.records.iter_mut().find(is_due) else { return false };
        records.ask(slot.srtt, &mut self.frames);
        self.share.bytes += self.frames.len();
        true
    }

    /// For an update whose ack would not report which other updates have arrived: lets a request
    /// for a cursor lead it if an update with records is unresolved. Returns whether it did.
    pub(super) fn ask_of_records(&mut self, slot: &Slot) -> bool {
        if !self.share.is_understood || self.frames.len() + 8 > slot.room {
            return false;
        }
        let Some(records) = self.records.iter_mut().find(|it| it.has_chunks_in_flight()) else {
            return false;
        };
        let states = core::mem::take(&mut self.frames);
        records.ask(slot.srtt, &mut self.frames);
        self.share.bytes += self.frames.len();
        self.frames.extend_from_slice(&states);
        true
    }

    /// From when on there are records to send, or requests for cursors.
    pub(in super::super) fn records_at(&self) -> Option<Time> {
        self.wants.records_at
    }

    /// Whether urgent records may be sent before states.
    pub(super) fn may_hurry(&self) -> bool {
        self.share.in_a_row < BURST
    }

    /// Whether records lead the chosen update because there was no state.
    pub(in super::super) fn is_lending(&self) -> bool {
        self.share.is_lending
    }

    /// Bytes of records in the chosen update.
    pub(super) fn records_len(&self) -> usize {
        self.share.payload
    }

    /// Whether records, or a request for a cursor, are in the chosen update.
    pub(super) fn has_records(&self) -> bool {
        self.records.iter().any(Records::is_chosen)
    }

    /// Whether records of an urgent topic are in the chosen update.
    pub(super) fn has_urgent_records(&self) -> bool {
        self.records.iter().any(|it| it.is_chosen() && !it.asks_now && it.params.is_urgent)
    }

    /// Whether the chosen update requests a cursor in its ack.
    pub(super) fn asks_for_cursor(&self) -> bool {
        self.records.iter().any(|records| records.asks_now)
    }

    /// The chosen update was sent.
    pub(super) fn on_records_sent(&mut self, now: Time, seq: u64) {
        if self.records.is_empty() {
            return;
        }
        // The ack has the cursor of the leading topic.
        let lead = match Frames::appended(&self.frames).lead() {
            Some(Frame::Record(chunk)) => Some(chunk.topic),
            Some(Frame::Cursor(topic)) => Some(topic),
            _ => None,
        };
        let have_led = lead.is_some() && self.has_urgent_records();
        self.share.in_a_row = if have_led { self.share.in_a_row.saturating_add(1) } else { 0 };
        let Share { bytes, is_charged, .. } = self.share;
        let states = self.frames.len() - bytes.min(self.frames.len());
        let share = &mut self.share;
        if states > 0 {
            let headers = if lead.is_some() { 0 } else { HEADERS };
            let limit = MAX_CREDIT * STATES_PER_RECORD;
            share.earned = (share.earned + states + headers).min(limit);
        }
        if is_charged {
            let headers = if states > 0 { 0 } else { HEADERS };
            let spent = (bytes + headers) * STATES_PER_RECORD;
            share.earned = share.earned.saturating_sub(if bytes > 0 { spent } else { 0 });
        }
        let bytes = self.frames.len() + HEADERS;
        for records in &mut self.records {
            let (ends, payload) = records.on_sent(now, (seq, bytes), lead == Some(records.number));
            let counters = &mut self.list[usize::from(records.number)].counters;
            counters.sent += ends;
            counters.payload_bytes += payload;
        }
        self.share.clear();
    }
}
