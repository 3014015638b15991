//! The location of the bottleneck according to the settings of a scenario, as defined in the thesis
//! (Hassani, Low Delay & High Rate in 802.11ac Edge Networks, section 4.5.2.2).
//!
//! ```text
//! offered to a link   the sum of the constant rates of flows that cross it and send at the time
//! the backhaul        the load offered to a link before the cell exceeds its capacity
//! ```
//!
//! The result is undefined if the settings do not determine the offered load: alongside TCP,
//! updates, other laws or patterns than constant ones, or over links with a trace.

use freshline_core::unit::Time;
use freshline_core::wlan::{Bottleneck, DownlinkLawConfig};

use super::{FlowConfig, LinkConfig, PatternName, Scenario};

/// The rate of a flow and its equals, in bit/s, if it is known.
fn offered(flow: &FlowConfig) -> Option<u64> {
    let rate = match (&flow.cross_traffic, &flow.downlink) {
        (Some(load), None) if load.pattern == PatternName::Constant => load.rate,
        (None, Some(downlink)) => match downlink.law {
            DownlinkLawConfig::Fixed { rate, .. } => rate,
            _ => return None,
        },
        _ => return None,
    };
    Some(rate.as_bps().saturating_mul(flow.count.into()))
}

/// Whether all of them begin together, and send from the beginning of the path to its end.
fn is_plain(flow: &FlowConfig) -> bool {
    !flow.each_hop
        && !flow.each_pair
        && !flow.reverse
        && flow.start_interval.is_zero()
        && flow.start_spread.is_zero()
}

impl Scenario {
    /// The bottlenecks of a flow with the times from which they hold, in order; `None` if the
    /// settings do not determine them.
    pub(super) fn bottlenecks(&self, flow: &FlowConfig) -> Option<Vec<(Time, Bottleneck)>> {
        let crosses = |flow: &FlowConfig, link: &LinkConfig| flow.path.contains(&link.name);
        let before: Vec<_> = self.links.iter().filter(|link| crosses(flow, link)).collect();
        let others = self.flows.iter().filter(|flow| flow.count > 0);
        let others = others.filter(|flow| before.iter().any(|link| crosses(flow, link)));
        let mut parts = Vec::new();
        for other in others {
            if !is_plain(other) {
                return None;
            }
            let starts_at = Time::ZERO + other.start;
            let ends_at = Time::ZERO + other.stop.unwrap_or(self.duration);
            parts.push((other, offered(other)?, starts_at, ends_at));
        }
        let mut times: Vec<_> =
            parts.iter().flat_map(|(_, _, starts_at, ends_at)| [*starts_at, *ends_at]).collect();
        times.push(Time::ZERO);
        times.sort_unstable();
        times.dedup();
        let mut found: Vec<(Time, Bottleneck)> = Vec::new();
        for at in times {
            let mut place = Bottleneck::Wireless;
            for link in &before {
                let forward = &link.forward;
                if forward.trace.is_some() {
                    return None;
                }
                let sends = parts.iter().filter(|(other, _, starts_at, ends_at)| {
                    crosses(other, link) && (*starts_at..*ends_at).contains(&at)
                });
                let offered: u64 = sends.map(|(_, bps, _, _)| *bps).sum();
                if forward.rate.is_some_and(|rate| offered > rate.as_bps()) {
                    place = Bottleneck::Backhaul;
                }
            }
            if found.last().is_none_or(|(_, last)| *last != place) {
                found.push((at, place));
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Change;
    use super::*;
    use freshline_core::unit::Span;

    const MOVES: &str = include_str!("../../../../scenarios/wlan/bottleneck-moves.toml");

    fn bottlenecks(set: &[&str]) -> Option<Vec<(u64, Bottleneck)>> {
        let changes: Vec<_> = set.iter().map(|text| Change::parse(text).unwrap()).collect();
        let scenario = Scenario::parse_with(MOVES, &changes).unwrap();
        let found = scenario.bottlenecks(&scenario.flows[0])?;
        let millis = |at: Time| at.since(Time::ZERO).as_nanos() / 1_000_000;
        Some(found.into_iter().map(|(at, place)| (millis(at), place)).collect())
    }

    #[test]
    fn the_backhaul_is_one_while_it_is_offered_more_than_it_carries() {
        use Bottleneck::{Backhaul, Wireless};
        let found = bottlenecks(&["duration=\"3s\""]).unwrap();
        assert_eq!(found[..3], [(0, Wireless), (1500, Backhaul), (2500, Wireless)]);
        let slow = r#"flow.video.downlink.law={ law = "fixed", rate = "180mbit" }"#;
        assert_eq!(bottlenecks(&[slow]).unwrap(), [(0, Wireless)]);
        let two = bottlenecks(&[slow, "flow.video.count=2"]).unwrap();
        // 360 and 611 of 975 Mbit/s.
        assert_eq!(two, [(0, Wireless)]);
        assert_eq!(bottlenecks(&[slow, "flow.video.count=3"]).unwrap()[1], (1500, Backhaul));
        assert_eq!(bottlenecks(&["flow.beside-2.cross_traffic.pattern=\"poisson\""]), None);
    }

    #[test]
    fn nothing_is_said_of_what_begins_at_a_drawn_time() {
        let mut scenario = Scenario::parse(MOVES).unwrap();
        scenario.flows[1].start_spread = Span::from_millis(1);
        assert_eq!(scenario.bottlenecks(&scenario.flows[0]), None);
    }
}
