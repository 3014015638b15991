//! The expected throughput of a saturated cell, by a fixed-point model.
//!
//! n nodes that all hear each other always have a frame to send to one receiver, which does not
//! send frames. The model follows Srivastava, Kumar: Performance analysis of beacon-less IEEE
//! 802.15.4 multi-hop networks, COMSNETS 2012 (arXiv:1201.3001), without hidden nodes: a node in
//! back-off senses the channel as a Poisson process, with the rate that results from its back-offs,
//! and a cycle begins with each idle period.
//!
//! ```text
//! β = Σ αⁱ / Σ αⁱ·((Wᵢ − 1)/2·σ + CCA)       CCAs per second in back-off, i from 0 to NB
//! CCAs within a turnaround T after the first one are idle, too: P(no collision) = e^(−(n−1)·β·T)
//! α = busy CCAs / all CCAs                 in a cycle; then again from the top
//! ```
//!
//! Three properties of the standard are added. A node that has sent pauses, for LIFS or for the ack
//! timeout, and does not contend meanwhile. In the turnaround before an ack the channel is idle for
//! longer than a CCA: a node whose CCA falls into this gap sends into the ack, and both its frame
//! and the ack are lost. And a frame whose ack was lost is repeated, but counts only once, unless
//! it is abandoned first.
//!
//! For one node the model is exact: Latré et al., Throughput and delay analysis of unslotted IEEE
//! 802.15.4, Journal of Networks 1(1), 2006, have the same sum without CCA and turnaround before
//! the frame.

use freshline_core::unit::Span;

use super::csma::Csma;
use super::phy::{ACK_OCTETS, ACK_WAIT, BACKOFF, CCA, MAC_OCTETS, TURNAROUND, airtime, pause};

/// A saturated cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saturation {
    /// The number of sending nodes, above 0.
    pub nodes: u32,
    /// Octets of each frame.
    pub octets: u64,
    /// Parameters of CSMA/CA.
    pub csma: Csma,
}

/// The mean counts and durations of a cycle.
#[derive(Debug, Clone, Copy, Default)]
struct Cycle {
    seconds: f64,
    /// Acknowledged frames; frames received whose ack is lost; all frames sent.
    acknowledged: f64,
    unanswered: f64,
    sent: f64,
    /// CCAs that find a busy channel.
    busy_looks: f64,
}

/// The number of iterations; the fixed point is reached long before.
const ITERATIONS: u32 = 1_000;
const STEP: f64 = 0.1;

impl Saturation {
    /// Frames delivered per second, of all nodes, each counted once.
    pub fn frames_per_s(&self) -> f64 {
        let (mut alpha, mut success) = (0.0, 1.0);
        let mut cycle = Cycle::default();
        for _ in 0..ITERATIONS {
            cycle = self.cycle(self.look_rate(alpha), success);
            alpha += STEP * (cycle.busy_looks / (cycle.busy_looks + cycle.sent) - alpha);
            success += STEP * (cycle.acknowledged - success);
        }
        let access = 1.0 - alpha.powi(i32::from(self.csma.max_backoffs) + 1);
        let arrives = (cycle.acknowledged + cycle.unanswered) / cycle.sent;
        let fails = access * (1.0 - arrives);
        let retries = i32::from(self.csma.max_retries);
        let again: f64 = (0..retries).map(|retry| fails.powi(retry) * access * arrives).sum();
        (cycle.acknowledged + cycle.unanswered * (1.0 - again)) / cycle.seconds
    }

    /// The throughput of payload after the MAC header, in bit/s.
    pub fn throughput_bps(&self) -> f64 {
        self.frames_per_s() * 8.0 * (self.octets - MAC_OCTETS) as f64
    }

    /// β.
    fn look_rate(&self, alpha: f64) -> f64 {
        let Csma { min_be, max_be, max_backoffs, .. } = self.csma;
        let (mut looks, mut time, mut probability) = (0.0, 0.0, 1.0);
        for backoff in 0..=max_backoffs {
            let window = 2f64.powi(i32::from(min_be.saturating_add(backoff).min(max_be)));
            looks += probability;
            time += probability * ((window - 1.0) / 2.0 * seconds(BACKOFF) + seconds(CCA));
            probability *= alpha;
        }
        looks / time
    }

    /// A cycle, given the probability that the previous one was a success.
    fn cycle(&self, rate: f64, success: f64) -> Cycle {
        let nodes = f64::from(self.nodes);
        let ends = [(success, 1.0, pause(self.octets)), (1.0 - success, nodes.min(2.0), ACK_WAIT)];
        let mut all = Cycle::default();
        for (weight, resting, rest) in ends {
            let (contend, rest) = ((nodes - resting) * rate, seconds(rest));
            let early = 1.0 - (-contend * rest).exp();
            let first = if contend > 0.0 { early / contend } else { rest };
            all.seconds += weight * (first + (1.0 - early) / (nodes * rate));
            for (weight, others) in [
                (weight * early, (nodes - resting - 1.0).max(0.0)),
                (weight * (1.0 - early), nodes - 1.0),
            ] {
                self.add_busy(&mut all, weight, others, rate);
            }
        }
        all
    }

    /// Adds the busy part of a cycle in which `others` nodes contend with the first one to sense
    /// the channel.
    fn add_busy(&self, all: &mut Cycle, weight: f64, others: f64, rate: f64) {
        let [turn, cca] = [TURNAROUND, CCA].map(seconds);
        let [frame, ack] = [self.octets, ACK_OCTETS].map(airtime).map(seconds);
        let nodes = f64::from(self.nodes);
        let single = (-others * rate * turn).exp();
        let quiet = (-(nodes - 1.0) * rate * (turn - cca)).exp();
        let (clean, gap, collision) = (single * quiet, single * (1.0 - quiet), 1.0 - single);
        let senders = 1.0 + others * (1.0 - (-rate * turn).exp());
        let colliding = if collision > 0.0 { (senders - single) / collision } else { 1.0 };
        // The mean distance between the first node's CCA and a later one, uniformly distributed.
        let (between, into_gap) = (turn / 2.0, cca + (turn - cca) / 2.0);
        let busy = clean * (frame + turn + ack)
            + gap * (frame + into_gap + turn + frame)
            + collision * (frame + between);
        // A CCA counts as busy from a frame's beginning until one CCA after its end.
        let looks = clean * (frame + cca + ack + cca) * (nodes - 1.0)
            + gap * 2.0 * (frame + cca) * (nodes - 1.5)
            + collision * (frame + between + cca) * (nodes - colliding).max(0.0);
        all.seconds += weight * (turn + busy);
        all.acknowledged += weight * clean;
        all.unanswered += weight * gap;
        all.sent += weight * (senders + gap);
        all.busy_looks += weight * rate * looks;
    }
}

fn seconds(span: Span) -> f64 {
    span.as_secs_f64()
}
