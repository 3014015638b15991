//! Waiting without the interpreter's lock, so that other threads run and Ctrl-C is heeded.

use std::time::Duration;

use freshline::driver::clock::Clock;
use freshline_core::unit::Span;
use pyo3::prelude::*;

/// How long a signal may wait for its handler.
const SLICE: Span = Span::from_millis(100);

/// Calls `next` with times to wait, until it gives something, `timeout` has passed, or `is_over`.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    next: impl Fn(Duration) -> Option<T> + Sync,
    is_over: impl Fn() -> bool,
) -> PyResult<Option<T>> {
    let clock = Clock::new();
    let until = timeout.map(|timeout| clock.now() + timeout.into());
    loop {
        let left = until.map_or(SLICE, |until| until.since(clock.now()).min(SLICE));
        if let Some(item) = py.detach(|| next(left.into())) {
            return Ok(Some(item));
        }
        py.check_signals()?;
        if is_over() || until.is_some_and(|until| clock.now() >= until) {
            return Ok(None);
        }
    }
}
