//! LIA: subflows together as aggressive as one TCP on the best path (RFC 6356).
//!
//! ```text
//! ack:   cwnd ← cwnd + delivered·min(α/Σ cwnd, 1/cwnd)
//!        α = Σ cwnd · max(cwnd/rtt²) / (Σ cwnd/rtt)²          (section 3, equation 2)
//! loss:  as Reno; slow start too
//! ```

use freshline_core::unit::Packets;

use super::coupling::{Coupled, Coupling, Share, Shares};

impl Coupled {
    /// Linked increases: one more subflow of a connection, with a window of `initial` segments.
    pub fn lia(initial: Packets, coupling: &Coupling) -> Self {
        Self::new("lia", increase, initial, coupling)
    }
}

/// How much the window grows with a segment delivered.
fn increase(own: &Share, all: Shares<'_>) -> f64 {
    let (mut best, mut rate) = (0.0f64, 0.0);
    for share in all {
        best = best.max(share.window / share.round_trip.powi(2));
        rate += share.window / share.round_trip;
    }
    // α/Σ cwnd.
    (best / (rate * rate)).min(1.0 / own.window)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(window: f64, round_trip: f64) -> Share {
        Share { window, round_trip, ..Share::default() }
    }

    #[test]
    fn the_increase_is_that_of_the_equation() {
        let both = [share(10.0, 0.1), share(30.0, 0.2)];
        // Σ cwnd = 40, max(cwnd/rtt²) = 1000, Σ cwnd/rtt = 250: α = 0.64.
        let of = |at: usize| increase(&both[at], &mut both.iter());
        assert!((of(0) - 0.64 / 40.0).abs() < 1e-12, "{}", of(0));
        assert_eq!(of(0), of(1));
        let alone = [share(25.0, 0.05)];
        let of = increase(&alone[0], &mut alone.iter());
        assert!((of - 1.0 / 25.0).abs() < 1e-12, "as Reno: {of}");
    }

    #[test]
    fn two_alike_over_one_bottleneck_grow_as_one() {
        // 40 segments a round trip, each worth (w/rtt²)/(2w/rtt)² = 1/(4w): half a segment, as each
        // loss halves one of the two windows alone.
        let both = [share(20.0, 0.1), share(20.0, 0.1)];
        let each = increase(&both[0], &mut both.iter());
        assert!((each - 1.0 / 80.0).abs() < 1e-12, "{each}");
    }
}
