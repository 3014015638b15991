//! Spreads segments over time, as Linux does inside TCP where no fair queue does it.
//!
//! The next segment leaves when the last one's payload has been sent at the pacing rate, which is a
//! payload rate. As in Linux, the first ten segments are not paced, and a late sender makes up for
//! at most half a segment. A law with a spacing instead of a rate is paced from the first segment
//! on, and a late sender does not make up for lost time.

use freshline_core::unit::{BitRate, Bytes, Span, Time};

const UNPACED: u64 = 10;

#[derive(Debug, Default)]
pub(super) struct Pacer {
    next: Time,
    /// Segments with data sent so far.
    sent: u64,
}

impl Pacer {
    /// When the next segment may leave.
    pub(super) fn next(&self) -> Time {
        self.next
    }

    /// A segment leaves, and the next one `spacing` after it.
    pub(super) fn space(&mut self, now: Time, spacing: Span) {
        self.next = now + spacing;
    }

    /// A packet of `segments` segments leaves.
    pub(super) fn on_sent(
        &mut self,
        now: Time,
        payload: Bytes,
        segments: u64,
        rate: Option<BitRate>,
    ) {
        let late = now.since(self.next);
        self.next = self.next.max(now);
        self.sent += segments;
        if let Some(rate) = rate
            && self.sent > UNPACED
        {
            let gap = rate.time_to_send(payload);
            self.next += gap - late.min(gap / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_leaves_at_the_rate_after_ten_segments() {
        let mut pacer = Pacer::default();
        let mut now = Time::ZERO;
        for _ in 0..20 {
            now = now.max(pacer.next());
            pacer.on_sent(now, Bytes::new(1250), 1, Some(BitRate::from_mbps(10)));
        }
        assert_eq!(now, Time::ZERO + Span::from_millis(9));
    }
}
