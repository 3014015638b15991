//! A monitor's memory of the topics of one source, in addition to the state of the first one.
//!
//! All of it is charged to the [`Budget`] of states in parts: a session costs little more than
//! without topics until it sends topics, and the memory of all sessions for topics is bounded.
//!
//! **Keys.** A number can be reused for another key. The first update that names a key (its number
//! is in the name frame) begins the key's **life**: frames with lower numbers belong to a former
//! key and are ignored. Of a removed key, only the number of the removal is kept, so that no late
//! state restores it; names of that life or an earlier one are ignored too. So any order of
//! updates, with any number of copies, leads to the same keys.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::change::{Change, RemovedTopic};
use super::held::{
    AGE_KNOWN, Arrival, BOUNDED, By, HAS_STATE, Large, LargeStates, Since, StateMut, WITHHELD,
    error_in,
};
use super::latest::{Latest, StateAge};
use crate::age::AgeProcess;
use crate::state::Budget;
use crate::unit::{Span, Time};
use crate::wire::{Frame, Opening, TopicKey, TopicName};

/// The maximum memory of a topic's deadline, in addition to its names, in bytes.
pub(super) const DEADLINE_COST: usize = 512;

/// The memory of a record in addition to its state, in bytes: with its entries in two lists that
/// grow by doubling, its deadline, and the longest name and key, so that there is always room for a
/// state's name.
const COST: usize = size_of::<TopicRecord>()
    + 2 * (size_of::<usize>() + size_of::<u16>())
    + DEADLINE_COST
    + Opening::MAX_NAME
    + TopicKey::MAX_LEN;

/// The memory of a removed key, in bytes. Less than [`COST`], so that there is always room for it.
const COST_OF_REMOVED: usize = 2 * size_of::<(u16, u64)>();

/// The newest state of one topic, or of one key.
#[derive(Debug)]
pub struct TopicRecord {
    number: u16,
    /// Its name; empty until it has arrived.
    name: Box<str>,
    /// Its key; empty if the topic has none.
    key: Box<[u8]>,
    /// States with lower numbers belong to former keys.
    life: u64,
    /// The last update whose fresh state was reported, plus 1.
    reported: u64,
    payload: Vec<u8>,
    state_number: u64,
    generated_at: Time,
    age: AgeProcess,
    since: Since,
    large: Large,
    flags: u64,
    fresh: u64,
    no_room: u64,
}

impl TopicRecord {
    fn new(number: u16, life: u64) -> Self {
        Self {
            number,
            name: Box::default(),
            key: Box::default(),
            life,
            reported: 0,
            payload: Vec::new(),
            state_number: 0,
            generated_at: Time::ZERO,
            age: AgeProcess::new(),
            since: Since::default(),
            large: Large::default(),
            flags: 0,
            fresh: 0,
            no_room: 0,
        }
    }

    /// Its number at its source.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Its name; empty until it has arrived.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its key; `None` if the topic has no keys, or before the name has arrived.
    pub fn key(&self) -> Option<&[u8]> {
        (!self.key.is_empty()).then_some(&self.key)
    }

    /// Its newest state, with its age at `now`; `None` as of
    /// [`Record::latest`](super::Record::latest).
    pub fn latest(&self, now: Time) -> Option<Latest<'_>> {
        let payload = self.payload()?;
        Some(Latest { payload, age: self.bounded_age(now) })
    }

    /// Its newest state; `None` without a state, or if it is withheld.
    pub fn payload(&self) -> Option<&[u8]> {
        (self.has_state() && !self.is_withheld()).then_some(&self.payload)
    }

    /// Whether its newest state is withheld; see
    /// [`MonitorParams::max_age`](super::MonitorParams::max_age).
    pub fn is_withheld(&self) -> bool {
        self.flags & WITHHELD != 0
    }

    /// The age of its newest state with its uncertainty, as in [`Latest`].
    pub fn bounded_age(&self, now: Time) -> Option<StateAge> {
        let estimate = self.state_age(now).map(|age| (age, error_in(self.flags)));
        Some(StateAge::of(estimate, self.since()?, now))
    }

    pub(super) fn since(&self) -> Option<Since> {
        (self.flags & BOUNDED != 0).then_some(self.since)
    }

    /// When the newest state was sampled, on the source's clock; meaningless without a state.
    pub fn generated_at(&self) -> Time {
        self.generated_at
    }

    /// The age of the newest state; `None` until an update has carried it together with the clock
    /// offset.
    pub fn state_age(&self, now: Time) -> Option<Span> {
        if self.flags & AGE_KNOWN != 0 { self.age.age(now) } else { None }
    }

    /// The age over time, from updates that carried the clock offset.
    pub fn age(&self) -> &AgeProcess {
        &self.age
    }

    /// States that were the freshest on arrival, or on completion.
    pub fn fresh(&self) -> u64 {
        self.fresh
    }

    /// States for which there was no room.
    pub fn no_room(&self) -> u64 {
        self.no_room
    }

    pub(super) fn state_number(&self) -> Option<u64> {
        self.has_state().then_some(self.state_number)
    }

    fn has_state(&self) -> bool {
        self.flags & HAS_STATE != 0
    }

    fn state_mut(&mut self) -> StateMut<'_> {
        StateMut {
            payload: &mut self.payload,
            number: &mut self.state_number,
            generated_at: &mut self.generated_at,
            age: &mut self.age,
            since: &mut self.since,
            own: Some(&mut self.large),
            flags: &mut self.flags,
            is_charged: true,
        }
    }
}

