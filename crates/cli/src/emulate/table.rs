//! The conditions that are applied and what the hops did, for people.

use std::io::{self, Write};

use freshline_core::link::{ConditionsConfig, PathConfig};
use freshline_net::emulate::DirectionReport;

/// Says on standard error what is emulated.
pub(super) fn print_conditions(conditions: &ConditionsConfig) {
    print_path("forward", &conditions.forward);
    print_path("return", &conditions.back);
}

fn print_path(direction: &str, path: &PathConfig) {
    if path.hop.is_empty() {
        eprintln!("  {direction}: ideal");
    }
    for (index, hop) in path.hop.iter().enumerate() {
        eprintln!("  {direction} hop {}: {hop}", index + 1);
    }
}

/// One line a hop.
pub(super) fn print_hops(
    out: &mut impl Write,
    forward: &DirectionReport,
    back: &DirectionReport,
) -> io::Result<()> {
    writeln!(
        out,
        "{:<10} {:>9} {:>9} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>5}",
        "hop", "in", "out", "big", "full", "lost", "mean ms", "p50 ms", "p99 ms", "max ms", "util"
    )?;
    for (direction, path) in [("forward", forward), ("return", back)] {
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
