//! The state of the next update: requested from the driver when an update is due, and kept for
//! repeats.
//!
//! ```text
//!            due                   polled                 put
//!   ByLaw ────────► Wanted(need) ────────► Asked(need) ─────────► ready ── sent ──► ByLaw
//!     ▲  on_news                              │ no answer, and the monitor may not have the
//!     │                                       └─ last one: that one is ready
//!     └── NotBefore(time) ◄── put of a state that is left out, or retry_at
//! ```

use alloc::vec::Vec;

use crate::unit::Time;

/// Which state a source needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A state newer than the last one sent.
    Newer,
    /// The newest state, even if it was sent before: the monitor may not have it. If there is no
    /// answer before the next [`Source::poll_transmit`](super::Source::poll_transmit), the last one
    /// is sent again.
    Newest,
}

/// A state longer than the limit of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a state of {given} bytes is longer than the limit of {max} bytes")]
pub struct StateTooLarge {
    /// Its length in bytes.
    pub given: usize,
    /// The longest state that is sent: [`Source::max_state`](super::Source::max_state).
    pub max: usize,
}

/// The progress of a request for a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asking {
    /// A state is requested when an update is due.
    ByLaw,
    /// The driver has not polled the event yet.
    Wanted(Need),
    /// The driver has polled the event and not answered.
    Asked(Need),
    /// A state is requested again at this time.
    NotBefore(Time),
}

/// The state for the update that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Nothing,
    /// The state in [`States::next`], sampled at this time.
    Next(Time),
    /// The last one again.
    Last,
}

#[derive(Debug)]
pub(super) struct States {
    asking: Asking,
    ready: Ready,
    next: Vec<u8>,
    /// The last state sent, and when it was sampled.
    last: Vec<u8>,
    last_generated_at: Option<Time>,
    /// Its number, which is the first update that carried it; `None` before that.
    last_number: Option<u64>,
    /// The first update with the last state; only if `on_change`.
    first: Option<u64>,
    on_change: bool,
    /// The sampling time of the last state that was too large.
    too_large: Option<Time>,
    has_ended: bool,
}

impl States {
    /// `on_change`: whether [`States::unchanged_since`] is needed.
    pub(super) fn new(on_change: bool) -> Self {
        Self {
            asking: Asking::ByLaw,
            ready: Ready::Nothing,
            next: Vec::new(),
            last: Vec::new(),
            last_generated_at: None,
            last_number: None,
            first: None,
            on_change,
            too_large: None,
            has_ended: false,
        }
    }

    // ---- inputs ----

    /// This state is the newest; it may be the last one again.
    pub(super) fn put(&mut self, generated_at: Time, state: &[u8]) {
        if self.last_generated_at == Some(generated_at) && self.last == state {
            (self.ready, self.asking) = (Ready::Last, Asking::ByLaw);
            return;
        }
        self.next.clear();
        self.next.extend_from_slice(state);
        (self.ready, self.asking) = (Ready::Next(generated_at), Asking::ByLaw);
    }

    /// The ready state is out of date: the last one is the newest again.
    pub(super) fn drop_next(&mut self) {
        if matches!(self.ready, Ready::Next(_)) {
            self.ready = Ready::Nothing;
        }
    }

    /// The last state is to be sent again, if there is one.
    pub(super) fn repeat(&mut self) {
        if self.ready == Ready::Nothing && self.last_generated_at.is_some() {
            self.ready = Ready::Last;
        }
    }

    /// No state is requested before this time.
    pub(super) fn ask_at(&mut self, time: Time) {
        self.asking = Asking::NotBefore(time);
    }

    /// A state sampled at this time was too large; returns whether it is another one than the last
    /// too large one.
    pub(super) fn on_too_large(&mut self, generated_at: Time) -> bool {
        self.too_large.replace(generated_at) != Some(generated_at)
    }

    /// There may be a new state now.
    pub(super) fn on_news(&mut self) {
        self.asking = Asking::ByLaw;
    }

    /// The session opens, or must be reopened: an open request is repeated.
    pub(super) fn on_session_changed(&mut self) {
        if self.is_asked() {
            self.asking = Asking::ByLaw;
        }
    }

    /// There will be no more states.
    pub(super) fn on_end(&mut self) {
        self.has_ended = true;
    }

