//! The round-trip time and the queueing delay in the device of each acknowledged packet of a path,
//! for equation (2.2) of QAware ([`freshline_core::path::QAware`]).
//!
//! ```text
//!   packet sent ─► expected delay kept by number ─► ACK frame: that of its largest new packet
//!                                                     └─► the round trip that noq-proto took from it
//! ```
//!
//! # Where sources are silent
//!
//! - **One sample per ACK frame**, of its largest newly acknowledged packet: by the rule of RFC
//!   9002, section 5.1, only that packet's round-trip time is known without the time for which the
//!   far end held the ack.
//! - **noq-proto 1.4.0 does not give the sample** to a congestion controller, only the smoothed
//!   round-trip time, and that after the frame: sample = 8 · new − 7 · old (RFC 9002, section 5.3).
//!   It is exact within 16 ns. Without the subtraction of the ack delay, a path with few packets
//!   would look slower by up to 25 ms.
//! - **The queueing delay** comes from the stamp of the packet's departure
//!   ([`Departures`](crate::via::Departures)), if the kernel gave one before the ack. Otherwise it
//!   is the meter's estimate when the packet is sent: n / dequeue rate, from byte queue limits if
//!   the driver has them. A packet that is sent into a blocked queue, whose rate is unknown, then
//!   gives no sample.
//! - **A queue behind the driver's entry**, such as that of a Wi-Fi device per station: a stamp
//!   does not include it, so the estimate counts.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use freshline_core::path::{Acked, LastStamp};
use freshline_core::unit::Span;

/// Maximum number of packets in flight whose delays are kept; beyond it the oldest are dropped.
const MAX_IN_FLIGHT: usize = 1 << 14;

/// The queueing delay of a packet before its departure is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Expected {
    /// `None` if unknown.
    pub(super) wait: Option<Span>,
    /// No stamp replaces it: the packet queues behind the driver's entry.
    pub(super) is_final: bool,
}

/// The queueing delay of a packet in flight, and whether it comes from a stamp.
type Wait = (Expected, bool);

/// The packets of one path.
#[derive(Debug, Default)]
pub(super) struct QueueingDelays {
    /// For a packet that is sent now.
    next: Expected,
    /// Packet numbers, in rising order, and queueing delays.
    in_flight: VecDeque<(u64, Wait)>,
    /// The packet that was sent last, and when.
    sent: Option<(u64, Instant)>,
    /// The last queueing delay by a stamp.
    stamped: LastStamp,
    /// The largest number that was acknowledged.
    largest: Option<u64>,
    /// The queueing delay of the largest newly acknowledged packet, whose round-trip time is to
    /// come.
    newest: Option<Option<Span>>,
    /// The ACK frame that acknowledged it has been read to its end.
    is_frame_over: bool,
    /// The smoothed round-trip time before that.
    before: Option<Duration>,
    acked: Vec<Acked>,
}

impl QueueingDelays {
    /// Sets the time in the device queue of packets that are sent from now on.
    pub(super) fn expect(&mut self, expected: Expected) {
        self.next = expected;
    }

    pub(super) fn on_sent(&mut self, number: u64, now: Instant) {
        if self.in_flight.len() == MAX_IN_FLIGHT {
            self.in_flight.pop_front();
        }
        // Packets are searched by number, and the numbers restart after the handshake.
        if self.in_flight.back().is_some_and(|(last, _)| *last >= number) {
            self.in_flight.clear();
            self.largest = None;
        }
        self.in_flight.push_back((number, (self.next, false)));
        self.sent = (!self.next.is_final).then_some((number, now));
    }

    /// The packet sent since the last call, and when, if a stamp would give its queueing delay.
    pub(super) fn take_sent(&mut self) -> Option<(u64, Instant)> {
        self.sent.take()
    }

    /// A packet left its device this time after it was sent.
    pub(super) fn on_left(&mut self, number: u64, wait: Span) {
        if let Ok(at) = self.in_flight.binary_search_by_key(&number, |(number, _)| *number) {
            self.in_flight[at].1 = (Expected { wait: Some(wait), is_final: true }, true);
        }
    }

    /// The last queueing delay by a stamp, if such stamps arrive.
    pub(super) fn stamped(&self) -> Option<Span> {
        self.stamped.wait()
    }

    /// A packet that asks for an ack is acknowledged; `smoothed` is the round-trip time as of the
    /// frame before.
    pub(super) fn on_acked(&mut self, number: u64, smoothed: Duration) {
        self.settle(smoothed);
        if self.largest.is_some_and(|largest| number <= largest) {
            return;
        }
        self.largest = Some(number);
        let at = self.in_flight.binary_search_by_key(&number, |(number, _)| *number);
        let Ok(at) = at else { return };
        let (Expected { wait, .. }, is_stamped) = self.in_flight[at].1;
        self.stamped.on_acked(wait.filter(|_| is_stamped));
        self.newest = Some(wait);
        // Packets with lower numbers are acknowledged too, or lost, or give no sample any more.
        self.in_flight.drain(..=at);
    }