/// Updates with a state for which there was no room: the newest one, and which of the 64 before it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Refused {
    newest: Option<u64>,
    before: u64,
}

impl Refused {
    fn insert(&mut self, seq: u64) {
        let Some(newest) = self.newest else {
            self.newest = Some(seq);
            return;
        };
        if seq > newest {
            let by = seq - newest;
            let moved = if by < 64 { self.before << by } else { 0 };
            self.before = if by <= 64 { moved | 1 << (by - 1) } else { 0 };
            self.newest = Some(seq);
        } else if (1..=64).contains(&(newest - seq)) {
            self.before |= 1 << (newest - seq - 1);
        }
    }

    /// Whether an update was refused, and which of the 64 before it were.
    pub(super) fn of(&self, seq: u64) -> (bool, u64) {
        let Some(newest) = self.newest else { return (false, 0) };
        let is_in = |of: u64| match newest.checked_sub(of) {
            Some(0) => true,
            Some(behind) if behind <= 64 => self.before & (1 << (behind - 1)) != 0,
            _ => false,
        };
        let bit = |at: u64| u64::from(seq.checked_sub(at + 1).is_some_and(is_in)) << at;
        (is_in(seq), (0..64).map(bit).fold(0, |bits, bit| bits | bit))
    }
}

/// The topics and keys of one source, by their numbers.
#[derive(Debug, Default)]
pub(super) struct TopicRecords {
    /// Boxed, so that an insertion moves little memory.
    #[expect(clippy::vec_box, reason = "a record has hundreds of bytes")]
    all: Vec<Box<TopicRecord>>,
    /// The numbers of records with a name, in the order of names and keys.
    by_name: Vec<u16>,
    /// The numbers of removed keys, each with the number of its removal.
    removed: Vec<(u16, u64)>,
    refused: Refused,
    /// Whether the age of a state may be unknown.
    lacks_ages: bool,
    /// The bytes charged to the budget for records.
    share: usize,
}

impl TopicRecords {
    pub(super) fn all(&self) -> impl Iterator<Item = &TopicRecord> {
        self.all.iter().map(|topic| &**topic)
    }

    pub(super) fn refused(&self) -> Refused {
        self.refused
    }

    /// There was no room for a state in this update.
    pub(super) fn refuse(&mut self, seq: u64) {
        self.refused.insert(seq);
    }

    /// A state has arrived without the clock offset.
    pub(super) fn lacks_ages(&mut self) {
        self.lacks_ages = true;
    }

    /// An update has arrived, which may carry the clock offset.
    pub(super) fn learn_ages(&mut self, by: &By<'_>, changes: &mut Vec<Change>) {
        let Some(offset) = by.update.clock_offset.filter(|_| self.lacks_ages) else { return };
        self.lacks_ages = false;
        for topic in &mut self.all {
            if topic.state_mut().learn_age(by, offset) {
                changes.push(Change::Aged(topic.number));
            }
        }
    }

    pub(super) fn get(&self, number: u16) -> Option<&TopicRecord> {
        Some(&self.all[self.place(number).ok()?])
    }

    pub(super) fn flags_mut(&mut self, number: u16) -> Option<&mut u64> {
        let place = self.place(number).ok()?;
        Some(&mut self.all[place].flags)
    }

