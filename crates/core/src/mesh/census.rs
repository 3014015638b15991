//! Finds the share c for [`Dtpa`](super::Dtpa) from packets that a node overhears from its parent.
//!
//! All packets between the border router and the nodes below a node's parent pass the parent's
//! radio, and each child of the parent overhears the acks that the parent sends down, each to one
//! node by its address. So a node can count the nodes that share the route through its parent, and
//! their segments, its own included; a child of the border router overhears the whole mesh.
//!
//! ```text
//! target = gain · heard / nodes / time                     segments/s; over a window, then smoothed; or received
//! effort ← effort · (1 + weight · (1 − own / target))      from 1/max_effort to max_effort
//! c      = target · effort                                 segments/s
//! ```
//!
//! - **gain** is above 1, so that all rates rise until losses or long round trips, and not periods,
//!   limit the nodes with the smallest rates.
//! - **The target is the same for all nodes.** Far from the border router a node overhears few
//!   others, and all of these may have more or less than the mean. So each node writes the target
//!   into some of its packets, and its children adopt it. The border router sends no packets of its
//!   own and has no target, so its children compute it. An information element of IEEE 802.15.4
//!   carries the target: six bytes, with the element that ends the list.
//! - **effort** is each node's own. A node with a period for c gets less than c, as (4.1) leaves
//!   out consecutive timeouts, and the more of them the higher its loss rate. The effort is
//!   bounded: a node with little data gets less than the target as well, and would otherwise end
//!   with a period of 0.
//!
//! Nodes are counted without a table, by linear counting (Whang, Vander-Zanden, Taylor 1990): each
//! address sets one bit of m; with z bits unset there were about −m·ln(z/m) nodes. For 128 bits the
//! standard error is below a tenth up to 200 nodes.

use super::dtpa::Share;
use crate::unit::{Span, Time};

const BITS: u32 = u128::BITS;

/// Settings of [`Census`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct CensusParams {
    /// The length of a window, above 0. 30 s: some ten segments of each of thirty nodes.
    pub window: Span,
    /// The share that a node may have, as a multiple of the mean, at least 1. 1.4: below it goodput
    /// is lost, above it fairness (`docs/mesh.md`).
    pub gain: f64,
    /// The maximum factor between a node's target and its c, up or down, at least 1. 1.5: with
    /// more, nodes at half the distance gain the goodput that the farthest lose.
    pub max_effort: f64,
    /// The weight of the newest window in target and effort, above 0 and at most 1. 1/4.
    pub weight: f64,
}

impl Default for CensusParams {
    fn default() -> Self {
        Self { window: Span::from_secs(30), gain: 1.4, max_effort: 1.5, weight: 0.25 }
    }
}

/// A packet that a node overhears from its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// An ack for this node: a segment of its own has reached the border router.
    Ack {
        /// The node.
        node: u16,
    },
    /// An ack for the node that hears it.
    Own {
        /// The node.
        node: u16,
    },
    /// The parent's target, which it writes into some of its packets.
    Target(Share),
}

/// Counts of the nodes and their delivered segments.
#[derive(Debug, Clone, Copy)]
pub struct Census {
    seen: u128,
    heard: u32,
    /// This node's own segments among them.
    own: u32,
    /// Whether the parent has sent its target in this window.
    is_reported: bool,
    began_at: Option<Time>,
    /// Segments per second, smoothed; 0 before the first window's end.
    target: f32,
    effort: f32,
}

impl Default for Census {
    fn default() -> Self {
        Self::new()
    }
}

impl Census {
    /// A census without counts.
    pub const fn new() -> Self {
        Self {
            seen: 0,
            heard: 0,
            own: 0,
            is_reported: false,
            began_at: None,
            target: 0.0,
            effort: 1.0,
        }
    }

    /// Takes in a packet of the parent. Returns the share if that ended a window, or if the parent
    /// has sent its target.
    pub fn on_heard(&mut self, params: &CensusParams, now: Time, heard: Heard) -> Option<Share> {
        let began_at = *self.began_at.get_or_insert(now);
        let elapsed = now.since(began_at);
        let mut reported = None;
        if elapsed >= params.window && self.heard > 0 {
            self.end_window(params, elapsed);
            reported = self.share();
            let Self { target, effort, .. } = *self;
            *self = Self { began_at: Some(now), target, effort, ..Self::new() };
        }
        let node = match heard {
            Heard::Target(target) => {
                (self.is_reported, self.target) = (true, target.per_1000_s() as f32 / 1e3);
                return self.share();
            }
            Heard::Ack { node } | Heard::Own { node } => node,
        };
        self.seen |= 1 << (mixed(node) % BITS);
        self.heard = self.heard.saturating_add(1);
        self.own += u32::from(matches!(heard, Heard::Own { .. }));
        reported
    }

    /// The target of each node, once it is known: this node writes it into some of its packets.
    pub fn target(&self) -> Option<Share> {
        Share::per_second(f64::from(self.target))
    }

    fn share(&self) -> Option<Share> {
        Share::per_second(f64::from(self.target * self.effort))
    }

