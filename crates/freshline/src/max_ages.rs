//! Until which age states are handed out.

use std::time::Duration;

use freshline_core::session::{BadMaxAge, MaxAge};
use freshline_core::unit::Span;

/// Patterns with their limits, checked when they are used.
#[derive(Debug, Clone, Default)]
pub(crate) struct MaxAges(Vec<Result<MaxAge, BadMaxAge>>);

impl MaxAges {
    pub(crate) fn add(&mut self, pattern: &str, limit: Duration) {
        self.0.push(MaxAge::new(pattern, Span::from(limit)));
    }

    pub(crate) fn get(&self) -> Result<Vec<MaxAge>, BadMaxAge> {
        self.0.iter().cloned().collect()
    }
}
