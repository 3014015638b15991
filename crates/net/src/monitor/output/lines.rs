//! Fresh states as lines of JSON.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::thread::JoinHandle;

use freshline_core::session::SourceKey;
use freshline_core::unit::Time;
use serde_json::{Map, Value};

use super::handover::{Handover, Pending};
use super::{Record, line};

/// Lines that may wait for a slow reader; a further one takes the place of the oldest.
const WAITING: usize = 1024;

/// Writes lines on a thread of its own.
pub(super) struct Lines {
    waiting: Arc<Handover<Waiting>>,
    writer: JoinHandle<()>,
}

#[derive(Default)]
struct Waiting(VecDeque<(SourceKey, Map<String, Value>)>);

impl Pending for Waiting {
    /// All that waits.
    type Item = VecDeque<(SourceKey, Map<String, Value>)>;

    fn take(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| std::mem::take(&mut self.0))
    }
}

impl Lines {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Self {
        let waiting = Arc::default();
        let theirs = Arc::clone(&waiting);
        let writer = std::thread::spawn(move || write(&theirs, out));
        Self { waiting, writer }
    }

    /// Gives the source whose line was replaced, if one had to be.
    pub(super) fn fresh(
        &mut self,
        now: Time,
        source: SourceKey,
        record: &Record,
    ) -> Option<SourceKey> {
        let line = line(now, record);
        self.waiting.put(|Waiting(lines)| {
            lines.push_back((source, line));
            if lines.len() > WAITING { lines.pop_front().map(|(source, _)| source) } else { None }
        })
    }

    pub(super) fn finish(self) {
        self.waiting.finish();
        let _ = self.writer.join();
    }
}

/// Writes until there are no more lines, or nobody to read them.
fn write(waiting: &Handover<Waiting>, mut out: Box<dyn Write + Send>) {
    while let Some(lines) = waiting.next() {
        let mut text = Vec::new();
        for (_, line) in lines {
            // Writing to memory does not fail, and a map of strings is always JSON.
            let _ = serde_json::to_writer(&mut text, &line);
            text.push(b'\n');
        }
        if let Err(error) = out.write_all(&text).and_then(|()| out.flush()) {
            tracing::warn!("cannot write lines any more: {error}");
            return;
        }
    }
}
