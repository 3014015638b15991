//! How subcommands print, and how they end.

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

/// The exit code after a second Ctrl-C: 128 + SIGINT, the convention of shells.
pub(crate) const INTERRUPTED: u8 = 130;

/// How long the end of a run may take before another signal means that it hangs.
const GRACE: Span = Span::from_millis(500);

/// Ends the run, with its summary, on Ctrl-C or SIGTERM. A second signal ends it at once, in case
/// the first one waits for a reader or a command that hangs. A second signal within [`GRACE`] does
/// not count: `timeout` and similar tools signal a process and its group, so the process gets the
/// signal twice.
pub(crate) fn stop_on_signals() -> Result<Stop, Failure> {
    stop_on(&[SIGINT, SIGTERM, SIGHUP])
}

/// Like [`stop_on_signals`], for these signals.
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
    // The thread may have to end commands of other users.
    with_only(&[Privilege::CAP_KILL], || {
        std::thread::spawn(move || arrivals.forever().for_each(|_| on_signal()))
    });
    Ok(stop)
}

/// The format in which `status` prints: a table by default.
#[derive(Debug, clap::Args)]
pub(crate) struct Form {
    /// Print one JSON document on standard output.
    #[arg(long, conflicts_with = "metrics")]
    json: bool,
    /// Print metrics for Prometheus on standard output, for example for node_exporter's textfile
    /// collector.
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

/// Prints one JSON document on standard output.
pub(crate) fn print_json(report: &impl Serialize) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = serde_json::to_writer_pretty(&mut out, report)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(out));
    printed(written)
}

/// Prints metrics for Prometheus, of one moment, on standard output.
fn print_metrics(snapshot: impl Collector) -> Result<(), Failure> {
    let text = render(snapshot).into_diagnostic().map_err(Failure::Runtime)?;
    printed(write!(io::stdout(), "{text}"))
}

/// The result of printing: a reader that has closed its end is not a failure.
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

/// Problems that keep an endpoint from its work: each is printed once, until all are resolved.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Vec<String>);

impl Troubles {
    /// The maximum number of problems that are remembered; the far end may have worded some of
    /// them.
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

    /// All problems are resolved.
    pub(crate) fn are_over(&mut self) {
        self.0.clear();
    }

    /// The last problem that was printed, unless all are resolved.
    pub(crate) fn last(&self) -> Option<&str> {
        self.0.last().map(String::as_str)
    }

    /// Whether there are no problems.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A field of a CSV file (RFC 4180): in quotation marks if necessary.
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
