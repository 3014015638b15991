//! Admission of clients: which newcomers a server accepts, and which clients are closed to make
//! room.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use freshline_core::session::Origin;
use freshline_core::unit::Time;
use noq_proto::{ConnectionHandle, Incoming};

use super::Server;
use crate::batch::Address;
use crate::bond::socket::Parcel;
use crate::bond::{BondError, config};
use crate::handshakes::Entry;
use crate::network::{self, Network};
use crate::quic;
use crate::refusal::Refusal;
use crate::via::{self, Via};

/// The maximum number of unfinished handshakes. Beyond it, the network with the most handshakes
/// loses its oldest one, so that a flood of handshakes displaces its own.
const HANDSHAKES: usize = 64;

/// If the server is full, it pings the clients that have been silent for `SILENT`. A client that
/// does not answer within `GONE` may be closed to make room.
const SILENT: Duration = Duration::from_secs(2);
const GONE: Duration = Duration::from_secs(2);

/// With at least this many unfinished handshakes, newcomers must validate their addresses first
/// (RFC 9000, section 8.1.2).
const RETRY_ABOVE: usize = 8;

impl Server {
    /// Decides on a newcomer: accept it, request validation of its address, or refuse it.
    pub(super) fn welcome(&mut self, incoming: Incoming, now: Time) -> Result<(), BondError> {
        let instant = self.driver.clock.instant_of(now);
        let mut reply = Vec::new();
        let clients = self.clients();
        let handshakes = self.links.len() - clients;
        let is_full = clients >= self.max_links;
        if is_full {
            // Some clients may have disappeared without a close. The newcomer will try again.
            self.links.values_mut().for_each(|(link, _)| link.ask(SILENT, instant));
        }
        let from = incoming.remote_address();
        let is_proven = incoming.remote_address_validated();
        let token = is_proven.then(|| incoming.orig_dst_cid());
        let has_no_place = is_full
            && self.gone(instant).is_none()
            && self.gives_way(&network::origin(from, 0)).is_none();
        let entry = match () {
            () if has_no_place => Entry::Out(Refusal::Connections),
            () if handshakes >= RETRY_ABOVE && !is_proven => Entry::Prove,
            () => self.rates.decide(instant, from.ip(), token),
        };
        if let Entry::Out(reason) = entry {
            self.driver.refusals.count(reason);
        }
        let answer = if has_no_place {
            Some(self.driver.endpoint.refuse(incoming, &mut reply))
        } else if entry == Entry::Prove {
            match self.driver.endpoint.retry(incoming, &mut reply) {
                Ok(transmit) => Some(transmit),
                Err(error) => {
                    self.driver.endpoint.ignore(error.into_incoming());
                    None
                }
            }
        } else if entry != Entry::In {
            self.driver.endpoint.ignore(incoming);
            None
        } else {
            let max_payload = via::max_payload(&Via::Any, from).unwrap_or(config::USUAL_PAYLOAD);
            let quic = config::next_server(&self.quic, &self.driver.sending, max_payload);
            match self.driver.endpoint.accept(incoming, instant, &mut reply, Some(quic)) {
                Ok((handle, connection)) => {
                    if handshakes >= HANDSHAKES {
                        self.drop_oldest_handshake();
                    }
                    let mut link = self.driver.link(handle, connection, instant)?;
                    link.from = Some(from);
                    self.links.insert(handle, (link, now));
                    self.settle(handle);
                    None
                }
                Err(error) => {
                    self.driver.refusals.count(Refusal::Handshake);
                    error.response
                }
            }
        };
        if let Some(transmit) = answer {
            let to = Address { remote: transmit.destination, local: transmit.src_ip };
            self.outlet.push(to, Parcel::alone(&reply[..transmit.size]));
        }
        Ok(())
    }

    /// The number of connected clients.
    pub(super) fn clients(&self) -> usize {
        self.links.values().filter(|(link, _)| link.is_ready).count()
    }

    /// The client that has not answered a ping for the longest time, if that is at least [`GONE`].
    pub(super) fn gone(&self, now: Instant) -> Option<ConnectionHandle> {
        let ready = self.links.iter().filter(|(_, (link, _))| link.is_ready);
        let silences = ready.map(|(handle, (link, _))| (link.unanswered(now), *handle));
        let gone = silences.filter(|(silence, _)| *silence >= GONE);
        gone.max_by_key(|(silence, _)| *silence).map(|(_, handle)| handle)
    }

    /// A client of the party with the most clients: by certificate first, then by network and
    /// address.
    pub(super) fn gives_way(&mut self, newcomer: &Origin) -> Option<ConnectionHandle> {
        let Self { shares, links, .. } = self;
        let heard = |number: u32| {
            let link = links.get(&ConnectionHandle(number as usize));
            link.and_then(|(link, _)| link.heard_at)
        };
        shares.gives_way(newcomer, heard).map(|number| ConnectionHandle(number as usize))
    }

    /// Drops the oldest handshake of the network with the most unfinished handshakes.
    fn drop_oldest_handshake(&mut self) {
        let mut crowds = HashMap::new();
        // Includes failed handshakes that are not removed yet.
        for (handle, (link, began_at)) in self.links.iter().filter(|(_, (link, _))| !link.is_ready)
        {
            let network = link.from.map(|from| Network::of(from.ip()));
            let (number, oldest) = crowds.entry(network).or_insert((0, (*began_at, handle.0)));
            *number += 1;
            *oldest = (*oldest).min((*began_at, handle.0));
        }
        let largest =
            crowds.into_values().max_by_key(|(number, oldest)| (*number, Reverse(*oldest)));
        if let Some((_, (_, handle))) = largest {
            self.driver.refusals.count(Refusal::ConnectionDisplaced);
            self.drop_handshake(ConnectionHandle(handle));
        }
    }

    /// Drops a handshake without sending a close, as its address may be spoofed.
    pub(super) fn drop_handshake(&mut self, handle: ConnectionHandle) {
        if let Some((link, _)) = self.links.remove(&handle) {
            link.forget(&mut self.driver.endpoint);
        }
    }

    /// The parties to which a client counts: its certificate, and the address validated by its
    /// handshake.
    pub(super) fn origin(&self, handle: ConnectionHandle) -> Origin {
        let Some((link, _)) = self.links.get(&handle) else { return Origin::default() };
        let identity = quic::identity(&link.connection);
        link.from.map_or_else(Origin::default, |from| {
            network::origin(from, identity.map_or(0, NonZeroU64::get))
        })
    }
}