    fn end_window(&mut self, params: &CensusParams, elapsed: Span) {
        let seconds = elapsed.as_secs_f64() as f32;
        let [weight, most] = [params.weight, params.max_effort].map(|number| number as f32);
        let is_first = self.target == 0.0;
        if !self.is_reported {
            let mean = self.heard as f32 / self.nodes() / seconds;
            let weight = if is_first { 1.0 } else { weight };
            self.target += weight * (params.gain as f32 * mean - self.target);
        }
        if !is_first {
            let missing = 1.0 - self.own as f32 / seconds / self.target;
            self.effort = (self.effort * (1.0 + weight * missing)).clamp(1.0 / most, most);
        }
    }

    /// The estimated number of nodes overheard in this window.
    pub fn nodes(&self) -> f32 {
        let set = self.seen.count_ones();
        let unset = (BITS - set).max(1) as f32;
        let bits = BITS as f32;
        (-bits * libm::logf(unset / bits)).max(set as f32)
    }
}

/// Linear counting needs addresses that look random, and nodes have 1, 2, 3: the last step of
/// MurmurHash3.
fn mixed(node: u16) -> u32 {
    let mut bits = u32::from(node);
    for factor in [0x85EB_CA6B, 0xC2B2_AE35] {
        bits = (bits ^ (bits >> 15)).wrapping_mul(factor);
    }
    bits ^ (bits >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: CensusParams =
        CensusParams { window: Span::from_secs(10), gain: 1.0, max_effort: 1.0, weight: 0.5 };

    /// `nodes` nodes, each with an acknowledged segment every second.
    fn hear(census: &mut Census, nodes: u16, seconds: core::ops::Range<u64>) -> Option<Share> {
        let mut reported = None;
        for second in seconds {
            for node in 0..nodes {
                let now = Time::ZERO + Span::from_secs(second);
                reported = census.on_heard(&PARAMS, now, Heard::Ack { node }).or(reported);
            }
        }
        reported
    }

    #[test]
    fn the_share_is_what_a_node_brings_home_in_the_mean() {
        for nodes in [1, 2, 10, 30] {
            let reported = hear(&mut Census::new(), nodes, 0..11).unwrap();
            let share = f64::from(reported.per_1000_s()) / 1e3;
            assert!((share - 1.0).abs() < 0.15, "{nodes} nodes: {share}");
        }
    }

    /// Nine nodes deliver a segment per second each, and node 0, which overhears them, `own` in
    /// two.
    fn share_of_node_0(own: u64) -> f64 {
        let params = CensusParams { max_effort: 1.5, ..PARAMS };
        let (mut census, mut reported) = (Census::new(), None);
        for second in 0..400 {
            let now = Time::ZERO + Span::from_secs(second);
            for node in 1..10 {
                reported = census.on_heard(&params, now, Heard::Ack { node }).or(reported);
            }
            for _ in 0..if second % 2 == 0 { own } else { 0 } {
                reported = census.on_heard(&params, now, Heard::Own { node: 0 }).or(reported);
            }
        }
        f64::from(reported.unwrap().per_1000_s()) / 1e3
    }

    #[test]
    fn who_gets_less_than_the_target_asks_for_more_within_bounds() {
        // Means of 0.95 and 1.1 per second, times 1.5 and over 1.5.
        let [half, double] = [1, 4].map(share_of_node_0);
        assert!((1.2..1.6).contains(&half) && (0.6..0.85).contains(&double), "{half} {double}");
    }

    #[test]
    fn what_the_parent_tells_goes_before_what_is_counted() {
        let mut census = Census::new();
        assert!(hear(&mut census, 10, 0..11).is_some());
        let target = Share::per_second(0.3);
        let now = Time::ZERO + Span::from_secs(11);
        assert_eq!(census.on_heard(&PARAMS, now, Heard::Target(target.unwrap())), target);
        hear(&mut census, 10, 11..22);
        assert_eq!(census.target(), target, "in the window in which it was told");
        hear(&mut census, 10, 22..33);
        assert!(census.target() > target, "a parent that is silent is forgotten");
    }

    #[test]
    fn nodes_are_counted_without_a_table() {
        for nodes in [5, 30, 100, 200] {
            let mut census = Census::new();
            hear(&mut census, nodes, 0..1);
            let counted = f64::from(census.nodes());
            assert!((counted / f64::from(nodes) - 1.0).abs() < 0.2, "{nodes}: {counted}");
        }
    }

    #[test]
    fn a_window_of_the_past_counts_for_half() {
        let mut census = Census::new();
        assert_eq!(hear(&mut census, 10, 0..10), None);
        let first = hear(&mut census, 10, 10..11).unwrap();
        // Then each is heard every other second.
        let mut reported = None;
        for second in (12..32).step_by(2) {
            reported = hear(&mut census, 10, second..second + 1).or(reported);
        }
        let [first, second] = [first, reported.unwrap()].map(|share| share.per_1000_s());
        assert!(second < first * 4 / 5 && second > first / 2, "{first} {second}");
    }
}
