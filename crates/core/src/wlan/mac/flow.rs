//! The packets from one station to another: the queue, and the window of it that a block
//! acknowledgement covers.
//!
//! ```text
//!  front                                    back
//!  ▼                                        ▼
//!  waiting(3) received received waiting(1) │ waiting(0) waiting(0) …
//!  └──────── window: the first 64 ────────┘   attempts in brackets
//! ```
//!
//! The sender's queue and the receiver's reorder buffer are one deque. A received packet stays
//! until all earlier packets have been received or given up, so packets leave in order. The sender
//! can be at most one window ahead of the first missing MPDU, as the standard's sequence numbers
//! demand (IEEE 802.11-2016, 10.24.7).
//!
//! A queue with a discipline is in front of the deque ([`Front`]): packets are taken from there as
//! a frame is built.
//!
//! Packets of one MPDU are adjacent, and the first holds the state of all. They are combined at
//! their first transmission, from the packets queued then, and stay together: they arrive, are sent
//! again and are given up as one. An MPDU expires when its newest packet expires (10.12).

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::frame::{Framing, Received};
use super::front::Front;
use super::mode::Mode;
use super::msdu::{Msdu, State, Window};
use super::rate::RateControl;
use crate::router::{CodelControl, CodelLaw, Drop, DropReason, Drops, Packet, Qdisc};
use crate::unit::{Bytes, Packets, Span, Time};

/// CoDel in mac80211 (`ieee80211_txq_setup_flows`). It does not drop the only packet of a queue, so
/// the backlog is counted in packets.
const CODEL: CodelControl = CodelControl {
    target: Span::from_millis(20),
    interval: Span::from_millis(100),
    max_packet: Bytes::ZERO,
};

/// The packets of one category between two stations.
#[derive(Debug)]
pub(super) struct StationQueue<P> {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) rate: RateControl,
    /// The modes among which `rate` chooses.
    pub(super) candidates: Box<[Candidate]>,
    /// Whether it is in the list of turns of its sender.
    pub(super) has_turn: bool,
    codel: CodelLaw,
    front: Front<P>,
    msdus: VecDeque<Msdu<P>>,
}

/// A mode in which a flow may send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) mode: Mode,
    /// The duration of the response to one MPDU, and to several.
    pub(super) responses: [Span; 2],
    /// The logarithm of the probability that a bit is received without error, without interference.
    pub(super) log_success: f64,
}

/// One transmission.
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    pub(super) psdu: Bytes,
    pub(super) mpdus: usize,
    pub(super) packets: usize,
    pub(super) retries: u64,
}

/// The part of a transmission that was received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) mpdus: usize,
    pub(super) packets: usize,
}

impl<P: Packet> StationQueue<P> {
    pub(super) fn new(
        from: u32,
        to: u32,
        (rate, candidates): (RateControl, Box<[Candidate]>),
        front: Front<P>,
    ) -> Self {
        Self {
            from,
            to,
            rate,
            candidates,
            has_turn: false,
            codel: CodelLaw::default(),
            front,
            msdus: VecDeque::new(),
        }
    }

    /// The number of packets queued, in flight, or held at the receiver behind a missing one.
    pub(super) fn len(&self) -> usize {
        self.msdus.len() + self.front.backlog().packets.get() as usize
    }

    /// Whether nothing is left to send. Between transmissions, the first packet is always one to be
    /// sent.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a drop-tail queue is at its limit.
    pub(super) fn is_full(&self) -> bool {
        match self.front {
            Front::DropTail(limit) => Packets::new(self.msdus.len() as u64) >= limit,
            Front::Discipline(_) => false,
        }
    }

    /// Queues a packet.
    pub(super) fn enqueue(
        &mut self,
        now: Time,
        packet: P,
        framing: &Framing,
        drops: &mut Drops<'_, P>,
    ) {
        match &mut self.front {
            Front::DropTail(_) => {
                let size = framing.mpdu(packet.size());
                self.push(now, packet, size);
            }
            Front::Discipline(queue) => queue.enqueue(now, packet, drops),
        }
    }

    /// Appends a packet whose MPDU has this size.
    fn push(&mut self, now: Time, packet: P, size: Bytes) {
        let state = State::Queued;
        self.msdus.push_back(Msdu { packet, size, since: now, tries: 0, packets: 1, state });
    }

