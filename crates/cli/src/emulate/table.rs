//! The emulated conditions and the counts of the hops as text.

use std::io::{self, Write};

use freshline_core::link::{ConditionsConfig, PathConfig};
use freshline_net::emulate::{CellReport, DirectionReport};

use super::wlan;

/// Prints the emulated conditions on standard error.
pub(super) fn print_conditions(conditions: &ConditionsConfig) {
    print_path("forward", &conditions.forward);
    print_path("reverse", &conditions.reverse);
    if let Some(cell) = &conditions.wlan {
        say!("  wlan: {}", wlan::print(cell));
    }
}

fn print_path(direction: &str, path: &PathConfig) {
    if path.hop.is_empty() {
        say!("  {direction}: ideal");
    }
    for (index, hop) in path.hop.iter().enumerate() {
        say!("  {direction} hop {}: {hop}", index + 1);
    }
}

/// Prints one line per hop.
pub(super) fn print_hops(
    out: &mut impl Write,
    forward: &DirectionReport,
    reverse: &DirectionReport,
) -> io::Result<()> {
    writeln!(
        out,
        "{:<10} {:>9} {:>9} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>5}",
        "hop", "in", "out", "big", "full", "lost", "mean ms", "p50 ms", "p99 ms", "max ms", "util"
    )?;
    for (direction, path) in [("forward", forward), ("reverse", reverse)] {
        print_direction(out, direction, path)?;
    }
    Ok(())
}

fn print_direction(out: &mut impl Write, name: &str, path: &DirectionReport) -> io::Result<()> {
    for (index, hop) in path.hops.iter().enumerate() {
        writeln!(
            out,
            "{:<10} {:>9} {:>9} {:>7} {:>7} {:>7} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>4.0}%",
            format!("{name} {}", index + 1),
            hop.packets_in,
            hop.packets_out,
            hop.drops["too_big"],
            hop.drops["queue_full"] + hop.drops["line_full"],
            hop.drops["loss"],
            hop.sojourn_mean_ms,
            hop.sojourn_p50_ms,
            hop.sojourn_p99_ms,
            hop.sojourn_max_ms,
            hop.utilisation * 100.0,
        )?;
    }
    let error = &path.timing_error;
    writeln!(
        out,
        "{:<10} sent on late by {:.3} ms (p50), {:.3} ms (p99), {:.3} ms (max)",
        "", error.p50_ms, error.p99_ms, error.max_ms
    )
}

/// Prints one line per station, if there is a cell.
pub(super) fn print_cell(out: &mut impl Write, cell: Option<&CellReport>) -> io::Result<()> {
    let Some(cell) = cell else { return Ok(()) };
    writeln!(
        out,
        "{:<10} {:>9} {:>9} {:>7} {:>8} {:>7} {:>9} {:>9} {:>9} {:>9} {:>5}",
        "station",
        "in",
        "out",
        "full",
        "given up",
        "retries",
        "frames",
        "level",
        "read",
        "level",
        "air"
    )?;
    for station in &cell.stations {
        let name = match station.station {
            0 => "wlan ap".to_owned(),
            number => format!("wlan {number}"),
        };
        writeln!(
            out,
            "{:<10} {:>9} {:>9} {:>7} {:>8} {:>7} {:>9} {:>9.2} {:>9} {:>9.2} {:>4.0}%",
            name,
            station.packets_in,
            station.packets_out,
            station.drops["queue_full"],
            station.drops["lifetime"] + station.drops["retry_limit"],
            station.retries,
            station.frames,
            station.level,
            station.frames_received,
            station.level_received,
            station.airtime * 100.0,
        )?;
    }
    let collisions: u64 = cell.stations.iter().map(|station| station.collisions).sum();
    writeln!(
        out,
        "{:<10} busy {:.0} % of the time; {} exchanges, {} frames collided",
        "",
        cell.utilisation * 100.0,
        cell.exchanges,
        collisions,
    )
}
