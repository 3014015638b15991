//! Detects that the path is free again, and restarts the ramp-up of a source that losses or a queue
//! have slowed down.
//!
//! At one update in 2 s a round takes some seconds, and a round raises the rate by a quarter at
//! most: by rounds alone a source would be slow long after the end of a flood. A source is slow if
//! less than a fifth of an update is in flight. It restarts the ramp-up after a row of 4 free
//! updates: none was lost, and the queueing delay of each was shorter than the service time of the
//! bottleneck, or than a sixteenth of the base RTT. After the first free update of a row the source
//! sends each further one a round trip after the previous ack. In a crowd that fills the path free
//! updates are rare. Each row that ends with a loss or a queueing delay, and each restart, doubles
//! the required length of the next row, until half an update is in flight.

use super::counts::Counted;
use super::{Stage, Tenth};
use crate::source::RateLaw;
use crate::unit::{Span, Time};

/// The required length of the first row.
const IN_A_ROW: u32 = 4;

/// The maximum of the required length, which doubles after each row that ends early.
const MAX_IN_A_ROW: u32 = 64;

/// Up to this required length, the updates of a row do not wait for the pacer.
const FEW_TRIES: u32 = 8;

/// The number of updates in flight that resets the required length.
const FAST: f64 = 0.5;

/// A shorter queueing delay, in base RTTs, is ignored.
const LITTLE: f64 = 1.0 / 16.0;

/// The number of updates in flight with which the ramp-up restarts.
const BACK: f64 = 0.25;

/// The minimum rate of the restart, 1/s, on paths where that is at most one update in flight.
const LEAST: f64 = 2.0;

/// The ramp-up restarts only if that multiplies the rate by this factor or more.
const WORTH: f64 = 1.25;

/// The current row of free updates.
#[derive(Debug, Clone)]
pub(super) struct Free {
    /// Its length.
    in_a_row: u32,
    /// The maximum round trip of its updates.
    rtt: Span,
    /// The required length.
    needed: u32,
}

impl Default for Free {
    fn default() -> Self {
        Self { in_a_row: 0, rtt: Span::ZERO, needed: IN_A_ROW }
    }
}

impl Free {
    /// Ends the row after a loss, a queueing delay or silence.
    pub(super) fn reset(&mut self) {
        if self.in_a_row > 0 {
            self.needed = (2 * self.needed).min(MAX_IN_A_ROW);
        }
        self.clear();
    }

    fn clear(&mut self) {
        (self.in_a_row, self.rtt) = (0, Span::ZERO);
    }
}

impl Tenth {
    /// An update that left alone was acknowledged; `since`: the losses since the last one, `wait`:
    /// its queueing delay, s. Returns whether the ramp-up restarts.
    pub(super) fn see_free(&mut self, now: Time, since: Counted, wait: f64) -> bool {
        if self.stage == Stage::Steering && !self.is_slow() {
            if self.rate().per_second() * self.srtt > FAST {
                self.free.needed = IN_A_ROW;
            }
            self.free.clear();
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
        // Measurements of the queue, and the distance of pairs in it, are out of date.
        (self.srtt, self.wait, self.pair_gap) = (srtt, 0.0, 0.0);
        self.free.reset();
        self.losses.forget();
        self.set_rate(rate);
        self.climb_again();
        self.begin_round(now);
        true
    }

    /// Whether the next update leaves early to confirm that the path is free. After many rows that
    /// ended early, none does.
    pub(super) fn is_confirming(&self) -> bool {
        self.free.in_a_row > 0 && self.free.needed <= FEW_TRIES && self.is_slow()
    }

    fn is_slow(&self) -> bool {
        self.stage == Stage::Steering && WORTH * self.rate().per_second() < self.back()
    }

    /// The rate at which the ramp-up restarts, 1/s.
    fn back(&self) -> f64 {
        let srtt = self.free_srtt();
        let back = (BACK / srtt).max(LEAST).min(1.0 / srtt);
        back.min(self.params.bounds.ceiling.per_second())
    }

    /// The smoothed round trip; the maximum of the updates in the row if that is out of date.
    fn free_srtt(&self) -> f64 {
        let longest = self.free.rtt.as_secs_f64();
        if longest > 0.0 && self.is_outdated() { longest.min(self.srtt) } else { self.srtt }
    }
}
