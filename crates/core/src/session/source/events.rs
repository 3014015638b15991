//! What a source has to report, until its driver polls it.

use super::types::SourceEvent;
use crate::session::fifo::Fifo;

/// Events that are kept for a driver that does not poll; then the oldest is dropped.
const MOST: usize = 64;

#[derive(Debug)]
pub(super) struct Events(Fifo<SourceEvent>);

impl Events {
    pub(super) fn new() -> Self {
        Self(Fifo::new())
    }

    #[inline]
    pub(super) fn push(&mut self, event: SourceEvent) {
        self.0.push_within(MOST, event);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<SourceEvent> {
        self.0.pop()
    }
}
