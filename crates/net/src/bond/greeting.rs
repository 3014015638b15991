//! A program's request at `--listen`, which arrives in pieces: its destination, by SOCKS5 or by
//! HTTP as to a proxy. The first byte identifies the protocol.

use super::head::Reply;
use super::{Target, http, socks};

/// Maximum length of a request, in bytes.
pub const LONGEST: usize = http::LONGEST;

/// The protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// SOCKS, version 5 (RFC 1928).
    Socks,
    /// CONNECT (RFC 9110, section 9.3.6).
    Http,
    /// A request in absolute form (RFC 9112, section 3.2.2), which the destination answers itself;
    /// with the number of bytes of its body that the program has still to send, if that is known:
    /// bytes beyond them are not for the destination.
    Absolute(Option<u64>),
}

impl Protocol {
    /// The bytes that report to the program that it is connected, or why not.
    pub(super) fn answer(self, reply: Reply) -> Vec<u8> {
        match self {
            Self::Socks => socks::answer(reply),
            Self::Absolute(_) if reply == Reply::Connected => Vec::new(),
            Self::Http | Self::Absolute(_) => http::answer(reply),
        }
    }
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Read more of the request from the program.
    Listen,
    /// Connect to the target. The bytes that follow the request are for the destination.
    Connect(Protocol, Target, Vec<u8>),
    /// Carry UDP datagrams (SOCKS5).
    Associate,
    /// End the connection: the request cannot be served.
    End,
}

/// The bytes of a program's request so far.
#[derive(Debug, Default)]
pub struct Greeting {
    said: Vec<u8>,
    was_greeted: bool,
}

impl Greeting {
    /// How many more bytes it may send.
    pub fn room(&self) -> usize {
        LONGEST - self.said.len().min(LONGEST)
    }

    /// Adds bytes that the program has sent, at most [`Greeting::room`]. Returns the bytes to
    /// answer, which may be empty, and the next step.
    pub fn hear(&mut self, piece: &[u8]) -> (Vec<u8>, Next) {
        self.said.extend_from_slice(piece);
        match self.said.first() {
            None => (Vec::new(), Next::Listen),
            Some(&first) if self.was_greeted || first == socks::VERSION => self.hear_socks(),
            Some(first) if first.is_ascii_alphabetic() => match http::request(&self.said) {
                http::Step::More => (Vec::new(), Next::Listen),
                http::Step::Connect(len, target) => {
                    (Vec::new(), self.connect(Protocol::Http, target, len))
                }
                http::Step::Forward(len, target, mut head, body) => {
                    let beyond = &self.said[len..];
                    let of_body =
                        body.map_or(beyond.len() as u64, |body| body.min(beyond.len() as u64));
                    head.extend_from_slice(&beyond[..of_body as usize]);
                    let protocol = Protocol::Absolute(body.map(|body| body - of_body));
                    (Vec::new(), Next::Connect(protocol, target, head))
                }
                http::Step::Refuse(answer) => (answer, Next::End),
            },
            // The protocol is unknown, so no answer is possible.
            Some(_) => (Vec::new(), Next::End),
        }
    }

    fn hear_socks(&mut self) -> (Vec<u8>, Next) {
        let mut answer = Vec::new();
        if !self.was_greeted {
            match socks::greeting(&self.said) {
                socks::Step::Greet(len, words) => {
                    answer.extend_from_slice(words);
                    self.said.drain(..len);
                    self.was_greeted = true;
                }
                socks::Step::Refuse(words) => return (words.to_vec(), Next::End),
                _ => return (answer, Next::Listen),
            }
        }
        match socks::request(&self.said) {
            socks::Step::Connect(len, target) => {
                let next = self.connect(Protocol::Socks, target, len);
                (answer, next)
            }
            socks::Step::Associate => (answer, Next::Associate),
            socks::Step::Refuse(words) => {
                answer.extend_from_slice(words);
                (answer, Next::End)
            }
            _ => (answer, Next::Listen),
        }
    }

