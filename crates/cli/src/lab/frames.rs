//! `freshline lab frames`: frames as seen by clients, with the true bottleneck.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use freshline_core::wlan::{Bottleneck, FrameSeen};
use freshline_lab::run::frames;
use freshline_lab::scenario::Scenario;
use miette::{IntoDiagnostic, WrapErr, miette};

use super::chosen::{Chosen, bad};
use crate::failure::Failure;

/// Write the frames that the clients of downlinks counted, with the true bottleneck, to train a
/// locator.
///
/// Writes the frames of all runs and all points of the sweep, numbered in their order, for flows
/// with `locate`. Columns: run, flow, at_ns (arrival of the frame), level (packets in it), others
/// (packets of other flows among them), lost (packets of the flow lost before it), retried
/// (retransmitted packets of the flow in it), truth (1 for the backhaul, 0 for the Wi-Fi).
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

    freshline lab frames wlan/bottleneck-rate --out frames.csv

EXIT CODES

0  written
1  the file cannot be written
2  the flags or the scenario cannot be understood, or no flow of it has `locate`")]
pub(super) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// Write to this CSV file.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let (text, points) = args.chosen.points()?;
    let locates = |scenario: &Scenario| {
        scenario.flows.iter().any(|flow| flow.downlink.as_ref().is_some_and(|it| it.locate))
    };
    if !points.iter().all(|point| locates(&point.scenario)) {
        let what = "no flow is a downlink with `locate = true`, so no frames are counted";
        return Err(Failure::Usage(miette!("{}: {what}", text.name)));
    }
    let mut out = create(&args.out)?;
    let mut number = 0;
    for point in &points {
        for run in 0..point.scenario.runs {
            let flows = frames(&point.scenario, run);
            let flows = flows.map_err(|error| bad(&text.name, &error.into()))?;
            let mut write = || -> io::Result<()> {
                for (flow, records) in flows.iter().enumerate() {
                    for record in records {
                        let (at, frame) = (record.at.as_nanos(), record.frame);
                        let truth = u8::from(record.truth == Bottleneck::Backhaul);
                        let FrameSeen { level, others, lost, retried } = frame;
                        writeln!(
                            out,
                            "{number},{flow},{at},{level},{others},{lost},{retried},{truth}"
                        )?;
                    }
                }
                Ok(())
            };
            written(write(), &args.out)?;
            number += 1;
        }
    }
    written(out.flush(), &args.out)
}

fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    let created = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        writeln!(out, "run,flow,at_ns,level,others,lost,retried,truth")?;
        Ok(out)
    });
    written(created, path)
}

fn written<T>(result: io::Result<T>, path: &Path) -> Result<T, Failure> {
    let result = result.into_diagnostic();
    result.wrap_err_with(|| format!("cannot write {}", path.display())).map_err(Failure::Runtime)
}
