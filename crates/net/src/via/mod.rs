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
