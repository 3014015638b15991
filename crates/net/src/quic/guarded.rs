//! TLS sessions that refuse peers with a `min_ack_delay` above [`MAX_MIN_ACK_DELAY`].
//!
//! We ask peers for few acknowledgements (`config::few_acks`; draft-ietf-quic-ack-frequency). In
//! noq-proto 1.4.0 the delay for which we ask is clamped between the peer's `min_ack_delay` and the
//! greater one of RTT and 25 ms, and a clamp with its bounds the wrong way round panics. A peer may
//! announce up to 16 s. So the parameter is checked where noq-proto reads it, in the TLS session.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use noq_proto::coding::Decodable;
use noq_proto::crypto::{
    ClientConfig, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig,
    Session, UnsupportedVersion,
};
use noq_proto::transport_parameters::TransportParameters;
use noq_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode, VarInt};

/// The largest `min_ack_delay` of a peer that is accepted, and the delay for which we ask.
pub(super) const MAX_MIN_ACK_DELAY: Duration = Duration::from_millis(25);

/// The ID of the transport parameter `min_ack_delay`, of draft 07 of the extension. Its value is in
/// µs.
const MIN_ACK_DELAY: u64 = 0xff04_de1b;

/// A TLS configuration whose sessions are guarded.
pub(super) struct Guarded<T>(pub(super) Arc<T>);

impl<T: ServerConfig> ServerConfig for Guarded<T> {
    fn initial_keys(&self, version: u32, id: ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.0.initial_keys(version, id)
    }

    fn retry_tag(&self, version: u32, id: ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, id, packet)
    }

    fn start_session(&self, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        Box::new(GuardedSession(self.0.start_session(version, params)))
    }
}

impl<T: ClientConfig> ClientConfig for Guarded<T> {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let session = self.0.start_session(version, server_name, params)?;
        Ok(Box::new(GuardedSession(session)))
    }
}

struct GuardedSession(Box<dyn Session>);

impl Session for GuardedSession {
    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let params = self.0.transport_parameters()?;
        if let Some(params) = &params {
            check(params)?;
        }
        Ok(params)
    }

    fn initial_keys(&self, id: ConnectionId, side: Side) -> Keys {
        self.0.initial_keys(id, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.0.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.0.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.0.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.0.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        self.0.read_handshake(bytes)
    }

    fn write_handshake(&mut self, bytes: &mut Vec<u8>) -> Option<Keys> {
        self.0.write_handshake(bytes)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.0.next_1rtt_keys()
    }

    fn is_valid_retry(&self, id: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.0.is_valid_retry(id, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.0.export_keying_material(output, label, context)
    }
}

/// noq-proto does not expose the parameter, but writes it.
fn check(params: &TransportParameters) -> Result<(), TransportError> {
    let mut encoded = Vec::new();
    params.write(&mut encoded);
    let delay = min_ack_delay(&encoded).map(Duration::from_micros);
    if delay.is_some_and(|delay| delay > MAX_MIN_ACK_DELAY) {
        return Err(TransportError::new(
            TransportErrorCode::TRANSPORT_PARAMETER_ERROR,
            format!("min_ack_delay is above {MAX_MIN_ACK_DELAY:?}"),
        ));
    }
    Ok(())
}

/// The parameter's value in encoded transport parameters (RFC 9000 §18): ID, length and value of
/// each.
fn min_ack_delay(mut encoded: &[u8]) -> Option<u64> {
    loop {
        let (id, len) = (varint(&mut encoded)?, varint(&mut encoded)?);
        let mut value = encoded.split_off(..usize::try_from(len).ok()?)?;
        if id == MIN_ACK_DELAY {
            return varint(&mut value);
        }
    }
}

/// Takes an integer of variable length (RFC 9000 §16).
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    VarInt::decode(bytes).ok().map(VarInt::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters of a server with this delay in µs, as a peer would send them.
    fn params(min_ack_delay: u32) -> TransportParameters {
        let mut encoded = vec![0x0b, 2, 0x7f, 0xff]; // max_ack_delay: 16383 ms
        encoded.extend([0xc0, 0, 0, 0, 0xff, 0x04, 0xde, 0x1b, 4]);
        encoded.extend((min_ack_delay | 0x8000_0000).to_be_bytes());
        TransportParameters::read(Side::Client, &mut &encoded[..]).expect("well-formed parameters")
    }

    #[test]
    fn a_min_ack_delay_above_the_bound_is_refused() {
        for (micros, is_fine) in
            [(0, true), (1000, true), (25_000, true), (25_001, false), (16_383_000, false)]
        {
            assert_eq!(check(&params(micros)).is_ok(), is_fine, "{micros} µs");
        }
    }

    #[test]
    fn integers_of_all_lengths_are_read() {
        // The examples of RFC 9000, appendix A.1.
        for (mut bytes, value) in [
            (&[0x25][..], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
        ] {
            assert_eq!((varint(&mut bytes), bytes), (Some(value), &[][..]));
        }
        assert_eq!(varint(&mut &[0x7b][..]), None);
    }
}
