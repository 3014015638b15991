//! The sum of several flows' goodputs, which is never above the rate of a link that they share.

use freshline_core::unit::{Span, Time};

use crate::world::Period;

/// The total goodput of flows, in bit/s, given each one's goodput in bit/s over its own measured
/// time: their bits over the time in which at least one of them was measured. A sum of the rates
/// would count flows that follow one another as if they ran at the same time.
pub(super) fn goodput_sum(mut flows: Vec<(f64, Period)>) -> f64 {
    flows.sort_by_key(|(_, period)| *period);
    let mut union = Span::ZERO;
    let mut covered = Time::ZERO;
    for &(_, Period { from, until }) in &flows {
        union += until.max(covered).since(from.max(covered));
        covered = covered.max(until);
    }
    let union = union.as_secs_f64();
    // Each flow's fraction of that time: exactly 1 for flows that were measured all the time.
    flows
        .iter()
        .map(|(bps, Period { from, until })| bps * (until.since(*from).as_secs_f64() / union))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(from: u64, until: u64) -> Period {
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        Period { from: at(from), until: at(until) }
    }

    #[test]
    fn flows_one_after_the_other_do_not_add_up_to_more_than_their_link_carries() {
        let link = 10e6;
        let in_turn = vec![(link, period(7, 10)), (link, period(5, 7)), (link, period(10, 20))];
        assert_eq!(goodput_sum(in_turn), link);
        // While one flow is measured all the time, another one that was measured for a tenth of it
        // counts with a tenth.
        let within = vec![(0.9 * link, period(5, 15)), (link, period(6, 7))];
        assert!((goodput_sum(within) - link).abs() < 1e-6);
        // Time in which no flow is measured does not count.
        assert_eq!(goodput_sum(vec![(link, period(0, 1)), (link, period(9, 10))]), link);
        assert_eq!(goodput_sum(vec![(1e6, period(2, 4)), (2e6, period(2, 4))]), 3e6);
        assert_eq!(goodput_sum(Vec::new()), 0.0);
    }
}
