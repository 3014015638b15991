//! When a client joins: at once, then after 0.2, 0.4 … 2 s without an answer, while the transport
//! can carry datagrams.
//!
//! ```text
//!   again ──► next_at ── due, transport renewed ──► join sent ─── packet ──► joined
//!               ▲                                     │
//!               └── backoff; a new challenge: at once ┘
//! ```
//!
//! | transport | a join that is due |
//! |---|---|
//! | ready | is sent; after each third unanswered join, once the driver has renewed the transport |
//! | connecting | is held back until the transport is ready |
//! | down | asks for the transport to be renewed; this counts as an attempt, so that repeated failures back off |

use super::types::ClientParams;
use crate::session::TransportState;
use crate::session::backoff::{Backoff, Step};
use crate::unit::{Span, Time};
use crate::wire::CloseReason;

/// The number of joins without an answer after which the transport is renewed: the host may have
/// moved to another network.
const RENEW_AFTER: u64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Joining { next_at: Time },
    Joined,
}

#[derive(Debug)]
pub(super) struct Joiner {
    max_wait: Span,
    transport: TransportState,
    reach: Reach,
    backoff: Backoff,
    step: Step,
    /// Whether the driver is to be asked to renew the transport.
    is_renewal_wanted: bool,
    /// Whether a challenge or a transport that became ready triggers the join: then the transport
    /// is not in doubt.
    is_prompted: bool,
    /// Attempts to join since the server's last message.
    unanswered: u64,
}

impl Joiner {
    /// The first join is due at once.
    pub(super) fn new(params: &ClientParams, seed: u64, now: Time) -> Self {
        Self {
            max_wait: params.longest_wait,
            transport: TransportState::Ready,
            reach: Reach::Joining { next_at: now },
            backoff: Backoff::new(params.first_wait, params.longest_wait, seed),
            step: Step::Idle,
            is_renewal_wanted: false,
            is_prompted: false,
            unanswered: 0,
        }
    }

    // ---- inputs ----

    /// A message of the server has arrived.
    pub(super) fn on_heard(&mut self) {
        self.unanswered = 0;
    }

    /// A packet has arrived; returns whether it is the first since the client joined.
    pub(super) fn on_packet(&mut self) -> bool {
        if self.is_joined() {
            return false;
        }
        (self.reach, self.step, self.is_renewal_wanted) = (Reach::Joined, Step::Idle, false);
        self.backoff.reset(0);
        true
    }

    /// The server must be joined again.
    pub(super) fn again(&mut self, now: Time) {
        if self.is_joined() {
            self.backoff.reset(0);
            self.reach = Reach::Joining { next_at: now };
        }
    }

    /// A challenge with a new cookie, or a transport that is ready: a join is sent now.
    pub(super) fn prompt(&mut self, now: Time) {
        if !self.is_joined() {
            self.is_prompted = true;
            self.reach = Reach::Joining { next_at: now };
        }
    }

    /// The server ended or refused the downlink.
    pub(super) fn on_close(&mut self, now: Time, reason: CloseReason) {
        self.again(now);
        let wait = match reason {
            CloseReason::Done | CloseReason::ShuttingDown => self.backoff.next(),
            _ => self.max_wait,
        };
        self.step = Step::Idle;
        self.reach = Reach::Joining { next_at: now + wait };
    }

    pub(super) fn handle_transport(&mut self, now: Time, state: TransportState) {
        self.transport = state;
        if state == TransportState::Ready {
            self.prompt(now);
        } else {
            self.again(now);
        }
    }

