//! First packets of newcomers, each of which costs a derivation of keys and a decryption, when more
//! of them arrive than can be processed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Server;
use crate::refusal::Refusal;
use crate::sieve::may_begin_connection;

/// How long addresses are limited early after a crowd.
const CROWDED: Duration = Duration::from_secs(1);

impl Server {
    /// Newcomers arrive faster than they are processed: for a second each address has a rate for
    /// its first packets, beyond which they cost no keys and no decryption.
    pub(crate) fn on_crowd(&mut self, now: Instant) {
        self.crowded_until = now + CROWDED;
    }

    /// Whether a datagram from this address begins a connection, and does not belong to a handshake
    /// that has begun there.
    pub(crate) fn begins(&self, from: SocketAddr, bytes: &[u8]) -> bool {
        may_begin_connection(bytes) && !self.shaking.contains(&from)
    }

    /// A first packet has been dropped because there are too many.
    pub(crate) fn on_dropped(&mut self, now: Instant) {
        self.refusals.count(Refusal::HandshakeRate);
        self.on_crowd(now);
    }

    /// Whether a datagram is a first packet beyond the rate of its address in a crowd, which is counted.
    pub(super) fn is_one_too_many(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> bool {
        let is_one = now < self.crowded_until
            && may_begin_connection(bytes)
            && !self.rates.may_ask(now, from.ip());
        if is_one {
            self.refusals.count(Refusal::HandshakeRate);
        }
        is_one
    }
}
