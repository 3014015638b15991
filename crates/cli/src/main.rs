//! The `freshline` command: one file per subcommand.
//!
//! Exit codes: 0: success. 1: a failure at run time. 2: the command line, or a file that it names,
//! is not valid. 130: a second Ctrl-C, or the first one if the result is then incomplete.
//! `emulate run`, `receiver run` and `uplink run` return the exit code of their command.

#![cfg_attr(
    not(all(
        feature = "advise",
        feature = "bond",
        feature = "demo",
        feature = "emulate",
        feature = "kernel",
        feature = "lab",
        feature = "monitor",
        feature = "probe",
        feature = "router",
        feature = "source",
        feature = "wlan"
    )),
    // Commands share helpers; a build with all commands checks that each helper is used.
    allow(dead_code, unused_imports, clippy::large_enum_variant)
)]

#[macro_use]
mod said;
#[cfg(feature = "advise")]
mod advise;
#[cfg(feature = "lab")]
mod age;
#[cfg(feature = "bond")]
mod bond;
#[cfg(any(feature = "monitor", feature = "source"))]
mod config;
#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "emulate")]
mod emulate;
mod epochs;
mod error_report;
mod explain;
mod failure;
#[cfg(feature = "monitor")]
mod held;
#[cfg(feature = "kernel")]
mod hold;
#[cfg(any(feature = "emulate", feature = "lab", feature = "probe"))]
mod html;
#[cfg(feature = "lab")]
mod lab;
mod law;
mod listening;
#[cfg(any(feature = "demo", feature = "lab"))]
mod loopback;
mod mark;
#[cfg(feature = "kernel")]
mod mesh;
#[cfg(feature = "monitor")]
mod monitor;
mod output;
#[cfg(any(feature = "monitor", feature = "source"))]
mod paths;
mod privileges;
#[cfg(feature = "probe")]
mod probe;
#[cfg(test)]
#[path = "../tests/common/promtool.rs"]
mod promtool;
#[cfg(feature = "kernel")]
mod receiver;
#[cfg(feature = "monitor")]
mod relay;
#[cfg(feature = "lab")]
mod report;
#[cfg(feature = "router")]
mod router;
#[cfg(any(feature = "advise", feature = "demo", feature = "lab", feature = "probe"))]
mod run_length;
mod scheduler;
#[cfg(feature = "source")]
mod source;
mod token;
mod transport;
#[cfg(any(feature = "monitor", feature = "source"))]
mod trouble;
#[cfg(feature = "kernel")]
mod uplink;
#[cfg(feature = "monitor")]
mod web;
#[cfg(feature = "wlan")]
mod wlan;
mod wrapped;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use failure::Failure;

/// Keep the state that a receiver holds fresh, and keep queues short.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "advise")]
    Advise(advise::Args),
    #[cfg(feature = "source")]
    Source(source::Args),
    #[cfg(feature = "monitor")]
    Monitor(monitor::Args),
    #[cfg(feature = "monitor")]
    Relay(relay::Args),
    #[cfg(feature = "emulate")]
    Emulate(emulate::Args),
    #[cfg(feature = "demo")]
    Demo(demo::Args),
    #[cfg(feature = "probe")]
    Probe(probe::Args),
    #[cfg(feature = "lab")]
    Lab(lab::Args),
    #[cfg(feature = "lab")]
    Age(age::Args),
    #[cfg(feature = "lab")]
    Report(report::Args),
    #[cfg(feature = "kernel")]
    Receiver(receiver::Args),
    #[cfg(feature = "router")]
    Router(router::Args),
    #[cfg(feature = "kernel")]
    Uplink(uplink::Args),
    #[cfg(feature = "wlan")]
    Wlan(wlan::Args),
    #[cfg(feature = "bond")]
    Bond(bond::Args),
    #[cfg(feature = "kernel")]
    Mesh(mesh::Args),
    #[cfg(feature = "monitor")]
    Token(token::Args),
    Explain(explain::Args),
}

/// Whether standard error takes colour codes: it does if it is a terminal and NO_COLOR is unset.
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
    error_report::install();
    let result = match parsed() {
        Err(report) => Err(Failure::Usage(report)),
        Ok(cli) => run(cli.command),
    };
    let (report, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Command(code)) => return ExitCode::from(code),
        Err(Failure::Interrupted) => return ExitCode::from(output::INTERRUPTED),
        Err(Failure::Runtime(report)) => (report, 1),
        Err(Failure::Usage(report)) => (report, 2),
    };
    say!("{report:?}");
    let texts: Vec<_> = report.chain().map(ToString::to_string).collect();
    let codes = explain::codes_of(&texts.join("\n"));
    // For a message of many commands, the message is enough.
    if (1..=3).contains(&codes.len()) {
        let each = codes.iter().map(|code| format!("freshline explain {code}"));
        say!("  more about this message: {}", each.collect::<Vec<_>>().join(", "));
    }
    ExitCode::from(code)
}

/// The parsed command line, with the flags of a `--config` file.
fn parsed() -> miette::Result<Cli> {
    #[cfg(any(feature = "monitor", feature = "source"))]
    return config::parse();
    #[cfg(not(any(feature = "monitor", feature = "source")))]
    return Ok(Cli::parse());
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        #[cfg(feature = "advise")]
        Command::Advise(args) => advise::run(args),
        #[cfg(feature = "source")]
        Command::Source(args) => source::run(args),
        #[cfg(feature = "monitor")]
        Command::Monitor(args) => monitor::run(args),
        #[cfg(feature = "monitor")]
        Command::Relay(args) => relay::run(args),
        #[cfg(feature = "emulate")]
        Command::Emulate(args) => emulate::run(args),
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(args),
        #[cfg(feature = "probe")]
        Command::Probe(args) => probe::run(args),
        #[cfg(feature = "lab")]
        Command::Lab(args) => lab::run(args),
        #[cfg(feature = "lab")]
        Command::Age(args) => age::run(args),
        #[cfg(feature = "lab")]
        Command::Report(args) => report::run(args),
        #[cfg(feature = "kernel")]
        Command::Receiver(args) => receiver::run(args),
        #[cfg(feature = "router")]
        Command::Router(args) => router::run(args),
        #[cfg(feature = "kernel")]
        Command::Uplink(args) => uplink::run(args),
        #[cfg(feature = "wlan")]
        Command::Wlan(args) => wlan::run(args),
        #[cfg(feature = "bond")]
        Command::Bond(args) => bond::run(args),
        #[cfg(feature = "kernel")]
        Command::Mesh(args) => mesh::run(args),
        #[cfg(feature = "monitor")]
        Command::Token(args) => token::run(args),
        Command::Explain(args) => explain::run(args),
    }
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
