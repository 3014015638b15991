//! The settings of either end, and the QUIC settings that they share.

use std::sync::Arc;
use std::time::Duration;

use freshline_core::path::{CoupledLaw, SchedulerConfig};
use freshline_core::unit::Span;
use noq_proto::congestion::{Bbr3Config, ControllerFactory, CubicConfig};
use noq_proto::{
    EndpointConfig, HashedConnectionIdGenerator, MtuDiscoveryConfig, TransportConfig, VarInt,
};

use super::coupled::Coupling;
use super::gate::Gates;
use super::udp;
use crate::quic::{
    Clients, Identity, Trust, TrustError, client_verifier, monitor_tls, no_tokens, source_tls,
};

/// The protocol that both sides must name in the handshake (ALPN, RFC 7301).
const ALPN: &[u8] = b"freshline-bond/1";

/// A connection without a sign of the peer for this long is lost, and its streams with it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Assumed round trip until one is measured.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// The largest UDP payload that an end accepts and sends, in bytes. Larger packets save little CPU time,
/// and a congestion window of few packets and a small receive buffer hold more of these.
const MAX_PAYLOAD: u16 = 16 * 1024;

/// The largest UDP payload over Ethernet, by IPv4 and IPv6.
pub(super) const USUAL_PAYLOAD: u16 = 1452;

/// Paths of one connection at a time.
pub(super) const PATHS: u32 = 8;

/// What finds out how much may be in flight on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// RFC 9438.
    #[default]
    Cubic,
    /// BBR, version 3.
    Bbr,
}

impl Congestion {
    fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::Bbr => Arc::new(Bbr3Config::default()),
        }
    }
}

/// How streams are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sending {
    /// Chooses the path.
    pub scheduler: SchedulerConfig,
    /// Couples the congestion windows of a connection's paths, so that several paths through one
    /// bottleneck take no more than one flow; else each path is controlled by `congestion`.
    pub coupling: Option<CoupledLaw>,
    /// Finds out how much may be in flight on each path that is not coupled.
    pub congestion: Congestion,
    /// What one stream may hold at its receiver, in bytes; at most [`Sending::WIDEST`].
    pub stream_window: u32,
    /// What all streams of a peer may hold here together, in bytes; half as much again is what waits
    /// here for the peer's acks. At least [`Sending::MIN_WINDOWS`] windows.
    pub memory: u32,
    /// The most streams of one client.
    pub streams: u32,
    /// An idle path sends this often, so that address translators keep its ports open; at most
    /// [`Sending::MAX_KEEP_ALIVE`]. A path with traffic sends once a second.
    pub keep_alive: Span,
}

impl Sending {
    /// The widest window of a stream. noq-proto 1.4.0 ends a connection when more than 1024 pieces
    /// of one stream have come with gaps between them, as packets of 1200 bytes by two paths do that
    /// take turns; so many packets and gaps do not fit in this.
    pub const WIDEST: u32 = 2_000_000;

    /// Whether the scheduler uses the waits of single packets.
    pub(super) fn wants_queueing_delays(&self) -> bool {
        self.scheduler.wants_queueing_delays()
    }

    /// The largest interval of keep-alives: an idle connection ends after 30 s.
    pub const MAX_KEEP_ALIVE: Span = Span::from_secs(20);

    /// So many windows of a stream have room in all that streams may hold.
    pub const MIN_WINDOWS: u32 = 4;

    /// Makes the controllers of one connection.
    fn factory(&self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self.coupling {
            Some(law) => Arc::new(Coupling::new(law)),
            None => self.congestion.factory(),
        }
    }

    /// So many streams of a peer may be stuck, before those that have been so for longest are given
    /// up: together they hold at most three quarters of the memory, and the others go on.
    pub(super) fn max_stuck(&self) -> usize {
        (self.memory / 4 * 3 / self.stream_window.max(1)) as usize
    }
}

