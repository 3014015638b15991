//! The opening of a session: by which paths it leaves, how soon, and when the next one follows.
//!
//! ```text
//!   again ──► next_at ── due, transports renewed ──► opening leaves ── ack ──► open
//!               ▲                                        │
//!               └── backoff: 0.2, 0.4 … 2 s; a new challenge: at once, by that path alone
//! ```
//!
//! An opening may leave once the driver has had the chance to make transports anew
//! ([`Step::Announced`]): its answer comes to the socket that it left from. While no path can carry
//! anything, the renewal itself counts as an attempt: the first redial is immediate, and repeated
//! failures back off.

use alloc::vec::Vec;

use super::types::{Reach, SourceParams};
use crate::path::{PathId, PathSet};
use crate::session::backoff::{Backoff, Step};
use crate::unit::{Span, Time};
use crate::wire::{CloseReason, Cookie};

/// Openings without an answer after which all transports are made anew: the host may have moved to
/// another network.
const RENEW_AFTER: u32 = 3;

/// The most [`PathOpening::openings`] that count: a monitor that has forgotten us by a path on which
/// openings were lost is believed after so many challenges.
const MAX_OPENINGS: u8 = 3;

/// How one path stands with the monitor while a session is opened.
#[derive(Debug, Clone, Copy, Default)]
struct PathOpening {
    /// The last challenge's by this path: a cookie is good for one address.
    cookie: Cookie,
    /// Openings that left by it since its last ack, and have no answer; a few count as a few.
    openings: u8,
    /// Whether the session is open by another path and not yet by this one. Its updates carry the
    /// opening then, as the monitor may take a session only from connections that have opened it.
    is_unproven: bool,
    /// Whether a challenge has brought an opening forward since the last one that was due by itself.
    /// It can do so once: a monitor that sends a new cookie with each challenge must not set the pace.
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
    /// How many times in a row it had to be opened again soon after.
    short_lives: u32,
    /// While opening: when to try next.
    next_at: Time,
    /// And by which paths alone, if challenges by them are the reason.
    prompted_by: PathSet,
    /// By the numbers of the paths.
    paths: Vec<PathOpening>,
    step: Step,
    /// Which transports the driver is asked to make anew: all (`true`), or those that are down.
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

    /// An ack has come by a path.
    pub(super) fn on_ack(&mut self, by: PathId) {
        if let Some(path) = self.paths.get_mut(usize::from(by.0)) {
            (path.openings, path.is_unproven) = (0, false);
        }
    }

    /// The ack that opens the session has come by a path.
    pub(super) fn on_opened(&mut self, now: Time, by: PathId) {
        (self.reach, self.opened_at, self.step) = (Reach::Open, now, Step::Idle);
        self.renewal = None;
        for (path, opening) in self.paths.iter_mut().enumerate() {
            opening.is_unproven = path != usize::from(by.0);
        }
    }

    /// A challenge has come by a path; whether the session must be opened again. Openings leave not
    /// before `earliest`.
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
        // Another path was faster, and the session is open by now; what left before that, by the
        // slower one, may still be challenged.
        let is_overtaken = several && (path.openings > 0 || path.is_unproven || is_just_open);
        path.cookie = cookie;
        path.openings = path.openings.saturating_sub(1);
        if self.reach == Reach::Open {
            return !is_overtaken;
        }
        // The same cookie twice means that it was not accepted: then the backoff holds.
        if is_new && !core::mem::replace(&mut path.is_prompted, true) {
            self.prompt(now, earliest, by);
        }
        false
    }

    /// A path can carry datagrams (again): an opening that is pending goes out by it now.
    pub(super) fn on_path_ready(&mut self, now: Time, earliest: Time, by: PathId) {
        if self.reach != Reach::Open {
            self.prompt(now, earliest, by);
        } else if let Some(path) = self.paths.get_mut(usize::from(by.0)) {
            path.is_unproven = true;
        }
    }

    /// The monitor has ended the session, which is not open any more.
    pub(super) fn on_close(&mut self, now: Time, reason: CloseReason) {
        self.prompted_by = PathSet::EMPTY;
        self.next_at = match reason {
            CloseReason::Done | CloseReason::ShuttingDown => now + self.backoff.next(),
            _ => now + self.max_wait,
        };
    }

    /// An update has left by a path; counts it if it was an opening.
    pub(super) fn on_sent_by(&mut self, by: PathId) {
        let is_opening = self.must_open(by);
        if let Some(path) = self.paths.get_mut(usize::from(by.0)) {
            path.openings = (path.openings + u8::from(is_opening)).min(MAX_OPENINGS);
        }
    }

    /// An opening has left by its first path. The next one leaves not before `earliest`.
    pub(super) fn on_sent(&mut self, now: Time, earliest: Time) {
        if self.prompted_by == PathSet::EMPTY {
            self.paths.iter_mut().for_each(|path| path.is_prompted = false);
        }
        self.on_attempt(now);
        self.next_at = self.next_at.max(earliest);
    }

    /// An opening has left, or transports are made anew as there is no connection.
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
            // Another source may hold our name at the monitor: two that displace each other at
            // once would never come to rest. What was tried before the opening does not count:
            // an outage says nothing of that.
            self.backoff.reset(self.short_lives);
            self.short_lives = self.short_lives.saturating_add(1);
            self.next_at = now + self.backoff.next();
        }
        self.reach = Reach::Opening { attempts: self.backoff.attempts() };
    }

    /// An opening is due: asks for transports to be made anew, if that may help.
    pub(super) fn on_due(&mut self, is_any_down: bool) {
        if self.step == Step::Idle {
            let all = self.are_transports_in_doubt();
            self.renewal = (all || is_any_down).then_some(all).or(self.renewal);
            self.step = if all || is_any_down { Step::Announced } else { Step::Ready };
        }
    }

    /// An opening is due, and no path can carry it: asks for transports to be made anew.
    pub(super) fn on_due_without_path(&mut self, now: Time) {
        self.renewal = Some(self.are_transports_in_doubt());
        self.on_attempt(now);
    }

    /// Whether the driver shall make transports anew now: all (`true`) or those that are down.
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

    // ---- what it wants ----

    /// When the next opening is due, while the session is not open.
    pub(super) fn next_at(&self) -> Time {
        self.next_at
    }

    /// Whether the opening that is due may leave.
    pub(super) fn is_ready(&self) -> bool {
        self.step == Step::Ready
    }

    /// The paths by which the next opening leaves; all if it is empty.
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

    /// Whether updates by a path carry the opening.
    pub(super) fn must_open(&self, by: PathId) -> bool {
        let is_unproven = |path: &PathOpening| path.is_unproven;
        !self.is_open() || self.paths.get(usize::from(by.0)).is_some_and(is_unproven)
    }

    /// What a slower path brings so soon may have left before the session opened by a faster one. If
    /// it is no rumour, the next challenge tells it again, or silence.
    pub(super) fn is_just_open(&self, now: Time) -> bool {
        self.is_open() && self.paths.len() > 1 && now.since(self.opened_at) < self.silence
    }

    /// Whether openings have gone without an answer for so long that the transports may be to blame;
    /// not where a challenge, or a connection that is ready, asks for the next one.
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
