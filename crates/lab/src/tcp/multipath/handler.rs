//! What is sent a second time: opportunistic retransmission with penalties, and reinjection.

use freshline_core::path::{Choice, PathId, PathState, SendState};
use freshline_core::unit::Time;

use super::sender::{MultipathSender, Outstanding};
use crate::tcp::segment::Block;

/// A window of at most so many segments makes its path one to help out.
const SMALL_WINDOW: u64 = 4;
/// A round trip so many times as long does, too.
const SLOWER: u64 = 4;

impl MultipathSender {
    /// A subflow's timer has struck: all that it carries is to take another one.
    pub(super) fn reinject(&mut self, subflow: usize) {
        let Self { subflows, outstanding, due_again, .. } = self;
        for data in subflows[subflow].carried() {
            if let Ok(at) = outstanding.binary_search_by_key(&data.start, |sent| sent.data.start)
                && !outstanding[at].is_due_again
            {
                outstanding[at].is_due_again = true;
                *due_again += 1;
            }
        }
    }

    /// Gives the first segment that is due again to a subflow that has not had it.
    pub(super) fn give_again(&mut self, now: Time) -> bool {
        let Some(at) = self.outstanding.iter().position(|sent| sent.is_due_again) else {
            return false;
        };
        let Outstanding { data, paths: had, .. } = self.outstanding[at];
        let others = self.subflows.iter_mut().filter(|it| it.is_usable() && !had.contains(it.id()));
        let others: Vec<PathState> = others.map(|subflow| subflow.state(now)).collect();
        if others.is_empty() {
            if self.subflows.iter().all(|subflow| had.contains(subflow.id())) {
                // All have had it, and each sees to it that it arrives.
                self.outstanding[at].is_due_again = false;
                self.due_again -= 1;
            }
            return false;
        }
        let flow = self.flow();
        let choice = self.scheduler.choose(now, &flow, &others);
        let (Choice::Send(id) | Choice::Copies(id, _)) = choice else { return false };
        self.outstanding[at].is_due_again = false;
        self.due_again -= 1;
        self.give_copy(at, id, data);
        self.stats.reinjections += 1;
        true
    }

    /// The window, or the send buffer, is full: gives the segment that all wait for to the path
    /// that could send, and halves the windows of slower ones that have it.
    pub(super) fn give_what_blocks(
        &mut self,
        now: Time,
        flow: &SendState,
        paths: &[PathState],
    ) -> bool {
        let Some(Outstanding { data, paths: had, .. }) = self.outstanding.front().copied() else {
            return false;
        };
        if self.subflows.len() < 2 {
            return false;
        }
        let (Choice::Send(id) | Choice::Copies(id, _)) = self.scheduler.choose(now, flow, paths)
        else {
            return false;
        };
        self.penalise(now, id, |path| had.contains(path));
        if had.contains(id) {
            return false;
        }
        let waiting = self.subflow_mut(id).sender().srtt().unwrap_or_default();
        let mut helps = false;
        for holder in self.subflows.iter().filter(|holder| had.contains(holder.id())) {
            helps = holder.window().get() <= SMALL_WINDOW
                || holder.sender().srtt().is_some_and(|srtt| waiting * SLOWER < srtt);
            if holder.window().get() <= SMALL_WINDOW || !helps {
                break;
            }
        }
        if helps {
            self.give_copy(0, id, data);
            self.stats.opportunistic += 1;
        }
        helps
    }

    fn give_copy(&mut self, at: usize, id: PathId, data: Block) {
        self.subflow_mut(id).carry(data);
        self.outstanding[at].paths = self.outstanding[at].paths.with(id);
    }

    /// Halves the windows of those that `has` names and that are slower than the waiting one, at most
    /// once in its round trip.
    fn penalise(&mut self, now: Time, waiting: PathId, has: impl Fn(PathId) -> bool) {
        let subflow = self.subflow_mut(waiting);
        let Some(srtt) = subflow.sender().srtt() else { return };
        if subflow.penalised_at.is_some_and(|at| now.since(at) < srtt) {
            return;
        }
        let mut penalties = 0;
        for other in self.subflows.iter_mut().filter(|it| it.id() != waiting && has(it.id())) {
            let is_slower = other.sender().srtt().is_some_and(|slower| srtt < slower);
            if is_slower && !other.sender().is_recovering() {
                other.sender_mut().penalise();
                penalties += 1;
            }
        }
        if penalties > 0 {
            self.subflow_mut(waiting).penalised_at = Some(now);
            self.stats.penalties += penalties;
        }
    }
}
