//! Outputs for a monitor's freshest states: lines, a command, sockets, metrics.
//!
//! No output may delay the monitor: each has a thread of its own. A command that is slower than the
//! updates gets the newest state of each source; a reader of lines gets the newest lines. States
//! that they did not get are counted as replaced. Each record counts, so records stay with their
//! sources until lines and command are done with them.

mod command;
mod format;
mod groups;
mod handover;
mod held;
mod job_key;
mod jobs;
mod journal;
mod lines;
mod metrics;
mod pattern;
mod query;
mod reader;
mod records;
mod subscribe;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use freshline_core::session::{
    Alarm, Cursor, MaxAge, NextRecord, RemovedTopic, SourceKey, StateAge, TakenRecord, TopicRecord,
};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::KeyText;
use serde_json::{Map, Value, json};

use super::{Record, RecordRoom, SourceStatus, Watch};
use crate::clock::{Clock, wall_clock_ms};
use crate::stop::Stop;
use crate::waker::Waker;

use command::Command;
use held::{Held, shown_source};
use journal::Journal;
use lines::Lines;
use records::{Given, Records};

pub use command::end_all as end_commands;
pub use format::{OutFormat, UnknownFormat};
pub use journal::JournalError;
pub use lines::{LinesError, Unwritten};
pub(crate) use metrics::encode as encode_metrics;
pub use metrics::serve as serve_metrics;
pub use query::{SocketError, StateSocket};
pub use subscribe::Subscribers;

/// How often the outputs are checked for their end, or for an earlier time limit.
const LOOK: Duration = Duration::from_millis(10);

/// After a signal, how long a reader of lines may read nothing before the remaining lines are lost.
/// Room in a pipe comes by pages: one line of 300 bytes per half second is 7 s per page.
const READER: Span = Span::from_secs(15);

/// Time limit of subscribers for the last states.
const SUBSCRIBERS: Span = Span::from_secs(2);

/// All outputs of a monitor.
pub struct Outputs {
    lines: Option<Lines>,
    command: Option<Command>,
    /// Runs when a topic becomes stale, or fresh again.
    on_stale: Option<Command>,
    max_age: Vec<MaxAge>,
    subscribers: Subscribers,
    records: Records,
    /// Numbers of replaced states, by the sources' indices.
    replaced: Vec<u64>,
}

impl Default for Outputs {
    fn default() -> Self {
        Self {
            lines: None,
            command: None,
            on_stale: None,
            max_age: Vec::new(),
            subscribers: Subscribers::default(),
            records: Records::new(None, None),
            replaced: Vec::new(),
        }
    }
}

impl Outputs {
    /// No output.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes every fresh state to `out`, for example as a line of JSON.
    pub fn write_states(&mut self, out: Box<dyn Write + Send>, format: OutFormat) {
        self.lines = Some(Lines::new(out, format, false));
    }

    /// Appends every fresh state to a file. A last line or COBS frame that a crash has torn is
    /// ended first.
    ///
    /// # Errors
    /// [`LinesError`] if the file cannot be opened, or has content and `format` is
    /// [`OutFormat::U32`].
    pub fn append_states(&mut self, path: &Path, format: OutFormat) -> Result<(), LinesError> {
        let (file, is_torn) = lines::append(path, format)?;
        self.lines = Some(Lines::new(Box::new(file), format, is_torn));
        Ok(())
    }

    /// Runs `command` by `sh -c` for fresh states, with the state on its standard input, each time
    /// for no longer than `limit`.
    pub fn run_command(&mut self, command: String, limit: Span) {
        self.command = Some(Command::new(command, limit, false));
    }

    /// As [`Outputs::run_command`], but the output of `command` goes to standard error, as standard
    /// output is used otherwise.
    pub fn run_command_to_stderr(&mut self, command: String, limit: Span) {
        self.command = Some(Command::new(command, limit, true));
    }

    /// Drops states that become older than these rules allow while they are queued for an output.
    /// The monitor needs the same rules
    /// ([`MonitorParams::max_age`](freshline_core::session::MonitorParams)).
    pub fn limit_ages(&mut self, rules: Vec<MaxAge>) {
        self.max_age = rules;
    }

    /// Runs `command` by `sh -c` when a topic with a maximum age becomes stale, and when it is
    /// fresh again, each time for no longer than `limit`. Its output goes to standard error if
    /// `to_stderr`.
    pub fn run_on_stale(&mut self, command: String, limit: Span, to_stderr: bool) {
        self.on_stale = Some(Command::new(command, limit, to_stderr));
    }

