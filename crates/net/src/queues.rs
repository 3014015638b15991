//! The sockets of a server, each with its own receive buffer, and how they share the time of its
//! thread.
//!
//! In each turn, each queue of connections gets [`A_TURN`], then all queues of strangers get
//! [`STRANGERS`] together. So a flood delays other queues only by its turns, and loses packets only
//! of its own queue. Module `sieve` assigns datagrams to queues. After a Retry, a newcomer's packet
//! arrives in a queue of connections; it is deferred until strangers are served, as a handshake
//! takes hundreds of times as long as a packet of a connection.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use freshline_core::dscp::Dscp;
use freshline_core::session::Clocked;
use freshline_core::unit::{Span, Time};
use mio::{Interest, Registry, Token};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::UdpGroSegment;
use socket2::{Domain, SockRef, Type};

use crate::batch::{Address, Drops, Inbox, Socket, Train};
use crate::clock::Clock;
use crate::refusal::{Refusal, Refusals};
use crate::sieve::{self, PER_CLASS, Tag};

/// The time of a queue in a turn. It may be exceeded by the duration of the last packet, some 0.5
/// ms for a handshake.
const A_TURN: Span = Span::from_micros(500);

/// The time of all strangers together in a turn, likewise.
const STRANGERS: Span = Span::from_millis(1);

/// The maximum number of deferred datagrams per queue.
const MAX_LATER: usize = 64;

/// The requested size of a receive buffer if there are several, in bytes.
const BUFFER: usize = 1 << 20;

/// The senders of a queue's datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Connections,
    Strangers,
    /// All senders, because there is no other queue.
    All,
}

/// Datagrams of a socket that were received but not handed up.
struct Queue {
    class: Class,
    inbox: Inbox,
    received_at: Time,
    /// How many trains of the inbox were handed up.
    done: usize,
    /// Whether the socket may have more.
    is_ready: bool,
    later: Later,
    drops: Drops,
}

