//! The packets of one station for another one: the queue, and the part of it that a block
//! acknowledgement covers.
//!
//! ```text
//!  front                                    back
//!  ▼                                        ▼
//!  waiting(3) received received waiting(1) │ waiting(0) waiting(0) …
//!  └──────── window: the first 64 ────────┘   tries in brackets
//! ```
//!
//! Sender's queue and receiver's reorder buffer are one deque. What was received stays until
//! everything before it was received too or given up, so packets leave in order. The sender can
//! be at most a window ahead of the first packet that is missing, as the standard's sequence
//! numbers demand (IEEE 802.11-2016, 10.24.7).

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::frame::{Framing, Received};
use super::mode::Mode;
use super::rate::RateControl;
use crate::router::{Drop, DropReason, Drops};
use crate::unit::{Bytes, Span, Time};

/// The packets of one category between two stations.
#[derive(Debug)]
pub(super) struct Flow<P> {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) rate: RateControl,
    /// What `rate` chooses from.
    pub(super) candidates: Box<[Candidate]>,
    /// Whether it waits for its turn among the flows of its sender, or has it.
    pub(super) has_turn: bool,
    mpdus: VecDeque<Mpdu<P>>,
}

/// A mode in which a flow may send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) mode: Mode,
    /// How long the response to one MPDU takes, and that to more.
    pub(super) responses: [Span; 2],
    /// The logarithm of the probability that a bit gets through undisturbed.
    pub(super) log_success: f64,
}

#[derive(Debug)]
struct Mpdu<P> {
    packet: P,
    size: Bytes,
    since: Time,
    tries: u8,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    OnAir,
    Received(Received),
}

/// What goes on the air at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    pub(super) psdu: Bytes,
    pub(super) mpdus: usize,
    pub(super) retries: u64,
}

impl<P> Flow<P> {
    pub(super) fn new(
        from: u32,
        to: u32,
        (rate, candidates): (RateControl, Box<[Candidate]>),
    ) -> Self {
        Self { from, to, rate, candidates, has_turn: false, mpdus: VecDeque::new() }
    }

    /// How many packets are queued, in flight, or held at the receiver behind a missing one.
    pub(super) fn len(&self) -> usize {
        self.mpdus.len()
    }

    /// Whether nothing is left to send. Between transmissions the first packet always waits.
    pub(super) fn is_empty(&self) -> bool {
        self.mpdus.is_empty()
    }

    /// Queues a packet whose MPDU has this size.
    pub(super) fn push(&mut self, now: Time, packet: P, size: Bytes) {
        self.mpdus.push_back(Mpdu { packet, size, since: now, tries: 0, state: State::Waiting });
    }

    /// How often the first packet was sent.
    pub(super) fn tries(&self) -> u8 {
        self.mpdus.front().map_or(0, |mpdu| mpdu.tries)
    }

    /// The size of the first MPDU.
    pub(super) fn first_size(&self) -> Bytes {
        self.mpdus.front().map_or(Bytes::ZERO, |mpdu| mpdu.size)
    }

    /// Drops what is first in the queue since before `horizon`, and delivers what waited for it.
    pub(super) fn expire(
        &mut self,
        horizon: Time,
        drops: &mut Drops<'_, P>,
        deliver: &mut impl FnMut(P, Received),
    ) {
        let is_old = |mpdu: &Mpdu<P>| mpdu.state == State::Waiting && mpdu.since < horizon;
        while self.mpdus.front().is_some_and(is_old) {
            if let Some(expired) = self.mpdus.pop_front() {
                drops(Drop { packet: expired.packet, reason: DropReason::Lifetime });
            }
            self.release(deliver);
        }
    }