    /// Takes packets from the discipline, at least one, and appends them to the packets to be sent
    /// until they fill a frame of `room`. The last one may be too long for it and begins the next
    /// frame.
    pub(super) fn fill(
        &mut self,
        now: Time,
        framing: &Framing,
        room: Bytes,
        drops: &mut Drops<'_, P>,
    ) {
        if self.front.backlog().packets == Packets::ZERO {
            return;
        }
        let msdus = usize::from(framing.max_msdus);
        let [of_frame, of_window] = [framing.max_mpdus, Framing::BLOCK].map(|mpdus| mpdus * msdus);
        let to_send = self.msdus.iter().filter(|msdu| msdu.state.is_to_send() && msdu.packets > 0);
        let (mut packets, mut bytes) = to_send.fold((0, Bytes::ZERO), |(packets, bytes), msdu| {
            (packets + usize::from(msdu.packets), bytes + msdu.size)
        });
        while packets == 0 || (packets < of_frame && bytes < room) {
            if self.msdus.len() >= of_window {
                return;
            }
            let Some(packet) = self.front.dequeue(now, drops) else { return };
            let size = framing.mpdu(packet.size());
            (packets, bytes) = (packets + 1, bytes + size);
            self.push(now, packet, size);
        }
    }

    /// The number of attempts of the first packet.
    pub(super) fn tries(&self) -> u8 {
        self.msdus.front().map_or(0, |mpdu| mpdu.tries)
    }

    /// The size of the first MPDU.
    pub(super) fn first_size(&self) -> Bytes {
        self.msdus.front().map_or(Bytes::ZERO, |mpdu| mpdu.size)
    }

    /// Drops packets at the front of a drop-tail queue that were queued before `horizon`, and
    /// delivers packets that were held back behind a dropped one.
    pub(super) fn expire(
        &mut self,
        horizon: Time,
        drops: &mut Drops<'_, P>,
        deliver: &mut impl FnMut(P, Received),
    ) {
        if let Front::Discipline(_) = self.front {
            return;
        }
        let is_old = |first: &Msdu<P>| first.state.is_to_send() && first.since < horizon;
        while self.msdus.front().is_some_and(is_old) {
            self.give_up(0, DropReason::Lifetime, drops);
            self.release(deliver);
        }
    }

    /// Lets CoDel drop packets at the front of a drop-tail queue that were not transmitted yet.
    /// Call before each first transmission.
    pub(super) fn manage(
        &mut self,
        now: Time,
        drops: &mut Drops<'_, P>,
        deliver: &mut impl FnMut(P, Received),
    ) {
        if let Front::Discipline(_) = self.front {
            return;
        }
        while let Some(first) = self.msdus.front().filter(|first| first.state == State::Queued) {
            let behind = Bytes::new(self.msdus.len() as u64 - 1);
            if !self.codel.strikes(&CODEL, now, now.since(first.since), behind) {
                return;
            }
            self.give_up(0, DropReason::Congestion, drops);
            self.release(deliver);
        }
        if self.msdus.is_empty() {
            self.codel.on_empty();
        }
    }

    /// Transmits the first packet to be sent, and as many more of the window as `framing` and the
    /// airtime allow.
    pub(super) fn transmit(&mut self, framing: &Framing, mode: &Mode, on_air: Span) -> Burst {
        let mut burst = Burst { psdu: Bytes::ZERO, mpdus: 0, packets: 0, retries: 0 };
        let most = framing.room(mode, on_air);
        let mut first = Bytes::ZERO;
        let mut window = Window::default();
        while let Some(index) = window.next(&self.msdus) {
            let state = self.msdus[index].state;
            if !state.is_to_send() {
                continue;
            }
            if burst.mpdus == framing.max_mpdus {
                break;
            }
            if state == State::Queued && framing.max_msdus > 1 {
                self.join(index, framing, most, burst.psdu);
            }
            let mpdu = &mut self.msdus[index];
            let psdu = framing.appended(burst.psdu, mpdu.size);
            if burst.mpdus > 0 && psdu > most {
                break;
            }
            if burst.mpdus == 0 {
                first = mpdu.size;
            }
            mpdu.state = State::OnAir;
            burst.psdu = psdu;
            burst.mpdus += 1;
            burst.packets += usize::from(mpdu.packets);
            burst.retries += u64::from(mpdu.tries > 0);
        }
        if burst.mpdus == 1 {
            burst.psdu = framing.single(first);
        }
        burst
    }

