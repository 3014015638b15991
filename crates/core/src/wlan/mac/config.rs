//! The configuration of a cell, as written in files.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use rand::RngExt;
use rand_pcg::Pcg64;

use super::category::Access;
use super::cell::Cell;
use super::channel::{Channel, Place, Propagation};
use super::frame::{Delivery, Framing};
use super::front::{self, FrontError, Queues};
use super::mode::{Guard, Mode, Width};
use super::parts::CellParts;
use super::protection::Protection;
use super::rate::RateChoice;
use super::rules::Rules;
use super::standard::Standard;
use super::timing::{Slot, Timing};
use crate::router::{Limit, Packet, QdiscConfig};
use crate::unit::{BitRate, Packets, ParseUnitError, Span};

/// A cell. Unset fields have the values of the standard; without `propagation`, the channel is
/// ideal.
///
/// ```toml
/// standard = "802.11a"
/// rate = "12mbit"
/// stations = 7
/// side_m = 20.0
/// [propagation]
/// shadowing_db = 12.0
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct CellConfig {
    /// The standard.
    pub standard: Standard,
    /// The slot: `long` is for 802.11g cells that do not announce short slots.
    pub slot: Slot,
    /// The rate: `12mbit` for 802.11a and g, `mcs7` for n and ac, or `minstrel`.
    pub rate: RateConfig,
    /// The width of the channel; 802.11a and g have 20 MHz only.
    pub width: Width,
    /// The guard interval; 802.11a and g have the long one only.
    pub guard: Guard,
    /// Spatial streams, from 1 to 4; 802.11a and g have one only.
    pub streams: u8,
    /// The number of stations, the access point included: from 2 to 1000.
    pub stations: u32,
    /// The maximum number of MPDUs per A-MPDU, from 1 (no aggregation) to 64.
    pub max_mpdus: usize,
    /// The maximum number of packets per MPDU, as subframes of an A-MSDU, from 1 (no A-MSDUs) to
    /// 32, within A-MSDUs of 3839 bytes (802.11n) or MPDUs of 11454 bytes (802.11ac). With 2, a
    /// frame has up to 128 packets.
    pub max_msdus: u8,
    /// The queue in front of each access category of a station, for each of its receivers: a limit
    /// in packets, above zero, or any discipline that holds no packets back, such as `fq_codel` or
    /// `dual`.
    #[cfg_attr(feature = "serde", serde(serialize_with = "front::write"))]
    pub queue: QdiscConfig,
    /// The queue at the access point, if it differs.
    #[cfg_attr(
        feature = "serde",
        serde(skip_serializing_if = "Option::is_none", serialize_with = "front::write_option")
    )]
    pub ap_queue: Option<QdiscConfig>,
    /// The longest time that a packet may stay in a queue with a limit in packets; disciplines have
    /// their own limits.
    pub lifetime: Span,
    /// Whether queues with a limit in packets drop by CoDel, as those of Linux's mac80211 do: 20 ms
    /// and 100 ms, each queue for itself. Packets that could be marked (ECN) are dropped too.
    /// Without aggregation only.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "core::ops::Not::not"))]
    pub codel: bool,
    /// When packets of an A-MPDU arrive: all at the end of the frame, or each at the end of its
    /// MPDU.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Delivery::is_frame"))]
    pub delivery: Delivery,
    /// Whether stations contend by categories; 802.11n and ac always do, a and g if `access` is
    /// `edca` (as 802.11e stations).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub access: Option<AccessConfig>,
    /// The rules of contention, if they differ from those of `access`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub rules: Option<Rules>,
    /// How frames are protected; if unset, they are not.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub protection: Option<Protection>,
    /// How signals fade; if unset, the channel is ideal.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub propagation: Option<Propagation>,
    /// With `propagation`: the side of a square, with station 0 in the middle and the other
    /// stations placed at random.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub side_m: Option<f64>,
    /// With `propagation`, instead of `side_m`: the place of each station.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub places: Vec<Place>,
}

impl Default for CellConfig {
    /// Two stations at 802.11a's 12 Mbit/s, which hold 500 packets for at most 500 ms: the limits
    /// of common simulators.
    fn default() -> Self {
        Self {
            standard: Standard::A,
            slot: Slot::Short,
            rate: RateConfig::Legacy(BitRate::from_mbps(12)),
            width: Width::Mhz20,
            guard: Guard::Long,
            streams: 1,
            stations: 2,
            max_mpdus: Framing::BLOCK,
            max_msdus: 1,
            queue: QdiscConfig::Fifo { limit: Limit::Packets(Packets::new(500)) },
            ap_queue: None,
            lifetime: Span::from_millis(500),
            codel: false,
            delivery: Delivery::Frame,
            access: None,
            rules: None,
            protection: None,
            propagation: None,
            side_m: None,
            places: Vec::new(),
        }
    }
}

