//! How a session is opened, by which paths, how soon, and when it is opened again.

use super::door::Door;
use super::{PathId, Reach, Source, SourceEvent};
use crate::path::PathSet;
use crate::session::clock_offset::ClockOffset;
use crate::source::RateBounds;
use crate::unit::Time;
use crate::wire::{CloseReason, Cookie, Opening};

impl Source {
    pub(super) fn on_challenge(&mut self, now: Time, by: PathId, cookie: Cookie) -> SourceEvent {
        let several = self.doors.len() > 1;
        let is_just_open = self.is_just_open(now);
        let Some(door) = self.doors.get_mut(usize::from(by.0)) else {
            return SourceEvent::Challenged;
        };
        let first = door.cookie != cookie;
        // Another path was faster, and the session is open by now; what left before that, by the
        // slower one, may still be challenged.
        let is_overtaken = several && (door.openings > 0 || door.is_unproven || is_just_open);
        door.cookie = cookie;
        door.openings = door.openings.saturating_sub(1);
        if self.reach != Reach::Open {
            // The same cookie twice means that it was not accepted: then the backoff holds.
            if first && !core::mem::replace(&mut door.is_prompted, true) {
                self.attempt(now, by);
            }
        } else if !is_overtaken {
            self.open_again(now);
        }
        SourceEvent::Challenged
    }

    /// What a slower path brings so soon may have left before the session opened by a faster one. If
    /// it is no rumour, the next challenge tells it again, or silence.
    pub(super) fn is_just_open(&self, now: Time) -> bool {
        self.reach == Reach::Open
            && self.doors.len() > 1
            && now.since(self.opened_at) < self.params.silence
    }

    /// The next opening goes out now, by one path.
    pub(super) fn attempt(&mut self, now: Time, by: PathId) {
        self.attempt_by = self.attempt_by.with(by);
        self.next_attempt_at = self.paced(now);
    }

    /// `at`, or the earliest time that the bound of the rate allows. Cookies are good for 30 s at least,
    /// so a slower rate than one in [`SourceParams::longest_wait`] does not hold openings up.
    pub(super) fn paced(&self, at: Time) -> Time {
        let rate = self.law.max_rate().unwrap_or(RateBounds::default().ceiling);
        let gap = rate.period().min(self.params.longest_wait);
        self.sent.last().map_or(at, |last| at.max(last.sent_at + gap))
    }

    pub(super) fn on_close(&mut self, now: Time, reason: CloseReason) -> SourceEvent {
        if self.is_just_open(now) {
            return SourceEvent::Closed(reason);
        }
        if self.reach == Reach::Open {
            self.open_again(now);
        }
        self.attempt_by = PathSet::EMPTY;
        self.next_attempt_at = match reason {
            CloseReason::Done | CloseReason::ShuttingDown => now + self.backoff.next(),
            _ => now + self.params.longest_wait,
        };
        SourceEvent::Closed(reason)
    }

    pub(super) fn open_again(&mut self, now: Time) {
        self.attempt_by = PathSet::EMPTY;
        if now.since(self.opened_at) >= self.params.longest_wait {
            self.short_lives = 0;
            self.backoff.reset(0);
            self.next_attempt_at = self.paced(now);
        } else {
            // Somebody else may be at the monitor with our name: two that displace each other at
            // once would never come to rest. What was tried before the opening does not count:
            // an outage says nothing of that.
            self.backoff.reset(self.short_lives);
            self.short_lives = self.short_lives.saturating_add(1);
            self.next_attempt_at = now + self.backoff.next();
        }
        self.reach = Reach::Opening { attempts: self.backoff.attempts() };
        self.unanswered_since = None;
        // The monitor may be another process, with another clock.
        self.clock_offset = ClockOffset::default();
        self.paths.forget_clock();
    }

    /// Whether updates by a path carry the opening.
    pub(super) fn must_open(&self, by: PathId) -> bool {
        let is_unproven = |door: &Door| door.is_unproven;
        self.reach != Reach::Open || self.doors.get(usize::from(by.0)).is_some_and(is_unproven)
    }

    pub(super) fn opening(&self, by: PathId) -> Opening<'_> {
        let cookie =
            self.doors.get(usize::from(by.0)).map_or(Cookie::default(), |door| door.cookie);
        Opening { cookie, name: &self.params.name, token: &self.params.token }
    }
}
