//! A received state.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use freshline_core::session::StateAge;
use freshline_core::unit::{Span, Time};

use crate::clock::Clock;

/// A received state or record. It is cheap to clone. A record is acknowledged to its source when
/// its last clone is dropped. A record that no application has read is delivered again, to the next
/// subscription.
#[derive(Clone)]
pub struct State(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) source: Box<str>,
    pub(crate) topic: Box<str>,
    pub(crate) key: Option<Box<[u8]>>,
    /// `None`: the key is removed.
    pub(crate) payload: Option<Box<[u8]>>,
    pub(crate) seq: u64,
    pub(crate) generated: Generated,
    /// The time until which it may be delivered; `None`: forever.
    pub(crate) fresh_until: Option<Time>,
    pub(crate) clock: Clock,
    /// Of a record.
    pub(crate) ticket: Option<Ticket>,
}

/// When a state was generated, by the local clock: sometimes known later than the state.
pub(crate) struct Generated {
    /// In ns, and 0 while it is unknown.
    at: AtomicU64,
    uncertainty: AtomicU64,
}

/// Reports at its end whether a record was read, and is done.
pub(crate) struct Ticket {
    is_read: AtomicBool,
    is_done: AtomicBool,
    end: Box<dyn Fn(bool) + Send + Sync>,
}

impl Ticket {
    pub(crate) fn new(end: impl Fn(bool) + Send + Sync + 'static) -> Self {
        let (is_read, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { is_read, is_done, end: Box::new(end) }
    }

    /// The application has read it.
    pub(crate) fn read(&self) {
        self.is_read.store(true, Ordering::Relaxed);
    }

    /// Ends, once.
    fn done(&self) {
        if !self.is_done.swap(true, Ordering::Relaxed) {
            (self.end)(self.is_read.load(Ordering::Relaxed));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.done();
    }
}

impl Generated {
    /// Of a state with this age at `now`.
    pub(crate) fn of(now: Time, age: Option<StateAge>) -> Self {
        let generated = Self { at: AtomicU64::new(0), uncertainty: AtomicU64::new(0) };
        generated.learn(now, age);
        generated
    }

    pub(crate) fn learn(&self, now: Time, age: Option<StateAge>) {
        if let Some(age) = age {
            self.uncertainty.store(age.uncertainty.as_nanos(), Ordering::Relaxed);
            let at = now.since(Time::ZERO) - age.estimate;
            self.at.store(at.as_nanos().max(1), Ordering::Release);
        }
    }
}

impl State {
    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    /// The name of its source, or a label of the session if it has none.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The name of its topic; empty for a source without topics.
    pub fn topic(&self) -> &str {
        &self.0.topic
    }

    /// The key, for topics with keys.
    pub fn key(&self) -> Option<&[u8]> {
        self.0.key.as_deref()
    }

    /// The payload; empty if the key was removed.
    pub fn payload(&self) -> &[u8] {
        self.0.payload.as_deref().unwrap_or_default()
    }

    /// The payload as text, if it is UTF-8.
    pub fn text(&self) -> Option<&str> {
        str::from_utf8(self.payload()).ok()
    }

    /// Whether this reports that the key was removed.
    pub fn is_removed(&self) -> bool {
        self.0.payload.is_none()
    }

    /// Whether this is a record.
    pub fn is_record(&self) -> bool {
        self.0.ticket.is_some()
    }

    /// Acknowledges a record to its source now, although clones of it are held. Does nothing with a
    /// state.
    pub fn done(&self) {
        self.0.ticket.iter().for_each(Ticket::done);
    }

    /// The sequence number of the session's newest update at the time of receipt.
    pub fn seq(&self) -> u64 {
        self.0.seq
    }

    /// Its age now; unknown (`None`) in the first round trips of a session.
    pub fn age(&self) -> Option<Duration> {
        self.age_at(self.0.clock.now())
    }

    /// The maximum error of [`State::age`], in either direction.
    pub fn age_uncertainty(&self) -> Option<Duration> {
        self.age()?;
        Some(Duration::from_nanos(self.0.generated.uncertainty.load(Ordering::Relaxed)))
    }

    /// Whether the state is younger than the monitor's maximum age; always `true` without a maximum
    /// age.
    pub fn is_usable(&self) -> bool {
        self.is_usable_at(self.0.clock.now())
    }

    pub(crate) fn is_usable_at(&self, now: Time) -> bool {
        self.0.fresh_until.is_none_or(|until| now <= until)
    }

    pub(crate) fn age_at(&self, now: Time) -> Option<Duration> {
        match self.0.generated.at.load(Ordering::Acquire) {
            0 => None,
            at => Some(Span::from_nanos(now.as_nanos().saturating_sub(at)).into()),
        }
    }

    /// `source/topic`, or the source's name alone if it has no topics.
    pub fn name(&self) -> String {
        full_name(self.source(), self.topic())
    }
}

/// As in [`State::name`].
pub(crate) fn full_name(source: &str, topic: &str) -> String {
    if topic.is_empty() { source.to_owned() } else { format!("{source}/{topic}") }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("name", &self.name())
            .field("key", &self.key())
            .field("age", &self.age())
            .field("len", &self.payload().len())
            .finish_non_exhaustive()
    }
}
