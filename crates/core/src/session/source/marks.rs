//! Code points (DSCP) at a source: which updates are marked, and which paths preserve marks, as
//! reported by acks.

use alloc::vec::Vec;

use crate::dscp::Dscp;
use crate::path::PathId;
use crate::session::marks::PathMarks;
use crate::wire;

/// The knowledge of code points.
#[derive(Debug)]
pub(super) struct Marks {
    /// By the numbers of the paths.
    paths: Vec<PathMarks>,
    /// The newest update that was not marked: an opening, or one without a whole state. Acks of
    /// updates up to it are not evaluated, as some of these were not marked either.
    last_unmarked: Option<u64>,
}

impl Marks {
    pub(super) fn new(paths: usize) -> Self {
        Self { paths: alloc::vec![PathMarks::default(); paths], last_unmarked: None }
    }

    /// The marks of one path; `None` if there is no such path.
    pub(super) fn of(&self, path: PathId) -> Option<&PathMarks> {
        self.paths.get(usize::from(path.0))
    }

    /// Update `seq` is sent without a mark.
    pub(super) fn on_unmarked(&mut self, seq: u64) {
        self.last_unmarked = Some(seq);
    }

    /// Compares the code points of an update, sent with `sent`, and of its ack, received on a path
    /// with `dscp`, with the sent ones.
    pub(super) fn on_ack(&mut self, by: PathId, sent: Dscp, dscp: Option<Dscp>, ack: &wire::Ack) {
        let Some(marks) = self.paths.get_mut(usize::from(by.0)) else { return };
        let may_be_unmarked = self.last_unmarked.is_some_and(|last| ack.seq <= last);
        if let Some(seen) = ack.marks.seen.filter(|_| !may_be_unmarked) {
            marks.forward.record(sent, seen);
        }
        if let (Some(sent), Some(seen)) = (ack.marks.sent, dscp) {
            marks.reverse.record(sent, seen);
        }
    }
}