impl Queue {
    /// Hands datagrams up for [`A_TURN`]. The queue reads the first socket; answers leave by the
    /// second one.
    fn serve(
        &mut self,
        (socket, out): (&Socket, &Socket),
        clock: Clock,
        take: &mut impl FnMut(Served<'_>),
    ) -> io::Result<()> {
        let began_at = clock.now();
        let mut now = began_at;
        while self.is_ready && now.since(began_at) < A_TURN {
            if self.done == self.inbox.trains().len() {
                self.is_ready = self.inbox.fill(socket)?;
                now = clock.now();
                (self.done, self.received_at) = (0, now);
                self.drops.read(&self.inbox);
                if self.class == Class::Strangers && self.inbox.is_full() {
                    take(Served::Crowd);
                }
            }
            for train in self.inbox.trains().skip(self.done) {
                self.done += 1;
                let later = (self.class != Class::Strangers).then_some(&mut self.later);
                // One look at the clock a train: its datagrams came in one packet of the kernel's.
                let at = Clocked { received_at: self.received_at, now };
                take(Served::Train(out, at, train, later));
                now = clock.now();
                if now.since(began_at) >= A_TURN {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// A deferred datagram.
struct Held {
    received_at: Time,
    from: Address,
    dscp: Option<Dscp>,
    bytes: Box<[u8]>,
}

/// Datagrams of a queue of connections that are served together with strangers.
#[derive(Default)]
pub(crate) struct Later(VecDeque<Held>);

impl Later {
    /// Defers a datagram; returns whether there was room.
    pub(crate) fn push(
        &mut self,
        received_at: Time,
        from: Address,
        dscp: Option<Dscp>,
        bytes: &[u8],
    ) -> bool {
        let has_room = self.0.len() < MAX_LATER;
        if has_room {
            self.0.push_back(Held { received_at, from, dscp, bytes: bytes.into() });
        }
        has_room
    }

    /// Hands datagrams up for [`A_TURN`].
    fn serve(&mut self, out: &Socket, clock: Clock, take: &mut impl FnMut(Served<'_>)) {
        let began_at = clock.now();
        let mut now = began_at;
        while now.since(began_at) < A_TURN
            && let Some(Held { received_at, from, dscp, bytes }) = self.0.pop_front()
        {
            let at = Clocked { received_at, now };
            take(Served::Train(out, at, Train::alone(from, dscp, &bytes), None));
            now = clock.now();
        }
    }
}

/// The queues of a server.
pub(crate) struct Queues {
    /// One socket per queue.
    sockets: Vec<Socket>,
    queues: Vec<Queue>,
    /// The queue of strangers that is served next.
    next: usize,
}

/// An item to serve.
pub(crate) enum Served<'a> {
    /// Datagrams, their receive time and the present time, and the socket by which answers leave.
    /// Datagrams in a connection's queue that begin a connection can be deferred.
    Train(&'a Socket, Clocked, Train<'a>, Option<&'a mut Later>),
    /// Strangers send faster than they are served.
    Crowd,
}

impl Queues {
    /// Binds an address. With the tag of a QUIC server there are several queues, unless the system
    /// refuses that; `key` is a random number.
    ///
    /// # Errors
    /// The first socket cannot be bound: the address is not of this host, or in use.
    pub(crate) fn bind(address: SocketAddr, quic: Option<(Tag, u32)>) -> io::Result<Self> {
        // Without SO_REUSEPORT, so that binding the port of another server fails.
        let first = UdpSocket::bind(address)?;
        first.set_nonblocking(true)?;
        let others = match quic {
            None => {
                if let Err(error) = sieve::take_our_messages(&first) {
                    tracing::debug!("no filter of datagrams: {error}");
                }
                Vec::new()
            }
            Some((tag, key)) => split(&first, tag, key).unwrap_or_else(|error| {
                tracing::debug!("one socket for connections and strangers: {error}");
                let _ = SockRef::from(&first).set_reuse_port(false);
                Vec::new()
            }),
        };
        let is_alone = others.is_empty();
        let sockets = [first].into_iter().chain(others).map(Socket::from_std);
        let mut sockets: Vec<_> = sockets.collect::<io::Result<_>>()?;
        // Connections first.
        sockets.reverse();
        let number = sockets.len();
        let queues = sockets.iter().enumerate().map(|(index, socket)| {
            let (class, inbox) = match () {
                () if is_alone => (Class::All, Inbox::new()),
                () if index < number - PER_CLASS => (Class::Connections, Inbox::small()),
                () => (Class::Strangers, Inbox::of_datagrams()),
            };
            if class != Class::All {
                let _ = SockRef::from(&socket.udp).set_recv_buffer_size(BUFFER);
            }
            if class == Class::Strangers {
                // Sends each datagram alone, so that the filter sees it.
                let _ = setsockopt(&socket.udp, UdpGroSegment, &false);
            }
            let (received_at, done, later) = (Time::ZERO, 0, Later::default());
            Queue {
                class,
                inbox,
                received_at,
                done,
                is_ready: false,
                later,
                drops: Drops::default(),
            }
        });
        Ok(Self { queues: queues.collect(), sockets, next: 0 })
    }

    /// The socket by which answers leave.
    pub(crate) fn socket(&self) -> &Socket {
        &self.sockets[0]
    }

    /// Registers the sockets with a poll, with tokens from `first` on.
    pub(crate) fn register(&mut self, registry: &Registry, first: Token) -> io::Result<()> {
        let tokens = (first.0..).map(Token);
        self.sockets.iter_mut().zip(tokens).try_for_each(|(socket, token)| {
            registry.register(&mut socket.udp, token, Interest::READABLE)
        })
    }

    /// Notes that the source with this token is ready; returns whether it is one of these sockets.
    pub(crate) fn on_ready(&mut self, first: Token, token: Token) -> bool {
        let queue = token.0.checked_sub(first.0).and_then(|index| self.queues.get_mut(index));
        queue.map(|queue| queue.is_ready = true).is_some()
    }

    /// Hands received datagrams up: each queue of connections for [`A_TURN`], then strangers for
    /// [`STRANGERS`]. Returns whether there may be more.
    ///
    /// # Errors
    /// The errors of receiving.
    pub(crate) fn serve(
        &mut self,
        clock: Clock,
        mut take: impl FnMut(Served<'_>),
    ) -> io::Result<bool> {
        let Self { sockets, queues, next } = self;
        let out = &sockets[0];
        let of_connections = |(_, queue): &(_, &mut Queue)| queue.class != Class::Strangers;
        for (socket, queue) in sockets.iter().zip(&mut *queues).filter(of_connections) {
            queue.serve((socket, out), clock, &mut take)?;
        }
        let began_at = clock.now();
        for _ in 0..queues.len() {
            let index = *next % queues.len();
            *next = index + 1;
            match &mut queues[index] {
                queue if queue.class == Class::Strangers => {
                    queue.serve((&sockets[index], out), clock, &mut take)?;
                }
                queue => queue.later.serve(out, clock, &mut take),
            }
            if clock.now().since(began_at) >= STRANGERS {
                break;
            }
        }
        Ok(queues.iter().any(|queue| queue.is_ready || !queue.later.0.is_empty()))
    }

    /// Counts the kernel's drops. With a single socket, most of them are not of connections.
    pub(crate) fn count_drops(&self, refusals: &mut Refusals) {
        for queue in &self.queues {
            let reason = match queue.class {
                Class::Connections => Refusal::Overflow,
                Class::Strangers | Class::All => Refusal::Strange,
            };
            refusals.count_many(reason, queue.drops.total);
        }
    }
}

/// Opens sockets in addition to a bound one: more for strangers, and those for connections.
fn split(first: &UdpSocket, tag: Tag, key: u32) -> io::Result<Vec<UdpSocket>> {
    let address = first.local_addr()?;
    let reference = SockRef::from(first);
    reference.set_reuse_port(true)?;
    let mut others = Vec::new();
    for _ in 1..2 * PER_CLASS {
        let other = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        if address.is_ipv6() {
            other.set_only_v6(reference.only_v6()?)?;
        }
        other.set_nonblocking(true)?;
        other.set_reuse_port(true)?;
        other.bind(&address.into())?;
        others.push(UdpSocket::from(other));
    }
    sieve::sort(first, tag, key)?;
    for stranger in [first].into_iter().chain(&others[..PER_CLASS - 1]) {
        sieve::take_first_packets(stranger)?;
    }
    Ok(others)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::sieve::tests::{TAG, our_id, packet};

    const KEY: u32 = 0x9e37_79b9;

    fn local(address: &str) -> SocketAddr {
        format!("{address}:0").parse().expect("an address")
    }

    /// Queues bound to an unspecified address, and the address at which they are reached.
    fn world(any: &str, near: &str, tag: Option<Tag>) -> (Queues, SocketAddr) {
        let queues = Queues::bind(local(any), tag.map(|tag| (tag, KEY))).expect("an address");
        let port = queues.socket().udp.local_addr().expect("it is bound").port();
        let mut address = local(near);
        address.set_port(port);
        (queues, address)
    }

    /// The datagrams received: the class and number of their queue, and their length.
    fn come(queues: &mut Queues) -> Vec<(Class, usize, usize)> {
        let mut come = Vec::new();
        for (index, (socket, queue)) in queues.sockets.iter().zip(&mut queues.queues).enumerate() {
            while queue.inbox.fill(socket).expect("it receives") {
                let datagrams = queue.inbox.trains().flat_map(|train| train.datagrams());
                come.extend(datagrams.map(|datagram| (queue.class, index, datagram.len())));
            }
        }
        come
    }

    fn lengths(come: &[(Class, usize, usize)], of: Class) -> Vec<usize> {
        come.iter().filter(|(class, ..)| *class == of).map(|(.., len)| *len).collect()
    }

    #[test]
    fn each_datagram_reaches_its_class_of_queue_or_none() {
        for address in ["127.0.0.1", "[::1]"] {
            let Ok(sender) = UdpSocket::bind(local(address)) else {
                println!("skipped: needs IPv6");
                continue;
            };
            let (mut queues, to) = world(address, address, Some(TAG));
            let (ours, other) = (our_id(), [7; 8]);
            let of_connections = [
                packet(0x40, 0, &ours, 40),
                packet(0x00, 0, &ours, 9),
                packet(0xe0, 1, &ours, 100),
                packet(0xc0, 1, &ours, 1201),
            ];
            let of_strangers = [
                packet(0xc0, 1, &other, 1200),
                packet(0xc0, 1, &ours[..7], 1202),
                packet(0x80, 1, &[], 1203),
                packet(0xf0, 0xff00_001d, &other, 1204),
            ];
            let of_none = [
                vec![],
                vec![0x40],
                vec![0xc0, 0, 0],
                packet(0x40, 0, &other, 40),
                packet(0x40, 0, &other, 1300),
                packet(0xc0, 1, &other, 1199),
                packet(0xe0, 1, &other, 1300),
                packet(0xd0, 1, &other, 1300),
                packet(0xc0, 9, &other, 600),
            ];
            for datagram in of_connections.iter().chain(&of_strangers).chain(&of_none) {
                sender.send_to(datagram, to).expect("it leaves");
            }
            let come = come(&mut queues);
            assert_eq!(lengths(&come, Class::Connections), [40, 9, 100, 1201], "{address}");
            assert_eq!(lengths(&come, Class::Strangers), [1200, 1202, 1203, 1204], "{address}");
        }
    }

    #[test]
    fn each_network_has_its_queue_and_they_are_spread() {
        // With addresses of both families; IPv4 packets always have IPv4 headers.
        for any in ["0.0.0.0", "[::]"] {
            if UdpSocket::bind(local(any)).is_err() {
                println!("skipped: needs IPv6");
                continue;
            }
            let (mut queues, to) = world(any, "127.0.0.1", Some(TAG));
            let mut queue_of = |address: [u8; 4]| {
                let sender = UdpSocket::bind(SocketAddr::from((address, 0))).expect("an address");
                sender.send_to(&packet(0x40, 0, &our_id(), 40), to).expect("it leaves");
                let [(Class::Connections, index, 40)] = come(&mut queues)[..] else {
                    panic!("one datagram");
                };
                index
            };
            let queues: Vec<_> = (1..=100).map(|network| queue_of([127, 0, network, 1])).collect();
            assert_eq!(queue_of([127, 0, 1, 200]), queues[0], "the same network");
            for queue in 0..PER_CLASS {
                let share = queues.iter().filter(|it| **it == queue).count();
                assert!((5..=25).contains(&share), "{queue} has {share} of 100");
            }
        }
    }

    #[test]
    fn a_flood_of_strangers_fills_its_queue_alone_and_is_counted() {
        let (mut queues, to) = world("127.0.0.1", "127.0.0.1", Some(TAG));
        let sender = UdpSocket::bind(local("127.0.0.1")).expect("an address");
        let send = |datagram: &[u8]| sender.send_to(datagram, to).expect("it leaves");
        for _ in 0..10_000 {
            send(&packet(0xc0, 1, &[7; 8], 1200));
        }
        send(&packet(0x40, 0, &our_id(), 40));
        let all = come(&mut queues);
        assert_eq!(lengths(&all, Class::Connections), [40]);
        let came = lengths(&all, Class::Strangers).len();
        assert!(came < 10_000);

        // The kernel's count arrives with the next packet.
        send(&packet(0xc0, 1, &[7; 8], 1200));
        for index in 0..queues.queues.len() {
            queues.on_ready(Token(0), Token(index));
        }
        while queues.serve(Clock::new(), |_| {}).expect("it receives") {}
        let mut refusals = Refusals::default();
        queues.count_drops(&mut refusals);
        assert_eq!(refusals.of(Refusal::Strange), 10_000 - came as u64);
        assert_eq!(refusals.of(Refusal::Overflow), 0);
    }

    #[test]
    fn a_queue_is_left_after_its_time_and_no_datagram_is_lost_or_repeated() {
        let (mut queues, to) = world("127.0.0.1", "127.0.0.1", Some(TAG));
        let sender = UdpSocket::bind(local("127.0.0.1")).expect("an address");
        for len in 0..100 {
            sender.send_to(&packet(0xc0, 1, &[7; 8], 1200 + len), to).expect("it leaves");
        }
        for index in 0..queues.queues.len() {
            assert!(queues.on_ready(Token(2), Token(2 + index)));
        }
        assert!(!queues.on_ready(Token(2), Token(1)));
        let (mut lengths, mut turns, mut crowds) = (Vec::new(), 0, 0);
        loop {
            let mut of_turn = 0;
            let busy = queues.serve(Clock::new(), |served| match served {
                Served::Train(_, _, train, _) => {
                    of_turn += 1;
                    lengths.extend(train.datagrams().map(<[u8]>::len));
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                Served::Crowd => crowds += 1,
            });
            assert!(of_turn <= 1, "each takes longer than a turn");
            turns += 1;
            if !busy.expect("it receives") {
                break;
            }
        }
        assert_eq!(lengths, (1200..1300).collect::<Vec<_>>());
        assert_eq!((crowds, turns >= 100), (100 / 32, true));
    }

    #[test]
    fn datagrams_that_are_put_off_are_handed_up_once_and_in_order() {
        let (mut queues, to) = world("127.0.0.1", "127.0.0.1", Some(TAG));
        let sender = UdpSocket::bind(local("127.0.0.1")).expect("an address");
        for len in 100..110 {
            sender.send_to(&packet(0x40, 0, &our_id(), len), to).expect("it leaves");
        }
        for index in 0..queues.queues.len() {
            queues.on_ready(Token(0), Token(index));
        }
        let (mut at_once, mut put_off) = (Vec::new(), Vec::new());
        let mut take = |served: Served<'_>| {
            let Served::Train(_, at, train, later) = served else { panic!("a crowd") };
            let datagrams = train.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>();
            match later {
                Some(later) if datagrams[0].len() % 2 == 0 => {
                    for bytes in &datagrams {
                        assert!(later.push(at.received_at, train.from, train.dscp, bytes));
                    }
                }
                Some(_) => at_once.extend(datagrams.iter().map(Vec::len)),
                None => put_off.extend(datagrams.iter().map(Vec::len)),
            }
        };
        while queues.serve(Clock::new(), &mut take).expect("it receives") {}
        assert_eq!(at_once, [101, 103, 105, 107, 109]);
        assert_eq!(put_off, [100, 102, 104, 106, 108]);

        let (mut later, from) = (Later::default(), Address { remote: to, local: None });
        let taken = (0..100).filter(|_| later.push(Time::ZERO, from, None, &[7]));
        assert_eq!(taken.count(), MAX_LATER);
    }

    #[test]
    fn the_port_of_a_server_is_taken_for_another_one() {
        let (_queues, to) = world("127.0.0.1", "127.0.0.1", Some(TAG));
        for quic in [Some((TAG, KEY)), Some((Tag(1), KEY)), None] {
            let error = Queues::bind(to, quic).err().expect("the port is taken");
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn without_quic_messages_of_other_protocols_are_dropped() {
        let (mut queues, to) = world("127.0.0.1", "127.0.0.1", None);
        let sender = UdpSocket::bind(local("127.0.0.1")).expect("an address");
        for datagram in ["FL and more", "", "F", "fl", "LF and more", "FL"] {
            sender.send_to(datagram.as_bytes(), to).expect("it leaves");
        }
        assert_eq!(come(&mut queues), [(Class::All, 0, 11), (Class::All, 0, 2)]);
    }
}
