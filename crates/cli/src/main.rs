//! The `freshline` command: one file a subcommand.
//!
//! Exit codes: 0 success, 1 something failed while running, 2 the command or a file that it
//! names cannot be understood.

mod emulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keeps what the far end knows fresh, and keeps queues short while doing it.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Emulate(emulate::Args),
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
        Command::Emulate(args) => emulate::run(args),
    };
    let (report, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Runtime(report)) => (report, 1),
        Err(Failure::Usage(report)) => (report, 2),
    };
    eprintln!("{report:?}");
    ExitCode::from(code)
}
