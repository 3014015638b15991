//! The agenda of wake-ups: a tournament tree with one leaf per component.
//!
//! Every element of the lab has `poll_timeout`, so one entry per component describes all pending
//! events. An entry is overwritten when its component changes its timeout. There are no outdated
//! events to skip, and no allocations once all components are known.
//!
//! ```text
//!            1                 a node holds the earlier of the two below it,
//!        ┌───┴───┐             node 1 the earliest of all
//!        2       3
//!      ┌─┴─┐   ┌─┴─┐
//!      4   5   6   7           one leaf per component
//! ```
//!
//! A change propagates from its leaf towards the root until a node stays the same: one comparison
//! per level, without a branch on its result. A heap has half as many levels with four comparisons
//! each, and has to track the position of each component.
//!
//! Ties are broken by the component's number. Components are numbered by priority first, so that
//! the order is that of (time, priority, id), and the same on all platforms.

use freshline_core::unit::Time;

/// The pending wake-ups of a fixed set of components.
#[derive(Debug, Clone)]
pub struct Agenda {
    /// Inner nodes, from 1 on, then the leaves. Node `n` is above `2n` and `2n + 1`.
    nodes: Vec<Entry>,
}

/// The time in ns in the upper half, and the component in the lower 32 bits. Each lies in a word of
/// its own: reading a word that overlaps two words just written takes a processor as long as the
/// rest of a change.
type Entry = u128;

/// Later than every entry.
const NEVER: Entry = Entry::MAX;

/// The lower bits of `NEVER`.
const NONE: u32 = u32::MAX;

impl Agenda {
    /// An empty agenda for components 0 to `components` − 1, fewer than 2³².
    pub fn new(components: usize) -> Self {
        assert!(components < NONE as usize, "components are numbered in 32 bits");
        Self { nodes: vec![NEVER; 2 * components.max(1)] }
    }

    /// Sets when `component` is to be woken; `None` for never.
    ///
    /// # Panics
    ///
    /// If the component does not exist.
    pub fn set(&mut self, component: usize, at: Option<Time>) {
        let mut node = self.nodes.len() / 2 + component;
        let entry = |at: Time| Entry::from(at.as_nanos()) << 64 | component as Entry;
        let mut entry = at.map_or(NEVER, entry);
        while self.nodes[node] != entry {
            self.nodes[node] = entry;
            if node == 1 {
                break;
            }
            entry = entry.min(self.nodes[node ^ 1]);
            node /= 2;
        }
    }

    /// The component to be woken next, and when.
    pub fn next(&self) -> Option<(Time, usize)> {
        let (at, component) = ((self.nodes[1] >> 64) as u64, self.nodes[1] as u32);
        // Comparing all 128 bits would stall on the two halves that were just written.
        (component != NONE).then(|| (Time::from_nanos(at), component as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_next_is_the_earliest_and_among_equals_the_lowest_number(
            changes in prop::collection::vec((0usize..20, prop::option::of(0u64..50)), 1..300),
        ) {
            let mut agenda = Agenda::new(20);
            let mut wanted = [None; 20];
            for (component, at) in changes {
                let at = at.map(Time::from_nanos);
                agenda.set(component, at);
                wanted[component] = at;
                let pending = wanted.iter().enumerate();
                let expected = pending.filter_map(|(id, at)| at.map(|at| (at, id))).min();
                prop_assert_eq!(agenda.next(), expected);
            }
        }
    }
}
