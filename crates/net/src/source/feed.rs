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
    /// States that did not fit, and when the last of them was sampled.
    too_large: (u64, Option<Time>),
}

/// What [`Feed::next`] gives.
#[derive(Debug, Default)]
pub(crate) struct Next {
    /// When the state in [`Feed::payload`] was sampled, if one is to be sent.
    pub(crate) generated_at: Option<Time>,
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
            too_large: (0, None),
        }
    }

    /// When an update is due: by the law, or to keep the session alive.
    pub(crate) fn due_at(session: &session::Source) -> Option<Time> {
        let law = session.next_update_at();
        law.into_iter().chain(session.keep_alive_at()).min()
    }

    /// When to call [`Feed::is_due`] next, if an update is due at `due_at`.
    pub(crate) fn next_event(&self, due_at: Option<Time>) -> Option<Time> {
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
                let period = session.law().rate().period();
                Sampling::At(now + period.clamp(Span::from_millis(1), Span::from_secs(1)))
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

    /// The state in [`Feed::payload`] has been sent: keeps it as the last one.
    pub(crate) fn on_sent(&mut self, generated_at: Time) {
        let (at, state) = self.last.get_or_insert_default();
        *at = generated_at;
        std::mem::swap(&mut self.payload, state);
    }

    /// States that did not fit into a datagram.
    pub(crate) fn too_large(&self) -> u64 {
        self.too_large.0
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
