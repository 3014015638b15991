//! Hops and paths as people write them, in files and in flags.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use rand::Rng;

use super::{Hop, LinkParams, Loss, Order, Path};
use crate::router::{Fifo, Limit, Packet};
use crate::unit::{BitRate, Span};

/// One hop. What is left out is ideal: no rate is infinitely fast, no delay is none.
///
/// In a flag it is written as it prints, `rate=6mbit,delay=10ms,jitter=1ms,loss=0.01,queue=100p`,
/// where each part may be left out; in a file each part is a key of a table.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct HopConfig {
    /// The rate of transmission, above zero.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub rate: Option<BitRate>,
    /// The propagation delay.
    pub delay: Span,
    /// The delay of each packet is uniform in `delay` ± `jitter`; at most `delay`.
    pub jitter: Span,
    /// Whether jitter may reorder packets: `kept` (it may not) or `free`.
    pub order: Order,
    /// The probability that a packet is lost behind the transmitter, from 0 to 1.
    pub loss: f64,
    /// What the drop-tail queue in front of the transmitter holds, above zero.
    pub queue: Limit,
}

/// A field of a hop with a value that makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FieldError {
    /// A rate of zero sends nothing, ever.
    #[error("`rate` is zero; give a rate above zero, or leave it out for an infinitely fast link")]
    ZeroRate,
    /// More jitter than delay would deliver packets before they were sent.
    #[error("`jitter` ({jitter}) is larger than `delay` ({delay}); lower one or raise the other")]
    JitterAboveDelay {
        /// The jitter given.
        jitter: Span,
        /// The delay given.
        delay: Span,
    },
    /// A probability outside of 0 to 1.
    #[error("`loss` is {0}; give a probability from 0 to 1, such as 0.05 for 5 %")]
    LossOutOfRange(f64),
    /// A queue that lets nothing through.
    #[error("`queue` is zero, and everything passes through the queue; give at least `1p`")]
    ZeroQueue,
}

impl HopConfig {
    fn check(&self) -> Result<(), FieldError> {
        if self.rate == Some(BitRate::from_bps(0)) {
            return Err(FieldError::ZeroRate);
        }
        if self.jitter > self.delay {
            return Err(FieldError::JitterAboveDelay { jitter: self.jitter, delay: self.delay });
        }
        if !(0.0..=1.0).contains(&self.loss) {
            return Err(FieldError::LossOutOfRange(self.loss));
        }
        if self.queue.is_zero() {
            return Err(FieldError::ZeroQueue);
        }
        Ok(())
    }

    /// The hop, with its random stream.
    pub fn build<P: Packet, R: Rng>(&self, rng: R) -> Result<Hop<Fifo<P>, P, R>, FieldError> {
        self.check()?;
        let link = LinkParams {
            rate: self.rate,
            delay: self.delay,
            jitter: self.jitter,
            order: self.order,
            loss: if self.loss > 0.0 { Loss::Bernoulli(self.loss) } else { Loss::Never },
        };
        Ok(Hop::new(link, Fifo::new(self.queue), rng))
    }
}

/// A hop that could not be read from `key=value,…`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseHopError {
    /// A part without `=`.
    #[error("`{0}` is not of the form `key=value`; write for example `rate=6mbit,delay=10ms`")]
    NotAPair(String),
    /// A key that no hop has.
    #[error("a hop has no `{0}`; it has `rate`, `delay`, `jitter`, `order`, `loss` and `queue`")]
    UnknownKey(String),
    /// A key with two values.
    #[error("`{0}` is given twice; give it once")]
    Repeated(String),
    /// A value that its key does not take.
    #[error("`{key}`: {reason}")]
    BadValue {
        /// The key.
        key: String,
        /// What is wrong with the value, and what to write.
        reason: String,
    },
}

impl FromStr for HopConfig {
    type Err = ParseHopError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut hop = Self::default();
        let mut seen = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| ParseHopError::NotAPair(part.to_string()))?;
            let (key, value) = (key.trim(), value.trim());
            match key {
                "rate" => hop.rate = Some(read(key, value)?),
                "delay" => hop.delay = read(key, value)?,
                "jitter" => hop.jitter = read(key, value)?,
                "order" => hop.order = read(key, value)?,
                "loss" => hop.loss = read(key, value)?,
                "queue" => hop.queue = read(key, value)?,
                _ => return Err(ParseHopError::UnknownKey(key.to_string())),
            }
            if seen.contains(&key) {
                return Err(ParseHopError::Repeated(key.to_string()));
            }
            seen.push(key);
        }
        Ok(hop)
    }
}

fn read<T: FromStr<Err: fmt::Display>>(key: &str, value: &str) -> Result<T, ParseHopError> {
    value.parse().map_err(|error: T::Err| ParseHopError::BadValue {
        key: key.to_string(),
        reason: error.to_string(),
    })
}

impl fmt::Display for HopConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rate) = self.rate {
            write!(f, "rate={rate},")?;
        }
        write!(f, "delay={},", self.delay)?;
        if !self.jitter.is_zero() {
            write!(f, "jitter={},order={},", self.jitter, self.order)?;
        }
        write!(f, "loss={},queue={}", self.loss, self.queue)
    }
}

/// An order that is neither of the two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an order; write `kept` or `free`")]
pub struct ParseOrderError(String);

impl FromStr for Order {
    type Err = ParseOrderError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "kept" => Ok(Self::Kept),
            "free" => Ok(Self::Free),
            _ => Err(ParseOrderError(text.to_string())),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kept => "kept",
            Self::Free => "free",
        })
    }
}

/// The hops of one direction, from first to last. With none, the path is one ideal hop.
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct PathConfig {
    /// The hops.
    pub hop: Vec<HopConfig>,
}

