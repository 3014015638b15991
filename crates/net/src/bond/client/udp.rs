//! SOCKS5's UDP ASSOCIATE (RFC 1928, section 7): carries programs' datagrams to anywhere by the
//! server.
//!
//! ```text
//!   program ─► UDP: 0, 0, fragment, kind, address, port, payload ─► DATAGRAM frames ─► server
//! ```
//!
//! An association ends with the TCP connection that asked for it. Datagrams are accepted only from
//! the host of that connection, and from the first port that sends one. Fragments are dropped, as
//! the RFC permits.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use freshline_core::unit::Time;
use mio::net::UdpSocket;
use slab::Slab;

use super::super::driver::{Driver, Watched};
use super::super::head::{Parsed, parse_target};
use super::super::link::Link;
use super::super::udp::{self, Numbers, Partials};

/// The first bytes of a whole SOCKS5 datagram: two reserved ones, and the number of the fragment.
const WHOLE: [u8; 3] = [0, 0, 0];

/// One association.
#[derive(Debug)]
struct Association {
    socket: UdpSocket,
    /// The number of its flow, which is unique per client.
    flow: u32,
    /// The host of the program.
    host: IpAddr,
    /// The program's address, once it has sent a datagram.
    program: Option<SocketAddr>,
    numbers: Numbers,
    /// It is in the list of ready ones.
    is_ready: bool,
}

/// The associations of a client.
#[derive(Debug, Default)]
pub(super) struct Associations {
    all: Slab<Association>,
    by_flow: HashMap<u32, usize>,
    flows: u32,
    /// Associations whose sockets may have something to read, each once.
    ready: Vec<usize>,
    /// Incomplete messages from the server.
    partials: Partials,
    buffer: Vec<u8>,
}

impl Associations {
    /// Opens a socket at this address for a program whose connection came from `host`. Returns the
    /// association's number, and the socket's address.
    pub(super) fn open(
        &mut self,
        driver: &Driver,
        at: SocketAddr,
        host: IpAddr,
    ) -> io::Result<(usize, SocketAddr)> {
        let mut socket = UdpSocket::bind(at)?;
        let address = socket.local_addr()?;
        let entry = self.all.vacant_entry();
        driver.watch(&mut socket, Watched::Relay(entry.key()))?;
        // Not the number of an older flow, which the server may still have.
        self.flows = self.flows.wrapping_add(1);
        let (key, flow) = (entry.key(), self.flows);
        self.by_flow.insert(flow, key);
        entry.insert(Association {
            socket,
            flow,
            host: host.to_canonical(),
            program: None,
            numbers: Numbers::default(),
            is_ready: true,
        });
        self.ready.push(key);
        Ok((key, address))
    }

    /// Ends an association.
    pub(super) fn close(&mut self, key: usize) {
        if let Some(association) = self.all.try_remove(key) {
            self.by_flow.remove(&association.flow);
            self.ready.retain(|ready| *ready != key);
        }
    }

    /// The number of associations.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The poll reports that its socket can be read.
    pub(super) fn on_ready(&mut self, key: usize) {
        if let Some(association) = self.all.get_mut(key)
            && !std::mem::replace(&mut association.is_ready, true)
        {
            self.ready.push(key);
        }
    }

    /// Drops messages that have been incomplete for too long.
    pub(super) fn sweep(&mut self, now: Time) {
        self.partials.expire(now);
    }

    /// Sends the datagrams of programs; returns whether there may be more.
    pub(super) fn pump(&mut self, mut link: Option<&mut Link>, driver: &mut Driver) -> bool {
        self.buffer.resize(udp::LONGEST, 0);
        for key in std::mem::take(&mut self.ready) {
            let Some(association) = self.all.get_mut(key) else { continue };
            association.is_ready = false;
            for turn in 0.. {
                if turn == udp::A_TURN {
                    association.is_ready = true;
                    self.ready.push(key);
                    break;
                }
                let (len, from) = match association.socket.recv_from(&mut self.buffer) {
                    Ok(received) => received,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    // An ICMP error for a datagram to the program.
                    Err(_) => continue,
                };
                let message = association.accept(&self.buffer[..len], from);
                let is_sent = message.is_some_and(|message| {
                    let link = link.as_deref_mut();
                    link.is_some_and(|link| {
                        association.numbers.send(&mut link.connection, association.flow, message)
                    })
                });
                driver.datagrams.count_up(is_sent);
            }
        }
        !self.ready.is_empty()
    }

    /// Passes datagrams from the server to programs.
    pub(super) fn on_frames(&mut self, link: &mut Link, driver: &mut Driver, now: Time) {
        while let Some(bytes) = link.connection.datagrams().recv() {
            let frame = udp::parse(&bytes);
            let key = frame.as_ref().and_then(|frame| self.by_flow.get(&frame.flow).copied());
            let (Some(frame), Some(key)) = (frame, key) else {
                driver.datagrams.count_down(false);
                continue;
            };
            let association = &mut self.all[key];
            let Some(message) = self.partials.join(frame, now) else { continue };
            let datagram = [&WHOLE[..], &message].concat();
            let is_given = association
                .program
                .is_some_and(|program| association.socket.send_to(&datagram, program).is_ok());
            driver.datagrams.count_down(is_given);
        }
    }
}

impl Association {
    /// The message in a program's datagram; `None` if the datagram is dropped.
    fn accept<'a>(&mut self, datagram: &'a [u8], from: SocketAddr) -> Option<&'a [u8]> {
        let is_his = self.program.is_none_or(|program| program == from);
        if from.ip().to_canonical() != self.host || !is_his {
            return None;
        }
        let message = datagram.strip_prefix(&WHOLE)?;
        matches!(parse_target(message), Parsed::Whole(..)).then(|| {
            self.program = Some(from);
            message
        })
    }
}

#[cfg(test)]
mod tests {
    use noq_proto::EndpointConfig;
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use super::super::super::Sending;
    use super::*;

    #[test]
    fn a_socket_that_is_reported_many_times_has_one_turn() {
        let endpoint = noq_proto::Endpoint::new(Arc::new(EndpointConfig::default()), None, true);
        let driver = Driver::new(endpoint, Sending::default()).unwrap();
        let mut associations = Associations::default();
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (key, _) = associations.open(&driver, SocketAddr::new(here, 0), here).unwrap();
        (0..100).for_each(|_| associations.on_ready(key));
        assert_eq!(associations.ready, [key]);
        associations.close(key);
        associations.on_ready(key);
        assert!(associations.ready.is_empty());
    }
}
