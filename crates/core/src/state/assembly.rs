//! The receiving side of one topic of one source: reassembles states from parts.
//!
//! At most two states are half received at a time, each in a place. Symbols are kept one after the
//! other as they are received. As soon as a state has as many different symbols as it has data
//! symbols it is complete, and may be taken; all older ones are dropped.
//!
//! # Which part goes where
//!
//! The parts of one state agree in its number, its layout and the time of its sampling; together
//! these are its identity. A part is handled by the first rule that applies:
//!
//! | the part | result |
//! |---|---|
//! | names a symbol that its layout does not have, has another length, or is longer than allowed | refused |
//! | has a number up to that of the newest complete state | old |
//! | has the identity of a state in a place | stored there, or a copy |
//! | finds a free place | begins a state there |
//! | has the number of a state in a place, but another identity | replaces it if that has only one symbol; else refused |
//! | is older than a state whose place was quiet for more than [`QUIET`] parts | takes its place |
//! | is newer than the older of the two states | takes its place |
//! | is older than both | old |
//!
//! # Damaged and forged parts
//!
//! A part with a wrong number, layout or time begins a state that never completes. The cost of each
//! kind:
//!
//! - *A wrong layout or time* has another identity, so it takes a place, not the state's symbols.
//!   If no place is free, only the first symbol of a state can be replaced by it, and it by the
//!   next true one.
//! - *A wrong number that is lower* is old, or gives way to the second newer state.
//! - *A wrong number that is far ahead* holds one place; states are put together in the other one,
//!   without repair of the former state, until the false one was quiet for [`QUIET`] parts. Two of
//!   them hold both places for as long. There is no limit on how far a number may be ahead: an
//!   outage of the source's path makes true numbers jump by any amount.
//! - *Wrong bytes* corrupt their state. UDP's checksum or the transport's authentication should
//!   catch them.
//! - *A whole state with a false number far ahead*, which takes a single part if it has one data
//!   symbol, makes all later states old. This cannot be undone here, as states would go back in
//!   time: the source sees in acks a complete state that it has not sent, or updates that are
//!   stale, and opens a new session, which has a new assembly.
//!
//! # Memory and work
//!
//! An assembly allocates as symbols are received: at most twice their bytes, 2 bytes for each
//! symbol's index, and a bit for each index up to the highest, which is the only part that a lone
//! part can make large (8 KiB). It never holds more than [`super::Layout::max_memory`] per state.
//! All of it is charged to a [`Budget`] before it is allocated. An assembly that is not needed any
//! more must be cleared ([`Assembly::clear`]), so that the budget gets it back.
//!
//! Storing a part costs a copy of its bytes. Taking a complete state costs a copy of the state and,
//! if repair symbols replace data symbols, one decoding ([`super::Decoder`]). A hostile source can
//! make every state need one: for `n` parts received there is at most one decoding of `n` symbols.

use alloc::vec::Vec;

use super::half::{Half, Identity};
use super::{Budget, Decoder, Part, code};
use crate::unit::Time;

/// Maximum number of half-received states of a topic.
const PLACES: usize = 2;

/// After this number of parts of other states, a state newer than those being received counts as
/// false. A source sends no part of an older state after it has sent that many of newer ones,
/// except in repair of the former state, which is in a place already.
const QUIET: u64 = 64;

/// Limits on the states that a receiver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum length of a state in bytes.
    pub max_len: usize,
}

impl Default for Limits {
    /// 8 MiB: an uncompressed image of 1920 × 1080 pixels fits.
    fn default() -> Self {
        Self { max_len: 8 << 20 }
    }
}

/// The result of handling a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its symbol is stored.
    Stored,
    /// Its symbol is stored, and the state is complete: take it ([`Assembly::take_into`]).
    Complete,
    /// Its symbol had been received before.
    Copy,
    /// Its state is complete, or older than the two that are being received.
    Old,
    /// It is not usable.
    Refused(Refusal),
}

