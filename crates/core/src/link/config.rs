//! The configuration of hops and paths, in files and flags.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use rand::{Rng, SeedableRng};

use super::{
    FieldError, Framing, GilbertElliott, Hop, HopChange, LinkParams, Loss, Order, Path,
    TraceConfig, TraceFileError,
};
use crate::router::{Discipline, Limit, Packet, QdiscConfig};
use crate::unit::{BitRate, Bytes, Span};

/// One hop. Unset fields are ideal: without a rate it is infinitely fast, and the default delay
/// is 0.
///
/// A flag has the printed form, `rate=6mbit,delay=10ms,jitter=1ms,loss=0.01,queue=100p`, where each
/// part may be left out; in a file each part is a key of a table.
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct HopConfig {
    /// The rate of transmission, above zero.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub rate: Option<BitRate>,
    /// A trace of delivery opportunities, instead of a rate, and of delays, in addition to `delay`:
    /// a file or a model. A trace with delays only varies the delay of a link with a rate.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub trace: Option<TraceConfig>,
    /// The largest IP packet that the hop takes, at least [`HopConfig::MIN_MTU`].
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub mtu: Option<Bytes>,
    /// The bytes that the link layer adds to each IP packet, such as `ethernet` or
    /// `overhead 44 mpu 84 atm`; none by default.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub framing: Option<Framing>,
    /// The propagation delay.
    pub delay: Span,
    /// The delay of each packet is uniform in `delay` ± `jitter`; at most `delay`.
    pub jitter: Span,
    /// Whether jitter may reorder packets: `kept` (it may not) or `free`.
    pub order: Order,
    /// The probability that a packet is lost after transmission, from 0 to 1; with `to_bad`, in the
    /// good state.
    pub loss: f64,
    /// Loss in bursts ([`GilbertElliott`]): the probability per packet that the good state turns
    /// bad, from 0 to 1.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub to_bad: Option<f64>,
    /// The probability per packet that the bad state turns good, above 0 and at most 1; required
    /// with `to_bad`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub to_good: Option<f64>,
    /// The probability of loss in the bad state, from 0 to 1; default: 1.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub bad_loss: Option<f64>,
    /// The queue in front of the transmitter.
    pub queue: QdiscConfig,
    /// When the hop gets another rate or delay, in ascending order; in files only.
    #[cfg_attr(feature = "serde", serde(rename = "change", skip_serializing_if = "Vec::is_empty"))]
    pub changes: Vec<HopChange>,
}

impl HopConfig {
    /// The smallest MTU: every IPv4 link takes packets of 68 bytes (RFC 791, section 3.2).
    pub const MIN_MTU: Bytes = Bytes::new(68);

    /// Reads its trace file, if it has one, from the text that `read` returns for the name.
    pub fn read_trace<E>(
        &mut self,
        read: impl FnOnce(&str) -> Result<String, E>,
    ) -> Result<(), TraceFileError<E>> {
        match &mut self.trace {
            Some(TraceConfig::File(file)) => file.read(read),
            Some(TraceConfig::Model(_)) | None => Ok(()),
        }
    }

    /// The same hop, with this seed and stream for its trace model if they are unset. Hops with the
    /// same seed and different streams can be the two directions of one link.
    pub fn or_trace_seed(&self, seed: u64, stream: u64) -> Self {
        let mut hop = self.clone();
        if let Some(TraceConfig::Model(model)) = hop.trace {
            hop.trace = Some(model.or_seed(seed, stream).into());
        }
        hop
    }

    /// Whether packets that arrive together always leave together: if no field treats packets one
    /// by one, a super-packet may pass as a whole. A queue with a limit in packets is empty then.
    pub fn keeps_together(&self) -> bool {
        // Every field is named, so that a new one is considered here. Framing affects only a rate.
        let Self {
            rate,
            trace,
            mtu,
            framing: _,
            delay: _,
            jitter,
            order: _,
            loss,
            to_bad,
            to_good: _,
            bad_loss: _,
            queue,
            changes,
        } = self;
        let has_rate = rate.is_some() || changes.iter().any(|change| change.rate.is_some());
        let is_paced = has_rate || trace.is_some();
        let draws = !jitter.is_zero() || *loss > 0.0 || to_bad.is_some();
        let counts_packets = matches!(queue, QdiscConfig::Fifo { limit: Limit::Packets(_) });
        !is_paced && !draws && mtu.is_none() && counts_packets
    }

