//! The opening of a session: on which paths openings are sent, when, and when they are retried.
//!
//! ```text
//!   again ──► next_at ── due, transports renewed ──► opening sent ─── ack ──► open
//!               ▲                                        │
//!               └── backoff: 0.2, 0.4 … 2 s; a new challenge: at once, on that path only
//! ```
//!
//! An opening may be sent once the driver has had the chance to renew transports
//! ([`Step::Announced`]), as its answer arrives at the socket from which it was sent. While no path
//! is up, the renewal itself counts as an attempt: the first redial is immediate, and repeated
//! failures back off.

use alloc::vec::Vec;

use super::types::{Reach, SourceParams};
use crate::path::{PathId, PathSet};
use crate::session::backoff::{Backoff, Step};
use crate::unit::{Span, Time};
use crate::wire::{CloseReason, Cookie};

/// The number of openings without an answer after which all transports are renewed: the host may
/// have moved to another network.
const RENEW_AFTER: u32 = 3;

/// The maximum of [`PathOpening::openings`]: after this many challenges on a path on which openings
/// were lost, the monitor is believed to have forgotten the session.
const MAX_OPENINGS: u8 = 3;

/// The state of one path while a session is opened.
#[derive(Debug, Clone, Copy, Default)]
struct PathOpening {
    /// The cookie of the last challenge on this path: a cookie is valid for one address.
    cookie: Cookie,
    /// The number of openings sent on it since its last ack and still unanswered, up to a small
    /// maximum.
    openings: u8,
    /// Whether the session is open on another path and not yet on this one. Its updates then carry
    /// the opening, as the monitor may accept a session only on connections that have opened it.
    is_unproven: bool,
    /// Whether a challenge has triggered an early opening since the last regular one. It can do so
    /// once: a monitor that sends a new cookie with each challenge must not control the rate.
    is_prompted: bool,
}

#[derive(Debug)]
pub(super) struct Opener {
    max_wait: Span,
    silence: Span,
    reach: Reach,
    backoff: Backoff,
    /// When the session was last opened.
    opened_at: Time,
    /// The number of consecutive sessions that had to be reopened soon after they were opened.
    short_lives: u32,
    /// While opening: when to try next.
    next_at: Time,
    /// The paths of the next opening, if it was triggered by challenges on them.
    prompted_by: PathSet,
    /// By the numbers of the paths.
    paths: Vec<PathOpening>,
    step: Step,
    /// The transports that the driver is asked to renew: all (`true`), or only those down.
    renewal: Option<bool>,
}

impl Opener {
    /// The first opening is due at once.
    pub(super) fn new(params: &SourceParams, seed: u64, now: Time) -> Self {
        let SourceParams { first_wait, max_wait, silence, .. } = *params;
        Self {
            max_wait,
            silence,
            reach: Reach::Opening { attempts: 0 },
            backoff: Backoff::new(first_wait, max_wait, seed),
            opened_at: now,
            short_lives: 0,
            next_at: now,
            prompted_by: PathSet::EMPTY,
            paths: alloc::vec![PathOpening::default()],
            step: Step::Idle,
            renewal: None,
        }
    }

    /// The session has this number of paths.
    pub(super) fn set_paths(&mut self, count: usize) {
        self.paths = alloc::vec![PathOpening::default(); count];
    }

    // ---- inputs ----

    /// An ack has arrived on a path.
    pub(super) fn on_ack(&mut self, by: PathId) {
        if let Some(path) = self.paths.get_mut(usize::from(by.0)) {
            (path.openings, path.is_unproven) = (0, false);
        }
    }

    /// The ack that opens the session has arrived on a path.
    pub(super) fn on_opened(&mut self, now: Time, by: PathId) {
        (self.reach, self.opened_at, self.step) = (Reach::Open, now, Step::Idle);
        self.renewal = None;
        for (path, opening) in self.paths.iter_mut().enumerate() {
            opening.is_unproven = path != usize::from(by.0);
        }
    }

