//! The handle through which an application gives states to a source.
//!
//! ```text
//!   put ──► slot: the newest state ◄── take, at the moment of sending ── network thread
//!             └── wakes it only if it waits
//! ```
//!
//! A slot is locked for the duration of a move, so `put` never waits for the network. A thread that
//! puts a million states per second wakes the network thread once per transmitted update.

mod content;
#[cfg(feature = "monitor")]
mod returned;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use freshline_core::session::{Need, TopicKind};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{RecordChunk, TopicKey};
use freshline_net::Waker;
use freshline_net::source::sampler::{Sampler, Take};

use crate::clock::Clock;
use crate::put_error::PutError;
use content::{Content, Kind};

/// A handle to one topic of a [`Source`](crate::Source), or of a monitor's return direction. It is
/// cheap to clone and can be used by several threads at the same time.
#[derive(Clone)]
pub struct Topic(Arc<Slot>);

struct Slot {
    name: Box<str>,
    kind: Kind,
    max_state: usize,
    clock: Clock,
    inner: Mutex<Inner>,
}

/// Writes a state into an empty buffer, or returns the reason why it cannot.
type Sample = Box<dyn FnMut(&mut Vec<u8>) -> Result<(), String> + Send>;

/// When a function that failed is called again.
const RETRY: Span = Span::from_millis(100);

#[derive(Default)]
struct Inner {
    content: Content,
    /// The function for states at the moment of sending; taken out while it is called.
    sample: Option<Sample>,
    /// How often the application has switched between a function and put states.
    choice: u64,
    /// When the function was called last.
    sampled_at: Option<Time>,
    waker: Option<Arc<Waker>>,
    /// Whether the network thread has asked for a state and got none.
    awaits: bool,
    /// Whether each new state wakes it, as urgent states and records do.
    is_urgent: bool,
    is_closed: bool,
    /// No more states are put, and the source ends when all have arrived.
    is_ending: bool,
    /// States that a newer one replaced before they were sent.
    replaced: u64,
}

impl Topic {
    /// A topic without a source.
    pub(crate) fn new(name: &str, kind: &TopicKind, is_urgent: bool, limits: Limits) -> Self {
        let kind = match *kind {
            TopicKind::Latest => Kind::Latest,
            TopicKind::Keyed { max_keys } => Kind::Keyed { max_keys: max_keys.into() },
            TopicKind::Every { max_bytes, .. } => Kind::Every { max_bytes: max_bytes as usize },
        };
        let is_urgent = is_urgent || matches!(kind, Kind::Every { .. });
        let inner = Mutex::new(Inner { is_urgent, ..Inner::default() });
        let Limits { max_state, clock } = limits;
        Self(Arc::new(Slot { name: name.into(), kind, max_state, clock, inner }))
    }

