//! The way back from a rate to which losses or a queue have brought a source, once both are gone.
//!
//! At one update in 2 s a round takes 16 s, and a step up is at most a quarter of the rate: by rounds alone a
//! source would be slow for minutes after a flood has passed. So with less than a quarter of an update in transit it
//! climbs again as soon as 4 updates in a row have told that the path is free: none was lost between them, and each
//! waited for less than an update keeps the narrowest hop. Behind the first of them each leaves a round trip after
//! the ack of the one before. In a crowd that fills the path few updates wait so little, the climb ends with the
//! first queue or loss, and the next one takes twice as many updates, until the source is slow no more.

use super::counts::Counted;
use super::{Stage, Tenth};
use crate::source::RateLaw;
use crate::unit::{Span, Time};

/// So many updates in a row tell it,
const IN_A_ROW: u32 = 4;

/// at most so many.
const MAX_IN_A_ROW: u32 = 64;

/// The climb begins with so many in transit; a source that has more goes on by rounds.
const BACK: f64 = 0.25;

/// By so much the rate is to rise.
const WORTH: f64 = 1.25;

/// What the updates of a slow source tell.
#[derive(Debug, Clone)]
pub(super) struct Free {
    /// Those in a row that say so.
    in_a_row: u32,
    /// Their longest round trip.
    rtt: Span,
    /// So many are needed.
    needed: u32,
}

impl Default for Free {
    fn default() -> Self {
        Self { in_a_row: 0, rtt: Span::ZERO, needed: IN_A_ROW }
    }
}

impl Free {
    /// Something says otherwise, or nothing is heard.
    pub(super) fn reset(&mut self) {
        (self.in_a_row, self.rtt) = (0, Span::ZERO);
    }
}

impl Tenth {
    /// An update that left alone was acknowledged: what was lost since the one before it, and how long it waited, s.
    /// Says whether the climb begins again.
    pub(super) fn see_free(&mut self, now: Time, since: Counted, wait: f64) -> bool {
        if since.lost > 0.0 {
            self.free.reset();
        }
        if self.service.min_pair().is_none_or(|service| wait >= service) {
            self.free.reset();
            return false;
        }
        self.free.in_a_row = self.free.in_a_row.saturating_add(1);
        self.free.rtt = self.free.rtt.max(self.rtt);
        if self.free.in_a_row < self.free.needed {
            return false;
        }
        let is_slow = self.is_slow();
        let (srtt, rate) = (self.free_srtt(), BACK / self.free_srtt());
        self.free.reset();
        if !is_slow {
            self.free.needed =
                if self.stage == Stage::Steering { IN_A_ROW } else { self.free.needed };
            return false;
        }
        self.free.needed = (2 * self.free.needed).min(MAX_IN_A_ROW);
        // What the queue was, and how far apart pairs came in it, is over.
        (self.srtt, self.wait, self.pair_gap) = (srtt, 0.0, 0.0);
        self.losses.forget();
        self.set_rate(rate);
        (self.stage, self.unpaired) = (Stage::Climbing, 0);
        self.begin_round(now);
        true
    }

    /// Whether the next update helps to tell that the path is free.
    pub(super) fn is_confirming(&self) -> bool {
        self.free.in_a_row > 0 && self.is_slow()
    }

    fn is_slow(&self) -> bool {
        let back = (BACK / self.free_srtt()).min(self.params.bounds.ceiling.per_second());
        self.stage == Stage::Steering && WORTH * self.rate().per_second() < back
    }

    /// The smoothed round trip; the longest one of the updates in a row if that is out of date.
    fn free_srtt(&self) -> f64 {
        let longest = self.free.rtt.as_secs_f64();
        if longest > 0.0 && self.is_outdated() { longest.min(self.srtt) } else { self.srtt }
    }
}