    /// Time has passed: requests a renewal of the transport if a due join needs it.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        match self.transport {
            TransportState::Connecting => {}
            TransportState::Down => {
                self.is_renewal_wanted = true;
                self.on_attempt(now);
            }
            TransportState::Ready if self.step == Step::Idle => {
                let is_in_doubt = self.unanswered > 0
                    && self.unanswered.is_multiple_of(RENEW_AFTER)
                    && !self.is_prompted;
                self.is_renewal_wanted |= is_in_doubt;
                self.step = if is_in_doubt { Step::Announced } else { Step::Ready };
            }
            TransportState::Ready => {}
        }
    }

    /// Whether the driver must renew the transport now.
    pub(super) fn poll_renewal(&mut self) -> bool {
        if self.step == Step::Announced {
            self.step = Step::Ready;
        }
        core::mem::take(&mut self.is_renewal_wanted)
    }

    /// A join was sent.
    pub(super) fn on_sent(&mut self, now: Time) {
        self.on_attempt(now);
    }

    // ---- timers and requests ----

    /// Whether a join may be sent now.
    pub(super) fn may_leave(&self, now: Time) -> bool {
        let is_due = matches!(self.reach, Reach::Joining { next_at } if next_at <= now);
        is_due && self.is_ready() && self.step == Step::Ready
    }

    /// When to call [`Joiner::handle_timeout`] next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        match self.reach {
            Reach::Joining { next_at } if self.transport != TransportState::Connecting => {
                Some(next_at)
            }
            _ => None,
        }
    }

    // ---- getters ----

    pub(super) fn is_joined(&self) -> bool {
        self.reach == Reach::Joined
    }

    /// Whether the transport can carry datagrams.
    pub(super) fn is_ready(&self) -> bool {
        self.transport == TransportState::Ready
    }

    /// Attempts to join since the server's last message.
    pub(super) fn unanswered(&self) -> u64 {
        self.unanswered
    }

    fn on_attempt(&mut self, now: Time) {
        self.unanswered = self.unanswered.saturating_add(1);
        self.reach = Reach::Joining { next_at: now + self.backoff.next() };
        (self.step, self.is_prompted) = (Step::Idle, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn joiner() -> Joiner {
        Joiner::new(&ClientParams::default(), 7, Time::ZERO)
    }

    #[test]
    fn every_third_join_without_an_answer_waits_for_the_transport_to_be_renewed() {
        let mut joiner = joiner();
        for attempt in 0..7 {
            let now = joiner.poll_timeout().expect("it joins");
            joiner.handle_timeout(now);
            let is_renewed = attempt > 0 && attempt % 3 == 0;
            assert_eq!(joiner.may_leave(now), !is_renewed, "attempt {attempt}");
            assert_eq!(joiner.poll_renewal(), is_renewed, "attempt {attempt}");
            assert!(joiner.may_leave(now) && !joiner.poll_renewal());
            joiner.on_sent(now);
        }
    }

    #[test]
    fn a_transport_that_is_down_is_renewed_at_once_and_then_with_the_backoff() {
        let mut joiner = joiner();
        let (mut now, mut gaps) = (Time::ZERO, Vec::new());
        for _ in 0..4 {
            joiner.handle_transport(now, TransportState::Down);
            let at = joiner.poll_timeout().expect("it tries again");
            gaps.push(at.since(now));
            now = at.max(now);
            joiner.handle_timeout(now);
            assert!(joiner.poll_renewal() && !joiner.may_leave(now));
            joiner.handle_transport(now, TransportState::Connecting);
            assert_eq!(joiner.poll_timeout(), None, "the handshake says how it goes on");
        }
        let expected = [0, 200, 400, 800].map(Span::from_millis);
        for (gap, expected) in gaps.into_iter().zip(expected) {
            assert!(gap >= expected && gap <= expected * 5 / 4, "{gap}, not {expected}");
        }
    }

    #[test]
    fn a_transport_that_became_ready_carries_a_join_and_is_not_renewed_again() {
        let mut joiner = joiner();
        for now in [0, 500, 1500].map(|ms| Time::ZERO + Span::from_millis(ms)) {
            joiner.handle_timeout(now);
            joiner.on_sent(now);
        }
        let now = Time::ZERO + Span::from_secs(9);
        joiner.handle_timeout(now);
        assert!(joiner.poll_renewal());
        joiner.handle_transport(now, TransportState::Connecting);
        assert!(!joiner.may_leave(now));
        joiner.handle_transport(now, TransportState::Ready);
        joiner.handle_timeout(now);
        assert!(!joiner.poll_renewal() && joiner.may_leave(now));
    }
}