/// How the stations of a cell contend, with the parameters of the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum AccessConfig {
    /// All packets have the same priority.
    Dcf,
    /// By categories.
    Edca,
}

/// The rate of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub enum RateConfig {
    /// A fixed rate: `12mbit`.
    Legacy(BitRate),
    /// A fixed modulation and coding scheme: `mcs7`.
    Mcs(u8),
    /// The best of all modes, found by trial: `minstrel`.
    Minstrel,
}

/// A rate that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; or `mcs7`, or `minstrel`")]
pub struct ParseRateError(#[from] ParseUnitError);

impl FromStr for RateConfig {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("mcs").map(str::parse) {
            Some(Ok(mcs)) => Ok(Self::Mcs(mcs)),
            _ if text == "minstrel" => Ok(Self::Minstrel),
            _ => Ok(Self::Legacy(text.parse()?)),
        }
    }
}

impl fmt::Display for RateConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Legacy(rate) => rate.fmt(f),
            Self::Mcs(mcs) => write!(f, "mcs{mcs}"),
            Self::Minstrel => f.pad("minstrel"),
        }
    }
}

impl TryFrom<String> for RateConfig {
    type Error = ParseRateError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<RateConfig> for String {
    fn from(rate: RateConfig) -> Self {
        rate.to_string()
    }
}

/// A cell that cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CellError {
    /// Too few stations, or too many.
    #[error("`stations` is {0}; give 2 to {most}, the access point included", most = CellConfig::MAX_STATIONS)]
    Stations(u32),
    /// A rate that the standard does not have in this width and with these streams.
    #[error(
        "`rate` {rate} does not exist in {standard} with `width` {width} and {streams} \
         `streams`; a and g have 6, 9, 12, 18, 24, 36, 48 and 54mbit over 20MHz, n has mcs0 to \
         mcs7, ac mcs0 to mcs9, with 1 to 4 streams"
    )]
    Rate {
        /// The rate given.
        rate: RateConfig,
        /// The standard given.
        standard: Standard,
        /// The width given.
        width: Width,
        /// The streams given.
        streams: u8,
    },
    /// Many modes where a single mode is needed.
    #[error("`rate` minstrel has many modes, and here only one will do; give for example mcs9")]
    Minstrel,
    /// A queue limit or lifetime of zero.
    #[error("`{0}` is zero, and nothing would ever be sent; give a value above zero")]
    Zero(&'static str),
    /// A queue that no station can have.
    #[error("`{key}`: {reason}")]
    Queue {
        /// Where.
        key: &'static str,
        /// The reason.
        reason: Box<FrontError>,
    },
    /// Aggregates of no frames, or of more than a block acknowledgement covers.
    #[error("`max_mpdus` is {0}; give 1 for no aggregation, up to 64")]
    MaxMpdus(usize),
    /// A-MSDUs of no packets, or of more than the maximum.
    #[error("`max_msdus` is {0}; give 1 for no A-MSDUs, up to {most}", most = Framing::MAX_MSDUS)]
    MaxMsdus(u8),
    /// A-MSDUs in a standard without them.
    #[error("`max_msdus` is {0}, but 802.11a and g have no A-MSDUs; give 1, or 802.11n or ac")]
    NoMsdus(u8),
    /// Long slots in a standard without them.
    #[error("`slot` is long, but only 802.11g has long slots, not {0}; leave it out")]
    Slot(Standard),
    /// HT and VHT stations have EDCA.
    #[error("`access` is dcf, but 802.11n and ac always contend by edca; leave it out")]
    Access,
    /// Frames that are never sent.
    #[error("`rules.retry_limit` is 0; give at least 1, or leave it out for no limit")]
    RetryLimit,
    /// CoDel judges the first packet of a frame alone.
    #[error("`codel` is for frames of one packet; give `max_mpdus = 1`, or leave it out")]
    CodelOfAggregates,
    /// CoDel in a queue that is a discipline already.
    #[error(
        "`codel` is for queues with a limit in packets; leave it out, or give `queue` such a limit"
    )]
    CodelOfDiscipline,
    /// RTS and CTS at a rate that legacy stations do not have.
    #[error("`protection.rate` is {0}; give 6, 9, 12, 18, 24, 36, 48 or 54mbit")]
    ProtectionRate(BitRate),
    /// A number out of range.
    #[error("`{field}` is {value}; give {wanted}")]
    Number {
        /// Where.
        field: &'static str,
        /// The number given.
        value: f64,
        /// What to give.
        wanted: &'static str,
    },
    /// Stations without a place, or with two.
    #[error("with `propagation`, give either `side_m` or one of `places` a station")]
    Layout,
    /// Places have no effect on an ideal channel.
    #[error("`side_m` and `places` need `propagation`; add it, or leave them out")]
    NoPropagation,
}

