//! Independent streams: TCP connections, one per path, between which the application's blocks are divided.
//!
//! ```text
//!   application ─► block ─► scheduler ─┬─► socket ─► sender ─► … ─► receiver ─► delivered
//!                             │        └─► socket ─► sender ─► … ─► receiver ─► delivered
//!                             └─ the socket is full: the block is lost
//! ```
//!
//! Shreedhar, PhD thesis, section 2.7, footnote 5: "In the simulation, the scheduler assigns packets over
//! independent TCP streams." Nothing is common to the streams: no send buffer, window, order or handler.
//!
//! # Where the thesis is silent
//!
//! - **A block is assigned when the application writes it**, whatever the windows are: each open stream
//!   counts as having room. A block whose stream has a full socket is lost, as ns-3's sockets refuse it.
//!   So ECF, which waits for a faster path only where that has no room, chooses as min_srtt does.
//! - **Copies** are left out, as the streams have no numbers in common.

use freshline_core::path::{Choice, PathState, SendState};
use freshline_core::unit::{Bytes, Span, Time};

use super::MultipathSender;

impl MultipathSender {
    /// Writes a block to the stream that the scheduler chooses; `false` where its socket is full.
    pub(super) fn assign(&mut self, now: Time, block: Bytes) -> bool {
        let open = self.subflows.iter_mut().filter(|subflow| subflow.sender().is_open());
        let states: Vec<PathState> = open
            .map(|subflow| {
                let state = subflow.state(now);
                PathState { cwnd: state.cwnd.max(state.inflight + state.segment), ..state }
            })
            .collect();
        let plenty = Bytes::new(u64::MAX);
        let flow =
            SendState { unsent: block, window_left: plenty, window: plenty, interval: Span::ZERO };
        let (Choice::Send(path) | Choice::Copies(path, _)) =
            self.scheduler.choose(now, &flow, &states)
        else {
            return false;
        };
        let sender = self.subflow_mut(path).sender_mut();
        if sender.writable() < block {
            return false;
        }
        sender.write(block);
        self.written += block.get();
        true
    }
}
