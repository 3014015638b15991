//! A downlink that is the model and nothing more: rounds of frames with drawn backoffs (5.13).

use freshline_core::unit::{BitRate, Bytes, Span, Time};
use freshline_core::wlan::mac::{
    Access, Category, CategoryParams, Framing, Guard, Mode, Standard, Timing, Width,
};
use freshline_core::wlan::{DownlinkLaw, Link, Report, Round, StationId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

pub(crate) const DELTA: Span = Span::from_millis(500);
pub(crate) const PACKET: Bytes = Bytes::new(1500);
/// Nmax.
pub(crate) const MOST: f64 = 64.0;

/// 802.11ac over 80 MHz with long pauses between symbols.
pub(crate) fn vht(mcs: u8, streams: u8) -> Mode {
    Mode::vht(mcs, streams, Width::Mhz80, Guard::Long).unwrap()
}

/// How the access point contends.
pub(crate) fn best_effort() -> CategoryParams {
    *Access::EDCA.params(Category::BestEffort)
}

/// The duration of frames at such a rate.
pub(crate) fn link(mode: Mode) -> Link {
    Link::new(&mode, &Timing::of(Standard::Ac), &Framing::VHT, &best_effort(), PACKET)
}

/// The model of frames to these stations.
pub(crate) fn round(stations: &[Mode]) -> Round {
    Round::new(&stations.iter().copied().map(link).collect::<Vec<_>>()).unwrap()
}

/// An access point with one law at its sender, and every client reporting at the end of each Δ.
pub(crate) struct Downlink<L> {
    pub(crate) law: L,
    pub(crate) now: Time,
    pub(crate) stations: Vec<Mode>,
    /// Factor on a frame's overhead (its cost without its packets), relative to an idle channel.
    pub(crate) contention: f64,
    /// Packets of the frames of the last round.
    levels: Vec<f64>,
    rng: Pcg64,
}

impl<L: DownlinkLaw> Downlink<L> {
    pub(crate) fn new(law: L, stations: &[Mode]) -> Self {
        let mut downlink = Self {
            law,
            now: Time::ZERO,
            stations: Vec::new(),
            contention: 1.0,
            levels: Vec::new(),
            rng: Pcg64::seed_from_u64(stations.len() as u64),
        };
        for station in stations {
            downlink.join(*station);
        }
        downlink
    }

    pub(crate) fn join(&mut self, station: Mode) {
        let id = StationId(self.stations.len() as u32);
        self.law.on_join(self.now, id).unwrap();
        self.stations.push(station);
        self.levels.push(1.0);
    }

    /// A slot in which all clients report.
    pub(crate) fn slot(&mut self) -> Vec<Report> {
        self.slot_with(|_, report| Some(report))
    }

    /// A slot in which each client sends the result of `tell` for its own report; returns the
    /// clients' own reports.
    pub(crate) fn slot_with(
        &mut self,
        tell: impl Fn(usize, Report) -> Option<Report>,
    ) -> Vec<Report> {
        let seen = self.carry();
        self.now += DELTA;
        for (station, report) in seen.iter().enumerate() {
            if let Some(told) = tell(station, *report) {
                self.law.on_report(self.now, StationId(station as u32), told);
            }
        }
        if self.law.poll_timeout().is_some_and(|due| due <= self.now) {
            self.law.handle_timeout(self.now);
        }
        seen
    }

    /// The rates in force, in packets/s.
    pub(crate) fn rates(&self) -> Vec<f64> {
        let packet_bits = 8.0 * PACKET.get() as f64;
        let rate = |id| self.law.rate(StationId(id)).as_bps() as f64 / packet_bits;
        (0..self.stations.len() as u32).map(rate).collect()
    }

    /// Frames for a Δ: N ← (C + wᵀN)·x, in [1, Nmax].
    fn carry(&mut self) -> Vec<Report> {
        let rates = self.rates();
        let links: Vec<Link> = self.stations.iter().copied().map(link).collect();
        let overhead: f64 = links.iter().map(|link| link.overhead.as_secs_f64()).sum();
        let count = self.stations.len();
        let (mut sums, mut squares) = (vec![0.0; count], vec![0.0; count]);
        let (mut lost, mut frames, mut elapsed) = (vec![0.0; count], 0u32, 0.0);
        while elapsed < DELTA.as_secs_f64() {
            // Backoffs of 0 to 15 slots, 7.5 in the mean, for each frame.
            let drawn: u32 = (0..count).map(|_| self.rng.random_range(0..=15)).sum();
            let drawn = (f64::from(drawn) - 7.5 * count as f64) * 9e-6;
            let packets: f64 = links.iter().zip(&self.levels).map(|(l, n)| l.airtime * n).sum();
            let round = self.contention * overhead + drawn + packets;
            for station in 0..count {
                let came = rates[station] * round;
                let level = came.clamp(1.0, MOST);
                lost[station] += (came - MOST).max(0.0);
                sums[station] += level;
                squares[station] += level * level;
                self.levels[station] = level;
            }
            elapsed += round;
            frames += 1;
        }
        let report = |station: usize| {
            let level = sums[station] / f64::from(frames);
            let spread = squares[station] / f64::from(frames) - level * level;
            Report {
                level,
                deviation: spread.max(0.0).sqrt(),
                frames: frames.into(),
                rate: self.stations[station].rate(),
                loss: lost[station] / (lost[station] + sums[station]),
            }
        };
        (0..count).map(report).collect()
    }
}

/// The goodput of packets at these rates (packets/s), to the bit/s.
pub(crate) fn goodput(rates: &[f64]) -> BitRate {
    BitRate::from_bps((rates.iter().sum::<f64>() * 8.0 * PACKET.get() as f64) as u64)
}
