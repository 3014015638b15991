//! What a monitor holds of the topics of one source, besides the state of the first one.
//!
//! All of it is charged to the [`Budget`] of states in parts: a session costs little more than before until
//! it has shown topics, and what all sessions together may take for these is bounded.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::held::{
    AGE_KNOWN, Arrival, BOUNDED, By, HAS_STATE, Large, LargeStates, Since, StateMut, WITHHELD,
    error_in,
};
use super::latest::{Latest, StateAge};
use super::monitor::DEADLINE_COST;
use crate::age::AgeProcess;
use crate::state::Budget;
use crate::unit::{Span, Time};
use crate::wire::{Frame, Opening, TopicName};

/// What a record costs besides its name and its state, in bytes: with its place in a list that grows by
/// doubling, and its deadline.
const COST: usize = size_of::<TopicRecord>() + 2 * size_of::<usize>() + DEADLINE_COST;

/// The newest state of one topic.
#[derive(Debug)]
pub struct TopicRecord {
    number: u8,
    /// Its name; empty until it has come.
    name: Box<str>,
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
    fn new(number: u8) -> Self {
        Self {
            number,
            name: Box::default(),
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
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Its name; empty until it has come.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its newest state, with its age at `now`; `None` as of [`Record::latest`](super::Record::latest).
    pub fn latest(&self, now: Time) -> Option<Latest<'_>> {
        let payload = self.payload()?;
        Some(Latest { payload, age: self.bounded_age(now) })
    }

    /// Its newest state; `None` if there is none, or if it is withheld.
    pub fn payload(&self) -> Option<&[u8]> {
        (self.has_state() && !self.is_withheld()).then_some(&self.payload)
    }

    /// Whether its newest state is withheld; see [`MonitorParams::max_age`](super::MonitorParams::max_age).
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

    /// The age of the newest state; `None` until an update has carried it together with the clocks' offset.
    pub fn state_age(&self, now: Time) -> Option<Span> {
        if self.flags & AGE_KNOWN != 0 { self.age.age(now) } else { None }
    }

    /// The age over time, from updates that carried the clocks' offset.
    pub fn age(&self) -> &AgeProcess {
        &self.age
    }

    /// States that were the freshest when they came, or were complete.
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

/// Updates with a state for which there was no room: the newest, and which of the 64 before it.
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

    /// Whether an update is one of them, and which of the 64 before it are.
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

/// The topics of one source, by their numbers.
#[derive(Debug, Default)]
pub(super) struct TopicRecords {
    /// Boxed, so that little moves when a new one is put between others.
    #[expect(clippy::vec_box, reason = "a record has hundreds of bytes")]
    all: Vec<Box<TopicRecord>>,
    refused: Refused,
    /// What the budget is charged for records and names.
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

    pub(super) fn get(&self, number: u8) -> Option<&TopicRecord> {
        Some(&self.all[self.place(number).ok()?])
    }

    pub(super) fn flags_mut(&mut self, number: u8) -> Option<&mut u64> {
        let place = self.place(number).ok()?;
        Some(&mut self.all[place].flags)
    }

    /// The name of a topic, if it can be used as a file name and a label and no other topic has it. It is
    /// final.
    pub(super) fn on_name(&mut self, name: TopicName<'_>, budget: &mut Budget) {
        let TopicName { topic, name } = name;
        let Some(place) = self.find(topic, budget) else { return };
        if !self.all[place].name.is_empty()
            || !Opening::is_plain_name(name)
            || self.all.iter().any(|other| *other.name == *name)
        {
            return;
        }
        let wanted = self.share + name.len();
        if budget.resize(&mut self.share, wanted) {
            self.all[place].name = name.into();
        }
    }

    /// A frame of a topic has come, other than a name.
    pub(super) fn on_frame(
        &mut self,
        by: &By<'_>,
        frame: Frame<'_>,
        large: &mut LargeStates,
    ) -> Arrival {
        let (topic, is_whole) = (frame.topic(), matches!(frame, Frame::State { .. }));
        let is_known = self.place(topic).is_ok();
        let place = match frame {
            Frame::Again(_) if !is_known => None,
            _ => self.find(topic, &mut large.budget),
        };
        let Some(place) = place else {
            return if is_whole { Arrival::NoRoom } else { Arrival::Part };
        };
        let topic = &mut self.all[place];
        let arrival = topic.state_mut().on_frame(by, frame, large);
        topic.fresh += u64::from(arrival == Arrival::Fresh);
        topic.no_room += u64::from(arrival == Arrival::NoRoom);
        arrival
    }

    pub(super) fn release(&mut self, budget: &mut Budget) {
        self.all.iter_mut().for_each(|topic| topic.large.release(budget));
        budget.release(&mut self.share);
        self.all = Vec::new();
    }

    /// The place of a topic, which is new if need be; `None` if there is no room for it.
    fn find(&mut self, number: u8, budget: &mut Budget) -> Option<usize> {
        match self.place(number) {
            Ok(place) => Some(place),
            Err(place) => {
                let wanted = self.share + COST;
                if !budget.resize(&mut self.share, wanted) {
                    return None;
                }
                self.all.insert(place, Box::new(TopicRecord::new(number)));
                Some(place)
            }
        }
    }

    fn place(&self, number: u8) -> Result<usize, usize> {
        self.all.binary_search_by_key(&number, |topic| topic.number())
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
