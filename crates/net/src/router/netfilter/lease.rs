//! The lease of a rule, and the thread that renews it while the router's loop runs.
//!
//! ```text
//! renewed ──── not before two thirds ────┬─ check ─┬─ check ─┬─ ... ─► lease over: packets pass
//!                                        └ the first check that finds a new turn renews
//! ```
//!
//! - **A separate thread**: changes of nf_tables in a network namespace exclude each other, and a
//!   large change, such as loading a blocklist, takes seconds. The packet loop must not wait for
//!   it, so the loop only counts its turns. A change that takes longer than the rest of the lease
//!   lets packets pass.
//! - **Two thirds**: each renewal raises the generation of the ruleset, which makes `iptables-nft`
//!   and dumps of large rulesets start again, and appears in `nft monitor` and in audit logs.
//! - **Margin**: a turn counts if it is newer than the previous check. So packets pass a third of
//!   the lease after the loop's last turn at the earliest, and the lease plus one check after it at
//!   the latest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use freshline_core::router::UnshapedReport;
use freshline_core::unit::{Span, Time};

use crate::clock::Clock;

/// How often the thread checks the loop's counter when a renewal is due.
pub(crate) fn look_every(lease: Span) -> Span {
    const MAX: Span = Span::from_millis(250);
    (lease / 12).min(MAX)
}

/// A rule that the kernel ignores unless it is renewed.
pub(super) trait Leased: Send + 'static {
    /// Puts it in force for another lease.
    fn renew(&mut self) -> io::Result<()>;

    /// Removes it.
    fn remove(&mut self) -> io::Result<()>;
}

/// A rule that is renewed while [`Lease::alive`] is called. Dropping this removes it.
#[derive(Debug)]
pub(super) struct Lease {
    span: Span,
    shared: Arc<Shared>,
    /// A message removes the rule; without a sender the thread ends.
    orders: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    turns: AtomicU64,
    is_closed: AtomicBool,
    lapses: Lapses,
}

/// The times between the end of a lease and the next renewal, in which packets passed.
#[derive(Debug, Default)]
struct Lapses {
    times: AtomicU64,
    nanos: AtomicU64,
}

impl Lease {
    /// Starts with a rule that has just been renewed.
    pub(super) fn start(mut rule: impl Leased, span: Span) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let (orders, received) = channel();
        let renewals = Renewals { lease: span, last: Clock::new().awake(), turns: 0 };
        let thread = thread::Builder::new()
            .name("lease".to_owned())
            .spawn(move || hold(&mut rule, renewals, &theirs, &received))?;
        Ok(Self { span, shared, orders: Some(orders), thread: Some(thread) })
    }

    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// Notes that the loop runs. Never blocks.
    pub(super) fn alive(&self) {
        self.shared.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// When packets passed without the router, up to the last renewal.
    pub(super) fn unshaped(&self) -> UnshapedReport {
        let Lapses { times, nanos } = &self.shared.lapses;
        UnshapedReport {
            count: times.load(Ordering::Relaxed),
            duration_s: Span::from_nanos(nanos.load(Ordering::Relaxed)).as_secs_f64(),
        }
    }

    /// Requests the removal of the rule, which happens soon.
    pub(super) fn close(&self) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(());
        }
    }

    /// Whether the rule has been removed, or cannot be.
    pub(super) fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Acquire)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Decides when to renew. Times are of the monotonic clock, like the kernel's timeouts.
#[derive(Debug)]
struct Renewals {
    lease: Span,
    last: Time,
    /// The loop's counter at the last check.
    turns: u64,
}

impl Renewals {
    fn due(&self) -> Time {
        self.last + self.lease * 2 / 3
    }

    /// The time until the next check.
    fn wait(&self, now: Time) -> Span {
        let every = look_every(self.lease);
        self.due().since(now + every).max(every)
    }

    /// Whether to renew: a renewal is due, and the loop has run since the last check.
    fn look(&mut self, now: Time, turns: u64) -> bool {
        mem::replace(&mut self.turns, turns) != turns && now >= self.due()
    }

    /// Notes a renewal; returns the lapse before it, if the lease had expired. The kernel is the
    /// reason of the lapse if it had refused the renewals before (`was_refused`).
    fn renewed(&mut self, began: Time, ended: Time, was_refused: bool) -> Option<Lapse> {
        let over = mem::replace(&mut self.last, began) + self.lease;
        let is_routers = began > over && !was_refused;
        let reason = if is_routers { Reason::Router } else { Reason::Kernel };
        (ended > over).then(|| Lapse { span: ended.since(over), reason })
    }
}

/// An interval in which packets passed without the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lapse {
    span: Span,
    reason: Reason,
}

/// Why a renewal came too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The loop, or the whole process, did not run.
    Router,
    /// The kernel took until after the end of the lease, or refused renewals.
    Kernel,
}

