//! Chooses the topic whose state leaves next.
//!
//! Topics of one source share the rate that its law sets. Topic i has a weight wᵢ, and sᵢ bytes
//! must leave for one of its states. The goal is a small weighted sum of ages. If topic i is sent
//! every Tᵢ seconds over a path of c bytes/s, its age grows to about Tᵢ between two states:
//!
//! ```text
//! minimise  Σ wᵢ · Tᵢ / 2      where  Σ sᵢ / Tᵢ = c
//! so that   wᵢ · Tᵢ² / sᵢ      is the same for all topics:   Tᵢ ∝ √(sᵢ / wᵢ)
//! ```
//!
//! The rule serves the topic with the maximum **index**, which is that number at the moment of
//! sending:
//!
//! ```text
//! index = w · (a² − (a − g)²) / s  =  w · g · (2a − g) / s
//!         a  age at the monitor of what has been sent so far
//!         g  by how much the state that is ready is newer: g = a if it is sampled as it leaves
//! ```
//!
//! The numerator is the fall of the weighted sum of squared ages, the max-weight policy of Kadota,
//! Sinha, Uysal-Biyikoglu, Singh and Modiano ("Scheduling policies for minimizing age of
//! information in broadcast wireless networks", IEEE/ACM Transactions on Networking 26(6), 2018); a
//! state that is not new is worth less, as in Hsu, Modiano and Duan ("Scheduling algorithms for
//! minimizing age of information in wireless broadcast networks with random arrivals", IEEE
//! Transactions on Mobile Computing 19(12), 2020). The division by s gives the worth per byte, and
//! the rest of a state in transmission weighs more and more as it comes to its end. As a grows
//! without bound, no topic with a weight starves.
//!
//! **Small states share a datagram.** The headers of a datagram are paid once, by the state that
//! leads it. Others join while they fit, in the order of their indices by their own bytes alone, as
//! long as these are not below that of the leader: a state with less worth per byte than the states
//! that the path carries otherwise must wait. If the rate of datagrams is fixed, or a limit of the
//! user keeps it below the path's capacity, bytes cost nothing, and every state that fits joins.

use crate::unit::Span;

/// Bytes of a datagram without its frames: of IPv4, UDP and the header of an update.
pub const HEADERS: usize = 28 + crate::wire::Update::HEADER_LEN;

/// A state that could leave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The topic's weight, above 0.
    pub weight: f64,
    /// The age at the monitor of the topic's states sent so far.
    pub age: Span,
    /// By how much this state is newer, at most `age`.
    pub gain: Span,
    /// The bytes that must leave for it, at least 1.
    pub bytes: usize,
}

impl Candidate {
    /// The candidate's index: the candidate with the maximum leaves first. In s² per byte.
    pub fn index(&self) -> f64 {
        let (age, gain) = (self.age.as_secs_f64(), self.gain.min(self.age).as_secs_f64());
        self.weight * gain * (2.0 * age - gain) / self.bytes.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(weight: f64, age_ms: u64, gain_ms: u64, bytes: usize) -> Candidate {
        let (age, gain) = (Span::from_millis(age_ms), Span::from_millis(gain_ms));
        Candidate { weight, age, gain, bytes }
    }

    #[test]
    fn at_the_optimal_intervals_all_indices_are_equal() {
        // Tᵢ ∝ √(sᵢ / wᵢ)
        let one = candidate(1.0, 100, 100, 100).index();
        assert!((candidate(4.0, 50, 50, 100).index() / one - 1.0).abs() < 1e-9);
        assert!((candidate(1.0, 200, 200, 400).index() / one - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_newer_state_is_worth_more_and_what_brings_nothing_is_worth_nothing() {
        assert!(candidate(1.0, 100, 60, 100).index() < candidate(1.0, 100, 90, 100).index());
        assert_eq!(candidate(1.0, 100, 0, 100).index(), 0.0);
        assert_eq!(candidate(1.0, 100, 500, 100), candidate(1.0, 100, 500, 100));
        assert_eq!(candidate(1.0, 100, 500, 100).index(), candidate(1.0, 100, 100, 100).index());
    }
}
