//! Interfaces, addresses, routes and queueing disciplines (rtnetlink).

mod link;
mod qdisc;
mod survey;

use std::time::Duration;

use netlink_packet_core::Emitable;
use netlink_packet_route::RouteNetlinkMessage;

use super::client::{Client, Protocol, TIMEOUT};
use super::error::NetlinkError;
use super::request::Writer;

pub use link::LinkSettings;
pub use qdisc::{Handle, Qdisc, QueueStats};
pub use survey::{LinkReport, NextHop};

/// The network configuration of the namespace in which the calling thread was when it opened this.
#[derive(Debug)]
pub struct Route {
    client: Client,
}

impl Route {
    /// Opens a socket; requests wait for their answers up to [`TIMEOUT`].
    ///
    /// # Errors
    /// [`NetlinkError::System`].
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { client: Client::open(Protocol::Route, TIMEOUT)? })
    }

    /// Opens a socket on which requests never wait: for loops that must not be held up.
    ///
    /// # Errors
    /// [`NetlinkError::System`].
    pub fn open_nonblocking() -> Result<Self, NetlinkError> {
        Ok(Self { client: Client::open(Protocol::Route, Duration::ZERO)? })
    }

    fn change(&mut self, message: &RouteNetlinkMessage, flags: u16) -> Result<(), NetlinkError> {
        self.client.change(message.message_type(), flags, written(message))
    }

    fn get<T>(
        &mut self,
        message: &RouteNetlinkMessage,
        flags: u16,
        mut read: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<T, NetlinkError> {
        let kind = message.message_type();
        self.client.get(kind, flags, written(message), |_, body| read(body))
    }

    /// Reads each entry of a list; entries for which `read` returns `None` are left out.
    fn dump<T>(
        &mut self,
        message: &RouteNetlinkMessage,
        mut read: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        self.client.dump(message.message_type(), written(message), |_, body| read(body))
    }
}

fn written(message: &RouteNetlinkMessage) -> impl FnOnce(&mut Writer<'_>) {
    move |put| _ = put.emit(message)
}

/// The part of a message after its fixed header `H`.
fn behind<H: Emitable + Default>(body: &[u8]) -> Option<&[u8]> {
    body.get(H::default().buffer_len()..)
}
