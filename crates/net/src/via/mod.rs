//! The exits of packets from this host: interfaces and addresses, their present list, the queues of
//! their devices, and departure times from these queues.

mod departures;
mod device_queue;
mod discipline;
mod interfaces;
mod networks;
mod path;
mod path_key;
mod queue_report;
mod station_queue;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::sys::socket::{getsockopt, sockopt};
use socket2::{Domain, Protocol, Type};

pub(crate) use departures::Departures;
pub(crate) use device_queue::{DeviceQueues, Seen};
pub use discipline::{QueueCounters, parse as parse_discipline};
pub(crate) use interfaces::Interfaces;
pub(crate) use networks::Networks;
pub use path::ViaPath;
pub(crate) use path_key::PathKey;
pub use queue_report::{QueueReport, QueueingDelaySource, SeenBy};
pub use station_queue::parse as parse_station_queues;

/// The exit of a path from this host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Via {
    /// An interface, with any address.
    Interface(String),
    /// The interface that has this address.
    Address(IpAddr),
    /// The exit that the routes determine.
    Any,
}

impl std::fmt::Display for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interface(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
            Self::Any => "any".fmt(f),
        }
    }
}

impl From<&str> for Via {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Interface(text.to_owned()), Self::Address)
    }
}

/// A non-blocking socket that leaves by `via`, for the address family of `peer`.
pub(crate) fn bind(via: &Via, peer: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let domain = Domain::for_address(peer);
    let socket = socket2::Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = match via {
        Via::Interface(name) => {
            socket.bind_device(Some(name.as_bytes()))?;
            any
        }
        Via::Address(address) => *address,
        Via::Any => any,
    };
    socket.bind(&SocketAddr::new(from, 0).into())?;
    Ok(socket.into())
}

/// The headers of IPv6, which are the longer ones, and UDP, in bytes.
const HEADERS: i32 = 40 + 8;

/// The largest UDP payload, in bytes, that the device towards `peer` sends in one packet by `via`; `None`
/// if the system knows no route. The path behind the device may carry less.
pub(crate) fn max_payload(via: &Via, peer: SocketAddr) -> Option<u16> {
    let socket = bind(via, peer).ok()?;
    // Sends nothing.
    socket.connect(peer).ok()?;
    let mtu = getsockopt(&socket, sockopt::IpMtu).ok()?;
    Some(u16::try_from(mtu - HEADERS).unwrap_or(if mtu > HEADERS { u16::MAX } else { 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_payload_is_that_of_the_device() {
        let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let mtu: u32 = mtu.trim().parse().unwrap();
        // No packet of IPv4 is longer than this, whatever the device permits.
        let mtus = [mtu, mtu.min(65_535)];
        let own = Via::Address("127.0.0.1".parse().unwrap());
        for (via, peer) in [(Via::Any, "127.0.0.1:9"), (own, "127.0.0.2:9"), (Via::Any, "[::1]:9")]
        {
            match max_payload(&via, peer.parse().unwrap()) {
                Some(payload) => assert!(mtus.contains(&(u32::from(payload) + 48)), "{payload}"),
                None => assert!(peer.starts_with('['), "a host may have no IPv6, not no IPv4"),
            }
        }
        assert_eq!(max_payload(&Via::from("no-such"), "127.0.0.1:9".parse().unwrap()), None);
    }
}
