//! The report of a router as a table.

use std::io::{self, Write};

use freshline_core::router::{AccountReport, RouterReport};
use freshline_core::unit::BitRate;

use super::Answer;
use crate::failure::Failure;
use crate::output::{ms, print_json, printed};

/// Prints the report on standard output, as one JSON document or as a table.
pub(super) fn print(report: &RouterReport, json: bool) -> Result<(), Failure> {
    if json { print_json(report) } else { printed(write(&mut io::stdout().lock(), report)) }
}

/// Prints where the router runs, and the table.
pub(super) fn print_answer(answer: &Answer) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if answer.is_in_kernel {
        writeln!(out, "in the kernel, as the device's own queueing discipline")?;
    }
    write(&mut out, &answer.report)
}

/// The rate in the words of messages.
pub(super) fn at_rate(rate: Option<BitRate>) -> String {
    rate.map_or_else(|| "at the device's own rate".to_owned(), |rate| format!("at {rate}"))
}

/// The whole table.
pub(super) fn write(out: &mut impl Write, report: &RouterReport) -> io::Result<()> {
    let share = |share: Option<f64>| share.map_or("-".into(), |share| format!("{share:.3}"));
    writeln!(
        out,
        "{} {}, queue {}: updates have {} of the link (γ = {}) after {:.1} s",
        report.device,
        at_rate(report.rate_bps.map(BitRate::from_bps)),
        report.queue,
        share(report.served_share),
        share(report.aoi_share),
        report.duration_s,
    )?;
    writeln!(
        out,
        "super-packets {}; {} packets ({} B) queued, the kernel holds at most {}; lost before the \
         queue: {} full, {} unread; {} failures",
        report.super_packets,
        report.backlog.packets,
        report.backlog.bytes,
        report.backlog.limit.map_or("-".to_owned(), |limit| limit.to_string()),
        report.kernel_drops.queue_full,
        report.kernel_drops.unread,
        report.failures,
    )?;
    writeln!(
        out,
        "{:<48} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10}",
        "", "packets", "out", "Mbit/s", "replaced", "full", "AQM", "marked", "delay p50", "p95",
    )?;
    for class in &report.classes {
        account(out, &class.class, &class.account)?;
    }
    for flow in &report.flows {
        let name = format!("  {} > {} ({})", flow.source, flow.destination, flow.protocol);
        account(out, &name, &flow.account)?;
    }
    if report.unshaped.count > 0 {
        writeln!(
            out,
            "  packets passed without the router {} times, for {:.1} s in all",
            report.unshaped.count, report.unshaped.duration_s
        )?;
    }
    if report.flows_evicted > 0 {
        writeln!(out, "  {} flows were evicted for new ones", report.flows_evicted)?;
    }
    Ok(())
}

fn account(out: &mut impl Write, name: &str, account: &AccountReport) -> io::Result<()> {
    let mbit = account.rate_bps.map_or("-".to_owned(), |rate| format!("{:.3}", rate as f64 / 1e6));
    writeln!(
        out,
        "{name:<48} {:>10} {:>10} {mbit:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10}",
        account.packets_in,
        account.packets_out,
        account.replaced,
        account.queue_full,
        account.congestion,
        account.marked,
        ms(account.sojourn_p50_ms),
        ms(account.sojourn_p95_ms),
    )
}