    fn check(&self) -> Result<(), FieldError> {
        if self.rate == Some(BitRate::from_bps(0)) {
            return Err(FieldError::ZeroRate);
        }
        if let Some(mtu) = self.mtu.filter(|mtu| *mtu < Self::MIN_MTU) {
            return Err(FieldError::MtuTooSmall(mtu));
        }
        if self.jitter > self.delay {
            return Err(FieldError::JitterAboveDelay { jitter: self.jitter, delay: self.delay });
        }
        self.check_changes()
    }

    fn check_changes(&self) -> Result<(), FieldError> {
        let mut before = Span::ZERO;
        for &HopChange { at, rate, delay } in &self.changes {
            if at < before {
                return Err(FieldError::ChangeOutOfOrder { at });
            }
            before = at;
            if rate.is_none() && delay.is_none() {
                return Err(FieldError::EmptyChange { at });
            }
            if rate == Some(BitRate::from_bps(0)) {
                return Err(FieldError::ZeroRate);
            }
            if let Some(delay) = delay.filter(|delay| *delay < self.jitter) {
                return Err(FieldError::JitterAboveDelay { jitter: self.jitter, delay });
            }
        }
        Ok(())
    }

    fn checked_loss(&self) -> Result<Loss, FieldError> {
        let good_loss = probability("loss", self.loss)?;
        let Some(to_bad) = self.to_bad else {
            let idle = [("to_good", self.to_good), ("bad_loss", self.bad_loss)];
            return match idle.iter().find(|(_, value)| value.is_some()) {
                Some((field, _)) => Err(FieldError::NoBadState(field)),
                None if good_loss > 0.0 => Ok(Loss::Bernoulli(good_loss)),
                None => Ok(Loss::Never),
            };
        };
        let to_bad = probability("to_bad", to_bad)?;
        let to_good = probability("to_good", self.to_good.unwrap_or(0.0))?;
        let bad_loss = probability("bad_loss", self.bad_loss.unwrap_or(1.0))?;
        if to_good == 0.0 {
            return Err(FieldError::EndlessBadState);
        }
        Ok(Loss::GilbertElliott(GilbertElliott { good_loss, bad_loss, to_bad, to_good }))
    }

    /// Builds the hop, with its random stream.
    pub fn build<P: Packet, R: Rng + SeedableRng>(
        &self,
        mut rng: R,
    ) -> Result<Hop<Discipline<P>, P, R>, FieldError> {
        self.check()?;
        let trace = self.trace.as_ref().map(|trace| trace.build(&mut rng)).transpose()?;
        let is_paced = trace.as_ref().is_some_and(|trace| trace.opportunities() > 0);
        let has_rate = self.rate.or(self.changes.iter().find_map(|change| change.rate)).is_some();
        if is_paced && has_rate {
            return Err(FieldError::RateAndTrace);
        }
        let link = LinkParams {
            mtu: self.mtu,
            rate: self.rate,
            trace,
            framing: self.framing.unwrap_or_default(),
            delay: self.delay,
            jitter: self.jitter,
            order: self.order,
            loss: self.checked_loss()?,
        };
        let queue = self.queue.build(&mut rng)?;
        Ok(Hop::new(link, queue, rng).with_changes(&self.changes))
    }
}

fn probability(field: &'static str, value: f64) -> Result<f64, FieldError> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(FieldError::NotAProbability { field, value })
    }
}

