//! `freshline lab packets`: the packets that clients of downlinks received.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use freshline_lab::packets::{Packets, packets};
use freshline_lab::run::Point;
use miette::{IntoDiagnostic, WrapErr};

use super::chosen::{Chosen, bad};
use crate::failure::Failure;

/// Write the packets of a scenario's downlinks as seen by their clients, to train estimators of
/// Wi-Fi frames.
///
/// Writes one line per packet: the swept keys, the run, the flow and its number among equal ones,
/// the packet's sequence number, the kernel's timestamp, and that of its frame by the network card,
/// both in ns. Missing numbers are packets that never arrived.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLE

    freshline lab packets wlan/kernel-stamps --out packets.csv

EXIT CODES

0  the scenario ran
1  the file cannot be written
2  the flags or the scenario cannot be understood")]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// Write to this CSV file.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let (text, points) = args.chosen.points()?;
    let file = File::create(&args.out).into_diagnostic();
    let cannot = || format!("cannot write {}", args.out.display());
    let file = file.wrap_err_with(cannot).map_err(Failure::Runtime)?;
    let mut out = BufWriter::new(file);
    let written = |result: io::Result<()>| {
        result.into_diagnostic().wrap_err_with(cannot).map_err(Failure::Runtime)
    };
    written(write_head(&mut out, &points))?;
    for point in &points {
        for run in 0..point.scenario.runs {
            let all =
                packets(&point.scenario, run).map_err(|error| bad(&text.name, &error.into()))?;
            for one in all {
                written(write_packets(&mut out, point, run, &one))?;
            }
        }
    }
    written(out.flush())
}

fn write_head(out: &mut impl Write, points: &[Point]) -> io::Result<()> {
    for key in points.iter().take(1).flat_map(|point| point.set.keys()) {
        write!(out, "{key},")?;
    }
    writeln!(out, "run,flow,number,seq,kernel_ns,frame_ns")
}

fn write_packets(out: &mut impl Write, point: &Point, run: u32, one: &Packets) -> io::Result<()> {
    let Packets { flow, number, seen } = one;
    for packet in seen {
        for value in point.set.values() {
            write!(out, "{value},")?;
        }
        let (kernel, frame) = (packet.kernel.as_nanos(), packet.frame.as_nanos());
        writeln!(out, "{run},{flow},{number},{},{kernel},{frame}", packet.seq)?;
    }
    Ok(())
}
