//! The settings of both ends, and the QUIC settings that they share.

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

/// A connection whose peer is silent for this long is lost, and its streams with it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The assumed round-trip time before the first measurement.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// The largest UDP payload that an end accepts and sends, in bytes. Larger packets would save
/// little CPU time, and a small congestion window or receive buffer would hold too few of them.
const MAX_PAYLOAD: u16 = 16 * 1024;

/// The largest UDP payload over Ethernet with IPv4 and with IPv6.
pub(super) const USUAL_PAYLOAD: u16 = 1452;

/// The maximum number of paths of one connection at a time.
pub(super) const PATHS: u32 = 8;

/// The congestion control of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// CUBIC (RFC 9438).
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

/// How an end sends streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sending {
    /// Chooses the path.
    pub scheduler: SchedulerConfig,
    /// Couples the congestion windows of a connection's paths, so that several paths through one
    /// bottleneck take no more than one flow; `None`: `congestion` controls each path by itself.
    pub coupling: Option<CoupledLaw>,
    /// The congestion control of each path if `coupling` is `None`.
    pub congestion: Congestion,
    /// The receive window of one stream, in bytes; at most [`Sending::WIDEST`].
    pub stream_window: u32,
    /// The receive window of all streams of a peer together, in bytes; at least
    /// [`Sending::MIN_WINDOWS`] stream windows. Sent data that the peer has not acknowledged may
    /// use half as much in addition.
    pub memory: u32,
    /// The maximum number of streams per client.
    pub streams: u32,
    /// The interval of keep-alives on an idle path, which keep the ports of address translators
    /// open; at most [`Sending::MAX_KEEP_ALIVE`]. A path with traffic sends one per second.
    pub keep_alive: Span,
}

impl Sending {
    /// The maximum of `stream_window`, in bytes. noq-proto 1.4.0 ends a connection if it has
    /// received more than 1024 pieces of one stream with gaps between them, which happens when
    /// packets of 1200 bytes alternate between two paths. A window of this size has no room for
    /// 1024 such packets and their gaps.
    pub const WIDEST: u32 = 2_000_000;

    /// Whether the scheduler uses the queueing delays of single packets.
    pub(super) fn wants_queueing_delays(&self) -> bool {
        self.scheduler.wants_queueing_delays()
    }

    /// The maximum of `keep_alive`: a silent connection ends after 30 s.
    pub const MAX_KEEP_ALIVE: Span = Span::from_secs(20);

    /// The minimum of `memory`, in stream windows.
    pub const MIN_WINDOWS: u32 = 4;

    /// Makes the controllers of one connection.
    fn factory(&self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self.coupling {
            Some(law) => Arc::new(Coupling::new(law)),
            None => self.congestion.factory(),
        }
    }

    /// The maximum number of stuck streams per peer; beyond it, the ones stuck for the longest time
    /// are reset. Together they hold at most three quarters of the memory, so other streams go on.
    pub(super) fn max_stuck(&self) -> usize {
        (self.memory / 4 * 3 / self.stream_window.max(1)) as usize
    }
}

impl Default for Sending {
    /// QAware over LIA; 1 MB per stream, 32 MB and 1024 streams per peer.
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

/// The client's TLS configuration: the servers that it trusts, and its own identity.
pub(super) fn client(
    trust: &Trust,
    identity: &Identity,
) -> Result<noq_proto::ClientConfig, TrustError> {
    let tls = source_tls(trust, Some(identity), ALPN)?;
    Ok(noq_proto::ClientConfig::new(Arc::new(tls)))
}

/// The settings of a client's next connection, which has congestion control of its own. Path MTU
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

/// The settings of a server's next connection; see [`next_client`].
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
    // Fails only below 1200 bytes.
    let _ = endpoint.max_udp_payload_size(MAX_PAYLOAD);
}

/// The server's endpoint, and its TLS configuration: its identity, and the clients that it accepts.
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
        // For the messages with limits of streams.
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
