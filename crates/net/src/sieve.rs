//! Sorts datagrams to the sockets of a server, by programs of classic BPF that the kernel runs
//! before it queues a datagram. They need no privilege.
//!
//! A QUIC server has several sockets at one address and port (`SO_REUSEPORT`), each with a receive
//! buffer of its own: [`PER_CLASS`] for connections, and the same number for strangers (unknown
//! senders). [`sort`] picks one for each datagram, by its class, and by a keyed hash of its
//! sender's network (24 bits of IPv4, 48 of IPv6):
//!
//! | datagram | class |
//! |---|---|
//! | its destination connection id begins with the server's [`Tag`] | of connections |
//! | all others | of strangers |
//!
//! At strangers' sockets, [`first_packets`] then keeps only datagrams that can begin a connection:
//! a long header in a datagram of 1200 bytes or more (RFC 9000, 14.1), of the type Initial if its
//! version is 1.
//!
//! So most garbage fills no buffer, other floods of strangers fill only the buffers of strangers,
//! and a flood from one network fills one buffer per class.
//!
//! The tag is a secret of 32 bits, but not from peers: each host that completes one round trip of a
//! handshake learns it, and so does a host on the path. Such a host can send datagrams to the
//! sockets of connections, and from forged addresses to all of them. The endpoint drops them, but
//! the buffers and the endpoint's time are shared. A keyed hash in each id would not change that,
//! as the host could repeat an id that it has seen.
//!
//! [`sort`] sees only the first of several datagrams that the kernel has joined (GRO), which are of
//! one address and port. The others go with it.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use freshline_core::wire::MAGIC;
use nix::libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_B, BPF_H, BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP,
    BPF_JSET, BPF_K, BPF_LD, BPF_LEN, BPF_MEM, BPF_MISC, BPF_MUL, BPF_RET, BPF_RSH, BPF_ST,
    BPF_TAX, BPF_W, BPF_X, BPF_XOR, SKF_NET_OFF, sock_filter, sock_fprog,
};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::AttachReusePortCbpf;
use noq_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid, RandomConnectionIdGenerator};
use socket2::{SockFilter, SockRef};

/// The length of a connection id of a server, in bytes: the tag, and random bytes.
const ID_LEN: usize = 8;
const TAG_LEN: usize = 4;

/// The prefix of the ids of all connections of one server. A restarted server has the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u32);

impl Tag {
    /// Whether an id begins with it.
    fn begins(self, id: &[u8]) -> bool {
        id.starts_with(&self.0.to_be_bytes())
    }
}

/// Makes connection ids with the tag.
#[derive(Debug)]
pub(crate) struct TaggedIds(pub(crate) Tag);