    /// Makes records wake the monitor when an output is done with them, and then writes them to
    /// `journal`, if given. Returns the journal's cursors of earlier runs, for
    /// [`Monitor::with_cursors`](crate::monitor::Monitor::with_cursors).
    ///
    /// # Errors
    /// [`JournalError`] if the journal cannot be used.
    pub fn take_records(
        &mut self,
        waker: Arc<Waker>,
        journal: Option<&Path>,
    ) -> Result<Vec<Cursor>, JournalError> {
        let opened = journal.map(Journal::open).transpose()?;
        let (journal, cursors) = opened.unzip();
        self.records = Records::new(journal, Some(waker));
        Ok(cursors.unwrap_or_default())
    }

    /// A handle for readers that get each fresh state ([`StateSocket::subscriptions`]).
    pub fn subscribers(&self) -> Subscribers {
        self.subscribers.clone()
    }

    /// Waits until all lines are written and all commands have ended, and up to 2 s for readers of
    /// [`Outputs::subscribers`]. Commands for states that are still pending run as well, all
    /// together within the limit of one command; the rest is dropped, with a warning.
    ///
    /// Once `stop` is stopped, before or during this call, states that are pending for commands are
    /// dropped, with a warning, commands end within 2 s, and lines within 15 s if nothing reads
    /// them.
    ///
    /// # Errors
    /// [`Unwritten`] if lines could not be written, with their number and the last error.
    pub fn finish(mut self, stop: &Stop) -> Result<(), Unwritten> {
        let clock = Clock::new();
        let served_by = clock.now() + SUBSCRIBERS;
        let mut is_abandoned = false;
        loop {
            if stop.is_stopped() && !is_abandoned {
                self.commands().for_each(Command::abandon);
                is_abandoned = true;
            }
            self.records.finish();
            self.records.settle();
            // Repeated calls have no effect.
            self.lines.iter().for_each(Lines::finish);
            self.commands().for_each(Command::finish);
            self.subscribers.finish();
            let patience = is_abandoned.then_some(READER);
            let are_written =
                self.lines.as_mut().is_none_or(|lines| lines.is_over(&clock, patience));
            let are_served = self.subscribers.is_over() || clock.now() >= served_by;
            let have_run = self.commands().all(Command::is_over);
            if are_written && are_served && have_run {
                break;
            }
            std::thread::sleep(LOOK);
        }
        self.command.into_iter().chain(self.on_stale).for_each(Command::join);
        let written = self.lines.map_or(Ok(()), Lines::join);
        self.records.join();
        written
    }
}

impl Watch for Outputs {
    fn opened(&mut self, _now: Time, source: SourceKey, _record: &Record) {
        let index = source.index();
        if self.replaced.len() <= index {
            self.replaced.resize(index + 1, 0);
        }
        self.replaced[index] = 0;
    }

    fn fresh(&mut self, now: Time, source: SourceKey, record: &Record) {
        self.show(now, source, Held::of(record));
    }

    fn fresh_topic(&mut self, now: Time, source: SourceKey, record: &Record, topic: &TopicRecord) {
        self.show(now, source, Held::of_topic(record, topic));
    }

    fn removed(&mut self, now: Time, source: SourceKey, record: &Record, removed: &RemovedTopic) {
        let held = Held::removed(record, removed);
        let lines = self.lines.as_mut().filter(|lines| lines.have_names());
        let replaced = lines.map(|lines| lines.fresh(now, source, held, None));
        self.hand_on(now, source, held, replaced.unwrap_or_default());
    }

    fn room_for_record(&self, source: SourceKey, _: &str, _: &NextRecord) -> RecordRoom {
        RecordRoom::now_if(self.records.has_room(source))
    }

    fn record(
        &mut self,
        now: Time,
        source: SourceKey,
        record: &Record,
        topic: &str,
        taken: &TakenRecord,
    ) {
        let number = self.records.next_number();
        let given = Given { number, source, record, topic, taken };
        self.subscribers.record(&given);
        let outputs = usize::from(self.lines.is_some()) + usize::from(self.command.is_some());
        if outputs == 0 {
            return self.records.pass(source, &taken.cursor);
        }
        let ticket = self.records.ticket(source, &taken.cursor, taken.bytes.len(), outputs);
        let lines = self.lines.as_mut().map(|lines| lines.record(&given, ticket.clone()));
        let command = self.command.as_mut();
        let states = command.map(|command| command.record(now, &given, ticket));
        self.count_replaced([lines, states].into_iter().flatten().flatten());
    }

    fn poll_record_done(&mut self) -> Option<(SourceKey, Cursor)> {
        self.records.poll_done()
    }

    fn stale(&mut self, now: Time, alarm: &Alarm) {
        self.on_alarm(now, alarm);
    }

    fn recovered(&mut self, now: Time, alarm: &Alarm) {
        self.on_alarm(now, alarm);
    }

