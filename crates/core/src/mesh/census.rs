//! The share for [`Dtpa`](super::Dtpa), from what a node hears of its parent: c by itself.
//!
//! All that goes between the border router and the nodes below a node's parent passes the parent's
//! radio, and who can talk to the parent hears it: the acks that it sends down, each to a node by
//! its address. So every node can tell how many nodes share the way through its parent and how
//! many segments they bring home, itself among them; a child of the border router hears the whole
//! mesh.
//!
//! ```text
//! c = max(gain · heard / nodes, lead · the parent's own) / time     over a window, then smoothed
//! ```
//!
//! Above 1, gain lets all rates rise until losses or long round trips, and not periods, limit those
//! who have least. Nothing is sent for it, and nobody needs to know the network's size.
//!
//! Far from the border router a node hears of few others, who may all be worse off than most: it
//! must not hold itself down to their mean. Its parent, one hop nearer, knows better, and what that
//! one sends of its own tells. So the mean of the whole mesh comes down the tree.
//!
//! Nodes are counted without a table of them, by linear counting (Whang, Vander-Zanden, Taylor
//! 1990): each address sets one bit of m, and with z of them unset there were about −m·ln(z/m). For
//! 128 bits the standard error is below a tenth up to 200 nodes.

use super::dtpa::Share;
use crate::unit::{Span, Time};

const BITS: u32 = u128::BITS;

/// Settings of [`Census`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct CensusParams {
    /// How long a window is, above 0. 30 s: some ten segments of each of thirty nodes.
    pub window: Span,
    /// How much more than the mean each node may have, at least 1. 1.3: less than its share comes
    /// of it, as (4.1) knows nothing of timeouts, and with 1 shares would fall and fall.
    pub gain: f64,
    /// How much more than its parent each node may have, at least 1. 1.2: for the same reason.
    pub lead: f64,
    /// The newest window's part in the share, above 0 and at most 1. 1/4.
    pub weight: f64,
}

impl Default for CensusParams {
    fn default() -> Self {
        Self { window: Span::from_secs(30), gain: 1.3, lead: 1.2, weight: 0.25 }
    }
}

/// What a node hears its parent send: a segment that comes home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// An ack for this node: a segment of its own has come.
    Ack {
        /// The node.
        node: u16,
    },
    /// A segment of the parent's own, whose ack nobody below it hears.
    OfParent {
        /// The parent.
        node: u16,
    },
}

/// Who is there, and how much they bring home.
#[derive(Debug, Clone, Copy)]
pub struct Census {
    seen: u128,
    heard: u32,
    /// Of these, the parent's own.
    of_parent: u32,
    began_at: Option<Time>,
    /// Segments a second, smoothed; 0 before the first window's end.
    share: f32,
}

impl Default for Census {
    fn default() -> Self {
        Self::new()
    }
}

impl Census {
    /// Has heard nothing yet.
    pub const fn new() -> Self {
        Self { seen: 0, heard: 0, of_parent: 0, began_at: None, share: 0.0 }
    }

    /// The parent has sent an ack down, or a segment of its own up. Tells the share where a window
    /// has ended with it.
    pub fn on_heard(&mut self, params: &CensusParams, now: Time, heard: Heard) -> Option<Share> {
        let began_at = *self.began_at.get_or_insert(now);
        let elapsed = now.since(began_at);
        let mut told = None;
        if elapsed >= params.window && self.heard > 0 {
            let gain = params.gain as f32;
            let most = (gain * self.heard as f32 / self.nodes())
                .max(params.lead as f32 * self.of_parent as f32);
            let rate = most / elapsed.as_secs_f64() as f32;
            let weight = if self.share > 0.0 { params.weight as f32 } else { 1.0 };
            self.share += weight * (rate - self.share);
            *self = Self { began_at: Some(now), share: self.share, ..Self::new() };
            told = Share::per_second(f64::from(self.share));
        }
        let (Heard::Ack { node } | Heard::OfParent { node }) = heard;
        self.seen |= 1 << (mixed(node) % BITS);
        self.heard = self.heard.saturating_add(1);
        self.of_parent += u32::from(matches!(heard, Heard::OfParent { .. }));
        told
    }

    /// About how many nodes were heard in this window.
    pub fn nodes(&self) -> f32 {
        let set = self.seen.count_ones();
        let unset = (BITS - set).max(1) as f32;
        let bits = BITS as f32;
        (-bits * libm::logf(unset / bits)).max(set as f32)
    }
}

/// Linear counting wants addresses that look like chance, and nodes have 1, 2, 3: MurmurHash3's
/// last step.
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
        CensusParams { window: Span::from_secs(10), gain: 1.0, lead: 1.0, weight: 0.5 };

    /// `nodes` nodes, of which each has a segment acknowledged every second.
    fn hear(census: &mut Census, nodes: u16, seconds: core::ops::Range<u64>) -> Option<Share> {
        let mut told = None;
        for second in seconds {
            for node in 0..nodes {
                let now = Time::ZERO + Span::from_secs(second);
                told = census.on_heard(&PARAMS, now, Heard::Ack { node }).or(told);
            }
        }
        told
    }

    #[test]
    fn the_share_is_what_a_node_brings_home_in_the_mean() {
        for nodes in [1, 2, 10, 30] {
            let told = hear(&mut Census::new(), nodes, 0..11).unwrap();
            let share = f64::from(told.per_1000_s()) / 1e3;
            assert!((share - 1.0).abs() < 0.15, "{nodes} nodes: {share}");
        }
    }

    /// The parent sends 4 a second, its three other children and this one 1 each.
    #[test]
    fn a_parent_that_has_more_than_the_mean_tells_the_share() {
        let mut census = Census::new();
        let mut told = None;
        for tick in 0..44 {
            let now = Time::ZERO + Span::from_millis(250 * tick);
            told = census.on_heard(&PARAMS, now, Heard::OfParent { node: 1 }).or(told);
            let node = 2 + (tick % 4) as u16;
            told = census.on_heard(&PARAMS, now, Heard::Ack { node }).or(told);
        }
        let share = f64::from(told.unwrap().per_1000_s()) / 1e3;
        assert!((share - 4.0).abs() < 0.2, "{share}");
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
        let mut told = None;
        for second in (12..32).step_by(2) {
            told = hear(&mut census, 10, second..second + 1).or(told);
        }
        let [first, second] = [first, told.unwrap()].map(|share| share.per_1000_s());
        assert!(second < first * 4 / 5 && second > first / 2, "{first} {second}");
    }
}
