//! The events of a source, queued until its driver polls them.

use super::types::SourceEvent;
use crate::session::fifo::Fifo;

/// The maximum number of queued events; beyond it, the oldest is dropped.
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
