//! The request for a client's next payload, and the next packet to it.
//!
//! ```text
//!          due                 put                  poll_transmit
//!   Idle ───────► asked ───────────────► Payload ───────────────► Idle
//!                   ├── pause, finish ──► (keep-alive due) KeepAlive, Done ──► Idle
//!                   └── no answer until the keep-alive ──► KeepAlive, Done ──► Idle
//! ```

use alloc::vec::Vec;

/// The next packet to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pending {
    Nothing,
    /// A packet with the payload that was put.
    Payload,
    /// An empty packet.
    KeepAlive,
    /// A close: there is nothing more to send.
    Done,
}

/// The feed of one client: it holds at most one payload.
#[derive(Debug)]
pub(super) struct Feed {
    /// Whether the driver has been asked and has not answered.
    is_asked: bool,
    /// Whether the driver has reported that there is nothing more.
    is_over: bool,
    pending: Pending,
    payload: Vec<u8>,
}

impl Feed {
    pub(super) fn new() -> Self {
        Self { is_asked: false, is_over: false, pending: Pending::Nothing, payload: Vec::new() }
    }

    /// The driver has been asked.
    pub(super) fn on_asked(&mut self) {
        self.is_asked = true;
    }

    /// There may be something to send again.
    pub(super) fn on_news(&mut self) {
        (self.is_asked, self.is_over) = (false, false);
    }

    /// There is nothing to send at present, or nothing any more.
    pub(super) fn on_nothing(&mut self, is_over: bool) {
        (self.is_asked, self.is_over) = (false, is_over);
    }

    /// The next packet has this payload. It replaces a pending keep-alive.
    pub(super) fn put(&mut self, payload: &[u8]) {
        self.payload.clear();
        self.payload.extend_from_slice(payload);
        (self.is_asked, self.is_over, self.pending) = (false, false, Pending::Payload);
    }

    /// A keep-alive, or the close, is due.
    pub(super) fn keep_alive(&mut self) {
        self.is_asked = false;
        self.pending = if self.is_over { Pending::Done } else { Pending::KeepAlive };
    }

    /// Takes the pending packet, which is sent now.
    pub(super) fn take(&mut self) -> Pending {
        core::mem::replace(&mut self.pending, Pending::Nothing)
    }

    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    pub(super) fn pending(&self) -> Pending {
        self.pending
    }

    /// The payload of [`Pending::Payload`].
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }
}
