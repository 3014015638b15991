//! The back-off before a node senses the channel: that of the standard, and that of TinyOS's driver
//! of the CC2420.
//!
//! | | IEEE 802.15.4-2015, 6.2.5.1 | TinyOS, CC2420 |
//! |---|---|---|
//! | first back-off | 0 … 2^3 − 1 periods of 320 µs | 11 … 320 jiffies: 0.34 to 9.8 ms |
//! | after a busy channel | 0 … 2^BE − 1 periods, BE + 1 up to 5 | 11 … 80 jiffies: 0.34 to 2.4 ms |
//! | idle channel | the CCA of 128 µs | and again 7 jiffies (214 µs) later |
//! | ack timeout | 864 µs | 256 jiffies: 7.8 ms |
//! | abandons an attempt | after 4 more CCAs | never |
//!
//! A jiffy is 1/32768 s. TinyOS, `tos/chips/cc2420`: `CC2420.h` (`CC2420_BACKOFF_PERIOD` and
//! `CC2420_MIN_BACKOFF` 10, `CC2420_TIME_ACK_TURNAROUND` 7, `CC2420_ACK_WAIT_DELAY` 256),
//! `csma/CC2420CsmaP.nc` (`rand16() % (0x1F · 10) + 10`, `% (0x7 · 10) + 10`) and
//! `transmit/CC2420TransmitP.nc` (one jiffy more; the second CCA; `congestionBackoff` without end).

use freshline_core::unit::Span;
use rand::RngExt;
use rand_pcg::Pcg64;

use super::phy::{ACK_WAIT, BACKOFF, CCA};

/// Parameters of CSMA/CA, with the standard's defaults. In a scenario this is a table, in which
/// `backoff = "cc2420"` makes [`Csma::cc2420`] the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(from = "Table")]
pub struct Csma {
    /// The kind of back-off; default: that of the standard.
    pub backoff: Backoff,
    /// `macMinBe`: 3; used by the standard's back-off alone.
    pub min_be: u8,
    /// `macMaxBe`: 5; up to 8.
    pub max_be: u8,
    /// `macMaxCsmaBackoffs`: 4. The maximum number of further back-offs because of a busy channel;
    /// 255 means no limit.
    pub max_backoffs: u8,
    /// `macMaxFrameRetries`: 3.
    pub max_retries: u8,
    /// The delay before a retry; default: zero.
    pub retry_delay: Span,
    /// The ack timeout: `macAckWaitDuration`.
    pub ack_wait: Span,
    /// The delay of a second CCA after an idle one; default: no second CCA.
    pub second_look: Option<Span>,
}

/// The distribution of back-offs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backoff {
    /// Binary exponential.
    #[default]
    Standard,
    /// Uniform: in a wide range at first, and in a narrow one after a busy channel.
    Cc2420,
}

/// The position of a back-off within an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The first of an attempt.
    First,
    /// A later one, after a busy channel.
    Next,
}

impl Default for Csma {
    fn default() -> Self {
        Self {
            backoff: Backoff::Standard,
            min_be: 3,
            max_be: 5,
            max_backoffs: 4,
            max_retries: 3,
            retry_delay: Span::ZERO,
            ack_wait: ACK_WAIT,
            second_look: None,
        }
    }
}

/// The table in a scenario.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Table {
    backoff: Backoff,
    min_be: Option<u8>,
    max_be: Option<u8>,
    max_backoffs: Option<u8>,
    max_retries: Option<u8>,
    retry_delay: Option<Span>,
    ack_wait: Option<Span>,
    second_look: Option<Span>,
}

impl From<Table> for Csma {
    fn from(table: Table) -> Self {
        let base = match table.backoff {
            Backoff::Standard => Self::default(),
            Backoff::Cc2420 => Self::cc2420(),
        };
        Self {
            backoff: table.backoff,
            min_be: table.min_be.unwrap_or(base.min_be),
            max_be: table.max_be.unwrap_or(base.max_be),
            max_backoffs: table.max_backoffs.unwrap_or(base.max_backoffs),
            max_retries: table.max_retries.unwrap_or(base.max_retries),
            retry_delay: table.retry_delay.unwrap_or(base.retry_delay),
            ack_wait: table.ack_wait.unwrap_or(base.ack_wait),
            second_look: table.second_look.or(base.second_look),
        }
    }
}

/// The duration of `count` ticks of TinyOS's 32 kHz clock.
const fn jiffies(count: u64) -> Span {
    Span::from_nanos(count * 1_000_000_000 / 32_768)
}

/// Jiffies of a back-off of the CC2420's driver, both ends included.
const FIRST: [u64; 2] = [11, 320];
const NEXT: [u64; 2] = [11, 80];

impl Csma {
    /// The behaviour of TinyOS's driver of the CC2420; retries are left to the layer above it
    /// (`PacketLink`).
    pub fn cc2420() -> Self {
        Self {
            backoff: Backoff::Cc2420,
            max_backoffs: u8::MAX,
            max_retries: 0,
            ack_wait: jiffies(256),
            second_look: Some(jiffies(7)),
            ..Self::default()
        }
    }

    /// The time from the beginning of a back-off to the end of the CCA after it.
    pub(super) fn wait(&self, turn: Turn, exponent: u8, rng: &mut Pcg64) -> Span {
        match (self.backoff, turn) {
            (Backoff::Standard, _) => BACKOFF * rng.random_range(0..1u64 << exponent) + CCA,
            // The radio receives all the time: its CCA pin reflects the last 8 symbols.
            (Backoff::Cc2420, Turn::First) => jiffies(rng.random_range(FIRST[0]..=FIRST[1])),
            (Backoff::Cc2420, Turn::Next) => jiffies(rng.random_range(NEXT[0]..=NEXT[1])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn back_offs_are_in_the_ranges_of_their_sources() {
        let mut rng = Pcg64::seed_from_u64(1);
        let mut range = |csma: Csma, turn| {
            let waits: Vec<_> = (0..20_000).map(|_| csma.wait(turn, 3, &mut rng)).collect();
            let micros = |wait: Option<&Span>| wait.map(|wait| wait.as_micros());
            (micros(waits.iter().min()), micros(waits.iter().max()))
        };
        assert_eq!(range(Csma::default(), Turn::First), (Some(128), Some(7 * 320 + 128)));
        assert_eq!(range(Csma::cc2420(), Turn::First), (Some(335), Some(9_765)));
        assert_eq!(range(Csma::cc2420(), Turn::Next), (Some(335), Some(2_441)));
        assert_eq!(Csma::cc2420().ack_wait.as_micros(), 7_812);
    }

    #[test]
    fn a_table_changes_the_profile_that_it_names() {
        let read = |text: &str| toml::from_str::<Csma>(text).unwrap();
        assert_eq!(read(""), Csma::default());
        let changed = read("backoff = \"cc2420\"\nmax_retries = 5\nretry_delay = \"103ms\"");
        let retry_delay = Span::from_millis(103);
        assert_eq!(changed, Csma { max_retries: 5, retry_delay, ..Csma::cc2420() });
        assert!(toml::from_str::<Csma>("min_bee = 3").is_err());
    }
}
