//! Sizes and counts.

use core::ops::{Add, AddAssign, Mul, Sub};

use super::parse::{Notation, textual};

/// A size in bytes (octets).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

/// A count of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Packets(u64);

macro_rules! counted {
    ($type:ident, $unit:literal) => {
        impl $type {
            /// Zero.
            pub const ZERO: Self = Self(0);
            /// The maximum.
            pub const MAX: Self = Self(u64::MAX);

            #[doc = concat!("`count` ", $unit, ".")]
            #[inline]
            pub const fn new(count: u64) -> Self {
                Self(count)
            }

            #[doc = concat!("How many ", $unit, ".")]
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The sum, or `None` beyond the range.
            #[inline]
            pub fn checked_add(self, other: Self) -> Option<Self> {
                self.0.checked_add(other.0).map(Self)
            }

            /// The difference, or `None` where `other` is larger.
            #[inline]
            pub fn checked_sub(self, other: Self) -> Option<Self> {
                self.0.checked_sub(other.0).map(Self)
            }
        }

        impl Add for $type {
            type Output = Self;
            #[inline]
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $type {
            #[inline]
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Mul<u64> for $type {
            type Output = Self;
            #[inline]
            fn mul(self, times: u64) -> Self {
                Self(self.0.saturating_mul(times))
            }
        }

        impl Sub for $type {
            type Output = Self;
            #[inline]
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
    };
}
counted!(Bytes, "bytes");
counted!(Packets, "packets");

impl From<usize> for Bytes {
    #[inline]
    fn from(count: usize) -> Self {
        Self(count as u64)
    }
}

const BYTES: Notation = Notation {
    what: "size in bytes",
    example: "`1024B`, `64kB` or `1MiB`",
    usual: "B",
    suffixes: &[
        ("", 1),
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ],
    printed: &[("B", 1)],
};
textual!(Bytes, BYTES);

const PACKETS: Notation = Notation {
    what: "number of packets",
    example: "`100p`",
    usual: "p",
    suffixes: &[("", 1), ("p", 1), ("pkt", 1), ("packets", 1)],
    printed: &[("p", 1)],
};
textual!(Packets, PACKETS);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn sizes_read_and_print() {
        for (text, bytes) in [("1024B", 1024), ("64kb", 64_000), ("1MiB", 1 << 20), ("9", 9)] {
            assert_eq!(text.parse(), Ok(Bytes::new(bytes)), "{text}");
        }
        assert_eq!(Bytes::new(1500).to_string(), "1500B");
        assert_eq!("100p".parse(), Ok(Packets::new(100)));
        assert!("1.5p".parse::<Packets>().is_err());
        assert!("12 apples".parse::<Bytes>().is_err());
    }
}
