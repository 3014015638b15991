//! The report of an emulated path: the counts of its hops and its cell.

use freshline_core::link::HopConfig;
use freshline_net::emulate::{CellReport, DirectionReport, HopReport};
use freshline_report::{
    Axis, Cell, Mark, Page, Panel, Row, RowSeries, Rows, Scale, Section, Table, short,
};

use crate::html::facts;

/// The common part of both emulators' reports.
pub(super) struct Emulated<'a> {
    pub(super) seed: u64,
    pub(super) duration_s: f64,
    pub(super) forward: &'a DirectionReport,
    pub(super) reverse: &'a DirectionReport,
    pub(super) cell: Option<&'a CellReport>,
    /// The result for the clients, or of the command.
    pub(super) outcome: String,
}

impl Emulated<'_> {
    pub(super) fn page(&self) -> Page {
        let directions = [("forward", self.forward), ("reverse", self.reverse)];
        let hops: Vec<_> = directions
            .iter()
            .flat_map(|(name, direction)| {
                let named = move |(place, hop)| (format!("{name} {}", place + 1), hop);
                direction.hops.iter().enumerate().map(named)
            })
            .collect();
        let mut sections = Vec::new();
        if !hops.is_empty() {
            sections.push(of_hops(&hops));
        }
        sections.extend(self.cell.map(of_cell));
        sections.push(timing(&directions));
        let sum = |of: fn(&HopReport) -> u64| hops.iter().map(|(_, hop)| of(hop)).sum::<u64>();
        let passed = format!(
            "In {} s the path's hops accepted {} packets and dropped {}. {}",
            short(self.duration_s),
            sum(|hop| hop.packets_in),
            sum(|hop| hop.drops.values().sum()),
            self.outcome
        );
        Page {
            title: "The emulated path".to_owned(),
            summary: vec![passed],
            facts: facts(&[("Seed", self.seed.to_string())]),
            sections,
        }
    }
}

/// Mean, median, 99th percentile and maximum, in ms.
fn sojourn(hop: &HopReport) -> [f64; 4] {
    [hop.sojourn_mean_ms, hop.sojourn_p50_ms, hop.sojourn_p99_ms, hop.sojourn_max_ms]
}

fn of_hops(hops: &[(String, &HopReport)]) -> Section {
    let rows = |of: &dyn Fn(&HopReport) -> Vec<f64>| -> Vec<Row> {
        let row = |(label, hop): &(String, &HopReport)| {
            let mark =
                |(series, value)| Mark { series, value: Some(value), half: None, band: None };
            let marks = of(hop).into_iter().enumerate().map(mark).collect();
            Row { label: label.clone(), is_broken: false, marks }
        };
        hops.iter().map(row).collect()
    };
    let names = ["mean", "median", "99th percentile", "maximum"];
    let times = Rows {
        title: "Sojourn time in the queue of each hop".to_owned(),
        x: Axis { scale: Scale::Linear, ..Axis::new("Sojourn time", "s") },
        series: names.map(RowSeries::measured).to_vec(),
        rows: rows(&|hop| sojourn(hop).map(|ms| ms / 1e3).to_vec()),
    };
    let drops = Rows {
        title: "Dropped packets of each hop".to_owned(),
        x: Axis { scale: Scale::Linear, ..Axis::new("Dropped packets", "packets") },
        series: vec![RowSeries::measured("dropped")],
        rows: rows(&|hop| vec![hop.drops.values().sum::<u64>() as f64]),
    };
    let has_drops = hops.iter().any(|(_, hop)| hop.drops.values().sum::<u64>() > 0);
    let panels = [Some(times), has_drops.then_some(drops)].into_iter().flatten();
    Section {
        heading: "Hops".to_owned(),
        panels: panels.map(Panel::Rows).collect(),
        tables: vec![table_of(hops)],
        ..Section::default()
    }
}

/// A row per hop.
fn table_of(hops: &[(String, &HopReport)]) -> Table {
    let mut table = Table::new(
        "Hops",
        &[
            "Hop",
            "Conditions",
            ">In",
            ">Out",
            ">Too big",
            ">Queue full",
            ">Lost",
            ">Mean (ms)",
            ">Median (ms)",
            ">99th percentile (ms)",
            ">Maximum (ms)",
            ">Utilisation (%)",
        ],
    );
    table.rows = hops
        .iter()
        .map(|(name, hop)| {
            let conditions: &HopConfig = &hop.conditions;
            let drop = |reason: &str| hop.drops.get(reason).copied().unwrap_or(0);
            let counts = [
                hop.packets_in,
                hop.packets_out,
                drop("too_big"),
                drop("queue_full") + drop("line_full"),
                drop("loss"),
            ];
            let names = [name.clone(), conditions.to_string()].map(Cell::from).into_iter();
            let counts = counts.into_iter().map(|count| count.to_string().into());
            let times = sojourn(hop).into_iter().map(|ms| short(ms).into());
            names
                .chain(counts)
                .chain(times)
                .chain([short(100.0 * hop.utilisation).into()])
                .collect()
        })
        .collect();
    table
}

fn of_cell(cell: &CellReport) -> Section {
    let mut table = Table::new(
        "Stations of the Wi-Fi cell",
        &[
            "Station",
            ">In",
            ">Out",
            ">Dropped",
            ">Sent again",
            ">Frames",
            ">Packets per frame",
            ">Airtime (%)",
        ],
    );
    table.rows = cell
        .stations
        .iter()
        .map(|station| {
            let name = match station.station {
                0 => "access point".to_owned(),
                number => format!("station {number}"),
            };
            let numbers = [
                station.packets_in.to_string(),
                station.packets_out.to_string(),
                station.drops.values().sum::<u64>().to_string(),
                station.retries.to_string(),
                station.frames.to_string(),
                short(station.level),
                short(100.0 * station.airtime),
            ];
            [name].into_iter().chain(numbers).map(Cell::from).collect()
        })
        .collect();
    Section {
        heading: "Wi-Fi cell".to_owned(),
        text: vec![format!(
            "The medium was busy {} % of the time, with {} exchanges.",
            short(100.0 * cell.utilisation),
            cell.exchanges
        )],
        tables: vec![table],
        ..Section::default()
    }
}

/// The timing accuracy of the emulator.
fn timing(directions: &[(&str, &DirectionReport); 2]) -> Section {
    let mut table = Table::new(
        "How late packets were sent on, after their emulated arrival",
        &["Direction", ">Median (ms)", ">99th percentile (ms)", ">Maximum (ms)"],
    );
    for (name, direction) in directions {
        let error = &direction.timing_error;
        let numbers = [error.p50_ms, error.p99_ms, error.max_ms].map(short);
        let cells = [(*name).to_owned()].into_iter().chain(numbers);
        table.rows.push(cells.map(Cell::from).collect());
    }
    Section { heading: "Accuracy".to_owned(), tables: vec![table], ..Section::default() }
}
