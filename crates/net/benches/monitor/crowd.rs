//! Many sources that send single packets in turn.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use freshline_core::wire::{Cookie, Message, Opening, SessionId};
use freshline_net::clock::Clock;

use crate::traffic::update;

/// The number of sockets; the sources share them.
const SOCKETS: usize = 250;

/// The maximum number of sessions that are being opened at once.
const AT_ONCE: usize = SOCKETS;

pub(crate) struct Crowd {
    clock: Clock,
    sockets: Vec<UdpSocket>,
    /// The number of the next update, by source.
    seqs: Vec<u64>,
    /// The source whose turn is next.
    next: usize,
}

impl Crowd {
    pub(crate) fn new(to: SocketAddr, sources: usize) -> Self {
        let socket = |number: usize| {
            // Each socket is in a network of its own.
            let address = Ipv4Addr::new(127, 0, number as u8 + 1, 1);
            let socket = UdpSocket::bind((address, 0)).unwrap();
            socket.connect(to).unwrap();
            socket
        };
        let sockets = (0..SOCKETS.min(sources)).map(socket).collect();
        Self { clock: Clock::new(), sockets, seqs: vec![0; sources], next: 0 }
    }

    /// Opens all sessions as every source does: an update, a challenge, its cookie, an ack.
    pub(crate) fn open(&mut self) {
        for socket in &self.sockets {
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        }
        let mut answer = [0; 256];
        for first in (0..self.seqs.len()).step_by(AT_ONCE) {
            let together = first..(first + AT_ONCE).min(self.seqs.len());
            for source in together.clone() {
                self.send_one(source, Some(Cookie::default()));
            }
            for source in together.clone() {
                let len = self.socket(source).recv(&mut answer).expect("a challenge");
                let Ok(Message::Challenge(challenge)) = Message::parse(&answer[..len]) else {
                    panic!("no challenge");
                };
                self.send_one(source, Some(challenge.cookie));
            }
            for source in together {
                let len = self.socket(source).recv(&mut answer).expect("an ack");
                assert_ack(&answer[..len]);
            }
        }
    }

    /// Sends this many updates, each of another source.
    pub(crate) fn send(&mut self, updates: usize) {
        for _ in 0..updates {
            self.send_one(self.next, None);
            self.next = (self.next + 1) % self.seqs.len();
        }
    }

    /// Reads and checks all answers; returns their number.
    pub(crate) fn answers(&self, check: fn(&[u8])) -> usize {
        let (mut answer, mut answers) = ([0; 256], 0);
        for socket in &self.sockets {
            socket.set_nonblocking(true).unwrap();
            loop {
                match socket.recv(&mut answer) {
                    Ok(len) => {
                        check(&answer[..len]);
                        answers += 1;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("no answer: {error}"),
                }
            }
        }
        answers
    }

    fn socket(&self, source: usize) -> &UdpSocket {
        &self.sockets[source % self.sockets.len()]
    }

    fn send_one(&mut self, source: usize, cookie: Option<Cookie>) {
        let mut datagram = [0; 256];
        let session = SessionId(source as u64 + 1);
        let opening = cookie.map(|cookie| Opening { cookie, name: "", token: b"" });
        let update = update(session, self.seqs[source], self.clock.now(), opening);
        let len = update.write(&mut datagram).unwrap();
        self.socket(source).send(&datagram[..len]).unwrap();
        self.seqs[source] += 1;
    }
}

pub(crate) fn assert_ack(answer: &[u8]) {
    let parsed = Message::parse(answer);
    assert!(matches!(parsed, Ok(Message::Ack(_))), "{parsed:?}");
}