    fn connect(&self, protocol: Protocol, target: Target, len: usize) -> Next {
        Next::Connect(protocol, target, self.said[len..].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The answer to all pieces together, and the last step.
    fn heard<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Next) {
        let (mut greeting, mut answers) = (Greeting::default(), Vec::new());
        for piece in pieces {
            let (answer, next) = greeting.hear(&piece[..piece.len().min(greeting.room())]);
            answers.extend(answer);
            if next != Next::Listen {
                return (answers, next);
            }
        }
        (answers, Next::Listen)
    }

    #[test]
    fn the_first_byte_tells_the_language() {
        let socks = [&[5, 1, 0, 5, 1, 0, 3, 11][..], b"example.org", &[1, 187], b"early"].concat();
        let http: &[u8] = b"CONNECT example.org:443 HTTP/1.1\r\n\r\nearly";
        let target: Target = "example.org:443".parse().unwrap();
        for (said, protocol, answer) in
            [(&socks[..], Protocol::Socks, &[5, 0][..]), (http, Protocol::Http, &[])]
        {
            let next = Next::Connect(protocol, target.clone(), b"early".to_vec());
            assert_eq!(heard([said].into_iter()), (answer.to_vec(), next));
        }
        // SOCKS4, TLS, and a request in another protocol than the greeting.
        for said in [&[4, 1][..], &[22, 3, 1], &[5, 1, 0, b'C']] {
            assert_eq!(heard([said].into_iter()).1, Next::End, "{said:?}");
        }
    }

    #[test]
    fn bytes_beyond_the_body_of_a_request_are_not_for_its_destination() {
        let next = "GET http://b/ HTTP/1.1\r\nCookie: secret\r\n\r\n";
        for (fields, said, passes, rest) in [
            ("", next, "", Some(0)),
            ("Content-Length: 5\r\n", &format!("hello{next}"), "hello", Some(0)),
            ("Content-Length: 5\r\n", "he", "he", Some(3)),
            ("Transfer-Encoding: chunked\r\n", "0\r\n\r\n", "0\r\n\r\n", None),
        ] {
            let said = format!("POST http://a/ HTTP/1.1\r\n{fields}\r\n{said}");
            let (answer, next) = heard([said.as_bytes()].into_iter());
            let Next::Connect(protocol, _, head) = next else { panic!("{next:?} {answer:?}") };
            let head = String::from_utf8(head).unwrap();
            assert_eq!(protocol, Protocol::Absolute(rest), "{fields}");
            assert_eq!(head.split_once("\r\n\r\n").unwrap().1, passes, "{fields}");
        }
    }

    proptest! {
        #[test]
        fn pieces_are_heard_as_the_whole(
            kind in 0..4usize,
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            len in 1..50usize,
        ) {
            let absolute = b"POST http://a/ HTTP/1.1\r\nContent-Length: 9\r\n\r\n";
            let begins: [&[u8]; 4] = [b"", &[5, 1, 0, 5, 1, 0], b"CONNECT ", absolute];
            let said = [begins[kind], &bytes[..]].concat();
            let whole = heard([&said[..]].into_iter());
            let (answer, next) = heard(said.chunks(len));
            prop_assert_eq!(answer, whole.0);
            match (next, whole.1) {
                // The bytes beyond the head depend on the pieces.
                (Next::Connect(a, to_a, _), Next::Connect(b, to_b, _)) => {
                    prop_assert_eq!(std::mem::discriminant(&a), std::mem::discriminant(&b));
                    prop_assert_eq!(to_a, to_b);
                }
                (next, whole) => prop_assert_eq!(next, whole),
            }
        }

        #[test]
        fn nobody_is_listened_to_for_ever(byte: u8, first in prop::sample::select(&b"CG\x05"[..])) {
            let said = [vec![first], vec![byte; LONGEST]].concat();
            prop_assert_ne!(heard(said.chunks(1000)).1, Next::Listen);
        }
    }
}