/// Why a part is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The layout has no such symbol.
    #[error("symbol {index} of a state that has {symbols}")]
    Index {
        /// The symbol's index.
        index: u32,
        /// The number of symbols.
        symbols: u32,
    },
    /// The symbol has another length than its layout says.
    #[error("a symbol of {len} bytes where {expected} are expected")]
    Size {
        /// The symbol's length in bytes.
        len: usize,
        /// The length by the layout.
        expected: usize,
    },
    /// The state is too long.
    #[error("a state of {len} bytes; at most {max} are accepted: raise the limit, or send less")]
    TooLong {
        /// The state's length in bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// Other parts with its number have another layout or time.
    #[error("it contradicts other parts of state {0}")]
    Contradiction(u64),
    /// The memory that all sources share is used up.
    #[error("the memory for half-received states is used up; raise the budget")]
    Budget,
    /// It is a repair symbol, and this build has no code.
    #[error("a repair symbol; this build has no code (feature `fec`)")]
    NoCode,
}

/// How many parts and states an assembly has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AssemblyCounters {
    /// Symbols stored.
    pub stored: u64,
    /// Symbols that had been received before.
    pub copies: u64,
    /// Parts of states that are complete or given up.
    pub old: u64,
    /// Parts refused.
    pub refused: u64,
    /// Complete states.
    pub complete: u64,
    /// States that were given up when half received.
    pub dropped: u64,
}

/// A state that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its number.
    pub number: u64,
    /// When it was sampled, on the source's clock.
    pub generated_at: Time,
    /// Data symbols that were restored from repair symbols.
    pub restored: u32,
}

/// The half-received states of one topic of one source.
#[derive(Debug, Default)]
pub struct Assembly {
    places: [Option<Half>; PLACES],
    /// The number of the newest complete state.
    newest: Option<u64>,
    /// Parts so far.
    parts: u64,
    counters: AssemblyCounters,
}

impl Assembly {
    /// An assembly that has received nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a part. A complete state must be taken before the next part.
    pub fn on_part(&mut self, part: &Part<'_>, limits: &Limits, budget: &mut Budget) -> Outcome {
        self.parts += 1;
        let outcome = match check(part, limits).and_then(|()| self.store(part, budget)) {
            Ok(outcome) => outcome,
            Err(refusal) => Outcome::Refused(refusal),
        };
        match outcome {
            Outcome::Stored => self.counters.stored += 1,
            Outcome::Complete => {
                self.counters.stored += 1;
                self.counters.complete += 1;
                self.newest = Some(part.number);
                self.drop_before(part.number, budget);
            }
            Outcome::Copy => self.counters.copies += 1,
            Outcome::Old => self.counters.old += 1,
            Outcome::Refused(_) => self.counters.refused += 1,
        }
        outcome
    }

    /// Replaces the contents of `out` by the complete state, if there is one, and frees its
    /// symbols.
    pub fn take_into(
        &mut self,
        decoder: &mut Decoder,
        out: &mut Vec<u8>,
        budget: &mut Budget,
    ) -> Option<Taken> {
        let is_complete = |half: &mut Half| half.is_complete();
        let mut half = self.places.iter_mut().find_map(|place| place.take_if(is_complete))?;
        let restored = half.put_together(decoder, out);
        budget.release(&mut half.share);
        let Identity { number, generated_at, .. } = half.identity;
        restored.map(|restored| Taken { number, generated_at, restored })
    }

    /// Drops all half-received states; the newest complete number stays known.
    pub fn clear(&mut self, budget: &mut Budget) {
        (0..PLACES).for_each(|place| self.vacate(place, budget));
    }

    /// The number of the newest complete state.
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// The bytes that are charged to the budget.
    pub fn memory(&self) -> usize {
        self.halves().map(|half| half.share).sum()
    }

    /// Counts since the beginning.
    pub fn counters(&self) -> &AssemblyCounters {
        &self.counters
    }

    fn halves(&self) -> impl Iterator<Item = &Half> {
        self.places.iter().flatten()
    }