    fn aged(&mut self, now: Time, source: SourceKey, record: &Record) {
        let held = Held::of(record);
        let until = held.fresh_until(now, &self.max_age);
        let lines = self.lines.as_mut().filter(|lines| lines.have_names());
        let replaced = lines.map(|lines| lines.fresh(now, source, held, until));
        self.hand_on(now, source, held, replaced.unwrap_or_default());
    }

    fn replaced(&self, source: SourceKey) -> u64 {
        self.replaced.get(source.index()).copied().unwrap_or(0)
    }
}

impl Outputs {
    fn commands(&self) -> impl Iterator<Item = &Command> {
        self.command.iter().chain(&self.on_stale)
    }

    fn on_alarm(&mut self, now: Time, alarm: &Alarm) {
        let replaced = self.lines.as_mut().map(|lines| lines.alarm(alarm));
        self.count_replaced(replaced.unwrap_or_default());
        self.subscribers.alarm(alarm);
        if let Some(command) = &mut self.on_stale {
            command.alarm(now, alarm);
        }
    }

    /// Gives a fresh state to all outputs.
    fn show(&mut self, now: Time, source: SourceKey, held: Held<'_>) {
        let until = held.fresh_until(now, &self.max_age);
        let replaced = self.lines.as_mut().map(|lines| lines.fresh(now, source, held, until));
        self.hand_on(now, source, held, replaced.unwrap_or_default());
    }

    /// Gives a state to all outputs except the lines, which have replaced a state of each source in
    /// `lines`.
    fn hand_on(&mut self, now: Time, source: SourceKey, held: Held<'_>, lines: Vec<usize>) {
        let until = held.fresh_until(now, &self.max_age);
        self.subscribers.fresh(now, held, until);
        let command = self.command.as_mut();
        let states = command.map(|command| command.fresh(now, source, held, until));
        self.count_replaced(lines.into_iter().chain(states.unwrap_or_default()));
    }

    fn count_replaced(&mut self, sources: impl IntoIterator<Item = usize>) {
        for replaced in sources {
            if let Some(count) = self.replaced.get_mut(replaced) {
                *count += 1;
            }
        }
    }
}

/// A fresh state as JSON. A payload that is not text is given in base64, and one that is longer
/// than [`SHOWN`](crate::monitor::SHOWN) by its length alone.
fn line(now: Time, held: Held<'_>) -> Map<String, Value> {
    let age = held.age(now).map(|age| (age, held.bounded_age(now)));
    let session = held.record.label().to_string();
    let len = held.payload().map(|payload| payload.len() as u64);
    let (source, key) = (held.source(), held.key());
    let names =
        Names { source: &source, session: &session, topic: held.topic_name(), key: key.as_deref() };
    let ms = |age: Span| age.as_millis_f64();
    let uncertainty = age.and_then(|(_, bounded)| bounded).map(|age: StateAge| age.uncertainty);
    let ages = (age.map(|(age, _)| ms(age)), uncertainty.map(ms));
    let mut line = state(names, held.record.newest_seq, ages, (held.shown(), len));
    if held.is_removed() {
        let is_of_state = |field: &str| {
            matches!(field, "age_ms" | "age_uncertainty_ms" | "payload" | "payload_bytes")
        };
        line.retain(|field, _| !is_of_state(field));
        line.insert("removed".into(), true.into());
    }
    line
}

/// An alarm as JSON.
fn line_of_alarm(alarm: &Alarm) -> Map<String, Value> {
    let ms = |span: Option<Span>| json!(span.map(Span::as_millis_f64));
    let mut line = Map::new();
    line.insert("unix_ms".into(), wall_clock_ms().into());
    line.insert("event".into(), if alarm.is_stale { "stale" } else { "fresh" }.into());
    line.insert("source".into(), shown_source(&alarm.name, alarm.label).into());
    line.insert("session".into(), alarm.label.to_string().into());
    if !alarm.topic.is_empty() {
        line.insert("topic".into(), (*alarm.topic).into());
    }
    if !alarm.key.is_empty() {
        line.insert("key".into(), KeyText(&alarm.key).to_string().into());
    }
    line.insert("age_ms".into(), ms(alarm.age.map(|age| age.estimate)));
    line.insert("age_uncertainty_ms".into(), ms(alarm.age.map(|age| age.uncertainty)));
    line.insert("max_age_ms".into(), ms(Some(alarm.max_age)));
    line
}

/// The length of the payload in a line.
fn payload_len(line: &Map<String, Value>) -> usize {
    let len = |key| line.get(key).and_then(Value::as_str).map_or(0, str::len);
    len("payload") + len("payload_base64")
}

