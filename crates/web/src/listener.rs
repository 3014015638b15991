//! Accepts the connections of browsers, encrypted or not, a bounded number at a time.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Connections at a time, those of WebSockets among them. A browser has a few.
const MAX: usize = 512;

/// The wait after a failure to accept, such as a lack of descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// The time for the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// A connection from which nothing comes for so long is closed; a WebSocket has acks.
const QUIET: Duration = Duration::from_secs(60);

/// The send buffer of a connection, in bytes: what lies there has missed its chance to be replaced.
const SEND_BUFFER: usize = 64 << 10;

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
    let (Ok(address), (ready, accepted)) = (listener.local_addr(), mpsc::channel(1)) else {
        return io::Error::other("the listener has no address");
    };
    let accepting = accept(listener, tls.map(TlsAcceptor::from), ready);
    let serving = axum::serve(Accepted { address, accepted }, router);
    tokio::select! {
        () = accepting => io::Error::other("the listener has ended"),
        served = serving => served.err().unwrap_or_else(|| io::Error::other("nothing is served")),
    }
}

type Ready = (Connection, SocketAddr);

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, ready: mpsc::Sender<Ready>) {
    let places = Arc::new(Semaphore::new(MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let (Ok(place), Ok((stream, address))) = (place, listener.accept().await) else {
            sleep(RETRY).await;
            continue;
        };
        // Without these, states wait for acks and in buffers; they are served all the same.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
        let (tls, ready) = (tls.clone(), ready.clone());
        tokio::spawn(async move {
            let stream = match tls {
                None => Stream::Plain(stream),
                Some(tls) => match timeout(HANDSHAKE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => Stream::Tls(Box::new(stream)),
                    _ => return,
                },
            };
            let connection = Connection { stream, quiet: Box::pin(sleep(QUIET)), _place: place };
            let _ = ready.send((connection, address)).await;
        });
    }
}

/// Connections whose handshake is over.
struct Accepted {
    address: SocketAddr,
    accepted: mpsc::Receiver<Ready>,
}

impl axum::serve::Listener for Accepted {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Ready {
        match self.accepted.recv().await {
            Some(ready) => ready,
            // The other task has ended, and with it this one.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection with its place.
pub(crate) struct Connection {
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
        if read.is_ready() {
            self.quiet.as_mut().reset(Instant::now() + QUIET);
        } else if self.quiet.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
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
