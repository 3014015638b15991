//! The initial phase (Shreedhar, PhD thesis, section 3.4): a few stop-and-wait probes measure the
//! round trip.
//!
//! ```text
//!   ┌─► send a probe ──► wait ──► ack, or the timeout ──► enough probes, and one ack at least?
//!   │                                                          │ no             │ yes
//!   └──────────────────────────────────────────────────────────┘                ▼
//!                                                                   mean round trip known
//! ```
//!
//! Where the papers are silent: a probe that is lost counts as one of the probes, but without
//! any ack the probing goes on, each timeout twice the one before, so that a path that is down
//! costs little and one lost packet never hangs a source.

use crate::unit::{Span, Time};

/// Settings of the initial phase.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Params {
    /// Probes to send. 10: "a few times" in the thesis, section 3.4; their mean has a third of the
    /// spread of one.
    pub probes: u32,
    /// The timeout of the first probe. 1 s: the initial timeout of RFC 6298 section 2.
    pub first_timeout: Span,
    /// The minimum timeout once a round trip is known; the timeout is three times the longest round
    /// trip. 50 ms: above the scheduling noise of ordinary hosts.
    pub min_timeout: Span,
    /// The timeout at which doubling ends. 2 s, like the session's: a path that comes back is
    /// noticed by then.
    pub max_timeout: Span,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            probes: 10,
            first_timeout: Span::from_secs(1),
            min_timeout: Span::from_millis(50),
            max_timeout: Span::from_secs(2),
        }
    }
}

/// The current probing.
#[derive(Debug, Clone)]
pub(super) struct Startup {
    params: Params,
    sent: u32,
    acked: u32,
    rtt_sum: Span,
    max_rtt: Span,
    /// Timeouts in a row.
    losses: u32,
    /// The probe in flight and when it is given up.
    waiting: Option<(u64, Time)>,
}

impl Startup {
    pub(super) fn new(params: Params) -> Self {
        Self {
            params,
            sent: 0,
            acked: 0,
            rtt_sum: Span::ZERO,
            max_rtt: Span::ZERO,
            losses: 0,
            waiting: None,
        }
    }

    pub(super) fn on_sent(&mut self, now: Time, seq: u64) {
        self.sent = self.sent.saturating_add(1);
        self.waiting = Some((seq, now + self.timeout()));
    }

    /// A fresh ack with its round trip. Also a probe that was given up counts when it comes late.
    pub(super) fn on_ack(&mut self, seq: u64, rtt: Span) {
        self.acked = self.acked.saturating_add(1);
        self.rtt_sum += rtt;
        self.max_rtt = self.max_rtt.max(rtt);
        if self.waiting.is_some_and(|(waiting, _)| seq >= waiting) {
            self.waiting = None;
            self.losses = 0;
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.waiting.is_some_and(|(_, timeout)| timeout <= now) {
            self.waiting = None;
            self.losses = self.losses.saturating_add(1);
        }
    }

    /// When the probe in flight is given up.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.waiting.map(|(_, timeout)| timeout)
    }

    /// Whether a probe should leave now.
    pub(super) fn wants_probe(&self) -> bool {
        self.waiting.is_none()
    }

    /// The mean round trip, once the phase is over.
    pub(super) fn result(&self) -> Option<Span> {
        let over = self.waiting.is_none() && self.sent >= self.params.probes && self.acked > 0;
        over.then(|| self.rtt_sum / u64::from(self.acked))
    }

    /// Probes that have no ack.
    pub(super) fn lost(&self) -> u32 {
        self.sent.saturating_sub(self.acked)
    }

    fn timeout(&self) -> Span {
        let base = match self.acked {
            0 => self.params.first_timeout,
            _ => (self.max_rtt * 3).max(self.params.min_timeout),
        };
        (base * (1 << self.losses.min(20))).min(self.params.max_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_dead_path_is_probed_ever_more_rarely_and_a_live_one_is_measured() {
        let mut startup = Startup::new(Params::default());
        let mut now = Time::ZERO;
        let mut waits = Vec::new();
        for seq in 0..5 {
            assert!(startup.wants_probe());
            startup.on_sent(now, seq);
            let timeout = startup.poll_timeout().unwrap();
            waits.push(timeout.since(now).as_nanos() / 1_000_000_000);
            now = timeout;
            startup.handle_timeout(now);
            assert_eq!(startup.result(), None);
        }
        assert_eq!(waits, [1, 2, 2, 2, 2]);
        for seq in 5..10 {
            startup.on_sent(now, seq);
            assert!(!startup.wants_probe(), "stop and wait");
            startup.on_ack(seq, Span::from_millis(20));
        }
        assert_eq!(startup.result(), Some(Span::from_millis(20)));
    }

    #[test]
    fn a_path_that_never_answers_never_ends_the_phase() {
        let mut startup = Startup::new(Params::default());
        for seq in 0..1000 {
            startup.on_sent(Time::ZERO, seq);
            startup.handle_timeout(Time::MAX);
            assert_eq!(startup.result(), None);
        }
    }
}