    /// A challenge has arrived on a path; returns whether the session must be reopened. Openings
    /// are not sent before `earliest`.
    pub(super) fn on_challenge(
        &mut self,
        now: Time,
        earliest: Time,
        by: PathId,
        cookie: Cookie,
    ) -> bool {
        let several = self.paths.len() > 1;
        let is_just_open = self.is_just_open(now);
        let Some(path) = self.paths.get_mut(usize::from(by.0)) else { return false };
        let is_new = path.cookie != cookie;
        // Another path was faster, and the session is open by now: openings sent earlier on the
        // slower path may still be challenged.
        let is_overtaken = several && (path.openings > 0 || path.is_unproven || is_just_open);
        path.cookie = cookie;
        path.openings = path.openings.saturating_sub(1);
        if self.reach == Reach::Open {
            return !is_overtaken;
        }
        // The same cookie twice means that it was not accepted: then the backoff applies.
        if is_new && !core::mem::replace(&mut path.is_prompted, true) {
            self.prompt(now, earliest, by);
        }
        false
    }

    /// A path is up (again): a pending opening is sent on it now.
    pub(super) fn on_path_ready(&mut self, now: Time, earliest: Time, by: PathId) {
        if self.reach != Reach::Open {
            self.prompt(now, earliest, by);
        } else if let Some(path) = self.paths.get_mut(usize::from(by.0)) {
            path.is_unproven = true;
        }
    }

    /// The monitor has ended the session.
    pub(super) fn on_close(&mut self, now: Time, reason: CloseReason) {
        self.prompted_by = PathSet::EMPTY;
        self.next_at = match reason {
            CloseReason::Done | CloseReason::ShuttingDown => now + self.backoff.next(),
            _ => now + self.max_wait,
        };
    }

    /// An update was sent on a path; counts it if it was an opening.
    pub(super) fn on_sent_by(&mut self, by: PathId) {
        let is_opening = self.must_open(by);
        if let Some(path) = self.paths.get_mut(usize::from(by.0)) {
            path.openings = (path.openings + u8::from(is_opening)).min(MAX_OPENINGS);
        }
    }

    /// An opening was sent on its first path. The next one is not sent before `earliest`.
    pub(super) fn on_sent(&mut self, now: Time, earliest: Time) {
        if self.prompted_by == PathSet::EMPTY {
            self.paths.iter_mut().for_each(|path| path.is_prompted = false);
        }
        self.on_attempt(now);
        self.next_at = self.next_at.max(earliest);
    }

    /// An opening was sent, or transports are renewed as there is no connection.
    pub(super) fn on_attempt(&mut self, now: Time) {
        self.next_at = now + self.backoff.next();
        (self.prompted_by, self.step) = (PathSet::EMPTY, Step::Idle);
        self.reach = Reach::Opening { attempts: self.backoff.attempts() };
    }

    /// The session must be opened again, and not before `earliest`.
    pub(super) fn again(&mut self, now: Time, earliest: Time) {
        (self.prompted_by, self.step) = (PathSet::EMPTY, Step::Idle);
        if !self.is_short_lived(now) {
            self.short_lives = 0;
            self.backoff.reset(0);
            self.next_at = now.max(earliest);
        } else {
            // Another source may use our name at the monitor: two sources that displace each other
            // at once would never stop. Attempts before the opening do not count: an outage is no
            // sign of this.
            self.backoff.reset(self.short_lives);
            self.short_lives = self.short_lives.saturating_add(1);
            self.next_at = now + self.backoff.next();
        }
        self.reach = Reach::Opening { attempts: self.backoff.attempts() };
    }

    /// An opening is due: asks for a renewal of transports, if that may help.
    pub(super) fn on_due(&mut self, is_any_down: bool) {
        if self.step == Step::Idle {
            let all = self.are_transports_in_doubt();
            self.renewal = (all || is_any_down).then_some(all).or(self.renewal);
            self.step = if all || is_any_down { Step::Announced } else { Step::Ready };
        }
    }

    /// An opening is due, and no path is up: asks for a renewal of transports.
    pub(super) fn on_due_without_path(&mut self, now: Time) {
        self.renewal = Some(self.are_transports_in_doubt());
        self.on_attempt(now);
    }

    /// Whether the driver must renew transports now: all (`true`) or only those down.
    pub(super) fn poll_renewal(&mut self) -> Option<bool> {
        if self.step == Step::Announced {
            self.step = Step::Ready;
        }
        self.renewal.take()
    }

