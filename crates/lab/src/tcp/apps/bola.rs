//! BOLA chooses the bitrate of a video's next segment from the fill level of the playback buffer
//! alone.
//!
//! Let Q be the number of segments in the buffer, S_m the size of a segment at bitrate m, υ_m =
//! ln(S_m/S_1) its utility:
//!
//! ```text
//! m maximises (V·(υ_m + γp) − Q)/S_m        if all are below zero: wait
//! V = (Q_max − 1)/(υ_M + γp)                so that the buffer stays within Q_max
//! ```
//!
//! Spiteri, Urgaonkar, Sitaraman: BOLA: Near-Optimal Bitrate Adaptation for Online Videos, IEEE INFOCOM
//! 2016, sections III and IV: BOLA-BASIC, with γp = 5 as in its evaluation.

use freshline_core::unit::{BitRate, Span};

/// γp: the weight of smooth playback relative to bitrate utility, per segment.
const SMOOTHNESS: f64 = 5.0;

/// The law's state for one video.
#[derive(Debug, Clone)]
pub(super) struct Bola {
    /// The bitrates in ascending order, each with its utility.
    rates: Vec<(BitRate, f64)>,
    segment: Span,
    /// V.
    weight: f64,
}

impl Bola {
    /// A law for bitrates in ascending order, segments of a fixed duration and a playback buffer of
    /// `buffer`, which is longer than a segment.
    pub(super) fn new(rates: &[BitRate], segment: Span, buffer: Span) -> Self {
        let bps = |rate: &BitRate| rate.as_bps() as f64;
        let utility = |rate: &BitRate| libm::log(bps(rate) / bps(&rates[0]));
        let rates: Vec<_> = rates.iter().map(|rate| (*rate, utility(rate))).collect();
        let most = rates.last().map_or(0.0, |(_, utility)| *utility);
        let held = buffer.as_secs_f64() / segment.as_secs_f64();
        Self { rates, segment, weight: (held - 1.0) / (most + SMOOTHNESS) }
    }

    /// The largest fill level of the buffer at which the client may request another segment.
    pub(super) fn max_held(&self) -> Span {
        let most = self.rates.last().map_or(0.0, |(_, utility)| *utility);
        self.segment.mul_f64(self.weight * (most + SMOOTHNESS))
    }

    /// The bitrate of the next segment, given the fill level of the buffer.
    pub(super) fn choose(&self, buffered: Span) -> BitRate {
        let held = buffered.as_secs_f64() / self.segment.as_secs_f64();
        let score = |(rate, utility): &(BitRate, f64)| {
            (self.weight * (utility + SMOOTHNESS) - held) / rate.as_bps() as f64
        };
        let best = self.rates.iter().max_by(|a, b| score(a).total_cmp(&score(b)));
        best.map_or(BitRate::from_bps(0), |(rate, _)| *rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_decides_where_the_equation_says() {
        // υ = 0 and ln 4 = 1.386; Q_max = 7: V = 6/6.386 = 0.9395.
        let rates = [1, 4].map(BitRate::from_mbps);
        let bola = Bola::new(&rates, Span::from_secs(2), Span::from_secs(14));
        // Equal where (5V − Q)·4 = 6.386·V − Q: Q = 13.614/3·V = 4.263 segments, 8.527 s.
        assert_eq!(bola.choose(Span::from_millis(8_520)), rates[0]);
        assert_eq!(bola.choose(Span::from_millis(8_530)), rates[1]);
        assert_eq!(bola.choose(Span::ZERO), rates[0]);
        // Six segments of seven: no room for another one beyond that.
        let held = bola.max_held().as_secs_f64();
        assert!((held - 12.0).abs() < 1e-6, "{held}");
    }
}