/// A path that cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("hop {hop}: {reason}")]
pub struct PathError {
    /// Which hop, counted from 1.
    pub hop: usize,
    /// What is wrong with it.
    pub reason: FieldError,
}

impl PathConfig {
    /// The path; `rng_of` gives the random stream of each hop, counted from 0.
    pub fn build<P: Packet, R: Rng>(
        &self,
        mut rng_of: impl FnMut(usize) -> R,
    ) -> Result<Path<Fifo<P>, P, R>, PathError> {
        let ideal = HopConfig::default();
        let (first, rest) = self.hop.split_first().unwrap_or((&ideal, &[]));
        let mut build = |index: usize, config: &HopConfig| {
            let hop = config.build(rng_of(index));
            hop.map_err(|reason| PathError { hop: index + 1, reason })
        };
        let mut path = Path::new(build(0, first)?);
        for (index, config) in rest.iter().enumerate() {
            path.push(build(index + 1, config)?);
        }
        Ok(path)
    }
}

/// Both directions between two ends: the content of a path file.
///
/// ```toml
/// [[forward.hop]]
/// rate = "6mbit"
/// delay = "10ms"
/// queue = "100p"
///
/// [[return.hop]]
/// delay = "15ms"
/// loss = 0.05
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct ConditionsConfig {
    /// From the clients to the target.
    pub forward: PathConfig,
    /// From the target back to the clients.
    #[cfg_attr(feature = "serde", serde(rename = "return"))]
    pub back: PathConfig,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Bytes;
    use proptest::prelude::*;
    use rand_pcg::Pcg64;

    struct Update;

    impl Packet for Update {
        fn size(&self) -> Bytes {
            Bytes::new(1024)
        }
    }

    fn refusal(hops: &[&str]) -> String {
        let hop = hops.iter().map(|text| text.parse().unwrap()).collect();
        let built = PathConfig { hop }.build::<Update, _>(|_| Pcg64::new(0, 0));
        built.err().unwrap().to_string()
    }

    #[test]
    fn a_senseless_value_is_refused_with_hop_field_and_remedy() {
        for (hop, remedy) in [
            ("rate=0mbit", "`rate` is zero; give"),
            ("jitter=1ms", "`jitter` (1ms) is larger than `delay` (0ns); lower"),
            ("loss=1.5", "`loss` is 1.5; give a probability from 0 to 1"),
            ("loss=-0.1", "`loss` is -0.1; give"),
            ("loss=nan", "`loss` is NaN; give"),
            ("queue=0p", "`queue` is zero, and everything passes through the queue; give"),
            ("queue=0B", "`queue` is zero"),
        ] {
            let message = refusal(&["delay=1ms", hop]);
            assert!(message.starts_with("hop 2: ") && message.contains(remedy), "{message}");
        }
    }

    #[test]
    fn a_flag_that_cannot_be_read_is_explained() {
        for (text, explanation) in [
            ("fast", "`fast` is not of the form `key=value`"),
            ("colour=red", "a hop has no `colour`; it has `rate`"),
            ("delay=1ms,delay=2ms", "`delay` is given twice"),
            ("delay=20", "`delay`: `20` is not a length of time: unknown unit; write for example"),
            ("queue=100", "`queue`: `100` has no unit; write `100p`"),
            ("order=random", "`order`: `random` is not an order; write `kept` or `free`"),
        ] {
            let message = text.parse::<HopConfig>().unwrap_err().to_string();
            assert!(message.contains(explanation), "{text}: {message}");
        }
    }

    #[test]
    fn no_hops_are_one_ideal_hop() {
        let path = PathConfig::default().build::<Update, _>(|_| Pcg64::new(0, 0)).unwrap();
        assert_eq!(path.hops().len(), 1);
        assert_eq!("".parse(), Ok(HopConfig::default()));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_file_says_the_same_as_flags() {
        let file = r#"
            [[forward.hop]]
            rate = "6mbit"
            delay = "10ms"
            jitter = "1ms"
            order = "free"
            queue = "64kB"
            [[return.hop]]
            delay = "15ms"
            loss = 0.05
        "#;
        let path = |text: &str| PathConfig { hop: [text.parse().unwrap()].into() };
        let flags = ConditionsConfig {
            forward: path("rate=6mbit,delay=10ms,jitter=1ms,order=free,queue=64kB"),
            back: path("delay=15ms,loss=0.05"),
        };
        assert_eq!(toml::from_str::<ConditionsConfig>(file).unwrap(), flags);
        let written = toml::to_string(&flags).unwrap();
        assert_eq!(toml::from_str::<ConditionsConfig>(&written).unwrap(), flags);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_misspelt_key_is_refused_with_its_line() {
        let file = "[[forward.hop]]\ndelay = \"10ms\"\nlos = 0.1\n";
        let message = toml::from_str::<ConditionsConfig>(file).unwrap_err().to_string();
        assert!(message.contains("line 3") && message.contains("unknown field `los`"), "{message}");
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(
            rate in prop::option::of(any::<u64>().prop_map(BitRate::from_bps)),
            delay in any::<u64>().prop_map(Span::from_nanos),
            jitter in any::<u64>().prop_map(Span::from_nanos),
            loss in 0.0f64..=1.0,
            bytes in any::<u64>().prop_map(Bytes::new),
        ) {
            let queue = Limit::Bytes(bytes);
            let hop = HopConfig { rate, delay, jitter, order: Order::Kept, loss, queue };
            prop_assert_eq!(hop.to_string().parse(), Ok(hop));
        }

        #[test]
        fn the_reader_is_total(text in "\\PC{0,60}") {
            let _ = text.parse::<HopConfig>();
        }
    }
}
