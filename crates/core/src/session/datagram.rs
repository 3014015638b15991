//! A datagram as delivered to an endpoint by the transport.

use crate::dscp::Dscp;
use crate::wire::rider;

/// A received datagram. One made from bytes alone has an unknown code point.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// The bytes of the datagram.
    pub bytes: &'a [u8],
    /// Its code point, if the transport reports it.
    pub dscp: Option<Dscp>,
}

impl<'a> Datagram<'a> {
    /// With the code point that the transport reported.
    pub fn marked(bytes: &'a [u8], dscp: Option<Dscp>) -> Self {
        Self { bytes, dscp }
    }

    /// The ack of the other direction that it carries after an update. Pass that to the
    /// [`Source`](super::Source), and the whole datagram to the receiver.
    pub fn rider(self) -> Option<Self> {
        rider(self.bytes).map(|bytes| Self { bytes, ..self })
    }
}

impl<'a, B: AsRef<[u8]> + ?Sized> From<&'a B> for Datagram<'a> {
    fn from(bytes: &'a B) -> Self {
        Self { bytes: bytes.as_ref(), dscp: None }
    }
}
