//! Where a monitor's freshest states go: lines, a command, sockets, metrics.
//!
//! None of them may hold the monitor up: each has a thread of its own. A command that is slower
//! than the updates gets the newest of each source; a reader of lines gets the newest lines. What
//! they did not get is counted as replaced.

mod command;
mod handover;
mod held;
mod lines;
mod metrics;
mod pattern;
mod query;
mod reader;
mod subscribe;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use freshline_core::session::{RemovedTopic, SourceKey, TopicRecord};
use freshline_core::unit::{Span, Time};
use serde_json::{Map, Value, json};

use super::{Record, SourceStatus, Watch};
use crate::clock::{Clock, wall_clock_ms};
use crate::stop::Stop;

use command::Command;
use held::Held;
use lines::Lines;

pub use command::end_all as end_commands;
pub use lines::{LinesError, OutFormat, UnknownFormat, Unwritten};
pub(crate) use metrics::encode as encode_metrics;
pub use metrics::serve as serve_metrics;
pub use query::{SocketError, StateSocket};
pub use subscribe::Subscribers;

/// How often it is looked whether the outputs have ended, or are to end sooner.
const LOOK: Duration = Duration::from_millis(10);

/// After a signal, how long a reader of lines may take in nothing until the others are lost. Room in a
/// pipe comes by pages: one line of 300 bytes each half second is 7 s a page.
const READER: Span = Span::from_secs(15);

/// How long subscribers may take for the last states.
const SUBSCRIBERS: Span = Span::from_secs(2);

/// All outputs of a monitor.
#[derive(Default)]
pub struct Outputs {
    lines: Option<Lines>,
    command: Option<Command>,
    subscribers: Subscribers,
    /// By the sources' indices.
    replaced: Vec<u64>,
}

impl Outputs {
    /// No output.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes every fresh state to `out`, such as a line of JSON each.
    pub fn write_states(&mut self, out: Box<dyn Write + Send>, format: OutFormat) {
        self.lines = Some(Lines::new(out, format, false));
    }

    /// Appends every fresh state to a file. A last line or frame of COBS that a crash has torn is ended
    /// first.
    ///
    /// # Errors
    /// [`LinesError`] where the file cannot be opened, or has content and `format` is
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

    /// As [`Outputs::run_command`], but what `command` prints goes to standard error, as standard
    /// output is for something else.
    pub fn run_command_to_stderr(&mut self, command: String, limit: Span) {
        self.command = Some(Command::new(command, limit, true));
    }

    /// For readers that get each fresh state ([`StateSocket::subscriptions`]).
    pub fn subscribers(&self) -> Subscribers {
        self.subscribers.clone()
    }

    /// Waits until all lines are written and all commands have ended, and up to 2 s for readers of
    /// [`Outputs::subscribers`]. Commands for states that are
    /// still pending run as well, all together within the limit of one command; what is pending then
    /// is dropped, with a warning.
    ///
    /// Once `stop` is stopped, be it before or meanwhile, states that are pending for commands are
    /// dropped, with a warning, commands end within 2 s, and lines within 15 s if nothing reads them.
    ///
    /// # Errors
    /// [`Unwritten`] says how many lines could not be written, and why.
    pub fn finish(mut self, stop: &Stop) -> Result<(), Unwritten> {
        let clock = Clock::new();
        let served_by = clock.now() + SUBSCRIBERS;
        let mut is_abandoned = false;
        loop {
            if stop.is_stopped() && !is_abandoned {
                self.command.iter().for_each(Command::abandon);
                is_abandoned = true;
            }
            // Does nothing after the first time.
            self.lines.iter().for_each(Lines::finish);
            self.command.iter().for_each(Command::finish);
            self.subscribers.finish();
            let patience = is_abandoned.then_some(READER);
            let are_written =
                self.lines.as_mut().is_none_or(|lines| lines.is_over(&clock, patience));
            let are_served = self.subscribers.is_over() || clock.now() >= served_by;
            let have_run = self.command.as_ref().is_none_or(Command::is_over);
            if are_written && are_served && have_run {
                break;
            }
            std::thread::sleep(LOOK);
        }
        if let Some(command) = self.command {
            command.join();
        }
        self.lines.map_or(Ok(()), Lines::join)
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
        let lines = self.lines.as_mut().filter(|lines| lines.show_removals());
        let replaced = lines.map(|lines| lines.fresh(now, source, held));
        self.hand_on(now, source, held, replaced.unwrap_or_default());
    }

