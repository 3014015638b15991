//! The bytes that a link layer adds to an IP packet.
//!
//! ```text
//! padded = max(size + overhead, mpu)
//! none   wire = padded
//! atm    wire = 53 · ⌈padded / 48⌉          whole cells (ITU-T I.361, I.363.5)
//! ptm    wire = padded + ⌈padded / 64⌉      64b/65b encoding (IEEE 802.3, clause 61)
//! ```
//!
//! This is the arithmetic of Linux's CAKE (`cake_calc_overhead` in `net/sched/sch_cake.c`), with
//! its keywords and their values (`tc-cake(8)`); `tc-stab(8)` does the same with a table. `size`
//! is the IP packet, from its IP header on, so no value is negative.
//!
//! A link of R bit/s sends each packet in `wire` · 8 / R. Queues, schedulers and statistics count
//! IP packets without these bytes.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use crate::unit::Bytes;

/// The encoding of frames on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cells {
    /// No further encoding.
    #[default]
    None,
    /// Cells of 53 bytes that carry 48: ADSL with ATM.
    Atm,
    /// 65 bytes per started block of 64: VDSL2 with PTM.
    Ptm,
}

impl Cells {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "noatm",
            Self::Atm => "atm",
            Self::Ptm => "ptm",
        }
    }
}

/// The bytes that a link adds to each IP packet. The default adds none.
///
/// In a flag or a file it is text: one of [`Framing::KEYWORDS`], or `overhead BYTES`,
/// `mpu BYTES`, and `atm`, `ptm` or `noatm`, in any order; a later word overrides an earlier one,
/// as in `pppoe-ptm mpu 68`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct Framing {
    /// The size of the link's headers and trailers per packet, at most [`Framing::MAX`].
    pub overhead: Bytes,
    /// The smallest size of a packet with its overhead (minimum packet unit), at most
    /// [`Framing::MAX`]: smaller ones are padded.
    pub mpu: Bytes,
    /// The encoding below.
    pub cells: Cells,
}

impl Framing {
    /// The largest overhead and the largest minimum: 256 bytes, as in CAKE.
    pub const MAX: Bytes = Bytes::new(256);

    /// CAKE's keywords, with overhead, minimum and encoding: `tc-cake(8)`.
    pub const KEYWORDS: [(&'static str, Self); 14] = [
        ("raw", Self::of(0, 0, Cells::None)),
        ("ethernet", Self::of(38, 84, Cells::None)),
        ("docsis", Self::of(18, 64, Cells::None)),
        ("pppoe-ptm", Self::of(30, 0, Cells::Ptm)),
        ("bridged-ptm", Self::of(22, 0, Cells::Ptm)),
        ("ipoa-vcmux", Self::of(8, 0, Cells::Atm)),
        ("ipoa-llcsnap", Self::of(16, 0, Cells::Atm)),
        ("bridged-vcmux", Self::of(24, 0, Cells::Atm)),
        ("bridged-llcsnap", Self::of(32, 0, Cells::Atm)),
        ("pppoa-vcmux", Self::of(10, 0, Cells::Atm)),
        ("pppoa-llc", Self::of(14, 0, Cells::Atm)),
        ("pppoe-vcmux", Self::of(32, 0, Cells::Atm)),
        ("pppoe-llcsnap", Self::of(40, 0, Cells::Atm)),
        ("conservative", Self::of(48, 0, Cells::Atm)),
    ];

    const fn of(overhead: u64, mpu: u64, cells: Cells) -> Self {
        Self { overhead: Bytes::new(overhead), mpu: Bytes::new(mpu), cells }
    }

    /// Whether it adds no bytes to any packet.
    pub fn is_raw(self) -> bool {
        self == Self::default()
    }

    /// The bytes on the wire of an IP packet of `size`.
    #[inline]
    pub fn on_wire(self, size: Bytes) -> Bytes {
        let padded = size.get().saturating_add(self.overhead.get()).max(self.mpu.get());
        Bytes::new(match self.cells {
            Cells::None => padded,
            Cells::Atm => padded.div_ceil(48).saturating_mul(53),
            Cells::Ptm => padded.saturating_add(padded.div_ceil(64)),
        })
    }
}

/// Why a text is not a framing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseFramingError {
    /// An unknown word.
    #[error(
        "`{0}` is not a framing; write a keyword ({keywords}), or `overhead 38 mpu 84`, with `atm` \
         or `ptm` behind it where the link has cells",
        keywords = keywords()
    )]
    UnknownWord(String),
    /// A number that is missing, malformed or too large.
    #[error("`{word}` needs a number of bytes from 0 to {max}, such as `{word} 38`", max = Framing::MAX.get())]
    BadNumber {
        /// The word before the number.
        word: String,
    },
}

