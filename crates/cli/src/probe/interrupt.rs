//! Ctrl-C for a measurement of many runs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshline_core::unit::Span;
use freshline_net::stop::Stop;

/// Ends the current run and all following runs.
#[derive(Clone, Default)]
pub(super) struct Interrupt {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    interrupted: Condvar,
}

#[derive(Default)]
struct State {
    interrupted: bool,
    run: Stop,
}

impl Interrupt {
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn interrupt(&self) {
        let mut state = self.state();
        state.interrupted = true;
        state.run.stop();
        self.shared.interrupted.notify_all();
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.state().interrupted
    }

    /// The stop of the next run; `None` if there is no further run.
    pub(super) fn next_run(&self) -> Option<Stop> {
        let mut state = self.state();
        state.run = Stop::new();
        (!state.interrupted).then(|| state.run.clone())
    }

    /// Sleeps for `span`, or until it is interrupted.
    pub(super) fn sleep(&self, span: Span) {
        let condition = |state: &mut State| !state.interrupted;
        let _ = self.shared.interrupted.wait_timeout_while(
            self.state(),
            Duration::from(span),
            condition,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_the_run_under_way_and_allows_no_other() {
        let interrupt = Interrupt::default();
        let run = interrupt.next_run().unwrap();
        interrupt.sleep(Span::from_nanos(1));
        interrupt.interrupt();
        assert!(run.is_stopped() && interrupt.is_interrupted());
        assert!(interrupt.next_run().is_none());
        interrupt.sleep(Span::MAX);
    }
}
