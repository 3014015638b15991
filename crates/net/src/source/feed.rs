//! Which state a source sends, and when: between the session, which knows when an update is due, and
//! the sampler, which has the states. Reads no clock and no socket, so that tests run it in virtual
//! time.

use freshline_core::session;
use freshline_core::unit::{Span, Time};

use super::TooLarge;
use super::sampler::{Need, Sampler, Take};

/// When to ask the sampler again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sampling {
    /// When an update is due.
    ByLaw,
    /// When the sampler wakes the source, or at this time.
    ByWaker(Option<Time>),
    /// At this time.
    At(Time),
    /// Never: the sampler has ended, and its last state has arrived.
    Over,
}

/// The states that a source sends.
pub(crate) struct Feed {
    sampler: Box<dyn Sampler>,
    sampling: Sampling,
    /// The longest state that fits into a datagram, in bytes.
    max_payload: usize,
    hint_for_more: &'static str,
    /// The state that is to be sent.
    payload: Vec<u8>,
    /// The last state that fitted, and when it was sampled: sent again when an update is due to keep
    /// the session alive and the sampler has no usable state.
    last: Option<(Time, Vec<u8>)>,
    /// Whether a state that has not changed is left out while the monitor has it.
    on_change: bool,
    /// The first update with the last state.
    first: Option<u64>,
    /// States that did not fit, and when the last of them was sampled.
    too_large: (u64, Option<Time>),
}

/// What [`Feed::next`] gives.
#[derive(Debug, Default)]
pub(crate) struct Next {
    /// When the state in [`Feed::payload`] was sampled, if one is to be sent.
    pub(crate) generated_at: Option<Time>,
    /// Whether the state was left out, as it has not changed.
    pub(crate) is_unchanged: bool,
    /// Why there is no usable new state.
    pub(crate) trouble: Option<Trouble>,
}

/// Why there is no usable new state.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// No sample could be taken.
    NoSample(String),
    /// A state does not fit into a datagram.
    TooLarge(TooLarge),
}

impl Feed {
    /// The states of a sampler that was started.
    pub(crate) fn new(
        sampler: Box<dyn Sampler>,
        max_payload: usize,
        hint_for_more: &'static str,
    ) -> Self {
        Self {
            sampler,
            sampling: Sampling::ByLaw,
            max_payload,
            hint_for_more,
            payload: Vec::new(),
            last: None,
            on_change: false,
            first: None,
            too_large: (0, None),
        }
    }

    /// The same; an unchanged state is left out while the monitor has it, and repeated by keep-alives.
    pub(crate) fn on_change(self, on_change: bool) -> Self {
        Self { on_change, ..self }
    }

    /// When an update is due: by the law, or to keep the session alive.
    pub(crate) fn due_at(session: &session::Source) -> Option<Time> {
        let law = session.next_update_at();
        law.into_iter().chain(session.keep_alive_at()).min()
    }

    /// When to call [`Feed::is_due`] next, if an update is due at `due_at`.
    pub(crate) fn poll_timeout(&self, due_at: Option<Time>) -> Option<Time> {
        match self.sampling {
            Sampling::ByLaw => due_at,
            Sampling::At(time) => Some(time),
            Sampling::ByWaker(time) => time,
            Sampling::Over => None,
        }
    }

    /// The sampler has woken the source.
    pub(crate) fn on_woken(&mut self) {
        if matches!(self.sampling, Sampling::ByWaker(_)) {
            self.sampling = Sampling::ByLaw;
        }
    }

    /// Whether the sampler has ended and its last state has arrived.
    pub(crate) fn is_over(&self) -> bool {
        self.sampling == Sampling::Over
    }

    /// Whether to call [`Feed::next`] now, if an update is due at `due_at`.
    pub(crate) fn is_due(&mut self, now: Time, due_at: Option<Time>) -> bool {
        if matches!(self.sampling, Sampling::At(time) if time > now) {
            return false;
        }
        self.sampling = Sampling::ByLaw;
        due_at.is_some_and(|due| due <= now)
    }

