//! Reaches a peer that may have several addresses, or none yet: its name is looked up repeatedly
//! while there is no answer, and its addresses are tried in the order and at the intervals of RFC
//! 8305 ("Happy Eyeballs"), sections 4 and 5. Section 3 is not followed: there are no separate
//! queries for AAAA and A with a delay of 50 ms between the answers, since the system's
//! `getaddrinfo` waits for both.

mod dialler;
mod lookup;
mod race;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

pub(crate) use dialler::{Dialler, Settings};
pub(crate) use lookup::Lookup;
pub(crate) use race::{Race, interleave};

/// A peer's host, by name or address, and its UDP port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Remote {
    host: String,
    port: u16,
    literal: Option<SocketAddr>,
}

impl Remote {
    /// The peer at `host`, a name or an address without brackets, and `port`.
    pub fn new(host: &str, port: u16) -> Self {
        let literal = host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port));
        Self { host: host.to_owned(), port, literal }
    }

    /// The name or the address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The UDP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address, if it was given as one: then there is no other.
    pub fn literal(&self) -> Option<SocketAddr> {
        self.literal
    }
}

impl From<SocketAddr> for Remote {
    fn from(address: SocketAddr) -> Self {
        let host = address.ip().to_string();
        Self { host, port: address.port(), literal: Some(address) }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.literal {
            Some(address) => address.fmt(f),
            None => write!(f, "{}:{}", self.host, self.port),
        }
    }
}
