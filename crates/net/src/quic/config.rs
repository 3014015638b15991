//! The settings of either side, and the QUIC settings that they share.

use std::sync::Arc;
use std::time::Duration;

use noq_proto::{
    AckFrequencyConfig, EndpointConfig, TransportConfig, ValidationTokenConfig, VarInt,
};
use rustls::server::danger::ClientCertVerifier;

use super::guarded::{Guarded, MAX_MIN_ACK_DELAY};
use super::unlimited::Unlimited;
use super::verify::{ALPN, Clients, client_verifier, monitor_tls, source_tls};
use super::{Authorities, Identity, Trust, TrustError, outbox};
use crate::handshakes::{Rates, TOKEN_LIFETIME};
use crate::sieve::{Tag, TaggedIds};

/// A connection without a packet from the peer for this long is lost, unless configured otherwise.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The assumed RTT until one is measured. A lost handshake packet is sent again after three of
/// these: at RFC 9002's 333 ms a source on a lossy path would wait a second each time.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// Received datagrams held for [`Client::recv`] or [`Server::recv`], per connection, in
/// bytes; the oldest go first. Room for one batch of receives, after which they are read.
const RECEIVE_BUFFER: usize = 64 * 1024;

/// The number of packets, of one datagram each, that QUIC acknowledges together: 80 kB, far below the
/// bounds of the bytes in flight.
const PACKETS_PER_ACK: u32 = 64;

/// Updates in flight, in bytes: 100 Mbit/s over one second. Beyond it the path is dead.
const UPDATES_IN_FLIGHT: u64 = 16 << 20;

/// Acknowledgements in flight, in bytes: some 15 000 of them. A source that takes them
/// and acknowledges none costs a few megabytes and no more.
const ACKS_IN_FLIGHT: u64 = 1 << 20;

/// The settings with which a source dials a monitor.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    quic: noq_proto::ClientConfig,
    /// How long a handshake may take before the connection counts as lost. 3 s: enough for four
    /// tries, and short enough to report an absent monitor to a user.
    pub connect_timeout: Duration,
    /// How long the monitor may be silent before the connection counts as lost; the monitor's own
    /// limit holds if it is shorter. 30 s.
    pub idle_timeout: Duration,
}

impl ClientConfig {
    /// Verifies the monitor by `trust`, and presents `identity` if requested.
    ///
    /// # Errors
    /// [`TrustError`] if TLS cannot use the certificates.
    pub fn new(trust: &Trust, identity: Option<&Identity>) -> Result<Self, TrustError> {
        let tls = source_tls(trust, identity, ALPN)?;
        Ok(Self {
            quic: noq_proto::ClientConfig::new(Arc::new(Guarded(Arc::new(tls)))),
            connect_timeout: Duration::from_secs(3),
            idle_timeout: IDLE_TIMEOUT,
        })
    }

    pub(super) fn quic(&self) -> noq_proto::ClientConfig {
        let mut quic = self.quic.clone();
        quic.transport_config(transport(self.idle_timeout, UPDATES_IN_FLIGHT, Some(KEEP_ALIVE)));
        quic
    }
}

/// The minimum time between two stateless resets, of any connection: after a restart, a thousand
/// sources per second are notified.
const RESET_INTERVAL: Duration = Duration::from_millis(1);

/// The resources of the monitor that its peers may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of connections with a session, of some 40 kB each. Beyond it, a
    /// connection of a party with fewer displaces one of the party that has most, and others are
    /// refused; see [`Shares`](freshline_core::session::Shares).
    pub max_connections: usize,
    /// The maximum number of connections without a session, including handshakes and closing ones,
    /// of the same size. Beyond it, the oldest one of the network that has the most (24 bits of
    /// IPv4, 48 of IPv6) is displaced.
    pub max_strangers: usize,
    /// The number of unfinished handshakes from which on a newcomer must first prove its address by
    /// a Retry, which costs it one more round trip and us no state. 0: always.
    pub retry_above: usize,
    /// The rates at which handshakes are accepted.
    pub handshakes: Rates,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// How long a connection may last without a session.
    pub opening_timeout: Duration,
    /// How long a source may be silent; longer than the interval between its updates.
    pub idle_timeout: Duration,
    /// The maximum number of unacknowledged bytes to one peer. A peer that accepts everything and
    /// acknowledges nothing costs several times as much memory.
    pub in_flight: u64,
}

impl Default for Limits {
    /// 10 000 connections and 1024 without a session, for at most a minute each, 5 s of which for
    /// the handshake; Retry from 32 handshakes on, a plausible number of simultaneously restarted
    /// sources; 30 s of silence; 1 MiB in flight.
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_strangers: 1024,
            retry_above: 32,
            handshakes: Rates::default(),
            handshake_timeout: Duration::from_secs(5),
            opening_timeout: Duration::from_secs(60),
            idle_timeout: IDLE_TIMEOUT,
            in_flight: ACKS_IN_FLIGHT,
        }
    }
}