    /// An update is due: asks the sampler for a state.
    ///
    /// # Errors
    /// Says why the sampler has failed for good.
    pub(crate) fn next(&mut self, now: Time, session: &session::Source) -> Result<Next, String> {
        self.payload.clear();
        let repeat_at = session.repeat_at().into_iter().chain(session.keep_alive_at()).min();
        let (need, repeat_at) = match repeat_at {
            Some(at) if at <= now => (Need::Newest, None),
            later => (Need::Newer, later),
        };
        let mut next = Next::default();
        self.sampling = match self.sampler.take(now, need, &mut self.payload) {
            Take::Sample { generated_at } if self.payload.len() > self.max_payload => {
                next.trouble = self.leave_out(generated_at).map(Trouble::TooLarge);
                next.generated_at = self.keep_alive(now, session);
                Sampling::At(now + polling_period(session))
            }
            Take::Sample { .. } if self.may_leave_out(now, session) => {
                next.is_unchanged = true;
                let at = now + polling_period(session);
                Sampling::At(repeat_at.map_or(at, |repeat_at| at.min(repeat_at)))
            }
            Take::Sample { generated_at } => {
                next.generated_at = Some(generated_at);
                Sampling::ByLaw
            }
            Take::NotYet => Sampling::ByWaker(repeat_at),
            Take::NotBefore(time) => {
                Sampling::ByWaker(Some(repeat_at.map_or(time, |at| at.min(time))))
            }
            Take::RetryAt(time, why) => {
                next.trouble = Some(Trouble::NoSample(why));
                next.generated_at = self.keep_alive(now, session);
                Sampling::At(time)
            }
            Take::End => {
                let repeat_at = session.repeat_at().filter(|at| *at > now);
                repeat_at.map_or(Sampling::Over, Sampling::At)
            }
            Take::Failed(why) => return Err(why),
        };
        Ok(next)
    }

    /// The state that is to be sent.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The state in [`Feed::payload`] has been sent, as update `seq` unless there was no path: keeps it
    /// as the last one.
    pub(crate) fn on_sent(&mut self, generated_at: Time, seq: Option<u64>) {
        if self.on_change {
            let is_same = self.last.as_ref().is_some_and(|(_, state)| *state == self.payload);
            self.first = self.first.filter(|_| is_same).or(seq);
        }
        let (at, state) = self.last.get_or_insert_default();
        *at = generated_at;
        std::mem::swap(&mut self.payload, state);
    }

    /// States that did not fit into a datagram.
    pub(crate) fn too_large(&self) -> u64 {
        self.too_large.0
    }

    /// Whether the state in [`Feed::payload`] is the last one, and the monitor has it.
    fn may_leave_out(&self, now: Time, session: &session::Source) -> bool {
        let is_same = || self.last.as_ref().is_some_and(|(_, state)| *state == self.payload);
        let first = self.first.filter(|_| self.on_change);
        first.is_some_and(|first| session.may_leave_out(now, first) && is_same())
    }

    /// Counts a state that does not fit; `None` if it is the same one again.
    fn leave_out(&mut self, generated_at: Time) -> Option<TooLarge> {
        let (count, last) = &mut self.too_large;
        if last.replace(generated_at) == Some(generated_at) {
            return None;
        }
        *count += 1;
        let hint = self.hint_for_more;
        Some(TooLarge { given: self.payload.len(), max: self.max_payload, hint })
    }

    /// Puts the last state into [`Feed::payload`] if an update is due to keep the session alive; gives
    /// when it was sampled.
    fn keep_alive(&mut self, now: Time, session: &session::Source) -> Option<Time> {
        session.keep_alive_at().filter(|at| *at <= now)?;
        let (generated_at, state) = self.last.as_mut()?;
        std::mem::swap(&mut self.payload, state);
        Some(*generated_at)
    }
}

