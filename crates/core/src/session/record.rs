//! The record of one source at a monitor: less than 320 bytes in addition to the payload, 512 more
//! for a source whose updates arrive over paths with very different delays, and for a source with
//! large states as much as their [`Budget`] allows.

mod any_topic;
mod of_records;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::change::Change;
use super::cookie::SessionLabel;
use super::held::{
    AGE_KNOWN, Arrival, By, HAS_STATE, Large, LargeStates, OWN, Since, StateMut, WITHHELD,
    error_in, is_credible,
};
use super::latest::{Latest, StateAge};
use super::recent::Recent;
use super::streams::Streams;
use super::topic_record::{Refused, TopicRecord, TopicRecords};
use crate::age::AgeProcess;
use crate::dscp::Dscp;
use crate::path::MAX_PATHS;
use crate::unit::{Span, Time};
use crate::wire::{Ack, Frame, Marks, PartsAck, SessionId, Update};

/// The key of a source's [`Record`] in its monitor, valid as long as the record exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey(pub(super) u32);

impl SourceKey {
    /// A small number, as an index for the caller's own tables. It is reused after a record has
    /// ended; a session that replaces another one of the same name keeps its key.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The credential to which a session is bound, and its public label.
#[derive(Debug, Clone, Copy)]
pub(super) struct Binding {
    /// The credential of the opening; see [`Record::credential`].
    pub(super) credential: u64,
    pub(super) label: SessionLabel,
}

/// The freshest state of one source, with the history of its updates.
#[derive(Debug)]
pub struct Record<P> {
    /// The session id. An attacker who knows it may be able to impersonate the source: do not show
    /// it; show [`Record::label`] instead.
    pub session: SessionId,
    /// The sender of its last update.
    pub peer: P,
    /// All senders that have opened it, the latest last, if there are several. Boxed, as few
    /// sources have several paths.
    #[allow(clippy::box_collection)]
    bound: Option<Box<Vec<P>>>,
    binding: Binding,
    /// The name given by the source; may be empty.
    pub name: Box<str>,
    payload: Vec<u8>,
    /// When the last update arrived, fresh or not.
    pub heard_at: Time,
    /// The sequence number of the newest update.
    pub newest_seq: u64,
    /// The number of the held state: the first update that carried it.
    state_number: u64,
    /// When the freshest state was sampled, on the *source's* clock.
    pub generated_at: Time,
    /// The age, from updates that carried the clock offset. It is the age of an older state until
    /// an update with the offset has brought the newest: [`Record::state_age`] distinguishes the
    /// two.
    pub age: AgeProcess,
    since: Since,
    first_seq: u64,
    /// Which of the updates before the freshest have arrived.
    recent: Recent,
    /// Present if the source has sent, or announced, states in parts, or has topics.
    more: Option<Box<More>>,
    fresh: u64,
    /// Seven values in one field, as separate fields would add 32 bytes to each record:
    /// - bit 0: whether `age` is that of the held state;
    /// - bits 1 to 7: 1 + the code point of the last update, 0 if it is unknown;
    /// - bit 8: whether there is a state;
    /// - bit 9: whether `since` is known;
    /// - bit 10: whether the state is withheld;
    /// - bits 11 to 18: the error of `age`, as a code;
    /// - the bits from 19 on: the number of stale updates.
    packed: u64,
}

/// Fields that few sources need.
#[derive(Debug, Default)]
struct More {
    large: Large,
    topics: TopicRecords,
    streams: Streams,
}

/// The bits of the code point.
const DSCP: u64 = 0x7f << 1;
/// The lowest bit of the number of stale updates.
const STALE: u32 = OWN;

/// The result of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) arrival: Arrival,
    /// Whether it is newer than all before, and carries no outdated state. A late update can still
    /// complete a fresh state, with its last part.
    pub(super) was_fresh: bool,
}

impl Received {
    const COPY: Self = Self { arrival: Arrival::Copy, was_fresh: false };
}

impl<P: Copy> Record<P> {
    /// The senders that have opened the session, if there are several; otherwise `peer` is the only
    /// one.
    pub fn bound(&self) -> &[P] {
        self.bound.as_deref().map_or(&[], Vec::as_slice)
    }

