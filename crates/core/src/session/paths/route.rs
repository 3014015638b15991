//! The paths that one update takes.

use crate::path::{PathId, PathSet};

/// Where an update goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// By this path.
    pub first: PathId,
    /// And as a copy by these.
    pub copies: PathSet,
}

impl Route {
    /// By one path alone.
    pub fn by(first: PathId) -> Self {
        Self { first, copies: PathSet::EMPTY }
    }

    /// By each of these; `None` if there are none.
    pub fn over(mut paths: impl Iterator<Item = PathId>) -> Option<Self> {
        let first = paths.next()?;
        Some(Self { first, copies: paths.fold(PathSet::EMPTY, PathSet::with) })
    }

    /// All paths that it takes, the first one first.
    pub fn all(self) -> impl Iterator<Item = PathId> {
        let copies = self.copies.iter().filter(move |path| *path != self.first);
        core::iter::once(self.first).chain(copies)
    }
}
