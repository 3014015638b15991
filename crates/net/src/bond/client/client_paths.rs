//! The local interfaces and addresses by which a client reaches its server, and the path of each.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use freshline_core::unit::Time;
use noq_proto::{FourTuple, PathId, VarInt};

use super::super::socket::Outlet;
use super::super::status::{ViaReport, ViaState};
use super::{Client, LOOKUP_RETRY, MAX_ADDRESSES};
use crate::dial::interleave;
use crate::via::{Interfaces, Via};

/// One `--via` of the client.
#[derive(Debug)]
pub(super) struct ClientPath {
    pub(super) via: Via,
    /// The server's address on this path.
    pub(super) peer: SocketAddr,
    /// The address was given for this path alone.
    is_fixed: bool,
    /// Its local address as noq-proto sees it: made up, so that it stays when the real one changes.
    pub(super) label: IpAddr,
    pub(super) outlet: Option<Outlet>,
    /// The number of the interface that it is bound to.
    device: Option<u32>,
    /// The path that is open, or being opened.
    pub(super) path: Option<PathId>,
    /// The path carries data.
    pub(super) is_up: bool,
    /// Why the path is not up, as last reported; unset once it is up.
    trouble: Option<ViaState>,
    /// Attempts to open a path that the server did not answer.
    failures: u64,
    pub(super) retry_at: Time,
}

/// Before the server's name has been looked up.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl ClientPath {
    /// The `index`th of a client.
    pub(super) fn new(index: usize, via: Via, peer: Option<SocketAddr>) -> Self {
        Self {
            via,
            peer: peer.map_or(UNKNOWN, |peer| FourTuple::from_remote(peer).remote()),
            is_fixed: peer.is_some(),
            label: Ipv4Addr::from(0xf000_0001 + index as u32).into(),
            outlet: None,
            device: None,
            path: None,
            is_up: false,
            trouble: None,
            failures: 0,
            retry_at: Time::ZERO,
        }
    }

    /// The server is at this address, unless it has one of its own on this path.
    fn aim(&mut self, server: SocketAddr) {
        let server = FourTuple::from_remote(server).remote();
        if self.is_fixed || self.peer == server {
            return;
        }
        if self.peer.is_ipv4() != server.is_ipv4() {
            self.outlet = None;
        }
        self.peer = server;
    }

    /// Its report for users.
    pub(super) fn report(&self) -> ViaReport {
        let state = match self.trouble {
            _ if self.is_up => ViaState::Up,
            Some(trouble) => trouble,
            None => ViaState::Opening,
        };
        let (via, remote) = (self.via.to_string(), self.peer.to_string());
        ViaReport { via, remote, state, failures: self.failures }
    }

    /// The path carries data.
    pub(super) fn on_up(&mut self) {
        tracing::info!(via = %self.via, "path up");
        (self.is_up, self.trouble) = (true, None);
    }

    /// The path was closed: it stopped answering, or never answered.
    pub(super) fn on_gone(&mut self) {
        self.path = None;
        if std::mem::replace(&mut self.is_up, false) {
            tracing::info!(via = %self.via, "path down");
        } else if self.outlet.is_some() {
            self.on_no_answer(true);
        }
    }

    /// An attempt had no answer. It is not reported on its own where this is the only path, as the
    /// server is then reported.
    pub(super) fn on_no_answer(&mut self, is_reported: bool) {
        self.failures += 1;
        if self.is_new(ViaState::Unanswered) && is_reported {
            tracing::warn!(
                "--via {}: no answer from {} by this path; trying again",
                self.via,
                self.peer
            );
        }
    }

    /// Notes why there is no path; whether this reason is new and must be reported.
    fn is_new(&mut self, trouble: ViaState) -> bool {
        self.trouble.replace(trouble) != Some(trouble)
    }
}

