//! `freshline wlan plan`: the fairest rates to the stations of an access point, from their modes.

use std::io::{self, Write};
use std::path::PathBuf;

use freshline_core::unit::{Bytes, Span};
use freshline_core::wlan::mac::{
    Access, Category, Framing, Guard, MAX_ON_AIR, Mode, Standard, Timing, Width,
};
use freshline_core::wlan::{Binding, Limits, Link, NonlinearParams, Reports, Round};
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::output::{print_json, printed};

/// Plan the rates to the stations of an access point: the fairest that keep its delay low.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The model of the book's page on Wi-Fi: 802.11ac, best effort, no other senders, no losses.
A station is mcs=9,streams=2,width=80MHz,guard=long,count=1, of which only mcs must be given. In a
file each is a table [[station]] with these keys.

EXAMPLES

    Ten stations with two streams, a delay of at most 5 ms:
        freshline wlan plan --station mcs=9,streams=2,count=10 --delay 5ms

    A near and a far station, by level alone, with two reports per second from each:
        freshline wlan plan --station mcs=9 --station mcs=2 --level 32 --report-interval 500ms

EXIT CODES

0  a plan was printed
2  the flags or the file cannot be understood, or no rates keep the limits")]
pub(crate) struct Args {
    /// Plan for this station, or `count` equal ones; may be given several times.
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = parse_station)]
    station: Vec<Stations>,
    /// Read stations from this file (TOML).
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Limit a round of frames, one to each station, to this time: it bounds the mean delay;
    /// unlimited if unset.
    #[arg(long, value_name = "SPAN")]
    delay: Option<Span>,
    /// Limit the level to this many packets per frame; half of the capacity of frames if unset.
    #[arg(long, value_name = "PACKETS")]
    level: Option<f64>,
    /// Assume this size of the IP packets, in bytes.
    #[arg(long, default_value = "1500B")]
    packet_size: Bytes,
    /// Assume at most N packets per MPDU, 1 to 32: 2 if the access point makes A-MSDUs of two.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=32))]
    max_msdus: u8,
    /// Assume that each station reports at this interval, with 84 bytes; no reports if unset.
    #[arg(long, value_name = "SPAN")]
    report_interval: Option<Span>,
    /// Print JSON on standard output.
    #[arg(long)]
    json: bool,
}

/// Equal stations.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stations {
    mcs: u8,
    #[serde(default = "one")]
    streams: u8,
    #[serde(default = "widest")]
    width: Width,
    #[serde(default)]
    guard: Guard,
    #[serde(default = "one")]
    count: u8,
}

const fn one() -> u8 {
    1
}

const fn widest() -> Width {
    Width::Mhz80
}

/// The file of a plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    station: Vec<Stations>,
}

/// A limit above the number of stations of real access points.
const MAX_STATIONS: usize = 1_000;

/// The size of a report with its headers.
const REPORT: Bytes = Bytes::new(84);

/// `docs/json.md` describes each key.
#[derive(Debug, Serialize)]
struct Plan {
    stations: Vec<Planned>,
    round_ms: f64,
    binding: &'static str,
    packets_bps: f64,
    goodput_bps: f64,
    reports_share: f64,
    max_packets: usize,
    /// The largest stable K0 of the linear law, in bit/s per packet.
    gain_limit_bps: u64,
    /// The factor by which the true overhead may exceed the nonlinear law's estimate.
    margin: f64,
}

/// The plan for one station.
#[derive(Debug, Serialize)]
struct Planned {
    mcs: u8,
    streams: u8,
    mcs_rate_bps: u64,
    packets_bps: f64,
    level: f64,
    frame_ms: f64,
}

fn parse_station(text: &str) -> Result<Stations, String> {
    let mut table = toml::Table::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            format!("`{part}` is not of the form `key=value`; write for example `mcs=9,streams=2`")
        })?;
        let (key, value) = (key.trim(), value.trim());
        let number = value.parse().map(toml::Value::Integer);
        let value = number.unwrap_or_else(|_| toml::Value::String(value.to_owned()));
        if table.insert(key.to_owned(), value).is_some() {
            return Err(format!("`{key}` is given twice; give it once"));
        }
    }
    table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let plan = args.plan().map_err(Failure::Usage)?;
    if args.json {
        return print_json(&plan);
    }
    printed(plan.print(&mut io::stdout().lock()))
}

