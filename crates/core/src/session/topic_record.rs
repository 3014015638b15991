//! What a monitor holds of the topics of one source, besides the state of the first one.
//!
//! All of it is charged to the [`Budget`] of states in parts: a session costs little more than before until
//! it has shown topics, and what all sessions together may take for these is bounded.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::held::{AGE_KNOWN, Arrival, By, HAS_STATE, Large, LargeStates, StateMut};
use crate::age::AgeProcess;
use crate::state::Budget;
use crate::unit::{Span, Time};
use crate::wire::{Frame, TopicName};

/// What a record costs besides its name and its state, in bytes.
const COST: usize = size_of::<TopicRecord>();

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

    /// Its newest state; `None` if there is none.
    pub fn payload(&self) -> Option<&[u8]> {
        self.has_state().then_some(&self.payload)
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
            own: Some(&mut self.large),
            flags: &mut self.flags,
            is_charged: true,
        }
    }
}

/// The topics of one source, by their numbers.
#[derive(Debug, Default)]
pub(super) struct TopicRecords {
    all: Vec<TopicRecord>,
    /// What the budget is charged for records and names.
    share: usize,
}

impl TopicRecords {
    pub(super) fn all(&self) -> &[TopicRecord] {
        &self.all
    }

    pub(super) fn get(&self, number: u8) -> Option<&TopicRecord> {
        Some(&self.all[self.place(number).ok()?])
    }

    pub(super) fn on_name(&mut self, name: TopicName<'_>, budget: &mut Budget) {
        let Some(place) = self.find(name.topic, budget) else { return };
        let held = &mut self.all[place].name;
        let wanted = self.share - held.len() + name.name.len();
        if **held != *name.name && budget.resize(&mut self.share, wanted) {
            *held = name.name.into();
        }
    }

    /// A frame of a topic has come, other than a name.
    pub(super) fn on_frame(
        &mut self,
        by: &By<'_>,
        frame: Frame<'_>,
        large: &mut LargeStates,
    ) -> Arrival {
        let Some(place) = self.find(frame.topic(), &mut large.budget) else {
            return Arrival::NoRoom;
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
                self.all.reserve_exact(1);
                self.all.insert(place, TopicRecord::new(number));
                Some(place)
            }
        }
    }

    fn place(&self, number: u8) -> Result<usize, usize> {
        self.all.binary_search_by_key(&number, TopicRecord::number)
    }
}
