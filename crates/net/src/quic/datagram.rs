//! A datagram from the peer.

use std::ops::Deref;

use bytes::Bytes;

/// A datagram from the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram(pub(super) Bytes);

impl Deref for Datagram {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
