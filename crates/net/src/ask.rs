//! Requests to a running endpoint, answered between two turns of its loop.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::waker::Waker;

/// The endpoint has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint has ended")]
pub struct Gone;

struct Question<R> {
    most: usize,
    answer: Sender<R>,
}

/// Requests the report `R` of an endpoint that runs on another thread.
pub struct Asker<R> {
    questions: Sender<Question<R>>,
    waker: Arc<Waker>,
}

impl<R> Clone for Asker<R> {
    fn clone(&self) -> Self {
        Self { questions: self.questions.clone(), waker: Arc::clone(&self.waker) }
    }
}

impl<R> Asker<R> {
    /// The report of the run until now, with at most `most` peers.
    ///
    /// # Errors
    /// [`Gone`] if the endpoint is no longer running.
    pub fn report(&self, most: usize) -> Result<R, Gone> {
        let (answer, answered) = channel();
        self.questions.send(Question { most, answer }).map_err(|_| Gone)?;
        self.waker.wake().map_err(|_| Gone)?;
        answered.recv().map_err(|_| Gone)
    }
}

/// The endpoint's side.
pub(crate) struct Desk<R> {
    asker: Asker<R>,
    questions: Receiver<Question<R>>,
}

impl<R> Desk<R> {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        let (sender, questions) = channel();
        Self { asker: Asker { questions: sender, waker }, questions }
    }

    pub(crate) fn asker(&self) -> Asker<R> {
        self.asker.clone()
    }

    pub(crate) fn answer(&self, report: impl Fn(usize) -> R) {
        while let Ok(Question { most, answer }) = self.questions.try_recv() {
            // The requester may have gone meanwhile.
            let _ = answer.send(report(most));
        }
    }
}
