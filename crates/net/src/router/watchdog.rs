//! Reports that a router's loop runs: to the gate, so that packets pass if it hangs
//! ([`Gate::alive`]), and to systemd, which restarts it if it hangs (`WatchdogSec=`).

use freshline_core::unit::{Span, Time};

use super::gate::Gate;
use super::netfilter::look_every;
use crate::notify::Notifier;

/// When the next report is due, and when the last reports were made.
///
/// Times are of the monotonic clock, which stops while the system is suspended, like the kernel's
/// timeouts.
#[derive(Debug)]
pub(super) struct Watchdog {
    every: Option<Span>,
    last: Option<Time>,
    notified: Option<Time>,
    notifier: Notifier,
}

impl Watchdog {
    pub(super) fn new(lease: Option<Span>, notifier: Notifier) -> Self {
        // Two reports per check.
        let every = lease.map(|lease| look_every(lease) / 2);
        let every = every.into_iter().chain(notifier.every()).min();
        Self { every, last: None, notified: None, notifier }
    }

    /// The time until the next report is due.
    pub(super) fn wait(&self, now: Time) -> Option<Span> {
        Some((self.last? + self.every?).since(now))
    }

    /// The loop has ended.
    pub(super) fn end(&self) {
        self.notifier.stopping();
    }

    /// Reports if a report is due.
    pub(super) fn turn<G: Gate>(&mut self, now: Time, gate: &mut G) {
        if self.last.is_some() && self.wait(now).is_none_or(|wait| wait > Span::ZERO) {
            return;
        }
        if self.last.replace(now).is_none() {
            self.notifier.ready();
        }
        let every = self.notifier.every();
        if self.notified.zip(every).is_none_or(|(last, every)| now >= last + every) {
            self.notifier.alive();
            self.notified = Some(now);
        }
        gate.alive();
    }
}
