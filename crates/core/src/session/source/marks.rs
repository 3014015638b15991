//! Code points (DSCP) at a source: which updates are marked, and what acks tell of the paths.

use alloc::vec::Vec;

use crate::dscp::Dscp;
use crate::path::PathId;
use crate::session::marks::PathMarks;
use crate::wire;

/// What is known of code points.
#[derive(Debug)]
pub(super) struct Marks {
    /// By the numbers of the paths.
    paths: Vec<PathMarks>,
    /// The newest update that was an opening, and so not marked.
    last_opening: Option<u64>,
}

impl Marks {
    pub(super) fn new(paths: usize) -> Self {
        Self { paths: alloc::vec![PathMarks::default(); paths], last_opening: None }
    }

    /// Of one path; `None` where there is no such path.
    pub(super) fn of(&self, path: PathId) -> Option<&PathMarks> {
        self.paths.get(usize::from(path.0))
    }

    /// Update `seq` is an opening.
    pub(super) fn on_opening(&mut self, seq: u64) {
        self.last_opening = Some(seq);
    }

    /// Compares the code points of an update, `sent` with this one, and of its ack, which came by a
    /// path with `dscp`, with what was sent.
    pub(super) fn on_ack(&mut self, by: PathId, sent: Dscp, dscp: Option<Dscp>, ack: &wire::Ack) {
        let Some(marks) = self.paths.get_mut(usize::from(by.0)) else { return };
        let is_opening = self.last_opening.is_some_and(|last| ack.seq <= last);
        if let Some(seen) = ack.marks.seen.filter(|_| !is_opening) {
            marks.forward.record(sent, seen);
        }
        if let (Some(sent), Some(seen)) = (ack.marks.sent, dscp) {
            marks.reverse.record(sent, seen);
        }
    }
}
