//! Datagrams on the emulated path, and the pool of their buffers.

use std::net::Ipv6Addr;

use freshline_core::link::Airborne;
use freshline_core::router::{FlowKey, Header, Packet};
use freshline_core::unit::Bytes;
use freshline_core::wire;
use mio::Token;

/// A UDP datagram and the flow that it belongs to.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) flow: Token,
    /// The station of its client, where there is Wi-Fi.
    pub(super) station: u32,
    pub(super) payload: Vec<u8>,
    /// The IP and UDP headers that it would have.
    pub(super) headers: Bytes,
}

impl Packet for Datagram {
    fn size(&self) -> Bytes {
        Bytes::from(self.payload.len()) + self.headers
    }

    /// A flow is known by its number; its addresses are those of the relay.
    fn header(&self) -> Header {
        let source = Ipv6Addr::from_bits(self.flow.0 as u128);
        let flow = FlowKey { source, protocol: FlowKey::UDP, ..FlowKey::default() };
        let is_update = wire::session_of_update(&self.payload).is_some();
        Header { flow, is_update, ..Header::default() }
    }
}

impl Airborne for Datagram {
    fn station(&self) -> u32 {
        self.station
    }
}

/// Buffers of datagrams that have left, for those that come.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Vec<Vec<u8>>,
}

impl Pool {
    /// The size of a pooled buffer: any datagram on common links fits. Larger ones are allocated
    /// for the occasion, so that a small datagram never holds a large buffer.
    const BUFFER: usize = 2048;
    /// How many free buffers are kept: 8 MiB.
    const FREE: usize = 4096;

    /// A buffer with the content of `payload`.
    pub(super) fn copy_of(&mut self, payload: &[u8]) -> Vec<u8> {
        if payload.len() > Self::BUFFER {
            return payload.to_vec();
        }
        let mut buffer = self.free.pop().unwrap_or_else(|| Vec::with_capacity(Self::BUFFER));
        buffer.extend_from_slice(payload);
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == Self::BUFFER && self.free.len() < Self::FREE {
            buffer.clear();
            self.free.push(buffer);
        }
    }
}
