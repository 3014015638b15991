//! The receiving side of a source: the return direction of its session, with the outputs of a
//! monitor.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use freshline_core::dscp::Dscp;
use freshline_core::path::PathId;
use freshline_core::session::{Datagram, MonitorParams, Origin, Receiver, Secret, Transmit};
use freshline_core::unit::Time;
use freshline_core::wire::SessionId;

use super::books::Books;
use super::{MonitorConfig, MonitorError, Sender, Watch};
use crate::endpoint;
use crate::source::Receive;
use crate::stop::Stop;

/// Receives states for a source ([`Source::receiving`](crate::source::Source::receiving)), and hands them
/// to the outputs of a monitor.
pub struct Incoming<W> {
    receiver: Receiver<Sender>,
    books: Books,
    watch: W,
    end: fn(W, &Stop) -> Result<(), Failure>,
}

/// Why some received states are lost.
type Failure = Box<dyn Error + Send + Sync>;

impl<W: Watch> Incoming<W> {
    /// Passes received states to `watch`.
    ///
    /// # Errors
    /// [`MonitorError`] if the system gives no random numbers.
    pub fn new(params: MonitorParams, watch: W) -> Result<Self, MonitorError> {
        Ok(Self::with_secret(params, endpoint::secret()?, watch))
    }

    /// The same with a secret that the caller has drawn, so that a simulation repeats.
    pub fn with_secret(params: MonitorParams, secret: Secret, watch: W) -> Self {
        let receiver = Receiver::new(params, secret);
        let books = Books::new(1, MonitorConfig::FORGET);
        Self { receiver, books, watch, end: |_, _| Ok(()) }
    }

    /// The same, with a function that runs at the end of the source, such as
    /// [`Outputs::finish`](super::output::Outputs::finish).
    #[must_use]
    pub fn with_end(mut self, end: fn(W, &Stop) -> Result<(), Failure>) -> Self {
        self.end = end;
        self
    }

    fn attend(&mut self, now: Time) {
        let Self { receiver, books, watch, .. } = self;
        while let Some(event) = receiver.poll_event() {
            books.on_event(now, receiver.monitor(), event, watch);
        }
    }
}

impl<W: Watch> Receive for Incoming<W> {
    fn handle_datagram(
        &mut self,
        now: Time,
        forward: SessionId,
        by: PathId,
        datagram: Datagram<'_>,
    ) -> bool {
        let result = self.receiver.handle_datagram(now, forward, Sender::by(by), datagram);
        self.attend(now);
        result.is_some()
    }

    fn turn(&mut self, now: Time) {
        self.receiver.handle_timeout(now);
        self.attend(now);
        let Self { receiver, books, watch, .. } = self;
        books.hand_out_records(now, receiver.monitor_mut(), watch);
        books.details.handle_timeout(now);
        watch.turn(now);
    }

    fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<(PathId, usize, Dscp)> {
        let answer = self.receiver.poll_transmit(now, out)?;
        Some((answer.peer.path(), answer.len, answer.dscp))
    }

    fn board(&mut self, now: Time, update: &Transmit, max_len: usize, out: &mut Vec<u8>) -> usize {
        self.receiver.board(now, Sender::by(update.path), (update, max_len), out)
    }

    fn finish(self: Box<Self>, stop: &Stop) -> Result<(), Failure> {
        (self.end)(self.watch, stop)
    }

    fn poll_timeout(&self) -> Option<Time> {
        Time::earliest([self.receiver.poll_timeout(), self.books.poll_timeout()])
    }
}

impl Sender {
    /// The peer of a source by one of its paths, which is the port of an address that is not used
    /// otherwise.
    pub(crate) fn by(path: PathId) -> Self {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, path.0.into()));
        Self { address, local: None, connection: None, origin: Origin::default() }
    }

    /// A sender of this network.
    #[cfg(test)]
    pub(crate) fn of_network(network: u64) -> Self {
        Self { origin: Origin { network, ..Origin::default() }, ..Self::by(PathId(0)) }
    }

    /// A sender of this number.
    #[cfg(test)]
    pub(crate) fn of_number(number: u16) -> Self {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, number));
        Self { address, ..Self::by(PathId(0)) }
    }

    /// Its number.
    #[cfg(test)]
    pub(crate) fn number(&self) -> u16 {
        self.address.port()
    }

    fn path(&self) -> PathId {
        PathId(self.address.port() as u8)
    }
}
