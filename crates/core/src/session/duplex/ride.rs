//! Acks that ride on (are appended to) updates of the other direction.
//!
//! An end that answers states with its own states, such as a controller, would send two datagrams
//! in quick succession. Instead, the ack waits for the update, for at most 1 ms, and is sent in the
//! same datagram. The waiting time is in the ack's hold time
//! ([`Ack::hold`](crate::wire::Ack::hold)), so round trips do not grow. Acks wait only if that is
//! useful: after an update was sent within 1 ms after each of eight consecutive acks, and until an
//! ack has waited in vain. Otherwise two flows of several hundred updates per second would meet by
//! chance, and a law that counts unacknowledged updates, such as ACP+, would slow down because of
//! waiting acks.

use alloc::vec::Vec;

use crate::dscp::Dscp;
use crate::session::monitor::TakenAck;
use crate::session::source::Transmit;
use crate::unit::{Span, Time};
use crate::wire::{Ack, put_rider};

/// The maximum waiting time of an ack: a program needs about 100 µs to answer a state.
const PATIENCE: Span = Span::from_millis(1);
/// The number of consecutive acks that updates must follow at once before the next ack waits.
const IN_A_ROW: u8 = 8;
/// The maximum length of a datagram with its rider: every path carries it without fragmentation.
const MAX_LEN: usize = 1_200;

/// The acks to one peer.
#[derive(Debug)]
pub(super) struct Ride<P> {
    waiting: Option<TakenAck<P>>,
    /// The number of consecutive acks that were followed by an update at once, up to [`IN_A_ROW`].
    followed: u8,
    /// The last ack sent without waiting, unless an update has followed on which it could have
    /// ridden.
    answered: Option<Answered<P>>,
}

/// When an ack was sent, to which peer, and with which code point.
#[derive(Debug)]
struct Answered<P> {
    at: Time,
    peer: P,
    dscp: Dscp,
}

/// The datagram of a source that is sent next.
pub(super) struct Leaving<'a, P> {
    pub(super) peer: &'a P,
    pub(super) transmit: &'a Transmit,
    /// The longest datagram that its transport carries.
    pub(super) max_len: usize,
}

impl<P: Copy + PartialEq> Ride<P> {
    pub(super) fn new() -> Self {
        Self { waiting: None, followed: 0, answered: None }
    }

    /// An ack is due; returns the acks to send now, the older one first.
    pub(super) fn pass(
        &mut self,
        now: Time,
        ack: TakenAck<P>,
    ) -> impl Iterator<Item = TakenAck<P>> {
        let former = self.waiting.take();
        if former.is_some() || self.answered.is_some() {
            self.followed = 0;
        }
        let ack = if self.followed == IN_A_ROW {
            self.waiting = Some(ack);
            None
        } else {
            self.answered = Some(Answered { at: now, peer: ack.peer, dscp: ack.dscp });
            Some(ack)
        };
        former.into_iter().chain(ack)
    }

    /// The ack that has waited in vain.
    pub(super) fn pass_overdue(&mut self, now: Time) -> Option<TakenAck<P>> {
        self.poll_timeout().filter(|at| *at <= now)?;
        self.followed = 0;
        self.waiting.take()
    }

