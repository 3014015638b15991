//! The components of a world, and the order in which they are woken.

use freshline_core::unit::Time;

use crate::engine::Agenda;

/// A component of a world, by its number among those of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Component {
    Hop(usize),
    Cell(usize),
    Mesh(usize),
    Flow(usize),
    /// Pending changes.
    Changes,
}

/// The number of components of each kind that has several.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) hops: usize,
    pub(super) cells: usize,
    pub(super) meshes: usize,
    pub(super) flows: usize,
}

/// When each component is to be woken. If several are due at the same time, hops precede cells,
/// cells precede meshes, meshes precede flows, and changes come last.
#[derive(Debug)]
pub(super) struct Timetable {
    agenda: Agenda,
    /// The first number of each kind in the agenda.
    cells: usize,
    meshes: usize,
    flows: usize,
    changes: usize,
}

impl Timetable {
    /// An agenda without wake-ups.
    pub(super) fn new(counts: Counts) -> Self {
        let cells = counts.hops;
        let meshes = cells + counts.cells;
        let flows = meshes + counts.meshes;
        let changes = flows + counts.flows;
        Self { agenda: Agenda::new(changes + 1), cells, meshes, flows, changes }
    }

    /// Sets when a component wants to be woken; `None` if not at all.
    #[inline]
    pub(super) fn set(&mut self, component: Component, at: Option<Time>) {
        let number = match component {
            Component::Hop(hop) => hop,
            Component::Cell(cell) => self.cells + cell,
            Component::Mesh(mesh) => self.meshes + mesh,
            Component::Flow(flow) => self.flows + flow,
            Component::Changes => self.changes,
        };
        self.agenda.set(number, at);
    }

    /// The component to be woken next, and when.
    #[inline]
    pub(super) fn next(&self) -> Option<(Time, Component)> {
        let (at, number) = self.agenda.next()?;
        let component = if number < self.cells {
            Component::Hop(number)
        } else if number < self.meshes {
            Component::Cell(number - self.cells)
        } else if number < self.flows {
            Component::Mesh(number - self.meshes)
        } else if number < self.changes {
            Component::Flow(number - self.flows)
        } else {
            Component::Changes
        };
        Some((at, component))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_components_that_are_due_at_one_time_hops_wake_first_and_changes_last() {
        let counts = Counts { hops: 2, cells: 1, meshes: 1, flows: 2 };
        let order = [
            Component::Hop(0),
            Component::Hop(1),
            Component::Cell(0),
            Component::Mesh(0),
            Component::Flow(0),
            Component::Flow(1),
            Component::Changes,
        ];
        let mut timetable = Timetable::new(counts);
        assert_eq!(timetable.next(), None);
        order.iter().rev().for_each(|component| timetable.set(*component, Some(Time::ZERO)));
        for component in order {
            assert_eq!(timetable.next(), Some((Time::ZERO, component)));
            timetable.set(component, None);
        }
        assert_eq!(timetable.next(), None);
    }
}