impl Client {
    /// Looks the server's name up where that is due, and takes the answer. While connected, and while
    /// there is no answer, the addresses stay as they are.
    pub(super) fn look_up(&mut self, now: Time) {
        if self.link.is_some() {
            return;
        }
        if self.lookup_at.is_some_and(|at| at <= now) {
            self.lookup_at = None;
            self.lookup.ask(&self.server, &self.driver.sleeper.waker());
        }
        match self.lookup.poll() {
            None => {}
            Some(Ok(found)) => {
                let last = self.addresses.get(self.address).copied();
                self.addresses = interleave(&found, last);
                self.addresses.truncate(MAX_ADDRESSES);
                (self.address, self.is_without_address) = (0, false);
            }
            Some(Err(error)) => {
                self.lookup_at = Some(now + LOOKUP_RETRY);
                if !std::mem::replace(&mut self.is_without_address, true) {
                    tracing::warn!("{error}; trying again");
                }
            }
        }
        if let Some(address) = self.addresses.get(self.address).copied() {
            self.client_paths.iter_mut().for_each(|client_path| client_path.aim(address));
        }
    }

    /// Opens the socket of an interface that has come, and closes that of one that has gone.
    pub(super) fn check_path(&mut self, index: usize, interfaces: &Interfaces, now: Time) {
        let Self { driver, client_paths, link, .. } = self;
        let client_path = &mut client_paths[index];
        let is_there = interfaces.has(&client_path.via, client_path.peer);
        // The socket is not bound to a new interface with an old name.
        let device = is_there.then(|| interfaces.index(&client_path.via)).flatten();
        if client_path.outlet.is_some() && (!is_there || device != client_path.device) {
            client_path.outlet = None;
            if let (Some(link), Some(path)) = (link.as_mut(), client_path.path) {
                // The last path stays, for when the interface comes back.
                let instant = driver.clock.instant_of(now);
                let _ = link.connection.close_path(instant, path, VarInt::from_u32(0));
            }
        }
        if !is_there {
            client_path.is_up = false;
            if client_path.is_new(ViaState::Missing) {
                tracing::warn!(
                    "--via {}: this host has no such interface or address that is up and can reach {}; waiting for it",
                    client_path.via,
                    client_path.peer
                );
            }
            return;
        }
        driver.queues.bind(client_path.label, interfaces.device(&client_path.via));
        if client_path.outlet.is_some() {
            return;
        }
        let opened = Outlet::open(&client_path.via, client_path.peer).and_then(|mut outlet| {
            driver.watch_outlet(&mut outlet, index)?;
            Ok(outlet)
        });
        match opened {
            Ok(outlet) => {
                (client_path.outlet, client_path.device) = (Some(outlet), device);
                if matches!(client_path.trouble, Some(ViaState::Missing | ViaState::NoSocket)) {
                    client_path.trouble = None;
                }
                // The last path was kept while its interface was away.
                client_path.is_up =
                    client_path.path.is_some() && link.as_ref().is_some_and(|link| link.is_ready);
            }
            Err(error) => {
                if client_path.is_new(ViaState::NoSocket) {
                    tracing::warn!("--via {}: cannot open a socket: {error}", client_path.via);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_for_a_missing_path_is_reported_once_until_the_path_is_up() {
        let mut client_path = ClientPath::new(0, Via::from("wlan9"), "192.0.2.1:9".parse().ok());
        assert_eq!(client_path.report().state, ViaState::Opening);
        assert!(client_path.is_new(ViaState::Missing) && !client_path.is_new(ViaState::Missing));
        assert!(client_path.is_new(ViaState::Unanswered));
        client_path.on_no_answer(true);
        let report = client_path.report();
        assert_eq!((report.state, report.failures), (ViaState::Unanswered, 1));
        client_path.on_up();
        assert_eq!(client_path.report().state, ViaState::Up);
        client_path.on_gone();
        assert_eq!(
            client_path.report().state,
            ViaState::Opening,
            "it was up: this is not a failure"
        );
        assert!(client_path.is_new(ViaState::Unanswered));
    }
}
