//! The `freshline` command: one file a subcommand.
//!
//! Exit codes: 0 success, 1 something failed while running, 2 the command or a file that it
//! names cannot be understood, 130 a second Ctrl-C, or the first one where a result is not whole then. `emulate run`, `receiver run` and `uplink run`
//! end as their command does.

#[macro_use]
mod said;
mod age;
mod bond;
mod demo;
mod emulate;
mod epochs;
mod hold;
mod lab;
mod law;
mod listening;
mod loopback;
mod mark;
mod mesh;
mod monitor;
mod output;
mod privileges;
mod probe;
#[cfg(test)]
#[path = "../tests/common/promtool.rs"]
mod promtool;
mod receiver;
mod router;
mod scheduler;
mod source;
mod token;
mod told_once;
mod transport;
mod uplink;
mod url;
mod way;
mod wlan;

use std::io::IsTerminal;
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
    Token(token::Args),
}

/// Why a subcommand ended early.
enum Failure {
    /// What was asked for cannot be understood.
    Usage(miette::Report),
    /// It was understood, and failed.
    Runtime(miette::Report),
    /// The command that it ran ended with this exit code, and has said why.
    Command(u8),
    /// Ctrl-C ended it before it was done; what there was has been printed.
    Interrupted,
}

/// Whether standard error takes codes of colours: a terminal does, unless NO_COLOR is set.
fn has_colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !refused
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(|| said::Stderr)
        .with_ansi(has_colours())
        .with_env_filter(
            EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy(),
        )
        .init();
    told_once::install();
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
        Command::Token(args) => token::run(args),
    };
    let (report, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Command(code)) => return ExitCode::from(code),
        Err(Failure::Interrupted) => return ExitCode::from(output::INTERRUPTED),
        Err(Failure::Runtime(report)) => (report, 1),
        Err(Failure::Usage(report)) => (report, 2),
    };
    say!("{report:?}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::{Command, CommandFactory};

    fn assert_fits(command: &Command) {
        for help in [command.get_after_long_help(), command.get_after_help()].into_iter().flatten()
        {
            for line in help.to_string().lines() {
                let width = line.chars().count();
                assert!(width <= 100, "{} --help: {width} columns: {line}", command.get_name());
            }
        }
        command.get_subcommands().for_each(assert_fits);
    }

    #[test]
    fn no_line_of_a_help_is_longer_than_a_terminal() {
        assert_fits(&Cli::command());
    }
}
