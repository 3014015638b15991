//! The departure time of the next update. An update leaves when the pacer is due, except:
//!
//! - later, with too many updates in transit ([`BEYOND`]), and in an outage;
//! - later, in a common pause (`pauses`);
//! - sooner, while the source's own queue drains, or if the smoothed round trip, and so the rate,
//!   is out of date.

use super::{AMPLE, Tenth};
use crate::source::RateLaw;
use crate::unit::{Span, Time, UpdateRate};

/// This multiple of the target number in transit may be in transit, and two more.
const BEYOND: f64 = 1.5;

/// Bounds of the longest time between updates without an ack, which is 8 round trips: an outage is
/// over when an update comes through.
const OUTAGE: [Span; 2] = [Span::from_millis(250), Span::from_secs(2)];

/// In an outage the next update leaves after this fraction of the time without an ack,
const PART: u64 = 8;

/// or after this one while losses are random, or are being tested: another update then fills no
/// queue;
const RANDOM_PART: u64 = 32;

/// but not before this number of periods of the former rate is over.
const PERIODS: u64 = 2;

/// An outage starts after this number of round trips without an ack: behind a growing queue acks
/// are late, but they still arrive.
const LATE: u64 = 2;

/// After losses the next update leaves after another time without an ack, at most this long.
const CROWDED: Span = Span::from_secs(2);

/// The smoothed round trip is out of date if it is longer than this number of newest ones. In
/// crowds, where round trips vary, it seldom is: with 2 instead of 4 the updates of `wifi-near-48`
/// in `fresher/families` are a seventh older.
const OUTDATED: f64 = 4.0;

/// More adjacent updates than this were alone in the queue.
const OWN: u32 = 8;

/// While the queue drains, at most one update is sent per this number of updates that arrive.
const REFILL: f64 = 4.0;

/// A new source takes part in the pauses for this time.
const NEW: Span = Span::from_secs(10);

/// Later it does only with a queueing delay of this number of services, or losses: alone on a path
/// it need not.
const PAUSING: f64 = 2.0;

impl Tenth {
    /// When the next update may leave with too many in transit; otherwise at once.
    fn reopens_at(&self) -> Time {
        let (newest, left_at) = self.newest_sent;
        let in_transit = newest.saturating_sub(self.newest_acked.unwrap_or(newest)) as f64;
        if in_transit < BEYOND * self.in_transit + 2.0 {
            return Time::ZERO;
        }
        let (srtt, silence) = (Span::from_secs_f64(self.srtt), self.silence());
        let wait = if self.is_clean() {
            let [shortest, longest] = OUTAGE;
            let gap = if self.is_outage() { self.pace().period() * PERIODS } else { srtt };
            let is_random = self.losses.are_random() || self.is_testing();
            let part = if is_random { RANDOM_PART } else { PART };
            let most = (srtt * 8).clamp(shortest, longest);
            (silence / part).min(most).max(gap.min(longest))
        } else {
            silence.min(CROWDED).max(srtt)
        };
        left_at + wait
    }

    /// When the next update leaves: when it is due, unless it has to wait or may leave sooner.
    pub(super) fn leaves_at(&self) -> Time {
        let earliest = self.resumes_at.max(self.reopens_at());
        let due = self.pacer.next_at(self.pace()).max(earliest);
        let due = self.behind_pause(due, self.rate().period());
        let sooner = [self.drains_at(), self.answers_at(earliest)].into_iter().flatten().min();
        let spaced = self.newest_sent.1 + self.params.bounds.ceiling.period();
        sooner.map_or(due, |at| due.min(at.max(spaced)))
    }

    /// When an update may leave while the source's own queue drains, whatever the number in
    /// transit: updates sent after those in the queue may be lost.
    fn drains_at(&self) -> Option<Time> {
        let left_at = self.newest_sent.1;
        let gap = self.delays.min_rtt().max(REFILL * self.service.usual_pair()?);
        let gap = Span::from_secs_f64(gap);
        let at = self.heard_at.max(left_at + gap).max(self.resumes_at);
        (self.is_draining() && left_at < self.heard_at).then(|| self.behind_pause(at, gap))
    }

    /// Whether the source's own queue drains.
    pub(super) fn is_draining(&self) -> bool {
        let is_late = |service: f64| {
            self.ahead > (OUTDATED * self.delays.min_rtt()).max(f64::from(OWN) * service)
        };
        self.service.in_a_row() > OWN && self.service.usual_pair().is_some_and(is_late)
    }

    /// When an update may leave with nothing in transit, if the smoothed round trip is out of date
    /// or the path may be free: one newest round trip after the newest ack. Half an update per
    /// round trip is safe then.
    fn answers_at(&self, earliest: Time) -> Option<Time> {
        let may_leave = self.is_outdated() && self.is_clean() || self.is_confirming();
        let answers = may_leave && self.newest_acked == Some(self.newest_sent.0);
        answers.then(|| self.behind_pause((self.heard_at + self.rtt).max(earliest), self.rtt))
    }

    /// Whether the smoothed round trip is out of date.
    pub(super) fn is_outdated(&self) -> bool {
        OUTDATED * self.rtt.as_secs_f64() < self.srtt
    }

    /// The time from the newest ack to the departure of the newest update.
    fn silence(&self) -> Span {
        let left_at = self.newest_sent.1;
        left_at.since(self.heard_at.min(left_at))
    }

    fn is_outage(&self) -> bool {
        self.silence() > Span::from_secs_f64(self.srtt) * LATE
    }

    /// The rate at which updates leave. In an outage it is the rate before, as the gate alone
    /// spaces them.
    pub(super) fn pace(&self) -> UpdateRate {
        let before = self.before_silence.filter(|_| self.is_outage());
        before.map_or_else(|| self.rate(), |(_, rate)| self.yielding_bounds().clamp(rate))
    }

    /// `at`, or the first time after the pause that contains it, in steps of `period`: so a crowd
    /// sends less then, and not at one time.
    fn behind_pause(&self, at: Time, period: Span) -> Time {
        let is_new = at.since(self.began_at.min(at)) < NEW;
        let deep = PAUSING * self.service.least().unwrap_or(0.0);
        let pauses = self.in_transit < AMPLE && (is_new || !self.was_clean || self.wait > deep);
        let Some(end) = self.pauses.end(at, self.srtt).filter(|_| pauses) else { return at };
        let skipped = end.since(at).as_nanos() / period.as_nanos().max(1) + 1;
        at + period * skipped
    }
}