    /// The frame has been read; the smoothed round-trip time includes it from now on.
    pub(super) fn on_frame_over(&mut self) {
        self.is_frame_over = true;
    }

    /// Sets the smoothed round-trip time after the last complete frame.
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
    use crate::clock::Clock;

    const MS: Duration = Duration::from_millis(1);

    fn now() -> Instant {
        let clock = Clock::new();
        clock.instant_of(clock.now())
    }

    fn acked(round_trip: u64, wait: u64) -> Acked {
        let [round_trip, wait] = [round_trip, wait].map(Span::from_millis);
        Acked { round_trip, wait }
    }

    fn send(delays: &mut QueueingDelays, number: u64, wait: u64) {
        delays.expect(Expected { wait: Some(Span::from_millis(wait)), is_final: false });
        delays.on_sent(number, now());
    }

    #[test]
    fn the_largest_packet_of_a_frame_gives_its_round_trip_and_its_wait() {
        let mut delays = QueueingDelays::default();
        for (number, wait) in [(0, 0), (1, 3), (2, 5), (4, 7)] {
            send(&mut delays, number, wait);
        }
        // Before the first sample noq-proto gives its initial 333 ms.
        delays.on_acked(0, 333 * MS);
        delays.on_acked(1, 333 * MS);
        delays.on_frame_over();
        delays.settle(40 * MS);
        assert_eq!(delays.take(), [acked(40, 3)]);
        // The next frame, which the one after shows: (7 · 40 + 48)/8 = 41.
        delays.on_acked(2, 40 * MS);
        delays.on_frame_over();
        assert_eq!(delays.take(), []);
        delays.on_acked(4, 41 * MS);
        assert_eq!(delays.take(), [acked(48, 5)]);
        // And by the connection.
        delays.on_frame_over();
        delays.settle(41 * MS);
        assert_eq!(delays.take(), [acked(41, 7)]);
        delays.settle(41 * MS);
        assert_eq!(delays.take(), []);
    }

    #[test]
    fn reordered_blocked_and_unknown_packets_give_no_sample() {
        let mut delays = QueueingDelays::default();
        send(&mut delays, 0, 1);
        delays.expect(Expected::default());
        delays.on_sent(1, now());
        send(&mut delays, 2, 1);
        for number in [1, 0, 9] {
            delays.on_acked(number, 20 * MS);
            delays.on_frame_over();
            delays.settle(20 * MS);
        }
        assert_eq!(delays.take(), []);
    }

    #[test]
    fn a_stamp_replaces_the_expected_wait_and_without_stamps_that_counts_again() {
        let mut delays = QueueingDelays::default();
        let ack = |delays: &mut QueueingDelays, number, left: Option<u64>| {
            send(delays, number, 3);
            let (sent, _) = delays.take_sent().unwrap();
            assert_eq!((sent, delays.take_sent()), (number, None));
            left.into_iter().for_each(|wait| delays.on_left(number, Span::from_millis(wait)));
            delays.on_acked(number, 40 * MS);
            delays.on_frame_over();
            delays.settle(40 * MS);
            delays.take()
        };
        assert_eq!((ack(&mut delays, 0, None), delays.stamped()), (vec![acked(40, 3)], None));
        let stamped = Some(Span::from_millis(9));
        assert_eq!((ack(&mut delays, 1, Some(9)), delays.stamped()), (vec![acked(40, 9)], stamped));
        // Too late: it is acknowledged.
        delays.on_left(1, Span::from_millis(1));
        for without in 1..=32 {
            assert_eq!(delays.stamped(), stamped);
            assert_eq!(ack(&mut delays, 1 + without, None), [acked(40, 3)]);
        }
        assert_eq!(delays.stamped(), None);
        // Behind the driver's entry, stamps are not used.
        delays.expect(Expected { wait: Some(Span::from_millis(3)), is_final: true });
        delays.on_sent(100, now());
        assert_eq!(delays.take_sent(), None);
    }

    #[test]
    fn memory_is_bounded_and_numbers_may_start_anew() {
        let mut delays = QueueingDelays::default();
        (0..2 * MAX_IN_FLIGHT as u64).for_each(|number| send(&mut delays, number, 1));
        assert_eq!(delays.in_flight.len(), MAX_IN_FLIGHT);
        send(&mut delays, 0, 2);
        delays.on_acked(0, 20 * MS);
        delays.on_frame_over();
        delays.settle(20 * MS);
        assert_eq!(delays.take(), [acked(20, 2)]);
    }
}