/// A hop that could not be read from `key=value,…`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseHopError {
    /// A part without `=`.
    #[error("`{0}` is not of the form `key=value`; write for example `rate=6mbit,delay=10ms`")]
    NotAPair(String),
    /// A key that no hop has.
    #[error(
        "a hop has no `{0}`; it has `rate`, `mtu`, `framing`, `delay`, `jitter`, `order`, `loss`, \
         `to_bad`, `to_good`, `bad_loss` and `queue`, and in a file `trace` and `change`"
    )]
    UnknownKey(String),
    /// A key with two values.
    #[error("`{0}` is given twice; give it once")]
    Repeated(String),
    /// A value that its key does not take.
    #[error("`{key}`: {reason}")]
    BadValue {
        /// The key.
        key: String,
        /// The problem with the value, and the remedy.
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
                "mtu" => hop.mtu = Some(read(key, value)?),
                "framing" => hop.framing = Some(read(key, value)?),
                "delay" => hop.delay = read(key, value)?,
                "jitter" => hop.jitter = read(key, value)?,
                "order" => hop.order = read(key, value)?,
                "loss" => hop.loss = read(key, value)?,
                "to_bad" => hop.to_bad = Some(read(key, value)?),
                "to_good" => hop.to_good = Some(read(key, value)?),
                "bad_loss" => hop.bad_loss = Some(read(key, value)?),
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
        if let Some(trace) = &self.trace {
            write!(f, "trace={},", trace.name())?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, "mtu={mtu},")?;
        }
        if let Some(framing) = self.framing {
            write!(f, "framing={framing},")?;
        }
        write!(f, "delay={},", self.delay)?;
        if !self.jitter.is_zero() {
            write!(f, "jitter={},order={},", self.jitter, self.order)?;
        }
        write!(f, "loss={},", self.loss)?;
        let burst =
            [("to_bad", self.to_bad), ("to_good", self.to_good), ("bad_loss", self.bad_loss)];
        for (key, value) in burst {
            if let Some(value) = value {
                write!(f, "{key}={value},")?;
            }
        }
        write!(f, "queue={}", self.queue)
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

/// The hops of one direction, from first to last. Without hops, the path is one ideal hop.
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
    /// The reason.
    pub reason: FieldError,
}

impl PathConfig {
    /// Reads the traces of its hops from the texts that `read` returns for their names.
    pub fn read_traces<E>(
        &mut self,
        mut read: impl FnMut(&str) -> Result<String, E>,
    ) -> Result<(), TraceFileError<E>> {
        self.hop.iter_mut().try_for_each(|hop| hop.read_trace(&mut read))
    }

    /// The same hops, as by [`HopConfig::or_trace_seed`]; `stream_of` gives the stream of each hop,
    /// counted from 0.
    pub fn or_trace_seeds(&self, seed: u64, stream_of: impl Fn(usize) -> u64) -> Self {
        let hops = self.hop.iter().enumerate();
        Self { hop: hops.map(|(hop, it)| it.or_trace_seed(seed, stream_of(hop))).collect() }
    }

