//! The urgent states of a source, which its application puts at its own times.

use freshline_core::session::{Source, TopicId, TopicParams};
use freshline_core::unit::Time;
use freshline_core::wire::SessionId;

use super::ledger::{Ledger, Stop};

/// The name of the topic.
pub(super) const TOPIC: &str = "stop";

/// An urgent state follows this number of states, half a period later, when no update is due by the
/// law.
const STATES: u64 = 16;

/// The application with its urgent states.
#[derive(Debug)]
pub(super) struct Stops {
    /// See [`SourcePlan::hurries`](super::plan::SourcePlan::hurries).
    hurries: bool,
    /// When the next one is put, by the clock of the source.
    due: Option<Time>,
    /// The number of urgent states so far.
    put: u64,
}

impl Stops {
    pub(super) fn new(hurries: bool) -> Self {
        Self { hurries, due: None, put: 0 }
    }

    pub(super) fn params(&self) -> TopicParams {
        TopicParams { is_urgent: self.hurries, ..TopicParams::new(TOPIC) }
    }

    /// A new process starts without urgent states.
    pub(super) fn begin(&mut self) {
        self.due = None;
    }

    /// The source has put its state number `states`.
    pub(super) fn follow(&mut self, source: &Source, states: u64, local: Time) {
        if states.is_multiple_of(STATES) {
            self.due = Some(local + source.law().rate().period() / 2);
        }
    }

    /// When [`Stops::put`] is due, by the clock of the source.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Puts the state that is due.
    pub(super) fn put(
        &mut self,
        (source, topic): (&mut Source, TopicId),
        process: SessionId,
        (now, local): (Time, Time),
        ledger: &mut Ledger,
    ) {
        if self.due.take_if(|due| *due <= local).is_none() {
            return;
        }
        self.put += 1;
        let stop = Stop { process, number: self.put, label: local, at: now };
        ledger.put_stop(stop);
        source.put_topic(local, topic, local, &stop.state()).expect("they are short");
    }
}
