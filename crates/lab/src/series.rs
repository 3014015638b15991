//! Time series of a run: measurements of each flow, queue and cell per interval.

mod flows;
mod table;

use std::io;
use std::ops::Range;

use freshline_core::unit::{Packets, Span, Time};

use crate::scenario::{ACCESS_POINT, Built, LinkHops, Scenario};
use crate::world::{Parcel, World, each};
use flows::{Gained, Mark, Tabled};
use freshline_core::wlan::mac::Cell;
pub use table::{Column, Columns, Csv, Named, Table, Value};

/// One table per flow, per link and per cell of a scenario, with a line per interval.
///
/// The flows of one `[[flow]]` share a table, in which `number` distinguishes them. Measurement
/// begins at time zero, so the warm-up is included.
pub struct Series<T> {
    every: Span,
    at: Time,
    flows: Vec<FlowTable<T>>,
    links: Vec<LinkTable<T>>,
    cells: Vec<CellTable<T>>,
}

struct FlowTable<T> {
    out: Named<T>,
    /// The indices of its flows in the world.
    flows: Range<usize>,
    /// The state of each flow at the end of the previous interval.
    marks: Vec<Mark>,
}

struct LinkTable<T> {
    out: Named<T>,
    hops: LinkHops,
}

struct CellTable<T> {
    out: Named<T>,
    /// The index of its cell in the world.
    cell: usize,
    /// The state at the end of the previous interval.
    mark: CellMark,
}

/// The running sums of a cell at one time.
#[derive(Debug, Clone, Copy, Default)]
struct CellMark {
    busy: Span,
    attempts: u64,
    retries: u64,
    transmissions: u64,
    collisions: u64,
}

/// The columns of a link.
const LINK: [&str; 3] = ["time_s", "queue_packets", "reverse_queue_packets"];

/// The columns of a cell.
const CELL: [&str; 6] =
    ["time_s", "utilisation", "retries", "collisions", "ap_queue_packets", "station_queue_packets"];

impl<T: Table> Series<T> {
    /// Begins the tables of a world built from `scenario`, for intervals of `every`, above zero.
    /// `open` is called with the name of each table, such as `flow-robot`, and its columns.
    ///
    /// # Errors
    /// Errors of `open`.
    pub fn new(
        scenario: &Scenario,
        built: &Built,
        every: Span,
        mut open: impl FnMut(&str, &[&'static str]) -> io::Result<T>,
    ) -> io::Result<Self> {
        let mut open = |kind: &str, name: &str, columns: &[&'static str]| {
            let name = format!("{kind}-{name}");
            Ok::<_, io::Error>(Named { table: open(&name, columns)?, name })
        };
        let (mut flows, mut links, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for (config, range) in scenario.flows.iter().zip(&built.flows) {
            let Some(first) = built.world.flows()[range.clone()].first() else { continue };
            let own = each!(&first.flow, flow => flow.columns());
            let out = open("flow", &config.name, &[&["time_s", "number"], own].concat())?;
            let marks = vec![Mark::default(); range.len()];
            flows.push(FlowTable { out, flows: range.clone(), marks });
        }
        for (config, hops) in scenario.links.iter().zip(&built.links) {
            links.push(LinkTable { out: open("link", &config.name, &LINK)?, hops: hops.clone() });
        }
        for (cell, config) in scenario.cells.iter().enumerate() {
            let out = open("cell", &config.name, &CELL)?;
            cells.push(CellTable { out, cell, mark: CellMark::default() });
        }
        Ok(Self { every, at: Time::ZERO, flows, links, cells })
    }

    /// When the present interval ends.
    pub fn next_at(&self) -> Time {
        self.at + self.every
    }

    /// An interval has ended: adds a line for it to each table.
    ///
    /// # Errors
    /// Errors of the outputs.
    pub fn on_interval(&mut self, world: &World) -> io::Result<()> {
        let now = world.now();
        let time = Value::from(now.since(Time::ZERO).as_secs_f64());
        let interval = now.since(self.at);
        self.at = now;
        for FlowTable { out, flows, marks } in &mut self.flows {
            for (number, (flow, mark)) in
                (0u64..).zip(world.flows()[flows.clone()].iter().zip(marks))
            {
                let after = each!(&flow.flow, flow => flow.mark(now));
                let gained = Gained { before: std::mem::replace(mark, after), after, interval };
                let front = [time, number.into()];
                each!(&flow.flow, flow => flow.add_lines(&gained, front, &mut out.table))?;
            }
        }
        for LinkTable { out, hops } in &mut self.links {
            let queued = |hops: &[usize]| {
                let each = hops.iter().map(|&hop| world.hops()[hop].backlog().packets);
                Value::from(each.fold(Packets::ZERO, |sum, packets| sum + packets).get())
            };
            out.table.line(&[time, queued(&hops.forward), queued(&hops.reverse)])?;
        }
        for CellTable { out, cell, mark } in &mut self.cells {
            let cell = &world.cells()[*cell];
            let before = std::mem::replace(mark, CellMark::of(cell, now));
            let [utilisation, retries, collisions] = mark.since(before, interval);
            let queued = |at_access_point: bool| {
                let queues = cell.queues();
                let forward = queues.filter(|(from, _)| (*from == ACCESS_POINT) == at_access_point);
                Value::from(forward.map(|(_, packets)| packets.get()).sum::<u64>())
            };
            let queues = [queued(true), queued(false)];
            out.table.line(&[time, utilisation, retries, collisions, queues[0], queues[1]])?;
        }
        Ok(())
    }

    /// Ends all tables and returns them: those of flows, then of links, then of cells, each in the
    /// order of the scenario.
    ///
    /// # Errors
    /// Errors of the outputs.
    pub fn finish(self) -> io::Result<Vec<Named<T>>> {
        let flows = self.flows.into_iter().map(|table| table.out);
        let links = self.links.into_iter().map(|table| table.out);
        let cells = self.cells.into_iter().map(|table| table.out);
        let mut all: Vec<_> = flows.chain(links).chain(cells).collect();
        all.iter_mut().try_for_each(|named| named.table.finish())?;
        Ok(all)
    }
}

impl CellMark {
    fn of(cell: &Cell<Parcel>, now: Time) -> Self {
        let stats = cell.stats();
        Self {
            busy: cell.busy(now),
            attempts: stats.sum(|station| station.attempts),
            retries: stats.sum(|station| station.retries),
            transmissions: stats.sum(|station| station.transmissions),
            collisions: stats.sum(|station| station.collisions),
        }
    }

    /// Results for the medium and all stations in the interval since `before`: utilisation, retries
    /// per attempt, and collisions per transmission.
    fn since(&self, before: Self, interval: Span) -> [Value; 3] {
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let utilisation = (self.busy - before.busy).as_secs_f64() / interval.as_secs_f64();
        let retries = share(self.retries - before.retries, self.attempts - before.attempts);
        let transmissions = self.transmissions - before.transmissions;
        let collisions = share(self.collisions - before.collisions, transmissions);
        [utilisation.into(), retries.into(), collisions.into()]
    }
}
