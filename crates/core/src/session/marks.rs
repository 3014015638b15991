//! Whether a path preserves the code points (DSCP) of packets.
//!
//! The receiver of an update or of a downlink's packet reports the code point on arrival, and the
//! code point of its answer ([`wire::Marks`](crate::wire::Marks)). So the sender can check both
//! directions. A network may change code points at its border: many clear them (RFC 7657 section
//! 5.1).

use crate::dscp::Dscp;

/// The number of consecutive packets with another code point after which the mark counts as
/// changed: fewer may have taken another route.
const CHANGED: u32 = 3;

/// The state of code points in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MarkCheck {
    kept: u64,
    changed: u64,
    /// The number of changed packets since the last unchanged one.
    in_a_row: u32,
    seen: Option<Dscp>,
    sent: Option<Dscp>,
}

/// Whether code points arrive as they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkVerdict {
    /// No packet was reported, or too few changed ones.
    Unknown,
    /// The last reported packet arrived unchanged, or too few were changed since.
    Kept,
    /// The last packets arrived with another code point: this is the newest.
    Changed(Dscp),
}

impl MarkCheck {
    /// A packet sent with the code point `sent` arrived with `seen`.
    pub fn record(&mut self, sent: Dscp, seen: Dscp) {
        (self.sent, self.seen) = (Some(sent), Some(seen));
        if sent == seen {
            self.kept += 1;
            self.in_a_row = 0;
        } else {
            self.changed += 1;
            self.in_a_row = self.in_a_row.saturating_add(1);
        }
    }

    /// Packets that arrived unchanged.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Packets that arrived with another code point.
    pub fn changed(&self) -> u64 {
        self.changed
    }

    /// The code point on arrival of the last reported packet.
    pub fn seen(&self) -> Option<Dscp> {
        self.seen
    }

    /// The code point with which that packet was sent.
    pub fn sent(&self) -> Option<Dscp> {
        self.sent
    }

    /// Whether code points arrive as they were sent.
    pub fn verdict(&self) -> MarkVerdict {
        match self.seen {
            Some(seen) if self.in_a_row >= CHANGED => MarkVerdict::Changed(seen),
            Some(_) if self.kept > 0 => MarkVerdict::Kept,
            _ => MarkVerdict::Unknown,
        }
    }
}

/// Both directions of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathMarks {
    /// Of updates, or of a downlink's packets.
    pub forward: MarkCheck,
    /// Of acks, or of reports.
    pub reverse: MarkCheck,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_as_changed_after_three_in_a_row_and_as_kept_after_one() {
        let [ef, cs0] = [46, 0].map(|number| Dscp::new(number).unwrap());
        let mut check = MarkCheck::default();
        assert_eq!((check.verdict(), check.seen()), (MarkVerdict::Unknown, None));
        for verdict in [MarkVerdict::Unknown, MarkVerdict::Unknown, MarkVerdict::Changed(cs0)] {
            check.record(ef, cs0);
            assert_eq!(check.verdict(), verdict);
        }
        check.record(ef, ef);
        assert_eq!(check.verdict(), MarkVerdict::Kept);
        check.record(ef, cs0);
        check.record(ef, cs0);
        assert_eq!(check.verdict(), MarkVerdict::Kept);
        check.record(cs0, ef);
        assert_eq!(check.verdict(), MarkVerdict::Changed(ef), "a path may also set one");
        assert_eq!((check.kept(), check.changed()), (1, 6));
    }
}
