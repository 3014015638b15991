//! A datagram of a downlink as delivered to an endpoint by the transport.

use crate::dscp::Dscp;
use crate::session::Datagram;
use crate::unit::Time;

/// A received datagram. One made from bytes alone arrives at the time of the call, with an unknown
/// code point.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedDatagram<'a> {
    /// The bytes of the datagram.
    pub bytes: &'a [u8],
    /// Its code point, if the transport reports it.
    pub dscp: Option<Dscp>,
    /// When it arrived, on the clock of the endpoint; unset: at the time of the call that hands it
    /// in. A busy driver hands it in later.
    pub received_at: Option<Time>,
}

impl<'a> ReceivedDatagram<'a> {
    /// A datagram that arrived at this time.
    pub fn at(received_at: Time, datagram: impl Into<Datagram<'a>>) -> Self {
        let Datagram { bytes, dscp } = datagram.into();
        Self { bytes, dscp, received_at: Some(received_at) }
    }
}

impl<'a> From<Datagram<'a>> for ReceivedDatagram<'a> {
    fn from(Datagram { bytes, dscp }: Datagram<'a>) -> Self {
        Self { bytes, dscp, received_at: None }
    }
}

impl<'a, B: AsRef<[u8]> + ?Sized> From<&'a B> for ReceivedDatagram<'a> {
    fn from(bytes: &'a B) -> Self {
        Datagram::from(bytes).into()
    }
}
