//! What a monitor holds of one source: less than 256 bytes beside the payload's own.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::clock_offset::ClockOffset;
use crate::age::AgeProcess;
use crate::unit::{Span, Time};
use crate::wire::{Ack, SessionId, Update};

/// Finds a source's [`Record`] in its monitor, as long as the record lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey(pub(super) u32);

impl SourceKey {
    /// A small number, given anew when a record ends: an index for tables beside the monitor's.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The freshest state of one source, and how it has come.
#[derive(Debug)]
pub struct Record<P> {
    /// The session.
    pub session: SessionId,
    /// Where its last update came from.
    pub peer: P,
    /// The name that the source gave itself; may be empty.
    pub name: Box<str>,
    /// The freshest payload.
    pub payload: Vec<u8>,
    /// When the last update arrived, fresh or not.
    pub heard_at: Time,
    /// The sequence number of the freshest update.
    pub newest_seq: u64,
    /// When the freshest state was sampled, on the *source's* clock.
    pub generated_at: Time,
    /// The age as far as it can be known: from updates that carried the clocks' offset.
    pub age: AgeProcess,
    first_seq: u64,
    /// Bit i: whether update `newest_seq − 1 − i` has come.
    recent: u64,
    fresh: u32,
    stale: u32,
}

/// What an update was to its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    Fresh,
    Late,
    Copy,
}

impl<P> Record<P> {
    /// A record that begins with its first update.
    pub(super) fn new(update: &Update<'_>, peer: P, name: Box<str>, received_at: Time) -> Self {
        let mut record = Self {
            session: update.session,
            peer,
            name,
            payload: Vec::new(),
            heard_at: received_at,
            newest_seq: update.seq,
            generated_at: update.generated_at,
            age: AgeProcess::new(),
            first_seq: update.seq,
            recent: 0,
            fresh: 0,
            stale: 0,
        };
        record.take_fresh(update, received_at);
        record
    }

    pub(super) fn on_update(&mut self, update: &Update<'_>, received_at: Time) -> Arrival {
        self.heard_at = received_at;
        if let Some(ahead) = update.seq.checked_sub(self.newest_seq).filter(|ahead| *ahead > 0) {
            self.recent =
                self.recent.checked_shl(u32::try_from(ahead).unwrap_or(u32::MAX)).unwrap_or(0);
            if let Some(bit) = bit(ahead) {
                self.recent |= bit; // the one that was the newest
            }
            self.newest_seq = update.seq;
            self.take_fresh(update, received_at);
            return Arrival::Fresh;
        }
        let behind = self.newest_seq - update.seq;
        match bit(behind) {
            None if behind == 0 => Arrival::Copy,
            Some(bit) if self.recent & bit != 0 => Arrival::Copy,
            bit => {
                // Beyond the window a copy cannot be told from a straggler.
                self.recent |= bit.unwrap_or(0);
                self.stale = self.stale.wrapping_add(1);
                Arrival::Late
            }
        }
    }

    fn take_fresh(&mut self, update: &Update<'_>, received_at: Time) {
        self.fresh = self.fresh.wrapping_add(1);
        self.generated_at = update.generated_at;
        if let Some(offset) = update.clock_offset {
            self.age.on_update(received_at, ClockOffset::translate(update.generated_at, offset));
        }
        self.payload.clear();
        self.payload.reserve_exact(update.payload.len());
        self.payload.extend_from_slice(update.payload);
    }

    /// The answer to `update`.
    pub(super) fn ack(
        &self,
        update: &Update<'_>,
        received_at: Time,
        hold: Span,
        fresh: bool,
    ) -> Ack {
        Ack {
            session: self.session,
            seq: update.seq,
            generated_at: update.generated_at,
            received_at,
            hold,
            was_fresh: fresh,
            fresh: self.fresh,
            stale: self.stale,
            missing: self.missing(),
        }
    }

    /// Updates that were the freshest when they came, modulo 2³².
    pub fn fresh(&self) -> u32 {
        self.fresh
    }

    /// Updates that came after a fresher one, modulo 2³².
    pub fn stale(&self) -> u32 {
        self.stale
    }

    /// Updates numbered between the first and the freshest that have not come, modulo 2³¹.
    /// Stragglers from before the first and copies from beyond the window, which count as stale,
    /// can hide a few.
    pub fn missing(&self) -> u32 {
        let span = (self.newest_seq - self.first_seq) as u32;
        let missing = span.wrapping_add(1).wrapping_sub(self.fresh).wrapping_sub(self.stale);
        missing.cast_signed().max(0).cast_unsigned()
    }
}

/// The bit of the update `behind` before the newest, 1 to 64.
fn bit(behind: u64) -> Option<u64> {
    (1..=64).contains(&behind).then(|| 1 << (behind - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(seq: u64) -> Update<'static> {
        Update {
            session: SessionId(1),
            seq,
            generated_at: Time::from_nanos(seq),
            clock_offset: None,
            wants_ack: true,
            opening: None,
            payload: b"x",
        }
    }

    #[test]
    fn fresh_late_copied_and_missing_updates_are_told_apart() {
        let at = Time::ZERO;
        let mut record = Record::new(&update(10), (), "".into(), at);
        assert_eq!(record.on_update(&update(10), at), Arrival::Copy);
        assert_eq!(record.on_update(&update(14), at), Arrival::Fresh);
        assert_eq!(record.missing(), 3);
        assert_eq!(record.on_update(&update(10), at), Arrival::Copy);
        assert_eq!(record.on_update(&update(12), at), Arrival::Late);
        assert_eq!(record.on_update(&update(12), at), Arrival::Copy);
        assert_eq!(record.on_update(&update(78), at), Arrival::Fresh);
        assert_eq!(record.on_update(&update(14), at), Arrival::Copy, "64 behind is remembered");
        assert_eq!(record.on_update(&update(u64::MAX), at), Arrival::Fresh);
        assert_eq!(record.on_update(&update(14), at), Arrival::Late, "too long ago to know");
        assert_eq!((record.fresh(), record.stale()), (4, 2));
    }

    #[test]
    fn updates_before_the_first_do_not_count_as_missing() {
        let mut record = Record::new(&update(10), (), "".into(), Time::ZERO);
        for seq in 11..20 {
            record.on_update(&update(seq), Time::ZERO);
        }
        assert_eq!(record.missing(), 0);
    }

    #[test]
    fn a_straggler_from_before_the_first_does_not_make_missing_wrap() {
        let mut record = Record::new(&update(10), (), "".into(), Time::ZERO);
        assert_eq!(record.on_update(&update(8), Time::ZERO), Arrival::Late);
        assert_eq!((record.stale(), record.missing()), (1, 0));
    }

    #[test]
    fn a_record_leaves_room_for_the_tables_below_256_bytes() {
        // Up to a sixteenth of the records is spare; each table costs up to 12 bytes an entry.
        let record = size_of::<Record<core::net::SocketAddr>>();
        assert!(record * 17 / 16 + 2 * 12 <= 256, "{record}");
    }
}
