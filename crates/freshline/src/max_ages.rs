//! Until which age states are handed out.

use freshline_core::session::{BadMaxAge, MaxAge};

/// Patterns with their limits, checked when they are used.
#[derive(Debug, Clone, Default)]
pub(crate) struct MaxAges(Vec<Result<MaxAge, BadMaxAge>>);

impl MaxAges {
    pub(crate) fn add(&mut self, limit: Result<MaxAge, BadMaxAge>) {
        self.0.push(limit);
    }

    pub(crate) fn get(&self) -> Result<Vec<MaxAge>, BadMaxAge> {
        self.0.iter().cloned().collect()
    }
}