impl CellConfig {
    /// The maximum number of stations, the access point included: a cell's table of flows takes at
    /// most 16 MB.
    pub const MAX_STATIONS: u32 = 1000;

    /// Builds the cell. Places and shadowing are drawn from `rng` first, which then belongs to the
    /// cell.
    pub fn build<P: Packet>(&self, mut rng: Pcg64) -> Result<Cell<P>, CellError> {
        self.check()?;
        let (modes, rate) = self.modes()?;
        let aggregates = self.max_mpdus > 1 || self.max_msdus > 1;
        if self.codel && self.standard.aggregates() && aggregates {
            return Err(CellError::CodelOfAggregates);
        }
        let mut queues = [Some(&self.queue), self.ap_queue.as_ref()].into_iter().flatten();
        if self.codel && queues.any(|queue| !front::is_drop_tail(queue)) {
            return Err(CellError::CodelOfDiscipline);
        }
        let (access, rules) = match self.access {
            Some(AccessConfig::Edca) => (Access::EDCA, Rules::EDCA),
            None if self.standard.aggregates() => (Access::EDCA, Rules::EDCA),
            _ => (Access::DCF, Rules::DCF),
        };
        let timing = self.timing();
        let reserve = |protection: &Protection| {
            let made = protection.reservation(self.standard, &timing);
            made.ok_or(CellError::ProtectionRate(protection.rate))
        };
        let parts = CellParts {
            stations: self.stations,
            timing,
            framing: Framing::new(self.standard, &access, self.max_mpdus)
                .with_msdus(self.max_msdus),
            modes,
            access,
            rules: self.rules.unwrap_or(rules),
            protection: self.protection.as_ref().map(reserve).transpose()?,
            channel: self.channel(&mut rng)?,
            rate,
            queues: Queues {
                stations: self.queue.clone(),
                access_point: self.ap_queue.as_ref().unwrap_or(&self.queue).clone(),
            },
            lifetime: self.lifetime,
            codel: self.codel,
            delivery: self.delivery,
        };
        Ok(Cell::new(parts, rng))
    }

    /// The mode of all frames.
    ///
    /// # Errors
    /// If there is no such mode, or more than one.
    pub fn mode(&self) -> Result<Mode, CellError> {
        match self.modes()? {
            (modes, RateChoice::Fixed) => modes.first().copied().ok_or(CellError::Minstrel),
            (_, RateChoice::Minstrel) => Err(CellError::Minstrel),
        }
    }

    fn timing(&self) -> Timing {
        let timing = Timing::of(self.standard);
        if self.slot == Slot::Long { timing.with_long_slot() } else { timing }
    }

    fn check(&self) -> Result<(), CellError> {
        if !(2..=Self::MAX_STATIONS).contains(&self.stations) {
            return Err(CellError::Stations(self.stations));
        }
        let check = |key, queue| {
            front::check(queue).map_err(|reason| CellError::Queue { key, reason: reason.into() })
        };
        check("queue", &self.queue)?;
        self.ap_queue.iter().try_for_each(|queue| check("ap_queue", queue))?;
        if self.lifetime.is_zero() {
            return Err(CellError::Zero("lifetime"));
        }
        if !(1..=Framing::BLOCK).contains(&self.max_mpdus) {
            return Err(CellError::MaxMpdus(self.max_mpdus));
        }
        if !(1..=Framing::MAX_MSDUS).contains(&self.max_msdus) {
            return Err(CellError::MaxMsdus(self.max_msdus));
        }
        if self.max_msdus > 1 && !self.standard.aggregates() {
            return Err(CellError::NoMsdus(self.max_msdus));
        }
        if self.slot == Slot::Long && self.standard != Standard::G {
            return Err(CellError::Slot(self.standard));
        }
        if self.standard.aggregates() && self.access == Some(AccessConfig::Dcf) {
            return Err(CellError::Access);
        }
        if self.rules.is_some_and(|rules| rules.retry_limit == Some(0)) {
            return Err(CellError::RetryLimit);
        }
        Ok(())
    }