impl ConnectionIdGenerator for TaggedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let random = RandomConnectionIdGenerator::new(ID_LEN - TAG_LEN).generate_cid();
        let mut id = [0; ID_LEN];
        let (tag, rest) = id.split_at_mut(TAG_LEN);
        tag.copy_from_slice(&self.0.0.to_be_bytes());
        rest.copy_from_slice(&random);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: ConnectionId) -> Result<(), InvalidCid> {
        if self.0.begins(&id) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        ID_LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Minimum length of a datagram that can begin a connection, in bytes.
const FIRST_LEN: u32 = 1200;

/// In the first byte of a packet: a long header, and the type of one, where 0 is Initial (RFC 9000, 17.2).
const LONG: u32 = 0x80;
const TYPE: u32 = 0x30;

/// Whether a datagram may begin a connection, or is a later packet of a handshake: such a packet
/// costs keys and a decryption, whether or not its sender knows a connection.
pub(crate) fn may_begin_connection(datagram: &[u8]) -> bool {
    let is_v1 = datagram.get(1..5) == Some(&[0, 0, 0, 1]);
    datagram.first().is_some_and(|first| {
        let first = u32::from(*first);
        first & LONG != 0 && !(is_v1 && first & TYPE != 0)
    })
}

/// Sockets of each class: those of strangers, then those of connections, in the order in which they were bound.
pub(crate) const PER_CLASS: usize = 1 << CLASS_BITS;
const CLASS_BITS: u32 = 3;

/// The length of a UDP header, in bytes: the filter of a socket sees it, and the program of several
/// sockets does not.
const UDP_HEADER: u32 = 8;

/// The offset of the IP header, for both.
const IP_HEADER: u32 = SKF_NET_OFF.cast_unsigned();

/// An instruction without a jump.
fn op(code: u32, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

/// A condition, with the numbers of instructions to skip if it holds, and if not.
fn jump(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    // All codes have 16 bits.
    sock_filter { code: code as u16, jt, jf, k }
}

const LOAD_BYTE: u32 = BPF_LD | BPF_B | BPF_ABS;
const LOAD_HALF: u32 = BPF_LD | BPF_H | BPF_ABS;
const LOAD_WORD: u32 = BPF_LD | BPF_W | BPF_ABS;
const LOAD_LEN: u32 = BPF_LD | BPF_W | BPF_LEN;
const SKIP: u32 = BPF_JMP | BPF_JA;
const IF_EQUAL: u32 = BPF_JMP | BPF_JEQ | BPF_K;
const IF_ANY_BIT: u32 = BPF_JMP | BPF_JSET | BPF_K;
const IF_AT_LEAST: u32 = BPF_JMP | BPF_JGE | BPF_K;
const LOAD_VALUE: u32 = BPF_LD | BPF_W | BPF_IMM;
const KEEP_IT: u32 = BPF_ST;
const LOAD_KEPT: u32 = BPF_LD | BPF_W | BPF_MEM;
const TO_X: u32 = BPF_MISC | BPF_TAX;
const SHIFT_RIGHT: u32 = BPF_ALU | BPF_RSH | BPF_K;
const MULTIPLY: u32 = BPF_ALU | BPF_MUL | BPF_K;
const ADD_X: u32 = BPF_ALU | BPF_ADD | BPF_X;
const XOR_X: u32 = BPF_ALU | BPF_XOR | BPF_X;
const RETURN: u32 = BPF_RET | BPF_K;
const RETURN_IT: u32 = BPF_RET | BPF_A;

/// Return values of a filter: keep the whole datagram, or nothing of it.
const KEEP: u32 = u32::MAX;
const DROP: u32 = 0;

/// The number of the socket for a datagram; `key` chooses which networks share one. A load beyond the end of
/// a datagram ends the program with 0, which is a socket of strangers.
fn sorting(tag: Tag, key: u32) -> [sock_filter; 29] {
    [
        op(LOAD_BYTE, 0),
        jump(IF_ANY_BIT, LONG, 0, 4),
        // A long header has the length of the id, and the id.
        op(LOAD_BYTE, 5),
        jump(IF_EQUAL, ID_LEN as u32, 0, 6),
        op(LOAD_WORD, 6),
        op(SKIP, 1),
        // A short header has the id behind its first byte.
        op(LOAD_WORD, 1),
        jump(IF_EQUAL, tag.0, 0, 2),
        op(LOAD_VALUE, PER_CLASS as u32),
        op(SKIP, 1),
        op(LOAD_VALUE, 0),
        op(KEEP_IT, 0),
        // The network of the sender.
        op(LOAD_BYTE, IP_HEADER),
        op(SHIFT_RIGHT, 4),
        jump(IF_EQUAL, 6, 3, 0),
        op(LOAD_WORD, IP_HEADER + 12),
        op(SHIFT_RIGHT, 8),
        op(SKIP, 5),
        op(LOAD_WORD, IP_HEADER + 12),
        op(SHIFT_RIGHT, 16),
        op(TO_X, 0),
        op(LOAD_WORD, IP_HEADER + 8),
        op(XOR_X, 0),
        // The upper bits of a product with an odd number depend on all bits.
        op(MULTIPLY, key | 1),
        op(SHIFT_RIGHT, u32::BITS - CLASS_BITS),
        op(TO_X, 0),
        op(LOAD_KEPT, 0),
        op(ADD_X, 0),
        op(RETURN_IT, 0),
    ]
}

/// Keeps datagrams that can begin a connection, of the ones that [`sort`] gives to strangers'
/// sockets.
fn first_packets() -> [sock_filter; 10] {
    [
        op(LOAD_LEN, 0),
        jump(IF_AT_LEAST, UDP_HEADER + FIRST_LEN, 0, 7),
        op(LOAD_BYTE, UDP_HEADER),
        jump(IF_ANY_BIT, LONG, 0, 5),
        op(LOAD_WORD, UDP_HEADER + 1),
        jump(IF_EQUAL, 1, 0, 2),
        op(LOAD_BYTE, UDP_HEADER),
        jump(IF_ANY_BIT, TYPE, 1, 0),
        op(RETURN, KEEP),
        op(RETURN, DROP),
    ]
}

/// Keeps messages of Freshline's own protocol, by their first bytes.
fn our_messages() -> [sock_filter; 4] {
    [
        op(LOAD_HALF, UDP_HEADER),
        jump(IF_EQUAL, u16::from_be_bytes(MAGIC).into(), 0, 1),
        op(RETURN, KEEP),
        op(RETURN, DROP),
    ]
}

/// Sorts the datagrams of all sockets that are bound to the address of one, in the order of [`PER_CLASS`].
pub(crate) fn sort(one: &UdpSocket, tag: Tag, key: u32) -> io::Result<()> {
    let mut program = sorting(tag, key);
    let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // The kernel copies the program.
    Ok(setsockopt(one, AttachReusePortCbpf, &program)?)
}

/// Makes a strangers' socket accept only packets that can begin a connection.
pub(crate) fn take_first_packets(socket: &UdpSocket) -> io::Result<()> {
    filter(socket, &first_packets())
}

/// Makes a socket accept only messages of Freshline's own protocol.
pub(crate) fn take_our_messages(socket: &UdpSocket) -> io::Result<()> {
    filter(socket, &our_messages())
}

fn filter(socket: &UdpSocket, program: &[sock_filter]) -> io::Result<()> {
    let program: Vec<_> =
        program.iter().map(|op| SockFilter::new(op.code, op.jt, op.jf, op.k)).collect();
    SockRef::from(socket).attach_filter(&program)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const TAG: Tag = Tag(0x9abc_def0);

    /// An id of a server with this tag.
    pub(crate) fn our_id() -> ConnectionId {
        TaggedIds(TAG).generate_cid()
    }

    /// A packet with this first byte, a version behind it if that makes it a long one, and this id.
    pub(crate) fn packet(first: u8, version: u32, id: &[u8], len: usize) -> Vec<u8> {
        let mut bytes = vec![first];
        if first & 0x80 != 0 {
            bytes.extend(version.to_be_bytes());
            bytes.push(id.len() as u8);
        }
        bytes.extend(id);
        bytes.resize(len.max(bytes.len()), 0);
        bytes
    }

    #[test]
    fn ids_differ_behind_the_tag() {
        let (one, two) = (our_id(), our_id());
        assert_eq!((one[..TAG_LEN].to_vec(), one.len()), (TAG.0.to_be_bytes().to_vec(), ID_LEN));
        assert_ne!(one, two);
        assert!(TaggedIds(TAG).validate(one).is_ok());
        assert!(TaggedIds(Tag(1)).validate(one).is_err());
    }

    #[test]
    fn packets_that_cost_a_derivation_of_keys_are_told_apart() {
        let costs =
            |first, version, len| may_begin_connection(&packet(first, version, &[7; 8], len));
        assert!(costs(0xc0, 1, 1200) && costs(0x80, 1, 1200));
        // Version negotiation.
        assert!(costs(0xf0, 2, 1200));
        assert!(!costs(0xe0, 1, 1200) && !costs(0x40, 0, 1200));
        assert!(!may_begin_connection(&[]));
    }
}
