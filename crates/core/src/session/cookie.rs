//! Values derived from an endpoint's secret: cookies, which prove an address without state at the
//! server; session ids; and public labels of sessions.
//!
//! cookie = SipHash-2-4-128(secret; period, session, address), period = ⌊now / 30 s⌋
//!
//! A cookie is valid in the period in which it was created and in the next one. SipHash is a
//! pseudo-random function designed for such short inputs (Aumasson, Bernstein, INDOCRYPT 2012); the
//! idea is that of SYN cookies (RFC 4987 section 3.6).

use core::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::unit::{Span, Time};
use crate::wire::{Cookie, SessionId};

const PERIOD: Span = Span::from_secs(30);

/// The public label of a session, for people, logs and metrics: a keyed hash of its id, which does
/// not reveal the id. It is constant during the lifetime of an endpoint, and different at each
/// endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionLabel(pub(super) u64);

impl core::fmt::Display for SessionLabel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// An endpoint's random secret, which the creator of the endpoint draws from the system.
#[derive(Clone)]
pub struct Secret([u8; 16]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// A secret from 16 random bytes.
    pub fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    pub(super) fn cookie<P: Hash>(&self, now: Time, session: SessionId, peer: &P) -> Cookie {
        self.cookie_of(now.as_nanos() / PERIOD.as_nanos(), session, peer)
    }

    pub(super) fn accepts<P: Hash>(
        &self,
        cookie: Cookie,
        now: Time,
        session: SessionId,
        peer: &P,
    ) -> bool {
        let period = now.as_nanos() / PERIOD.as_nanos();
        // The probability of guessing a cookie is 2⁻¹²⁸ per packet. The time of a comparison
        // reveals nothing, since both sides are passed through the keyed hash once more.
        [Some(period), period.checked_sub(1)].into_iter().flatten().any(|period| {
            self.digest(&cookie.0) == self.digest(&self.cookie_of(period, session, peer).0)
        })
    }

    fn cookie_of<P: Hash>(&self, period: u64, session: SessionId, peer: &P) -> Cookie {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        (period, session, peer).hash(&mut hasher);
        Cookie(hasher.finish128().as_bytes())
    }

    /// The `number`-th session id of a source. The next id cannot be derived from earlier ones.
    pub(super) fn session(&self, number: u64) -> SessionId {
        SessionId(self.keyed("session", number))
    }

    /// The public label of a session.
    pub fn label(&self, session: SessionId) -> SessionLabel {
        SessionLabel(self.keyed("label", session.0))
    }

    /// A digest of a name and its owner.
    pub(super) fn owned_name(&self, name: &str, owner: u64, network: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        ("name", name, owner, network).hash(&mut hasher);
        hasher.finish()
    }

    fn keyed(&self, purpose: &str, number: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        (purpose, number).hash(&mut hasher);
        hasher.finish()
    }

    /// A keyed digest of a token, so that a comparison takes the same time for any guess.
    pub(super) fn digest(&self, bytes: &[u8]) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(bytes);
        hasher.finish128().as_u128()
    }

    /// A hasher for tables whose keys untrusted peers choose.
    pub(super) fn table_hasher(&self) -> TableHasher {
        TableHasher(self.clone())
    }
}

/// A number for a token in tables, the same in each process.
pub(super) fn number_of(token: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(token);
    hasher.finish()
}

/// Builds keyed hashers, so that an attacker cannot choose session ids that collide.
#[derive(Debug, Clone)]
pub(super) struct TableHasher(Secret);

impl core::hash::BuildHasher for TableHasher {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;

    #[test]
    fn neither_the_next_session_nor_a_label_follows_from_a_session() {
        let (secret, other) = (Secret::new([1; 16]), Secret::new([2; 16]));
        let first = secret.session(0);
        assert_eq!(first, secret.session(0));
        for different in [secret.session(1), other.session(0)] {
            assert_ne!(first, different);
        }
        let shown = secret.label(first).0;
        assert!(shown != first.0 && shown != secret.session(1).0);
        assert_ne!(shown, other.label(first).0, "another key, another label");
    }

    #[test]
    fn a_cookie_is_bound_to_session_address_secret_and_time() {
        let (secret, other) = (Secret::new([1; 16]), Secret::new([2; 16]));
        let here: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        let there: SocketAddr = "127.0.0.1:4001".parse().unwrap();
        let (a, b) = (SessionId(1), SessionId(2));
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        let cookie = secret.cookie(at(20), a, &here);
        assert!(secret.accepts(cookie, at(20), a, &here));
        assert!(secret.accepts(cookie, at(59), a, &here), "good in the next period");
        assert!(!secret.accepts(cookie, at(60), a, &here), "but not later");
        assert!(!secret.accepts(cookie, at(20), b, &here));
        assert!(!secret.accepts(cookie, at(20), a, &there));
        assert!(!other.accepts(cookie, at(20), a, &here));
        assert!(!secret.accepts(Cookie::default(), at(0), a, &here));
    }
}