    /// Adds the packets after the one at `index` to its MPDU, as long as the MPDU fits behind
    /// `before` into an A-MPDU of `most`. None of them was transmitted before.
    fn join(&mut self, index: usize, framing: &Framing, most: Bytes, before: Bytes) {
        let (mut size, mut packets) = (self.msdus[index].size, self.msdus[index].packets);
        while packets < framing.max_msdus {
            let Some(next) = self.msdus.get_mut(index + usize::from(packets)) else { break };
            // The packet's own MPDU header is not needed any more.
            let packet = next.size - framing.mpdu(Bytes::ZERO);
            let joined = framing.joined(size, packets, packet);
            if joined > framing.max_amsdu_mpdu() || framing.appended(before, joined) > most {
                break;
            }
            next.packets = 0;
            let since = next.since;
            (size, packets) = (joined, packets + 1);
            self.msdus[index].since = since;
        }
        (self.msdus[index].size, self.msdus[index].packets) = (size, packets);
    }

    /// Asks for each MPDU on the air in `frame`, given its size, when it ended if it was received.
    /// Returns the number received, and delivers all packets up to the first missing one: each at
    /// the end of its MPDU, or of the last MPDU for which it was held back (10.24.7.6.2).
    pub(super) fn receive(
        &mut self,
        frame: Received,
        mut received: impl FnMut(Bytes) -> Option<Time>,
        deliver: &mut impl FnMut(P, Received, Time),
    ) -> Taken {
        let mut taken = Taken::default();
        let mut window = Window::default();
        while let Some(index) = window.next(&self.msdus) {
            let mpdu = &mut self.msdus[index];
            if mpdu.state != State::OnAir {
                continue;
            }
            if let Some(ended) = received(mpdu.size) {
                mpdu.state = State::Received(frame, ended);
                taken.mpdus += 1;
                taken.packets += usize::from(mpdu.packets);
            }
        }
        let mut at = Time::ZERO;
        self.release_each(&mut |packet, frame, ended| {
            at = at.max(ended);
            deliver(packet, frame, at);
        });
        taken
    }

    /// The MPDUs still on the air have failed: they are to be sent again, or dropped at the retry
    /// limit.
    pub(super) fn settle(
        &mut self,
        retry_limit: Option<u8>,
        drops: &mut Drops<'_, P>,
        deliver: &mut impl FnMut(P, Received),
    ) {
        let mut window = Window::default();
        while let Some(index) = window.next(&self.msdus) {
            if self.msdus[index].state == State::OnAir {
                self.msdus[index].state = State::Waiting;
                if self.fail(index, retry_limit, drops) {
                    window = window.without(index);
                }
            }
        }
        self.release(deliver);
    }

    /// The first MPDU lost the medium to a higher category of its own station, which counts as
    /// an attempt.
    pub(super) fn fail_first(
        &mut self,
        retry_limit: Option<u8>,
        drops: &mut Drops<'_, P>,
        deliver: &mut impl FnMut(P, Received),
    ) {
        self.fail(0, retry_limit, drops);
        self.release(deliver);
    }

    /// Counts a failure of the MPDU at `index`; returns whether it was dropped.
    fn fail(&mut self, index: usize, retry_limit: Option<u8>, drops: &mut Drops<'_, P>) -> bool {
        let mpdu = &mut self.msdus[index];
        mpdu.tries = mpdu.tries.saturating_add(1);
        if retry_limit.is_none_or(|limit| mpdu.tries < limit) {
            return false;
        }
        self.give_up(index, DropReason::RetryLimit, drops);
        true
    }

    /// Drops all packets of the MPDU at `index`.
    fn give_up(&mut self, index: usize, reason: DropReason, drops: &mut Drops<'_, P>) {
        let packets = self.msdus.get(index).map_or(0, |first| first.packets);
        for _ in 0..packets {
            if let Some(msdu) = self.msdus.remove(index) {
                drops(Drop { packet: msdu.packet, reason });
            }
        }
    }

    fn release(&mut self, deliver: &mut impl FnMut(P, Received)) {
        self.release_each(&mut |packet, frame, _| deliver(packet, frame));
    }

