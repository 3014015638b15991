//! A constant rate: the simplest law.

use super::{DownlinkLaw, Report, StationId, TooManyStations};
use crate::unit::{BitRate, Time};

/// The same constant rate for each station, independent of reports.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    rate: BitRate,
}

impl Fixed {
    /// A rate of IP packets to every station.
    pub fn new(rate: BitRate) -> Self {
        Self { rate }
    }
}

impl DownlinkLaw for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    /// Any number of stations:
    /// [`ServerParams::max_clients`](crate::session::downlink::ServerParams) is the limit.
    fn on_join(&mut self, _now: Time, _station: StationId) -> Result<(), TooManyStations> {
        Ok(())
    }

    fn on_leave(&mut self, _now: Time, _station: StationId) {}

    fn on_report(&mut self, _now: Time, _station: StationId, _report: Report) {}

    fn on_app_limited(&mut self, _now: Time, _station: StationId) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// The same for unknown stations too, as it keeps no list.
    fn rate(&self, _station: StationId) -> BitRate {
        self.rate
    }

    fn target(&self, _station: StationId) -> Option<f64> {
        None
    }
}
