//! Coupled congestion control: controls the growth of each path's window by the windows of all
//! paths of the connection, so that several paths through one bottleneck take no more than one
//! flow.
//!
//! ```text
//! LIA     Δw = min(α/Σw, 1/w)             α/Σw = max(w/rtt²) / (Σ w/rtt)²
//! OLIA    Δw = (w/rtt²)/(Σ w/rtt)² + α/w
//!
//! M: the paths with the largest window       B: those with maximum ℓ/rtt²
//! α =  1/(paths·|B∖M|)   of a path in B∖M
//!     −1/(paths·|M|)     of one in M, if B∖M is not empty
//!      0                 else
//! ```
//!
//! Δw is the increase, in packets, with each packet delivered in congestion avoidance; w are
//! windows in packets. Slow start and the answer to a loss are Reno's. ℓ are the packets delivered
//! since the last loss, or between that one and the one before, whichever are more: 1/ℓ estimates
//! the loss rate, and ℓ/rtt² the square of the rate of one TCP flow.
//!
//! LIA: RFC 6356, section 3. OLIA: Khalili, Gast, Popovic, Le Boudec: MPTCP Is Not Pareto-Optimal,
//! IEEE/ACM Transactions on Networking 21(5), 2013, section IV.

/// The state of a path for the coupled laws of the others.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Share {
    /// Its window, in packets.
    pub window: f64,
    /// Its smoothed round trip, in s; 0 before there is a sample, and then the path does not count.
    pub round_trip: f64,
    /// Packets delivered since its last loss, and between that one and the one before.
    pub delivered: [f64; 2],
}

impl Share {
    /// Counts packets that were delivered.
    pub fn on_delivered(&mut self, packets: f64) {
        self.delivered[0] += packets;
    }

    /// Starts a new count after a loss.
    pub fn on_loss(&mut self) {
        self.delivered = [0.0, self.delivered[0]];
    }

    /// ℓ/rtt².
    fn quality(&self) -> f64 {
        self.delivered[0].max(self.delivered[1]) / (self.round_trip * self.round_trip)
    }
}

/// How the windows of a connection's paths are coupled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoupledLaw {
    /// Linked increases (RFC 6356).
    Lia,
    /// Opportunistic linked increases, which also leave congested paths.
    Olia,
}

impl CoupledLaw {
    /// The increase of a window in packets with each packet delivered; with OLIA it may be
    /// negative. `own` is one of `all`, and all have a round trip above zero.
    pub fn increase<'a>(self, own: &Share, all: impl Iterator<Item = &'a Share> + Clone) -> f64 {
        match self {
            Self::Lia => lia(own, all),
            Self::Olia => olia(own, all),
        }
    }
}

fn lia<'a>(own: &Share, all: impl Iterator<Item = &'a Share>) -> f64 {
    let (mut best, mut rate) = (0.0f64, 0.0);
    for share in all {
        best = best.max(share.window / (share.round_trip * share.round_trip));
        rate += share.window / share.round_trip;
    }
    // α/Σw.
    (best / (rate * rate)).min(1.0 / own.window)
}

fn olia<'a>(own: &Share, all: impl Iterator<Item = &'a Share> + Clone) -> f64 {
    let widest = all.clone().map(|share| share.window).fold(0.0, f64::max);
    let best = all.clone().map(Share::quality).fold(0.0, f64::max);
    let is_widest = |share: &Share| share.window >= widest;
    let is_hidden = |share: &Share| share.quality() >= best && !is_widest(share);
    let hidden = all.clone().filter(|share| is_hidden(share)).count() as f64;
    let wide = all.clone().filter(|share| is_widest(share)).count() as f64;
    let paths = all.clone().count() as f64;
    let alpha = match (is_hidden(own), is_widest(own)) {
        (true, _) => 1.0 / (paths * hidden),
        (false, true) if hidden > 0.0 => -1.0 / (paths * wide),
        _ => 0.0,
    };
    let rate: f64 = all.map(|share| share.window / share.round_trip).sum();
    own.window / (own.round_trip * own.round_trip) / (rate * rate) + alpha / own.window
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(window: f64, round_trip: f64, since: f64, before: f64) -> Share {
        Share { window, round_trip, delivered: [since, before] }
    }

    #[test]
    fn lia_is_the_equation_of_the_rfc() {
        let both = [share(10.0, 0.1, 0.0, 0.0), share(30.0, 0.2, 0.0, 0.0)];
        // Σw = 40, max(w/rtt²) = 1000, Σ w/rtt = 250: α = 0.64.
        let of = |at: usize| CoupledLaw::Lia.increase(&both[at], both.iter());
        assert!((of(0) - 0.64 / 40.0).abs() < 1e-12, "{}", of(0));
        assert_eq!(of(0), of(1));
        let alone = [share(25.0, 0.05, 0.0, 0.0)];
        let of = CoupledLaw::Lia.increase(&alone[0], alone.iter());
        assert!((of - 1.0 / 25.0).abs() < 1e-12, "as Reno: {of}");
    }

    #[test]
    fn with_lia_two_equal_paths_over_one_bottleneck_grow_as_one() {
        // 40 packets per round trip, each worth (w/rtt²)/(2w/rtt)² = 1/(4w): half a packet, as each
        // loss halves one of the two windows alone.
        let both = [share(20.0, 0.1, 0.0, 0.0), share(20.0, 0.1, 0.0, 0.0)];
        let each = CoupledLaw::Lia.increase(&both[0], both.iter());
        assert!((each - 1.0 / 80.0).abs() < 1e-12, "{each}");
    }

    #[test]
    fn olia_is_the_equation_of_the_paper() {
        // Path 0 has the larger window, path 1 the better quality: 900/0.04 against 100/0.01.
        let both = [share(20.0, 0.1, 100.0, 50.0), share(10.0, 0.2, 300.0, 900.0)];
        let of = |at: usize| CoupledLaw::Olia.increase(&both[at], both.iter());
        // Σ w/rtt = 250. Of path 0: 2000/62500 − (1/2)/20; of path 1: 250/62500 + (1/2)/10.
        assert!((of(0) - (0.032 - 0.025)).abs() < 1e-12, "{}", of(0));
        assert!((of(1) - (0.004 + 0.05)).abs() < 1e-12, "{}", of(1));
    }

    #[test]
    fn with_olia_nothing_moves_where_the_best_path_has_the_largest_window() {
        let both = [share(20.0, 0.1, 100.0, 50.0), share(10.0, 0.1, 20.0, 30.0)];
        let rate = 300.0 * 300.0;
        for (own, expected) in both.iter().zip([2000.0 / rate, 1000.0 / rate]) {
            let of = CoupledLaw::Olia.increase(own, both.iter());
            assert!((of - expected).abs() < 1e-12, "{of}");
        }
        let alone = [share(25.0, 0.05, 7.0, 0.0)];
        let of = CoupledLaw::Olia.increase(&alone[0], alone.iter());
        assert!((of - 1.0 / 25.0).abs() < 1e-12, "as Reno: {of}");
    }
}
