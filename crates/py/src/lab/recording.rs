//! The recording of a run, as tables.

use freshline_core::unit::Time;
use freshline_lab::record::{Ages, PacketLog};
use freshline_lab::series::{Column, Columns as Recorded, Named};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::table::{Columns, Table};
use crate::time::seconds;

/// The recording of one run.
#[pyclass(frozen, module = "freshline._native")]
pub(crate) struct Recording(freshline_lab::record::Recording);

impl Recording {
    pub(super) fn of(recorded: Option<freshline_lab::record::Recording>) -> Self {
        Self(recorded.unwrap_or_default())
    }
}

#[pymethods]
impl Recording {
    /// Tables by names such as "flow-robot", "link-uplink" and "cell-home", a line per interval.
    #[getter]
    fn series<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tables = PyDict::new(py);
        for Named { name, table } in &self.0.series {
            tables.set_item(name, table_of(table)?)?;
        }
        Ok(tables)
    }

    /// Each delivery that made a monitor fresher: flow, number, topic, key, received_s, generated_s. The first line of
    /// each flow and topic is its start, at which the age is 0.
    #[getter]
    fn ages(&self) -> PyResult<Table> {
        let each =
            || self.0.ages.iter().flat_map(|ages| points(ages).map(move |point| (ages, point)));
        Columns::default()
            .texts("flow", each().map(|(ages, _)| &ages.flow))
            .counts("number", each().map(|(ages, _)| ages.number as u32).collect())
            .texts("topic", each().map(|(ages, _)| &ages.topic))
            .options("key", each().map(|(ages, _)| ages.key.map(f64::from)))
            .numbers("received_s", each().map(|(_, (received, _))| seconds(received)).collect())
            .numbers("generated_s", each().map(|(_, (_, generated))| seconds(generated)).collect())
            .table()
    }

    /// Each packet that left a wired hop or arrived over the air: time_s, carrier, flow, number, kind, bytes, delay_s.
    /// `delay_s` is the time since it entered that hop or cell.
    #[getter]
    fn packets(&self) -> PyResult<Table> {
        let PacketLog { carriers, flows, packets, .. } = &self.0.packets;
        Columns::default()
            .numbers("time_s", packets.iter().map(|packet| seconds(packet.at)).collect())
            .texts("carrier", packets.iter().map(|packet| &carriers[packet.carrier as usize]))
            .texts("flow", packets.iter().map(|packet| &flows[packet.flow as usize]))
            .counts("number", packets.iter().map(|packet| packet.number).collect())
            .texts("kind", packets.iter().map(|packet| packet.kind.name()))
            .long_counts("bytes", packets.iter().map(|packet| packet.size.get()).collect())
            .numbers(
                "delay_s",
                packets
                    .iter()
                    .map(|packet| packet.at.since(packet.entered_at).as_secs_f64())
                    .collect(),
            )
            .table()
    }
}

/// Start, deliveries: when each came, and when it was generated.
fn points(ages: &Ages) -> impl Iterator<Item = (Time, Time)> {
    let start = (ages.starts_at, ages.starts_at);
    let deliveries = ages.deliveries.iter();
    [start].into_iter().chain(deliveries.map(|one| (one.received_at, one.generated_at)))
}

fn table_of(recorded: &Recorded) -> PyResult<Table> {
    let columns = recorded.names.iter().zip(&recorded.columns);
    let add = |table: Columns, (name, column): (&&'static str, &Column)| match column {
        Column::Numbers(values) => table.numbers(name, values.clone()),
        Column::Texts(values) => table.texts(name, values),
    };
    columns.fold(Columns::default(), add).table()
}
