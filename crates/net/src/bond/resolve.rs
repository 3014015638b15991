//! Resolves names to addresses, on threads of its own: the system's resolver blocks.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::waker::Waker;
use freshline_system::privileges::keep_only;

/// Number of threads, and so of names that are looked up at a time.
const THREADS: usize = 16;

/// Maximum number of queued questions.
const WAITING: usize = 256;

/// Maximum number of addresses per name that are tried.
const ADDRESSES: usize = 8;

/// Identifies the asker: a flow's key, and a number, because keys are reused.
pub(super) type Asker = (usize, u64);

type Question = (Asker, String, u16);

/// An answer; without addresses if the name has none or the look-up failed.
pub(super) type Answer = (Asker, Vec<SocketAddr>);

#[derive(Debug)]
pub(super) struct Resolver {
    questions: SyncSender<Question>,
    answers: Receiver<Answer>,
}

impl Resolver {
    /// Starts its threads, which end with the resolver. `waker` is woken for each answer.
    pub(super) fn new(waker: &Arc<Waker>) -> Self {
        let (questions, asked) = sync_channel::<Question>(WAITING);
        let (answer, answers) = channel();
        let asked = Arc::new(Mutex::new(asked));
        for _ in 0..THREADS {
            let (asked, answer, waker) = (Arc::clone(&asked), answer.clone(), Arc::clone(waker));
            std::thread::spawn(move || {
                // This thread reads answers that other hosts have written.
                let _ = keep_only(&[]);
                work(&asked, &answer, &waker);
            });
        }
        Self { questions, answers }
    }

    /// Asks for a name; returns whether there was room for the question.
    pub(super) fn ask(&self, asker: Asker, name: &str, port: u16) -> bool {
        self.questions.try_send((asker, name.to_owned(), port)).is_ok()
    }

    /// The next answer.
    pub(super) fn poll(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

fn work(asked: &Mutex<Receiver<Question>>, answer: &Sender<Answer>, waker: &Waker) {
    loop {
        let question = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((asker, name, port)) = question else { return };
        let found = (name.as_str(), port).to_socket_addrs();
        let addresses = found.map(|found| found.take(ADDRESSES).collect()).unwrap_or_default();
        if answer.send((asker, addresses)).is_err() || waker.wake().is_err() {
            return;
        }
    }
}
