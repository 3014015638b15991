//! Differentiated services: the code point in the header of an IP packet, which names its class.
//!
//! The field has eight bits: six of the code point (RFC 2474), two of ECN (RFC 3168). Names are
//! IANA's: `DF`, `CS0` to `CS7` (RFC 2474), `AF11` to `AF43` (RFC 2597), `EF` (RFC 3246), `VA` (RFC
//! 5865), `LE` (RFC 8622).

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// A code point, 0 to 63. The default is 0: not marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Dscp(u8);

impl Dscp {
    /// 0, the class of packets that are not marked.
    pub const DEFAULT: Self = Self(0);

    /// The largest number.
    pub const MAX: u8 = 63;

    /// The code point of this number; `None` above 63.
    pub const fn new(number: u8) -> Option<Self> {
        if number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// Of the field in a header (IPv4's type of service, IPv6's traffic class), whatever its ECN.
    pub const fn of_traffic_class(class: u8) -> Self {
        Self(class >> 2)
    }

    /// The field in a header, without ECN.
    pub const fn traffic_class(self) -> u8 {
        self.0 << 2
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// A text that names no code point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a code point; write a number from 0 to 63, or a name such as EF, AF41 or CS5"
)]
pub struct ParseDscpError(String);

impl FromStr for Dscp {
    type Err = ParseDscpError;

    fn from_str(text: &str) -> Result<Self, ParseDscpError> {
        let name = text.to_ascii_uppercase();
        let digit = |at: usize| name.as_bytes().get(at).map(|digit| digit.wrapping_sub(b'0'));
        let number = match (name.get(..2), digit(2), digit(3), name.len()) {
            (Some("DF" | "BE"), None, ..) => Some(0),
            (Some("LE"), None, ..) => Some(1),
            (Some("VA"), None, ..) => Some(44),
            (Some("EF"), None, ..) => Some(46),
            (Some("CS"), Some(class @ 0..=7), None, _) => Some(class * 8),
            (Some("AF"), Some(class @ 1..=4), Some(precedence @ 1..=3), 4) => {
                Some(class * 8 + precedence * 2)
            }
            _ => text.parse().ok(),
        };
        number.and_then(Self::new).ok_or_else(|| ParseDscpError(text.to_string()))
    }
}

/// Prints the name, or the number if it has none.
impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("LE"),
            44 => f.write_str("VA"),
            46 => f.write_str("EF"),
            number if number % 8 == 0 => write!(f, "CS{}", number / 8),
            number if number % 2 == 0 && (8..40).contains(&number) => {
                write!(f, "AF{}{}", number / 8, number % 8 / 2)
            }
            number => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn names_and_numbers_are_read_and_written() {
        for (text, number, name) in [
            ("ef", 46, "EF"),
            ("CS7", 56, "CS7"),
            ("af41", 34, "AF41"),
            ("AF13", 14, "AF13"),
            ("le", 1, "LE"),
            ("va", 44, "VA"),
            ("df", 0, "CS0"),
            ("BE", 0, "CS0"),
            ("63", 63, "63"),
            ("2", 2, "2"),
        ] {
            let dscp: Dscp = text.parse().unwrap();
            assert_eq!((dscp.get(), dscp.to_string()), (number, name.to_string()), "{text}");
        }
        for text in ["", "64", "-1", "CS8", "CS", "AF", "AF4", "AF51", "AF44", "AF411", "efx", "é"]
        {
            assert_eq!(text.parse::<Dscp>(), Err(ParseDscpError(text.into())));
        }
    }

    #[test]
    fn each_is_read_as_it_is_written_and_survives_the_header() {
        for number in 0..=Dscp::MAX {
            let dscp = Dscp::new(number).unwrap();
            assert_eq!(format!("{dscp}").parse(), Ok(dscp));
            for ecn in 0..4 {
                assert_eq!(Dscp::of_traffic_class(dscp.traffic_class() | ecn), dscp);
            }
        }
        assert_eq!(Dscp::new(64), None);
    }
}