    fn store(&mut self, part: &Part<'_>, budget: &mut Budget) -> Result<Outcome, Refusal> {
        if self.newest.is_some_and(|newest| part.number <= newest) {
            return Ok(Outcome::Old);
        }
        let identity =
            Identity { number: part.number, generated_at: part.generated_at, layout: part.layout };
        let Some(place) = self.place_for(&identity)? else { return Ok(Outcome::Old) };
        if self.places[place].as_ref().is_some_and(|half| half.identity != identity) {
            self.vacate(place, budget);
        }
        let mut half = self.places[place].take().unwrap_or_else(|| Half::new(identity));
        let stored = half.store(part, self.parts, budget).ok_or(Refusal::Budget);
        let is_complete = half.is_complete();
        self.places[place] = Some(half).filter(|half| half.len() > 0);
        Ok(match stored? {
            false => Outcome::Copy,
            true if is_complete => Outcome::Complete,
            true => Outcome::Stored,
        })
    }

    /// The place of a state, by the rules above; `None` if its parts are old. Another state in that
    /// place must be given up.
    fn place_for(&self, wanted: &Identity) -> Result<Option<usize>, Refusal> {
        let is_wanted =
            |half: &Option<Half>| half.as_ref().is_some_and(|half| half.identity == *wanted);
        let place = self.places.iter().position(is_wanted);
        if let Some(place) = place.or_else(|| self.places.iter().position(Option::is_none)) {
            return Ok(Some(place));
        }
        // Both places are taken.
        let halves = || (0..).zip(self.places.iter().flatten());
        let number = wanted.number;
        // Of two with the same number, that with fewer symbols.
        let same = halves().filter(|(_, half)| half.identity.number == number);
        if let Some((place, half)) = same.min_by_key(|(_, half)| half.len()) {
            return if half.len() == 1 {
                Ok(Some(place))
            } else {
                Err(Refusal::Contradiction(number))
            };
        }
        let is_quiet = |half: &Half| self.parts - half.fed_at > QUIET;
        let false_ones =
            halves().filter(|(_, half)| half.identity.number > number && is_quiet(half));
        if let Some((place, _)) = false_ones.max_by_key(|(_, half)| half.identity.number) {
            return Ok(Some(place));
        }
        let oldest = halves().min_by_key(|(_, half)| (half.identity.number, half.len()));
        Ok(oldest.filter(|(_, half)| half.identity.number < number).map(|(place, _)| place))
    }

    /// Drops all states that are older than the complete one, and others of its number.
    /// The complete state of this number is not taken: it may be received again.
    pub fn forget(&mut self, number: u64, budget: &mut Budget) {
        for place in 0..PLACES {
            if self.places[place].as_ref().is_some_and(|it| it.identity.number == number) {
                self.vacate(place, budget);
            }
        }
        self.newest = None;
    }

    /// Drops half-received states up to this number, which a complete one supersedes.
    pub fn drop_before(&mut self, complete: u64, budget: &mut Budget) {
        for place in 0..PLACES {
            let half = self.places[place].as_ref();
            if half.is_some_and(|it| it.identity.number <= complete && !it.is_state(complete)) {
                self.vacate(place, budget);
            }
        }
    }

    fn vacate(&mut self, place: usize, budget: &mut Budget) {
        if let Some(mut half) = self.places[place].take() {
            self.counters.dropped += 1;
            budget.release(&mut half.share);
        }
    }
}

