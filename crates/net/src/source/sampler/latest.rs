//! The newest state of a stream.

use std::io::{self, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use freshline_core::unit::Time;

use super::stamp::{self, StampError, StampFormat, Stamps};
use super::{Need, Sampler, Take};
use crate::clock::{Anchor, Clock};
use crate::framing::Framing;
use crate::waker::Waker;

/// Keeps only the newest state of a stream, such as standard input: states that arrive faster than
/// they may be sent are replaced, the newest is repeated while the monitor does not have it, and
/// the end of the stream ends the source when the last state has arrived.
pub struct Latest<R> {
    stream: Option<R>,
    framing: Framing,
    max_state: usize,
    stamps: Stamps,
    newest: Arc<Mutex<Newest>>,
}

#[derive(Default)]
struct Newest {
    line: Option<(Time, Vec<u8>)>,
    taken: bool,
    ended: Option<Result<(), String>>,
}

impl Newest {
    /// Stores a result of the stream; returns whether the source must be woken: not if it already
    /// knows of a state that has not been taken.
    fn put(&mut self, generated_at: Time, read: io::Result<Option<Vec<u8>>>) -> bool {
        let is_known = self.line.is_some() && !self.taken;
        match read {
            Ok(Some(line)) => {
                self.line = Some((generated_at, line));
                self.taken = false;
                return !is_known;
            }
            Ok(None) => self.ended = Some(Ok(())),
            Err(error) => self.ended = Some(Err(format!("cannot read the next state: {error}"))),
        }
        true
    }
}

#[cfg(test)]
impl Latest<io::Empty> {
    /// A stream that the test writes: a function that puts its next state, and returns whether the
    /// source must be woken.
    pub(crate) fn by_hand() -> (Self, impl Fn(Time, Vec<u8>) -> bool) {
        let sampler = Self::new(io::empty(), Framing::Lines, usize::MAX);
        let newest = Arc::clone(&sampler.newest);
        (sampler, move |at, state| newest.lock().unwrap().put(at, Ok(Some(state))))
    }
}

impl<R: Read + Send + 'static> Latest<R> {
    /// The newest state of `stream`, without its framing. A state of more than `max_state` bytes is an
    /// error, or left out ([`Framing::read`]).
    pub fn new(stream: R, framing: Framing, max_state: usize) -> Self {
        let (stamps, newest) = (Stamps::default(), Arc::default());
        Self { stream: Some(stream), framing, max_state, stamps, newest }
    }

    /// Expects a generation time and a tab before each state, which do not count for `max_state`;
    /// without a format, states have no times. A state without a plausible time counts as generated
    /// when it is read.
    #[must_use]
    pub fn stamped(self, format: impl Into<Option<StampFormat>>) -> Self {
        Self { stamps: Stamps::new(format.into(), stamp::MAX_AGE), ..self }
    }
}

impl<R: Read + Send + 'static> Sampler for Latest<R> {
    fn start(&mut self, clock: Clock, waker: Arc<Waker>) -> io::Result<()> {
        let Some(stream) = self.stream.take() else { return Ok(()) };
        let (newest, framing) = (Arc::clone(&self.newest), self.framing);
        let stamps = self.stamps.clone();
        let max_state = self.max_state.saturating_add(stamps.max_len());
        // The thread ends with the stream, or with the process.
        super::spawn(move || {
            let mut stream = BufReader::new(stream);
            loop {
                let mut read = framing.read(&mut stream, max_state);
                let read_at = Anchor::of_now(clock);
                let generated_at = match &mut read {
                    Ok(Some(state)) => read_at.time_of(stamps.take_off(read_at.wall(), state)),
                    _ => read_at.ours(),
                };
                let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
                let is_news = newest.put(generated_at, read);
                let ended = newest.ended.is_some();
                drop(newest);
                // Waking fails only if the source has ended.
                if (is_news && waker.wake().is_err()) || ended {
                    return;
                }
            }
        })
    }

    fn take(&mut self, _now: Time, need: Need, into: &mut Vec<u8>) -> Take {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let Newest { line, taken, ended } = &mut *newest;
        match (line, ended) {
            (Some((generated_at, line)), _) if !*taken || need == Need::Newest => {
                *taken = true;
                into.extend_from_slice(line);
                Take::Sample { generated_at: *generated_at }
            }
            (_, Some(Ok(()))) => Take::End,
            (_, Some(Err(why))) => Take::Failed(why.clone()),
            _ => Take::NotYet,
        }
    }
    fn invalid_stamps(&self) -> Option<u64> {
        self.stamps.invalid()
    }

    fn take_stamp_errors(&mut self) -> Vec<StampError> {
        self.stamps.take_news()
    }
}