    /// The modes of the stations, from slow to fast, and how stations choose among them.
    fn modes(&self) -> Result<(Vec<Mode>, RateChoice), CellError> {
        let Self { standard, rate, width, guard, streams, .. } = *self;
        let wide = |mcs: u8| match standard {
            Standard::N if (1..=4).contains(&streams) && mcs < 8 => {
                Mode::ht(8 * (streams - 1) + mcs, width, guard)
            }
            Standard::Ac => Mode::vht(mcs, streams, width, guard),
            _ => None,
        };
        let plain = (width, guard, streams) == (Width::Mhz20, Guard::Long, 1);
        let legacy =
            |rate| (!standard.aggregates() && plain).then(|| Mode::legacy(standard, rate))?;
        let (modes, choice) = match rate {
            RateConfig::Legacy(rate) => (legacy(rate).into_iter().collect(), RateChoice::Fixed),
            RateConfig::Mcs(mcs) => (wide(mcs).into_iter().collect(), RateChoice::Fixed),
            RateConfig::Minstrel => {
                let all = (6..=54).filter_map(|mbit| legacy(BitRate::from_mbps(mbit)));
                let modes: Vec<_> = all.chain((0..10).filter_map(wide)).collect();
                (modes, RateChoice::Minstrel)
            }
        };
        if modes.is_empty() {
            return Err(CellError::Rate { rate, standard, width, streams });
        }
        Ok((modes, choice))
    }

    fn channel(&self, rng: &mut Pcg64) -> Result<Channel, CellError> {
        let Some(propagation) = &self.propagation else {
            let placed = self.side_m.is_some() || !self.places.is_empty();
            let ideal = Channel::ideal(self.stations as usize);
            return if placed { Err(CellError::NoPropagation) } else { Ok(ideal) };
        };
        check_propagation(propagation)?;
        let places = match self.side_m {
            Some(side) if self.places.is_empty() => {
                finite("side_m", side, "a length in m, at least 0", side >= 0.0)?;
                spread(self.stations, side, rng)
            }
            None if self.places.len() == self.stations as usize => self.places.clone(),
            _ => return Err(CellError::Layout),
        };
        for place in &places {
            finite("places.x_m", place.x_m, "a number of m", true)?;
            finite("places.y_m", place.y_m, "a number of m", true)?;
        }
        Ok(Channel::new(propagation, self.width, &places, rng))
    }
}

/// Station 0 in the middle of a square, the others anywhere in it.
fn spread(stations: u32, side: f64, rng: &mut Pcg64) -> Vec<Place> {
    let mut anywhere = || (rng.random::<f64>() - 0.5) * side;
    let others = (1..stations).map(|_| Place { x_m: anywhere(), y_m: anywhere() });
    [Place::default()].into_iter().chain(others).collect()
}

fn check_propagation(propagation: &Propagation) -> Result<(), CellError> {
    let Propagation { power_dbm, reference_loss_db, exponent, .. } = *propagation;
    let Propagation { shadowing_db, noise_figure_db, capture_db, .. } = *propagation;
    finite("propagation.power_dbm", power_dbm, "a power in dBm, such as 16", true)?;
    finite("propagation.reference_loss_db", reference_loss_db, "a loss in dB", true)?;
    finite("propagation.exponent", exponent, "a number above 0, such as 3", exponent > 0.0)?;
    let deviation = "a deviation in dB, at least 0";
    finite("propagation.shadowing_db", shadowing_db, deviation, shadowing_db >= 0.0)?;
    finite("propagation.noise_figure_db", noise_figure_db, "a ratio in dB, such as 7", true)?;
    let capture = capture_db.unwrap_or(0.0);
    finite("propagation.capture_db", capture, "a ratio in dB, at least 0", capture >= 0.0)
}

