//! The round trip and the device wait of each acknowledged packet of a path, for equation (2.2) of
//! QAware ([`freshline_core::path::QAware`]).
//!
//! ```text
//!   packet sent ─► expected wait kept with its number ─► ACK frame: that of its largest new packet
//!                                                          └─► the round trip that noq-proto took from it
//! ```
//!
//! # Where sources are silent
//!
//! - **One sample per ACK frame**, of its largest newly acknowledged packet: by the rule of RFC 9002,
//!   section 5.1, only that packet's round trip is known without the time for which the far end held
//!   the ack.
//! - **noq-proto 1.4.0 does not give the sample** to a congestion controller, only the smoothed round
//!   trip, and that after the frame: sample = 8 · new − 7 · old (RFC 9002, section 5.3). It is exact within
//!   16 ns. Without the subtraction of the ack delay, a path with few packets would look slower by up to 25 ms.
//! - **The wait** is the meter's estimate when the packet is sent: n / dequeue rate. A packet that is
//!   sent into a blocked queue, whose rate is unknown, gives no sample.

use std::collections::VecDeque;
use std::time::Duration;

use freshline_core::path::Acked;
use freshline_core::unit::Span;

/// Packets in flight whose waits are kept, at most; of more, the oldest are forgotten.
const MAX_IN_FLIGHT: usize = 1 << 14;

/// The packets of one path.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// The expected wait of a packet that is sent now.
    next: Option<Span>,
    /// Numbers, which rise, and expected waits.
    in_flight: VecDeque<(u64, Option<Span>)>,
    /// The largest number that was acknowledged.
    largest: Option<u64>,
    /// The wait of the largest newly acknowledged packet, whose round trip is to come.
    newest: Option<Option<Span>>,
    /// The ACK frame that acknowledged it has been read to its end.
    is_frame_over: bool,
    /// The smoothed round trip before that.
    before: Option<Duration>,
    acked: Vec<Acked>,
}

impl Waits {
    /// Packets that are sent from now on are expected to wait for so long in the device queue.
    pub(super) fn expect(&mut self, wait: Option<Span>) {
        self.next = wait;
    }

    pub(super) fn on_sent(&mut self, number: u64) {
        if self.in_flight.len() == MAX_IN_FLIGHT {
            self.in_flight.pop_front();
        }
        // They are looked for by their numbers, which start anew after the handshake.
        if self.in_flight.back().is_some_and(|(last, _)| *last >= number) {
            self.in_flight.clear();
            self.largest = None;
        }
        self.in_flight.push_back((number, self.next));
    }

    /// A packet that asks for an ack is acknowledged; `smoothed` is the round trip as of the frame
    /// before.
    pub(super) fn on_acked(&mut self, number: u64, smoothed: Duration) {
        self.settle(smoothed);
        if self.largest.is_some_and(|largest| number <= largest) {
            return;
        }
        self.largest = Some(number);
        let at = self.in_flight.binary_search_by_key(&number, |(number, _)| *number);
        let Ok(at) = at else { return };
        self.newest = Some(self.in_flight[at].1);
        // Packets with lower numbers are acknowledged too, or lost, or give no sample any more.
        self.in_flight.drain(..=at);
    }

    /// The frame has been read; its round trip is in the smoothed one from now on.
    pub(super) fn on_frame_over(&mut self) {
        self.is_frame_over = true;
    }

    /// The smoothed round trip is this after the last frame that was over.
    pub(super) fn settle(&mut self, smoothed: Duration) {
        if !std::mem::take(&mut self.is_frame_over) {
            return;
        }
        let Some(wait) = self.newest.take() else { return };
        let sample = self.before.map_or(smoothed, |old| (8 * smoothed).saturating_sub(7 * old));
        self.before = Some(smoothed);
        if let Some(wait) = wait {
            self.acked.push(Acked { round_trip: sample.into(), wait });
        }
    }

    /// The samples since the last call.
    pub(super) fn take(&mut self) -> Vec<Acked> {
        std::mem::take(&mut self.acked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn acked(round_trip: u64, wait: u64) -> Acked {
        let [round_trip, wait] = [round_trip, wait].map(Span::from_millis);
        Acked { round_trip, wait }
    }

    fn send(waits: &mut Waits, number: u64, wait: u64) {
        waits.expect(Some(Span::from_millis(wait)));
        waits.on_sent(number);
    }

    #[test]
    fn the_largest_packet_of_a_frame_gives_its_round_trip_and_its_wait() {
        let mut waits = Waits::default();
        for (number, wait) in [(0, 0), (1, 3), (2, 5), (4, 7)] {
            send(&mut waits, number, wait);
        }
        // Before the first sample noq-proto gives its initial 333 ms.
        waits.on_acked(0, 333 * MS);
        waits.on_acked(1, 333 * MS);
        waits.on_frame_over();
        waits.settle(40 * MS);
        assert_eq!(waits.take(), [acked(40, 3)]);
        // The next frame, which the one after shows: (7 · 40 + 48)/8 = 41.
        waits.on_acked(2, 40 * MS);
        waits.on_frame_over();
        assert_eq!(waits.take(), []);
        waits.on_acked(4, 41 * MS);
        assert_eq!(waits.take(), [acked(48, 5)]);
        // And by the connection.
        waits.on_frame_over();
        waits.settle(41 * MS);
        assert_eq!(waits.take(), [acked(41, 7)]);
        waits.settle(41 * MS);
        assert_eq!(waits.take(), []);
    }

    #[test]
    fn reordered_blocked_and_unknown_packets_give_no_sample() {
        let mut waits = Waits::default();
        send(&mut waits, 0, 1);
        waits.expect(None);
        waits.on_sent(1);
        send(&mut waits, 2, 1);
        for number in [1, 0, 9] {
            waits.on_acked(number, 20 * MS);
            waits.on_frame_over();
            waits.settle(20 * MS);
        }
        assert_eq!(waits.take(), []);
    }

    #[test]
    fn memory_is_bounded_and_numbers_may_start_anew() {
        let mut waits = Waits::default();
        (0..2 * MAX_IN_FLIGHT as u64).for_each(|number| send(&mut waits, number, 1));
        assert_eq!(waits.in_flight.len(), MAX_IN_FLIGHT);
        send(&mut waits, 0, 2);
        waits.on_acked(0, 20 * MS);
        waits.on_frame_over();
        waits.settle(20 * MS);
        assert_eq!(waits.take(), [acked(20, 2)]);
    }
}
