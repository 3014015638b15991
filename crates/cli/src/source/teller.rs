//! What a person is told of a source: troubles, how it goes, and the summary.

use std::io::{self, Write};

use freshline_core::path::PathId;
use freshline_core::session::{self, PathCounters, Reach, SourceEvent};
use freshline_core::unit::{Span, Time};
use freshline_net::source::{Event, LinkEvent, PathReport, SourceReport, Watch};

use crate::output::{Troubles, ms};
use crate::way::Way;

/// Tells a person what happens, each trouble once until the session is open again.
pub(super) struct Teller {
    every: Span,
    next: Time,
    troubles: Troubles,
    /// By what each path leaves; none where none was named.
    vias: Vec<String>,
    /// What each had carried when it was told of.
    before: Vec<PathCounters>,
}

/// Openings without an answer after which a person should know.
const ATTEMPTS: u32 = 3;

impl Teller {
    pub(super) fn new(vias: &[Way], every: Span, now: Time) -> Self {
        Self {
            every,
            next: now + every,
            troubles: Troubles::default(),
            vias: vias.iter().map(|way| way.via.to_string()).collect(),
            before: vec![PathCounters::default(); vias.len()],
        }
    }

    /// A line a path that was named, of what it has done since the last one.
    fn tell_paths(&mut self, now: Time, source: &session::Source) {
        let since = self.every.as_secs_f64() + now.since(self.next).as_secs_f64();
        let offset = source.clock_offset().nanos();
        let statuses: Vec<_> = source.paths().statuses(now, offset).collect();
        let paths = self.vias.iter().zip(&mut self.before).zip(&statuses);
        let paths: Vec<_> = paths
            .map(|((via, before), status)| {
                let after = status.counters;
                let sent = after.sent - before.sent;
                let copies = after.copies - before.copies;
                *before = after;
                (via, status, sent, copies)
            })
            .collect();
        let all: u64 = paths.iter().map(|(_, _, sent, _)| sent).sum();
        for (via, status, sent, copies) in paths {
            eprintln!(
                "  {via:<10} {:<7} {:7.1} updates/s  share {:3.0} %  copies {copies:>5}  srtt {:>9}",
                status.phase.name(),
                sent as f64 / since,
                100.0 * sent as f64 / all.max(1) as f64,
                ms(status.state.srtt.map(Span::as_millis_f64)),
            );
        }
    }

    fn via(&self, path: PathId) -> &str {
        self.vias.get(usize::from(path.0)).map_or("a path", String::as_str)
    }
}

impl Watch for Teller {
    fn event(&mut self, _now: Time, source: &session::Source, event: &Event<'_>) {
        match event {
            Event::Session(SourceEvent::Opened) => {
                self.troubles.are_over();
                eprintln!("session {} is open", source.session());
            }
            Event::Session(SourceEvent::Closed(reason)) => {
                self.troubles.tell(format!("{reason}; trying again"));
            }
            Event::Session(SourceEvent::Silent) => {
                self.troubles.tell("the monitor is silent; trying again, ever more rarely".into());
            }
            Event::Session(SourceEvent::Acked { .. } | SourceEvent::Challenged) => {}
            Event::Link(LinkEvent::Lost(reason)) => {
                self.troubles.tell(format!("{reason}; trying again"));
            }
            Event::Link(LinkEvent::Unreachable) => {
                self.troubles.tell("nobody listens at the monitor's address; trying again".into());
            }
            Event::Link(LinkEvent::Ready) => {}
            Event::Path { path, is_there: true } => eprintln!("{} is there", self.via(*path)),
            Event::Path { path, is_there: false } => eprintln!("{} is gone", self.via(*path)),
            Event::NoSample(why) => self.troubles.tell(format!("{why}; trying again")),
        }
    }

    fn turn(&mut self, now: Time, source: &session::Source) {
        let is_waiting =
            matches!(source.reach(), Reach::Opening { attempts } if attempts >= ATTEMPTS);
        if is_waiting && self.troubles.is_empty() && source.paths().up().next().is_none() {
            self.troubles.tell(
                "no way to the monitor yet: is an interface of --via up, with an address?".into(),
            );
        } else if is_waiting && self.troubles.is_empty() {
            self.troubles.tell(
                "no answer: does a monitor listen there, by the same scheme, and does a firewall \
                 let UDP through? trying again"
                    .into(),
            );
        }
        if now < self.next {
            return;
        }
        if source.reach() == Reach::Open {
            let mean = source.age().process().mean(now).map(Span::as_millis_f64);
            eprintln!(
                "age {} on average, {:.1} updates/s, {} on the way, round trip {}",
                ms(mean),
                source.law().rate().per_second(),
                source.backlog().backlog(),
                ms(source.counters().rtt_mean().map(Span::as_millis_f64)),
            );
        }
        self.tell_paths(now, source);
        self.next = now + self.every;
    }
}

pub(super) fn print_summary(report: &SourceReport) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} for {:.1} s: {:.1} updates/s, {} sent, {} asked for an ack, {} acknowledged, {} replaced, {} missing",
        report.law,
        report.duration_s,
        report.updates_per_s,
        report.sent,
        report.asked,
        report.acked,
        report.replaced,
        report.missing.unwrap_or(0),
    )?;
    writeln!(
        out,
        "age (at most): mean {}, p50 {}, p95 {}, p99 {}, peaks {} on average, {} at most",
        ms(report.age_mean_ms),
        ms(report.age_p50_ms),
        ms(report.age_p95_ms),
        ms(report.age_p99_ms),
        ms(report.peak_age_mean_ms),
        ms(report.age_max_ms),
    )?;
    writeln!(
        out,
        "round trip: mean {}, min {}; backlog {:.2}; goodput {:.0} bit/s",
        ms(report.rtt_mean_ms),
        ms(report.rtt_min_ms),
        report.backlog_mean.unwrap_or(0.0),
        report.goodput_bps,
    )?;
    report.paths.iter().try_for_each(|path| print_path(&mut out, path))
}

fn print_path(out: &mut impl Write, path: &PathReport) -> io::Result<()> {
    writeln!(
        out,
        "{} to {}, {}: {} sent, {:.0} % of all, {} of them copies; {} lost, silent {} times; round \
         trip {}, one way about {}",
        path.via,
        path.monitor,
        path.state,
        path.sent,
        100.0 * path.share,
        path.copies,
        path.lost,
        path.silences,
        ms(path.srtt_ms),
        ms(path.one_way_ms),
    )
}