    /// Delivers received packets up to the first missing one, each at the end of its MPDU.
    fn release_each(&mut self, deliver: &mut impl FnMut(P, Received, Time)) {
        while let Some(&Msdu { state: State::Received(frame, ended), packets, .. }) =
            self.msdus.front()
        {
            for _ in 0..packets {
                if let Some(msdu) = self.msdus.pop_front() {
                    deliver(msdu.packet, frame, ended);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::BitRate;
    use crate::wlan::mac::{Access, Guard, Standard, Width};
    use alloc::vec;
    use alloc::vec::Vec;

    impl Packet for u32 {
        fn size(&self) -> Bytes {
            Bytes::new(1000)
        }
    }

    fn flow(packets: u32) -> StationQueue<u32> {
        let front = Front::DropTail(Packets::new(1000));
        let mut flow = StationQueue::new(0, 1, (RateControl::Fixed(0), [].into()), front);
        for packet in 0..packets {
            flow.push(Time::ZERO, packet, Bytes::new(1000));
        }
        flow
    }

    fn send(flow: &mut StationQueue<u32>) -> usize {
        let mode = Mode::ht(7, Width::Mhz20, Guard::Long).unwrap();
        flow.transmit(
            &Framing::new(Standard::N, &Access::EDCA, 64),
            &mode,
            Span::from_micros(5_484),
        )
        .mpdus
    }

    fn frame(millis: u64) -> Received {
        Received { at: Time::ZERO + Span::from_millis(millis), rate: BitRate::from_mbps(65) }
    }

    /// Settles one burst of which all but the `lost` MPDUs arrive: the delivered and the dropped
    /// packets.
    fn outcome(flow: &mut StationQueue<u32>, lost: &[usize]) -> (Vec<u32>, Vec<u32>) {
        let (mut delivered, mut dropped, mut index) = (Vec::new(), Vec::new(), 0);
        let arrives = |_| {
            index += 1;
            (!lost.contains(&(index - 1))).then_some(frame(1).at)
        };
        flow.receive(frame(1), arrives, &mut |packet, _, _| delivered.push(packet));
        let drops = &mut |drop: Drop<u32>| dropped.push(drop.packet);
        flow.settle(Some(2), drops, &mut |packet, _| delivered.push(packet));
        (delivered, dropped)
    }

    #[test]
    fn a_missing_mpdu_holds_back_those_behind_it() {
        let mut flow = flow(4);
        assert_eq!(send(&mut flow), 4);
        assert_eq!(outcome(&mut flow, &[1]), (vec![0], vec![]));
        assert_eq!(send(&mut flow), 1);
        assert_eq!(outcome(&mut flow, &[]), (vec![1, 2, 3], vec![]));
    }

    #[test]
    fn what_was_held_back_came_in_its_own_frame() {
        let mut flow = flow(2);
        let mut came = Vec::new();
        for (millis, lost) in [(1, Some(0)), (2, None)] {
            send(&mut flow);
            let mut index = 0;
            let arrives = |_| {
                index += 1;
                (Some(index - 1) != lost).then_some(frame(millis).at)
            };
            flow.receive(frame(millis), arrives, &mut |packet, frame, _| {
                came.push((packet, frame));
            });
            flow.settle(None, &mut |_| (), &mut |_, _| ());
        }
        assert_eq!(came, [(0, frame(2)), (1, frame(1))]);
    }

    #[test]
    fn packets_leave_at_the_end_of_their_mpdu_or_of_the_last_one_they_waited_for() {
        let at = |micros| Time::ZERO + Span::from_micros(micros);
        let mut flow = flow(4);
        // The second of four is lost, and is sent again later.
        let mut came = Vec::new();
        for (millis, ends) in
            [(1, &[Some(100), None, Some(300), Some(400)][..]), (2, &[Some(1_500)])]
        {
            send(&mut flow);
            let mut ends = ends.iter();
            let arrives = |_| ends.next().copied().flatten().map(at);
            flow.receive(frame(millis), arrives, &mut |packet, _, at| came.push((packet, at)));
            flow.settle(None, &mut |_| (), &mut |_, _| ());
        }
        assert_eq!(came, [(0, at(100)), (1, at(1_500)), (2, at(1_500)), (3, at(1_500))]);
    }

    #[test]
    fn a_packet_that_is_given_up_frees_those_behind_it() {
        let mut flow = flow(3);
        send(&mut flow);
        assert_eq!(outcome(&mut flow, &[0]), (vec![], vec![]));
        send(&mut flow);
        assert_eq!(outcome(&mut flow, &[0]), (vec![1, 2], vec![0]));
        assert!(flow.is_empty());
    }

    #[test]
    fn the_sender_is_at_most_a_window_ahead_of_what_is_missing() {
        let mut flow = flow(100);
        assert_eq!(send(&mut flow), 44, "5.484 ms at 65 Mbit/s");
        outcome(&mut flow, &[0]);
        assert_eq!(send(&mut flow), 1 + 20);
    }

    /// Like [`send`], with up to `max_msdus` packets an MPDU: MPDUs and packets.
    fn send_joined(flow: &mut StationQueue<u32>, max_msdus: u8) -> (usize, usize) {
        let mode = Mode::vht(9, 2, Width::Mhz80, Guard::Long).unwrap();
        let framing = Framing::new(Standard::Ac, &Access::EDCA, 64).with_msdus(max_msdus);
        let burst = flow.transmit(&framing, &mode, Span::from_micros(5_484));
        (burst.mpdus, burst.packets)
    }

    #[test]
    fn packets_of_one_mpdu_share_its_fate() {
        let mut flow = flow(5);
        assert_eq!(send_joined(&mut flow, 2), (3, 5));
        assert_eq!(outcome(&mut flow, &[1]), (vec![0, 1], vec![]));
        flow.push(Time::ZERO, 5, Bytes::new(1000));
        // 2 and 3 stay together; 4 was received and waits for them; 5 is new and alone.
        assert_eq!(send_joined(&mut flow, 2), (2, 3));
        assert_eq!(outcome(&mut flow, &[0]), (vec![4, 5], vec![2, 3]));
        assert!(flow.is_empty());
    }

    #[test]
    fn a_frame_has_as_many_packets_as_its_mpdus_take() {
        let mut paired = flow(200);
        assert_eq!(send_joined(&mut paired, 2), (64, 128));
        assert_eq!(send_joined(&mut flow(200), 1), (64, 64));
        // Eleven of them fill 11454 bytes, and eighteen such MPDUs 5.484 ms; the last MPDU fills
        // the rest.
        let (mpdus, packets) = send_joined(&mut flow(1000), 32);
        assert!(packets > 11 * (mpdus - 1) && packets <= 11 * mpdus, "{mpdus} {packets}");
    }

    #[test]
    fn an_mpdu_is_too_old_once_its_newest_packet_is() {
        let mut flow = flow(1);
        flow.push(Time::from_nanos(5), 1, Bytes::new(1000));
        send_joined(&mut flow, 2);
        outcome(&mut flow, &[0]);
        let mut dropped = Vec::new();
        for horizon in [5, 6] {
            let drops = &mut |drop: Drop<u32>| dropped.push((horizon, drop.packet));
            flow.expire(Time::from_nanos(horizon), drops, &mut |_, _| ());
        }
        assert_eq!(dropped, [(6, 0), (6, 1)]);
    }

    /// CoDel drops nothing within an interval above the target, then one packet; never one that was
    /// transmitted, and never the only one.
    #[test]
    fn codel_drops_the_first_packet_of_a_standing_queue() {
        let dropped_at = |flow: &mut StationQueue<u32>, ms: u64| {
            let mut dropped = Vec::new();
            let drops = &mut |drop: Drop<u32>| {
                assert_eq!(drop.reason, DropReason::Congestion);
                dropped.push(drop.packet);
            };
            let now = Time::ZERO + Span::from_millis(ms);
            flow.manage(now, drops, &mut |_, _| ());
            dropped
        };
        let mut standing = flow(5);
        let dropped = [19, 20, 119, 120, 121].map(|ms| dropped_at(&mut standing, ms));
        assert_eq!(dropped, [vec![], vec![], vec![], vec![0], vec![]]);
        // The second comes an interval later.
        assert_eq!([219, 220].map(|ms| dropped_at(&mut standing, ms)), [vec![], vec![1]]);
        send(&mut standing);
        outcome(&mut standing, &[]);
        assert_eq!(dropped_at(&mut standing, 1000), vec![], "it was on the air");
        assert_eq!([0, 120, 1000].map(|ms| dropped_at(&mut flow(1), ms)), [vec![], vec![], vec![]]);
    }

    #[test]
    fn old_packets_are_dropped_and_free_those_behind_them() {
        let mut flow = flow(2);
        flow.push(Time::from_nanos(5), 2, Bytes::new(1000));
        send(&mut flow);
        outcome(&mut flow, &[0, 2]);
        let (mut delivered, mut dropped) = (Vec::new(), Vec::new());
        let drops = &mut |drop: Drop<u32>| dropped.push((drop.packet, drop.reason));
        flow.expire(Time::from_nanos(5), drops, &mut |packet, _| delivered.push(packet));
        assert_eq!((delivered, dropped), (vec![1], vec![(0, DropReason::Lifetime)]));
        assert_eq!(flow.len(), 1);
    }
}
