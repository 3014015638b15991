//! Outgoing UDP datagrams, one at a time.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Instant;

use freshline_core::dscp::Dscp;
use noq_proto::Connection;

use super::outbox;

/// An outgoing UDP datagram; its bytes are in the buffer given to `poll_transmit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The destination.
    pub to: SocketAddr,
    /// The local address to send it from, if the socket has several (`IP_PKTINFO`): the destination
    /// of the peer's packets. `None` leaves the choice to the system.
    pub local_ip: Option<IpAddr>,
    /// The code point of the datagram in it. Packets without a datagram, such as handshake packets
    /// and pure acknowledgements, are not marked.
    pub dscp: Dscp,
}

impl From<&noq_proto::Transmit> for Transmit {
    fn from(transmit: &noq_proto::Transmit) -> Self {
        Self { to: transmit.destination, local_ip: transmit.src_ip, dscp: Dscp::DEFAULT }
    }
}

/// UDP datagrams already written, which leave before any new one.
pub(super) type Written = VecDeque<(Transmit, Vec<u8>)>;

/// Writes a connection's next UDP datagram into the empty `buf`. `mark` is the code point of the
/// pending datagram.
///
/// An open connection writes one at a time. A closing one announces it at each level of encryption
/// that the handshake has reached, and must be allowed to write them all at once: given room for
/// one, noq-proto 1.4.0 begins with the first level on every call and never ends. The second and
/// third are added to `written`.
pub(super) fn write_next(
    connection: &mut Connection,
    now: Instant,
    mark: Dscp,
    buf: &mut Vec<u8>,
    written: &mut Written,
) -> Option<Transmit> {
    const LEVELS: NonZeroUsize = NonZeroUsize::new(3).unwrap();
    let most = if connection.is_closed() { LEVELS } else { NonZeroUsize::MIN };
    let has_queued = outbox::is_waiting(connection);
    let batch = connection.poll_transmit(now, most, buf)?;
    let mut transmit = Transmit::from(&batch);
    let carries = has_queued && !outbox::is_waiting(connection);
    if carries && !begins_with_handshake(buf) {
        transmit.dscp = mark;
    }
    if let Some(size) = batch.segment_size {
        let rest = buf.chunks(size).skip(1);
        written.extend(rest.map(|bytes| (transmit, bytes.to_vec())));
        buf.truncate(size);
    }
    Some(transmit)
}

/// Whether a UDP datagram begins with a packet of the handshake, which has a long header (RFC 9000
/// section 17.2); any further packets in it share its fate.
fn begins_with_handshake(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0x80 != 0)
}