    /// An update is due that needs a state of this kind.
    pub(super) fn on_due(&mut self, now: Time, need: Need) {
        let asks = match self.asking {
            _ if self.ready != Ready::Nothing => false,
            Asking::ByLaw => true,
            Asking::NotBefore(time) => time <= now,
            Asking::Asked(before) | Asking::Wanted(before) => {
                (before, need) == (Need::Newer, Need::Newest)
            }
        };
        if asks {
            self.asking = Asking::Wanted(need);
        }
    }

    /// Whether the driver is to be asked for a state now.
    pub(super) fn poll_wanted(&mut self) -> Option<Need> {
        let Asking::Wanted(need) = self.asking else { return None };
        self.asking = Asking::Asked(need);
        Some(need)
    }

    /// The requested state has no path any more: the request is repeated.
    pub(super) fn on_no_path(&mut self) {
        if let Ready::Next(generated_at) = self.ready {
            // No update has had this state, unless it is the last one again.
            self.first = self.first.filter(|_| self.next_is_last());
            if !self.is_last_again(generated_at) {
                self.last_number = None;
            }
            self.keep(generated_at);
        }
        self.ready = Ready::Nothing;
        self.on_session_changed();
    }

    /// The ready state is sent in update `seq`; from now on it is [`States::last`]. Returns when it
    /// was sampled.
    #[inline]
    pub(super) fn take(&mut self, seq: u64) -> Option<Time> {
        let is_same = match self.ready() {
            Ready::Nothing => return None,
            Ready::Next(generated_at) => {
                let is_same = self.on_change && self.next_is_last();
                if !self.is_last_again(generated_at) {
                    self.last_number = None;
                }
                self.keep(generated_at);
                is_same
            }
            Ready::Last => true,
        };
        self.last_number.get_or_insert(seq);
        if self.on_change {
            self.first = self.first.filter(|_| is_same).or(Some(seq));
        }
        self.ready = Ready::Nothing;
        self.on_session_changed();
        self.last_generated_at
    }

    /// A part of the last state is sent instead of the whole state.
    pub(super) fn on_part(&mut self) {
        if self.is_ready() && self.ready_number().is_some() {
            self.ready = Ready::Nothing;
            self.on_session_changed();
        }
    }

    // ---- getters ----

    pub(super) fn asking(&self) -> Asking {
        self.asking
    }

