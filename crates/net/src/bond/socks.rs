//! SOCKS5 (RFC 1928), as far as programs use it: CONNECT and UDP ASSOCIATE, without authentication.
//!
//! ```text
//!   program: 5, methods ─► us: 5, 0 ─► program: 5, 1 (CONNECT), 0, target ─► us: 5, reply, 0, …
//!                                      program: 5, 3 (UDP ASSOCIATE), 0, … ─► us: 5, 0, 0, address
//! ```

use std::net::SocketAddr;

use super::Target;
use super::head::{self, Parsed, Reply, parse_target};

/// The result of parsing a program's bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Incomplete: read more.
    More,
    /// A greeting of this length: send this answer.
    Greet(usize, &'static [u8]),
    /// A request of this length.
    Connect(usize, Target),
    /// A request to carry UDP datagrams.
    Associate,
    /// End the connection, with this answer.
    Refuse(&'static [u8]),
}

pub(super) const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;
const ASSOCIATE: u8 = 3;

/// Reads a greeting.
pub(super) fn greeting(bytes: &[u8]) -> Step {
    match bytes {
        [] | [VERSION] => Step::More,
        [VERSION, count, methods @ ..] => match methods.get(..usize::from(*count)) {
            None => Step::More,
            Some(methods) if methods.contains(&NO_AUTHENTICATION) => {
                Step::Greet(2 + methods.len(), &[VERSION, NO_AUTHENTICATION])
            }
            Some(_) => Step::Refuse(&[VERSION, 0xff]),
        },
        _ => Step::Refuse(&[]),
    }
}

/// Reads a request.
pub(super) fn request(bytes: &[u8]) -> Step {
    match bytes {
        [VERSION, command @ (CONNECT | ASSOCIATE), 0, target @ ..] => match parse_target(target) {
            // The address from which the program will send; most programs leave it unset.
            Parsed::Whole(..) if *command == ASSOCIATE => Step::Associate,
            Parsed::Partial => Step::More,
            Parsed::Whole(target, len) => Step::Connect(3 + len, target),
            // The address type is unknown, or the name is invalid.
            Parsed::Bad => Step::Refuse(&[VERSION, 8, 0, 1, 0, 0, 0, 0, 0, 0]),
        },
        [] | [VERSION] | [VERSION, CONNECT | ASSOCIATE] => Step::More,
        // BIND.
        [VERSION, ..] => Step::Refuse(&[VERSION, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
        _ => Step::Refuse(&[]),
    }
}

/// The answer to a request (section 6). It does not contain the address from which the server
/// connects.
pub(super) fn answer(reply: Reply) -> Vec<u8> {
    vec![VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// The answer to a request to carry datagrams: the address to which the program sends them.
pub(super) fn associated(at: SocketAddr) -> Vec<u8> {
    // A head is a version and the address, which SOCKS5 writes in the same way.
    let address = &head::write(&Target::Address(at))[1..];
    [&[VERSION, Reply::Connected as u8, 0], address].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_greeted_and_heard() {
        assert_eq!(greeting(&[5, 2, 2]), Step::More);
        assert_eq!(greeting(&[5, 2, 2, 0]), Step::Greet(4, &[5, 0]));
        assert_eq!(greeting(&[5, 1, 2]), Step::Refuse(&[5, 0xff]));
        assert_eq!(greeting(b"GET /"), Step::Refuse(&[]));
        let whole = [5, 1, 0, 1, 10, 0, 0, 1, 0, 80];
        let target = Target::Address("10.0.0.1:80".parse().unwrap());
        assert_eq!(request(&whole), Step::Connect(10, target));
        for len in 0..whole.len() {
            assert_eq!(request(&whole[..len]), Step::More, "{len}");
        }
        assert!(matches!(request(&[5, 2, 0, 1]), Step::Refuse([5, 7, ..])));
        assert_eq!(request(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]), Step::Associate);
        assert_eq!(associated("10.0.0.1:80".parse().unwrap()), [5, 0, 0, 1, 10, 0, 0, 1, 0, 80]);
        assert!(matches!(request(&[5, 1, 0, 9]), Step::Refuse([5, 8, ..])));
        let six = [&[5, 1, 0, 4, 0x20, 1, 0xd, 0xb8], &[0; 11][..], &[1, 1, 187]].concat();
        let target = Target::Address("[2001:db8::1]:443".parse().unwrap());
        assert_eq!(request(&six), Step::Connect(22, target));
    }
}
