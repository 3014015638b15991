//! The paths that one update takes.

use crate::path::{PathId, PathSet};

/// The route of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The first path.
    pub first: PathId,
    /// The paths of its copies.
    pub copies: PathSet,
}

impl Route {
    /// A single path.
    pub fn by(first: PathId) -> Self {
        Self { first, copies: PathSet::EMPTY }
    }

    /// All of these paths; `None` if `paths` is empty.
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
