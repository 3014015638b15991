//! Slots: when a law decides, and which reports it has then.
//!
//! ```text
//!            ┌─ all have reported, and Δ/2 have passed ─┐
//! slot k ────┤                                          ├─► SlotLaw::step ─► slot k + 1
//!            └─ 3·Δ/2 have passed ──────────────────────┘
//! ```
//!
//! # Where the paper is silent
//!
//! - **Clocks.** Clients report every Δ of their own clocks; the thesis's slots are common to all.
//!   Here a slot ends when the last report arrives, so that new rates and new counts begin
//!   together. It waits up to Δ/2 for late reports, and lasts at least Δ/2 if reports come faster.
//! - **Missing reports.** A station without a report keeps its rate for `max_missed_reports` slots
//!   ([`DownlinkParams`]); then each further slot halves the law's variable for it (its rate, or
//!   z).

use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU16;

use super::{Belief, DownlinkLaw, DownlinkParams, Report, StationId, TooManyStations};
use crate::unit::{BitRate, Span, Time};

/// A law that decides once per slot for all stations.
pub trait SlotLaw: fmt::Debug + Send {
    /// The law's state for one station.
    type State: fmt::Debug + Send;

    /// The name in reports and scenarios.
    fn name(&self) -> &'static str;

    /// The state of a station that joins.
    fn join(&self) -> Self::State;

    /// A slot has ended: sets each station's rate for the next.
    fn step(&mut self, stations: &mut [Station<Self::State>]);

    /// The target level of a station; `None` if the law has too little information.
    fn target(&self, state: &Self::State) -> Option<f64>;

    /// The law's estimates of the channel to a station.
    fn belief(&self, _state: &Self::State) -> Belief {
        Belief::default()
    }
}

/// A station as a law sees it at the end of a slot.
#[derive(Debug, Clone)]
pub struct Station<S> {
    id: StationId,
    /// Its report in this slot, with all numbers in range; `None` without a report.
    pub report: Option<Report>,
    /// Whether its level belongs to its rate: as many packets were sent to it as the rate allows.
    pub is_saturating: bool,
    /// The number of consecutive slots without a report, including this one.
    pub silence: u32,
    /// The rate in force, of IP packets.
    pub rate: BitRate,
    /// The rate at which packets were sent in this slot, if it was lower.
    pub(super) paced: Option<BitRate>,
    /// Nmax as reported by its client.
    max_packets: Option<f64>,
    /// The law's state for it.
    pub state: S,
}

impl<S> Station<S> {
    /// The level of this slot, if it is a measure of the rate.
    pub fn level(&self) -> Option<f64> {
        self.report.filter(|_| self.is_saturating).map(|report| report.level)
    }

    /// The target, limited to a level below full frames, which give only a lower bound of the
    /// level.
    pub(super) fn reachable(&self, target: f64) -> f64 {
        self.max_packets.map_or(target, |most| target.min((most - 2.0).max(1.0)))
    }

    /// Nmax.
    pub(super) fn max_packets(&self, params: &DownlinkParams) -> f64 {
        self.max_packets.unwrap_or(params.max_level())
    }

    /// Whether frames of this level are full, so that the level is only a lower bound.
    pub(super) fn is_full(&self, level: f64, params: &DownlinkParams) -> bool {
        level >= self.max_packets(params) - 1.0
    }

    /// The rate at which packets left in this slot.
    pub fn sent(&self) -> BitRate {
        self.paced.map_or(self.rate, |paced| paced.min(self.rate))
    }
}

/// A law with its stations and its slots.
#[derive(Debug)]
pub struct Slotted<L: SlotLaw> {
    params: DownlinkParams,
    law: L,
    /// Sorted by their numbers.
    stations: Vec<Station<L::State>>,
    /// When this slot began.
    began: Time,
}

impl<L: SlotLaw> Slotted<L> {
    pub(super) fn new(params: DownlinkParams, law: L) -> Self {
        let stations = Vec::with_capacity(params.max_stations as usize);
        Self { params, law, stations, began: Time::ZERO }
    }

    /// The law.
    pub fn law(&self) -> &L {
        &self.law
    }

