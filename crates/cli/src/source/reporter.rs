//! The messages of `freshline source`: problems, the progress, and the summary.

use std::io::{self, Write};

use freshline::driver::marks::MarkReport;
use freshline::driver::source::{
    Event, PathReport, RecordsReport, SourceReport, TopicReport, Watch,
};
use freshline_core::path::PathId;
use freshline_core::session::{self, PathCounters, Reach, SourceEvent, TopicId};
use freshline_core::source::Limit;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::CloseReason;

use freshline::driver::via::{QueueReport, SeenBy, ViaPath};
use miette::miette;

use crate::epochs::EpochLog;
use crate::failure::Failure;
use crate::mark::{self, MarkArgs};
use crate::output::{Troubles, ms};
use crate::trouble::{NO_ANSWER, NO_PATH, is_unanswered, trouble};

/// Prints events; each problem once until the session is open again.
pub(super) struct Reporter {
    every: Span,
    next: Time,
    troubles: Troubles,
    /// The last problem, in a few words.
    why: Option<String>,
    /// The interface or address of each path; empty if none was given.
    vias: Vec<String>,
    /// The counters of each path at the last report.
    before: Vec<PathCounters>,
    /// How the queue of each path's device is observed.
    seen_by: Vec<Option<SeenBy>>,
    epochs: Epochs,
    /// The state of marks as last printed, if marks are requested.
    marks: Option<Troubles>,
}

/// The log of control epochs, if there is one.
struct Epochs {
    log: Option<EpochLog>,
    /// The end of the last epoch that was written.
    ended_s: f64,
    /// Why the log could not be written.
    failure: Option<io::Error>,
}

impl Epochs {
    fn look(&mut self, source: &session::Source) {
        let (Some(log), Some(record)) = (&mut self.log, source.law().last_epoch()) else { return };
        if record.ended_s > self.ended_s && self.failure.is_none() {
            self.ended_s = record.ended_s;
            self.failure = log.add(None, record).err();
        }
    }
}

impl Reporter {
    pub(super) fn new(
        vias: &[ViaPath],
        every: Span,
        marks: &MarkArgs,
        now: Time,
        log: Option<EpochLog>,
    ) -> Self {
        Self {
            every,
            next: now + every,
            troubles: Troubles::default(),
            why: None,
            vias: vias.iter().map(|path| path.via.to_string()).collect(),
            before: vec![PathCounters::default(); vias.len()],
            seen_by: vec![None; vias.len()],
            epochs: Epochs { log, ended_s: 0.0, failure: None },
            marks: marks.are_given().then(Troubles::default),
        }
    }