    fn prompt(&mut self, now: Time, earliest: Time, by: PathId) {
        self.prompted_by = self.prompted_by.with(by);
        self.next_at = now.max(earliest);
    }

    // ---- timers and requests ----

    /// When the next opening is due, while the session is not open.
    pub(super) fn next_at(&self) -> Time {
        self.next_at
    }

    /// Whether the opening that is due may be sent.
    pub(super) fn is_ready(&self) -> bool {
        self.step == Step::Ready
    }

    /// The paths of the next opening; all paths if empty.
    pub(super) fn prompted_by(&self) -> PathSet {
        self.prompted_by
    }

    // ---- getters ----

    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        matches!(self.reach, Reach::Open)
    }

    /// Whether the session was opened so recently that another opening waits.
    pub(super) fn is_short_lived(&self, now: Time) -> bool {
        now.since(self.opened_at) < self.max_wait
    }

    pub(super) fn opened_at(&self) -> Time {
        self.opened_at
    }

    pub(super) fn cookie(&self, by: PathId) -> Cookie {
        self.paths.get(usize::from(by.0)).map_or(Cookie::default(), |path| path.cookie)
    }

    /// Whether updates on a path carry the opening.
    pub(super) fn must_open(&self, by: PathId) -> bool {
        let is_unproven = |path: &PathOpening| path.is_unproven;
        !self.is_open() || self.paths.get(usize::from(by.0)).is_some_and(is_unproven)
    }

    /// Whether the session was just opened on a faster path: messages on a slower path may have
    /// been sent before. If they are still valid, the next challenge repeats them, or silence
    /// follows.
    pub(super) fn is_just_open(&self, now: Time) -> bool {
        self.is_open() && self.paths.len() > 1 && now.since(self.opened_at) < self.silence
    }

    /// Whether openings have been unanswered for so long that the transports may be broken; false
    /// if a challenge, or a connection that is ready, triggers the next one.
    fn are_transports_in_doubt(&self) -> bool {
        let is_due = matches!(self.reach, Reach::Opening { attempts }
            if attempts > 0 && attempts.is_multiple_of(RENEW_AFTER));
        is_due && self.prompted_by == PathSet::EMPTY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathId = PathId::FIRST;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn opener(paths: usize) -> Opener {
        let mut opener = Opener::new(&SourceParams::default(), 7, Time::ZERO);
        opener.set_paths(paths);
        opener
    }

    #[test]
    fn every_third_opening_without_an_answer_asks_for_all_transports_anew() {
        let mut opener = opener(1);
        for attempt in 0..7 {
            opener.on_due(false);
            let expected = (attempt > 0 && attempt % 3 == 0).then_some(true);
            assert_eq!(opener.is_ready(), expected.is_none(), "attempt {attempt}");
            assert_eq!(opener.poll_renewal(), expected, "attempt {attempt}");
            assert!(opener.is_ready() && opener.poll_renewal().is_none());
            opener.on_sent(opener.next_at(), Time::ZERO);
        }
        opener.on_due(true);
        assert_eq!(opener.poll_renewal(), Some(false), "one that is down, whatever the number");
    }

    #[test]
    fn a_challenge_brings_one_opening_forward_and_not_the_next() {
        let mut opener = opener(1);
        opener.on_sent(at(0), at(0));
        let cookie = |number| Cookie([number; 16]);
        assert!(!opener.on_challenge(at(10), at(0), PATH, cookie(1)));
        assert_eq!((opener.next_at(), opener.cookie(PATH)), (at(10), cookie(1)));
        opener.on_sent(at(10), at(0));
        let next_at = opener.next_at();
        opener.on_challenge(at(20), at(0), PATH, cookie(2));
        assert_eq!(opener.next_at(), next_at, "the backoff holds");
    }

    #[test]
    fn a_late_challenge_by_a_slower_path_does_not_open_again() {
        for (paths, again) in [(1, true), (2, false)] {
            let mut opener = opener(paths);
            opener.on_opened(at(10), PATH);
            let cookie = Cookie([1; 16]);
            assert_eq!(opener.on_challenge(at(20), at(0), PATH, cookie), again, "{paths} paths");
        }
    }
}