    /// When to call [`Ride::pass_overdue`].
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.waiting.as_ref().map(|answer| answer.received_at + PATIENCE)
    }

    /// Appends the waiting ack to the update in `out`, if it has the same peer and code point and
    /// there is room; returns the length of both.
    pub(super) fn board(
        &mut self,
        now: Time,
        Leaving { peer, transmit, max_len }: &Leaving<'_, P>,
        out: &mut Vec<u8>,
    ) -> usize {
        let len = transmit.len + Ack::LEN_OF_PARTS;
        if len > MAX_LEN.min(*max_len) || transmit.seq.is_none() {
            return transmit.len;
        }
        let goes_along = |to: &P, dscp: Dscp| *to == **peer && dscp == transmit.dscp;
        if let Some(answered) = self.answered.take_if(|it| goes_along(&it.peer, it.dscp)) {
            let is_at_once = now.since(answered.at) <= PATIENCE;
            self.followed = if is_at_once { (self.followed + 1).min(IN_A_ROW) } else { 0 };
        }
        let taken = self.waiting.take_if(|waiting| goes_along(&waiting.peer, waiting.dscp));
        let Some(TakenAck { received_at, ack, .. }) = taken else { return transmit.len };
        put_rider(&Ack { hold: now.since(received_at), ..ack }, out, transmit.len);
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathId;
    use crate::wire::{Marks, Message, SessionId, rider};
    use alloc::vec;

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000_000 + micros * 1_000)
    }

    fn ack(micros: u64) -> TakenAck<u8> {
        let ack = Ack {
            session: SessionId(7),
            seq: micros,
            sent_at: at(0),
            received_at: at(micros),
            hold: Span::ZERO,
            was_fresh: true,
            fresh: 1,
            stale: 0,
            missing: 0,
            marks: Marks::default(),
            parts: None,
        };
        let (peer, dscp) = (1, Dscp::DEFAULT);
        TakenAck { received_at: at(micros), peer, dscp, ack }
    }

    fn update(len: usize) -> Transmit {
        Transmit { path: PathId::FIRST, len, dscp: Dscp::DEFAULT, seq: Some(1), is_copy: false }
    }

    fn board(ride: &mut Ride<u8>, micros: u64, len: usize, out: &mut Vec<u8>) -> usize {
        let leaving = Leaving { peer: &1, transmit: &update(len), max_len: 9_000 };
        ride.board(at(micros), &leaving, out)
    }

    /// A ride whose next ack waits.
    fn ride() -> Ride<u8> {
        let (mut ride, mut out) = (Ride::new(), vec![0; 100]);
        for number in 0..8 {
            assert_eq!(ride.pass(at(number * 100), ack(number * 100)).count(), 1);
            assert_eq!(board(&mut ride, number * 100 + 50, 100, &mut out), 100);
        }
        ride
    }

    #[test]
    fn an_ack_waits_once_updates_have_followed_others_at_once() {
        let (mut ride, mut out) = (ride(), vec![0; 100]);
        assert_eq!(ride.pass(at(10_000), ack(10_000)).count(), 0);
        assert_eq!(ride.poll_timeout(), Some(at(11_000)));
        let len = board(&mut ride, 10_300, 100, &mut out);
        assert_eq!(len, 100 + Ack::LEN_OF_PARTS);
        assert_eq!(ride.poll_timeout(), None);
        let Ok(Message::Ack(ack)) = Message::parse(&out[100..len]) else { panic!("no ack") };
        assert_eq!((ack.seq, ack.hold), (10_000, Span::from_micros(300)));
        // The datagram does not begin with an update, so it has no rider.
        assert_eq!(rider(&out[..len]), None);
    }

    #[test]
    fn an_ack_that_has_waited_in_vain_leaves_and_the_next_ones_do_not_wait() {
        // Either its time has passed, or another ack has come: then both are sent, in order.
        let mut ride_1 = ride();
        assert_eq!(ride_1.pass(at(20_000), ack(20_000)).count(), 0);
        assert!(ride_1.pass_overdue(at(20_999)).is_none());
        assert!(ride_1.pass_overdue(at(21_000)).is_some());
        let mut ride_2 = ride();
        assert_eq!(ride_2.pass(at(20_000), ack(20_000)).count(), 0);
        let leave = ride_2.pass(at(20_500), ack(20_500)).map(|answer| answer.received_at);
        assert!(leave.eq([at(20_000), at(20_500)]));
        for mut ride in [ride_1, ride_2] {
            assert_eq!(ride.pass(at(40_000), ack(40_000)).count(), 1);
        }
    }

    #[test]
    fn one_ack_that_no_update_follows_at_once_begins_the_row_anew() {
        let mut out = vec![0; 100];
        for late in [Some(1_200), None] {
            let mut ride = Ride::new();
            for number in 0..15 {
                let now = number * 10_000;
                assert_eq!(ride.pass(at(now), ack(now)).count(), 1, "{number}");
                let after = if number == 7 { late } else { Some(500) };
                if let Some(after) = after {
                    board(&mut ride, now + after, 100, &mut out);
                }
            }
        }
    }

    #[test]
    fn updates_that_go_elsewhere_or_with_another_code_point_follow_no_ack() {
        let mut out = vec![0; 100];
        let dscp = "EF".parse().expect("it is a code point");
        for (peer, transmit) in [(2, update(100)), (1, Transmit { dscp, ..update(100) })] {
            let mut ride = Ride::new();
            for number in 0..20 {
                let now = at(number * 100);
                assert_eq!(ride.pass(now, ack(number * 100)).count(), 1, "{number}: {transmit:?}");
                let leaving = Leaving { peer: &peer, transmit: &transmit, max_len: 9_000 };
                assert_eq!(ride.board(now, &leaving, &mut out), 100);
            }
        }
    }

    #[test]
    fn an_ack_does_not_ride_where_it_does_not_fit_or_belong() {
        let mut out = vec![0; 1_200];
        // Long updates do not make acks wait, as these could not ride on them.
        let mut beside_long = Ride::new();
        for number in 0..20 {
            assert_eq!(beside_long.pass(at(number * 100), ack(number * 100)).count(), 1);
            assert_eq!(board(&mut beside_long, number * 100, 1_150, &mut out), 1_150);
        }
        let mut ride = ride();
        assert_eq!(ride.pass(at(2_000), ack(2_000)).count(), 0);
        let dscp = "EF".parse().expect("it is a code point");
        let (plain, marked) = (update(100), Transmit { dscp, ..update(100) });
        let close = Transmit { seq: None, ..plain };
        for (peer, transmit, max_len) in
            [(&2, &plain, 9_000), (&1, &marked, 9_000), (&1, &close, 9_000), (&1, &plain, 150)]
        {
            let leaving = Leaving { peer, transmit, max_len };
            assert_eq!(ride.board(at(2_100), &leaving, &mut out), 100);
        }
        assert_eq!(board(&mut ride, 2_100, 100, &mut out), 172);
    }
}