    /// An update has arrived from a sender that has opened the session; `is_it` finds it.
    pub(super) fn hear(&mut self, peer: P, is_it: impl Fn(&P) -> bool) {
        self.peer = peer;
        if let Some(bound) = self.bound.as_deref_mut()
            && let Some(place) = bound.iter().position(is_it)
        {
            // The last entry is the most recent sender.
            bound[place..].rotate_left(1);
        }
    }

    /// Another sender has opened the session too, and its updates come from there now. Beyond
    /// [`MAX_BOUND`], the sender that has been silent for the longest time must open again.
    pub(super) fn bind(&mut self, peer: P) {
        let bound = self.bound.get_or_insert_with(|| Box::new(alloc::vec![self.peer]));
        if bound.len() == MAX_BOUND {
            bound.remove(0);
        }
        bound.push(peer);
        self.peer = peer;
    }
}

/// The maximum number of senders of one session: twice the maximum number of paths, as each may
/// reconnect before its former connection is known to be gone.
const MAX_BOUND: usize = 2 * MAX_PATHS;

impl<P> Record<P> {
    /// A record that begins with its first update. The changes of topics are in
    /// [`LargeStates::changes`].
    pub(super) fn new(
        update: &Update<'_>,
        peer: P,
        name: Box<str>,
        binding: Binding,
        received_at: Time,
        large: &mut LargeStates,
    ) -> Self {
        let mut record = Self {
            session: update.session,
            peer,
            bound: None,
            binding,
            name,
            payload: Vec::new(),
            heard_at: received_at,
            newest_seq: update.seq,
            state_number: 0,
            generated_at: Time::ZERO,
            age: AgeProcess::new(),
            since: Since::default(),
            first_seq: update.seq,
            recent: Recent::new(),
            more: None,
            fresh: 0,
            packed: 0,
        };
        record.on_frames(update, received_at, large);
        record.fresh = 1;
        record
    }

    /// An update has arrived. The changes of further topics are in [`LargeStates::changes`].
    pub(super) fn on_update(
        &mut self,
        update: &Update<'_>,
        received_at: Time,
        large: &mut LargeStates,
    ) -> Received {
        self.heard_at = received_at;
        // An update from before the opening can carry the offset of a previous monitor.
        let is_believed = update.seq > self.first_seq && is_credible(update, received_at);
        let without_offset;
        let update = if is_believed || update.clock_offset.is_none() {
            update
        } else {
            without_offset = Update { clock_offset: None, ..*update };
            &without_offset
        };
        let is_newest = update.seq > self.newest_seq;
        if is_newest {
            self.recent.advance(self.newest_seq, update.seq);
            self.newest_seq = update.seq;
        } else if update.seq == self.newest_seq || !self.recent.insert(self.newest_seq, update.seq)
        {
            self.on_late_records(update, received_at, large);
            return Received::COPY;
        }
        let arrival = self.on_frames(update, received_at, large);
        let was_fresh = is_newest && arrival != Arrival::Late;
        match was_fresh {
            true => self.fresh += 1,
            false => self.packed += 1 << STALE,
        }
        let is_late = !was_fresh && arrival != Arrival::Fresh;
        Received { arrival: if is_late { Arrival::Late } else { arrival }, was_fresh }
    }

    /// Processes all frames; returns the result for the first topic.
    fn on_frames(
        &mut self,
        update: &Update<'_>,
        received_at: Time,
        large: &mut LargeStates,
    ) -> Arrival {
        let (mut first, mut is_fresh, mut is_repeated) = (Arrival::Part, false, false);
        // An update from before the opening may concern a previous monitor and contain a key that
        // was removed since. The source sends missing states again.
        let is_before = update.seq < self.first_seq;
        self.note_clock_offset(update, &mut large.changes);
        for frame in update.frames.iter().filter(|frame| !(is_before && frame.topic() > 0)) {
            let arrival = self.on_frame(update, frame, received_at, large);
            match frame.topic() {
                0 if frame.id().is_some() => {
                    is_fresh |= arrival == Arrival::Fresh;
                    is_repeated |= matches!(arrival, Arrival::Repeat { .. });
                    first = if first == Arrival::Part { arrival } else { first };
                }
                topic => self.note_arrival(topic, arrival, update, &mut large.changes),
            }
        }
        self.learn_ages(update, received_at, &mut large.changes);
        if is_fresh {
            large.changes.push(Change::Fresh(0));
        } else if is_repeated {
            large.changes.push(Change::Repeated(0));
        }
        first
    }

