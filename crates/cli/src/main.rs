//! The `freshline` command: one file a subcommand.
//!
//! Exit codes: 0 success, 1 something failed while running, 2 the command or a file that it
//! names cannot be understood.

mod demo;
mod emulate;
mod probe;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use miette::IntoDiagnostic;

/// Keeps what the far end knows fresh, and keeps queues short while doing it.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Emulate(emulate::Args),
    Probe(probe::Args),
}

/// Why a subcommand ended early.
enum Failure {
    /// What was asked for cannot be understood.
    Usage(miette::Report),
    /// It was understood, and failed.
    Runtime(miette::Report),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::run(args),
        Command::Emulate(args) => emulate::run(args),
        Command::Probe(args) => probe::run(args),
    };
    let (report, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Runtime(report)) => (report, 1),
        Err(Failure::Usage(report)) => (report, 2),
    };
    eprintln!("{report:?}");
    ExitCode::from(code)
}

/// What becomes of the end of a report's printing. Whoever reads no further has gone, and with him
/// the wish for more.
fn printed(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.into_diagnostic().map_err(Failure::Runtime),
    }
}
