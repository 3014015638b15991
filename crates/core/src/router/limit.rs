//! The capacity of a queue.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use super::{Backlog, QdiscError};
use crate::unit::{Bytes, Packets, ParseUnitError};

/// The capacity of a queue. Written `100p` or `64kB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub enum Limit {
    /// A maximum number of packets, whatever their sizes.
    Packets(Packets),
    /// A maximum number of bytes. A larger packet never fits.
    Bytes(Bytes),
}

impl Limit {
    /// Whether a queue with this limit can hold nothing at all.
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Packets(Packets::ZERO) | Self::Bytes(Bytes::ZERO))
    }

    /// This limit, unless it is zero.
    pub(super) fn checked(self) -> Result<Self, QdiscError> {
        if self.is_zero() { Err(QdiscError::ZeroLimit) } else { Ok(self) }
    }

    /// Whether a packet of `size` may join the queue.
    pub fn admits(self, backlog: Backlog, size: Bytes) -> bool {
        match self {
            Self::Packets(limit) => backlog.packets < limit,
            Self::Bytes(limit) => backlog.bytes + size <= limit,
        }
    }
}

impl Default for Limit {
    /// 1000 packets, Linux's default for a network interface.
    fn default() -> Self {
        Self::Packets(Packets::new(1000))
    }
}

/// A limit that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseLimitError {
    /// A bare number: packets and bytes are far apart, so the unit is asked for.
    #[error("`{0}` has no unit; write `{0}p` for packets or `{0}B` for bytes")]
    NoUnit(String),
    /// Neither packets nor bytes.
    #[error("{0}, or `100p` for packets")]
    Malformed(ParseUnitError),
}

impl FromStr for Limit {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text.parse(), text.parse()) {
            (Ok(_), Ok::<Bytes, _>(_)) => Err(ParseLimitError::NoUnit(text.trim().to_string())),
            (Ok(packets), Err(_)) => Ok(Self::Packets(packets)),
            (Err(_), Ok(bytes)) => Ok(Self::Bytes(bytes)),
            (Err(_), Err(error)) => Err(ParseLimitError::Malformed(error)),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => packets.fmt(f),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

impl TryFrom<String> for Limit {
    type Error = ParseLimitError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Limit> for String {
    fn from(limit: Limit) -> Self {
        limit.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_say_their_unit() {
        assert_eq!("100p".parse(), Ok(Limit::Packets(Packets::new(100))));
        assert_eq!("64kB".parse(), Ok(Limit::Bytes(Bytes::new(64_000))));
        assert_eq!("100".parse::<Limit>(), Err(ParseLimitError::NoUnit("100".to_string())));
        assert!("many".parse::<Limit>().unwrap_err().to_string().contains("`100p` for packets"));
        for limit in ["100p", "64000B"] {
            assert_eq!(limit.parse::<Limit>().unwrap().to_string(), limit);
        }
    }
}