    fn on_frame(
        &mut self,
        update: &Update<'_>,
        frame: Frame<'_>,
        received_at: Time,
        large: &mut LargeStates,
    ) -> Arrival {
        // Whole states of the first topic fit into the record itself.
        if self.more.is_none() && !matches!(frame, Frame::State { id, .. } if id.topic == 0) {
            self.more = Some(Box::default());
        }
        let by = By { update, received_at };
        match (frame.topic(), frame) {
            (_, Frame::Name(name)) => {
                let more = self.more.get_or_insert_default();
                more.topics.on_name(update.seq, name, large);
                match name.stream {
                    Some(stream) => more.on_stream(&self.name, name, stream, large),
                    None => Arrival::Part,
                }
            }
            (_, Frame::Record(chunk)) => {
                self.more.get_or_insert_default().streams.on_chunk(&by, &chunk, large)
            }
            (topic, Frame::Cursor(_)) => self.on_question(topic, large),
            (0, frame) => self.state_mut().on_frame(&by, frame, large),
            (_, frame) => self.more.get_or_insert_default().topics.on_frame(&by, frame, large),
        }
    }

    fn state_mut(&mut self) -> StateMut<'_> {
        StateMut {
            payload: &mut self.payload,
            number: &mut self.state_number,
            generated_at: &mut self.generated_at,
            age: &mut self.age,
            since: &mut self.since,
            own: self.more.as_mut().map(|more| &mut more.large),
            flags: &mut self.packed,
            is_charged: false,
        }
    }

    /// The record ends: frees its states in parts and its further topics.
    pub(super) fn release(&mut self, large: &mut LargeStates) {
        if let Some(mut more) = self.more.take() {
            more.large.release(&mut large.budget);
            more.topics.release(&mut large.budget);
            more.streams.release(&self.name, large);
            self.more = (!more.topics.is_empty()).then_some(more);
        }
    }

    /// The ack of `update`, the last one that arrived; it is sent with `dscp`.
    pub(super) fn ack(
        &self,
        update: &Update<'_>,
        received_at: Time,
        hold: Span,
        fresh: bool,
        dscp: Dscp,
    ) -> Ack {
        Ack {
            session: self.session,
            seq: update.seq,
            sent_at: update.sent_at,
            received_at,
            hold,
            was_fresh: fresh,
            fresh: self.fresh as u32,
            stale: self.stale() as u32,
            missing: self.missing() as u32,
            marks: Marks { seen: self.dscp(), sent: Some(dscp) },
            parts: update.is_of_parts().then(|| self.parts(update)),
        }
    }

    fn parts(&self, update: &Update<'_>) -> PartsAck {
        let lead = update.frames.lead();
        let newest = match lead.map_or(0, |frame| frame.topic()) {
            topic if lead.is_some_and(|frame| frame.id().is_none()) => {
                self.more.as_ref().and_then(|more| more.streams.cursor(topic))
            }
            0 => self.has_state().then_some(self.state_number),
            topic => self.topic(topic).and_then(TopicRecord::state_number),
        };
        let recent = self.recent.before(self.newest_seq, update.seq);
        let more = self.more.as_ref();
        let refused = more.map_or(Refused::default(), |more| more.topics.refused());
        let (no_room, refused) = refused.of(update.seq);
        PartsAck { recent: recent & !refused, no_room, newest }
    }

    /// The topics and keys with received frames, sorted by their numbers. The state of topic 0 is
    /// that of the record; its topic has only the name.
    pub fn topics(&self) -> impl Iterator<Item = &TopicRecord> {
        self.more.iter().flat_map(|more| more.topics.all())
    }

    /// The topic or key of this number, if a frame of it has arrived.
    pub fn topic(&self, number: u16) -> Option<&TopicRecord> {
        self.more.as_ref()?.topics.get(number)
    }

    /// The newest state, with its age at `now`. `None` without a state, or if it is withheld
    /// because of [`MonitorParams::max_age`](super::MonitorParams::max_age).
    /// [`Monitor::latest`](super::Monitor::latest) also omits a state that has become too old.
    pub fn latest(&self, now: Time) -> Option<Latest<'_>> {
        let payload = self.payload()?;
        Some(Latest { payload, age: self.bounded_age(now) })
    }

    /// The newest state, as [`Record::latest`].
    pub fn payload(&self) -> Option<&[u8]> {
        (self.has_state() && !self.is_withheld()).then_some(&self.payload)
    }

    /// The bytes that the payload takes, withheld or not.
    pub fn payload_memory(&self) -> usize {
        self.payload.capacity()
    }

    /// Replaces the payload of a record whose session has ended: an empty one frees memory.
    pub fn set_payload(&mut self, payload: Vec<u8>) {
        self.payload = payload;
    }

    /// Whether the newest state is withheld.
    pub fn is_withheld(&self) -> bool {
        self.packed & WITHHELD != 0
    }

    /// The age of the newest state with its uncertainty, as in [`Latest`].
    pub fn bounded_age(&self, now: Time) -> Option<StateAge> {
        let estimate = self.state_age(now).map(|age| (age, error_in(self.packed)));
        Some(StateAge::of(estimate, self.since_of(0)?, now))
    }

    /// Whether there is a state: the session of a source with large states opens without one.
    pub fn has_state(&self) -> bool {
        self.packed & HAS_STATE != 0
    }

    /// The public label of the session; see [`SessionLabel`].
    pub fn label(&self) -> SessionLabel {
        self.binding.label
    }

    /// The credential that opened the session: that of [`Access`](super::Access), otherwise a keyed
    /// digest of the token.
    pub fn credential(&self) -> u64 {
        self.binding.credential
    }

    /// Sets the code point of the last update; `None` if the transport does not report it.
    pub(super) fn set_dscp(&mut self, dscp: Option<Dscp>) {
        let packed = dscp.map_or(0, |dscp| 1 + u64::from(dscp.get()));
        self.packed = (self.packed & !DSCP) | packed << 1;
    }

    /// The code point of the last update; `None` if the transport does not report it.
    pub fn dscp(&self) -> Option<Dscp> {
        let packed = (self.packed & DSCP) >> 1;
        packed.checked_sub(1).and_then(|number| Dscp::new(number as u8))
    }

    /// The age of the held state; `None` until an update has carried this state together with the
    /// clock offset, which an opening cannot carry.
    pub fn state_age(&self, now: Time) -> Option<Span> {
        if self.is_age_known() { self.age.age(now) } else { None }
    }

    fn is_age_known(&self) -> bool {
        self.packed & AGE_KNOWN != 0
    }

    /// Updates that were the freshest on arrival.
    pub fn fresh(&self) -> u64 {
        self.fresh
    }

    /// Updates that arrived after a fresher one.
    pub fn stale(&self) -> u64 {
        self.packed >> STALE
    }

    /// Updates numbered between the first and the freshest that have not arrived. An update from
    /// before the first counts as stale and can hide a missing one.
    pub fn missing(&self) -> u64 {
        let span = self.newest_seq.saturating_sub(self.first_seq).saturating_add(1);
        span.saturating_sub(self.fresh).saturating_sub(self.stale())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Budget, Limits};
    use crate::wire::{Frames, OffsetEstimate};

    fn large() -> LargeStates {
        LargeStates::new(Limits::default(), Budget::new(0), 9)
    }

    fn of(update: &Update<'_>) -> Record<()> {
        let binding = Binding { credential: 0, label: SessionLabel(1) };
        Record::new(update, (), "".into(), binding, Time::ZERO, &mut large())
    }

    fn update(seq: u64) -> Update<'static> {
        Update {
            session: SessionId(1),
            seq,
            sent_at: Time::from_nanos(seq),
            clock_offset: None,
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening: None,
            frames: Frames::fresh(b"x"),
        }
    }

    #[test]
    fn fresh_late_copied_and_missing_updates_are_told_apart() {
        let at = Time::ZERO;
        let mut record = of(&update(10));
        assert_eq!(record.on_update(&update(10), at, &mut large()).arrival, Arrival::Copy);
        assert_eq!(record.on_update(&update(14), at, &mut large()).arrival, Arrival::Fresh);
        assert_eq!(record.missing(), 3);
        assert_eq!(record.on_update(&update(10), at, &mut large()).arrival, Arrival::Copy);
        assert_eq!(record.on_update(&update(12), at, &mut large()).arrival, Arrival::Late);
        assert_eq!(record.on_update(&update(12), at, &mut large()).arrival, Arrival::Copy);
        assert_eq!(record.on_update(&update(78), at, &mut large()).arrival, Arrival::Fresh);
        assert_eq!(
            record.on_update(&update(14), at, &mut large()).arrival,
            Arrival::Copy,
            "64 behind is remembered"
        );
        assert_eq!(record.on_update(&update(u64::MAX), at, &mut large()).arrival, Arrival::Fresh);
        assert_eq!(
            record.on_update(&update(14), at, &mut large()).arrival,
            Arrival::Copy,
            "too long ago to know"
        );
        assert_eq!((record.fresh(), record.stale()), (4, 1));
    }

    #[test]
    fn loss_is_seen_over_paths_with_unequal_delays() {
        // Each update takes two paths. The second delivers it 500 updates later, the first loses
        // one in ten.
        let mut record = of(&update(1_000));
        for seq in 1_001..11_000u64 {
            if seq % 10 != 0 {
                record.on_update(&update(seq), Time::ZERO, &mut large());
            }
            if seq >= 1_500 {
                record.on_update(&update(seq - 500), Time::ZERO, &mut large());
            }
        }
        // 50 are still to come by the second path, and 50 came before the window was wide.
        assert!((90..=100).contains(&record.missing()), "{}", record.missing());
        // From now on the second path is dead.
        for seq in (11_000..21_000).filter(|seq| seq % 10 != 0) {
            record.on_update(&update(seq), Time::ZERO, &mut large());
        }
        assert!((1_090..=1_100).contains(&record.missing()), "{}", record.missing());
    }

    #[test]
    fn copies_that_are_far_behind_do_not_hide_losses() {
        // Nothing is lost at first, and every copy is 100 behind; then one in ten is lost on both.
        let mut record = of(&update(0));
        let is_lost = |seq: u64| seq >= 1_000 && seq.is_multiple_of(10);
        for seq in 1..10_000u64 {
            for seq in [Some(seq), seq.checked_sub(100)].into_iter().flatten() {
                if !is_lost(seq) {
                    record.on_update(&update(seq), Time::ZERO, &mut large());
                }
            }
        }
        assert_eq!((record.fresh(), record.stale(), record.missing()), (9_100, 0, 900));
    }

    #[test]
    fn counts_go_on_beyond_32_bits() {
        let mut record = of(&update(10));
        record.fresh = u64::from(u32::MAX);
        record.newest_seq = 10 + u64::from(u32::MAX) + 4;
        record.on_update(&update(record.newest_seq + 1), Time::ZERO, &mut large());
        assert_eq!((record.fresh(), record.missing()), (1 << 32, 5));
        let ack = record.ack(&update(11), Time::ZERO, Span::ZERO, true, Dscp::DEFAULT);
        assert_eq!((ack.fresh, ack.missing), (0, 5));
    }

    #[test]
    fn updates_before_the_first_do_not_count_as_missing() {
        let mut record = of(&update(10));
        for seq in 11..20 {
            record.on_update(&update(seq), Time::ZERO, &mut large());
        }
        assert_eq!(record.missing(), 0);
    }

    #[test]
    fn a_straggler_from_before_the_first_does_not_make_missing_wrap() {
        let mut record = of(&update(10));
        assert_eq!(record.on_update(&update(8), Time::ZERO, &mut large()).arrival, Arrival::Late);
        assert_eq!((record.stale(), record.missing()), (1, 0));
    }

    #[test]
    fn code_point_age_and_stale_updates_share_a_field() {
        let mut record = of(&update(10));
        for number in 0..=Dscp::MAX {
            record.set_dscp(Dscp::new(number));
            record.on_update(&update(u64::from(number) * 2 + 20), Time::ZERO, &mut large());
            record.on_update(&update(u64::from(number) * 2 + 19), Time::ZERO, &mut large());
            assert_eq!(record.dscp(), Dscp::new(number));
            assert_eq!((record.stale(), record.is_age_known()), (u64::from(number) + 1, false));
        }
        let offset = OffsetEstimate::new(0, Span::from_millis(1));
        record.on_update(
            &Update { clock_offset: Some(offset), ..update(500) },
            Time::ZERO,
            &mut large(),
        );
        record.set_dscp(None);
        assert_eq!((record.dscp(), record.stale(), record.is_age_known()), (None, 64, true));
    }

    #[test]
    fn a_record_leaves_room_for_the_tables_below_320_bytes() {
        // Up to a sixteenth of the records is spare; each table costs up to 12 bytes per entry.
        let record = size_of::<Record<core::net::SocketAddr>>();
        assert!(record * 17 / 16 + 2 * 12 <= 320, "{record}");
    }
}
