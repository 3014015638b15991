//! A datagram as the transport hands it to an endpoint.

use crate::dscp::Dscp;
use crate::wire::rider;

/// A datagram that has come. Bytes alone are one whose code point is unknown.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// What the transport carried.
    pub bytes: &'a [u8],
    /// Its code point, if the transport reports it.
    pub dscp: Option<Dscp>,
}

impl<'a> Datagram<'a> {
    /// With the code point that the transport reported.
    pub fn marked(bytes: &'a [u8], dscp: Option<Dscp>) -> Self {
        Self { bytes, dscp }
    }

    /// The ack of the other direction that it carries behind an update; it goes to the
    /// [`Source`](super::Source), the whole datagram to the receiver.
    pub fn rider(self) -> Option<Self> {
        rider(self.bytes).map(|bytes| Self { bytes, ..self })
    }
}

impl<'a, B: AsRef<[u8]> + ?Sized> From<&'a B> for Datagram<'a> {
    fn from(bytes: &'a B) -> Self {
        Self { bytes: bytes.as_ref(), dscp: None }
    }
}
