//! Fresh states as lines of JSON.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use freshline_core::unit::Time;
use serde_json::{Map, Value};

use super::{Record, Replaced, add_one, line};

/// Lines that may wait for a slow reader. Beyond it, new ones are dropped until it has caught up.
const WAITING: usize = 4096;

/// Writes lines on a thread of its own.
pub struct Lines {
    queue: SyncSender<Map<String, Value>>,
    writer: JoinHandle<()>,
    replaced: Replaced,
}

impl Lines {
    pub(super) fn new(out: Box<dyn Write + Send>, replaced: Replaced) -> Self {
        let (queue, waiting) = sync_channel(WAITING);
        let writer = std::thread::spawn(move || write(&waiting, out));
        Self { queue, writer, replaced }
    }

    pub(super) fn fresh(&mut self, now: Time, record: &Record) {
        if self.queue.try_send(line(now, record)).is_err() {
            add_one(&self.replaced);
        }
    }

    pub(super) fn finish(self) {
        drop(self.queue);
        let _ = self.writer.join();
    }
}

/// Writes until there are no more lines, or nobody to read them.
fn write(waiting: &Receiver<Map<String, Value>>, mut out: Box<dyn Write + Send>) {
    while let Ok(first) = waiting.recv() {
        let mut text = Vec::new();
        for line in std::iter::once(first).chain(waiting.try_iter().take(WAITING)) {
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
