//! Detects another route: the delay rises from one update to the next, and stays high.
//!
//! ```text
//!   delay  ┌──────────  lasts beyond a common pause, without losses: part of the path
//!     ─────┘
//!          ┌╲           falls: a queue that has drained
//!     ─────┘ ╲──
//! ```
//!
//! The source's own queue cannot cause this: it drains when all sources pause (`pauses`). The delay
//! counts as part of the path after 12 updates and one pause plus 2 round trips.

use crate::source::Ack;
use crate::unit::{Span, Time};

/// The minimum growth of the queueing delay, as a fraction of the minimum round trip.
const PART: f64 = 0.02;

/// It persists for this number of updates,
const UPDATES: u32 = 12;

/// and this number of round trips beyond a pause.
const ROUND_TRIPS: f64 = 2.0;

/// A growth by at least this fraction of the jump restarts it.
const AGAIN: f64 = 0.5;

/// The queueing delays of an update and its ack, s.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Waited {
    /// The update.
    pub(super) ahead: f64,
    /// The sum of both.
    pub(super) both: f64,
}

/// Properties of the path, s.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) service: f64,
    pub(super) min_rtt: f64,
    pub(super) srtt: f64,
    /// The time between two pauses.
    pub(super) period: f64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Jumps {
    /// The newest acknowledged update: its departure, and its queueing delay.
    last: Option<(Time, Waited)>,
    jump: Option<Jump>,
}

#[derive(Debug, Clone)]
struct Jump {
    since: Time,
    updates: u32,
    /// The minimum since then.
    least: Waited,
    before: Waited,
}

impl Jumps {
    /// Takes in a fresh ack. Returns by how much the path has become longer, once that is certain.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        ack: &Ack,
        wait: Waited,
        known: Known,
        has_losses: bool,
    ) -> Option<Waited> {
        let (sent_at, last) = self.last.replace((ack.sent_at, wait))?;
        let apart = ack.sent_at.checked_since(sent_at)?;
        let grown = wait.both - last.both;
        let little = known.service.max(PART * known.min_rtt);
        let is_sudden = apart > Span::ZERO && grown > apart.as_secs_f64().max(little);
        let Some(jump) = &mut self.jump else {
            if is_sudden {
                self.jump = Some(Jump { since: now, updates: 1, least: wait, before: last });
            }
            return None;
        };
        let Jump { before, least, .. } = *jump;
        if is_sudden && grown > AGAIN * (least.both - before.both) {
            // The other direction has changed, too.
            (jump.since, jump.updates, jump.least) = (now, 1, wait);
            return None;
        }
        if has_losses || wait.both - before.both < little {
            self.jump = None;
            return None;
        }
        jump.updates += 1;
        jump.least.ahead = least.ahead.min(wait.ahead);
        jump.least.both = least.both.min(wait.both);
        let lasted = now.since(jump.since).as_secs_f64();
        if jump.updates < UPDATES || lasted < known.period + ROUND_TRIPS * known.srtt {
            return None;
        }
        let Jump { least, .. } = self.jump.take()?;
        let ahead = (least.ahead - before.ahead).max(0.0);
        Some(Waited { ahead, both: (least.both - before.both).max(ahead) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const KNOWN: Known = Known { service: 1e-3, min_rtt: 0.04, srtt: 0.06, period: 0.3 };

    /// By how much the path becomes longer, in ms, with an update every 10 ms of these queueing
    /// delays.
    fn seen(waits: impl Iterator<Item = f64>, loses: bool) -> Vec<f64> {
        let mut jumps = Jumps::default();
        let longer = |(seq, wait): (u64, f64)| {
            let sent_at = Time::ZERO + Span::from_millis(10 * seq);
            let ack = Ack::of(seq, sent_at, sent_at);
            let wait = Waited { ahead: wait / 1e3, both: wait / 1e3 };
            jumps.on_ack(sent_at + Span::from_millis(50), &ack, wait, KNOWN, loses)
        };
        (0..).zip(waits).filter_map(longer).map(|longer| 1e3 * longer.both).collect()
    }

    #[test]
    fn a_wait_that_comes_at_once_and_lasts_is_another_route() {
        let longer = seen((0..80).map(|n| if n < 20 { 0.0 } else { 40.0 }), false);
        assert!(matches!(longer[..], [by] if (by - 40.0).abs() < 1e-9), "{longer:?}");
    }

    #[test]
    fn a_queue_that_grows_or_drains_is_none() {
        assert!(seen((0..80).map(|n| f64::from(n) * 2.0), false).is_empty(), "it grows");
        assert!(seen((0..160).map(|n| f64::from(40 - n % 40)), false).is_empty(), "it drains");
    }

    #[test]
    fn where_updates_are_lost_it_is_a_full_queue() {
        assert!(seen((0..80).map(|n| if n < 20 { 0.0 } else { 40.0 }), true).is_empty());
    }

    #[test]
    fn both_ways_may_change_one_after_the_other() {
        let wait = |n| {
            if n < 20 {
                0.0
            } else if n < 24 {
                35.0
            } else {
                70.0
            }
        };
        let longer = seen((0..90).map(wait), false);
        assert!(matches!(longer[..], [by] if (by - 70.0).abs() < 1e-9), "{longer:?}");
    }
}
