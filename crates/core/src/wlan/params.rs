//! The common parameters of all laws of the downlink: packets, slots, stations.

use super::Report;
use crate::unit::{BitRate, Bytes, Packets, Span};

/// Settings of every law that decides once per slot.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct DownlinkParams {
    /// Δ: the interval of clients' reports, above zero. 500 ms, as in most of the thesis: at least
    /// a hundred frames, and several times the time constant of fluctuations (at most 0.12 s).
    pub interval: Span,
    /// l: the size of the IP packets, above zero. 1500 B.
    pub packet: Bytes,
    /// The rate to a station before its first report, above zero. 1 Mbit/s: 40 packets per slot, so
    /// that the first report contains frames.
    pub start: BitRate,
    /// Nmax: the maximum number of packets per frame of the access point, 2 to 1024. 64, the size
    /// of a block acknowledgement; 128 if it also uses A-MSDUs.
    pub max_packets: Packets,
    /// The maximum number of stations, 1 to 1024. 64.
    pub max_stations: u32,
    /// The number of slots without a report for which a station's rate holds, 1 to 1000, before it
    /// halves with each further one. 3: two lost reports in a row can happen by chance, three mean
    /// that the station has left.
    pub max_missed_reports: u32,
    /// The fastest μR that is believed, at least 6.5 Mbit/s. 3466.8 Mbit/s: MCS 9 with 4 streams
    /// over 160 MHz. A false, higher claim of one station lowers the rates of slower ones.
    pub max_mcs_rate: BitRate,
}

impl Default for DownlinkParams {
    fn default() -> Self {
        Self {
            interval: Span::from_millis(500),
            packet: Bytes::new(1500),
            start: BitRate::from_mbps(1),
            max_packets: Packets::new(64),
            max_stations: 64,
            max_missed_reports: 3,
            max_mcs_rate: BitRate::from_bps(3_466_800_000),
        }
    }
}

/// Settings out of their range, or with which the loop is unstable.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ParamsError {
    /// A number outside its range.
    #[error("`{field}` is {value}, which is not {range}: {why}; give for example {example}")]
    OutOfRange {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: f64,
        /// Its range.
        range: &'static str,
        /// The reason for the range.
        why: &'static str,
        /// A valid value.
        example: &'static str,
    },
}

/// VHT's slowest rate: MCS 0 over 20 MHz.
const SLOWEST: BitRate = BitRate::from_bps(6_500_000);

impl DownlinkParams {
    pub(super) fn check(&self) -> Result<(), ParamsError> {
        let zero = "nothing would ever be sent";
        let above_zero = |field, value: u64, example| {
            check(field, value as f64, value > 0, ["above 0", zero, example])
        };
        above_zero("interval", self.interval.as_nanos(), "500ms")?;
        above_zero("packet", self.packet.get(), "1500B")?;
        above_zero("start", self.start.as_bps(), "1mbit")?;
        let most = self.max_packets.get();
        let why = "no level would lie between one packet and a full frame";
        check(
            "max_packets",
            most as f64,
            (2..=1024).contains(&most),
            ["from 2 to 1024", why, "64p"],
        )?;
        let range = (1..=1024).contains(&self.max_stations);
        let why = "each takes memory, and time in each slot";
        check("max_stations", self.max_stations.into(), range, ["from 1 to 1024", why, "64"])?;
        let range = (1..=1000).contains(&self.max_missed_reports);
        let why = "a report that is late is no station that went away";
        check(
            "max_missed_reports",
            self.max_missed_reports.into(),
            range,
            ["from 1 to 1000", why, "3"],
        )?;
        let fastest = self.max_mcs_rate.as_bps() as f64;
        let why = "802.11ac has no slower rate";
        let range = ["at least 6.5 Mbit/s", why, "867mbit"];
        check("max_mcs_rate", fastest, self.max_mcs_rate >= SLOWEST, range)
    }

    /// Nmax as a level.
    pub(super) fn max_level(&self) -> f64 {
        self.max_packets.get() as f64
    }

