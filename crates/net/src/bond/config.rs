//! The settings of either end, and the QUIC settings that they share.

use std::sync::Arc;
use std::time::Duration;

use freshline_core::path::SchedulerConfig;
use noq_proto::congestion::{Bbr3Config, ControllerFactory, CubicConfig};
use noq_proto::{EndpointConfig, HashedConnectionIdGenerator, TransportConfig, VarInt};

use super::gate::Gates;
use crate::quic::{Clients, Identity, Trust, TrustError, monitor_tls, source_tls};

/// The protocol that both sides must name in the handshake (ALPN, RFC 7301).
const ALPN: &[u8] = b"freshline-bond/1";

/// A connection without a sign of the peer for this long is lost, and its streams with it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// An idle path says something this often, so that one that is dead is known before it is needed.
const KEEP_ALIVE: Duration = Duration::from_millis(1000);

/// Assumed round trip until one is measured.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// Paths of one connection at a time.
const PATHS: u32 = 8;

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
    /// Finds out how much may be in flight on each.
    pub congestion: Congestion,
    /// What one stream may hold at its receiver, in bytes; at most [`Sending::WIDEST`].
    pub stream_window: u32,
    /// What all streams of a peer may hold here together, in bytes; half as much again is what waits
    /// here for the peer's acks. At least [`Sending::LEAST_WINDOWS`] windows.
    pub memory: u32,
    /// The most streams of one client.
    pub streams: u32,
}

impl Sending {
    /// The widest window of a stream. noq-proto 1.4.0 ends a connection when more than 1024 pieces
    /// of one stream have come with gaps between them, as packets of 1200 bytes by two paths do that
    /// take turns; so many packets and gaps do not fit in this.
    pub const WIDEST: u32 = 2_000_000;

    /// So many windows of a stream have room in all that streams may hold.
    pub const LEAST_WINDOWS: u32 = 4;

    /// So many streams of a peer may be stuck, before those that have been so for longest are given
    /// up: together they hold at most three quarters of the memory, and the others go on.
    pub(super) fn most_stuck(&self) -> usize {
        (self.memory / 4 * 3 / self.stream_window.max(1)) as usize
    }
}

impl Default for Sending {
    /// QAware over Cubic; 1 MB a stream, 32 MB and 1024 streams a peer.
    fn default() -> Self {
        Self {
            scheduler: SchedulerConfig::QAware(Default::default()),
            congestion: Congestion::default(),
            stream_window: 1_000_000,
            memory: 32_000_000,
            streams: 1024,
        }
    }
}

/// The client's TLS: whom it trusts, and who it is.
pub(super) fn client(
    trust: &Trust,
    identity: &Identity,
    sending: &Sending,
) -> Result<noq_proto::ClientConfig, TrustError> {
    let tls = source_tls(trust, Some(identity), ALPN)?;
    let mut config = noq_proto::ClientConfig::new(Arc::new(tls));
    config.transport_config(transport(sending, 0));
    Ok(config)
}

/// The server's TLS: who it is, and whom it takes.
pub(super) fn server(
    identity: &Identity,
    clients: &Clients,
    sending: &Sending,
) -> Result<(EndpointConfig, noq_proto::ServerConfig), TrustError> {
    let connection_id_key = identity.connection_id_key();
    let mut endpoint = EndpointConfig::new(Arc::new(identity.reset_key()));
    endpoint.supported_versions(vec![1]).cid_generator(Arc::new(move || {
        Box::new(HashedConnectionIdGenerator::from_key(connection_id_key))
    }));
    let tls = Arc::new(monitor_tls(identity, Some(clients), ALPN)?);
    let mut config = noq_proto::ServerConfig::with_crypto(tls);
    config.transport_config(transport(sending, sending.streams)).migration(true);
    Ok((endpoint, config))
}

fn transport(sending: &Sending, streams: u32) -> Arc<TransportConfig> {
    let idle = u32::try_from(IDLE_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(sending.stream_window.min(Sending::WIDEST)))
        .receive_window(VarInt::from_u32(sending.memory))
        .send_window(u64::from(sending.memory / 2))
        .max_idle_timeout(Some(VarInt::from_u32(idle).into()))
        .default_path_max_idle_timeout(None)
        .default_path_keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_multipath_paths(PATHS)
        .initial_rtt(INITIAL_RTT)
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(Arc::new(Gates { real: sending.congestion.factory() }));
    Arc::new(config)
}