fn finite(
    field: &'static str,
    value: f64,
    wanted: &'static str,
    in_range: bool,
) -> Result<(), CellError> {
    if value.is_finite() && in_range {
        return Ok(());
    }
    Err(CellError::Number { field, value, wanted })
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;
    use crate::unit::Bytes;
    use proptest::prelude::*;

    struct Update;

    impl Packet for Update {
        fn size(&self) -> Bytes {
            Bytes::new(1024)
        }
    }

    fn built(file: &str) -> Result<Cell<Update>, String> {
        let config: CellConfig = toml::from_str(file).map_err(|error| error.to_string())?;
        config.build(Pcg64::new(1, 1)).map_err(|error| error.to_string())
    }

    #[test]
    fn files_say_what_a_cell_is() {
        for file in [
            "",
            "access = 'edca'\nrate = '24mbit'",
            "standard = '802.11g'\nrate = '54mbit'\nstations = 10\nslot = 'long'",
            "standard = '802.11n'\nrate = 'mcs7'\nwidth = '40MHz'\nguard = 'short'\nstreams = 2",
            "standard = '802.11ac'\nrate = 'minstrel'\nwidth = '80MHz'\nqueue = '100p'",
            "queue = 'dual'\nap_queue = { discipline = 'ifc', aoi_share = 0.5 }",
            "side_m = 20.0\nlifetime = '1s'\n[propagation]\nshadowing_db = 12.0\nper = 'frame'",
            "[protection]\nexchange = 'cts_to_self'\nrate = '24mbit'\nabove = '500B'",
            "places = [{ x_m = 0, y_m = 0 }, { x_m = 3, y_m = 4 }]\n[propagation]\nexponent = 2",
        ] {
            assert!(built(file).is_ok(), "{file}: {:?}", built(file).err());
        }
    }

    #[test]
    fn a_senseless_value_is_refused_with_field_and_remedy() {
        for (file, remedy) in [
            ("stations = 1", "`stations` is 1; give 2 to 1000"),
            ("rate = '11mbit'", "`rate` 11mbit does not exist in 802.11a"),
            ("rate = 'mcs3'", "`rate` mcs3 does not exist in 802.11a"),
            ("rate = 'fast'", "or `mcs7`, or `minstrel`"),
            ("standard = '802.11n'", "`rate` 12mbit does not exist in 802.11n"),
            ("width = '40MHz'", "in 802.11a with `width` 40MHz"),
            ("streams = 0\nstandard = '802.11n'\nrate = 'mcs0'", "and 0 `streams`"),
            ("queue = '0p'", "`queue`: `limit` is zero"),
            ("codel = true\nqueue = '64kB'", "`codel` is for queues with a limit in packets"),
            ("ap_queue = 'cake'", "`cake` is no discipline"),
            (
                "ap_queue = { discipline = 'ifil', hold = { update_period = '1s', output_period = '10ms' } }",
                "`ap_queue`: a station's queue cannot hold",
            ),
            ("lifetime = '0s'", "`lifetime` is zero"),
            ("standard = '802.11ac'\nrate = 'mcs0'\naccess = 'dcf'", "`access` is dcf"),
            ("max_mpdus = 65", "`max_mpdus` is 65; give 1"),
            ("max_msdus = 33", "`max_msdus` is 33; give 1 for no A-MSDUs, up to 32"),
            ("slot = 'long'", "only 802.11g has long slots, not 802.11a"),
            ("[protection]\nrate = '7mbit'", "`protection.rate` is 7mbit; give 6, 9"),
            ("max_msdus = 2", "802.11a and g have no A-MSDUs"),
            ("[propagation]\nexponent = 3", "give either `side_m` or one of `places`"),
            ("side_m = 3.0", "need `propagation`"),
            ("side_m = -1.0\n[propagation]", "`side_m` is -1; give a length"),
            ("side_m = 1.0\n[propagation]\nexponent = nan", "`propagation.exponent` is NaN"),
            ("colour = 'red'", "unknown field `colour`"),
            ("[propagation]\nloss = 1", "unknown field `loss`"),
        ] {
            let message = built(file).err().unwrap();
            assert!(message.contains(remedy), "{file}: {message}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let propagation = Some(Propagation::default());
        let rules = Some(Rules::BIANCHI);
        let ap_queue = Some(QdiscConfig::Ifc(Box::default()));
        let base = CellConfig { ap_queue, ..CellConfig::default() };
        let config = CellConfig { propagation, rules, side_m: Some(5.0), ..base };
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<CellConfig>(&text).unwrap(), config);
    }

    proptest! {
        #[test]
        fn the_reader_of_rates_is_total(text in "\\PC{0,20}") {
            let _ = text.parse::<RateConfig>();
        }
    }
}