    /// Sets the name of a topic or a key, if it can be used as a file name and a label and is not
    /// in use. The name of a topic is final; a number can be reused for another key in a later
    /// life.
    pub(super) fn on_name(&mut self, seq: u64, name: TopicName<'_>, large: &mut LargeStates) {
        let TopicName { topic, name, key, .. } = name;
        // The first topic's states are in the record.
        if name.is_empty() || !Opening::is_plain_name(name) || (topic == 0 && key.is_some()) {
            return;
        }
        let life = key.map_or(0, |key| seq.saturating_sub(key.behind));
        let key = key.map_or(&[][..], |key| key.bytes);
        if self.removed_at(topic).is_some_and(|at| life <= at) {
            return;
        }
        match self.place_of_name(name, key).map(|place| self.by_name[place]) {
            Ok(number) if number == topic => {
                if let Ok(place) = self.place(number) {
                    self.all[place].life = self.all[place].life.max(life);
                }
                return;
            }
            // A key that has another number now, whose former number the monitor knew before the
            // source's restart.
            Ok(number) if self.get(number).is_some_and(|other| other.life < life) => {
                self.remove(number, None, large);
            }
            Ok(_) => return,
            Err(_) => {}
        }
        if let Some(former) = self.get(topic) {
            let is_of_former = former.state_number().is_some_and(|number| number < life);
            if !former.name.is_empty() && former.life >= life {
                return;
            }
            if !former.name.is_empty() || is_of_former {
                self.remove(topic, Some(life.saturating_sub(1)), large);
            }
        }
        self.set_name(topic, life, (name, key), &mut large.budget);
    }

    fn set_name(&mut self, topic: u16, life: u64, (name, key): (&str, &[u8]), budget: &mut Budget) {
        let Some(place) = self.find(topic, budget) else { return };
        let Err(by_name) = self.place_of_name(name, key) else { return };
        let record = &mut self.all[place];
        (record.name, record.key) = (name.into(), key.into());
        record.life = record.life.max(life);
        self.by_name.insert(by_name, topic);
    }

    /// A frame of a topic or a key has arrived, other than a name.
    pub(super) fn on_frame(
        &mut self,
        by: &By<'_>,
        frame: Frame<'_>,
        large: &mut LargeStates,
    ) -> Arrival {
        let (topic, is_whole) = (frame.topic(), matches!(frame, Frame::State { .. }));
        let number = frame.id().map_or(0, |id| id.number(by.update.seq));
        if let Frame::Removed(_) = frame {
            return self.on_removed(topic, number, large);
        }
        let is_former = match self.get(topic) {
            Some(record) => number < record.life,
            None => self.removed_at(topic).is_some_and(|at| number <= at),
        };
        let is_known = self.place(topic).is_ok();
        let place = match frame {
            _ if is_former => return if is_whole { Arrival::Late } else { Arrival::Part },
            Frame::Again(_) if !is_known => None,
            _ => self.find(topic, &mut large.budget),
        };
        let Some(place) = place else {
            return if is_whole { Arrival::NoRoom } else { Arrival::Part };
        };
        let topic = &mut self.all[place];
        let arrival = topic.state_mut().on_frame(by, frame, large);
        topic.no_room += u64::from(arrival == Arrival::NoRoom);
        if arrival == Arrival::Fresh {
            topic.fresh += 1;
            let reported = by.update.seq.saturating_add(1);
            if core::mem::replace(&mut topic.reported, reported) != reported {
                large.changes.push(Change::Fresh(topic.number));
            }
        }
        arrival
    }

    /// A key is removed; the removal is newer than all its states with lower numbers.
    fn on_removed(&mut self, topic: u16, number: u64, large: &mut LargeStates) -> Arrival {
        match self.get(topic) {
            Some(record) => {
                let is_late = number < record.life || Some(number) <= record.state_number();
                if is_late {
                    return Arrival::Late;
                }
                self.remove(topic, Some(number), large);
                Arrival::Part
            }
            None => self.note_removed(topic, number, &mut large.budget),
        }
    }