    /// Closes the log of epochs.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        if let Some(error) = self.epochs.failure.take() {
            return Err(Failure::Runtime(miette!("cannot write the log of epochs: {error}")));
        }
        self.epochs.log.take().map_or(Ok(()), EpochLog::finish)
    }

    /// Why updates may not be acknowledged, as a suffix of that message.
    pub(super) fn why(&self) -> String {
        self.why.as_ref().map_or_else(String::new, |why| format!(": {why}"))
    }

    /// Reports a problem that may resolve itself.
    fn report_once(&mut self, why: String) {
        self.troubles.report_once(format!("{why}; trying again"));
        self.why = Some(why);
    }

    /// Reports once if a path changes marks.
    fn report_marks(&mut self, source: &session::Source) {
        let Some(printed_marks) = &mut self.marks else { return };
        for (at, report) in (0..).map_while(|at| Some((at, marks(source, at)?))) {
            let path = self.vias.get(at).map_or_else(String::new, |via| format!("{via}: "));
            for change in mark::changed(&report, ["updates", "acks"]) {
                printed_marks.report_once(format!("{path}{change}"));
            }
        }
    }

    /// Prints a line for each given path, with its counts since the last one.
    fn print_paths(&mut self, now: Time, source: &session::Source) {
        let since = self.every.as_secs_f64() + now.since(self.next).as_secs_f64();
        let offset = source.clock_offset().nanos();
        let statuses: Vec<_> = source.paths().statuses(now, offset).collect();
        let paths = self.vias.iter().zip(&mut self.before).zip(&statuses);
        let paths: Vec<_> = paths
            .zip(&self.seen_by)
            .map(|(((via, before), status), seen_by)| {
                let after = status.counters;
                let sent = after.sent - before.sent;
                let copies = after.copies - before.copies;
                *before = after;
                let queue = QueueReport::of(*seen_by, status.state.queue, status.service)
                    .with_stamps(status.stamped_wait);
                (via, status, sent, copies, queue)
            })
            .collect();
        let all: u64 = paths.iter().map(|(_, _, sent, ..)| sent).sum();
        let are_several = paths.len() > 1;
        for (via, status, sent, copies, queue) in paths {
            // The queue of a single path is not observed.
            let queue = if are_several { format!("  {queue}") } else { String::new() };
            say!(
                "  {via:<10} {:<7} {:7.1} updates/s  share {:3.0} %  copies {copies:>5}  srtt {:>9}{queue}",
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

impl Watch for Reporter {
    fn event(&mut self, _now: Time, source: &session::Source, event: &Event<'_>) {
        match event {
            Event::Session(SourceEvent::Opened) => {
                self.troubles.are_over();
                say!("session {} is open", source.label());
            }
            Event::Path { path, is_there: true } => say!("{} is there", self.via(*path)),
            Event::Path { path, is_there: false } => say!("{} is gone", self.via(*path)),
            Event::TooLarge(which) => {
                self.troubles.report_once(format!("{which}; it is left out"));
                self.why = Some(which.to_string());
            }
            Event::KeyRefused { topic, why } => {
                let name = topic_name(source, *topic);
                self.troubles.report_once(format!("topic {name}: {why}; a state is left out"));
            }
            Event::RecordRefused { topic, why } => {
                let name = topic_name(source, *topic);
                self.troubles.report_once(format!("topic {name}: {why}; it is left out"));
            }
            Event::InvalidStamp { topic, why } => {
                let of = topic.map_or_else(String::new, |topic| {
                    format!("topic {}: ", topic_name(source, topic))
                });
                say!("{of}{why}; until then the time of reading counts");
            }
            Event::TopicOver { topic, why } => {
                let name = topic_name(source, *topic);
                match why {
                    Some(why) => say!("topic {name}: {why}; the others go on"),
                    None => say!("topic {name} has ended; the others go on"),
                }
            }
            Event::Session(SourceEvent::Closed(reason)) => {
                self.report_once(refusal(*reason, source.name()));
            }
            event => {
                if let Some(why) = trouble(event) {
                    self.report_once(why);
                }
            }
        }
    }

    fn queues(&mut self, seen_by: &mut dyn Iterator<Item = Option<SeenBy>>) {
        self.seen_by.clear();
        self.seen_by.extend(seen_by);
    }

    fn turn(&mut self, now: Time, source: &session::Source) {
        self.epochs.look(source);
        self.report_marks(source);
        let is_waiting = is_unanswered(source);
        if is_waiting && self.troubles.is_empty() && source.paths().up().next().is_none() {
            self.report_once(NO_PATH.into());
        } else if is_waiting && self.troubles.is_empty() {
            self.report_once(NO_ANSWER.into());
        }
        if now < self.next {
            return;
        }
        if source.reach() == Reach::Open {
            let mean = source.age().process().mean(now).map(Span::as_millis_f64);
            say!(
                "age {} on average, {:.1} updates/s{}, {} in flight, round trip {}{}",
                ms(mean),
                source.law().rate().per_second(),
                limited(source.limited_by().map(Limit::name)),
                source.backlog().backlog(),
                ms(source.counters().rtt_mean().map(Span::as_millis_f64)),
                marks(source, 0).map_or_else(String::new, |report| mark::shown(&report)),
            );
        }
        self.print_paths(now, source);
        self.next = now + self.every;
    }
}

/// The limit that applies, as a suffix of a rate.
fn limited(by: Option<&str>) -> String {
    by.map_or_else(String::new, |limit| format!(" (limited by {})", limit.replace('_', "-")))
}

/// Why a session was closed, with the name if that is the reason.
fn refusal(reason: CloseReason, name: &str) -> String {
    match (reason, name) {
        (CloseReason::NotPermitted, "") => format!("{reason} (this source has none; see --name)"),
        (CloseReason::NotPermitted, name) => format!("{reason} (this source's is `{name}`)"),
        _ => reason.to_string(),
    }
}

/// The marks on a path; `None` if there is no such path.
fn marks(source: &session::Source, path: usize) -> Option<MarkReport> {
    let path = u8::try_from(path).ok().map(PathId)?;
    source.marks(path).map(|marks| MarkReport::of(source.dscp(), marks))
}

pub(super) fn print_summary(report: &SourceReport) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} for {:.1} s: {:.1} updates/s{}, {} sent, {} asked for an ack, {} acknowledged, {} replaced, {} missing, {} too large, {} unchanged and left out{}",
        report.law,
        report.duration_s,
        report.updates_per_s,
        limited(report.limited_by),
        report.sent,
        report.ack_requests,
        report.acked,
        report.replaced,
        report.missing.unwrap_or(0),
        report.too_large,
        report.unchanged,
        invalid_stamps(report.invalid_stamps),
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
        "round trip: mean {}, min {}; backlog {:.2}; goodput {:.0} bit/s; sent {:.0} bit/s with headers{}",
        ms(report.rtt_mean_ms),
        ms(report.rtt_min_ms),
        report.backlog_mean.unwrap_or(0.0),
        report.goodput_bps,
        report.wire_bytes as f64 * 8.0 / report.duration_s,
        report.marks.as_ref().map_or_else(String::new, mark::shown),
    )?;
    if report.parts > 0 {
        writeln!(
            out,
            "states in parts: {} complete, {} abandoned; {} parts, {} of them for repair",
            report.large_states, report.abandoned_states, report.parts, report.repair_parts,
        )?;
    }
    report.topics.iter().try_for_each(|topic| print_topic(&mut out, topic))?;
    let are_several = report.paths.len() > 1;
    report.paths.iter().try_for_each(|path| print_path(&mut out, path, are_several))
}