impl Default for Sending {
    /// QAware over LIA; 1 MB a stream, 32 MB and 1024 streams a peer.
    fn default() -> Self {
        Self {
            scheduler: SchedulerConfig::QAware(Default::default()),
            coupling: Some(CoupledLaw::Lia),
            congestion: Congestion::default(),
            stream_window: 1_000_000,
            memory: 32_000_000,
            streams: 1024,
            keep_alive: Span::from_secs(15),
        }
    }
}

/// The client's TLS: whom it trusts, and who it is.
pub(super) fn client(
    trust: &Trust,
    identity: &Identity,
) -> Result<noq_proto::ClientConfig, TrustError> {
    let tls = source_tls(trust, Some(identity), ALPN)?;
    Ok(noq_proto::ClientConfig::new(Arc::new(tls)))
}

/// The settings of a client's next connection: those of its congestion control are its own. Path MTU
/// discovery tries up to `max_payload` bytes of UDP payload, or [`MAX_PAYLOAD`] if that is less.
pub(super) fn next_client(
    config: &noq_proto::ClientConfig,
    sending: &Sending,
    max_payload: u16,
) -> noq_proto::ClientConfig {
    let mut config = config.clone();
    config.transport_config(transport(sending, 0, max_payload));
    config
}

/// And those of a server's next connection.
pub(super) fn next_server(
    config: &noq_proto::ServerConfig,
    sending: &Sending,
    max_payload: u16,
) -> Arc<noq_proto::ServerConfig> {
    let mut config = config.clone();
    config.transport_config(transport(sending, sending.streams, max_payload));
    Arc::new(config)
}

/// The settings of a client's endpoint.
pub(super) fn client_endpoint() -> EndpointConfig {
    let mut endpoint = EndpointConfig::default();
    set_endpoint(&mut endpoint);
    endpoint
}

fn set_endpoint(endpoint: &mut EndpointConfig) {
    endpoint.supported_versions(vec![1]);
    // It fails only below 1200 bytes.
    let _ = endpoint.max_udp_payload_size(MAX_PAYLOAD);
}

/// The server's TLS: who it is, and whom it takes.
pub(super) fn server(
    identity: &Identity,
    clients: &Clients,
    sending: &Sending,
) -> Result<(EndpointConfig, noq_proto::ServerConfig), TrustError> {
    let connection_id_key = identity.connection_id_key();
    let mut endpoint = EndpointConfig::new(Arc::new(identity.reset_key()));
    set_endpoint(&mut endpoint);
    endpoint.cid_generator(Arc::new(move || {
        Box::new(HashedConnectionIdGenerator::from_key(connection_id_key))
    }));
    let tls = Arc::new(monitor_tls(identity, client_verifier(Some(clients))?, ALPN)?);
    let mut config = noq_proto::ServerConfig::with_crypto(tls);
    config
        .transport_config(transport(sending, sending.streams, USUAL_PAYLOAD))
        .validation_token_config(no_tokens())
        .migration(true);
    Ok((endpoint, config))
}

fn transport(sending: &Sending, streams: u32, max_payload: u16) -> Arc<TransportConfig> {
    let idle = u32::try_from(IDLE_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(max_payload.min(MAX_PAYLOAD));
    let mut config = TransportConfig::default();
    config
        .mtu_discovery_config(Some(discovery))
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        // For the limits of streams.
        .max_concurrent_uni_streams(VarInt::from_u32(1))
        .stream_receive_window(VarInt::from_u32(sending.stream_window.min(Sending::WIDEST)))
        .receive_window(VarInt::from_u32(sending.memory))
        .send_window(u64::from(sending.memory / 2))
        .max_idle_timeout(Some(VarInt::from_u32(idle).into()))
        .default_path_max_idle_timeout(None)
        .max_concurrent_multipath_paths(PATHS)
        .initial_rtt(INITIAL_RTT)
        .datagram_receive_buffer_size(Some(udp::RECEIVE_BUFFER))
        .datagram_send_buffer_size(udp::SEND_BUFFER)
        .congestion_controller_factory(Arc::new(Gates {
            real: sending.factory(),
            keeps_delays: sending.wants_queueing_delays(),
        }));
    Arc::new(config)
}
