//! When each component wants to be woken: a heap with one place a component.
//!
//! Every element of the lab answers `next_event`, so that one entry a component says all that is
//! to come. An entry is moved when its component changes its mind; there are no outdated events
//! to skip, and nothing is allocated once all components are known.
//!
//! Ties are broken by the component's number. Components are numbered by priority first, so that
//! the order is that of (time, priority, id), and the same everywhere.

use freshline_core::unit::Time;

/// Children of a node. Four: a level less in five than with two, on one or two cache lines.
const ARITY: usize = 4;

/// Where a component is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// The pending wake-ups of a fixed set of components.
#[derive(Debug, Clone)]
pub struct Agenda {
    /// A heap of (when, component).
    heap: Vec<(Time, u32)>,
    /// Where in the heap each component is.
    places: Vec<u32>,
}

impl Agenda {
    /// An empty agenda for components 0 to `components` − 1, fewer than 2³².
    pub fn new(components: usize) -> Self {
        assert!(components < NOWHERE as usize, "components are numbered in 32 bits");
        Self { heap: Vec::with_capacity(components), places: vec![NOWHERE; components] }
    }

    /// Says when `component` wants to be woken; `None` is not at all.
    ///
    /// # Panics
    ///
    /// If there is no such component.
    pub fn set(&mut self, component: usize, at: Option<Time>) {
        let place = self.places[component];
        match (at, place) {
            (Some(at), NOWHERE) => {
                self.heap.push((at, component as u32));
                self.rise(self.heap.len() - 1);
            }
            (Some(at), place) => {
                let place = place as usize;
                let before = std::mem::replace(&mut self.heap[place].0, at);
                if at < before {
                    self.rise(place);
                } else if at > before {
                    self.sink(place);
                }
            }
            (None, NOWHERE) => {}
            (None, place) => self.remove(place as usize),
        }
    }

    /// Who wakes next, and when.
    pub fn next(&self) -> Option<(Time, usize)> {
        self.heap.first().map(|&(at, component)| (at, component as usize))
    }

    fn remove(&mut self, place: usize) {
        let (_, component) = self.heap.swap_remove(place);
        self.places[component as usize] = NOWHERE;
        // What came from the end may belong above or below.
        if let Some(&(_, moved)) = self.heap.get(place) {
            self.rise(place);
            self.sink(self.places[moved as usize] as usize);
        }
    }

    /// Moves the entry at `place` up to where it belongs.
    fn rise(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    /// Moves the entry at `place` down to where it belongs.
    fn sink(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child]) else { break };
            if entry <= self.heap[least] {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (Time, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
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