/// The number of unused generation times of a stream, as a suffix of other counts.
fn invalid_stamps(count: Option<u64>) -> String {
    count.map_or_else(String::new, |count| format!(", {count} invalid generation times"))
}

fn print_topic(out: &mut impl Write, topic: &TopicReport) -> io::Result<()> {
    if let Some(records) = &topic.records {
        return print_records(out, topic, records);
    }
    let keys = match topic.keys.len() {
        0 if topic.removed == 0 => String::new(),
        keys => format!(", {keys} keys, {} removed", topic.removed),
    };
    writeln!(
        out,
        "topic {}{keys}: age (at most) mean {}, {} at most; {} sent, {} delivered, {} replaced, {} too old, {} unchanged{}",
        topic.topic,
        ms(topic.age_mean_ms),
        ms(topic.age_max_ms),
        topic.sent,
        topic.delivered,
        topic.replaced,
        topic.expired,
        topic.unchanged,
        invalid_stamps(topic.invalid_stamps),
    )
}

fn print_records(
    out: &mut impl Write,
    topic: &TopicReport,
    records: &RecordsReport,
) -> io::Result<()> {
    writeln!(
        out,
        "topic {}: {} records put, {} done, {} waiting ({} of {} bytes of the buffer), {} chunks repeated, \
         {} records too long{}; age (at most) mean {}, {} at most",
        topic.topic,
        records.put,
        records.done,
        records.waiting,
        records.buffer_bytes,
        records.max_buffer_bytes,
        records.repeated_chunks,
        records.too_long,
        invalid_stamps(topic.invalid_stamps),
        ms(topic.age_mean_ms),
        ms(topic.age_max_ms),
    )
}

fn topic_name(source: &session::Source, topic: TopicId) -> &str {
    let params = source.topics().find(|(id, _)| *id == topic);
    params.map_or("", |(_, params)| &params.name)
}

/// Prints a path; with its queue if there are several paths, because that of a single one is not
/// observed.
fn print_path(out: &mut impl Write, path: &PathReport, are_several: bool) -> io::Result<()> {
    write!(
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
        ms(path.one_way_delay_ms),
    )?;
    if are_several {
        write!(out, "; {}", path.queue)?;
    }
    writeln!(out)
}
