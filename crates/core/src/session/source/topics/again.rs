//! When a state or record is sent again that had no answer, or for which the monitor had no room.

use crate::unit::Span;

/// A state or record for which the monitor had no room is sent again after this time.
pub(super) const NO_ROOM: Span = Span::from_secs(1);

/// A state or record without an answer is sent again after 1.5 round trips, doubled each time (RFC
/// 8085 section 3.1.1), within these bounds.
const MIN: Span = Span::from_millis(10);
const MAX: Span = Span::from_secs(1);

/// How long a state or record that was sent `times` times, at least once, waits for an answer;
/// `srtt` is the smoothed round trip.
pub(super) fn patience(srtt: Span, times: u32) -> Span {
    let first = (srtt * 3 / 2).max(MIN);
    (first * (1 << times.saturating_sub(1).min(16))).min(MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_within_bounds() {
        let ms = Span::from_millis;
        let all = [1, 2, 3, 4, 40].map(|times| patience(ms(100), times));
        assert_eq!(all, [150, 300, 600, 1_000, 1_000].map(ms));
        assert_eq!(patience(Span::ZERO, 1), ms(10));
    }
}
