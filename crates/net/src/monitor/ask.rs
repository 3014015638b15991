//! Questions to a running monitor, answered between two turns of its loop.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use mio::Waker;

use super::{MonitorReport, SourceStatus};

/// The monitor has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the monitor has ended")]
pub struct Gone;

struct Question {
    most: usize,
    answer: Sender<MonitorReport>,
}

/// Asks a monitor that runs on another thread.
#[derive(Clone)]
pub struct Asker {
    questions: Sender<Question>,
    waker: Arc<Waker>,
}

impl Asker {
    /// The states of the sources as of now, at most `most`.
    ///
    /// # Errors
    /// [`Gone`] if the monitor does not run any more.
    pub fn sources(&self, most: usize) -> Result<Vec<SourceStatus>, Gone> {
        Ok(self.report(most)?.sources)
    }

    /// The run until now, with at most `most` sources.
    ///
    /// # Errors
    /// [`Gone`] if the monitor does not run any more.
    pub fn report(&self, most: usize) -> Result<MonitorReport, Gone> {
        let (answer, answered) = channel();
        self.questions.send(Question { most, answer }).map_err(|_| Gone)?;
        self.waker.wake().map_err(|_| Gone)?;
        answered.recv().map_err(|_| Gone)
    }
}

/// The monitor's side.
pub(super) struct Desk {
    asker: Asker,
    questions: Receiver<Question>,
}

impl Desk {
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        let (sender, questions) = channel();
        Self { asker: Asker { questions: sender, waker }, questions }
    }

    pub(super) fn asker(&self) -> Asker {
        self.asker.clone()
    }

    pub(super) fn answer(&self, report: impl Fn(usize) -> MonitorReport) {
        while let Ok(Question { most, answer }) = self.questions.try_recv() {
            // Who has asked may have gone meanwhile.
            let _ = answer.send(report(most));
        }
    }
}