impl Lapse {
    fn report(self, lapses: &Lapses) {
        let Self { span, reason } = self;
        lapses.times.fetch_add(1, Ordering::Relaxed);
        lapses.nanos.fetch_add(span.as_nanos(), Ordering::Relaxed);
        let seconds = span.as_secs_f64();
        match reason {
            Reason::Router => tracing::warn!(
                "the router hung or was stopped: for about {seconds:.1} s packets passed without it, and \
                 from now on it shapes again"
            ),
            Reason::Kernel => tracing::warn!(
                "the kernel did not renew the rule in time, as during another change of nf_tables: for about \
                 {seconds:.1} s packets passed without the router; a longer --fail-open helps"
            ),
        }
    }
}

fn hold(rule: &mut impl Leased, mut renewals: Renewals, shared: &Shared, orders: &Receiver<()>) {
    let clock = Clock::new();
    let mut is_failing = false;
    loop {
        match orders.recv_timeout(renewals.wait(clock.awake()).into()) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(()) => {
                if let Err(error) = rule.remove() {
                    tracing::warn!(
                        "the kernel did not remove the rule before the queued packets: {error}"
                    );
                }
                shared.is_closed.store(true, Ordering::Release);
                // The rule's chain is removed after the queue, because the removal drops queued
                // packets.
                while orders.recv().is_ok() {}
                return;
            }
        }
        let began = clock.awake();
        if !renewals.look(began, shared.turns.load(Ordering::Relaxed)) {
            continue;
        }
        let renewed = rule.renew();
        match &renewed {
            Ok(()) => {
                if let Some(lapse) = renewals.renewed(began, clock.awake(), is_failing) {
                    lapse.report(&shared.lapses);
                }
            }
            Err(error) if !is_failing => tracing::warn!(
                "the kernel does not renew the rule, and packets pass without the router: {error}"
            ),
            Err(_) => {}
        }
        is_failing = renewed.is_err();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn a_renewal_comes_at_two_thirds_of_the_lease_and_only_while_the_loop_runs() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut renewals = Renewals { lease: Span::from_secs(3), last: at(0), turns: 0 };
        assert_eq!(renewals.wait(at(0)), Span::from_millis(1_750));
        assert!(!renewals.look(at(1_750), 8), "too early");
        assert_eq!(renewals.wait(at(1_750)), Span::from_millis(250));
        assert!(!renewals.look(at(2_000), 8), "no turn since the last look");
        assert!(renewals.look(at(2_250), 9));
        assert_eq!(renewals.renewed(at(2_250), at(2_260), false), None);
        assert!(!renewals.look(at(4_000), 20));
        assert!(renewals.look(at(4_250), 21));
        let passed = renewals.renewed(at(4_250), at(7_250), false);
        let lapse = |ms, reason| Some(Lapse { span: Span::from_millis(ms), reason });
        assert_eq!(passed, lapse(2_000, Reason::Kernel));
        // The loop hung for longer than a lease, and then for less than one: it took its last turn
        // before the check at 21.75 s.
        assert!(renewals.look(at(20_000), 30));
        assert_eq!(renewals.renewed(at(20_000), at(20_001), false), lapse(12_751, Reason::Router));
        assert!(!renewals.look(at(21_750), 31) && !renewals.look(at(22_000), 31));
        assert!(renewals.look(at(23_250), 32));
        assert_eq!(renewals.renewed(at(23_250), at(23_250), false), lapse(250, Reason::Router));
        // The kernel had refused all renewals since.
        let refused = renewals.renewed(at(30_250), at(30_250), true);
        assert_eq!(refused, lapse(4_000, Reason::Kernel));
        let hour = Renewals { lease: Span::from_secs(3_600), last: at(0), turns: 0 };
        assert_eq!(hour.wait(at(2_500_000)), Span::from_millis(250));
    }

    /// An nf_tables that another change delays: each request takes until the test releases it.
    struct Busy {
        asked: std::sync::mpsc::SyncSender<&'static str>,
        goes_on: Receiver<()>,
    }

    impl Busy {
        fn request(&mut self, what: &'static str) -> io::Result<()> {
            let _ = self.asked.send(what);
            let _ = self.goes_on.recv();
            Ok(())
        }
    }

    impl Leased for Busy {
        fn renew(&mut self) -> io::Result<()> {
            self.request("renew")
        }

        fn remove(&mut self) -> io::Result<()> {
            self.request("remove")
        }
    }

    #[test]
    fn the_loop_does_not_wait_for_a_kernel_that_is_busy() {
        let (asked, requests) = sync_channel(9);
        let (go_on, goes_on) = channel();
        let rule = Busy { asked, goes_on };
        let lease = Lease::start(rule, Span::from_millis(30)).unwrap();
        let first = std::iter::repeat_with(|| {
            lease.alive();
            thread::sleep(std::time::Duration::from_millis(1));
            requests.try_recv()
        });
        assert_eq!(first.take(20_000).find_map(Result::ok), Some("renew"));
        // The thread is in its request; these calls return.
        lease.alive();
        lease.close();
        assert!(!lease.is_closed() && requests.try_recv().is_err());
        go_on.send(()).unwrap();
        assert_eq!(requests.recv(), Ok("remove"));
        assert!(!lease.is_closed());
        go_on.send(()).unwrap();
        while !lease.is_closed() {
            thread::yield_now();
        }
        drop(lease);
        assert!(requests.recv().is_err(), "the rule has gone with its thread");
    }
}
