//! What a source has to report, until its driver polls it.

use alloc::collections::VecDeque;

use super::types::SourceEvent;

/// Events that are kept for a driver that does not poll; then the oldest is dropped.
const MOST: usize = 64;

#[derive(Debug)]
pub(super) struct Events(VecDeque<SourceEvent>);

impl Events {
    pub(super) fn new() -> Self {
        Self(VecDeque::with_capacity(MOST))
    }

    pub(super) fn push(&mut self, event: SourceEvent) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<SourceEvent> {
        self.0.pop_front()
    }
}
