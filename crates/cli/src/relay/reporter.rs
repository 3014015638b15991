//! The messages of `freshline relay`: problems of each destination, the progress, and the summary.

use std::collections::VecDeque;
use std::io::{self, Write};

use freshline::driver::relay::{Asker, RelayReport, RelayedReport, Watch};
use freshline::driver::source::{self, Event, SourceError};
use freshline_core::session;
use freshline_core::unit::{Span, Time};

use crate::output::ms;
use crate::trouble::{NO_ANSWER, NO_PATH, is_unanswered, trouble};
use freshline::Url;

/// The same problem is printed again after this time at the earliest, whichever source has it.
const PAUSE: Span = Span::from_secs(60);

/// The number of problems that are remembered for this.
const MAX_TROUBLES: usize = 16;

/// The maximum number of sources that are printed at each interval, and in the summary per
/// destination.
const MAX_PRINTED: usize = 20;

/// Prints the problems of the sessions at one destination, each once for all sources.
pub(super) struct Reporter {
    destination: String,
    /// The printed messages, each with its time.
    printed: VecDeque<(String, Time)>,
}

impl Reporter {
    pub(super) fn new(destination: &Url) -> Self {
        Self { destination: destination.remote().to_string(), printed: VecDeque::new() }
    }

    /// Whether a problem is to be printed now.
    fn is_news(&mut self, now: Time, why: &str) -> bool {
        self.printed.retain(|(_, at)| now.since(*at) < PAUSE);
        if self.printed.iter().any(|(known, _)| known == why) {
            return false;
        }
        if self.printed.len() == MAX_TROUBLES {
            self.printed.pop_front();
        }
        self.printed.push_back((why.to_owned(), now));
        true
    }

    fn report_once(&mut self, now: Time, source: &str, why: &str) {
        if self.is_news(now, why) {
            let Self { destination, .. } = self;
            let name = if source.is_empty() { "a source without a name" } else { source };
            say!("to {destination}: {why} ({name}); trying again");
        }
    }
}

impl source::Watch for Reporter {
    fn event(&mut self, now: Time, session: &session::Source, event: &Event<'_>) {
        if let Some(why) = trouble(event) {
            self.report_once(now, session.name(), &why);
        }
    }

    fn turn(&mut self, now: Time, session: &session::Source) {
        if is_unanswered(session) {
            let has_path = session.paths().up().next().is_some();
            self.report_once(now, session.name(), if has_path { NO_ANSWER } else { NO_PATH });
        }
    }
}

impl Watch for Reporter {
    fn failed(&mut self, now: Time, source: &str, error: &SourceError) {
        self.report_once(now, source, &error.to_string());
    }
}

/// Prints the progress at this interval while the relay runs.
pub(super) fn print_each(every: Span, asker: &Asker) {
    loop {
        std::thread::sleep(every.into());
        let Ok(report) = asker.report(MAX_PRINTED) else { return };
        if print(&report, &mut crate::said::Stderr).is_err() {
            return;
        }
    }
}

pub(super) fn print_summary(report: &RelayReport) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let monitor = &report.monitor;
    writeln!(
        out,
        "{:.1} s: {} sources opened, {} open; {} fresh updates; {} old states not handed on",
        monitor.duration_s,
        monitor.counters.opened,
        monitor.sources_open,
        monitor.counters.fresh,
        report.old_states,
    )?;
    print(report, &mut out)
}

/// Prints one line per destination and one for each of some sources; before them the states that
/// are left out.
fn print(report: &RelayReport, out: &mut impl Write) -> io::Result<()> {
    if report.left_out > 0 {
        let what = "states and records of topics left out, such as for lack of room (--max-large)";
        writeln!(out, "{} {what}", report.left_out)?;
    }
    for to in &report.destinations {
        writeln!(out, "to {}: {} sources, {} open", to.destination, to.sessions, to.open)?;
        for relayed in to.sources.iter().take(MAX_PRINTED) {
            let RelayedReport { source, age_ms, rate_per_s, session, .. } = relayed;
            let (age, rtt) = (ms(*age_ms), ms(session.rtt_mean_ms));
            writeln!(
                out,
                "  {source}: age there {age}, {rate_per_s:.1} updates/s, round trip {rtt}"
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_of_many_sources_is_printed_once_a_minute() {
        let mut reporter = Reporter::new(&"udp://127.0.0.1:9".parse().unwrap());
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        for (secs, why, is_news) in
            [(0, "full", true), (1, "full", false), (2, "silent", true), (60, "full", true)]
        {
            assert_eq!(reporter.is_news(at(secs), why), is_news, "{why} at {secs} s");
        }
        for number in 0..100 {
            reporter.is_news(at(61), &number.to_string());
        }
        assert_eq!(reporter.printed.len(), MAX_TROUBLES);
    }
}
