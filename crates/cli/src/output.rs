//! What all subcommands share in printing and in ending.

use std::borrow::Cow;
use std::io::{self, Write};

use freshline::driver::clock::Clock;
use freshline::driver::metrics::render;
#[cfg(feature = "monitor")]
use freshline::driver::monitor::output::end_commands;
use freshline::driver::stop::Stop;
use freshline_core::unit::Span;
use freshline_system::privileges::{Privilege, with_only};
use miette::IntoDiagnostic;
use prometheus_client::collector::Collector;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// The exit code after a second Ctrl-C: 128 + SIGINT, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// How long the end of a run may take before a signal means that it hangs.
const GRACE: Span = Span::from_millis(500);

/// Ctrl-C and a request to terminate end the run, with its summary; a second one ends it at once,
/// should the first wait for a reader or a command that hangs. Not within [`GRACE`]: `timeout` and
/// others signal a process and its group, which is the same process twice.
pub(crate) fn stop_on_signals() -> Result<Stop, Failure> {
    stop_on(&[SIGINT, SIGTERM, SIGHUP])
}

/// The same at these signals.
pub(crate) fn stop_on(signals: &[i32]) -> Result<Stop, Failure> {
    let mut arrivals = Signals::new(signals).into_diagnostic().map_err(Failure::Runtime)?;
    let stop = Stop::new();
    let theirs = stop.clone();
    let mut first = None;
    let mut on_signal = move || {
        let now = Clock::new().now();
        if now.since(*first.get_or_insert(now)) > GRACE {
            #[cfg(feature = "monitor")]
            end_commands();
            std::process::exit(INTERRUPTED.into());
        }
        theirs.stop();
    };
    // Its thread may have to end commands of other users.
    with_only(&[Privilege::CAP_KILL], || {
        std::thread::spawn(move || arrivals.forever().for_each(|_| on_signal()))
    });
    Ok(stop)
}

/// The form in which `status` prints what it has found: a table by default.
#[derive(Debug, clap::Args)]
pub(crate) struct Form {
    /// Print one JSON document on standard output.
    #[arg(long, conflicts_with = "metrics")]
    json: bool,
    /// Print metrics for Prometheus on standard output, as for node_exporter's textfile collector.
    #[arg(long)]
    metrics: bool,
}

impl Form {
    pub(crate) fn print<T, R: Serialize, C: Collector>(
        &self,
        found: T,
        table: impl FnOnce(&T) -> io::Result<()>,
        report: impl FnOnce(&T) -> R,
        metrics: impl FnOnce(T) -> C,
    ) -> Result<(), Failure> {
        if self.metrics {
            print_metrics(metrics(found))
        } else if self.json {
            print_json(&report(&found))
        } else {
            printed(table(&found))
        }
    }
}

/// One JSON document on standard output.
pub(crate) fn print_json(report: &impl Serialize) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = serde_json::to_writer_pretty(&mut out, report)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(out));
    printed(written)
}

/// Metrics for Prometheus, of one moment, on standard output.
fn print_metrics(snapshot: impl Collector) -> Result<(), Failure> {
    let text = render(snapshot).into_diagnostic().map_err(Failure::Runtime)?;
    printed(write!(io::stdout(), "{text}"))
}

/// Judges an attempt to print: a reader that has gone is no failure.
pub(crate) fn printed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.into_diagnostic().map_err(Failure::Runtime),
    }
}

/// A number of ms for a table, or a dash.
pub(crate) fn ms(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.1} ms"))
}

/// What keeps an end from its work, told to a person: each trouble once, until all is well again.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Vec<String>);

impl Troubles {
    /// Those that are remembered, of which the far end may have worded some.
    const MOST: usize = 8;

    pub(crate) fn report_once(&mut self, text: String) {
        if self.0.contains(&text) {
            return;
        }
        say!("{text}");
        if self.0.len() == Self::MOST {
            self.0.clear();
        }
        self.0.push(text);
    }

    /// All is well again.
    pub(crate) fn are_over(&mut self) {
        self.0.clear();
    }

    /// The last that was told, unless all is well again.
    pub(crate) fn last(&self) -> Option<&str> {
        self.0.last().map(String::as_str)
    }

    /// Whether none was told.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A field of a CSV file (RFC 4180): in quotation marks where it needs them.
pub(crate) fn quoted(field: &str) -> Cow<'_, str> {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\"")).into()
    } else {
        field.into()
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_field_of_a_csv_file_is_quoted_where_it_needs_that() {
        for (field, expected) in [
            ("age_mean", "age_mean"),
            ("a, b", "\"a, b\""),
            ("the \"best\"", "\"the \"\"best\"\"\""),
            ("two\nlines", "\"two\nlines\""),
        ] {
            assert_eq!(quoted(field), expected);
        }
    }
}
