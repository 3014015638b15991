//! A state that a monitor holds: the newest of a topic, and the received parts of a newer one.

use alloc::vec::Vec;

use super::change::Change;
use super::clock_offset::{ClockOffset, drift};
use super::cursors::{Cursors, RecordCounts};
use super::nameless::Nameless;
use super::shares::Origin;
use crate::age::AgeProcess;
use crate::state::{self, Assembly, Budget, Decoder, Limits, Outcome};
use crate::unit::{Span, Time};
use crate::wire::{Frame, OffsetEstimate, Part, StateId, Update, error_code, error_of};

/// In [`StateMut::flags`]: whether the age is that of the held state.
pub(super) const AGE_KNOWN: u64 = 1;
/// Whether there is a state.
pub(super) const HAS_STATE: u64 = 1 << 8;
/// Whether [`StateMut::since`] is known.
pub(super) const BOUNDED: u64 = 1 << 9;
/// Whether the state is withheld from the application: it was too old on arrival, or its age is not
/// known yet.
pub(super) const WITHHELD: u64 = 1 << 10;

/// The lowest of the 8 bits of the code of the error of the age, if it is known.
const ERROR: u32 = 11;
/// The lowest bit that belongs to the owner.
pub(super) const OWN: u32 = 19;

/// The error of the age in these flags.
pub(super) fn error_in(flags: u64) -> Span {
    error_of(flags >> ERROR & 0xff)
}

/// A time of the monitor's clock, modulo 2⁶⁴ ns, that is a lower bound of a state's generation
/// time. It may be before the start of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Since(u64);

impl Since {
    /// The bound for a state in an update; `None` without a clock offset.
    pub(super) fn of(by: &By<'_>, id: StateId) -> Option<Self> {
        Self::of_sent(by.update.sent_at, by.update.clock_offset?, id)
    }

    /// The same for a state with this age and clock offset at this time of the source's clock.
    pub(super) fn of_sent(sent_at: Time, offset: OffsetEstimate, id: StateId) -> Option<Self> {
        let before = id.age.as_nanos().checked_add(error(offset, id).as_nanos())?;
        if before > i64::MAX.cast_unsigned() {
            return None;
        }
        Some(Self(sent_at.as_nanos().wrapping_add_signed(offset.nanos()).wrapping_sub(before)))
    }

    /// The maximum age at `now`; zero for a time in the future.
    pub(super) fn max_age(self, now: Time) -> Span {
        let age = now.as_nanos().wrapping_sub(self.0).cast_signed();
        Span::from_nanos(age.max(0).cast_unsigned())
    }

    /// The first time at which the age may be above `limit`, by the knowledge at `now`.
    pub(super) fn is_above_at(self, limit: Span, now: Time) -> Time {
        let age = self.max_age(now);
        now + (limit - age) + Span::from_nanos(u64::from(age <= limit))
    }

    /// The later of both, as seen at `now`.
    fn later(self, other: Self, now: Time) -> Self {
        if self.max_age(now) <= other.max_age(now) { self } else { other }
    }
}

/// The error of a state's age in an update with this offset, at the time of sending.
pub(super) fn error(offset: OffsetEstimate, id: StateId) -> Span {
    offset.error() + drift(id.age)
}

/// Whether the offset of an update that arrived at `now` is plausible: by this offset, the update
/// was not sent after `now`. Otherwise a clock has jumped, and the source has not noticed yet.
pub(super) fn is_credible(update: &Update<'_>, now: Time) -> bool {
    update.clock_offset.is_none_or(|offset| {
        let sent_at = update.sent_at.as_nanos().wrapping_add_signed(offset.nanos());
        let since = now.as_nanos().wrapping_sub(sent_at).cast_signed();
        since >= 0 || since.unsigned_abs() <= offset.error().as_nanos()
    })
}

/// States in parts of one topic.
#[derive(Debug, Default)]
pub(super) struct Large {
    assembly: Assembly,
    /// The bytes charged to the budget for the held payload.
    share: usize,
}

impl Large {
    pub(super) fn release(&mut self, budget: &mut Budget) {
        self.assembly.clear(budget);
        budget.release(&mut self.share);
    }
}

/// The resources that all sources share for states in parts and for topics.
#[derive(Debug)]
pub(super) struct LargeStates {
    pub(super) limits: Limits,
    pub(super) budget: Budget,
    pub(super) decoder: Decoder,
    /// The changes of the present update in further topics.
    pub(super) changes: Vec<Change>,
    /// The cursors of the records of each topic, and counts of records.
    pub(super) cursors: Cursors,
    pub(super) records: RecordCounts,
    /// The streams of records of sources without a name.
    pub(super) nameless: Nameless,
}

