//! Time series of a run: what each flow, each queue and each cell did in every interval.

use std::io::{self, Write};
use std::ops::Range;

use freshline_core::age::{AgeProcess, BacklogProcess, Integral};
use freshline_core::unit::{Bytes, Packets, Span, Time};

use crate::scenario::{ACCESS_POINT, Built, LinkHops, MultipathConfig, Scenario};
use crate::world::{Downlink, Flow, Multipath, Parcel, Stream, UpdateFlow, World};
use freshline_core::wlan::mac::Cell;
use freshline_core::wlan::{Belief, Bottleneck};

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

/// Where the running sums of a flow are at a moment.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    age: Integral,
    backlog: Integral,
    /// Updates sent, for a flow of updates.
    sent: u64,
    delivered: Bytes,
    /// Of an exchange, its responses; of a downlink, its packets and their delays.
    round_trips: u64,
    round_trip_sum: Span,
    /// Of a stream over several paths, payload delivered over each.
    by_path: [Bytes; MultipathConfig::MAX_PATHS],
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
            let columns = match &first.flow {
                Flow::Updates(_) => "age_s,updates_per_s,backlog,rtt_s",
                Flow::Stream(_) => {
                    "age_s,goodput_bps,cwnd_packets,srtt_s,rtt_s,queued_bytes,buffer_bytes"
                }
                Flow::Multipath(_) => {
                    "path,goodput_bps,cwnd_packets,srtt_s,device_queue_packets,held_bytes"
                }
                Flow::Exchange(_) => "responses_per_s,response_s,goodput_bps",
                Flow::Downlink(_) => {
                    "rate_bps,level,target,delay_s,goodput_bps,overhead_s,slowest_target,control_level,place"
                }
                Flow::Cross(_) => "throughput_bps",
            };
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
                let before = std::mem::replace(mark, Mark::of(&flow.flow, now));
                let gained = Gained { before, after: *mark, interval };
                if let Flow::Multipath(multipath) = &flow.flow {
                    gained.write_paths(out, multipath, &format!("{time},{number}"))?;
                    continue;
                }
                write!(out, "{time},{number},")?;
                match &flow.flow {
                    Flow::Updates(updates) => gained.write_updates(out, updates)?,
                    Flow::Stream(stream) => gained.write_stream(out, stream)?,
                    Flow::Multipath(_) => {}
                    Flow::Exchange(_) => gained.write_exchange(out)?,
                    Flow::Downlink(downlink) => gained.write_downlink(out, downlink)?,
                    Flow::Cross(_) => writeln!(out, "{}", gained.bps())?,
                }
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

impl Mark {
    fn of(flow: &Flow, now: Time) -> Self {
        match flow {
            Flow::Updates(updates) => {
                let (round_trips, round_trip_sum) = updates.round_trips();
                let now = updates.measured_until(now);
                Self {
                    age: updates.age().mark(now),
                    backlog: updates.backlog().mark(now),
                    sent: updates.sent(),
                    delivered: Bytes::ZERO,
                    round_trips,
                    round_trip_sum,
                    ..Self::default()
                }
            }
            Flow::Stream(stream) => {
                let stats = stream.sender().stats();
                Self {
                    age: stream.age().mark(stream.measured_until(now)),
                    delivered: stream.delivered(),
                    round_trips: stats.rtt_samples,
                    round_trip_sum: stats.rtt_sum,
                    ..Self::default()
                }
            }
            Flow::Multipath(multipath) => {
                let mut by_path = [Bytes::ZERO; MultipathConfig::MAX_PATHS];
                let subflows = multipath.sender().subflows().len();
                for (path, delivered) in by_path.iter_mut().enumerate().take(subflows) {
                    *delivered = multipath.receiver().delivered_by(path);
                }
                Self { by_path, ..Self::default() }
            }
            Flow::Exchange(exchange) => {
                let (round_trips, round_trip_sum) = exchange.response_times();
                let delivered = exchange.responses().delivered();
                Self { round_trips, round_trip_sum, delivered, ..Self::default() }
            }
            Flow::Downlink(downlink) => {
                let (round_trips, round_trip_sum) = downlink.delays();
                let delivered = downlink.delivered();
                Self { round_trips, round_trip_sum, delivered, ..Self::default() }
            }
            Flow::Cross(cross) => Self { delivered: cross.delivered(), ..Self::default() },
        }
    }
}

