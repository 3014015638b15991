//! The states of one sampler, for several sessions.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_core::unit::{Span, Time};

use super::{Need, Sampler, Take};
use crate::clock::Clock;
use crate::waker::Waker;

/// The states of one sampler, of which each of several sessions sends the newest. The sampler is
/// asked as often as the fastest session asks, and its states serve all sessions: a session gets a
/// state that has arrived since its last one, and asks for another only if there is no such state.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Inner>>);

struct Inner {
    sampler: Box<dyn Sampler>,
    is_started: bool,
    newest: Option<Newest>,
    /// A sampler that has failed is not asked before this time.
    rests_until: Option<Time>,
    /// The sampler's result, before it is accepted.
    buffer: Vec<u8>,
}

struct Newest {
    /// Counts the sampler's states. Generation times can go back.
    number: u64,
    generated_at: Time,
    /// When it was taken from the sampler.
    received_at: Time,
    label_error: Span,
    state: Vec<u8>,
}

/// The view of one session.
struct Follower {
    shared: Shared,
    /// When it started, or got its last state.
    took_at: Time,
    /// The number of that state.
    taken: Option<u64>,
    label_error: Span,
}

impl Shared {
    /// The states of `sampler`, which has no keys and no records.
    pub fn new(sampler: Box<dyn Sampler>) -> Self {
        let (newest, rests_until, buffer) = (None, None, Vec::new());
        Self(Arc::new(Mutex::new(Inner {
            sampler,
            is_started: false,
            newest,
            rests_until,
            buffer,
        })))
    }

    /// Starts the sampler, unless it was started before. The sampler wakes its sessions by this
    /// waker.
    ///
    /// # Errors
    /// If the system cannot create a thread for the sampler.
    pub(crate) fn start(&self, clock: Clock, waker: &Arc<Waker>) -> io::Result<()> {
        let mut inner = self.lock();
        if !inner.is_started {
            inner.sampler.start(clock, Arc::clone(waker))?;
            inner.is_started = true;
        }
        Ok(())
    }

    /// A sampler for one session, which starts now.
    pub(crate) fn follower(&self, now: Time) -> Box<dyn Sampler> {
        let (shared, label_error) = (self.clone(), Span::ZERO);
        Box::new(Follower { shared, took_at: now, taken: None, label_error })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Asks the sampler; a new state is then in `newest`.
    fn ask(&mut self, now: Time, need: Need) -> Take {
        if let Some(at) = self.rests_until.filter(|at| *at > now) {
            // One session has reported the failure.
            return Take::NotBefore(at);
        }
        self.buffer.clear();
        let taken = self.sampler.take(now, need, &mut self.buffer);
        match taken {
            Take::Sample { generated_at } => {
                let label_error = self.sampler.label_error();
                let former = self.newest.take();
                // A session that has just started asks for the newest state, which the others may
                // have.
                let is_former =
                    |it: &Newest| it.generated_at == generated_at && it.state == self.buffer;
                let next = |it: &Newest| it.number + u64::from(!is_former(it));
                let number = former.as_ref().map_or(0, next);
                let space = former.map(|former| former.state).unwrap_or_default();
                let state = std::mem::replace(&mut self.buffer, space);
                self.newest =
                    Some(Newest { number, generated_at, received_at: now, label_error, state });
            }
            Take::RetryAt(at, _) => self.rests_until = Some(at),
            _ => {}
        }
        taken
    }
}

impl Sampler for Follower {
    fn start(&mut self, _clock: Clock, _waker: Arc<Waker>) -> io::Result<()> {
        Ok(())
    }

    fn take(&mut self, now: Time, need: Need, into: &mut Vec<u8>) -> Take {
        let mut inner = self.shared.lock();
        let is_news = |newest: &Newest| {
            Some(newest.number) > self.taken && newest.received_at >= self.took_at
        };
        if !inner.newest.as_ref().is_some_and(is_news) {
            // The last state of a stream counts for a session that has no state of it yet.
            let need = if self.taken.is_none() { Need::Newest } else { need };
            let taken = inner.ask(now, need);
            if !matches!(taken, Take::Sample { .. }) {
                return taken;
            }
        }
        let Some(newest) = &inner.newest else { return Take::NotYet };
        (self.took_at, self.taken) = (now, Some(newest.number));
        self.label_error = newest.label_error;
        into.extend_from_slice(&newest.state);
        Take::Sample { generated_at: newest.generated_at }
    }

    fn label_error(&self) -> Span {
        self.label_error
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Run};
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn take(follower: &mut dyn Sampler, millis: u64, need: Need) -> (Take, Vec<u8>) {
        let mut state = Vec::new();
        (follower.take(at(millis), need, &mut state), state)
    }

