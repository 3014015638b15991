//! A window of the updates before the freshest: which ones have arrived.

use alloc::boxed::Box;

/// Updates before the freshest that the short window covers.
const NEAR: u64 = u64::BITS as u64;

/// Updates before the freshest that the long window covers: 4 s of difference between the delays of
/// two paths at 1,000 updates per second.
const FAR: u64 = 4096;

/// A bit for each of the last `FAR` numbers.
type Words = [u64; (FAR / 64) as usize];

/// A window over sequence numbers, up to the newest. It covers 64 numbers until an older update
/// arrives, as happens over several paths; then 4096, in 512 bytes.
#[derive(Debug, Clone)]
pub(super) enum Recent {
    /// Bit i: whether update `newest − 1 − i` has arrived.
    Near(u64),
    /// Bit `seq % FAR`: whether update `seq` has arrived, for the last `FAR` numbers up to the
    /// newest.
    Far(Box<Words>),
}

impl Recent {
    /// No update before the newest has arrived.
    pub(super) fn new() -> Self {
        Self::Near(0)
    }

    /// The newest number rises from `old` to `new`, which is greater.
    pub(super) fn advance(&mut self, old: u64, new: u64) {
        let ahead = new - old;
        match self {
            Self::Near(bits) => {
                *bits = u32::try_from(ahead)
                    .ok()
                    .and_then(|ahead| bits.checked_shl(ahead))
                    .unwrap_or(0);
                if ahead <= NEAR {
                    *bits |= 1 << (ahead - 1); // the one that was the newest
                }
            }
            Self::Far(words) => {
                for seq in new.saturating_sub(FAR - 1).max(old + 1)..new {
                    clear(words, seq);
                }
                set(words, new);
            }
        }
    }

    /// A bit set of which of the 64 numbers before `seq` have arrived, the one before it in bit 0.
    /// Numbers outside the window count as missing.
    pub(super) fn before(&self, newest: u64, seq: u64) -> u64 {
        let behind = newest - seq;
        match self {
            Self::Near(bits) => {
                u32::try_from(behind).ok().and_then(|behind| bits.checked_shr(behind)).unwrap_or(0)
            }
            Self::Far(words) => (1..=NEAR.min(seq)).fold(0, |bits, back| {
                let has_arrived = behind + back < FAR && is_set(words, seq - back);
                bits | u64::from(has_arrived) << (back - 1)
            }),
        }
    }

    /// Notes that `seq`, before `newest`, has arrived, and returns whether it is the first time.
    ///
    /// An update too old for the window counts as a repeat. So early losses over paths with very
    /// different delays stay losses, even if a copy arrives later.
    pub(super) fn insert(&mut self, newest: u64, seq: u64) -> bool {
        let behind = newest - seq;
        match self {
            Self::Near(bits) if behind <= NEAR => {
                let bit = 1 << (behind - 1);
                let is_first = *bits & bit == 0;
                *bits |= bit;
                is_first
            }
            Self::Near(bits) => {
                *self = Self::Far(Box::new(widened(newest, *bits)));
                false
            }
            Self::Far(words) => behind < FAR && !set(words, seq),
        }
    }
}

/// The long window with the content of the short one.
fn widened(newest: u64, near: u64) -> Words {
    let mut words = [u64::MAX; (FAR / 64) as usize];
    for behind in (1..=NEAR).filter(|behind| near & (1 << (behind - 1)) == 0) {
        clear(&mut words, newest.wrapping_sub(behind));
    }
    words
}

/// The word and the bit of a number.
fn place(seq: u64) -> (usize, u64) {
    ((seq % FAR / 64) as usize, 1 << (seq % 64))
}

fn clear(words: &mut Words, seq: u64) {
    let (word, bit) = place(seq);
    words[word] &= !bit;
}

fn is_set(words: &Words, seq: u64) -> bool {
    let (word, bit) = place(seq);
    words[word] & bit != 0
}

/// Sets the bit of a number; returns whether it was set before.
fn set(words: &mut Words, seq: u64) -> bool {
    let (word, bit) = place(seq);
    let was_set = words[word] & bit != 0;
    words[word] |= bit;
    was_set
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a set of all numbers: a window knows the last 64, and once it is wide the
        /// last 4095 of those since then.
        #[test]
        fn a_window_says_what_has_arrived(
            steps in prop::collection::vec((any::<bool>(), 1..200u64), 1..600),
            starts_wide in any::<bool>(),
        ) {
            let mut recent = Recent::new();
            let (mut newest, mut come) = (10_000u64, BTreeSet::from([10_000u64]));
            if starts_wide {
                recent.insert(newest, 0);
            }
            for (is_newer, step) in steps {
                if is_newer {
                    recent.advance(newest, newest + step);
                    newest += step;
                    come.insert(newest);
                } else {
                    let seq = newest - step * 20 % 4_900 - 1;
                    let behind = newest - seq;
                    let is_first = recent.insert(newest, seq);
                    let is_known = behind <= NEAR
                        || (starts_wide && behind < FAR && seq >= 10_000 - NEAR);
                    let has_arrived = come.contains(&seq);
                    prop_assert!(!(is_first && has_arrived), "{} behind", behind);
                    prop_assert!(!is_known || is_first != has_arrived, "{} behind", behind);
                    come.insert(seq);
                }
            }
        }
    }
}
