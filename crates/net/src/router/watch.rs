//! Watches the packets that leave through a device, and reports how a classifier would class them.
//! It changes nothing.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use freshline_core::router::{
    Class, Classifier, Decision, FlowKey, Guard, Header, Reason, classify,
};
use freshline_core::unit::{Bytes, Time};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Uid;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;

use super::ledger::end;
use super::{RouterError, seed, system};
use crate::clock::Clock;
use crate::stop::Stop;

/// The timeout of a read, so that a stop is noticed.
const PATIENCE: Duration = Duration::from_millis(100);
/// The kernel's `PACKET_OUTGOING`.
const OUTGOING: u8 = 4;
/// The maximum number of flows that are stored; packets of further flows are only counted.
const MAX_FLOWS: usize = 4096;

/// An observed flow, and its class. Flows are ordered by their bytes, largest first.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct WatchedFlow {
    /// The sender's address, with its port if the protocol has ports.
    pub source: String,
    /// The receiver's, likewise.
    pub destination: String,
    /// The protocol above IP, as IANA numbers it.
    pub protocol: u8,
    /// Observed packets.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// The number of these packets that would have been in the AoI class.
    pub packets_aoi: u64,
    /// The class of the newest packet.
    pub class: &'static str,
    /// Why it has this class.
    pub reason: String,
}

/// A socket that sees the packets of a device.
#[derive(Debug)]
pub struct Watcher {
    socket: OwnedFd,
    device: usize,
    clock: Clock,
    classifier: Classifier,
    /// Also watches flows without a matching rule, for a hint.
    guard: Guard,
    flows: HashMap<FlowKey, Seen>,
    /// Packets of flows for which there was no room.
    pub packets_unknown: u64,
}

#[derive(Debug)]
struct Seen {
    packets: u64,
    bytes: u64,
    packets_aoi: u64,
    decision: Decision,
    /// Whether a flow that no rule matches behaves like updates.
    is_like_updates: bool,
}

impl Watcher {
    /// Watches the packets that leave through a device, with these rules.
    ///
    /// # Errors
    /// [`RouterError::NoDevice`], [`RouterError::NeedsRoot`], and [`RouterError::System`] if the
    /// kernel does not provide packets.
    pub fn open(device: &str, classifier: Classifier) -> Result<Self, RouterError> {
        let Ok(index) = if_nametoindex(device) else {
            return Err(RouterError::NoDevice(device.to_owned()));
        };
        if !Uid::effective().is_root() {
            return Err(RouterError::NeedsRoot);
        }
        let open = || -> io::Result<OwnedFd> {
            let socket = socket(
                AddressFamily::Packet,
                SockType::Datagram,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::EthAll,
            )?;
            let patience = TimeVal::microseconds(PATIENCE.as_micros() as i64);
            setsockopt(&socket, sockopt::ReceiveTimeout, &patience)?;
            Ok(socket)
        };
        let socket = open().map_err(system("watch the packets of the device"))?;
        let mut rng = Pcg64::from_seed(seed().map_err(RouterError::Random)?);
        Ok(Self {
            socket,
            device: index as usize,
            clock: Clock::new(),
            classifier,
            guard: Guard::new(&mut rng),
            flows: HashMap::new(),
            packets_unknown: 0,
        })
    }

    /// Watches until `until`, or until it is stopped.
    ///
    /// # Errors
    /// [`RouterError::System`] if packets cannot be read.
    pub fn run(&mut self, stop: &Stop, until: Time) -> Result<(), RouterError> {
        let mut buffer = [0; Header::SNAP_LEN];
        while !stop.is_stopped() && self.clock.now() < until {
            let received = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer);
            match received {
                Ok((length, Some(from)))
                    if from.ifindex() == self.device && from.pkttype() == OUTGOING =>
                {
                    self.on_packet(&buffer[..length.min(Header::SNAP_LEN)]);
                }
                Ok(_) => {}
                Err(error) => match io::Error::from(error) {
                    error if error.kind() == io::ErrorKind::WouldBlock => {}
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(system("read packets")(error)),
                },
            }
        }
        Ok(())
    }

    fn on_packet(&mut self, front: &[u8]) {
        let Some((header, size)) = Header::of_ip(front).zip(size_of(front)) else { return };
        let now = self.clock.now();
        let decision = classify(&self.classifier, Some(&mut self.guard), now, &header, size);
        let is_like_updates = decision.reason == Reason::NoRule
            && header.flow.protocol == FlowKey::UDP
            && self.guard.on_packet(now, &header, size).is_none();
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&header.flow) {
            self.packets_unknown += 1;
            return;
        }
        let seen = self.flows.entry(header.flow).or_insert(Seen {
            packets: 0,
            bytes: 0,
            packets_aoi: 0,
            decision,
            is_like_updates,
        });
        seen.packets += 1;
        seen.bytes += size.get();
        seen.packets_aoi += u64::from(decision.class == Class::Aoi);
        (seen.decision, seen.is_like_updates) = (decision, is_like_updates);
    }

    /// The flows with the most bytes, at most `most`.
    pub fn flows(&self, most: usize) -> Vec<WatchedFlow> {
        let mut flows: Vec<_> = self.flows.iter().collect();
        flows.sort_by_key(|(key, seen)| (std::cmp::Reverse(seen.bytes), key.source_port));
        flows.truncate(most);
        flows.into_iter().map(|(key, seen)| self.watched_flow(key, seen)).collect()
    }

    fn watched_flow(&self, key: &FlowKey, seen: &Seen) -> WatchedFlow {
        let mut reason = self.classifier.explain(seen.decision.reason);
        if seen.is_like_updates {
            let port = key.destination_port;
            reason +=
                &format!("; comes as evenly as updates: `udp and dport={port}` would take it");
        }
        WatchedFlow {
            source: end(key.source, key.source_port),
            destination: end(key.destination, key.destination_port),
            protocol: key.protocol,
            packets: seen.packets,
            bytes: seen.bytes,
            packets_aoi: seen.packets_aoi,
            class: seen.decision.class.name(),
            reason,
        }
    }
}

/// The length in an IP header.
fn size_of(front: &[u8]) -> Option<Bytes> {
    let length = |at: usize| {
        let bytes = front.get(at..at + 2)?.first_chunk()?;
        Some(u64::from(u16::from_be_bytes(*bytes)))
    };
    match front.first()? >> 4 {
        4 => length(2).map(Bytes::new),
        6 => length(4).map(|payload| Bytes::new(payload + 40)),
        _ => None,
    }
}
