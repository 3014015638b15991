//! A stream of states of keys.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use freshline_core::session::MAX_STREAMS;
use freshline_core::unit::Time;

use super::{Need, Sampler, Take};
use crate::clock::Clock;
use crate::framing::Framing;
use crate::waker::Waker;

/// Stands between key and state in a stream.
const TAB: u8 = b'\t';

/// Keeps the newest state of each key of a stream, such as standard input. What is before the first tab of a state is
/// its key; without a tab it is the key that is removed. For a topic with keys.
///
/// Keys whose states have not been taken yet are at most [`MAX_STREAMS`]: then the stream is not read on, so that no
/// removal is lost.
pub struct Keys<R> {
    stream: Option<R>,
    framing: Framing,
    max_state: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    changes: Mutex<Changes>,
    taken: Condvar,
}

/// What the stream has given and was not taken yet.
#[derive(Default)]
struct Changes {
    /// The newest state of each key; `None`: it is removed.
    newest: BTreeMap<Vec<u8>, (Time, Option<Vec<u8>>)>,
    ended: Option<Result<(), String>>,
}

impl Changes {
    fn put(&mut self, at: Time, mut item: Vec<u8>) {
        match item.iter().position(|byte| *byte == TAB) {
            Some(tab) => {
                let state = item.split_off(tab + 1);
                item.pop();
                self.newest.insert(item, (at, Some(state)));
            }
            None => _ = self.newest.insert(item, (at, None)),
        }
    }
}

impl<R: Read + Send + 'static> Keys<R> {
    /// The states of `stream`. One of more than `max_state` bytes, its key included, is an error, or left out
    /// ([`Framing::read`]).
    pub fn new(stream: R, framing: Framing, max_state: usize) -> Self {
        Self { stream: Some(stream), framing, max_state, shared: Arc::default() }
    }
}

impl<R: Read + Send + 'static> Sampler for Keys<R> {
    fn start(&mut self, clock: Clock, waker: Arc<Waker>) {
        let Some(stream) = self.stream.take() else { return };
        let (shared, framing) = (Arc::clone(&self.shared), self.framing);
        let max_state = self.max_state;
        // It ends with the stream, or with the process.
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            loop {
                let read = framing.read(&mut stream, max_state);
                let mut changes = shared.changes.lock().unwrap_or_else(PoisonError::into_inner);
                let is_news = changes.newest.is_empty();
                match read {
                    Ok(Some(item)) => changes.put(clock.now(), item),
                    Ok(None) => changes.ended = Some(Ok(())),
                    Err(error) => {
                        changes.ended = Some(Err(format!("cannot read the next state: {error}")));
                    }
                }
                let has_ended = changes.ended.is_some();
                // Waking fails only when the source has ended.
                let is_gone = (is_news || has_ended) && waker.wake().is_err();
                if is_gone || has_ended {
                    return;
                }
                let is_full = |changes: &mut Changes| changes.newest.len() >= MAX_STREAMS;
                let changes = shared.taken.wait_while(changes, is_full);
                drop(changes.unwrap_or_else(PoisonError::into_inner));
            }
        });
    }

    fn take(&mut self, _now: Time, _need: Need, into: &mut Vec<u8>) -> Take {
        let mut changes = self.shared.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((key, (generated_at, state))) = changes.newest.pop_first() else {
            return match &changes.ended {
                Some(Ok(())) => Take::End,
                Some(Err(why)) => Take::Failed(why.clone()),
                // The session holds the newest state of each key itself.
                None => Take::NotYet,
            };
        };
        self.shared.taken.notify_one();
        let is_removed = state.is_none();
        into.extend_from_slice(&state.unwrap_or_default());
        Take::Key { generated_at, key, is_removed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tab_ends_the_key_and_the_newest_of_each_key_is_kept() {
        let (mut changes, at) = (Changes::default(), Time::from_nanos);
        for (now, item) in [
            (1, &b"base\tone"[..]),
            (2, b"arm\tleft\tup"),
            (3, b"base\ttwo"),
            (4, b"arm"),
            (5, b"\tno key"),
            (6, b"empty\t"),
        ] {
            changes.put(at(now), item.to_vec());
        }
        let state = |text: &str| Some(text.as_bytes().to_vec());
        let expected = [
            (&b""[..], (at(5), state("no key"))),
            (b"arm", (at(4), None)),
            (b"base", (at(3), state("two"))),
            (b"empty", (at(6), state(""))),
        ];
        let expected = expected.map(|(key, change)| (key.to_vec(), change));
        assert_eq!(changes.newest.into_iter().collect::<Vec<_>>(), expected);
    }
}