    /// The topic's name; empty for a source without topics.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Sets the newest state, sampled now. It never waits for the network. Returns the previous
    /// state if it was replaced before it was sent.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put(&self, state: impl Into<Vec<u8>>) -> Result<Option<Vec<u8>>, PutError> {
        self.put_at(self.0.clock.now(), state.into())
    }

    /// Sets the newest state, sampled at `generated_at`, such as the time of a camera's exposure.
    /// In a simulation the sampling time is always now.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put_generated(
        &self,
        generated_at: Instant,
        state: impl Into<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, PutError> {
        let now = self.0.clock.now();
        let at = match &self.0.clock {
            Clock::Real(clock) => clock.time_of(generated_at).min(now),
            #[cfg(feature = "sim")]
            Clock::Virtual(_) => now,
        };
        self.put_at(at, state.into())
    }

    /// Sets the newest state, sampled `age` ago.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put_aged(
        &self,
        age: Duration,
        state: impl Into<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, PutError> {
        let now = self.0.clock.now();
        if Span::from(age) >= now.since(Time::ZERO) {
            return Err(PutError::TooOld { topic: self.0.name.clone(), age });
        }
        self.put_at(now - age.into(), state.into())
    }

    /// Calls `sample` for each update, at the moment of sending, to write the state to an empty
    /// buffer: this gives the freshest state. `sample` runs on the network thread and must not
    /// block. [`Topic::put`] ends it.
    ///
    /// # Errors
    /// [`PutError::Closed`], and [`PutError::Kind`] of a topic with keys or records.
    pub fn sample_with(
        &self,
        mut sample: impl FnMut(&mut Vec<u8>) + Send + 'static,
    ) -> Result<(), PutError> {
        self.try_sample_with(move |state| {
            sample(state);
            Ok(())
        })
    }

    /// [`Topic::sample_with`] for a function that can fail: then no update leaves,
    /// [`SourceEvent::Trouble`](crate::SourceEvent::Trouble) gives the reason, and the function is
    /// called again after 100 ms.
    ///
    /// # Errors
    /// As [`Topic::sample_with`].
    pub fn try_sample_with(
        &self,
        sample: impl FnMut(&mut Vec<u8>) -> Result<(), String> + Send + 'static,
    ) -> Result<(), PutError> {
        self.check_kind(matches!(self.0.kind, Kind::Latest))?;
        // Dropped after the lock: its captured values may use the topic.
        let _former;
        let mut inner = self.open()?;
        inner.content.newest = None;
        _former = inner.choose(Some(Box::new(sample)));
        inner.wake();
        Ok(())
    }

    /// Sets the newest state of a key of 1 to 64 bytes, for topics of kind [`TopicKind::Keyed`].
    /// Otherwise the same as [`Topic::put`].
    ///
    /// # Errors
    /// [`PutError`].
    pub fn put_key(
        &self,
        key: impl AsRef<[u8]>,
        state: impl Into<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, PutError> {
        let state = state.into();
        self.check_len(state.len())?;
        self.change_key(key.as_ref(), Some(state))
    }

    /// Removes a key, also at the monitors.
    ///
    /// # Errors
    /// [`PutError`].
    pub fn remove_key(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, PutError> {
        self.change_key(key.as_ref(), None)
    }

    /// Queues a record of at most 64 KiB, for topics of kind [`TopicKind::Every`]: each record
    /// arrives once and in order. It is held in memory until then, and lost if the source is closed
    /// before.
    ///
    /// # Errors
    /// [`PutError::Full`], which returns the record, while the buffer is full, and the other
    /// errors.
    pub fn push(&self, record: impl Into<Vec<u8>>) -> Result<(), PutError> {
        let record = record.into();
        let Kind::Every { max_bytes } = self.0.kind else {
            return self.check_kind(false);
        };
        let (topic, given) = (self.0.name.clone(), record.len());
        let max = RecordChunk::max_record_within(max_bytes).min(self.0.max_state);
        if given > max {
            return Err(PutError::TooLarge { topic, given, max });
        }
        let now = self.0.clock.now();
        let mut inner = self.open()?;
        let bytes = inner.content.bytes + RecordChunk::cost_of_record(given);
        if bytes > max_bytes {
            return Err(PutError::Full { topic, record });
        }
        inner.content.bytes = bytes;
        inner.content.records.push_back((now, record));
        inner.wake();
        Ok(())
    }

    /// The number of states that were replaced by a newer one before they were sent.
    pub fn replaced(&self) -> u64 {
        self.lock().replaced
    }

    /// The network's access to its states.
    pub(crate) fn sampler(&self) -> Box<dyn Sampler> {
        Box::new(Taker(self.clone()))
    }

    /// Whether it has a state, a record, or a function for states.
    #[cfg(feature = "sim")]
    pub(crate) fn has_state(&self) -> bool {
        let Inner { content: Content { newest, keys, records, .. }, sample, .. } = &*self.lock();
        newest.is_some() || sample.is_some() || !keys.is_empty() || !records.is_empty()
    }

    /// Ends input: no more states are put, and the source ends when all have arrived.
    pub(crate) fn finish(&self) {
        // Dropped after the lock, as in `put`.
        let _former;
        let mut inner = self.lock();
        (inner.is_closed, inner.is_ending) = (true, true);
        _former = inner.choose(None);
        if let Some(waker) = &inner.waker {
            // It fails only when the source has ended.
            let _ = waker.wake();
        }
    }

    /// Ends the topic: no more states are taken.
    pub(crate) fn close(&self) {
        // Dropped after the lock: its captured values may use the topic, or wait for it elsewhere.
        let _former;
        let mut inner = self.lock();
        inner.is_closed = true;
        _former = inner.choose(None);
        inner.waker = None;
    }

    fn put_at(&self, at: Time, state: Vec<u8>) -> Result<Option<Vec<u8>>, PutError> {
        self.check_kind(matches!(self.0.kind, Kind::Latest))?;
        self.check_len(state.len())?;
        // Dropped after the lock: its captured values may use the topic.
        let _former;
        let mut inner = self.open()?;
        _former = inner.choose(None);
        let Content { newest, is_taken, .. } = &mut inner.content;
        if *is_taken && newest.as_ref().is_some_and(|(time, taken)| *time == at && *taken == state)
        {
            // A session would wait for a newer state that never wakes it.
            return Ok(None);
        }
        let before = newest.replace((at, state)).filter(|_| !*is_taken);
        *is_taken = false;
        inner.replaced += u64::from(before.is_some());
        inner.wake();
        Ok(before.map(|(_, state)| state))
    }

    fn change_key(&self, key: &[u8], state: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, PutError> {
        let Kind::Keyed { max_keys } = self.0.kind else {
            return self.check_kind(false).map(|()| None);
        };
        if key.is_empty() || key.len() > TopicKey::MAX_LEN {
            return Err(PutError::Key { topic: self.0.name.clone(), given: key.len() });
        }
        let now = self.0.clock.now();
        let mut inner = self.open()?;
        let keys = &mut inner.content.keys;
        if keys.len() >= max_keys && !keys.contains_key(key) {
            return Err(PutError::TooManyKeys { topic: self.0.name.clone(), max: max_keys });
        }
        let before = keys.insert(key.to_vec(), (now, state));
        inner.replaced += u64::from(before.is_some());
        inner.wake();
        Ok(before.and_then(|(_, state)| state))
    }

    fn check_kind(&self, is_right: bool) -> Result<(), PutError> {
        let (topic, kind) = (&self.0.name, self.0.kind);
        match is_right {
            true => Ok(()),
            false => Err(PutError::Kind {
                topic: topic.clone(),
                kind: kind.name(),
                instead: kind.method(),
            }),
        }
    }

    fn check_len(&self, given: usize) -> Result<(), PutError> {
        let max = self.0.max_state;
        match given > max {
            true => Err(PutError::TooLarge { topic: self.0.name.clone(), given, max }),
            false => Ok(()),
        }
    }

    fn open(&self) -> Result<MutexGuard<'_, Inner>, PutError> {
        let inner = self.lock();
        if inner.is_closed { Err(PutError::Closed(self.0.name.clone())) } else { Ok(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Limits and handles that a topic shares with the others of its source.
pub(crate) struct Limits {
    pub(crate) max_state: usize,
    pub(crate) clock: Clock,
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Topic").field(&self.0.name).finish()
    }
}

impl Inner {
    /// From now on states come from `sample`, or from being put; returns the former function.
    fn choose(&mut self, sample: Option<Sample>) -> Option<Sample> {
        self.choice += 1;
        std::mem::replace(&mut self.sample, sample)
    }

    /// Wakes the network thread if it waits for a new state or record.
    fn wake(&mut self) {
        if (std::mem::take(&mut self.awaits) || self.is_urgent)
            && let Some(waker) = &self.waker
        {
            // It fails only when the source has ended.
            let _ = waker.wake();
        }
    }
}

/// The network's end of a topic.
struct Taker(Topic);

impl Sampler for Taker {
    fn start(&mut self, _: freshline_net::clock::Clock, waker: Arc<Waker>) -> io::Result<()> {
        self.0.lock().waker = Some(waker);
        Ok(())
    }

    fn take(&mut self, now: Time, need: Need, into: &mut Vec<u8>) -> Take {
        let mut inner = self.0.lock();
        if inner.sample.is_some() && inner.sampled_at == Some(now) && need == Need::Newer {
            // A session takes a state of the same time for the one that it has.
            return Take::NotBefore(now + Span::from_nanos(1));
        }
        if let Some(mut sample) = inner.sample.take() {
            let choice = inner.choice;
            inner.sampled_at = Some(now);
            // It may use the topic itself.
            drop(inner);
            let sampled = sample(into);
            // Dropped after the lock, as in `put`.
            let mut replaced = Some(sample);
            let mut inner = self.0.lock();
            if inner.choice == choice {
                inner.sample = replaced.take();
            }
            drop(inner);
            return match sampled {
                Ok(()) => Take::Sample { generated_at: now },
                Err(why) => {
                    into.clear();
                    Take::RetryAt(now + RETRY, why)
                }
            };
        }
        let taken = inner.content.take(self.0.0.kind, need, into);
        inner.awaits = taken == Take::NotYet;
        if inner.awaits && inner.is_ending { Take::End } else { taken }
    }

    fn queued(&self) -> usize {
        self.0.lock().content.records.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A topic of this kind, its network's end, and how often that was woken.
    fn topic(kind: TopicKind) -> (Topic, Box<dyn Sampler>, Arc<AtomicUsize>) {
        let limits = Limits { max_state: 100, clock: Clock::real() };
        let topic = Topic::new("pose", &kind, false, limits);
        let mut sampler = topic.sampler();
        let woken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&woken);
        let waker = Waker::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        sampler.start(Default::default(), Arc::new(waker)).unwrap();
        (topic, sampler, woken)
    }

    fn take(sampler: &mut dyn Sampler, need: Need) -> (Take, Vec<u8>) {
        let mut state = Vec::new();
        (sampler.take(Time::MAX, need, &mut state), state)
    }

    #[test]
    fn put_gives_back_what_never_left_and_wakes_only_who_waits() {
        let (topic, mut sampler, woken) = topic(TopicKind::Latest);
        assert_eq!(topic.put(b"one").unwrap(), None);
        assert_eq!(topic.put(b"two").unwrap(), Some(b"one".to_vec()));
        assert_eq!((topic.replaced(), woken.load(Ordering::SeqCst)), (1, 0), "nobody has asked");
        let (taken, state) = take(&mut *sampler, Need::Newer);
        assert!(matches!(taken, Take::Sample { .. }) && state == b"two");
        assert_eq!(take(&mut *sampler, Need::Newer).0, Take::NotYet);
        assert_eq!(take(&mut *sampler, Need::Newest).1, b"two", "the monitor does not have it");
        assert_eq!(take(&mut *sampler, Need::Newer).0, Take::NotYet);
        for state in [b"3", b"4", b"5"] {
            topic.put(state).unwrap();
        }
        assert_eq!(woken.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_state_that_is_given_again_with_its_time_is_not_taken_again() {
        let (topic, mut sampler, woken) = topic(TopicKind::Latest);
        let put = |state: &[u8]| topic.put_at(Time::from_nanos(5), state.to_vec()).unwrap();
        assert_eq!(put(b"frame"), None);
        assert_eq!(take(&mut *sampler, Need::Newer).1, b"frame");
        assert_eq!(put(b"frame"), None);
        assert_eq!(take(&mut *sampler, Need::Newer).0, Take::NotYet);
        put(b"other");
        assert_eq!(woken.load(Ordering::SeqCst), 1, "it was awaited");
        assert_eq!(take(&mut *sampler, Need::Newer).1, b"other");
    }

    #[test]
    fn a_sample_is_taken_at_the_moment_of_sending() {
        let (topic, mut sampler, _) = topic(TopicKind::Latest);
        let mut count = 0;
        topic
            .sample_with(move |buffer| {
                count += 1;
                buffer.push(count);
            })
            .unwrap();
        let mut take_at = |nanos| {
            let mut state = Vec::new();
            (sampler.take(Time::from_nanos(nanos), Need::Newer, &mut state), state)
        };
        assert_eq!(take_at(5).1, [1]);
        assert_eq!(
            take_at(5),
            (Take::NotBefore(Time::from_nanos(6)), vec![]),
            "it would be the same"
        );
        assert_eq!(take_at(6).1, [2]);
        topic.put([9]).unwrap();
        assert_eq!(take(&mut *sampler, Need::Newer).1, [9]);
    }

    #[test]
    fn a_sample_that_fails_is_not_sent_and_is_taken_again_later() {
        let (topic, mut sampler, _) = topic(TopicKind::Latest);
        let mut count = 0;
        let sample = move |state: &mut Vec<u8>| {
            count += 1;
            state.push(count);
            if count == 1 { Err("the sensor is off".to_owned()) } else { Ok(()) }
        };
        topic.try_sample_with(sample).unwrap();
        let mut state = Vec::new();
        let taken = sampler.take(Time::from_nanos(5), Need::Newer, &mut state);
        let again = Time::from_nanos(5) + RETRY;
        assert_eq!(taken, Take::RetryAt(again, "the sensor is off".to_owned()));
        assert!(state.is_empty(), "an incomplete state is dropped");
        assert!(matches!(sampler.take(again, Need::Newer, &mut state), Take::Sample { .. }));
        assert_eq!(state, [2]);
    }

    #[test]
    fn a_sample_may_use_its_topic() {
        let (topic, mut sampler, _) = topic(TopicKind::Latest);
        let own = topic.clone();
        topic
            .sample_with(move |buffer| {
                buffer.push(1);
                own.put([2]).unwrap();
            })
            .unwrap();
        assert_eq!(take(&mut *sampler, Need::Newer).1, [1]);
        assert_eq!(take(&mut *sampler, Need::Newer).1, [2], "the put state replaces the function");
    }

    /// Uses its topic when it is dropped.
    struct Captured(Topic);

    impl Drop for Captured {
        fn drop(&mut self) {
            let _ = self.0.put(b"late");
        }
    }

    #[test]
    fn what_a_sample_has_captured_may_use_the_topic_when_it_is_dropped() {
        let (topic, mut sampler, _) = topic(TopicKind::Latest);
        let sample = |topic: &Topic| {
            let captured = Captured(topic.clone());
            move |state: &mut Vec<u8>| state.extend_from_slice(captured.0.name().as_bytes())
        };
        topic.sample_with(sample(&topic)).unwrap();
        topic.sample_with(sample(&topic)).unwrap();
        topic.put(b"1").unwrap();
        topic.sample_with(sample(&topic)).unwrap();
        let own = topic.clone();
        topic.sample_with(move |_| drop(own.put(b"2"))).unwrap();
        take(&mut *sampler, Need::Newer);
        topic.sample_with(sample(&topic)).unwrap();
        topic.close();
    }

    #[test]
    fn keys_and_records_are_taken_in_order_and_bounded() {
        let (keyed, mut sampler, _) = topic(TopicKind::Keyed { max_keys: 2 });
        keyed.put_key("b", b"1").unwrap();
        assert_eq!(keyed.put_key("b", b"2").unwrap(), Some(b"1".to_vec()));
        keyed.remove_key("a").unwrap();
        assert!(matches!(keyed.put_key("c", b"3"), Err(PutError::TooManyKeys { max: 2, .. })));
        let is = |taken: Take, wanted: &[u8], removed| matches!(taken, Take::Key { key, is_removed, .. } if key == wanted && is_removed == removed);
        assert!(is(take(&mut *sampler, Need::Newer).0, b"a", true));
        assert!(is(take(&mut *sampler, Need::Newer).0, b"b", false));
        let kind = TopicKind::Every {
            stream: freshline_core::wire::StreamId(1),
            first: 0,
            max_bytes: 100,
        };
        let (every, mut sampler, woken) = topic(kind);
        every.push([1; 6]).unwrap();
        let full = every.push([2; 6]).unwrap_err();
        assert!(
            matches!(full, PutError::Full { record, .. } if record == [2; 6]),
            "it is given back"
        );
        assert!(matches!(every.push([0; 37]), Err(PutError::TooLarge { given: 37, max: 36, .. })));
        assert_eq!((sampler.queued(), woken.load(Ordering::SeqCst)), (1, 1));
        assert_eq!(take(&mut *sampler, Need::Newer).1, [1; 6]);
        every.push([2; 6]).unwrap();
    }

    #[test]
    fn a_callers_mistakes_are_errors() {
        let (latest, _, _) = topic(TopicKind::Latest);
        assert!(matches!(
            latest.put([0; 101]),
            Err(PutError::TooLarge { given: 101, max: 100, .. })
        ));
        let error = latest.put_key("a", b"1").unwrap_err().to_string();
        assert!(error.contains("of kind latest, for which there is `put`"), "{error}");
        assert!(matches!(latest.push(b"1"), Err(PutError::Kind { .. })));
        let (keyed, _, _) = topic(TopicKind::KEYED);
        for given in [0, 65] {
            let key = vec![b'k'; given];
            let error = keyed.put_key(&key, b"1").unwrap_err();
            assert!(matches!(error, PutError::Key { given: found, .. } if found == given));
        }
        latest.close();
        assert!(matches!(latest.put(b"1"), Err(PutError::Closed(_))));
    }
}
