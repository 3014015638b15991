//! LIA: subflows together as aggressive as one TCP on the best path (RFC 6356).
//!
//! ```text
//! ack:   cwnd ← cwnd + delivered·min(α/Σ cwnd, 1/cwnd)
//!        α = Σ cwnd · max(cwnd/rtt²) / (Σ cwnd/rtt)²          (section 3, equation 2)
//! loss:  as Reno; slow start too
//! ```

use freshline_core::unit::{Packets, Time};

use super::coupling::{Coupling, Member, Share};
use super::window::Window;
use super::{Ack, CongestionControl, Idle, Signal};

/// Linked increases.
#[derive(Debug, Clone)]
pub struct Lia {
    window: Window,
    member: Member,
}

impl Lia {
    /// One more subflow of a connection, with a window of `initial` segments.
    pub fn new(initial: Packets, coupling: &Coupling) -> Self {
        let window = Window::new(initial);
        Self { member: coupling.join(window.cwnd), window }
    }
}

/// How much the window grows with a segment delivered.
fn increase(own: &Share, all: &mut dyn Iterator<Item = &Share>) -> f64 {
    let (mut best, mut rate) = (0.0f64, 0.0);
    for share in all {
        best = best.max(share.window / share.round_trip.powi(2));
        rate += share.window / share.round_trip;
    }
    // α/Σ cwnd.
    (best / (rate * rate)).min(1.0 / own.window)
}

impl CongestionControl for Lia {
    fn name(&self) -> &'static str {
        "lia"
    }

    fn window(&self) -> Packets {
        self.window.packets()
    }

    fn is_in_slow_start(&self) -> bool {
        self.window.in_slow_start()
    }

    fn on_penalty(&mut self) {
        self.window.penalise();
    }

    fn on_ack(&mut self, _now: Time, ack: &Ack) {
        self.member.tell(self.window.cwnd, ack.delivered.get() as f64, ack.rtt);
        if self.window.may_grow(ack) {
            let left = self.window.slow_start(ack.delivered);
            self.window.cwnd += left * self.member.look(increase);
        }
    }

    fn on_congestion(&mut self, _now: Time, _signal: Signal) {
        self.window.answer_congestion(self.window.cwnd / 2.0);
        self.member.tell_loss(self.window.cwnd);
    }

    fn on_timeout(&mut self, _now: Time) {
        self.window.collapse();
    }

    fn on_needless(&mut self, _now: Time) {
        self.window.take_back();
    }

    fn on_idle(&mut self, _now: Time, idle: Idle) {
        self.window.restart(idle);
    }
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
