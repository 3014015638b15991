//! A running gateway.

use std::fmt;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use freshline::{LawConfig, Limits};
use tokio::sync::{oneshot, watch};

use crate::certificate::{self, Certificate};
use crate::error::GatewayError;
use crate::hub::Hub;
use crate::session::Settings;
use crate::shared::Shared;
use crate::statuses::{self, Statuses};
use crate::token::Token;
use crate::{listener, routes, webtransport};

/// Settings of a [`Gateway`].
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen: TCP for the page and WebSocket, UDP for WebTransport. Port 0 takes a free one.
    pub address: SocketAddr,
    /// The token that browsers must present.
    pub token: Token,
    /// When states leave towards each browser.
    pub law: LawConfig,
    /// Limits of that.
    pub limits: Limits,
    /// Browsers at the same time; further ones are refused. 64 by default.
    pub max_browsers: usize,
    /// A longer state is cut to this number of bytes. 1 MiB by default.
    pub max_state: usize,
    /// A certificate that browsers trust: the page is served by `https://` then.
    pub identity: Option<Identity>,
}

/// The files of a certificate chain and of its key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The chain, as PEM.
    pub chain: PathBuf,
    /// The key, as PEM.
    pub key: PathBuf,
}

impl Config {
    /// At this address, with a new token and the default law.
    ///
    /// # Errors
    /// [`GatewayError::Random`] if the system gives no random bytes.
    pub fn new(address: SocketAddr) -> Result<Self, GatewayError> {
        Ok(Self {
            address,
            token: Token::random()?,
            law: LawConfig::default(),
            limits: Limits::default(),
            max_browsers: 64,
            max_state: 1 << 20,
            identity: None,
        })
    }
}

/// A gateway, on threads of its own, until it is dropped.
pub struct Gateway {
    address: SocketAddr,
    scheme: &'static str,
    token: Token,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    /// The most sources, and the most topics and keys, that a browser shows.
    pub const MAX_SOURCES: usize = crate::series::MAX;

    /// Shows the states of `hub` to browsers.
    ///
    /// # Errors
    /// [`GatewayError`] says what is missing.
    pub fn spawn(config: Config, hub: impl Hub) -> Result<Self, GatewayError> {
        let tls = config.identity.as_ref();
        let tls = tls.map(|files| certificate::https(&files.chain, &files.key)).transpose()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (tcp, udp) = bind(config.address)?;
        let address = tcp.local_addr().map_err(GatewayError::System)?;
        let certificate = Arc::new(Certificate::new()?);
        let (status_sender, statuses) = watch::channel(Arc::default());
        let shared = Arc::new(Shared {
            hub: Arc::new(hub),
            token: config.token.clone(),
            settings: Settings {
                law: config.law,
                limits: config.limits,
                max_state: config.max_state,
            },
            certificate,
            address,
            statuses,
            max_browsers: config.max_browsers,
            browsers: AtomicUsize::new(0),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(GatewayError::System)?;
        let quic = {
            let _entered = runtime.enter();
            webtransport::Endpoint::new(udp, Arc::clone(&shared.certificate))?
        };
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(shared, (tcp, tls), quic, status_sender) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_timeout(std::time::Duration::from_secs(1));
        };
        let thread = std::thread::Builder::new().name("freshline web".into()).spawn(run);
        let thread = Some(thread.map_err(GatewayError::System)?);
        Ok(Self { address, scheme, token: config.token, stop: Some(stop), thread })
    }

    /// The address, with the port that was chosen for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the page with the token, which a browser does not send: it is behind `#`.
    pub fn url(&self) -> String {
        format!("{}://{}/#token={}", self.scheme, self.address, self.token.as_str())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was printed.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gateway").field(&self.address).finish()
    }
}

/// Sockets of both transports at one port.
fn bind(address: SocketAddr) -> Result<(TcpListener, UdpSocket), GatewayError> {
    let failed = |error| GatewayError::Bind { address, error };
    let mut tries = 0;
    loop {
        let tcp = TcpListener::bind(address).map_err(failed)?;
        match UdpSocket::bind(tcp.local_addr().map_err(failed)?) {
            Ok(udp) => {
                tcp.set_nonblocking(true).map_err(failed)?;
                udp.set_nonblocking(true).map_err(failed)?;
                return Ok((tcp, udp));
            }
            // A port that is free for TCP may be taken for UDP.
            Err(_) if address.port() == 0 && tries < 16 => tries += 1,
            Err(error) => return Err(failed(error)),
        }
    }
}

async fn serve(
    shared: Arc<Shared>,
    (tcp, tls): (TcpListener, Option<Arc<rustls::ServerConfig>>),
    quic: webtransport::Endpoint,
    statuses: watch::Sender<Arc<Statuses>>,
) {
    let asking = statuses::ask(Arc::clone(&shared.hub), statuses);
    let rotating = rotate(Arc::clone(&shared.certificate));
    let datagrams = webtransport::serve(quic, Arc::clone(&shared));
    let pages = listener::serve(tcp, tls, routes::router(shared));
    tokio::select! {
        // The monitor has ended.
        () = asking => {}
        () = rotating => {}
        () = datagrams => {}
        error = pages => tracing::error!(%error, "the page is not served any more"),
    }
}

async fn rotate(certificate: Arc<Certificate>) {
    loop {
        tokio::time::sleep(certificate::LOOK).await;
        if let Err(error) = certificate.rotate() {
            tracing::error!(%error, "the certificate stays");
        }
    }
}
