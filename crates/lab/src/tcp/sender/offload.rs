//! TCP segmentation offload: packets of several segments, as Linux hands them to a queue.
//!
//! ```text
//! segments = min(bytes in 2^-shift s at the pacing rate, most) / segment,    at least 2;   shift: 10, or `pacing_shift`
//! sent     = min(segments, window / 2, window − in flight)
//! ```
//!
//! The size is that of `tcp_tso_autosize` (`tcp_output.c`). A law without a pacing rate gets that
//! of `tcp_update_pacing_rate`: 1.2 windows per smoothed round trip, or 2 while the window is below
//! half of the threshold. The half of the window is `tcp_cwnd_test`'s. While less than a full
//! packet may be sent, the sender defers (`tcp_tso_should_defer`), unless
//!
//! - it recovers from loss, or has sent nothing for 1 ms,
//! - all that is unsent may be sent, or a third of the window may,
//! - the oldest segment in flight was sent less than half a round trip ago, so that the next ack
//!   can take long.
//!
//! Left out: the larger packets of Linux 5.18 and later over less than 8 ms, and the margin that
//! they add to HyStart's train of acks, 0.5 ms at most.

use freshline_core::unit::{Bytes, Span, Time};

use super::Sender;
use crate::tcp::recovery::Cause;

/// How long after the last packet the sender may still wait for a larger one.
const RECENT: Span = Span::from_millis(1);
/// The fraction of the window that is enough (`tcp_tso_win_divisor`).
const WINDOW_DIVISOR: u64 = 3;
/// Below this pacing rate, BBR lets single segments go (`bbr_min_tso_rate`).
const MIN_RATE_OF_TWO: u64 = 1_200_000;

/// Which window allows less than a full packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// The law's.
    Congestion,
    /// The receiver's.
    Receiver,
}

impl Sender {
    /// The maximum number of segments of the next packet, with `room` left in the window.
    pub(super) fn burst(&self, room: u64) -> u64 {
        let Some(most) = self.params.offload else { return 1 };
        let half = (self.window().get() / 2).max(1);
        self.full_burst(most).min(half).min(room).max(1)
    }

    /// The window that makes the sender wait for a larger packet; `None` if it sends now. It waits
    /// only while data is in flight, whose ack lets it decide again.
    pub(super) fn defers(&mut self, now: Time) -> Option<Limit> {
        let most = self.params.offload?;
        let recovers = self.episode.is_some_and(|episode| episode.cause != Cause::Mark);
        if recovers || now.since(self.last_sent_at) > RECENT {
            return None;
        }
        let segment = self.params.segment.get();
        let window = self.window().get();
        let room = window.saturating_sub(self.board.in_flight()) * segment;
        let receive_window = self.window_end.saturating_sub(self.board.acked_to());
        let receive_room = self.window_end.saturating_sub(self.board.sent_to());
        let may_send = room.min(receive_room);
        let a_third = (window * segment).min(receive_window) / WINDOW_DIVISOR;
        let enough = a_third.min(self.full_burst(most) * segment).min(self.unsent());
        if may_send >= enough {
            return None;
        }
        let half = self.rtt.srtt().unwrap_or(Span::ZERO) / 2;
        let limit = if room < receive_room { Limit::Congestion } else { Limit::Receiver };
        let oldest = self.board.oldest_in_flight()?;
        (now.since(oldest.sent_at) >= half).then_some(limit)
    }

    /// The number of segments in a full packet.
    fn full_burst(&self, most: Bytes) -> u64 {
        let bits = self.pacing_bps();
        let shift = self.params.small_queue.map_or(10, |queue| queue.pacing_shift.min(63));
        let least = if bits < MIN_RATE_OF_TWO && self.law.pacing_rate().is_some() { 1 } else { 2 };
        let segment = self.params.segment.get().max(1);
        (((bits / 8) >> shift).min(most.get()) / segment).max(least)
    }

    /// The pacing rate, or that which Linux keeps for a law without one, in bit/s.
    pub(super) fn pacing_bps(&self) -> u64 {
        if let Some(rate) = self.law.pacing_rate() {
            return rate.as_bps();
        }
        let Some(srtt) = self.rtt.srtt().filter(|srtt| !srtt.is_zero()) else { return u64::MAX };
        let window = self.law.window().get();
        let grows_fast =
            self.law.ssthresh().is_some_and(|ssthresh| (window as f64) < ssthresh / 2.0);
        let gain = if grows_fast { 2.0 } else { 1.2 };
        let segments = window.max(self.board.in_flight()) as f64;
        let bytes = segments * self.params.segment.get() as f64;
        (gain * bytes * 8.0 / srtt.as_secs_f64()) as u64
    }
}
