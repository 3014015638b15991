//! A listener for HTTP that slow clients cannot exhaust: it holds at most [`MAX_CONNECTIONS`] at a
//! time, each for at most [`MAX_LIFE`], and closes the oldest one for a new one. So neither
//! descriptors nor memory grow with the number of idle clients, and an honest client is served
//! among them.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

/// Connections at a time. A few scrapers need one each.
pub(crate) const MAX_CONNECTIONS: usize = 64;

/// The maximum lifetime of a connection. Ten times the duration of the largest answer on a slow
/// link; scrapers reconnect.
const MAX_LIFE: Duration = Duration::from_secs(10);

/// The pause after a failure to accept, for example for lack of descriptors.
const RETRY: Duration = Duration::from_millis(100);

pub(crate) struct BoundedListener {
    listener: TcpListener,
    /// Dropping an entry closes its connection. The oldest is first.
    open: VecDeque<oneshot::Sender<()>>,
}

impl BoundedListener {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self { listener, open: VecDeque::new() }
    }
}

impl axum::serve::Listener for BoundedListener {
    type Io = Bounded;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Bounded, SocketAddr) {
        let (stream, address) = loop {
            match self.listener.accept().await {
                Ok(accepted) => break accepted,
                Err(_) => sleep(RETRY).await,
            }
        };
        self.open.retain(|connection| !connection.is_closed());
        if self.open.len() == MAX_CONNECTIONS {
            self.open.pop_front();
        }
        let (held, closed) = oneshot::channel();
        self.open.push_back(held);
        (Bounded { stream, closed, end: Box::pin(sleep(MAX_LIFE)) }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// One connection.
pub(crate) struct Bounded {
    stream: TcpStream,
    closed: oneshot::Receiver<()>,
    end: Pin<Box<Sleep>>,
}

impl Bounded {
    /// Returns an error when the connection must end.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.end.as_mut().poll(context).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match Pin::new(&mut self.closed).poll(context) {
            Poll::Ready(_) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;

    use super::*;
    use crate::metrics;

    #[derive(Debug)]
    struct Nothing;

    impl Collector for Nothing {
        fn encode(&self, _: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            Ok(())
        }
    }

    #[test]
    fn a_client_is_answered_among_many_that_connect_and_say_nothing() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let address = metrics::serve(any, || Ok(Nothing)).expect("it serves");
        let connect = || TcpStream::connect(address).expect("it accepts");
        let silent: Vec<_> = (0..3 * MAX_CONNECTIONS).map(|_| connect()).collect();
        let mut honest = connect();
        let request = b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
        honest.write_all(request).expect("it listens");
        let mut answer = String::new();
        honest.read_to_string(&mut answer).expect("text");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // Most of the silent connections are closed, although their clients did nothing.
        let is_closed = |mut stream: &TcpStream| {
            stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
            matches!(stream.read(&mut [0]), Ok(0))
                || stream.take_error().is_ok_and(|error| error.is_some())
        };
        assert!(silent.iter().take(MAX_CONNECTIONS).all(is_closed));
    }
}
