//! A stream of states of keys.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use freshline_core::session::MAX_STREAMS;
use freshline_core::unit::Time;

use super::stamp::{self, StampError, StampFormat, Stamps};
use super::{Need, Sampler, Take};
use crate::clock::{Anchor, Clock};
use crate::framing::Framing;
use crate::waker::Waker;

/// Separates key and state in a stream.
const TAB: u8 = b'\t';

/// Keeps the newest state of each key of a stream, such as standard input. The text before the
/// first tab of a state is its key; a line without a tab removes that key. For a topic with keys.
///
/// It holds at most [`MAX_STREAMS`] keys whose states have not been taken yet: then it stops
/// reading the stream, so that no removal is lost.
pub struct Keys<R> {
    stream: Option<R>,
    framing: Framing,
    max_state: usize,
    stamps: Stamps,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    changes: Mutex<Changes>,
    taken: Condvar,
}

/// Changes from the stream that have not been taken yet.
#[derive(Default)]
struct Changes {
    /// The newest state of each key; `None` if it was removed.
    newest: BTreeMap<Vec<u8>, (Time, Option<Vec<u8>>)>,
    ended: Option<Result<(), String>>,
}

impl Changes {
    fn put(&mut self, read_at: &Anchor, mut item: Vec<u8>, stamps: &Stamps) {
        match item.iter().position(|byte| *byte == TAB) {
            Some(tab) => {
                let mut state = item.split_off(tab + 1);
                item.pop();
                let at = read_at.time_of(stamps.take_off(read_at.wall(), &mut state));
                self.newest.insert(item, (at, Some(state)));
            }
            None => _ = self.newest.insert(item, (read_at.ours(), None)),
        }
    }
}

impl<R: Read + Send + 'static> Keys<R> {
    /// The states of `stream`. A state of more than `max_state` bytes, including its key, is an
    /// error, or left out ([`Framing::read`]).
    pub fn new(stream: R, framing: Framing, max_state: usize) -> Self {
        let (stamps, shared) = (Stamps::default(), Arc::default());
        Self { stream: Some(stream), framing, max_state, stamps, shared }
    }

    /// Expects a generation time and a tab between the key's tab and each state, as
    /// [`Latest::stamped`](super::Latest::stamped). A removal has none.
    #[must_use]
    pub fn stamped(self, format: impl Into<Option<StampFormat>>) -> Self {
        Self { stamps: Stamps::new(format.into(), stamp::MAX_AGE), ..self }
    }
}

impl<R: Read + Send + 'static> Sampler for Keys<R> {
    fn start(&mut self, clock: Clock, waker: Arc<Waker>) -> io::Result<()> {
        let Some(stream) = self.stream.take() else { return Ok(()) };
        let (shared, framing) = (Arc::clone(&self.shared), self.framing);
        let stamps = self.stamps.clone();
        let max_state = self.max_state.saturating_add(stamps.max_len());
        // The thread ends with the stream, or with the process.
        super::spawn(move || {
            let mut stream = BufReader::new(stream);
            loop {
                let read = framing.read(&mut stream, max_state);
                let read_at = Anchor::of_now(clock);
                let mut changes = shared.changes.lock().unwrap_or_else(PoisonError::into_inner);
                let is_news = changes.newest.is_empty();
                match read {
                    Ok(Some(item)) => changes.put(&read_at, item, &stamps),
                    Ok(None) => changes.ended = Some(Ok(())),
                    Err(error) => {
                        changes.ended = Some(Err(format!("cannot read the next state: {error}")));
                    }
                }
                let has_ended = changes.ended.is_some();
                // Waking fails only if the source has ended.
                let is_gone = (is_news || has_ended) && waker.wake().is_err();
                if is_gone || has_ended {
                    return;
                }
                let is_full = |changes: &mut Changes| changes.newest.len() >= MAX_STREAMS;
                let changes = shared.taken.wait_while(changes, is_full);
                drop(changes.unwrap_or_else(PoisonError::into_inner));
            }
        })
    }

    fn take(&mut self, _now: Time, _need: Need, into: &mut Vec<u8>) -> Take {
        let mut changes = self.shared.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((key, (generated_at, state))) = changes.newest.pop_first() else {
            return match &changes.ended {
                Some(Ok(())) => Take::End,
                Some(Err(why)) => Take::Failed(why.clone()),
                // The session itself holds the newest state of each key.
                None => Take::NotYet,
            };
        };
        self.shared.taken.notify_one();
        let is_removed = state.is_none();
        into.extend_from_slice(&state.unwrap_or_default());
        Take::Key { generated_at, key, is_removed }
    }

    fn invalid_stamps(&self) -> Option<u64> {
        self.stamps.invalid()
    }

    fn take_stamp_errors(&mut self) -> Vec<StampError> {
        self.stamps.take_news()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use freshline_core::unit::Span;

    use super::*;

    /// When the tests read, the wall clock shows this many seconds more.
    const WALL: u64 = 1_732_712_000;

    fn read_at(secs: u64) -> Anchor {
        Anchor::at(at(secs), Duration::from_secs(WALL + secs))
    }

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    fn state(text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    #[test]
    fn the_first_tab_ends_the_key_and_the_newest_of_each_key_is_kept() {
        let mut changes = Changes::default();
        for (now, item) in [
            (1, &b"base\tone"[..]),
            (2, b"arm\tleft\tup"),
            (3, b"base\ttwo"),
            (4, b"arm"),
            (5, b"\tno key"),
            (6, b"empty\t"),
        ] {
            changes.put(&read_at(now), item.to_vec(), &Stamps::default());
        }
        let expected = [
            (&b""[..], (at(5), state("no key"))),
            (b"arm", (at(4), None)),
            (b"base", (at(3), state("two"))),
            (b"empty", (at(6), state(""))),
        ];
        let expected = expected.map(|(key, change)| (key.to_vec(), change));
        assert_eq!(changes.newest.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_stamp_is_between_the_key_and_its_state_and_a_removal_has_none() {
        let stamps = Stamps::new(Some(StampFormat::Unix), stamp::MAX_AGE);
        let mut changes = Changes::default();
        for item in [
            &b"base\t1732712090.5\tone\ttwo"[..],
            b"arm\t1732712099\tup",
            b"arm",
            b"1732712000",
            b"bare\tno stamp",
        ] {
            changes.put(&read_at(100), item.to_vec(), &stamps);
        }
        let expected = [
            (&b"1732712000"[..], (at(100), None)),
            (b"arm", (at(100), None)),
            (b"bare", (at(100), state("no stamp"))),
            (b"base", (at(90) + Span::from_millis(500), state("one\ttwo"))),
        ];
        let expected = expected.map(|(key, change)| (key.to_vec(), change));
        assert_eq!(changes.newest.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!((stamps.invalid(), stamps.take_news()), (Some(1), vec![StampError::NoTab]));
    }
}