    /// Drops a record: its key is removed, by a frame of this number, or continues under another
    /// number.
    fn remove(&mut self, topic: u16, by: Option<u64>, large: &mut LargeStates) {
        let Ok(place) = self.place(topic) else { return };
        if let Ok(by_name) = self.place_of_name(&self.all[place].name, &self.all[place].key) {
            self.by_name.remove(by_name);
        }
        let mut gone = self.all.remove(place);
        gone.large.release(&mut large.budget);
        let is_noted = self.removed_at(topic).is_some();
        let kept = self.share - COST + if is_noted { 0 } else { COST_OF_REMOVED };
        // A reduction always succeeds.
        let _ = large.budget.resize(&mut self.share, kept);
        // Frames of this life, and of earlier keys with this number, count as late from now on.
        let last = gone.life.max(by.or(gone.state_number()).unwrap_or(0));
        self.set_removed(topic, last);
        large.changes.push(Change::Dropped(topic));
        let had_state = gone.has_state() && !gone.name.is_empty();
        if let Some(number) = by.filter(|_| had_state) {
            let TopicRecord { name, key, .. } = *gone;
            large.changes.push(Change::Removed(Box::new(RemovedTopic { number, name, key })));
        }
    }

    fn note_removed(&mut self, topic: u16, number: u64, budget: &mut Budget) -> Arrival {
        let wanted = self.share + COST_OF_REMOVED;
        if self.removed_at(topic).is_none() && !budget.resize(&mut self.share, wanted) {
            return Arrival::NoRoom;
        }
        self.set_removed(topic, number);
        Arrival::Part
    }

    /// Notes a removal, which is charged to the budget.
    fn set_removed(&mut self, topic: u16, number: u64) {
        match self.removed.binary_search_by_key(&topic, |(topic, _)| *topic) {
            Ok(place) => self.removed[place].1 = self.removed[place].1.max(number),
            Err(place) => self.removed.insert(place, (topic, number)),
        }
    }

    fn removed_at(&self, topic: u16) -> Option<u64> {
        let place = self.removed.binary_search_by_key(&topic, |(topic, _)| *topic).ok()?;
        Some(self.removed[place].1)
    }

    /// Drops everything except the name of the first topic, whose state the record keeps.
    pub(super) fn release(&mut self, budget: &mut Budget) {
        self.all.iter_mut().for_each(|topic| topic.large.release(budget));
        budget.release(&mut self.share);
        let is_first = |topic: &TopicRecord| topic.number == 0 && !topic.name.is_empty();
        let first = self.all.drain(..).next().filter(|topic| is_first(topic));
        let by_name = first.iter().map(|topic| topic.number).collect();
        *self = Self { all: first.into_iter().collect(), by_name, ..Self::default() };
    }

    /// Whether no frame of any topic has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The index of a topic, which is added if it is new; `None` if there is no room for it.
    fn find(&mut self, number: u16, budget: &mut Budget) -> Option<usize> {
        match self.place(number) {
            Ok(place) => Some(place),
            Err(place) => {
                let removed = self.removed.binary_search_by_key(&number, |(topic, _)| *topic);
                let freed = if removed.is_ok() { COST_OF_REMOVED } else { 0 };
                let wanted = self.share + COST - freed;
                if !budget.resize(&mut self.share, wanted) {
                    return None;
                }
                let life =
                    removed.map_or(0, |place| self.removed.remove(place).1.saturating_add(1));
                self.all.insert(place, Box::new(TopicRecord::new(number, life)));
                Some(place)
            }
        }
    }

    fn place(&self, number: u16) -> Result<usize, usize> {
        self.all.binary_search_by_key(&number, |topic| topic.number())
    }

    /// The index of a name in the list of names, or where it would be inserted.
    fn place_of_name(&self, name: &str, key: &[u8]) -> Result<usize, usize> {
        let named = |number: &u16| {
            self.get(*number).map_or(("", &[][..]), |topic| (&*topic.name, &*topic.key))
        };
        self.by_name.binary_search_by(|number| named(number).cmp(&(name, key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_updates_are_named_in_any_order() {
        let mut refused = Refused::default();
        assert_eq!(refused.of(7), (false, 0));
        for seq in [10, 12, 9, 80] {
            refused.insert(seq);
        }
        assert_eq!(refused.of(80), (true, 0), "the others are more than 64 behind");
        let mut refused = Refused::default();
        for seq in [10, 12, 9] {
            refused.insert(seq);
        }
        assert_eq!(refused.of(12), (true, 0b110));
        assert_eq!(refused.of(13), (false, 0b1101));
        assert_eq!(refused.of(11), (false, 0b11));
    }
}