impl Args {
    /// All stations, one by one, with their modes.
    fn stations(&self) -> miette::Result<Vec<(Stations, Mode)>> {
        let mut all = self.station.clone();
        if let Some(file) = &self.file {
            let name = file.display();
            let text = std::fs::read_to_string(file)
                .into_diagnostic()
                .wrap_err_with(|| format!("cannot read {name}"))?;
            let read: File =
                toml::from_str(&text).map_err(|error| miette!("{name} is not a plan: {error}"))?;
            all.extend(read.station);
        }
        let mut each = Vec::new();
        for stations in all {
            let Stations { mcs, streams, width, guard, count } = stations;
            let mode = Mode::vht(mcs, streams, width, guard).ok_or_else(|| {
                miette!(
                    "802.11ac has no MCS {mcs} with {streams} streams over {width}; MCS are 0 to \
                     9, streams 1 to 4, and a few pairs of them are left out"
                )
            })?;
            each.extend((0..count).map(|_| (stations.clone(), mode)));
        }
        if each.is_empty() || each.len() > MAX_STATIONS {
            return Err(miette!(
                "there are {} stations; give 1 to {MAX_STATIONS} by --station or --file",
                each.len()
            ));
        }
        Ok(each)
    }

    /// The limits of an allocation to frames of at most `max_packets`.
    fn limits(&self, max_packets: usize) -> miette::Result<Limits> {
        let level = self.level.unwrap_or(max_packets as f64 / 2.0);
        if level >= max_packets as f64 {
            return Err(miette!(
                "--level is {level}, and frames carry {max_packets} packets: give less, or queues \
                 grow"
            ));
        }
        Ok(Limits { delay: self.delay.unwrap_or(Span::MAX), level, airtime: MAX_ON_AIR })
    }

    fn plan(&self) -> miette::Result<Plan> {
        let stations = self.stations()?;
        let timing = Timing::of(Standard::Ac);
        let framing = Framing::VHT.with_msdus(self.max_msdus);
        let best_effort = Access::EDCA.params(Category::BestEffort);
        if self.packet_size.get() == 0 || self.packet_size > framing.max_packet() {
            let most = framing.max_packet();
            return Err(miette!("--packet-size is {}; give 1B to {most}", self.packet_size));
        }
        let link = |mode: &Mode| Link::new(mode, &timing, &framing, best_effort, self.packet_size);
        let links: Vec<Link> = stations.iter().map(|(_, mode)| link(mode)).collect();
        let round = Round::new(&links).into_diagnostic()?;
        let max_packets = framing.max_packets(self.packet_size);
        let allocation = round.allocate(self.limits(max_packets)?).into_diagnostic()?;
        let (share, rates) = match self.report_interval {
            None => (0.0, allocation.rates),
            Some(interval) if interval.is_zero() => {
                return Err(miette!("--report-interval is 0s; give for example 500ms"));
            }
            Some(interval) => {
                let none = Reports::new(interval, best_effort);
                let reports = stations.iter().fold(none, |reports, (_, mode)| {
                    reports.with(REPORT, mode, &timing, &framing, best_effort)
                });
                let levels = &allocation.levels;
                (reports.share(&round, levels), reports.rates(&round, levels))
            }
        };
        if share >= 1.0 {
            return Err(miette!(
                "reports this often take all of the air; give a longer --report-interval"
            ));
        }
        let bits = 8.0 * self.packet_size.get() as f64;
        let headers = 8.0 * 28.0_f64.min(self.packet_size.get() as f64);
        let packets_a_second: f64 = rates.iter().sum();
        let gain_limit = round.gain_limit(&allocation.levels, self.packet_size);
        let planned = stations.iter().zip(&links).zip(rates.iter().zip(&allocation.levels)).map(
            |(((station, mode), link), (rate, level))| Planned {
                mcs: station.mcs,
                streams: station.streams,
                mcs_rate_bps: mode.rate().as_bps(),
                packets_bps: rate * bits,
                level: *level,
                frame_ms: 1e3 * (link.overhead.as_secs_f64() + level * link.airtime),
            },
        );
        Ok(Plan {
            stations: planned.collect(),
            round_ms: allocation.round.as_millis_f64() / (1.0 - share),
            binding: match allocation.binding {
                Binding::Delay => "delay",
                Binding::Level => "level",
                Binding::Share => "share",
            },
            packets_bps: packets_a_second * bits,
            goodput_bps: packets_a_second * (bits - headers),
            reports_share: share,
            max_packets,
            gain_limit_bps: gain_limit.as_bps(),
            margin: NonlinearParams::default().margin(),
        })
    }
}