impl LargeStates {
    /// Empty; cursors of up to `max_cursors` topics of records are remembered.
    pub(super) fn new(limits: Limits, budget: Budget, max_cursors: usize) -> Self {
        Self {
            limits,
            budget,
            decoder: Decoder::new(),
            changes: Vec::new(),
            cursors: Cursors::new(max_cursors),
            records: RecordCounts::default(),
            nameless: Nameless::default(),
        }
    }

    /// Enters the record with this key, of a source with this origin: all following calls concern
    /// it.
    pub(super) fn enter(&mut self, origin: &Origin, key: u32) {
        let keeper = origin.keeper();
        self.budget.enter(origin.party());
        self.cursors.enter(keeper);
        self.nameless.enter(keeper, key);
    }
}

/// The result of an update for its record, or of a frame for its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    Fresh,
    /// The newest update, with the state that is held already.
    Repeat {
        /// Whether it is the first one that carries the age of that state.
        brings_age: bool,
    },
    /// The newest update, with a part of an incomplete state, or without content.
    Part,
    /// It arrived after a newer one, or its state is older than the held one.
    Late,
    Copy,
    /// A state for which there is no room.
    NoRoom,
}

/// The update that contains a frame, and its arrival time.
#[derive(Debug, Clone, Copy)]
pub(super) struct By<'a> {
    pub(super) update: &'a Update<'a>,
    pub(super) received_at: Time,
}

/// Mutable references to the fields of a state, independent of their place.
pub(super) struct StateMut<'a> {
    pub(super) payload: &'a mut Vec<u8>,
    pub(super) number: &'a mut u64,
    pub(super) generated_at: &'a mut Time,
    pub(super) age: &'a mut AgeProcess,
    /// Bounds the age of the state that is held.
    pub(super) since: &'a mut Since,
    /// Present if anything other than whole states has arrived.
    pub(super) own: Option<&'a mut Large>,
    /// [`AGE_KNOWN`], [`HAS_STATE`] and others; the bits from [`OWN`] on, and the bits between
    /// these two, belong to the owner.
    pub(super) flags: &'a mut u64,
    /// Whether the budget is charged for whole states, too.
    pub(super) is_charged: bool,
}

