//! Collects answers, and sends them in few system calls: consecutive answers of equal length to one
//! address as one train (GSO), answers to several addresses by `sendmmsg`.

use std::net::SocketAddr;

use freshline_core::dscp::Dscp;

use crate::batch::{Address, Socket};

/// The maximum number of queued trains: one per packet of a batch.
const MOST: usize = 32;

/// Queued answers.
#[derive(Default)]
pub(crate) struct Outbox {
    contents: Vec<u8>,
    trains: Vec<Train>,
    /// The number of answers that a full or failing socket refused.
    pub(crate) dropped: u64,
}

/// Answers of equal length and code point to one address.
struct Train {
    to: Address,
    dscp: Dscp,
    /// The length of each answer.
    segment: usize,
    /// The range of the answers in [`Outbox::contents`].
    begin: usize,
    end: usize,
}

impl Train {
    fn bytes<'a>(&self, contents: &'a [u8]) -> &'a [u8] {
        &contents[self.begin..self.end]
    }

    /// The destination and the bytes of a train of one answer.
    fn single<'a>(&self, contents: &'a [u8]) -> Option<(SocketAddr, &'a [u8])> {
        (self.end - self.begin <= self.segment).then(|| (self.to.remote, self.bytes(contents)))
    }

    /// Whether one call can send both: they differ in contents and destination only.
    fn goes_with(&self, other: &Self) -> bool {
        let family = |train: &Self| train.to.remote.ip().to_canonical().is_ipv4();
        (self.dscp, self.to.local, family(self)) == (other.dscp, other.to.local, family(other))
    }
}

impl Outbox {
    pub(crate) fn push(&mut self, socket: &Socket, to: Address, dscp: Dscp, answer: &[u8]) {
        let len = answer.len();
        let has_room = |train: &&mut Train| {
            let (is_alike, full) =
                ((train.to, train.dscp, train.segment), socket.segments() * train.segment);
            is_alike == (to, dscp, len) && train.end - train.begin < full
        };
        match self.trains.last_mut().filter(has_room) {
            Some(train) => train.end += len,
            None => {
                if self.trains.len() == MOST {
                    self.flush(socket);
                }
                let begin = self.contents.len();
                self.trains.push(Train { to, dscp, segment: len, begin, end: begin + len });
            }
        }
        self.contents.extend_from_slice(answer);
    }

    /// Sends all answers. A refused answer is dropped: the next one has newer information.
    pub(crate) fn flush(&mut self, socket: &Socket) {
        let Self { contents, trains, dropped } = self;
        let mut rest = trains.as_slice();
        while let [first, ..] = rest {
            let singles: Vec<_> = rest
                .iter()
                .map_while(|train| train.single(contents).filter(|_| train.goes_with(first)))
                .collect();
            rest = &rest[singles.len().max(1)..];
            if singles.len() > 1 {
                *dropped += socket.send_each(first.dscp, first.to.local, &singles) as u64;
            } else if socket
                .send(first.to, first.dscp, first.bytes(contents), first.segment)
                .is_err()
            {
                *dropped += ((first.end - first.begin) / first.segment.max(1)) as u64;
            }
        }
        trains.clear();
        contents.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    fn far(address: &str) -> (UdpSocket, Address) {
        let socket = UdpSocket::bind(address).expect("an address");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        let remote = socket.local_addr().expect("it is bound");
        (socket, Address { remote, local: None })
    }

    /// The next answers at this socket.
    fn come(socket: &UdpSocket, number: usize) -> Vec<Vec<u8>> {
        let next = |_| {
            let mut bytes = [0; 100];
            let len = socket.recv(&mut bytes).expect("an answer");
            bytes[..len].to_vec()
        };
        let come = (0..number).map(next).collect();
        socket.set_nonblocking(true).expect("a socket");
        assert!(socket.recv(&mut [0; 100]).is_err(), "no more came");
        come
    }

    fn near(address: &str) -> Socket {
        let socket = UdpSocket::bind(address).expect("an address");
        socket.set_nonblocking(true).expect("a socket");
        Socket::from_std(socket).expect("a socket")
    }

    #[test]
    fn each_answer_comes_to_its_address_once_and_in_order() {
        let near = near("127.0.0.1:0");
        let (one, two) = (far("127.0.0.1:0"), far("127.0.0.2:0"));
        let local = Some("127.0.0.1".parse().expect("an address"));
        let by = |to: Address| Address { local, ..to };
        let (plain, marked) = (Dscp::DEFAULT, Dscp::new(46).expect("a code point"));
        let mut outbox = Outbox::default();
        // Singles, a train, with and without a code point and an address of this host; and more than wait at once.
        let steps = [
            (one.1, plain, 10),
            (two.1, plain, 11),
            (one.1, plain, 12),
            (two.1, plain, 13),
            (two.1, plain, 13),
            (one.1, marked, 14),
            (two.1, marked, 15),
            (by(one.1), marked, 16),
            (by(two.1), marked, 17),
            (by(one.1), plain, 18),
            (by(two.1), plain, 19),
        ];
        let steps: Vec<_> = steps.iter().cycle().take(10 * MOST).collect();
        for (number, (to, dscp, len)) in steps.iter().enumerate() {
            outbox.push(&near, *to, *dscp, &vec![number as u8; *len]);
        }
        outbox.flush(&near);
        assert_eq!(outbox.dropped, 0);
        for (socket, address) in [one, two] {
            let sent = steps.iter().enumerate();
            let sent = sent.filter(|(_, (to, ..))| to.remote == address.remote);
            let sent: Vec<_> = sent.map(|(number, (.., len))| vec![number as u8; *len]).collect();
            assert_eq!(come(&socket, sent.len()), sent);
        }
    }

    #[test]
    fn answers_of_both_families_leave_by_one_socket() {
        let (Ok(_), near) = (UdpSocket::bind("[::1]:0"), "[::]:0") else {
            println!("skipped: needs IPv6");
            return;
        };
        let near = self::near(near);
        let (v4, v6) = (far("127.0.0.1:0"), far("[::1]:0"));
        let port = v4.1.remote.port();
        let mapped = format!("[::ffff:127.0.0.1]:{port}").parse().expect("an address");
        let mut outbox = Outbox::default();
        for number in 0..3 {
            for remote in [mapped, v6.1.remote] {
                let to = Address { remote, local: None };
                outbox.push(&near, to, Dscp::new(10).expect("a code point"), &[number; 7]);
            }
        }
        outbox.flush(&near);
        assert_eq!((come(&v4.0, 3).len(), come(&v6.0, 3).len(), outbox.dropped), (3, 3, 0));
    }

    #[test]
    fn one_that_cannot_leave_is_counted_and_holds_up_no_other() {
        let near = near("127.0.0.1:0");
        let there = far("127.0.0.1:0");
        // No datagram can have that port.
        let nowhere = Address { remote: SocketAddr::from(([127, 0, 0, 1], 0)), local: None };
        let mut outbox = Outbox::default();
        for (number, to) in [there.1, nowhere, there.1, nowhere, nowhere].iter().enumerate() {
            outbox.push(&near, *to, Dscp::DEFAULT, &[number as u8; 5 + 1]);
        }
        outbox.flush(&near);
        assert_eq!(come(&there.0, 2), [[0; 6], [2; 6]]);
        assert_eq!(outbox.dropped, 3);
    }
}
