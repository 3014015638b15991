//! OLIA: linked increases that leave congested paths (Khalili, Gast, Popovic, Le Boudec: MPTCP Is Not
//! Pareto-Optimal, IEEE/ACM Transactions on Networking 21(5), 2013, section IV).
//!
//! ```text
//! ack:   w ← w + delivered·( (w/rtt²)/(Σ w/rtt)² + α/w )
//! loss:  as Reno; slow start too
//!
//! M: the paths with the largest window       B: those with the most ℓ/rtt²
//! α =  1/(paths·|B∖M|)   of a path in B∖M
//!     −1/(paths·|M|)     of one in M, if B∖M is not empty
//!      0                 else
//! ```
//!
//! ℓ are the segments delivered since the last loss, or between that one and the one before, whichever
//! are more: 1/ℓ estimates the loss rate, and ℓ/rtt² the square of what one TCP would get.

use freshline_core::unit::Packets;

use super::coupling::{Coupled, Coupling, Share, Shares};

impl Coupled {
    /// Opportunistic linked increases: one more subflow of a connection, with a window of `initial` segments.
    pub fn olia(initial: Packets, coupling: &Coupling) -> Self {
        Self::new("olia", increase, initial, coupling)
    }
}

fn quality(share: &Share) -> f64 {
    share.between_losses() / share.round_trip.powi(2)
}

/// How much the window grows with a segment delivered; below zero where it shrinks.
fn increase(own: &Share, all: Shares<'_>) -> f64 {
    let all: Vec<&Share> = all.collect();
    let most = |of: fn(&Share) -> f64| all.iter().map(|share| of(share)).fold(0.0, f64::max);
    let (widest, best) = (most(|share| share.window), most(quality));
    let is_widest = |share: &Share| share.window >= widest;
    let is_hidden = |share: &Share| quality(share) >= best && !is_widest(share);
    let hidden = all.iter().filter(|share| is_hidden(share)).count() as f64;
    let wide = all.iter().filter(|share| is_widest(share)).count() as f64;
    let paths = all.len() as f64;
    let alpha = match (is_hidden(own), is_widest(own)) {
        (true, _) => 1.0 / (paths * hidden),
        (false, true) if hidden > 0.0 => -1.0 / (paths * wide),
        _ => 0.0,
    };
    let rate: f64 = all.iter().map(|share| share.window / share.round_trip).sum();
    own.window / own.round_trip.powi(2) / (rate * rate) + alpha / own.window
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(window: f64, round_trip: f64, since: f64, before: f64) -> Share {
        Share { window, round_trip, delivered: [since, before] }
    }

    #[test]
    fn the_increase_is_that_of_the_equation() {
        // Path 0 has the larger window, path 1 the better quality: 900/0.04 against 100/0.01.
        let both = [share(20.0, 0.1, 100.0, 50.0), share(10.0, 0.2, 300.0, 900.0)];
        let of = |at: usize| increase(&both[at], &mut both.iter());
        // Σ w/rtt = 250. Of path 0: 2000/62500 − (1/2)/20; of path 1: 250/62500 + (1/2)/10.
        assert!((of(0) - (0.032 - 0.025)).abs() < 1e-12, "{}", of(0));
        assert!((of(1) - (0.004 + 0.05)).abs() < 1e-12, "{}", of(1));
    }

    #[test]
    fn where_the_best_path_has_the_largest_window_nothing_is_moved() {
        let both = [share(20.0, 0.1, 100.0, 50.0), share(10.0, 0.1, 20.0, 30.0)];
        let rate = 300.0f64.powi(2);
        for (own, expected) in both.iter().zip([2000.0 / rate, 1000.0 / rate]) {
            let of = increase(own, &mut both.iter());
            assert!((of - expected).abs() < 1e-12, "{of}");
        }
        let alone = [share(25.0, 0.05, 7.0, 0.0)];
        let of = increase(&alone[0], &mut alone.iter());
        assert!((of - 1.0 / 25.0).abs() < 1e-12, "as Reno: {of}");
    }
}