    /// The report with its numbers clamped to their ranges; `None` if it has no frames or numbers
    /// that are not finite. Frames have at most `most` packets.
    pub(super) fn sane(&self, report: Report, most: f64) -> Option<Report> {
        let Report { level, deviation, frames, rate, loss } = report;
        let is_said = frames > 0 && [level, deviation, loss].iter().all(|said| said.is_finite());
        is_said.then(|| Report {
            level: level.clamp(1.0, most),
            deviation: deviation.clamp(0.0, most),
            frames,
            rate: rate.clamp(SLOWEST, self.max_mcs_rate),
            loss: loss.clamp(0.0, 1.0),
        })
    }
}

/// The common settings of both forms of Algorithm 2.
pub(super) struct LoopSettings {
    /// K1.
    pub(super) inner_gain: f64,
    /// K2.
    pub(super) outer_gain: f64,
    /// β.
    pub(super) overhead_gain: f64,
    /// T̄.
    pub(super) delay: Span,
    /// The first ĉ.
    pub(super) overhead: Span,
}

impl LoopSettings {
    pub(super) fn check(&self) -> Result<(), ParamsError> {
        let Self { inner_gain: inner, outer_gain: outer, .. } = *self;
        let why = "levels would swing ever wider (5.4.1.3)";
        let holds = inner > 0.0 && inner < 2.0;
        check("inner_gain", inner, holds, ["above 0 and below 2", why, "0.5"])?;
        let why = "the target would swing (Lemma 2)";
        let holds = outer > 0.0 && outer < 1.0;
        check("outer_gain", outer, holds, ["above 0 and below 1", why, "0.2"])?;
        let holds = (0.0..=1.0).contains(&self.overhead_gain);
        let range = ["from 0 to 1", "it is a part of a mean", "0.05"];
        check("overhead_gain", self.overhead_gain, holds, range)?;
        let delay = self.delay.as_nanos();
        let range = ["above 0", "no frame arrives in no time", "5ms"];
        check("delay", delay as f64, delay > 0, range)?;
        let overhead = self.overhead.as_nanos();
        let range = ["above 0", "each frame costs some time", "200us"];
        check("overhead", overhead as f64, overhead > 0, range)
    }
}

/// An error if `holds` is false; `about` is the range, the reason and an example.
pub(super) fn check(
    field: &'static str,
    value: f64,
    holds: bool,
    [range, why, example]: [&'static str; 3],
) -> Result<(), ParamsError> {
    let error = ParamsError::OutOfRange { field, value, range, why, example };
    if holds { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn settings_out_of_range_are_refused_with_the_reason() {
        let params = DownlinkParams::default;
        assert_eq!(params().check(), Ok(()));
        for (wrong, start) in [
            (DownlinkParams { interval: Span::ZERO, ..params() }, "`interval` is 0, which is not"),
            (
                DownlinkParams { max_packets: Packets::new(1), ..params() },
                "`max_packets` is 1, which is not",
            ),
            (
                DownlinkParams { max_stations: 0, ..params() },
                "`max_stations` is 0, which is not from 1",
            ),
            (
                DownlinkParams { max_mcs_rate: BitRate::from_mbps(1), ..params() },
                "`max_mcs_rate` is 1000000",
            ),
        ] {
            let message = wrong.check().unwrap_err().to_string();
            assert!(message.starts_with(start), "{message}");
        }
    }

    #[test]
    fn reports_are_brought_into_their_ranges() {
        let params = DownlinkParams::default();
        let rate = BitRate::from_bps(u64::MAX);
        let wild = Report { level: 1e9, deviation: -1.0, frames: 1, rate, loss: -3.0 };
        let sane = params.sane(wild, 64.0).unwrap();
        assert_eq!((sane.level, sane.deviation, sane.loss), (64.0, 0.0, 0.0));
        assert_eq!(sane.rate, params.max_mcs_rate);
        assert_eq!(params.sane(Report { frames: 0, ..wild }, 64.0), None);
        assert_eq!(params.sane(Report { level: f64::NAN, ..wild }, 64.0), None);
        assert_eq!(params.sane(Report { loss: f64::INFINITY, ..wild }, 64.0), None);
    }
}