    /// How often clients should report.
    pub fn interval(&self) -> Span {
        self.params.interval
    }

    fn find(&self, station: StationId) -> Result<usize, usize> {
        self.stations.binary_search_by_key(&station, |known| known.id)
    }

    fn get_mut(&mut self, station: StationId) -> Option<&mut Station<L::State>> {
        let at = self.find(station).ok()?;
        self.stations.get_mut(at)
    }
}

impl<L: SlotLaw> DownlinkLaw for Slotted<L> {
    fn name(&self) -> &'static str {
        self.law.name()
    }

    fn on_join(&mut self, now: Time, station: StationId) -> Result<(), TooManyStations> {
        let Err(at) = self.find(station) else { return Ok(()) };
        let count = self.stations.len();
        if count >= self.params.max_stations as usize {
            return Err(TooManyStations(count));
        }
        if count == 0 {
            self.began = now;
        }
        let joined = Station {
            id: station,
            report: None,
            is_saturating: true,
            silence: 0,
            rate: self.params.start,
            paced: None,
            max_packets: None,
            state: self.law.join(),
        };
        self.stations.insert(at, joined);
        Ok(())
    }

    fn on_leave(&mut self, _now: Time, station: StationId) {
        if let Ok(at) = self.find(station) {
            self.stations.remove(at);
        }
    }

    fn on_report(&mut self, _now: Time, station: StationId, report: Report) {
        let params = self.params;
        let Some(station) = self.get_mut(station) else { return };
        if let Some(report) = params.sane(report, station.max_packets(&params)) {
            station.report = Some(report);
        }
    }

    fn on_app_limited(&mut self, _now: Time, station: StationId) {
        if let Some(station) = self.get_mut(station) {
            station.is_saturating = false;
        }
    }

    fn on_paced(&mut self, _now: Time, station: StationId, rate: BitRate) {
        if let Some(station) = self.get_mut(station) {
            station.paced = Some(rate);
        }
    }

    fn on_max_packets(&mut self, station: StationId, packets: Option<NonZeroU16>) {
        if let Some(station) = self.get_mut(station) {
            station.max_packets = packets.map(|most| f64::from(most.get()).clamp(2.0, 1024.0));
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        for station in &mut self.stations {
            let is_silent = station.report.is_none();
            station.silence = if is_silent { station.silence.saturating_add(1) } else { 0 };
        }
        self.law.step(&mut self.stations);
        for station in &mut self.stations {
            (station.report, station.paced) = (None, None);
            station.is_saturating = true;
        }
        self.began = now;
    }

    fn poll_timeout(&self) -> Option<Time> {
        let half = self.params.interval / 2;
        let has_all = self.stations.iter().all(|station| station.report.is_some());
        let length = if has_all { half } else { half * 3 };
        (!self.stations.is_empty()).then(|| self.began + length)
    }

    fn rate(&self, station: StationId) -> BitRate {
        self.find(station).map_or(BitRate::default(), |at| self.stations[at].rate)
    }

    fn target(&self, station: StationId) -> Option<f64> {
        let at = self.find(station).ok()?;
        self.law.target(&self.stations[at].state)
    }

    fn belief(&self, station: StationId) -> Belief {
        let known = self.find(station).ok().and_then(|at| self.stations.get(at));
        known.map_or(Belief::default(), |known| self.law.belief(&known.state))
    }
}