impl Plan {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "station  mode      MCS rate        rate     level     frame")?;
        for (number, station) in self.stations.iter().enumerate() {
            let Planned { mcs, streams, mcs_rate_bps, packets_bps, level, frame_ms } = station;
            writeln!(
                out,
                "{number:>7}  mcs{mcs} x{streams}  {:>7.1} Mb/s  {:>7.2} Mb/s  {level:>6.2}  \
                 {frame_ms:>6.3} ms",
                *mcs_rate_bps as f64 / 1e6,
                packets_bps / 1e6,
            )?;
        }
        let binding = match self.binding {
            "delay" => "the delay is the limit",
            "level" => "the level is the limit",
            _ => "fairness is the limit: more for slow stations would cost fast ones as much",
        };
        writeln!(
            out,
            "a round takes {:.3} ms, which bounds the mean delay until transmission; {binding}",
            self.round_ms
        )?;
        writeln!(
            out,
            "in all {:.1} Mb/s of packets, {:.1} of UDP payload; frames carry {} packets at most",
            self.packets_bps / 1e6,
            self.goodput_bps / 1e6,
            self.max_packets,
        )?;
        if self.reports_share > 0.0 {
            writeln!(out, "reports take {:.2} % of the air", 100.0 * self.reports_share)?;
        }
        writeln!(
            out,
            "stable: the linear law with a gain below {:.2} Mb/s, the nonlinear one where a frame's \
             overhead is less than {} times its estimate",
            self.gain_limit_bps as f64 / 1e6,
            self.margin,
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn plan(flags: &[&str]) -> Result<Plan, String> {
        let line = Line::try_parse_from([&["plan"], flags].concat()).map_err(|e| e.to_string())?;
        line.args.plan().map_err(|error| error.to_string())
    }

    #[test]
    fn one_station_gets_the_models_rate() {
        let plan = plan(&["--station", "mcs=9", "--level", "32"]).unwrap();
        // 32 packets every 200.6 + 32 · 31.67 µs.
        assert!((plan.packets_bps / 1e6 - 316.3).abs() < 0.1, "{plan:?}");
        assert!((plan.goodput_bps / 1e6 - 310.4).abs() < 0.1, "{plan:?}");
        assert_eq!((plan.binding, plan.max_packets), ("level", 64));
        // 2 · 200.6 µs · 12 kbit over the square of the frame's 1.214 ms.
        assert!((plan.gain_limit_bps as f64 / 1e6 - 3.267).abs() < 0.005, "{plan:?}");
        assert_eq!(plan.margin, 4.0);
    }

    #[test]
    fn the_delay_binds_and_reports_and_a_msdus_count() {
        let two = ["--station", "mcs=9,streams=2,count=2", "--delay", "1ms"];
        let plain = plan(&two).unwrap();
        assert!((plain.round_ms - 1.0).abs() < 1e-6 && plain.binding == "delay", "{plain:?}");
        let told = plan(&[&two[..], &["--report-interval", "100ms"]].concat()).unwrap();
        let left = told.packets_bps / plain.packets_bps;
        assert!(left < 0.999 && (left + told.reports_share - 1.0).abs() < 1e-9, "{told:?}");
        let paired = plan(&["--station", "mcs=9,streams=2", "--max-msdus", "2"]).unwrap();
        assert_eq!((paired.max_packets, paired.stations[0].level), (128, 64.0));
    }

    #[test]
    fn what_cannot_be_planned_is_refused_with_the_remedy() {
        for (flags, remedy) in [
            (&[][..], "give 1 to 1000 by --station"),
            (&["--station", "mcs=6,streams=3"], "no MCS 6 with 3 streams"),
            (&["--station", "fast"], "not of the form `key=value`"),
            (&["--station", "mcs=9,mcs=8"], "given twice"),
            (&["--station", "mcs=9", "--level", "64"], "frames carry 64 packets"),
            (&["--station", "mcs=9", "--level", "0.5"], "give 1 or more"),
            (&["--station", "mcs=9", "--delay", "1us"], "give a delay above that"),
            (&["--station", "mcs=9", "--report-interval", "0s"], "--report-interval is 0s"),
            (&["--station", "mcs=9", "--packet-size", "20000B"], "--packet-size is"),
        ] {
            let error = plan(flags).unwrap_err();
            assert!(error.contains(remedy), "{flags:?}: {error}");
        }
    }
}