/// How long after a state that was left out the sampler is asked again.
fn polling_period(session: &session::Source) -> Span {
    session.law().rate().period().clamp(Span::from_millis(1), Span::from_secs(1))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use freshline_core::path::PathId;
    use freshline_core::session::{Clocked, Monitor, MonitorParams, Sample, Secret, SourceParams};
    use freshline_core::source::Fixed;
    use freshline_core::unit::UpdateRate;
    use freshline_core::wire::Ack;
    use mio::Waker;

    use super::*;
    use crate::clock::Clock;

    /// A state that the test sets.
    struct Set(Arc<Mutex<Vec<u8>>>);

    impl Sampler for Set {
        fn start(&mut self, _clock: Clock, _waker: Arc<Waker>) {}

        fn take(&mut self, now: Time, _need: Need, into: &mut Vec<u8>) -> Take {
            into.extend_from_slice(&self.0.lock().unwrap());
            Take::Sample { generated_at: now }
        }
    }

    struct World {
        now: Time,
        state: Arc<Mutex<Vec<u8>>>,
        feed: Feed,
        source: session::Source,
        monitor: Monitor<u8>,
        /// Whether updates arrive.
        is_up: bool,
        /// What left.
        sent: Vec<Vec<u8>>,
    }

    impl World {
        /// 100 updates/s, without delays.
        fn new(on_change: bool) -> Self {
            let state = Arc::new(Mutex::new(b"shut".to_vec()));
            let keep_alive = Span::from_secs(1);
            let params = SourceParams { on_change, keep_alive, ..SourceParams::default() };
            let law = Box::new(Fixed::new(UpdateRate::saturating(100.0)));
            let source = session::Source::new(params, Secret::new([1; 16]), law, Time::ZERO);
            Self {
                now: Time::ZERO,
                feed: Feed::new(Box::new(Set(Arc::clone(&state))), 1_000, "").on_change(on_change),
                state,
                source: source.expect("no name"),
                monitor: Monitor::new(MonitorParams::default(), Secret::new([2; 16])),
                is_up: true,
                sent: Vec::new(),
            }
        }

        /// What left in the next so many ms.
        fn run(&mut self, millis: u64) -> Vec<Vec<u8>> {
            let end = self.now + Span::from_millis(millis);
            self.sent.clear();
            loop {
                let timer = self.source.poll_timeout().map(|(at, _)| at);
                let due_at = Feed::due_at(&self.source);
                let next = Time::earliest([self.feed.poll_timeout(due_at), timer]);
                self.now = next.expect("it goes on").max(self.now);
                if self.now > end {
                    self.now = end;
                    return self.sent.clone();
                }
                self.source.handle_timeout(self.now);
                if self.feed.is_due(self.now, Feed::due_at(&self.source)) {
                    self.send();
                }
            }
        }

        fn send(&mut self) {
            let next = self.feed.next(self.now, &self.source).expect("it never fails");
            if next.is_unchanged {
                self.source.on_unchanged(self.now);
            }
            let Some(generated_at) = next.generated_at else { return };
            let sample = Sample { generated_at, payload: self.feed.payload() };
            self.sent.push(sample.payload.to_vec());
            let (now, path, mut out) = (self.now, PathId::FIRST, [0; 256]);
            let len = self.source.write_update(now, path, sample, &mut out).expect("it fits");
            self.feed.on_sent(generated_at, self.source.last_seq());
            if self.is_up {
                let (mut reply, at) = ([0; Ack::LEN], Clocked { received_at: now, now });
                let len = self.monitor.on_datagram(at, 1, &out[..len], &mut reply).reply;
                let _ = self.source.on_datagram(now, path, &reply[..len]);
            }
        }

        fn set(&mut self, state: &[u8]) {
            *self.state.lock().unwrap() = state.to_vec();
        }
    }

    #[test]
    fn an_unchanged_state_is_left_out_but_for_keep_alives() {
        let mut world = World::new(true);
        world.run(100);
        assert_eq!(world.run(10_000).len(), 10);
        assert!(world.source.counters().unchanged > 900, "it is looked at at the law's rate");
        assert!(World::new(false).run(10_000).len() >= 1_000, "without the flag each is sent");
    }

    #[test]
    fn a_change_leaves_with_the_next_look_and_once() {
        let mut world = World::new(true);
        world.run(1_500);
        for state in [&b"open"[..], b"shut"] {
            world.set(state);
            assert_eq!(world.run(20), [state]);
            assert!(world.run(300).is_empty());
        }
    }

    #[test]
    fn a_change_that_is_lost_is_repeated_at_the_laws_rate() {
        let mut world = World::new(true);
        world.run(1_500);
        world.is_up = false;
        world.set(b"open");
        assert!((20..=21).contains(&world.run(205).len()));
        world.is_up = true;
        assert_eq!(world.run(300), [b"open"]);
    }
}
