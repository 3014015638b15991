//! The way back from a rate to which losses or a queue have brought a source, once both are gone.
//!
//! At one update in 2 s a round takes some seconds, and a step up is at most a quarter of the rate: by rounds alone
//! a source would be slow for long after a flood has passed. So with less than a fifth of an update in transit it
//! climbs again as soon as 4 updates in a row have told that the path is free: none was lost between them, and each
//! waited for less than an update keeps the narrowest hop, or hardly at all. Behind the first of them each leaves a
//! round trip after the ack of the one before. In a crowd that fills the path few updates wait so little. Each row
//! that ends in a queue or a loss, and each climb, doubles how many are needed, until half an update is in transit.

use super::counts::Counted;
use super::{Stage, Tenth};
use crate::source::RateLaw;
use crate::unit::{Span, Time};

/// So many updates in a row tell it,
const IN_A_ROW: u32 = 4;

/// twice as many after each row that ends otherwise, up to so many.
const MAX_IN_A_ROW: u32 = 64;

/// With so many needed the updates of a row still leave sooner.
const FEW_TRIES: u32 = 8;

/// With so many in transit a source has come back.
const FAST: f64 = 0.5;

/// A wait of this part of the least round trip is none.
const LITTLE: f64 = 1.0 / 16.0;

/// The climb begins with so many in transit; a source that has more goes on by rounds;
const BACK: f64 = 0.25;

/// and on long paths with this rate, 1/s, but no more than one update in transit.
const LEAST: f64 = 2.0;

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
        if self.in_a_row > 0 {
            self.needed = (2 * self.needed).min(MAX_IN_A_ROW);
        }
        (self.in_a_row, self.rtt) = (0, Span::ZERO);
    }
}

impl Tenth {
    /// An update that left alone was acknowledged: what was lost since the one before it, and how long it waited, s.
    /// Says whether the climb begins again.
    pub(super) fn see_free(&mut self, now: Time, since: Counted, wait: f64) -> bool {
        if self.stage == Stage::Steering && !self.is_slow() {
            if self.rate().per_second() * self.srtt > FAST {
                self.free.needed = IN_A_ROW;
            }
            (self.free.in_a_row, self.free.rtt) = (0, Span::ZERO);
            return false;
        }
        let service = self.service.min_pair().unwrap_or(0.0);
        if since.lost > 0.0 || wait >= service.max(LITTLE * self.delays.min_rtt()) {
            self.free.reset();
            return false;
        }
        self.free.in_a_row = self.free.in_a_row.saturating_add(1);
        self.free.rtt = self.free.rtt.max(self.rtt);
        if self.free.in_a_row < self.free.needed || !self.is_slow() {
            return false;
        }
        let (srtt, rate) = (self.free_srtt(), self.back());
        // What the queue was, and how far apart pairs came in it, is over.
        (self.srtt, self.wait, self.pair_gap) = (srtt, 0.0, 0.0);
        self.free.reset();
        self.losses.forget();
        self.set_rate(rate);
        (self.stage, self.unpaired) = (Stage::Climbing, 0);
        self.begin_round(now);
        true
    }

    /// Whether the next update helps to tell that the path is free. Where others have often said otherwise, none
    /// leaves sooner for that.
    pub(super) fn is_confirming(&self) -> bool {
        self.free.in_a_row > 0 && self.free.needed <= FEW_TRIES && self.is_slow()
    }

    fn is_slow(&self) -> bool {
        self.stage == Stage::Steering && WORTH * self.rate().per_second() < self.back()
    }

    /// At what rate the climb begins, 1/s.
    fn back(&self) -> f64 {
        let srtt = self.free_srtt();
        let back = (BACK / srtt).max(LEAST).min(1.0 / srtt);
        back.min(self.params.bounds.ceiling.per_second())
    }

    /// The smoothed round trip; the longest one of the updates in a row if that is out of date.
    fn free_srtt(&self) -> f64 {
        let longest = self.free.rtt.as_secs_f64();
        if longest > 0.0 && self.is_outdated() { longest.min(self.srtt) } else { self.srtt }
    }
}
