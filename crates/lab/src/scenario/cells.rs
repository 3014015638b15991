//! Wi-Fi cells of a scenario, with the stations that its flows have there.

use freshline_core::unit::Time;
use freshline_core::wlan::mac::{Cell, CellConfig, CellError};

use super::flow::Stations;
use super::{CellChange, CellsConfig, ScenarioError, StationConfig};
use crate::engine::Streams;
use crate::world::{Change, Changed, Parcel};

impl CellsConfig {
    pub(super) fn build(
        &self,
        streams: Streams,
        index: usize,
        count: u32,
        stations: &Stations,
    ) -> Result<Cell<Parcel>, ScenarioError> {
        let radio = CellConfig { stations: count.max(self.radio.stations), ..self.radio.clone() };
        let built = radio.build(streams.stream("cell", index));
        let mut cell = built.map_err(|error| self.refused(error))?;
        for StationConfig { name, queue } in &self.stations {
            let station = self.station(index, name, stations)?;
            if let Some(queue) = queue {
                cell.set_queue(station, queue.clone()).map_err(|reason| {
                    let reason = Box::new(reason);
                    self.refused(CellError::Queue { key: "station.queue", reason })
                })?;
            }
        }
        Ok(cell)
    }

    /// The number of the station with the name `name` in flows.
    fn station(&self, index: usize, name: &str, stations: &Stations) -> Result<u32, ScenarioError> {
        stations.find(index, name).ok_or_else(|| ScenarioError::UnknownStation {
            cell: self.name.clone(),
            station: name.to_owned(),
        })
    }

    pub(super) fn changes(
        &self,
        index: usize,
        stations: &Stations,
    ) -> Result<Vec<Change>, ScenarioError> {
        let change = |change: &CellChange| {
            let rate = change.rate.unwrap_or(self.radio.rate);
            let streams = change.streams.unwrap_or(self.radio.streams);
            let radio = CellConfig { rate, streams, ..self.radio.clone() };
            let mode = radio.mode().map_err(|error| self.refused(error))?;
            let find = |name: &String| self.station(index, name, stations);
            let station = change.station.as_ref().map(find).transpose()?;
            let what = Changed::Mode { cell: index, station, mode };
            Ok(Change { at: Time::ZERO + change.at, what })
        };
        self.changes.iter().map(change).collect()
    }

    fn refused(&self, error: CellError) -> ScenarioError {
        ScenarioError::Cell { cell: self.name.clone(), error }
    }
}