    #[test]
    fn a_command_runs_once_a_period_for_all_sessions() {
        let (command, asked, answer) = Command::by_hand();
        let shared = Shared::new(Box::new(command));
        let mut followers: Vec<_> = (0..50).map(|_| shared.follower(at(0))).collect();
        // Each session asks every 100 ms, 1 ms after the one before it; a run takes 20 ms.
        for period in 1..=10 {
            let first = period * 100;
            assert!(!matches!(take(&mut *followers[0], first, Need::Newer).0, Take::Sample { .. }));
            let (generated_at, ended_at) = (at(first), at(first + 20));
            let output = Ok(period.to_string().into_bytes());
            answer.send(Run { generated_at, ended_at, output }).expect("it is heard");
            for (number, follower) in (0..).zip(&mut followers) {
                let (taken, state) = take(&mut **follower, first + 20 + number, Need::Newer);
                assert_eq!(taken, Take::Sample { generated_at }, "{period}, {number}");
                assert_eq!(state, period.to_string().as_bytes());
            }
        }
        assert_eq!(asked.try_iter().count(), 10);
    }

    #[test]
    fn a_session_that_begins_late_gets_a_state_of_its_time() {
        let (command, asked, answer) = Command::by_hand();
        let shared = Shared::new(Box::new(command));
        let mut early = shared.follower(at(0));
        take(&mut *early, 0, Need::Newer);
        let run = |millis| Run {
            generated_at: at(millis),
            ended_at: at(millis + 1),
            output: Ok(b"state".to_vec()),
        };
        answer.send(run(0)).expect("it is heard");
        assert_eq!(take(&mut *early, 1, Need::Newer).0, Take::Sample { generated_at: at(0) });
        let mut late = shared.follower(at(60_000));
        assert!(!matches!(take(&mut *late, 60_000, Need::Newer).0, Take::Sample { .. }));
        assert_eq!(asked.try_iter().count(), 2);
        answer.send(run(60_000)).expect("it is heard");
        let sample = Take::Sample { generated_at: at(60_000) };
        assert_eq!(take(&mut *late, 60_001, Need::Newer).0, sample);
    }

    #[test]
    fn all_sessions_get_a_state_whose_generation_time_goes_back() {
        let (latest, put) = super::super::Latest::by_hand();
        let shared = Shared::new(Box::new(latest));
        let mut followers: Vec<_> = (0..3).map(|_| shared.follower(at(0))).collect();
        for generated_at in [at(100), at(50)] {
            put(generated_at, b"state".to_vec());
            for follower in &mut followers {
                let taken = take(&mut **follower, 200, Need::Newer).0;
                assert_eq!(taken, Take::Sample { generated_at });
            }
        }
    }

    #[test]
    fn a_state_that_a_later_session_asks_for_again_is_no_news_to_others() {
        let (latest, put) = super::super::Latest::by_hand();
        let shared = Shared::new(Box::new(latest));
        let mut early = shared.follower(at(0));
        put(at(1), b"first".to_vec());
        assert_eq!(take(&mut *early, 2, Need::Newer).1, b"first");
        assert_eq!(take(&mut *early, 3, Need::Newer).0, Take::NotYet);
        assert_eq!(take(&mut *shared.follower(at(4)), 4, Need::Newer).1, b"first");
        put(at(5), b"second".to_vec());
        assert_eq!(take(&mut *early, 6, Need::Newer).1, b"second");
    }

    #[test]
    fn a_command_that_fails_is_reported_once_and_rests_for_all() {
        let (command, asked, answer) = Command::by_hand();
        let shared = Shared::new(Box::new(command));
        let mut followers: Vec<_> = (0..3).map(|_| shared.follower(at(0))).collect();
        take(&mut *followers[0], 0, Need::Newer);
        let output = Err("it broke".into());
        answer.send(Run { generated_at: at(0), ended_at: at(1), output }).expect("it is heard");
        let taken: Vec<_> =
            followers.iter_mut().map(|it| take(&mut **it, 1, Need::Newer).0).collect();
        let again_at = at(1_001);
        let [Take::RetryAt(first, _), others @ ..] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!(*first, again_at);
        assert!(others.iter().all(|it| *it == Take::NotBefore(again_at)), "{others:?}");
        assert_eq!(asked.try_iter().count(), 1);
    }

    #[test]
    fn the_last_state_of_a_stream_is_news_to_a_session_that_begins_later() {
        let (latest, put) = super::super::Latest::by_hand();
        let shared = Shared::new(Box::new(latest));
        put(at(0), b"go".to_vec());
        for millis in [1, 60_000] {
            let mut follower = shared.follower(at(millis));
            let (taken, state) = take(&mut *follower, millis, Need::Newer);
            assert_eq!(taken, Take::Sample { generated_at: at(0) });
            assert_eq!(state, b"go");
            assert_eq!(take(&mut *follower, millis + 1, Need::Newer).0, Take::NotYet);
            assert_eq!(
                take(&mut *follower, millis + 2, Need::Newest).0,
                Take::Sample { generated_at: at(0) }
            );
        }
    }
}
