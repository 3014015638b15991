//! The buffer of a datagram before it is sent in a packet: one datagram, the newest.
//!
//! A QUIC connection keeps a queue of datagrams to send, bounded in bytes. A queue is the wrong
//! structure for updates: behind a full socket, each update would wait for older, obsolete ones. A
//! datagram cannot be taken back from the queue, but the queue drops its oldest datagrams to make
//! room for a new one. So the buffer is made just large enough for the largest datagram, and if a
//! datagram is already pending, a blank of that size is queued before the new datagram: the blank
//! displaces the pending datagram, and the new datagram displaces the blank.
//!
//! A displaced part of a state counts as lost at its source when later parts are acknowledged, and
//! is sent again. So parts have no queue of their own: a datagram is pending only while the socket
//! is full, for example if the rate is above that of the device, and a queue would only add its
//! queueing delay to the newest parts.

use bytes::Bytes;
use noq_proto::{Connection, Datagram, Datagrams};

use super::MAX_DATAGRAM;

/// Size of the connection's send buffer, in bytes.
pub(super) const BUFFER: usize = MAX_DATAGRAM;

/// The free space that the connection reports while no datagram is pending: it reserves the
/// overhead of the next datagram. An empty datagram would not be detected as pending; none is sent.
const EMPTY: usize = BUFFER - size_of::<Datagram>();

static BLANK: [u8; BUFFER] = [0; BUFFER];

/// The result of passing a datagram to `send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum SendOutcome {
    /// It leaves with the next `poll_transmit`.
    Queued,
    /// It leaves with the next `poll_transmit`, replacing an older one, which is never sent.
    Replaced,
    /// There is no established connection; the datagram is dropped.
    NotConnected,
    /// It is larger than `max` bytes and is dropped.
    TooLarge {
        /// Largest datagram that can be sent ([`MAX_DATAGRAM`]).
        max: usize,
    },
}

/// Whether a datagram is pending on this connection.
pub(super) fn is_waiting(connection: &mut Connection) -> bool {
    is_full(&mut connection.datagrams())
}

fn is_full(queue: &mut Datagrams<'_>) -> bool {
    queue.send_buffer_space() < EMPTY
}

/// Makes `datagram` the pending one of this established connection.
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
    // The connection refuses only a datagram that exceeds the peer's limit, which was checked on
    // connecting.
    if sent { outcome } else { SendOutcome::NotConnected }
}
