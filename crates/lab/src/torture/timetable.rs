//! The phases of a trial, and the requirements in each.
//!
//! ```text
//!  0 ──── faults ──── healed ─ wait ─ served ─── settled ──── away ── back ─ wait ─ found ── end
//!                                     every source is served  monitor is gone       served again
//!                                                age normal
//! ```

use freshline_core::unit::{Span, Time};

use super::plan::{Damaged, Plan};

/// The maximum pause that a healthy source makes on its own: the maximum wait between openings, a
/// quarter of spread included. A probe's timeout and the maximum period of the laws are shorter:
/// faults end before losses could lower the floor of `tenth` further.
pub(super) const MAX_PAUSE: Span = Span::from_millis(2_500);

/// A return session follows its source to another address after twice its minimum patience, 1 s.
const FOLLOWS: Span = Span::from_secs(2);

#[derive(Debug, Clone, Copy)]
pub(super) struct Timetable {
    /// All faults are over.
    pub(super) healed: Time,
    /// Every source has been served again.
    pub(super) served: Time,
    /// The clocks' offset has been estimated on healthy paths.
    pub(super) settled: Time,
    /// The monitor dies once more, on healthy paths.
    pub(super) away: Time,
    /// Another monitor starts.
    pub(super) back: Time,
    /// Every source has found it.
    pub(super) found: Time,
    /// The additional time for the return direction, once a source is served: its sessions are
    /// opened after those of sources, with the same waits.
    pub(super) returns: Span,
    /// The run is over.
    pub(super) end: Time,
}

impl Timetable {
    pub(super) fn of(plan: &Plan) -> Self {
        let delays = plan.sources.iter().flat_map(|source| &source.delays);
        let delay = delays.copied().max().unwrap_or(Span::ZERO);
        // docs/protocol.md, "Silence and backoff".
        let wait = MAX_PAUSE + (delay * 2) * 3;
        let healed = Time::ZERO + plan.healed_at;
        // Datagrams in flight at the time of healing are not part of the healed world. A damaged
        // number that is far too high is detected after 8 stale updates, in either direction.
        let stale = match plan.damaged {
            Damaged::Dropped => Span::ZERO,
            Damaged::Delivered => MAX_PAUSE * 8,
        };
        let mut served = healed + plan.max_jitter() + wait + stale;
        if plan.leaves_orphans() {
            // Orphaned records may fill the monitor until they expire as idle; then the next
            // attempt succeeds.
            served += plan.monitor.idle * 2 + MAX_PAUSE;
        }
        // The source discards the offset measured under faults after 20 s.
        let settled = served + Span::from_secs(22);
        let away = settled + Span::from_secs(4);
        let back = away + plan.absence;
        let found = back + wait;
        let returns = wait + plan.monitor.opens_returns_after + FOLLOWS + stale;
        let demanded = if plan.has_commands() { found + returns } else { found };
        let end = demanded + Span::from_secs(1);
        Self { healed, served, settled, away, back, found, returns, end }
    }
}
