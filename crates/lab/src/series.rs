//! Time series of a run: what each flow, each queue and each cell did in every interval.

mod flows;

use std::io::{self, Write};
use std::ops::Range;

use freshline_core::unit::{Packets, Span, Time};

use crate::scenario::{ACCESS_POINT, Built, LinkHops, Scenario};
use crate::world::{Parcel, World, each};
use flows::{Gained, Mark, Tabled, known};
use freshline_core::wlan::mac::Cell;

/// Writes a table a flow, a table a link and a table a cell: a line an interval.
///
/// Of flows alike, all are in one table, told apart by `number`. A value that is not known is
/// left empty. What is measured runs from time zero: warm-up is not left out.
pub struct Series<W> {
    every: Span,
    at: Time,
    flows: Vec<FlowTable<W>>,
    links: Vec<LinkTable<W>>,
    cells: Vec<CellTable<W>>,
}

struct FlowTable<W> {
    out: W,
    /// In the world.
    flows: Range<usize>,
    /// Of each flow, at the end of the interval before.
    marks: Vec<Mark>,
}

struct LinkTable<W> {
    out: W,
    hops: LinkHops,
}

struct CellTable<W> {
    out: W,
    /// In the world.
    cell: usize,
    /// At the end of the interval before.
    mark: CellMark,
}

/// Where the running sums of a cell are at a moment.
#[derive(Debug, Clone, Copy, Default)]
struct CellMark {
    busy: Span,
    attempts: u64,
    retries: u64,
    transmissions: u64,
    collisions: u64,
}

impl<W: Write> Series<W> {
    /// Begins the tables of a world built from `scenario`, for intervals of `every`, above zero.
    /// `open` is called with the name of each table, such as `flow-robot`.
    ///
    /// # Errors
    /// Those of `open` and of what it opened.
    pub fn new(
        scenario: &Scenario,
        built: &Built,
        every: Span,
        mut open: impl FnMut(&str) -> io::Result<W>,
    ) -> io::Result<Self> {
        let (mut flows, mut links, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for (config, range) in scenario.flows.iter().zip(&built.flows) {
            let Some(first) = built.world.flows()[range.clone()].first() else { continue };
            let mut out = open(&format!("flow-{}", config.name))?;
            let columns = each!(&first.flow, flow => flow.columns());
            writeln!(out, "time_s,number,{columns}")?;
            let marks = vec![Mark::default(); range.len()];
            flows.push(FlowTable { out, flows: range.clone(), marks });
        }
        for (config, hops) in scenario.links.iter().zip(&built.links) {
            let mut out = open(&format!("link-{}", config.name))?;
            writeln!(out, "time_s,queue_packets,reverse_queue_packets")?;
            links.push(LinkTable { out, hops: hops.clone() });
        }
        for (cell, config) in scenario.cells.iter().enumerate() {
            let mut out = open(&format!("cell-{}", config.name))?;
            let columns = "utilisation,retries,collisions,ap_queue_packets,station_queue_packets";
            writeln!(out, "time_s,{columns}")?;
            cells.push(CellTable { out, cell, mark: CellMark::default() });
        }
        Ok(Self { every, at: Time::ZERO, flows, links, cells })
    }

    /// When the present interval ends.
    pub fn next_at(&self) -> Time {
        self.at + self.every
    }

    /// An interval has ended: adds a line of it to each table.
    ///
    /// # Errors
    /// Those of the outputs.
    pub fn on_interval(&mut self, world: &World) -> io::Result<()> {
        let now = world.now();
        let time = now.since(Time::ZERO).as_secs_f64();
        let interval = now.since(self.at);
        self.at = now;
        for FlowTable { out, flows, marks } in &mut self.flows {
            for (number, (flow, mark)) in world.flows()[flows.clone()].iter().zip(marks).enumerate()
            {
                let after = each!(&flow.flow, flow => flow.mark(now));
                let gained = Gained { before: std::mem::replace(mark, after), after, interval };
                let front = format!("{time},{number}");
                each!(&flow.flow, flow => flow.write_line(&gained, &front, out))?;
            }
        }
        for LinkTable { out, hops } in &mut self.links {
            let waiting = |hops: &[usize]| {
                let each = hops.iter().map(|&hop| world.hops()[hop].backlog().packets);
                each.fold(Packets::ZERO, |sum, packets| sum + packets).get()
            };
            writeln!(out, "{time},{},{}", waiting(&hops.forward), waiting(&hops.reverse))?;
        }
        for CellTable { out, cell, mark } in &mut self.cells {
            let cell = &world.cells()[*cell];
            let before = std::mem::replace(mark, CellMark::of(cell, now));
            write!(out, "{time},")?;
            mark.write_since(before, interval, out)?;
            let queued = |at_access_point: bool| -> u64 {
                let queues = cell.queues();
                let forward = queues.filter(|(from, _)| (*from == ACCESS_POINT) == at_access_point);
                forward.map(|(_, packets)| packets.get()).sum()
            };
            writeln!(out, ",{},{}", queued(true), queued(false))?;
        }
        Ok(())
    }

    /// Ends all tables.
    ///
    /// # Errors
    /// Those of the outputs.
    pub fn finish(mut self) -> io::Result<()> {
        let flows = self.flows.iter_mut().map(|table| &mut table.out);
        let links = self.links.iter_mut().map(|table| &mut table.out);
        let cells = self.cells.iter_mut().map(|table| &mut table.out);
        flows.chain(links).chain(cells).try_for_each(Write::flush)
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

    /// What the medium and all stations did in the interval since `before`.
    fn write_since(&self, before: Self, interval: Span, out: &mut impl Write) -> io::Result<()> {
        let share = |part: u64, whole: u64| known((whole > 0).then(|| part as f64 / whole as f64));
        let utilisation = (self.busy - before.busy).as_secs_f64() / interval.as_secs_f64();
        let retries = share(self.retries - before.retries, self.attempts - before.attempts);
        let transmissions = self.transmissions - before.transmissions;
        let collisions = share(self.collisions - before.collisions, transmissions);
        write!(out, "{utilisation},{retries},{collisions}")
    }
}