fn check(part: &Part<'_>, limits: &Limits) -> Result<(), Refusal> {
    let Part { layout, index, bytes, .. } = part;
    if layout.len() > limits.max_len {
        return Err(Refusal::TooLong { len: layout.len(), max: limits.max_len });
    }
    let Some(expected) = layout.symbol_size(*index) else {
        return Err(Refusal::Index { index: *index, symbols: layout.symbols() });
    };
    if bytes.len() != expected {
        return Err(Refusal::Size { len: bytes.len(), expected });
    }
    if *index >= layout.data() && !code::AVAILABLE {
        return Err(Refusal::NoCode);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Layout;

    /// A receiver, and the parts of states whose bytes are their number.
    struct World {
        assembly: Assembly,
        budget: Budget,
        limits: Limits,
    }

    impl World {
        fn new(budget: usize) -> Self {
            let budget = Budget::new(budget);
            Self { assembly: Assembly::new(), budget, limits: Limits { max_len: 1_000 } }
        }

        /// A part of a state of `data` symbols of 10 bytes.
        fn part(&mut self, number: u64, data: u32, index: u32) -> Outcome {
            let layout = Layout::new(data * 10, 10, 0).expect("a layout");
            let generated_at = Time::from_nanos(number);
            let bytes = &[number as u8; 10];
            let part = Part { topic: 0, number, generated_at, layout, index, bytes };
            let outcome = self.assembly.on_part(&part, &self.limits, &mut self.budget);
            assert_eq!(self.assembly.memory(), self.budget.used());
            outcome
        }

        /// A part of a state of three symbols.
        fn of_three(&mut self, number: u64, index: u32) -> Outcome {
            self.part(number, 3, index)
        }

        /// All three parts; whether the state was received, and is right.
        fn whole(&mut self, number: u64) -> bool {
            for index in 0..3 {
                self.of_three(number, index);
            }
            self.take() == Some(number)
        }

        fn take(&mut self) -> Option<u64> {
            let (mut decoder, mut out) = (Decoder::new(), alloc::vec![9; 99]);
            let taken = self.assembly.take_into(&mut decoder, &mut out, &mut self.budget)?;
            assert_eq!(out, [taken.number as u8; 30]);
            assert_eq!(taken.generated_at, Time::from_nanos(taken.number));
            assert_eq!((taken.restored, self.assembly.memory()), (0, self.budget.used()));
            Some(taken.number)
        }
    }

    #[test]
    fn a_state_is_delivered_whole_and_once() {
        let mut world = World::new(1_000);
        assert_eq!(world.of_three(5, 2), Outcome::Stored);
        assert_eq!(world.of_three(5, 0), Outcome::Stored);
        assert_eq!(world.of_three(5, 2), Outcome::Copy);
        assert_eq!(world.take(), None);
        assert_eq!(world.of_three(5, 1), Outcome::Complete);
        assert_eq!((world.take(), world.take()), (Some(5), None));
        assert_eq!((world.of_three(5, 1), world.of_three(4, 1)), (Outcome::Old, Outcome::Old));
        assert_eq!((world.budget.used(), world.assembly.newest()), (0, Some(5)));
    }

    #[test]
    fn the_former_state_can_be_repaired_until_a_newer_one_is_complete() {
        let mut world = World::new(1_000);
        world.of_three(1, 0);
        world.of_three(1, 1);
        world.of_three(2, 0);
        assert_eq!(world.of_three(1, 2), Outcome::Complete);
        assert_eq!(world.take(), Some(1));
        world.of_three(3, 0);
        world.of_three(2, 1);
        world.of_three(3, 1);
        assert_eq!(world.of_three(3, 2), Outcome::Complete);
        assert_eq!(world.of_three(2, 2), Outcome::Old);
        assert_eq!(world.take(), Some(3));
        assert_eq!((world.budget.used(), world.assembly.counters().dropped), (0, 1));
    }

    #[test]
    fn a_third_state_takes_the_place_of_the_oldest() {
        let mut world = World::new(1_000);
        (1..4).for_each(|number| assert_eq!(world.of_three(number, 0), Outcome::Stored));
        assert_eq!(world.of_three(1, 1), Outcome::Old);
        world.of_three(2, 1);
        assert_eq!(world.of_three(2, 2), Outcome::Complete);
        assert_eq!(world.take(), Some(2));
        assert_eq!(world.of_three(3, 1), Outcome::Stored);
    }

    #[test]
    fn a_complete_state_that_is_not_taken_gives_way_to_newer_ones() {
        let mut world = World::new(1_000);
        for (number, index) in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)] {
            world.of_three(number, index);
        }
        assert_eq!((world.take(), world.take()), (Some(2), None));
        assert_eq!(world.budget.used(), 0);
    }

    #[test]
    fn a_first_part_with_a_false_layout_costs_nothing() {
        let mut world = World::new(1_000);
        assert_eq!(world.part(1, 9, 0), Outcome::Stored);
        assert!(world.whole(1) && world.whole(2));
        assert_eq!(world.budget.used(), 0);
    }

    #[test]
    fn a_first_part_with_a_false_layout_gives_way_to_the_next_where_no_place_is_free() {
        let mut world = World::new(1_000);
        world.of_three(1, 0);
        world.part(2, 9, 0);
        assert!(world.whole(2));
    }

    #[test]
    fn a_part_that_contradicts_two_others_is_refused() {
        let mut world = World::new(1_000);
        world.of_three(1, 0);
        world.of_three(2, 0);
        world.of_three(2, 1);
        let refused = Outcome::Refused(Refusal::Contradiction(2));
        assert_eq!((world.part(2, 9, 2), world.part(2, 4, 0)), (refused, refused));
        assert_eq!(world.of_three(2, 2), Outcome::Complete);
    }

    #[test]
    fn one_false_number_far_ahead_costs_no_state_and_is_forgotten() {
        let mut world = World::new(1_000);
        world.of_three(u64::MAX, 0);
        assert!((0..100).all(|number| world.whole(number)));
        // By now, the former state is repaired again: both places are for true states.
        world.of_three(100, 0);
        world.of_three(101, 0);
        assert_eq!(
            (world.of_three(100, 1), world.of_three(100, 2)),
            (Outcome::Stored, Outcome::Complete)
        );
    }

    #[test]
    fn two_false_numbers_far_ahead_block_no_more_than_64_parts() {
        let mut world = World::new(1_000);
        world.of_three(1 << 40, 0);
        world.of_three(1 << 50, 0);
        let received = (0..100).filter(|number| world.whole(*number)).count();
        assert_eq!(received, 100 - 64 / 3);
    }

    #[test]
    fn unusable_parts_are_refused_with_the_reason() {
        let mut world = World::new(60);
        let refused = |refusal| Outcome::Refused(refusal);
        assert_eq!(world.of_three(1, 3), refused(Refusal::Index { index: 3, symbols: 3 }));
        assert_eq!(world.part(1, 101, 0), refused(Refusal::TooLong { len: 1_010, max: 1_000 }));
        let layout = Layout::new(28, 10, 0).unwrap();
        let generated_at = Time::ZERO;
        let part = Part { topic: 0, number: 1, generated_at, layout, index: 2, bytes: &[1; 10] };
        let outcome = world.assembly.on_part(&part, &world.limits, &mut world.budget);
        assert_eq!(outcome, refused(Refusal::Size { len: 10, expected: 8 }));
        // The first symbol takes 20 bytes, the second 32, the third 44; others hold 30.
        let mut others = 0;
        assert!(world.budget.resize(&mut others, 30));
        let share = |world: &World| world.budget.used() - 30;
        let part = Part { index: 0, ..part };
        world.assembly.on_part(&part, &world.limits, &mut world.budget);
        assert_eq!(share(&world), 20);
        let part = Part { index: 1, ..part };
        let outcome = world.assembly.on_part(&part, &world.limits, &mut world.budget);
        assert_eq!((outcome, share(&world)), (refused(Refusal::Budget), 20));
        world.budget.release(&mut others);
        let outcome = world.assembly.on_part(&part, &world.limits, &mut world.budget);
        assert_eq!((outcome, world.budget.used()), (Outcome::Stored, 32));
        world.assembly.clear(&mut world.budget);
        assert_eq!((world.budget.used(), world.assembly.memory()), (0, 0));
        assert_eq!(world.assembly.counters().refused, 4);
    }

    #[test]
    fn a_lone_part_of_a_large_state_takes_its_own_bytes_and_8_kib() {
        let mut world = World::new(usize::MAX);
        world.limits.max_len = 131_071;
        let layout = Layout::new(131_071, 2, 0).unwrap();
        let generated_at = Time::ZERO;
        let part = Part { topic: 0, number: 1, generated_at, layout, index: 65_535, bytes: &[1] };
        let outcome = world.assembly.on_part(&part, &world.limits, &mut world.budget);
        assert_eq!((outcome, world.budget.used()), (Outcome::Stored, 1 + 2 + 8_192));
    }
}
