//! What a sender reports of its code points (DSCP): with which ones its packets leave, and whether the
//! path keeps them.

use freshline_core::dscp::Dscp;
use freshline_core::session::{MarkCheck, MarkVerdict, PathMarks};
use serde::Serialize;

/// The code points on one path, numbers from 0 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MarkReport {
    /// With which one updates or packets leave.
    pub dscp: Dscp,
    /// How they arrive, as their receiver says.
    pub forward: DirectionMarks,
    /// How its acks or reports arrive here.
    pub back: DirectionMarks,
}

/// The code points in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DirectionMarks {
    /// With which one the last one left; none if the receiver does not say.
    #[serde(skip)]
    pub sent_as: Option<Dscp>,
    /// The last one that arrived; none if the receiver does not say.
    pub arrives_as: Option<Dscp>,
    /// Whether the last ones arrived as they were sent; none if that is unknown.
    pub is_kept: Option<bool>,
    /// Packets that arrived as they were sent.
    pub kept: u64,
    /// Packets that arrived with another one.
    pub changed: u64,
}

impl MarkReport {
    /// What is known of a path on which packets leave with `dscp`.
    pub fn of(dscp: Dscp, marks: &PathMarks) -> Self {
        Self {
            dscp,
            forward: DirectionMarks::of(&marks.forward),
            back: DirectionMarks::of(&marks.back),
        }
    }
}

impl DirectionMarks {
    fn of(check: &MarkCheck) -> Self {
        Self {
            sent_as: check.sent(),
            arrives_as: check.seen(),
            is_kept: match check.verdict() {
                MarkVerdict::Unknown => None,
                MarkVerdict::Kept => Some(true),
                MarkVerdict::Changed(_) => Some(false),
            },
            kept: check.kept(),
            changed: check.changed(),
        }
    }
}