    fn aged(&mut self, now: Time, source: SourceKey, record: &Record) {
        let held = Held::of(record);
        let lines = self.lines.as_mut().filter(|lines| lines.show_age());
        let replaced = lines.map(|lines| lines.fresh(now, source, held));
        self.hand_on(now, source, held, replaced.unwrap_or_default());
    }

    fn replaced(&self, source: SourceKey) -> u64 {
        self.replaced.get(source.index()).copied().unwrap_or(0)
    }
}

impl Outputs {
    /// Gives a fresh state to all outputs.
    fn show(&mut self, now: Time, source: SourceKey, held: Held<'_>) {
        let replaced = self.lines.as_mut().map(|lines| lines.fresh(now, source, held));
        self.hand_on(now, source, held, replaced.unwrap_or_default());
    }

    /// Gives a state to all but the lines, of which those of sources `lines` were replaced.
    fn hand_on(&mut self, now: Time, source: SourceKey, held: Held<'_>, lines: Vec<usize>) {
        self.subscribers.fresh(now, held);
        let command = self.command.as_mut();
        let states = command.map(|command| command.fresh(now, source, held));
        for replaced in lines.into_iter().chain(states.unwrap_or_default()) {
            if let Some(count) = self.replaced.get_mut(replaced) {
                *count += 1;
            }
        }
    }
}

/// A fresh state as JSON; a payload that is not text is given in base64, and one that is longer than
/// [`SHOWN`](crate::monitor::SHOWN) by its length alone.
fn line(now: Time, held: Held<'_>) -> Map<String, Value> {
    let age_ms = held.age(now).map(|age| age.as_millis_f64());
    let session = held.record.label().to_string();
    let len = held.payload().map(|payload| payload.len() as u64);
    let (source, key) = (held.source(), held.key());
    let names =
        Names { source: &source, session: &session, topic: held.topic_name(), key: key.as_deref() };
    let mut line = state(names, held.record.newest_seq, age_ms, (held.shown(), len));
    if held.is_removed() {
        line.retain(|field, _| !matches!(field.as_str(), "age_ms" | "payload" | "payload_bytes"));
        line.insert("removed".into(), true.into());
    }
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
    let names = Names { source, session, topic: None, key: None };
    let mut line = state(names, *seq, *age_ms, payload);
    if !status.topics.is_empty() {
        line.insert("topics".into(), json!(status.topics));
    }
    line.insert("silence_s".into(), json!(status.silence_s));
    line
}

/// The states of further topics and of keys as lines, with those that are longer than
/// [`SHOWN`](crate::monitor::SHOWN) by their lengths alone.
fn lines_of_topics(status: &SourceStatus) -> impl Iterator<Item = Map<String, Value>> {
    status.topics.iter().filter_map(|topic| {
        let held = topic.state.as_ref()?;
        let SourceStatus { source, session, seq, silence_s, .. } = status;
        let key = topic.key.as_deref();
        let names = Names { source, session, topic: Some(&topic.topic), key };
        let payload = (held.payload.as_deref(), topic.payload_bytes);
        let mut line = state(names, *seq, topic.age_ms, payload);
        line.insert("silence_s".into(), json!(silence_s));
        Some(line)
    })
}

/// Whose a state is.
struct Names<'a> {
    source: &'a str,
    session: &'a str,
    topic: Option<&'a str>,
    key: Option<&'a str>,
}

fn state(
    Names { source, session, topic, key }: Names<'_>,
    seq: u64,
    age_ms: Option<f64>,
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

    /// A reader that takes in nothing while the channel is open.
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
            Value::Object(state(names, 1, None, payload))
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
        let why = format!("took in nothing for {READER}");
        assert!(unwritten.to_string().contains(&why), "{unwritten}");
        let ran = std::fs::read_to_string(file).unwrap_or_default().lines().count();
        assert!(ran < 30, "{ran} commands: pending states are dropped first");
    }
}