impl Limits {
    /// Room for 500 Mbit/s over 64 ms, for peers that send packets rather than acknowledgements.
    pub const DOWNLINK_IN_FLIGHT: u64 = 4 << 20;

    /// [`Limits::max_connections`] for this number of sessions: 1.5 times as many plus 64, for
    /// peers with several paths, and for connections of processes that have ended without a close.
    pub fn connections_for(sessions: usize) -> usize {
        sessions.saturating_add(sessions / 2).saturating_add(64)
    }
}

/// The settings with which a monitor accepts connections.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub(super) endpoint: Arc<EndpointConfig>,
    pub(super) quic: noq_proto::ServerConfig,
    pub(super) limits: Limits,
    /// Checks certificates of sources.
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    tag: Tag,
}

impl ServerConfig {
    /// Presents `identity` to every source and, if `clients` is given, accepts only sources with a
    /// certificate of one of these authorities.
    ///
    /// # Errors
    /// [`TrustError`] if TLS cannot use the certificates.
    pub fn new(
        identity: &Identity,
        clients: Option<&Authorities>,
        limits: Limits,
    ) -> Result<Self, TrustError> {
        let tag = identity.connection_id_tag();
        let mut endpoint = EndpointConfig::new(Arc::new(identity.reset_key()));
        endpoint
            .supported_versions(vec![1])
            .min_reset_interval(RESET_INTERVAL)
            // A reset answers only connection IDs with this tag.
            .cid_generator(Arc::new(move || Box::new(TaggedIds(tag))));
        let clients = clients.cloned().map(Clients::Authorities);
        let verifier = client_verifier(clients.as_ref())?;
        let tls = Arc::new(monitor_tls(identity, verifier.clone(), ALPN)?);
        let mut quic = noq_proto::ServerConfig::with_crypto(Arc::new(Guarded(tls)));
        quic.transport_config(transport(limits.idle_timeout, limits.in_flight, None))
            .retry_token_lifetime(TOKEN_LIFETIME)
            .validation_token_config(no_tokens())
            .migration(true);
        Ok(Self { endpoint: Arc::new(endpoint), quic, limits, verifier, tag })
    }

    /// The tag with which the IDs of its connections begin.
    pub(crate) fn tag(&self) -> Tag {
        self.tag
    }
}

/// A source that sends less often than this keeps its connection, and the bindings of NATs on the
/// path, alive by a small packet. 10 s: a third of the idle timeout.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// No tokens for later connections (NEW_TOKEN frames): they are packets without a state, and
/// noq-proto sends them as soon as another package of a program enables its feature `bloom`.
pub(crate) fn no_tokens() -> ValidationTokenConfig {
    let mut tokens = ValidationTokenConfig::default();
    tokens.sent(0);
    tokens
}

/// How often the peer acknowledges packets: once per [`PACKETS_PER_ACK`] packets, or after
/// [`MAX_MIN_ACK_DELAY`]. No packet is sent again here, so acknowledgements only free the bytes in
/// flight and show that the peer is there. Each takes a turn on the air of a Wi-Fi cell.
fn few_acks() -> AckFrequencyConfig {
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(PACKETS_PER_ACK - 1))
        .max_ack_delay(Some(MAX_MIN_ACK_DELAY))
        .reordering_threshold(VarInt::from_u32(0));
    acks
}

/// The QUIC settings that both sides share. `in_flight` bounds the bytes that the peer has not
/// acknowledged.
fn transport(
    idle_timeout: Duration,
    in_flight: u64,
    keep_alive: Option<Duration>,
) -> Arc<TransportConfig> {
    // On the wire, 0 would mean that there is no limit.
    let idle_ms = u32::try_from(idle_timeout.as_millis()).unwrap_or(u32::MAX).max(1);
    let none = VarInt::from_u32(0);
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(none)
        .max_concurrent_uni_streams(none)
        .stream_receive_window(none)
        .receive_window(none)
        .send_window(0)
        .max_idle_timeout(Some(VarInt::from_u32(idle_ms).into()))
        .keep_alive_interval(keep_alive)
        .initial_rtt(INITIAL_RTT)
        .mtu_discovery_config(None)
        .ack_frequency_config(Some(few_acks()))
        .datagram_receive_buffer_size(Some(RECEIVE_BUFFER))
        .datagram_send_buffer_size(outbox::BUFFER)
        .congestion_controller_factory(Arc::new(Unlimited { in_flight }));
    Arc::new(config)
}
