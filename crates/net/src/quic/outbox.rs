//! The place where a datagram waits for its packet: one datagram, the newest.
//!
//! A QUIC connection keeps a queue of datagrams to send, bounded in bytes. A queue is
//! the wrong thing for updates: behind a full socket, each update would wait for older
//! ones that nobody wants any more. The queue gives no way to take a datagram back, but
//! it drops its oldest to make room for a new one, and drops as many as that takes. So
//! the buffer is made just large enough for the largest datagram, and when something
//! waits already, a blank of that size goes in ahead of the new datagram: the blank
//! drives out whatever waits, and the new datagram drives out the blank.
//!
//! A part of a state that is driven out counts as lost at its source once later parts are acknowledged, and
//! is sent again. So parts have no queue of their own: a datagram waits only while the socket is full, as
//! when the rate is above that of the device, and a queue would delay the newest parts by what is in it.

use bytes::Bytes;
use noq_proto::{Connection, Datagram, Datagrams};

use super::MAX_DATAGRAM;

/// Size of the connection's send buffer, in bytes.
pub(super) const BUFFER: usize = MAX_DATAGRAM;

/// What the connection reports as free space while nothing waits: it keeps back the
/// overhead of the next datagram. An empty datagram is not seen waiting; none is sent.
const EMPTY: usize = BUFFER - size_of::<Datagram>();

static BLANK: [u8; BUFFER] = [0; BUFFER];

/// What became of a datagram given to `send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum SendOutcome {
    /// It leaves with the next `poll_transmit`.
    Queued,
    /// It leaves with the next `poll_transmit`, in place of an older one that had not
    /// left yet and never will.
    Replaced,
    /// There is no established connection; the datagram is dropped.
    NotConnected,
    /// It is larger than `max` bytes and is dropped.
    TooLarge {
        /// Largest datagram that can be sent ([`MAX_DATAGRAM`]).
        max: usize,
    },
}

/// Whether a datagram waits on this connection.
pub(super) fn is_waiting(connection: &mut Connection) -> bool {
    is_full(&mut connection.datagrams())
}

fn is_full(queue: &mut Datagrams<'_>) -> bool {
    queue.send_buffer_space() < EMPTY
}

/// Makes `datagram` the one that waits on this established connection.
pub(super) fn put(connection: &mut Connection, datagram: &[u8]) -> SendOutcome {
    if datagram.len() > MAX_DATAGRAM {
        return SendOutcome::TooLarge { max: MAX_DATAGRAM };
    }
    let newest = Bytes::copy_from_slice(datagram);
    let mut queue = connection.datagrams();
    let (sent, outcome) = if is_full(&mut queue) {
        (
            queue.send_many(&[Bytes::from_static(&BLANK), newest], true).is_ok(),
            SendOutcome::Replaced,
        )
    } else {
        (queue.send(newest, true).is_ok(), SendOutcome::Queued)
    };
    // It refuses only a datagram that exceeds the peer's limit, checked on connecting.
    if sent { outcome } else { SendOutcome::NotConnected }
}
