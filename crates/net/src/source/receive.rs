//! The data that a source receives from the other end of its session.

use std::error::Error;

use freshline_core::dscp::Dscp;
use freshline_core::path::PathId;
use freshline_core::session::{Datagram, Transmit};
use freshline_core::unit::Time;
use freshline_core::wire::SessionId;

use crate::stop::Stop;

/// The receiving end of a source; [`monitor::Incoming`](crate::monitor::Incoming) is one.
pub trait Receive {
    /// Handles a datagram that came by a path from the peer of session `forward`; returns whether
    /// it was for this end.
    fn handle_datagram(
        &mut self,
        now: Time,
        forward: SessionId,
        by: PathId,
        datagram: Datagram<'_>,
    ) -> bool;
    /// A turn of the loop: handles due timers.
    fn turn(&mut self, now: Time);
    /// Writes the next answer to the front of `out`; returns its path, length and code point.
    fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<(PathId, usize, Dscp)>;
    /// An update of the source is at the front of `out` and leaves next, over a transport that
    /// carries datagrams of `max_len` bytes: appends a pending ack, and returns the length of both.
    fn board(&mut self, now: Time, update: &Transmit, max_len: usize, out: &mut Vec<u8>) -> usize;
    /// The source has ended: hands out the data received so far, until `stop` is hurried.
    ///
    /// # Errors
    /// Why some of the data is lost.
    fn finish(self: Box<Self>, stop: &Stop) -> Result<(), Box<dyn Error + Send + Sync>>;
    /// When the next turn is due.
    fn poll_timeout(&self) -> Option<Time>;
}
