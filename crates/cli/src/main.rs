//! The `freshline` command: one file a subcommand.
//!
//! Exit codes: 0 success, 1 something failed while running, 2 the command or a file that it
//! names cannot be understood, 130 a second Ctrl-C. `emulate run`, `receiver run` and `uplink run`
//! end as their command does.

mod age;
mod bond;
mod demo;
mod emulate;
mod hold;
mod lab;
mod law;
mod listening;
mod mesh;
mod monitor;
mod output;
mod probe;
mod receiver;
mod router;
mod source;
mod transport;
mod uplink;
mod url;
mod way;
mod wlan;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Keeps what the far end knows fresh, and keeps queues short while doing it.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Source(source::Args),
    Monitor(monitor::Args),
    Emulate(emulate::Args),
    Demo(demo::Args),
    Probe(probe::Args),
    Lab(lab::Args),
    Age(age::Args),
    Receiver(receiver::Args),
    Router(router::Args),
    Uplink(uplink::Args),
    Wlan(wlan::Args),
    Bond(bond::Args),
    Mesh(mesh::Args),
}

/// Why a subcommand ended early.
enum Failure {
    /// What was asked for cannot be understood.
    Usage(miette::Report),
    /// It was understood, and failed.
    Runtime(miette::Report),
    /// The command that it ran ended with this exit code, and has said why.
    Command(u8),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(
            EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy(),
        )
        .init();
    let result = match Cli::parse().command {
        Command::Source(args) => source::run(args),
        Command::Monitor(args) => monitor::run(args),
        Command::Emulate(args) => emulate::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Probe(args) => probe::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Age(args) => age::run(args),
        Command::Receiver(args) => receiver::run(args),
        Command::Router(args) => router::run(args),
        Command::Uplink(args) => uplink::run(args),
        Command::Wlan(args) => wlan::run(args),
        Command::Bond(args) => bond::run(args),
        Command::Mesh(args) => mesh::run(args),
    };
    let (report, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Command(code)) => return ExitCode::from(code),
        Err(Failure::Runtime(report)) => (report, 1),
        Err(Failure::Usage(report)) => (report, 2),
    };
    eprintln!("{report:?}");
    ExitCode::from(code)
}