/// The median of the numbers, the upper of two middle ones; `None` of an empty slice.
///
/// As long as fewer than half of the numbers are false, it is between true ones. Sorts `numbers`.
pub(super) fn median(numbers: &mut [f64]) -> Option<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Doubles the rate of each station that reports, and notes silence.
    #[derive(Debug)]
    struct Doubling;

    impl SlotLaw for Doubling {
        type State = u32;

        fn name(&self) -> &'static str {
            "doubling"
        }

        fn join(&self) -> u32 {
            0
        }

        fn step(&mut self, stations: &mut [Station<u32>]) {
            for station in stations {
                station.state = station.silence;
                if station.level().is_some() {
                    station.rate = BitRate::from_bps(station.rate.as_bps() * 2);
                }
            }
        }

        fn target(&self, _state: &u32) -> Option<f64> {
            None
        }
    }

    fn law() -> Slotted<Doubling> {
        Slotted::new(DownlinkParams { max_stations: 2, ..DownlinkParams::default() }, Doubling)
    }

    const REPORT: Report =
        Report { level: 8.0, deviation: 1.0, frames: 10, rate: BitRate::from_mbps(390), loss: 0.0 };

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_slot_ends_with_the_last_report_but_neither_too_early_nor_too_late() {
        let [one, two] = [StationId(7), StationId(3)];
        let mut law = law();
        assert_eq!(law.poll_timeout(), None);
        law.on_join(ms(100), one).unwrap();
        law.on_join(ms(100), two).unwrap();
        assert_eq!(law.on_join(ms(100), StationId(0)), Err(TooManyStations(2)));
        assert_eq!(law.poll_timeout(), Some(ms(850)));
        law.on_report(ms(200), one, REPORT);
        law.on_report(ms(210), two, Report { frames: 0, ..REPORT });
        assert_eq!(law.poll_timeout(), Some(ms(850)), "a report of no frames is ignored");
        law.on_report(ms(220), two, REPORT);
        assert_eq!(law.poll_timeout(), Some(ms(350)));
        law.handle_timeout(ms(349));
        assert_eq!(law.rate(one), BitRate::from_mbps(1));
        law.handle_timeout(ms(350));
        assert_eq!([one, two].map(|id| law.rate(id)), [BitRate::from_mbps(2); 2]);
        assert_eq!(law.poll_timeout(), Some(ms(1100)));
    }

    #[test]
    fn silence_is_counted_and_strangers_change_nothing() {
        let [one, stranger] = [StationId(1), StationId(2)];
        let mut law = law();
        law.on_join(ms(0), one).unwrap();
        for slot in 1..=3 {
            law.on_report(ms(slot * 750), stranger, REPORT);
            law.handle_timeout(ms(slot * 750));
        }
        assert_eq!(law.stations[0].state, 3);
        law.on_report(ms(2300), one, REPORT);
        law.on_app_limited(ms(2300), one);
        law.on_app_limited(ms(2300), stranger);
        law.handle_timeout(ms(3000));
        assert_eq!((law.stations[0].state, law.rate(one)), (0, BitRate::from_mbps(1)));
        assert_eq!(law.rate(stranger), BitRate::default());
        law.on_leave(ms(3000), stranger);
        law.on_leave(ms(3000), one);
        assert_eq!(law.poll_timeout(), None);
    }

    #[test]
    fn the_median_is_one_of_the_numbers() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0]), Some(3.0));
        assert_eq!(median(&mut [3.0, 1.0]), Some(3.0));
        assert_eq!(median(&mut [9.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn a_client_s_own_maximum_counts_for_its_station_and_stays_in_its_range() {
        let mut law = law();
        let [one, other] = [StationId(0), StationId(1)];
        law.on_join(ms(0), one).unwrap();
        law.on_join(ms(0), other).unwrap();
        law.on_max_packets(one, NonZeroU16::new(128));
        law.on_max_packets(StationId(9), NonZeroU16::new(128));
        for station in [one, other] {
            law.on_report(ms(1), station, Report { level: 100.0, ..REPORT });
        }
        let params = DownlinkParams::default();
        let [first, second] = [&law.stations[0], &law.stations[1]];
        assert_eq!([first.level(), second.level()], [Some(100.0), Some(64.0)]);
        assert_eq!([first, second].map(|one| one.is_full(64.0, &params)), [false, true]);
        assert_eq!([first, second].map(|one| one.reachable(200.0)), [126.0, 200.0]);
        for (stated, taken) in [(1, 2.0), (32, 32.0), (u16::MAX, 1024.0), (0, 64.0)] {
            law.on_max_packets(one, NonZeroU16::new(stated));
            assert_eq!(law.stations[0].max_packets(&params), taken);
            assert!(law.stations[0].reachable(60.0) >= 1.0);
        }
    }
}
