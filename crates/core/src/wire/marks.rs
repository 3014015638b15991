//! The code points (DSCP) in messages: the requested one of an answer, and those of arrivals and
//! departures. Each takes a byte that older versions send as zero and ignore.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use crate::dscp::Dscp;

/// A byte with this bit has a code point in its lower six bits.
const SAID: u8 = 0x40;

/// A byte with this bit asks for an echo.
const ECHO: u8 = 0x80;

/// Code points from here on are for the control of networks (RFC 2474 section 4.2.2.2): a peer
/// cannot request them.
const NETWORK_CONTROL: u8 = 48;

/// The code point of answers: acks of updates, reports of a downlink's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AckMark {
    /// The code point with which the last update or packet arrived.
    Echo,
    /// This one.
    Set(Dscp),
}

impl AckMark {
    /// The code point of an answer to a message that arrived with `seen`.
    pub fn of(self, seen: Option<Dscp>) -> Dscp {
        match self {
            Self::Echo => seen.unwrap_or_default(),
            Self::Set(dscp) => dscp,
        }
    }

    /// The code point of an answer: `ours` overrides the peer's request, and without either it
    /// is 0. A peer's request for a code point of network control gives 0.
    pub fn chosen(ours: Option<Self>, requested: Option<Self>, seen: Option<Dscp>) -> Dscp {
        let requested = requested.map_or(Dscp::DEFAULT, |mark| mark.of(seen));
        match ours {
            Some(ours) => ours.of(seen),
            None if requested.get() < NETWORK_CONTROL => requested,
            None => Dscp::DEFAULT,
        }
    }

    pub(super) fn write(mark: Option<Self>) -> u8 {
        match mark {
            None => 0,
            Some(Self::Echo) => ECHO,
            Some(Self::Set(dscp)) => SAID | dscp.get(),
        }
    }

    pub(super) fn read(byte: u8) -> Option<Self> {
        let set = code_point(byte).map(Self::Set);
        set.or_else(|| (byte == ECHO).then_some(Self::Echo))
    }
}

/// A text that is neither a code point nor `echo`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is neither `echo` nor a code point; write a number from 0 to 63, or a name such as EF, \
     AF41 or CS5"
)]
pub struct ParseAckMarkError(String);

impl FromStr for AckMark {
    type Err = ParseAckMarkError;

    fn from_str(text: &str) -> Result<Self, ParseAckMarkError> {
        match text {
            "echo" => Ok(Self::Echo),
            _ => text.parse().map(Self::Set).map_err(|_| ParseAckMarkError(text.to_string())),
        }
    }
}

impl fmt::Display for AckMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo => f.write_str("echo"),
            Self::Set(dscp) => dscp.fmt(f),
        }
    }
}

/// The code points that an answer reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// The code point of the answered update or packet on arrival; `None` if the receiver cannot
    /// read it.
    pub seen: Option<Dscp>,
    /// The code point of the answer when sent; `None` if the receiver does not report it.
    pub sent: Option<Dscp>,
}

impl Marks {
    pub(super) fn write(self) -> [u8; 2] {
        [self.seen, self.sent].map(|dscp| dscp.map_or(0, |dscp| SAID | dscp.get()))
    }

    pub(super) fn read([seen, sent]: [u8; 2]) -> Self {
        Self { seen: code_point(seen), sent: code_point(sent) }
    }
}

fn code_point(byte: u8) -> Option<Dscp> {
    Dscp::new(byte & Dscp::MAX).filter(|_| byte & (SAID | ECHO) == SAID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_and_what_is_written_is_read_again() {
        assert_eq!((AckMark::read(0), Marks::read([0; 2])), (None, Marks::default()));
        assert_eq!(AckMark::read(AckMark::write(Some(AckMark::Echo))), Some(AckMark::Echo));
        for number in 0..=Dscp::MAX {
            let dscp = Dscp::new(number);
            let mark = dscp.map(AckMark::Set);
            assert_eq!(AckMark::read(AckMark::write(mark)), mark);
            for marks in [Marks { seen: dscp, sent: None }, Marks { seen: None, sent: dscp }] {
                assert_eq!(Marks::read(marks.write()), marks);
            }
        }
        for byte in 0..=u8::MAX {
            let is_said = (64..128).contains(&byte);
            assert_eq!(Marks::read([byte, 0]).seen.is_some(), is_said);
            assert_eq!(matches!(AckMark::read(byte), Some(AckMark::Set(_))), is_said);
            assert_eq!(AckMark::read(byte) == Some(AckMark::Echo), byte == 128);
        }
    }

    #[test]
    fn a_mark_is_echoed_or_set() {
        let [ef, cs1] = [46, 8].map(Dscp::new);
        assert_eq!(AckMark::Echo.of(ef), ef.unwrap());
        assert_eq!(AckMark::Echo.of(None), Dscp::DEFAULT);
        assert_eq!(AckMark::Set(cs1.unwrap()).of(ef), cs1.unwrap());
        assert_eq!("echo".parse(), Ok(AckMark::Echo));
        assert_eq!("EF".parse(), Ok(AckMark::Set(ef.unwrap())));
        assert!("Echo!".parse::<AckMark>().is_err());
    }

    #[test]
    fn no_peer_has_us_send_what_controls_networks() {
        for number in 0..=Dscp::MAX {
            let dscp = Dscp::new(number);
            let expected = if number < 48 { dscp.unwrap() } else { Dscp::DEFAULT };
            let set = AckMark::Set(dscp.unwrap());
            assert_eq!(AckMark::chosen(None, Some(AckMark::Echo), dscp), expected);
            assert_eq!(AckMark::chosen(None, Some(set), None), expected);
            assert_eq!(AckMark::chosen(Some(set), Some(AckMark::Echo), None), dscp.unwrap());
        }
    }
}
