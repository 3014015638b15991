//! Waiting without the interpreter's lock, so that other threads run and Ctrl-C is heeded.

use std::time::Duration;

use pyo3::prelude::*;

/// How long a signal may wait for its handler.
const SLICE: Duration = Duration::from_millis(100);

/// Calls `next` with times to wait that add up to `timeout`, until it gives something or `is_over`.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    next: impl Fn(Duration) -> Option<T> + Sync,
    is_over: impl Fn() -> bool,
) -> PyResult<Option<T>> {
    let mut left = timeout.unwrap_or(Duration::MAX);
    loop {
        let slice = left.min(SLICE);
        if let Some(item) = py.detach(|| next(slice)) {
            return Ok(Some(item));
        }
        py.check_signals()?;
        left = if left == Duration::MAX { left } else { left.saturating_sub(slice) };
        if left.is_zero() || is_over() {
            return Ok(None);
        }
    }
}
