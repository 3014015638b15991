//! The sockets of a network namespace (`sock_diag(7)`): no privilege is needed.
//!
//! ```text
//! nlmsghdr │ inet_diag_msg (72 bytes) │ INET_DIAG_INFO (struct tcp_info) │ INET_DIAG_SKMEMINFO
//! ```
//!
//! Layout and numbers are those of `linux/inet_diag.h`, `linux/sock_diag.h` and `linux/tcp.h`. A
//! kernel that is older than a field of `tcp_info` sends a shorter structure; such a field reads as
//! 0.

mod tcp_info;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::attributes::{find, ne_u32};
use super::client::{Client, Protocol, TIMEOUT};
use super::error::NetlinkError;

pub use tcp_info::TcpInfo;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `sizeof(struct inet_diag_req_v2)` and `sizeof(struct inet_diag_msg)`.
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
/// Attributes (`INET_DIAG_*`). A request asks for attribute n by bit n - 1.
const INFO: u16 = 2;
const MEMORY: u16 = 7;
/// `TCP_ESTABLISHED`, and `TCP_CLOSE`, in which UDP's unconnected sockets are.
const ESTABLISHED: u32 = 1;
const CLOSED: u32 = 7;

/// An established TCP connection of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSocket {
    /// The fields that all sockets have.
    pub socket: Socket,
    /// TCP's information about the connection.
    pub info: TcpInfo,
}

/// A socket of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// The kernel's number of the socket, which no other socket gets until the next start of the
    /// host.
    pub cookie: u64,
    /// Its address and port.
    pub local: SocketAddr,
    /// The peer's; unspecified for an unconnected UDP socket.
    pub remote: SocketAddr,
    /// Received bytes that the application has not read.
    pub receive_queue: u32,
    /// TCP: bytes of the application that the peer has not acknowledged. UDP: as `memory.sending`.
    pub send_queue: u32,
    /// How much memory it uses; zeros where the kernel does not report it.
    pub memory: SocketMemory,
}

/// The memory of a socket in bytes, including the kernel's overhead around the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketMemory {
    /// Of received packets.
    pub receiving: u32,
    /// Its limit (`SO_RCVBUF`).
    pub receive_buffer: u32,
    /// Of packets in this host's queueing disciplines and devices.
    pub sending: u32,
    /// Received packets that were dropped, as the socket's buffer was full.
    pub drops: u32,
}

/// Lists the sockets of the network namespace in which the calling thread was when it opened this.
#[derive(Debug)]
pub struct Sockets {
    client: Client,
}

impl Sockets {
    /// Opens a socket to the kernel.
    ///
    /// # Errors
    /// [`NetlinkError::System`]: `EPROTONOSUPPORT` where the kernel has no `sock_diag`.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { client: Client::open(Protocol::SocketDiagnosis, TIMEOUT)? })
    }

    /// All established TCP connections, over IPv4 and IPv6.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn tcp(&mut self) -> Result<Vec<TcpSocket>, NetlinkError> {
        self.list(nix::libc::IPPROTO_TCP, 1 << ESTABLISHED, tcp_socket)
    }

    /// All UDP sockets, over IPv4 and IPv6.
    ///
    /// # Errors
    /// [`NetlinkError`]: `ENOENT` where the kernel was built without `udp_diag`.
    pub fn udp(&mut self) -> Result<Vec<Socket>, NetlinkError> {
        self.list(nix::libc::IPPROTO_UDP, 1 << ESTABLISHED | 1 << CLOSED, socket)
    }

    fn list<T>(
        &mut self,
        protocol: i32,
        states: u32,
        read: fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut found = Vec::new();
        for family in [nix::libc::AF_INET, nix::libc::AF_INET6] {
            let mut request = [0; REQUEST];
            let wanted = (1 << (INFO - 1)) | (1 << (MEMORY - 1));
            request[..3].copy_from_slice(&[family as u8, protocol as u8, wanted]);
            request[4..8].copy_from_slice(&states.to_ne_bytes());
            let listed =
                self.client.dump(BY_FAMILY, |put| _ = put.raw(&request), |_, body| read(body))?;
            found.extend(listed);
        }
        Ok(found)
    }
}

fn tcp_socket(body: &[u8]) -> Option<TcpSocket> {
    let socket = socket(body)?;
    let info = find(body.get(MESSAGE..)?, INFO)?;
    Some(TcpSocket { socket, info: TcpInfo::parse(info) })
}

/// Reads the body of a message (`struct inet_diag_msg` and attributes).
fn socket(body: &[u8]) -> Option<Socket> {
    let (header, attributes) = body.split_at_checked(MESSAGE)?;
    let number = |at: usize| ne_u32(&header[at..]).unwrap_or_default();
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let is_v4 = i32::from(header[0]) == nix::libc::AF_INET;
    let address = |at: usize| address(&header[at..at + 16], is_v4);
    Some(Socket {
        cookie: u64::from(number(44)) | u64::from(number(48)) << 32,
        local: SocketAddr::new(address(8)?, port(4)),
        remote: SocketAddr::new(address(24)?, port(6)),
        receive_queue: number(56),
        send_queue: number(60),
        memory: find(attributes, MEMORY).map(memory).unwrap_or_default(),
    })
}

/// An address; IPv4 that is mapped into IPv6 as IPv4.
fn address(bytes: &[u8], is_v4: bool) -> Option<IpAddr> {
    if is_v4 {
        return Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into());
    }
    Some(IpAddr::from(Ipv6Addr::from(*bytes.first_chunk::<16>()?)).to_canonical())
}

fn memory(numbers: &[u8]) -> SocketMemory {
    let number = |at: usize| numbers.get(at * 4..).and_then(ne_u32).unwrap_or_default();
    SocketMemory {
        receiving: number(0),
        receive_buffer: number(1),
        sending: number(2),
        drops: number(8),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_connection_is_listed_with_what_the_application_has_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 5000]).unwrap();
        // The first byte may arrive before the others.
        server.read_exact(&mut [0; 1]).unwrap();
        let mut sockets = Sockets::open().unwrap();
        let of = |all: &[TcpSocket], local: SocketAddr, remote: SocketAddr| {
            let is_it = |one: &&TcpSocket| (one.socket.local, one.socket.remote) == (local, remote);
            all.iter().find(is_it).cloned().unwrap()
        };
        let (near, far) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let all = sockets.tcp().unwrap();
        let (sender, receiver) = (of(&all, near, far), of(&all, far, near));
        assert!(receiver.socket.receive_queue <= 4999, "{receiver:?}");
        assert!(receiver.info.bytes_received >= 1, "{receiver:?}");
        assert!(sender.info.mss > 500 && sender.info.cwnd > 0, "{sender:?}");
        assert_ne!(sender.socket.cookie, receiver.socket.cookie);
    }

    #[test]
    fn udp_sockets_are_listed_with_their_buffers() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        match Sockets::open().unwrap().udp() {
            Err(error) if error.errno() == Some(nix::libc::ENOENT) => {
                println!("skipped: needs udp_diag");
            }
            all => {
                let all = all.unwrap();
                let found = all.iter().find(|one| one.local == local).unwrap();
                assert!(found.memory.receive_buffer > 0, "{found:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(socket(&bytes).is_some(), bytes.len() >= MESSAGE);
            let _ = tcp_socket(&bytes);
        }
    }
}
