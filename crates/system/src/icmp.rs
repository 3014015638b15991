//! ICMP timestamps (RFC 792): a host's clock when it received a request, in ms. Needs `CAP_NET_RAW`.
//!
//! Our clock at the sending and at the return, and the target's at the arrival, give both one-way delays up
//! to the unknown difference of the clocks.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto, socket,
};

/// Types of messages.
const TIMESTAMP: u8 = 13;
const TIMESTAMP_REPLY: u8 = 14;
/// Bytes of a message.
const LEN: usize = 20;
/// The minimum length of an IPv4 header.
const IP_HEADER: usize = 20;
/// In the target's number: it does not count from midnight UTC, which does not matter here.
const NOT_STANDARD: u32 = 1 << 31;

/// Asks one host for its clock.
#[derive(Debug)]
pub struct ClockProbe {
    socket: OwnedFd,
    target: SockaddrIn,
    id: u16,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReply {
    /// The number of the request.
    pub seq: u16,
    /// The target's clock when it received the request, in ms, from an unknown moment on.
    pub received_ms: u32,
}

impl ClockProbe {
    /// Opens a socket for requests that carry `id`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`.
    pub fn open(target: Ipv4Addr, id: u16) -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Icmp)?;
        let [a, b, c, d] = target.octets();
        Ok(Self { socket, target: SockaddrIn::new(a, b, c, d, 0), id })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Of the system call.
    pub fn send(&self, seq: u16) -> io::Result<()> {
        sendto(self.socket.as_raw_fd(), &request(self.id, seq), &self.target, MsgFlags::empty())?;
        Ok(())
    }

    /// The next answer to one of our requests, if there is one. Never waits.
    ///
    /// # Errors
    /// Of the system call.
    pub fn receive(&self) -> io::Result<Option<ClockReply>> {
        let mut packet = [0; 128];
        loop {
            match recv(self.socket.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                Ok(len) => {
                    if let Some(reply) = reply(&packet[..len], self.id) {
                        return Ok(Some(reply));
                    }
                }
                Err(nix::errno::Errno::EAGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn request(id: u16, seq: u16) -> [u8; LEN] {
    let mut message = [0; LEN];
    message[0] = TIMESTAMP;
    message[4..6].copy_from_slice(&id.to_be_bytes());
    message[6..8].copy_from_slice(&seq.to_be_bytes());
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// The checksum of RFC 1071 over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Reads a received IPv4 packet.
fn reply(packet: &[u8], id: u16) -> Option<ClockReply> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let message = packet.get(header.max(IP_HEADER)..)?.first_chunk::<LEN>()?;
    let half = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    if message[0] != TIMESTAMP_REPLY || half(4) != id {
        return None;
    }
    let received = u32::from_be_bytes([message[12], message[13], message[14], message[15]]);
    Some(ClockReply { seq: half(6), received_ms: received & !NOT_STANDARD })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_has_a_valid_checksum() {
        let message = request(0x1234, 7);
        assert_eq!(checksum(&message), 0);
        assert_eq!((message[0], message[7]), (TIMESTAMP, 7));
    }

    #[test]
    fn a_reply_to_our_request_is_read() {
        let mut packet = vec![0; IP_HEADER + LEN];
        packet[0] = 0x45;
        packet[IP_HEADER] = TIMESTAMP_REPLY;
        packet[IP_HEADER + 4..IP_HEADER + 8].copy_from_slice(&[0x12, 0x34, 0, 7]);
        packet[IP_HEADER + 12..IP_HEADER + 16].copy_from_slice(&[0x80, 0, 1, 0]);
        assert_eq!(reply(&packet, 0x1234), Some(ClockReply { seq: 7, received_ms: 256 }));
        assert_eq!(reply(&packet, 0x1235), None, "of another process");
        assert_eq!(reply(&packet[..39], 0x1234), None, "cut");
    }

    proptest! {
        #[test]
        fn any_packet_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = reply(&bytes, 1);
        }
    }
}