    /// Puts the first waiting packet on the air, and more of the window behind it as far as
    /// `framing` and the time on the air allow.
    pub(super) fn transmit(&mut self, framing: &Framing, mode: &Mode, on_air: Span) -> Burst {
        let mut burst = Burst { psdu: Bytes::ZERO, mpdus: 0, retries: 0 };
        let most = match framing.max_mpdus {
            1 => Bytes::ZERO,
            _ => mode.capacity(on_air).min(framing.max_ampdu()),
        };
        let mut first = Bytes::ZERO;
        for mpdu in self.mpdus.iter_mut().take(Framing::BLOCK) {
            if mpdu.state != State::Waiting {
                continue;
            }
            let psdu = framing.appended(burst.psdu, mpdu.size);
            if burst.mpdus > 0 && (burst.mpdus == framing.max_mpdus || psdu > most) {
                break;
            }
            if burst.mpdus == 0 {
                first = mpdu.size;
            }
            mpdu.state = State::OnAir;
            burst.psdu = psdu;
            burst.mpdus += 1;
            burst.retries += u64::from(mpdu.tries > 0);
        }
        if burst.mpdus == 1 {
            burst.psdu = framing.single(first);
        }
        burst
    }

    /// Asks for each MPDU on the air in `frame`, given its size, whether it was received; returns
    /// how many were, and delivers those that nothing holds back.
    pub(super) fn receive(
        &mut self,
        frame: Received,
        mut received: impl FnMut(Bytes) -> bool,
        deliver: &mut impl FnMut(P, Received),
    ) -> usize {
        let mut count = 0;
        for mpdu in self.mpdus.iter_mut().take(Framing::BLOCK) {
            if mpdu.state == State::OnAir && received(mpdu.size) {
                mpdu.state = State::Received(frame);
                count += 1;
            }
        }
        self.release(deliver);
        count
    }

    /// What is still on the air has failed: it waits again, or is dropped at the limit.
    pub(super) fn settle(
        &mut self,
        retry_limit: Option<u8>,
        drops: &mut Drops<'_, P>,
        deliver: &mut impl FnMut(P, Received),
    ) {
        let mut index = 0;
        while index < self.mpdus.len().min(Framing::BLOCK) {
            if self.mpdus[index].state == State::OnAir {
                self.mpdus[index].state = State::Waiting;
                if self.fail(index, retry_limit, drops) {
                    continue;
                }
            }
            index += 1;
        }
        self.release(deliver);
    }

    /// The first packet lost the medium to a higher category of its own station, which counts as
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

    /// Counts a failure; whether the packet was dropped for it.
    fn fail(&mut self, index: usize, retry_limit: Option<u8>, drops: &mut Drops<'_, P>) -> bool {
        let mpdu = &mut self.mpdus[index];
        mpdu.tries = mpdu.tries.saturating_add(1);
        if retry_limit.is_none_or(|limit| mpdu.tries < limit) {
            return false;
        }
        if let Some(mpdu) = self.mpdus.remove(index) {
            drops(Drop { packet: mpdu.packet, reason: DropReason::RetryLimit });
        }
        true
    }

    fn release(&mut self, deliver: &mut impl FnMut(P, Received)) {
        while let Some(State::Received(frame)) = self.mpdus.front().map(|mpdu| mpdu.state) {
            if let Some(mpdu) = self.mpdus.pop_front() {
                deliver(mpdu.packet, frame);
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

    fn flow(packets: u32) -> Flow<u32> {
        let mut flow = Flow::new(0, 1, (RateControl::Fixed(0), [].into()));
        for packet in 0..packets {
            flow.push(Time::ZERO, packet, Bytes::new(1000));
        }
        flow
    }

    fn send(flow: &mut Flow<u32>) -> usize {
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

    /// Settles one burst of which all but the `lost` MPDUs arrive: what is delivered and dropped.
    fn outcome(flow: &mut Flow<u32>, lost: &[usize]) -> (Vec<u32>, Vec<u32>) {
        let (mut delivered, mut dropped, mut index) = (Vec::new(), Vec::new(), 0);
        let arrives = |_| {
            index += 1;
            !lost.contains(&(index - 1))
        };
        flow.receive(frame(1), arrives, &mut |packet, _| delivered.push(packet));
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
                Some(index - 1) != lost
            };
            flow.receive(frame(millis), arrives, &mut |packet, frame| came.push((packet, frame)));
            flow.settle(None, &mut |_| (), &mut |_, _| ());
        }
        assert_eq!(came, [(0, frame(2)), (1, frame(1))]);
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
