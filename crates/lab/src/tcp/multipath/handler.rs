//! Retransmission on another subflow: opportunistic retransmission with penalties, and reinjection.

use freshline_core::path::{Choice, PathId, PathState, SendState};
use freshline_core::unit::Time;

use super::sender::{MultipathSender, Outstanding};
use crate::tcp::segment::Block;

/// A path with a window of at most this many segments may take the blocking segment.
const SMALL_WINDOW: u64 = 4;
/// So may a path if the round trip of the blocking one is this many times as long.
const SLOWER: u64 = 4;

impl MultipathSender {
    /// A subflow's timer has expired: all segments that it carries are to take another subflow.
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

    /// Assigns the first segment that is due again to a subflow that has not carried it.
    pub(super) fn give_again(&mut self, now: Time) -> bool {
        let Some(at) = self.outstanding.iter().position(|sent| sent.is_due_again) else {
            return false;
        };
        let Outstanding { data, paths: had, .. } = self.outstanding[at];
        let others = self.subflows.iter_mut().filter(|it| it.is_usable() && !had.contains(it.id()));
        let others: Vec<PathState> = others.map(|subflow| subflow.state(now)).collect();
        if others.is_empty() {
            if self.subflows.iter().all(|subflow| had.contains(subflow.id())) {
                // All subflows have carried it, and each retransmits it until it arrives.
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

    /// The receive window, or the send buffer, is full: assigns the segment that blocks it to the
    /// path that could send, and halves the windows of slower subflows that have it in flight.
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

    /// Halves the windows of the subflows in `has` that are slower than the waiting one, at most
    /// once per round trip of the latter.
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
