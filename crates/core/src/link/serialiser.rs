//! Transmits packets one after the other, at exactly the configured rate.

use crate::unit::{BitRate, Bytes, Span, Time};

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// The sender of a link.
///
/// Transmissions end at whole ns, rounded up. The rounding is credited to the next packet of the
/// busy period, so packet n of a burst ends at start + ⌈Σ bits / rate⌉ and the rate has no drift.
#[derive(Debug)]
pub(super) struct Serialiser {
    rate: Option<BitRate>,
    /// When the last transmission ended.
    free_at: Time,
    /// The rounding of the last end, in ns × bit/s: always below the rate.
    rounding: u128,
}

impl Serialiser {
    pub(super) fn new(rate: Option<BitRate>) -> Self {
        Self { rate, free_at: Time::ZERO, rounding: 0 }
    }

    /// Sends `size` from `start`, which is not before the last end; returns the duration.
    pub(super) fn send(&mut self, start: Time, size: Bytes) -> Span {
        let duration = match self.rate.map(|rate| u128::from(rate.as_bps())) {
            None => Span::ZERO,
            Some(0) => Span::MAX,
            Some(bps) => {
                if start > self.free_at {
                    self.rounding = 0;
                }
                let bit_nanos = u128::from(size.get()) * 8 * NANOS_PER_SEC;
                // A tiny packet on a fast link may take less time than the credit.
                let nanos = bit_nanos.saturating_sub(self.rounding).div_ceil(bps);
                self.rounding = self.rounding + nanos * bps - bit_nanos;
                Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
        };
        self.free_at = start + duration;
        duration
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_burst_ends_on_the_exact_ns(
            bps in 1_000u64..400_000_000_000,
            sizes in prop::collection::vec(1u64..70_000, 1..100),
        ) {
            let rate = BitRate::from_bps(bps);
            let mut serialiser = Serialiser::new(Some(rate));
            let mut now = Time::ZERO;
            for size in &sizes {
                now += serialiser.send(now, Bytes::new(*size));
            }
            let all = Bytes::new(sizes.iter().sum());
            prop_assert_eq!(now, Time::ZERO + rate.time_to_send(all));
        }

        #[test]
        fn no_rate_and_size_make_it_fail(bps: u64, sizes: [u64; 3], start: u64) {
            let mut serialiser = Serialiser::new(Some(BitRate::from_bps(bps)));
            let mut now = Time::from_nanos(start);
            for size in sizes {
                now += serialiser.send(now, Bytes::new(size));
            }
        }
    }
}