impl StateMut<'_> {
    /// A frame of the topic has arrived, other than a name.
    #[inline]
    pub(super) fn on_frame(
        &mut self,
        by: &By<'_>,
        frame: Frame<'_>,
        large: &mut LargeStates,
    ) -> Arrival {
        match frame {
            Frame::State { id, bytes } => self.on_state(by, id, bytes, &mut large.budget),
            // A state in several updates is named instead of sent again: the ack reports which one
            // is held.
            Frame::Again(id) if self.holds(by, id) => self.on_repeat(by, id),
            Frame::Part(part) => self.on_part(by, &part, large),
            Frame::Again(_)
            | Frame::Name(_)
            | Frame::Removed(_)
            | Frame::Record(_)
            | Frame::Cursor(_) => Arrival::Part,
        }
    }

    #[inline]
    fn on_state(&mut self, by: &By<'_>, id: StateId, bytes: &[u8], budget: &mut Budget) -> Arrival {
        if self.holds(by, id) {
            return self.on_repeat(by, id);
        }
        let number = id.number(by.update.seq);
        if self.has_state() && number <= *self.number {
            return Arrival::Late;
        }
        if let Some(own) = &mut self.own {
            own.assembly.drop_before(number, budget);
            let is_kept =
                if self.is_charged { fits(self.payload, bytes.len()) } else { own.share == 0 };
            if self.is_charged {
                let kept = if is_kept { self.payload.capacity() } else { 0 };
                if !budget.resize(&mut own.share, kept.max(bytes.len())) {
                    return Arrival::NoRoom;
                }
            } else {
                budget.release(&mut own.share);
            }
            if !is_kept {
                *self.payload = Vec::new();
            }
        }
        self.payload.clear();
        self.payload.reserve_exact(bytes.len());
        self.payload.extend_from_slice(bytes);
        self.take(by, id);
        Arrival::Fresh
    }

    fn on_part(&mut self, by: &By<'_>, part: &Part<'_>, large: &mut LargeStates) -> Arrival {
        let LargeStates { limits, budget, decoder, .. } = large;
        let number = part.id.number(by.update.seq);
        let is_old = self.has_state() && number <= *self.number;
        let Some(own) = self.own.as_deref_mut().filter(|_| !is_old) else { return Arrival::Part };
        let symbol = state::Part {
            topic: part.id.topic,
            number,
            generated_at: part.id.generated_at(by.update.sent_at),
            layout: part.layout,
            index: part.index,
            bytes: part.bytes,
        };
        if own.assembly.on_part(&symbol, limits, budget) != Outcome::Complete {
            return Arrival::Part;
        }
        let len = part.layout.len();
        // A short state must not keep the memory of a long one, which is not charged to the budget.
        let is_too_large = !fits(self.payload, len);
        let wanted = if is_too_large { len } else { len.max(self.payload.capacity()) };
        if !budget.resize(&mut own.share, wanted) {
            own.assembly.forget(number, budget);
            return Arrival::Part;
        }
        if is_too_large {
            *self.payload = Vec::new();
        }
        if own.assembly.take_into(decoder, self.payload, budget).is_none() {
            return Arrival::Part;
        }
        self.take(by, part.id);
        Arrival::Fresh
    }

    /// Whether the state is the one that is held.
    fn holds(&self, by: &By<'_>, id: StateId) -> bool {
        self.has_state()
            && id.number(by.update.seq) == *self.number
            && id.generated_at(by.update.sent_at) == *self.generated_at
    }

    fn on_repeat(&mut self, by: &By<'_>, id: StateId) -> Arrival {
        // A repeat with a better offset estimate must not make the state younger.
        if self.is_age_known() {
            self.bound(by, id, true);
            return Arrival::Repeat { brings_age: false };
        }
        self.take(by, id);
        Arrival::Repeat { brings_age: self.is_age_known() }
    }

    /// The payload is now that of this state.
    fn take(&mut self, by: &By<'_>, id: StateId) {
        let By { update, received_at } = *by;
        *self.number = id.number(update.seq);
        let generated_at = id.generated_at(update.sent_at);
        // By the source's clock, a newer state is not older, unless the application set such a
        // time.
        let is_newer = self.has_state() && generated_at >= *self.generated_at;
        let is_older = self.has_state() && !is_newer;
        *self.generated_at = generated_at;
        self.bound(by, id, is_newer);
        *self.flags = (*self.flags & !AGE_KNOWN) | HAS_STATE;
        if let Some(offset) = update.clock_offset {
            self.know_age(offset, id, is_older, received_at);
        }
    }

    /// Sets the age of the held state by the clock offset; `is_older` if it is older than the
    /// previous state.
    fn know_age(&mut self, offset: OffsetEstimate, id: StateId, is_older: bool, now: Time) {
        let code = error_code(error(offset, id));
        *self.flags = *self.flags & !(0xff << ERROR) | code << ERROR | AGE_KNOWN;
        let generated_at = ClockOffset::translate_past(*self.generated_at, offset.nanos(), now);
        // If it is newer by the source's clock, a small difference is an error of the offset
        // estimate.
        match is_older {
            true => self.age.on_replaced(now, generated_at),
            false => self.age.on_update(now, generated_at),
        };
    }

    /// An update after the held state has brought the clock offset; returns whether the state's age
    /// was unknown.
    pub(super) fn learn_age(&mut self, by: &By<'_>, offset: OffsetEstimate) -> bool {
        if !self.has_state() || self.is_age_known() {
            return false;
        }
        let sent_at = by.update.sent_at;
        let age = sent_at.since((*self.generated_at).min(sent_at));
        let id = StateId { age, ..StateId::FRESH };
        self.bound(by, id, false);
        self.know_age(offset, id, false, by.received_at);
        true
    }

    /// Bounds the age of the held state, which is not older than the previous one if `is_newer`.
    fn bound(&mut self, by: &By<'_>, id: StateId, is_newer: bool) {
        let before = (is_newer && *self.flags & BOUNDED != 0).then_some(*self.since);
        let since = match (before, Since::of(by, id)) {
            (Some(before), Some(since)) => Some(since.later(before, by.received_at)),
            (before, since) => since.or(before),
        };
        *self.since = since.unwrap_or_default();
        *self.flags = (*self.flags & !BOUNDED) | if since.is_some() { BOUNDED } else { 0 };
    }

    fn has_state(&self) -> bool {
        *self.flags & HAS_STATE != 0
    }

    fn is_age_known(&self) -> bool {
        *self.flags & AGE_KNOWN != 0
    }
}

/// Whether the memory of a payload is not much more than a state of this length needs.
fn fits(payload: &Vec<u8>, len: usize) -> bool {
    payload.capacity() / 2 <= len
}