/// What a flow did in an interval.
struct Gained {
    before: Mark,
    after: Mark,
    interval: Span,
}

impl Gained {
    fn write_updates(&self, out: &mut impl Write, updates: &UpdateFlow) -> io::Result<()> {
        let sent = (self.after.sent - self.before.sent) as f64;
        let rate = sent / self.interval.as_secs_f64();
        let backlog = BacklogProcess::mean_between(self.before.backlog, self.after.backlog);
        let (age, rtt) = (seconds(self.age(updates.age())), seconds(self.rtt()));
        writeln!(out, "{age},{rate},{},{rtt}", known(backlog))
    }

    fn write_stream(&self, out: &mut impl Write, stream: &Stream) -> io::Result<()> {
        let (age, goodput) = (seconds(self.age(stream.age())), self.bps());
        let (window, srtt) = (stream.sender().window().get(), seconds(stream.sender().srtt()));
        let (rtt, buffer) = (seconds(self.rtt()), stream.sender().buffer());
        let (queued, size) = (buffer.queued.get(), buffer.size.get());
        writeln!(out, "{age},{goodput},{window},{srtt},{rtt},{queued},{size}")
    }

    /// A line for each path.
    fn write_paths(
        &self,
        out: &mut impl Write,
        multipath: &Multipath,
        front: &str,
    ) -> io::Result<()> {
        let sender = multipath.sender();
        for (path, subflow) in sender.subflows().iter().enumerate() {
            let bytes = self.after.by_path[path] - self.before.by_path[path];
            let goodput = bytes.get() as f64 * 8.0 / self.interval.as_secs_f64();
            let window = subflow.sender().window().get();
            let srtt = seconds(subflow.sender().srtt());
            let (device, held) = (subflow.device().queue().packets, sender.held().get());
            writeln!(out, "{front},{},{goodput},{window},{srtt},{device},{held}", path + 1)?;
        }
        Ok(())
    }

    fn write_exchange(&self, out: &mut impl Write) -> io::Result<()> {
        let complete = (self.after.round_trips - self.before.round_trips) as f64;
        let rate = complete / self.interval.as_secs_f64();
        writeln!(out, "{rate},{},{}", seconds(self.rtt()), self.bps())
    }

    fn write_downlink(&self, out: &mut impl Write, downlink: &Downlink) -> io::Result<()> {
        let (level, target) = (known(downlink.level()), known(downlink.target()));
        let (rate, delay) = (downlink.rate().as_bps(), seconds(self.rtt()));
        let Belief { overhead, slowest_target, control_level } = downlink.belief();
        let (overhead, control_level) = (seconds(overhead), known(control_level));
        let (slowest, place) = (known(slowest_target), place(downlink.bottleneck()));
        let goodput = self.bps();
        writeln!(
            out,
            "{rate},{level},{target},{delay},{goodput},{overhead},{slowest},{control_level},{place}"
        )
    }

    fn age(&self, process: &AgeProcess) -> Option<Span> {
        process.mean_between(self.before.age, self.after.age)
    }

    fn rtt(&self) -> Option<Span> {
        let count = self.after.round_trips - self.before.round_trips;
        let sum = self.after.round_trip_sum - self.before.round_trip_sum;
        (count > 0).then(|| sum / count)
    }

    fn bps(&self) -> f64 {
        let bytes = self.after.delivered - self.before.delivered;
        bytes.get() as f64 * 8.0 / self.interval.as_secs_f64()
    }
}

/// The answer of a locator; empty where there is none.
fn place(bottleneck: Option<Bottleneck>) -> &'static str {
    match bottleneck {
        Some(Bottleneck::Wireless) => "wireless",
        Some(Bottleneck::Backhaul) => "backhaul",
        None => "",
    }
}

fn seconds(span: Option<Span>) -> String {
    known(span.map(Span::as_secs_f64))
}

fn known(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}
