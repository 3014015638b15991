//! WebTransport: datagrams over HTTP/3.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use freshline::driver::quic::Unlimited;
use noq::crypto::rustls::QuicServerConfig;
use noq::{EndpointConfig, IdleTimeout, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use web_transport_noq::http::StatusCode;
use web_transport_noq::{RecvStream, Request, SendStream, Session};

use crate::certificate::Certificate;
use crate::error::GatewayError;
use crate::pump::{BURST, Incoming, Link, pump};
use crate::session::Carrier;
use crate::shared::{MAX_CONTROL, Place, Shared, WEBTRANSPORT};

/// The time for QUIC's handshake and the request.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Handshakes at the same time, beyond which a newcomer must first show that its address is its
/// own,
const UNPROVEN: usize = 16;

/// and beyond which it is left aside.
const MAX_HANDSHAKES: usize = 256;

/// A browser that is silent for so long is gone.
const IDLE: Duration = Duration::from_secs(15);

/// A bound on memory, not on the rate, which the law sets: see [`Unlimited`].
const IN_FLIGHT: u64 = 8 << 20;

/// Bytes of datagrams queued for the socket: they age there.
const SEND_BUFFER: usize = 64 << 10;

/// The socket of all browsers.
pub(crate) struct Endpoint(noq::Endpoint);

impl Endpoint {
    /// At this socket, within a runtime.
    pub(crate) fn new(
        socket: UdpSocket,
        certificate: Arc<Certificate>,
    ) -> Result<Self, GatewayError> {
        let broken = |error: &dyn std::fmt::Display| GatewayError::Certificate(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| broken(&error))?
            .with_no_client_auth()
            .with_cert_resolver(certificate);
        tls.alpn_protocols = vec![web_transport_noq::ALPN.as_bytes().to_vec()];
        let tls = QuicServerConfig::try_from(tls).map_err(|error| broken(&error))?;
        let mut config = ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(Arc::new(transport()));
        let runtime = Arc::new(TokioRuntime);
        noq::Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)
            .map(Self)
            .map_err(GatewayError::System)
    }
}

fn transport() -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        // A request and the control stream; HTTP/3 has three of its own.
        .max_concurrent_bidi_streams(VarInt::from_u32(4))
        .max_concurrent_uni_streams(VarInt::from_u32(4))
        .receive_window(VarInt::from_u32(256 << 10))
        .stream_receive_window(VarInt::from_u32(128 << 10))
        .max_idle_timeout(IdleTimeout::try_from(IDLE).ok())
        .keep_alive_interval(Some(IDLE / 3))
        .datagram_receive_buffer_size(Some(64 << 10))
        .datagram_send_buffer_size(SEND_BUFFER)
        .congestion_controller_factory(Arc::new(Unlimited { in_flight: IN_FLIGHT }));
    config
}

/// Takes browsers in, until the socket fails.
pub(crate) async fn serve(endpoint: Endpoint, shared: Arc<Shared>) {
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    while let Some(incoming) = endpoint.0.accept().await {
        let Ok(permit) = Arc::clone(&handshakes).try_acquire_owned() else {
            incoming.ignore();
            continue;
        };
        let waiting = MAX_HANDSHAKES - handshakes.available_permits();
        if waiting > UNPROVEN && !incoming.remote_address_validated() && incoming.may_retry() {
            // It comes again with the token of this answer.
            let _ = incoming.retry();
            continue;
        }
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let asked = async move {
                let connection = incoming.accept().ok()?.await.ok()?;
                Request::accept(connection).await.ok()
            };
            let answered = async {
                match asked.await {
                    Some(request) => answer(request, &shared).await,
                    None => None,
                }
            };
            let admitted = timeout(HANDSHAKE, answered).await;
            drop(permit);
            if let Ok(Some((session, place))) = admitted {
                run(session, shared, place).await;
            }
        });
    }
}

/// Answers a request for a session, which it gives if there is to be one.
async fn answer(request: Request, shared: &Arc<Shared>) -> Option<(Session, Place)> {
    let token = request.url.query_pairs().find(|(name, _)| name == "token");
    let is_permitted = token.is_some_and(|(_, token)| shared.token.is(&token));
    let place = shared.place();
    let refusal = match (&place, request.url.path()) {
        _ if !is_permitted => Some(StatusCode::FORBIDDEN),
        (_, path) if path != WEBTRANSPORT => Some(StatusCode::NOT_FOUND),
        (None, _) => Some(StatusCode::SERVICE_UNAVAILABLE),
        (Some(_), _) => None,
    };
    let (Some(place), None) = (place, refusal) else {
        let _ = request.reject(refusal.unwrap_or(StatusCode::FORBIDDEN)).await;
        return None;
    };
    Some((request.ok().await.ok()?, place))
}

async fn run(session: Session, shared: Arc<Shared>, place: Place) {
    let (heard, control) = mpsc::channel(1);
    // As many as there may be control messages in a row.
    let (replies, replied) = mpsc::channel(BURST as usize + 1);
    let streams = session.clone();
    let talking = tokio::spawn(async move {
        // The page opens the control stream.
        if let Ok((send, recv)) = streams.accept_bi().await {
            talk(send, recv, &heard, replied).await;
        }
        // Without it, the session goes on.
        heard.closed().await;
    });
    let carrier = Carrier { name: "webtransport", max_datagram: session.max_datagram_size() };
    pump(Datagrams { session: &session, control, replies }, carrier, &shared).await;
    talking.abort();
    session.close(0, b"");
    drop(place);
}

/// Lines of JSON in, and out.
async fn talk(
    mut send: SendStream,
    mut recv: RecvStream,
    heard: &mpsc::Sender<String>,
    mut replied: mpsc::Receiver<String>,
) {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 4096];
    loop {
        tokio::select! {
            read = recv.read(&mut chunk) => {
                let Ok(Some(len)) = read else { return };
                bytes.extend_from_slice(&chunk[..len]);
                while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = bytes.drain(..=end).collect();
                    let Ok(line) = String::from_utf8(line) else { return };
                    if heard.send(line).await.is_err() {
                        return;
                    }
                }
                if bytes.len() > MAX_CONTROL {
                    return;
                }
            }
            reply = replied.recv() => {
                let Some(reply) = reply else { return };
                if send.write_all(format!("{reply}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// A session's datagrams and control stream.
struct Datagrams<'a> {
    session: &'a Session,
    control: mpsc::Receiver<String>,
    replies: mpsc::Sender<String>,
}

impl Link for Datagrams<'_> {
    async fn recv(&mut self) -> Option<Incoming> {
        tokio::select! {
            datagram = self.session.read_datagram() => datagram.ok().map(Incoming::Datagram),
            Some(line) = self.control.recv() => Some(Incoming::Control(line)),
        }
    }

    async fn send(&mut self, datagram: &[u8]) -> bool {
        // One that is too long for the path now is as good as lost.
        let _ = self.session.send_datagram(Bytes::copy_from_slice(datagram));
        self.session.close_reason().is_none()
    }

    async fn reply(&mut self, text: String) -> bool {
        // A browser that reads no replies gets none.
        let _ = self.replies.try_send(text);
        true
    }
}
