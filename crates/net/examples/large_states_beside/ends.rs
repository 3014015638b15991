//! The two ends of a QUIC connection. The caller passes the time to them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use freshline_core::link::Direction;
use noq_proto::rustls::RootCertStore;
use noq_proto::rustls::pki_types::PrivateKeyDer;
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event,
    FourTuple, ServerConfig, StreamEvent, TransportConfig, VarInt,
};

use crate::watched::{Factory, Seen, WatchedFactory};

/// The UDP payload over IPv4 at an MTU of 1500 bytes, less 20, the upper bound of quinn's default MTU discovery.
pub(crate) const MTU: u16 = 1452;

/// The maximum number of concurrent streams; more than any path of the grid has in flight.
const STREAMS: u32 = 1 << 16;

/// One end.
pub(crate) struct End {
    endpoint: Endpoint,
    link: Option<(ConnectionHandle, Connection)>,
    peer: SocketAddr,
    /// The direction of the datagrams that it sends.
    pub(crate) direction: Direction,
    /// The next datagram to send.
    pub(crate) datagram: Vec<u8>,
    pub(crate) events: VecDeque<StreamEvent>,
}

/// The receiver's certificate, which the sender trusts, and its key, in DER.
pub(crate) struct Certified {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Certified {
    pub(crate) fn new() -> Self {
        let certified = rcgen::generate_simple_self_signed([NAME.to_owned()]);
        let certified = certified.expect("a certificate");
        let key = certified.signing_key.serialize_der();
        Self { certificate: certified.cert.der().to_vec(), key }
    }
}

/// The server name in the certificate.
const NAME: &str = "localhost";

/// The addresses of sender and receiver in the protocol, whatever carries their datagrams.
const ADDRESSES: [([u8; 4], u16); 2] = [([10, 0, 0, 1], 4433), ([10, 0, 0, 2], 4433)];

/// The end that sends states, which opens the connection, and the values that its congestion controller records.
pub(crate) fn sender(control: Factory, certificate: &[u8], now: Instant) -> (End, Arc<Seen>) {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.to_vec().into()).expect("it is a certificate");
    let seen = Arc::new(Seen::default());
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).expect("a trust anchor");
    let mut transport = transport();
    let factory = WatchedFactory { inner: control, seen: seen.clone() };
    transport.congestion_controller_factory(Arc::new(factory));
    client.transport_config(Arc::new(transport));
    let mut endpoint = Endpoint::new(endpoint_config(1), None, false);
    let peer = ADDRESSES[1].into();
    let link = endpoint.connect(now, client, peer, NAME).expect("it can be dialled");
    (End::new(endpoint, Some(link), peer, Direction::Forward), seen)
}

/// The end that receives states.
pub(crate) fn receiver(certified: &Certified) -> End {
    let key = PrivateKeyDer::Pkcs8(certified.key.clone().into());
    let chain = vec![certified.certificate.clone().into()];
    let mut server = ServerConfig::with_single_cert(chain, key).expect("the key suits");
    server.transport_config(Arc::new(transport()));
    let endpoint = Endpoint::new(endpoint_config(2), Some(Arc::new(server)), false);
    End::new(endpoint, None, ADDRESSES[0].into(), Direction::Reverse)
}

/// Fixed seeds, so that each run draws the same random numbers.
fn endpoint_config(seed: u8) -> Arc<EndpointConfig> {
    let mut config = EndpointConfig::default();
    config.rng_seed(Some([seed; 32]));
    Arc::new(config)
}

/// Unlimited flow control, no GSO, full packets from the start; everything else is default, including pacing.
fn transport() -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(VarInt::MAX)
        .receive_window(VarInt::MAX)
        .send_window(u64::MAX / 2)
        .max_concurrent_uni_streams(STREAMS.into())
        .max_idle_timeout(None)
        .enable_segmentation_offload(false)
        .initial_mtu(MTU)
        .min_mtu(MTU)
        .mtu_discovery_config(None);
    config
}

impl End {
    fn new(
        endpoint: Endpoint,
        link: Option<(ConnectionHandle, Connection)>,
        peer: SocketAddr,
        direction: Direction,
    ) -> Self {
        Self { endpoint, link, peer, direction, datagram: Vec::new(), events: VecDeque::new() }
    }

    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        self.link.as_mut().map(|(_, connection)| connection)
    }

    /// Handles a datagram from the peer.
    pub(crate) fn handle(&mut self, now: Instant, datagram: &[u8]) {
        let path = FourTuple::from_remote(self.peer);
        let mut answer = Vec::new();
        match self.endpoint.handle(now, path, None, datagram.into(), &mut answer) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some(connection) = self.connection() {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, now, &mut answer, None);
                self.link = Some(accepted.expect("the handshake is sound"));
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
        self.settle();
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.link.as_ref().and_then(|(_, connection)| connection.poll_timeout())
    }

    /// Runs the timers that are due; whether there were any.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        let is_due = self.poll_timeout().is_some_and(|at| at <= now);
        if let Some(connection) = self.connection().filter(|_| is_due) {
            connection.handle_timeout(now);
            self.settle();
        }
        is_due
    }

    /// Writes the next datagram to send, if any, to `datagram`; whether there is one.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> bool {
        self.datagram.clear();
        let Some((_, connection)) = &mut self.link else { return false };
        connection.poll_transmit(now, NonZeroUsize::MIN, &mut self.datagram).is_some()
    }

    fn settle(&mut self) {
        let Some((handle, connection)) = &mut self.link else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(answer);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Stream(event) => self.events.push_back(event),
                Event::ConnectionLost { reason } => panic!("the connection is lost: {reason}"),
                _ => {}
            }
        }
    }
}