fn keywords() -> String {
    Framing::KEYWORDS.map(|(keyword, _)| keyword).join(", ")
}

impl FromStr for Framing {
    type Err = ParseFramingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut framing = Self::default();
        let mut words = text.split_ascii_whitespace();
        while let Some(word) = words.next() {
            match word {
                "overhead" => framing.overhead = bytes(word, words.next())?,
                "mpu" => framing.mpu = bytes(word, words.next())?,
                "atm" => framing.cells = Cells::Atm,
                "ptm" => framing.cells = Cells::Ptm,
                "noatm" => framing.cells = Cells::None,
                _ => {
                    let known = Self::KEYWORDS.into_iter().find(|(keyword, _)| *keyword == word);
                    let unknown = || ParseFramingError::UnknownWord(word.to_string());
                    framing = known.ok_or_else(unknown)?.1;
                }
            }
        }
        Ok(framing)
    }
}

/// A number of bytes, with its unit or without.
fn bytes(word: &str, number: Option<&str>) -> Result<Bytes, ParseFramingError> {
    let read = |text: &str| text.parse().ok().or_else(|| text.parse().ok().map(Bytes::new));
    number
        .and_then(read)
        .filter(|bytes| *bytes <= Framing::MAX)
        .ok_or_else(|| ParseFramingError::BadNumber { word: word.to_string() })
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { overhead, mpu, cells } = self;
        write!(f, "overhead {} mpu {} {}", overhead.get(), mpu.get(), cells.name())
    }
}

impl TryFrom<String> for Framing {
    type Error = ParseFramingError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Framing> for String {
    fn from(framing: Framing) -> Self {
        framing.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn on_wire(framing: &str, size: u64) -> u64 {
        framing.parse::<Framing>().unwrap().on_wire(Bytes::new(size)).get()
    }

    #[test]
    fn sizes_on_the_wire_are_those_of_cake() {
        for (framing, size, wire) in [
            ("", 40, 40),
            ("ethernet", 40, 84),
            ("ethernet", 1500, 1538),
            // 32 + 40 = 72 bytes are two cells, 1532 are 32.
            ("pppoe-vcmux", 40, 106),
            ("pppoe-vcmux", 1500, 1696),
            ("atm", 48, 53),
            ("atm", 49, 106),
            ("pppoe-ptm", 1492, 1522 + 24),
            ("ptm", 64, 65),
            ("ptm", 65, 67),
            ("overhead 44 mpu 84 atm", 20, 106),
            ("docsis mpu 100B", 50, 100),
        ] {
            assert_eq!(on_wire(framing, size), wire, "{framing}, {size} bytes");
        }
    }

    #[test]
    fn what_cannot_be_read_is_explained() {
        for (text, explanation) in [
            ("fibre", "`fibre` is not a framing; write a keyword (raw, ethernet, docsis"),
            ("overhead", "`overhead` needs a number of bytes from 0 to 256, such as `overhead 38`"),
            ("mpu -1", "`mpu` needs a number of bytes"),
            ("overhead 257", "from 0 to 256"),
        ] {
            let message = text.parse::<Framing>().unwrap_err().to_string();
            assert!(message.contains(explanation), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(overhead in 0..=256u64, mpu in 0..=256u64, cells in 0..3u8) {
            let cells = [Cells::None, Cells::Atm, Cells::Ptm][usize::from(cells)];
            let framing = Framing::of(overhead, mpu, cells);
            prop_assert_eq!(framing.to_string().parse(), Ok(framing));
        }

        #[test]
        fn no_size_makes_it_fail(size: u64, overhead in 0..=256u64) {
            for cells in [Cells::None, Cells::Atm, Cells::Ptm] {
                prop_assert!(Framing::of(overhead, 84, cells).on_wire(Bytes::new(size)).get() >= size.min(u64::MAX / 2));
            }
        }
    }
}
