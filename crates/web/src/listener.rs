//! Accepts the connections of browsers, encrypted or not, a bounded number at a time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Connections at a time, those of WebSockets among them. A browser has a few.
const MAX: usize = 512;

/// The wait after a failure to accept, such as a lack of descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// The time for the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The maximum time without data on a connection; a WebSocket has acks.
const QUIET: Duration = Duration::from_secs(60);

/// The send buffer of a connection, in bytes: data in it can no longer be replaced.
const SEND_BUFFER: usize = 64 << 10;

/// The time for the head of a request, and its longest length in bytes.
const HEAD: Duration = Duration::from_secs(10);
const MAX_HEAD: usize = 16 << 10;

/// Serves until the listener fails.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    router: Router,
) -> io::Error {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    let tls = tls.map(TlsAcceptor::from);
    let places = Arc::new(Semaphore::new(MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let (Ok(place), Ok((stream, _))) = (place, listener.accept().await) else {
            sleep(RETRY).await;
            continue;
        };
        // Without these, states wait for acks and in buffers; they are served all the same.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
        tokio::spawn(answer(stream, tls.clone(), router.clone(), place));
    }
}

/// Serves one connection.
async fn answer(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    place: OwnedSemaphorePermit,
) {
    let stream = match tls {
        None => Stream::Plain(stream),
        Some(tls) => match timeout(HANDSHAKE, tls.accept(stream)).await {
            Ok(Ok(stream)) => Stream::Tls(Box::new(stream)),
            _ => return,
        },
    };
    let connection = Connection { stream, quiet: Box::pin(sleep(QUIET)), _place: place };
    // Its errors are those of browsers that are gone.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(connection), TowerToHyperService::new(router))
        .with_upgrades()
        .await;
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection with its place.
struct Connection {
    stream: Stream,
    quiet: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        self.heed_quiet(context, read)
    }
}

impl Connection {
    /// The result of reading or writing; an error after a quiet time of [`QUIET`].
    fn heed_quiet<T>(
        &mut self,
        context: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.quiet.set(sleep(QUIET));
        } else if self.quiet.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        done
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.heed_quiet(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
