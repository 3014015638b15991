//! A source with topics: the driver's inputs, and the timers and requests for them.

use alloc::vec::Vec;

use super::states::{Asking, Need};
use super::topics::{Put, Topics};
use super::{KeyError, Source, StateTooLarge, TopicError, TopicId, TopicParams};
use crate::unit::{Span, Time};

impl Source {
    /// The same with these topics. Call it before anything is put or sent; from then on states are
    /// put by [`Source::put_topic`]. With an empty list it stays a source without topics.
    ///
    /// # Errors
    /// [`TopicError`] names the invalid topic and the reason.
    pub fn with_topics(mut self, topics: Vec<TopicParams>) -> Result<Self, TopicError> {
        if self.acks.next_seq() > 0 || self.states.is_ready() {
            return Err(TopicError::TooLate);
        }
        topics.iter().try_for_each(|params| self.check_room_for_records(params))?;
        self.topics = Topics::new(topics)?;
        Ok(self)
    }

    /// Adds a topic, at any time while the source has topics, and otherwise before anything is put
    /// or sent. The keys of all topics share [`MAX_STREAMS`](super::MAX_STREAMS) numbers with the
    /// topics: here `max_keys` reserves none of them.
    ///
    /// # Errors
    /// [`TopicError`] if the source cannot have it. Then nothing changes.
    pub fn add_topic(&mut self, params: TopicParams) -> Result<TopicId, TopicError> {
        if !self.topics.has_any() && (self.acks.next_seq() > 0 || self.states.is_ready()) {
            return Err(TopicError::TooLate);
        }
        self.check_room_for_records(&params)?;
        self.topics.add(params)
    }

    /// The newest state of a topic, as [`Source::put`]; a state of an unknown topic is ignored, and
    /// so is one of a topic with keys ([`Source::put_keyed`]).
    ///
    /// # Errors
    /// As [`Source::put`].
    pub fn put_topic(
        &mut self,
        now: Time,
        topic: TopicId,
        generated_at: Time,
        state: &[u8],
    ) -> Result<(), StateTooLarge> {
        self.check_len(now, generated_at, state)?;
        if let Some(number) = self.topics.number(topic) {
            self.put_numbered(now, number, generated_at, state);
        }
        Ok(())
    }

    /// The newest state of a key of a topic, as [`Source::put`]. The key is created if the topic
    /// does not have it.
    ///
    /// # Errors
    /// [`KeyError`] if the topic has no keys or no room for another one, if the key is invalid, and
    /// as [`Source::put`]. Then nothing changes.
    pub fn put_keyed(
        &mut self,
        now: Time,
        topic: TopicId,
        key: &[u8],
        generated_at: Time,
        state: &[u8],
    ) -> Result<(), KeyError> {
        self.check_len(now, generated_at, state)?;
        let number = self.topics.number_of_key(topic, key)?;
        self.put_numbered(now, number, generated_at, state);
        Ok(())
    }

    /// Removes a key; the removal is sent until the monitor has acknowledged it. Returns whether
    /// the key existed. The key can be put again at any time.
    ///
    /// # Errors
    /// [`KeyError`] if the topic has no keys, or if the key is invalid.
    pub fn remove_key(&mut self, now: Time, topic: TopicId, key: &[u8]) -> Result<bool, KeyError> {
        let was_there = self.topics.remove_key(now, topic, key)?;
        if was_there {
            self.states.on_news();
        }
        Ok(was_there)
    }

