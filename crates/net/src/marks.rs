//! A sender's report of its code points (DSCP): those of its packets at departure, and whether the
//! path preserves them.

use freshline_core::dscp::Dscp;
use freshline_core::session::{MarkCheck, MarkVerdict, PathMarks};
use serde::Serialize;

/// The code points on one path, numbers from 0 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MarkReport {
    /// The code point of departing updates or packets.
    pub dscp: Dscp,
    /// How they arrive, as their receiver reports.
    pub forward: DirectionMarks,
    /// How its acks or reports arrive here.
    pub reverse: DirectionMarks,
}

/// The code points in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DirectionMarks {
    /// The code point of the last packet at departure; none if the receiver does not report it.
    #[serde(skip)]
    pub sent_as: Option<Dscp>,
    /// The code point of the last packet on arrival; none if the receiver does not report it.
    pub received_dscp: Option<Dscp>,
    /// Whether the last packet arrived unchanged; none if that is unknown.
    pub is_preserved: Option<bool>,
    /// Packets that arrived with their original code point.
    pub preserved: u64,
    /// Packets that arrived with another code point.
    pub remarked: u64,
}

impl MarkReport {
    /// The report of a path on which packets leave with `dscp`.
    pub fn of(dscp: Dscp, marks: &PathMarks) -> Self {
        Self {
            dscp,
            forward: DirectionMarks::of(&marks.forward),
            reverse: DirectionMarks::of(&marks.reverse),
        }
    }
}

impl MarkReport {
    /// Combines this session and a later one on the same path: packets of both, and the last
    /// arrivals of the later one.
    pub fn and(self, later: Self) -> Self {
        Self {
            dscp: later.dscp,
            forward: self.forward.and(later.forward),
            reverse: self.reverse.and(later.reverse),
        }
    }
}

impl DirectionMarks {
    /// If nothing is known of the later session, the earlier one counts.
    fn and(self, later: Self) -> Self {
        Self {
            sent_as: later.sent_as.or(self.sent_as),
            received_dscp: later.received_dscp.or(self.received_dscp),
            is_preserved: later.is_preserved.or(self.is_preserved),
            preserved: self.preserved + later.preserved,
            remarked: self.remarked + later.remarked,
        }
    }

    fn of(check: &MarkCheck) -> Self {
        Self {
            sent_as: check.sent(),
            received_dscp: check.seen(),
            is_preserved: match check.verdict() {
                MarkVerdict::Unknown => None,
                MarkVerdict::Kept => Some(true),
                MarkVerdict::Changed(_) => Some(false),
            },
            preserved: check.kept(),
            remarked: check.changed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sessions_count_together_and_the_later_tells_how_packets_arrive() {
        let [ef, cs0]: [Dscp; 2] = ["EF", "CS0"].map(|name| name.parse().unwrap());
        let session = |sent, seen, packets| {
            let mut marks = PathMarks::default();
            (0..packets).for_each(|_| marks.forward.record(sent, seen));
            MarkReport::of(sent, &marks)
        };
        let (kept, changed, silent) = (session(ef, ef, 5), session(ef, cs0, 7), session(ef, ef, 0));
        let both = kept.and(changed).forward;
        assert_eq!((both.preserved, both.remarked), (5, 7));
        assert_eq!((both.received_dscp, both.is_preserved), (Some(cs0), Some(false)));
        assert_eq!(kept.and(changed).and(silent), kept.and(changed));
    }
}