    /// Whether the driver has been asked, and has not answered.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.asking, Asking::Asked(_) | Asking::Wanted(_))
    }

    /// Whether no state is to be requested or sent at `now`.
    pub(super) fn is_resting(&self, now: Time) -> bool {
        matches!(self.asking, Asking::NotBefore(time) if time > now) && !self.is_ready()
    }

    /// Whether the last state is to be sent again.
    pub(super) fn is_repeat_ready(&self) -> bool {
        matches!(self.ready(), Ready::Last)
    }

    /// Whether there is something to send when an update is due.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        !matches!(self.ready(), Ready::Nothing)
    }

    /// The state that was sent last.
    pub(super) fn last(&self) -> &[u8] {
        &self.last
    }

    /// The number of the ready state if it is sent in update `seq`, and of the last one after that.
    pub(super) fn number(&self, seq: u64) -> u64 {
        let is_last = match self.ready() {
            Ready::Next(generated_at) => self.is_last_again(generated_at),
            _ => true,
        };
        self.last_number.filter(|_| is_last).unwrap_or(seq)
    }

    /// The number of the ready state, if it is the last one again, and an update has carried it or
    /// a part of it.
    #[inline]
    pub(super) fn ready_number(&self) -> Option<u64> {
        let is_last = match self.ready() {
            Ready::Nothing => false,
            Ready::Next(generated_at) => self.is_last_again(generated_at),
            Ready::Last => true,
        };
        self.last_number.filter(|_| is_last)
    }

    /// The state that is ready.
    pub(super) fn ready_state(&self) -> &[u8] {
        if matches!(self.ready(), Ready::Next(_)) { &self.next } else { &self.last }
    }

    /// When the state that is ready was sampled.
    pub(super) fn ready_generated_at(&self) -> Option<Time> {
        match self.ready() {
            Ready::Nothing => None,
            Ready::Next(generated_at) => Some(generated_at),
            Ready::Last => self.last_generated_at,
        }
    }

    /// The first update with this state, if it is the one that was sent last.
    pub(super) fn unchanged_since(&self, state: &[u8]) -> Option<u64> {
        self.first.filter(|_| self.on_change && self.last == state)
    }

    /// Whether there will be no more states, and no new one is left to send.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended && !matches!(self.ready, Ready::Next(_))
    }

    /// Whether a state has been sent.
    pub(super) fn has_last(&self) -> bool {
        self.last_generated_at.is_some()
    }

    #[inline]
    fn ready(&self) -> Ready {
        match (self.ready, self.asking) {
            // The driver has been asked and has not answered.
            (Ready::Nothing, Asking::Asked(Need::Newest)) if self.has_last() => Ready::Last,
            (ready, _) => ready,
        }
    }

    /// Whether the next state is the last one, which the driver has put again.
    fn is_last_again(&self, generated_at: Time) -> bool {
        self.last_generated_at == Some(generated_at) && self.next_is_last()
    }

    fn next_is_last(&self) -> bool {
        self.has_last() && self.next == self.last
    }

    fn keep(&mut self, generated_at: Time) {
        core::mem::swap(&mut self.next, &mut self.last);
        self.last_generated_at = Some(generated_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Span;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_state_is_asked_for_once_and_again_when_the_need_has_grown() {
        let mut states = States::new(false);
        assert_eq!(states.poll_wanted(), None);
        states.on_due(at(0), Need::Newer);
        assert_eq!((states.poll_wanted(), states.poll_wanted()), (Some(Need::Newer), None));
        states.on_due(at(1), Need::Newer);
        assert_eq!(states.poll_wanted(), None);
        states.on_due(at(2), Need::Newest);
        assert_eq!(states.poll_wanted(), Some(Need::Newest));
        assert!(!states.is_ready(), "there is no state to repeat");
    }

    #[test]
    fn without_an_answer_the_last_state_goes_again_if_the_monitor_may_not_have_it() {
        let mut states = States::new(false);
        states.put(at(0), b"one");
        assert_eq!((states.take(0), states.last()), (Some(at(0)), &b"one"[..]));
        for (need, again) in [(Need::Newer, None), (Need::Newest, Some(at(0)))] {
            states.on_due(at(1), need);
            assert!(!states.is_ready(), "not before the driver has been asked");
            states.poll_wanted();
            assert_eq!(states.take(1), again, "{need:?}");
        }
        states.on_due(at(2), Need::Newest);
        states.poll_wanted();
        states.ask_at(at(5));
        assert!(!states.is_ready(), "the driver has reported that it has no state");
        states.on_due(at(4), Need::Newest);
        assert_eq!(states.poll_wanted(), None);
        states.on_due(at(5), Need::Newest);
        assert_eq!(states.poll_wanted(), Some(Need::Newest));
    }

    #[test]
    fn the_first_update_with_a_state_is_known_while_it_does_not_change() {
        let mut states = States::new(true);
        for (seq, state, first) in [(0, b"shut", 0), (1, b"shut", 0), (2, b"open", 2)] {
            states.put(at(seq), state);
            states.take(seq);
            assert_eq!(states.unchanged_since(state), Some(first));
        }
        assert_eq!(states.unchanged_since(b"shut"), None);
    }

    #[test]
    fn a_state_that_found_no_path_is_not_taken_for_one_that_was_sent() {
        let mut states = States::new(true);
        states.put(at(0), b"shut");
        states.take(0);
        states.put(at(1), b"shut");
        states.on_no_path();
        assert_eq!(states.unchanged_since(b"shut"), Some(0), "it did not change");
        states.put(at(2), b"open");
        states.on_no_path();
        assert_eq!(states.unchanged_since(b"open"), None);
        states.repeat();
        assert_eq!((states.take(1), states.unchanged_since(b"open")), (Some(at(2)), Some(1)));
    }

    #[test]
    fn a_newer_state_takes_the_place_of_one_that_has_not_left() {
        let mut states = States::new(false);
        states.put(at(0), b"one");
        states.put(at(1), b"two");
        assert_eq!((states.ready_state(), states.ready_generated_at()), (&b"two"[..], Some(at(1))));
        states.on_no_path();
        assert!(!states.is_ready() && states.has_last());
    }
}
