//! The records that the application of a source has put and keeps until they are done.

use std::collections::VecDeque;

use freshline_core::session::{RecordError, Source, StreamId, TopicId, TopicKind, TopicParams};
use freshline_core::unit::Time;

/// The name of the topic.
pub(super) const TOPIC: &str = "log";

/// A record is put after this number of states.
const STATES: u64 = 16;

/// The buffer of the topic, in bytes. While it is full, the application does not put records.
const MAX_BYTES: u32 = 4 << 10;

/// A record that the application keeps, as a spool file does.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// The number of its first chunk.
    first: u64,
    /// Its number among the records of the source.
    number: u64,
}

/// The records of one source, over all of its processes.
#[derive(Debug)]
pub(super) struct Log {
    stream: StreamId,
    kept: VecDeque<Kept>,
    /// Records put so far.
    put: u64,
    /// The number of the next chunk.
    next: u64,
}

/// The bytes of a record; some take more than one chunk.
pub(super) fn record(source: &str, number: u64) -> Vec<u8> {
    let text = format!("record {number} of {source} ");
    let len = if number % 16 == 15 { 1_500 } else { 20 + (number % 97) as usize };
    text.bytes().cycle().take(len).collect()
}

impl Log {
    pub(super) fn new(stream: StreamId) -> Self {
        Self { stream, kept: VecDeque::new(), put: 0, next: 0 }
    }

    /// The topic's parameters in a new process of the source.
    pub(super) fn params(&self) -> TopicParams {
        let first = self.kept.front().map_or(self.next, |kept| kept.first);
        let kind = TopicKind::Every { stream: self.stream, first, max_bytes: MAX_BYTES };
        TopicParams { kind, ..TopicParams::new(TOPIC) }
    }

    /// A new process puts the records that are not done again.
    pub(super) fn put_again(&self, source: &mut Source, topic: TopicId, name: &str, now: Time) {
        for kept in &self.kept {
            let put = source.put_record(now, topic, now, &record(name, kept.number));
            assert_eq!(put, Ok(kept.first), "numbers go on");
        }
    }

    /// The source has put its state number `states`: puts a record after every 16th state.
    pub(super) fn follow(&mut self, source: &mut Source, topic: TopicId, states: u64, now: Time) {
        if !states.is_multiple_of(STATES) {
            return;
        }
        let bytes = record(source.name(), self.put);
        match source.put_record(now, topic, now, &bytes) {
            Ok(first) => {
                self.kept.push_back(Kept { first, number: self.put });
                self.put += 1;
                self.next = source.records(topic).expect("it is of records").next;
            }
            Err(RecordError::Full { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// The application at the monitor has received more records.
    pub(super) fn forget_done(&mut self, source: &Source, topic: TopicId) {
        let done = source.records_done(topic);
        while !self.kept.is_empty()
            && self.kept.get(1).map_or(self.next, |second| second.first) <= done
        {
            self.kept.pop_front();
        }
    }

    /// The number of records that are done.
    pub(super) fn done(&self) -> u64 {
        self.kept.front().map_or(self.put, |kept| kept.number)
    }

    /// Whether some records are not done.
    pub(super) fn is_waiting(&self) -> bool {
        !self.kept.is_empty()
    }
}
