//! SHA-256 digests, written `sha256:` and 64 hexadecimal digits.

use std::fmt;

use ring::digest::{SHA256, digest};

const BYTES: usize = 32;

/// A digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sha256(pub(crate) [u8; BYTES]);

impl Sha256 {
    pub(crate) fn of(data: &[u8]) -> Self {
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(digest(&SHA256, data).as_ref());
        Self(bytes)
    }

    /// Its first 64 bits, which identify it in tables.
    pub(crate) fn number(&self) -> u64 {
        self.0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Parses 64 hexadecimal digits, without `sha256:`.
    pub(crate) fn from_digits(digits: &str) -> Option<Self> {
        let digits = digits.as_bytes();
        if digits.len() != 2 * BYTES {
            return None;
        }
        let nibble = |digit: u8| char::from(digit).to_digit(16);
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