    /// The path; `rng_of` gives the random stream of each hop, counted from 0.
    pub fn build<P: Packet, R: Rng + SeedableRng>(
        &self,
        mut rng_of: impl FnMut(usize) -> R,
    ) -> Result<Path<Discipline<P>, P, R>, PathError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::TraceFile;
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
            ("to_bad=2,to_good=1", "`to_bad` is 2; give a probability"),
            ("to_bad=0.1,to_good=-1", "`to_good` is -1; give"),
            ("to_bad=0.1,to_good=1,bad_loss=7", "`bad_loss` is 7; give"),
            ("to_bad=0.1", "`to_bad` needs a `to_good` above 0"),
            ("bad_loss=0.1", "`bad_loss` means nothing without `to_bad`; add"),
            ("to_good=0.1", "`to_good` means nothing"),
            ("mtu=67B", "`mtu` is 67B; give at least 68B"),
            ("queue=0p", "`queue`: `limit` is zero, and everything passes through the queue; give"),
            ("queue=0B", "`queue`: `limit` is zero"),
        ] {
            let message = refusal(&["delay=1ms", hop]);
            assert!(message.starts_with("hop 2: ") && message.contains(remedy), "{message}");
        }
    }

    #[test]
    fn packets_remain_together_where_nothing_treats_them_one_by_one() {
        for together in ["", "delay=20ms", "delay=1ms,framing=ethernet,queue=3p", "order=free"] {
            assert!(together.parse::<HopConfig>().unwrap().keeps_together(), "{together}");
        }
        for apart in [
            "rate=1gbit",
            "mtu=1400B",
            "delay=2ms,jitter=1ms",
            "loss=0.01",
            "to_bad=0.1,to_good=0.5",
            "queue=64kB",
            "queue=fq_codel",
        ] {
            assert!(!apart.parse::<HopConfig>().unwrap().keeps_together(), "{apart}");
        }
        let change = |rate, delay| HopChange { at: Span::from_secs(1), rate, delay };
        let later = |change| HopConfig { changes: [change].into(), ..HopConfig::default() };
        assert!(later(change(None, Some(Span::from_millis(5)))).keeps_together());
        assert!(!later(change(Some(BitRate::from_bps(1)), None)).keeps_together());
        let model = crate::link::TraceModel::Leo(crate::link::LeoModel::default());
        assert!(!HopConfig { trace: Some(model.into()), ..HopConfig::default() }.keeps_together());
    }

    #[test]
    fn a_flag_that_cannot_be_read_is_explained() {
        for (text, explanation) in [
            ("fast", "`fast` is not of the form `key=value`"),
            ("colour=red", "a hop has no `colour`; it has `rate`"),
            ("delay=1ms,delay=2ms", "`delay` is given twice"),
            (
                "delay=20",
                "`delay`: `20` is not a length of time: it has no unit; write for example",
            ),
            ("framing=fibre", "`framing`: `fibre` is not a framing; write a keyword"),
            ("queue=100", "`queue`: `100` is no discipline; write `fifo`, `lifo`"),
            ("order=random", "`order`: `random` is not an order; write `kept` or `free`"),
        ] {
            let message = text.parse::<HopConfig>().unwrap_err().to_string();
            assert!(message.contains(explanation), "{text}: {message}");
        }
    }

    #[test]
    fn a_trace_is_used_once_its_file_has_been_read() {
        let named = |name: &str| HopConfig {
            trace: Some(TraceConfig::File(TraceFile::new(name))),
            ..<_>::default()
        };
        let build = |hop: &HopConfig| hop.build::<Update, _>(Pcg64::new(0, 0)).err();
        let mut hop = named("lte.trace");
        let message = build(&hop).unwrap().to_string();
        assert!(message.contains("`lte.trace` has not been read"), "{message}");

        hop.read_trace(|name| Ok::<_, &str>(if name == "lte.trace" { "1\n3" } else { "" }.into()))
            .unwrap();
        assert_eq!(build(&hop), None);
        hop.rate = Some(BitRate::from_bps(1));
        assert_eq!(build(&hop), Some(FieldError::RateAndTrace));

        let missing = named("a").read_trace(|_| Err("no such file")).unwrap_err();
        assert_eq!(missing.to_string(), "cannot read the trace `a`: no such file");
        let malformed = named("a").read_trace(|_| Ok::<_, &str>("fast".into())).unwrap_err();
        assert!(malformed.to_string().starts_with("the trace `a`, line 1: `fast` is not a time"));
    }

    #[test]
    fn no_hops_are_one_ideal_hop() {
        let path = PathConfig::default().build::<Update, _>(|_| Pcg64::new(0, 0)).unwrap();
        assert_eq!(path.hops().len(), 1);
        assert_eq!("".parse(), Ok(HopConfig::default()));
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_back(
            rate in prop::option::of(any::<u64>().prop_map(BitRate::from_bps)),
            delay in any::<u64>().prop_map(Span::from_nanos),
            jitter in any::<u64>().prop_map(Span::from_nanos),
            loss in 0.0f64..=1.0,
            bad_loss in prop::option::of(0.0f64..=1.0),
            mtu in prop::option::of(any::<u64>().prop_map(Bytes::new)),
            bytes in any::<u64>().prop_map(Bytes::new),
        ) {
            let hop = HopConfig {
                rate,
                trace: None,
                mtu,
                framing: mtu.map(|_| "pppoe-ptm mpu 68".parse().unwrap()),
                delay,
                jitter,
                order: Order::Kept,
                loss,
                to_bad: bad_loss,
                to_good: bad_loss,
                bad_loss,
                queue: QdiscConfig::Fifo { limit: Limit::Bytes(bytes) },
                changes: Vec::new(),
            };
            prop_assert_eq!(hop.to_string().parse(), Ok(hop));
        }

        #[test]
        fn the_reader_is_total(text in "\\PC{0,60}") {
            let _ = text.parse::<HopConfig>();
        }
    }
}