    fn put_numbered(&mut self, now: Time, number: u16, generated_at: Time, state: &[u8]) {
        let put = self.topics.put(number, generated_at.min(now), state, self.params.on_change);
        if put == Put::Again {
            return;
        }
        let may_rest = self.opener.is_open() && !self.repeats(now);
        let is_resting = matches!(self.states.asking(), Asking::NotBefore(_));
        // The fast path: usually it may be sent at once.
        let own = self.topics.ready_at_of(number).filter(|at| *at <= now);
        let ready_at = own.or_else(|| self.topics.ready_at());
        let is_ready = ready_at.is_some_and(|at| at <= now);
        match put {
            Put::New if is_ready || !self.opener.is_open() => self.states.on_news(),
            // It may not be sent yet; an update without a state may be needed to show the monitor
            // that the source is alive.
            Put::New if may_rest => self.rest(now, ready_at, Span::from_secs(1)),
            Put::Unchanged if may_rest && (self.states.is_asked() || is_resting) => {
                self.topics.on_unchanged(number);
                self.counters.unchanged += 1;
                if !is_ready {
                    self.law.on_unchanged(now);
                    self.rest(now, ready_at, self.polling_period());
                }
            }
            _ => {}
        }
    }

    /// Asks for states again when a topic may be sent, after at most `at_most`, or earlier if that
    /// is due.
    fn rest(&mut self, now: Time, ready_at: Option<Time>, at_most: Span) {
        let before = match self.states.asking() {
            Asking::NotBefore(time) if time > now => Some(time),
            _ => None,
        };
        let times = [ready_at, before, self.any_repeat_at(), Some(now + at_most)];
        if let Some(at) = Time::earliest(times) {
            self.ask_again_at(at);
        }
    }

    // ---- timers and requests ----

    /// Whether a topic has something to send now, or an update is to be sent without a state.
    pub(super) fn is_topic_ready(&self, now: Time) -> bool {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        self.topics.has_any() && (is_due(self.topic_ready_at()) || is_due(self.records_at()))
    }

    /// From when on a topic has something to send, or an update is to be sent without a state: the
    /// driver has no state, and an opening or an answer of the monitor is overdue.
    pub(super) fn topic_ready_at(&self) -> Option<Time> {
        if !self.topics.has_any() {
            return None;
        }
        // An opening carries no state, and does not wait for the maximum rate of a topic.
        let opens = !self.opener.is_open() && self.topics.has_state();
        if opens || self.is_empty_wanted() { Some(Time::ZERO) } else { self.topics.ready_at() }
    }

    /// From when on an update with an urgent state may be sent ahead of the law's pace.
    pub(super) fn hurried_at(&self) -> Option<Time> {
        if !(self.topics.has_any() && self.opener.is_open()) {
            return None;
        }
        let at = self.topics.hurried_at(self.max_whole())?;
        let period = self.law.rate().period();
        let due = self.paced_at(period);
        Some(at.max(self.ahead.at(due, period)).max(self.law.affordable_at()))
    }

    /// The delay after the law's time of an update that is not urgent.
    pub(super) fn late_by(&self) -> Span {
        if self.topics.has_any() { self.ahead.delay(self.law.rate().period()) } else { Span::ZERO }
    }

    /// An update is sent; the law has not been informed yet.
    pub(super) fn on_pace(&mut self, now: Time) {
        if !self.topics.has_any() {
            return;
        }
        let period = self.law.rate().period();
        let due = self.paced_at(period);
        match self.is_ahead(now) {
            true if self.topics.is_urgent() => self.ahead.on_early(now, due, period),
            // Records, which the limit of states does not delay.
            true => {}
            false => self.ahead.on_late(now, due, period),
        }
        self.lent.on_update(now, due, period, self.topics.is_lending());
    }

    /// When the law's pace allows the next update. If the law waits for an ack, a period of its
    /// rate after the last update.
    pub(super) fn paced_at(&self, period: Span) -> Time {
        let last = self.acks.last_sent_at();
        self.next_by_law().or(last.map(|last| last + period)).unwrap_or(Time::ZERO)
    }

    /// Whether the update is due only because of an urgent state.
    pub(super) fn is_ahead(&self, now: Time) -> bool {
        self.topics.has_any() && self.due_for_all_at().is_none_or(|at| at > now)
    }

    /// Whether an update of a source with topics is to be sent even without a state.
    pub(super) fn is_empty_wanted(&self) -> bool {
        self.topics.is_empty_wanted() || self.states.asking() == Asking::Asked(Need::Newest)
    }
}
