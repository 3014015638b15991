//! Signs of life of a router's loop: to the kernel, so that packets pass if it hangs ([`Gate::renew`]), and
//! to systemd, so that it is started again (`WatchdogSec=`).

use freshline_core::unit::{Span, Time};

use super::gate::Gate;
use crate::notify::Notifier;

/// How many signs there are in a lease.
const SIGNS: u64 = 3;

/// When the next sign is due, and what the last ones were for.
#[derive(Debug)]
pub(super) struct Watchdog {
    lease: Option<Span>,
    every: Option<Span>,
    last: Option<Time>,
    notifier: Notifier,
    is_failing: bool,
}

impl Watchdog {
    pub(super) fn new(lease: Option<Span>, notifier: Notifier) -> Self {
        let every = lease.map(|lease| lease / SIGNS);
        let every = every.into_iter().chain(notifier.every()).min();
        Self { lease, every, last: None, notifier, is_failing: false }
    }

    /// When the next sign is due.
    pub(super) fn next(&self) -> Option<Time> {
        Some(self.last? + self.every?)
    }

    /// The loop has ended.
    pub(super) fn end(&self) {
        self.notifier.stopping();
    }

    /// Gives a sign if one is due.
    pub(super) fn turn<G: Gate>(&mut self, now: Time, gate: &mut G) {
        if self.next().is_some_and(|next| now < next)
            || (self.last.is_some() && self.every.is_none())
        {
            return;
        }
        match self.last.replace(now) {
            None => self.notifier.ready(),
            Some(last) => {
                if let Some(missed) = self.missed(now.since(last)) {
                    tracing::warn!(
                        "the router did not run for {:.1} s: for about {:.1} s packets passed without \
                         it, and from now on it shapes again",
                        now.since(last).as_secs_f64(),
                        missed.as_secs_f64()
                    );
                }
            }
        }
        self.notifier.alive();
        if self.lease.is_none() {
            return;
        }
        let renewed = gate.renew();
        if let Err(error) = &renewed
            && !self.is_failing
        {
            tracing::warn!(
                "the kernel does not renew the rule, and packets pass the router by: {error}"
            );
        }
        self.is_failing = renewed.is_err();
    }

    /// For how long packets passed, if signs were so far apart.
    fn missed(&self, pause: Span) -> Option<Span> {
        let lease = self.lease?;
        (pause > lease).then(|| pause - lease)
    }
}
