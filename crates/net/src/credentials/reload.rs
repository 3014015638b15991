//! New credentials, and authorities, for an endpoint that runs on another thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::Credentials;
use crate::ask::Gone;
use crate::quic::ServerConfig;
use crate::waker::Waker;

/// The settings to replace.
#[derive(Default)]
pub struct Change {
    /// The tokens that may open sessions.
    pub credentials: Option<Credentials>,
    /// The settings of QUIC, for the same identity, with other authorities of clients.
    pub quic: Option<ServerConfig>,
}

/// A change, and a channel to report how many sessions it ended.
pub(crate) struct Order {
    pub(crate) change: Change,
    pub(crate) ended: Sender<usize>,
}

/// Gives new credentials and authorities to a running endpoint.
pub struct Reloader {
    orders: Sender<Order>,
    waker: Arc<Waker>,
}

impl Reloader {
    /// Puts a change in force. Returns the number of sessions that it does not permit, which have
    /// been ended.
    ///
    /// # Errors
    /// [`Gone`] if the endpoint is no longer running.
    pub fn replace(&self, change: Change) -> Result<usize, Gone> {
        let (ended, answer) = channel();
        self.orders.send(Order { change, ended }).map_err(|_| Gone)?;
        self.waker.wake().map_err(|_| Gone)?;
        answer.recv().map_err(|_| Gone)
    }
}

/// The endpoint's side.
pub(crate) struct Reloads {
    orders: (Sender<Order>, Receiver<Order>),
    waker: Arc<Waker>,
}

impl Reloads {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Self { orders: channel(), waker }
    }

    pub(crate) fn reloader(&self) -> Reloader {
        Reloader { orders: self.orders.0.clone(), waker: Arc::clone(&self.waker) }
    }

    pub(crate) fn next(&self) -> Option<Order> {
        self.orders.1.try_recv().ok()
    }
}
