//! Round-trip times and the retransmission timeout (RFC 6298).
//!
//! ```text
//! srtt ← srtt + (rtt − srtt)/8        var ← var + (|srtt − rtt| − var)/4
//! rto = srtt + max(4·var, min), doubled with each timeout, at most 120 s
//! ```
//!
//! As in Linux, `min` is 200 ms and bounds the variation, not the timeout, whose maximum is 120 s.
//! RFC 6298 asks for a timeout of at least 1 s, for which there is a setting.

use freshline_core::unit::{Span, Time};

use super::filter::WindowedMin;

/// The timeout before the first sample (RFC 6298 section 2.1).
const INITIAL_RTO: Span = Span::from_secs(1);
const MAX_RTO: Span = Span::from_secs(120);
/// The window of the minimum filter, as in Linux (`tcp_min_rtt_wlen`).
const MIN_RTT_WINDOW: Span = Span::from_secs(300);

#[derive(Debug, Clone)]
pub(super) struct RttEstimator {
    /// Smoothed round trip and its variation, once there is a sample.
    smoothed: Option<(Span, Span)>,
    min: WindowedMin,
    backoff: u32,
    min_rto_margin: Span,
    min_rto: Span,
    /// The timeout, if it is constant.
    constant: Option<Span>,
}

impl RttEstimator {
    pub(super) fn new(min_rto_margin: Span, min_rto: Span) -> Self {
        let min = WindowedMin::new(MIN_RTT_WINDOW);
        Self { smoothed: None, min, backoff: 0, min_rto_margin, min_rto, constant: None }
    }

    /// With a constant timeout.
    pub(super) fn with_timeout(timeout: Span) -> Self {
        Self { constant: Some(timeout), ..Self::new(Span::ZERO, Span::ZERO) }
    }

    /// A round trip: `oldest` from the first segment that an ack covers, which holds the
    /// receiver's delay of acks; `newest` from the last one, which does not.
    pub(super) fn on_sample(&mut self, now: Time, oldest: Span, newest: Span) {
        self.min.insert(now, newest);
        let (srtt, variation) = match self.smoothed {
            None => (oldest, oldest / 2),
            Some((srtt, variation)) => {
                let error = oldest.max(srtt) - oldest.min(srtt);
                ((srtt * 7 + oldest) / 8, (variation * 3 + error) / 4)
            }
        };
        self.smoothed = Some((srtt, variation));
    }

    pub(super) fn srtt(&self) -> Option<Span> {
        self.smoothed.map(|(srtt, _)| srtt)
    }

    pub(super) fn variation(&self) -> Option<Span> {
        self.smoothed.map(|(_, variation)| variation)
    }

    pub(super) fn min(&self) -> Option<Span> {
        self.min.get()
    }

    pub(super) fn rto(&self) -> Span {
        if let Some(timeout) = self.constant {
            return timeout;
        }
        let base = self.smoothed.map_or(INITIAL_RTO, |(srtt, variation)| {
            srtt + (variation * 4).max(self.min_rto_margin)
        });
        (base.max(self.min_rto) * (1 << self.backoff)).min(MAX_RTO)
    }

    /// A timeout has expired: the next one is twice as long.
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// New data was acknowledged: the path is alive.
    pub(super) fn reset_backoff(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_200_ms_above_a_steady_round_trip() {
        let mut rtt = RttEstimator::new(Span::from_millis(200), Span::ZERO);
        assert_eq!(rtt.rto(), Span::from_secs(1));
        let sample = Span::from_millis(40);
        for ms in 0..50 {
            rtt.on_sample(Time::ZERO + Span::from_millis(ms), sample, sample);
        }
        assert_eq!(rtt.srtt(), Some(sample));
        assert_eq!(rtt.rto(), Span::from_millis(240));
    }

    #[test]
    fn timeouts_double_up_to_two_minutes_and_an_ack_ends_it() {
        let mut rtt = RttEstimator::new(Span::from_millis(200), Span::ZERO);
        for seconds in [1, 2, 4, 8, 16, 32, 64, 120, 120] {
            assert_eq!(rtt.rto(), Span::from_secs(seconds));
            rtt.back_off();
        }
        rtt.reset_backoff();
        assert_eq!(rtt.rto(), Span::from_secs(1));
    }
}