fn line_of_status(status: &SourceStatus) -> Map<String, Value> {
    let SourceStatus { source, session, seq, age_ms, payload, payload_bytes, .. } = status;
    let payload = (payload.as_deref(), *payload_bytes);
    let ages = (*age_ms, status.age_uncertainty_ms);
    let names = Names { source, session, topic: status.first_topic(), key: None };
    let mut line = state(names, *seq, ages, payload);
    if status.freshness.max_age_ms.is_some() {
        line.insert("max_age_ms".into(), json!(status.freshness.max_age_ms));
        line.insert("is_fresh".into(), json!(status.freshness.is_fresh));
        line.insert("too_old".into(), json!(status.freshness.too_old));
    }
    if !status.topics.is_empty() {
        line.insert("topics".into(), json!(status.topics));
    }
    line.insert("silence_s".into(), json!(status.silence_s));
    line
}

/// The states of further topics and of keys as lines; states that are longer than
/// [`SHOWN`](crate::monitor::SHOWN) by their lengths alone.
fn lines_of_topics(status: &SourceStatus) -> impl Iterator<Item = Map<String, Value>> {
    status.topics.iter().filter_map(|topic| {
        let held = topic.state.as_ref()?;
        let SourceStatus { source, session, seq, silence_s, .. } = status;
        let key = topic.key.as_deref();
        let names = Names { source, session, topic: Some(&topic.topic), key };
        let payload = (held.payload.as_deref(), topic.payload_bytes);
        let mut line = state(names, *seq, (topic.age_ms, topic.age_uncertainty_ms), payload);
        line.insert("silence_s".into(), json!(silence_s));
        Some(line)
    })
}

/// The names that identify a state.
struct Names<'a> {
    source: &'a str,
    session: &'a str,
    topic: Option<&'a str>,
    key: Option<&'a str>,
}

fn state(
    Names { source, session, topic, key }: Names<'_>,
    seq: u64,
    (age_ms, age_uncertainty_ms): (Option<f64>, Option<f64>),
    (payload, payload_bytes): (Option<&[u8]>, Option<u64>),
) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("unix_ms".into(), wall_clock_ms().into());
    line.insert("source".into(), source.into());
    line.insert("session".into(), session.into());
    if let Some(topic) = topic {
        line.insert("topic".into(), topic.into());
    }
    if let Some(key) = key {
        line.insert("key".into(), key.into());
    }
    line.insert("seq".into(), seq.into());
    line.insert("age_ms".into(), json!(age_ms));
    line.insert("age_uncertainty_ms".into(), json!(age_uncertainty_ms));
    match payload.map(|payload| (payload, str::from_utf8(payload))) {
        Some((_, Ok(text))) => line.insert("payload".into(), text.into()),
        Some((bytes, Err(_))) => {
            line.insert("payload_base64".into(), STANDARD.encode(bytes).into())
        }
        None => {
            line.insert("payload_bytes".into(), json!(payload_bytes));
            line.insert("payload".into(), Value::Null)
        }
    };
    line
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// A reader that reads nothing while the channel is open.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_a_payload_only_where_there_is_one_and_it_is_short() {
        let line = |payload| {
            let names = Names { source: "it", session: "s", topic: None, key: None };
            Value::Object(state(names, 1, (None, None), payload))
        };
        let (text, bytes) = (line((Some(b"on"), Some(2))), line((Some(b"\xff"), Some(1))));
        assert_eq!((&text["payload"], &bytes["payload_base64"]), (&json!("on"), &json!("/w==")));
        assert!(text.get("payload_bytes").is_none(), "{text}");
        let (large, none) = (line((None, Some(1 << 23))), line((None, None)));
        assert_eq!((&large["payload"], &large["payload_bytes"]), (&json!(null), &json!(8_388_608)));
        assert_eq!((&none["payload"], &none["payload_bytes"]), (&json!(null), &json!(null)));
    }

    #[test]
    fn a_signal_ends_commands_first_and_a_reader_that_hangs_costs_its_lines() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ran");
        let (_open, reads) = channel();
        let mut outputs = Outputs::new();
        outputs.write_states(Box::new(Stuck(reads)), OutFormat::Json);
        outputs.run_command(format!("echo >> {}; sleep 60", file.display()), Span::from_secs(90));
        outputs.lines.as_mut().unwrap().put_test_lines(5);
        outputs.command.as_ref().unwrap().put_test_states(200);
        let began_at = Clock::new().now();
        let stop = Stop::new();
        // While it ends by itself.
        let later = stop.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            later.stop();
        });
        let unwritten = outputs.finish(&stop).unwrap_err();
        assert!(Clock::new().now().since(began_at) < Span::from_secs(40), "it hangs");
        assert_eq!(unwritten.lines, 5);
        let why = format!("read nothing for {READER}");
        assert!(unwritten.to_string().contains(&why), "{unwritten}");
        let ran = std::fs::read_to_string(file).unwrap_or_default().lines().count();
        assert!(ran < 30, "{ran} commands: pending states are dropped first");
    }
}
