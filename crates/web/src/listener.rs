//! Accepts the connections of browsers, a bounded number at a time.

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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// Connections at a time, those of WebSockets among them. A browser has a few.
const MAX: usize = 512;

/// The wait after a failure to accept, such as a lack of descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// The send buffer of a connection, in bytes: what lies there has missed its chance to be replaced.
const SEND_BUFFER: usize = 64 << 10;

/// Serves until the listener fails.
pub(crate) async fn serve(listener: std::net::TcpListener, router: Router) -> io::Error {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => Bounded { listener, places: Arc::new(Semaphore::new(MAX)) },
        Err(error) => return error,
    };
    let served = axum::serve(listener, router).await;
    served.err().unwrap_or_else(|| io::Error::other("the listener has ended"))
}

struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl axum::serve::Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let place = Arc::clone(&self.places).acquire_owned().await;
            match (place, self.listener.accept().await) {
                (Ok(place), Ok((stream, address))) => {
                    // Without it a state waits for the ack of the one before.
                    let _ = stream.set_nodelay(true);
                    let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
                    return (Connection { stream, _place: place }, address);
                }
                _ => sleep(RETRY).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection with its place.
pub(crate) struct Connection {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
