//! The receiving end of a dialer.

use alloc::vec::Vec;
use core::hash::Hash;

use super::ride::{Leaving, Ride};
use crate::session::access::Access;
use crate::session::cookie::Secret;
use crate::session::datagram::Datagram;
use crate::session::monitor::{
    Admission, Ignored, Monitor, MonitorEvent, MonitorParams, MonitorTransmit,
};
use crate::session::source::Transmit;
use crate::unit::Time;
use crate::wire::{Challenge, CloseReason, Heading, Message, Opening, SessionId, Update, heading};

/// Receives the return direction of a [`Source`](crate::session::Source) whose updates request it
/// ([`SourceParams::wants_return`](crate::session::SourceParams)): a monitor of one session, which
/// only the peer of the source's session can open. [`Dialer`](super::Dialer) has both.
#[derive(Debug)]
pub struct Receiver<P> {
    monitor: Monitor<P>,
    ride: Ride<P>,
    /// The secret of its cookies.
    secret: Secret,
}

/// Only the peer of this session may open the return session.
struct Forward(SessionId);

impl Access for Forward {
    fn check(&self, opening: &Opening<'_>) -> Result<u64, CloseReason> {
        let is_peer = opening.token == self.0.0.to_be_bytes();
        is_peer.then_some(0).ok_or(CloseReason::BadToken)
    }
}

impl<P: Copy + Hash + PartialEq> Receiver<P> {
    /// A receiver without a session. It overrides admission and the number of sources in `params`.
    pub fn new(params: MonitorParams, secret: Secret) -> Self {
        let (admission, max_sources) = (Admission::Proven, 1);
        let params = MonitorParams { admission, max_sources, reserved: 0, ..params };
        Self { monitor: Monitor::new(params, secret.clone()), ride: Ride::new(), secret }
    }

    /// A datagram has arrived from the peer of session `forward`. `None` if it is for the source.
    pub fn handle_datagram<'a>(
        &mut self,
        now: Time,
        forward: SessionId,
        by: P,
        datagram: impl Into<Datagram<'a>>,
    ) -> Option<Result<(), Ignored>> {
        let datagram = datagram.into();
        match heading(datagram.bytes)? {
            Heading::Update { session, .. } => {
                let access = Forward(forward);
                if let Some(present) = self.session().filter(|present| *present != session)
                    && let Ok(Message::Update(update)) = Message::parse(datagram.bytes)
                    && !self.may_enter(now, (&by, present), &update, &access)
                {
                    let cookie = self.secret.cookie(now, session, &(&by, present));
                    self.monitor.challenge(now, by, Challenge { session, cookie });
                    return Some(Ok(()));
                }
                let result = self.monitor.handle_checked_datagram(now, by, Some(&access), datagram);
                if let Some(ack) = self.monitor.take_ack(session) {
                    self.ride.pass(now, ack).for_each(|ack| self.monitor.put_back(ack));
                }
                Some(result)
            }
            Heading::Close(session) if session != forward => {
                Some(self.monitor.handle_datagram(now, by, datagram))
            }
            Heading::Answer(_) | Heading::Close(_) => None,
        }
    }

    /// Whether an update of another session than the present one may be passed to the monitor. A
    /// peer that was restarted, or has begun another session, ends the present one by an opening
    /// with a cookie created since the present one began: a delayed or duplicated opening has no
    /// such cookie.
    fn may_enter(
        &mut self,
        now: Time,
        (by, present): (&P, SessionId),
        update: &Update<'_>,
        access: &Forward,
    ) -> bool {
        let Some(opening) = update.opening else { return false };
        if access.check(&opening).is_err() {
            // The monitor refuses it.
            return true;
        }
        let is_proven = self.secret.accepts(opening.cookie, now, update.session, &(by, present));
        if is_proven {
            self.monitor.revoke(now, |_| false);
        }
        is_proven
    }

    /// The present session.
    fn session(&self) -> Option<SessionId> {
        self.monitor.records().map(|(_, record)| record.session).next()
    }

    /// Time has passed. Calls before [`Receiver::poll_timeout`] have no effect.
    pub fn handle_timeout(&mut self, now: Time) {
        self.monitor.handle_timeout(now);
        if let Some(ack) = self.ride.pass_overdue(now) {
            self.monitor.put_back(ack);
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<MonitorEvent<P>> {
        self.monitor.poll_event()
    }

    /// Writes the next answer to the front of `out`, as [`Monitor::poll_transmit`].
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<MonitorTransmit<P>> {
        self.monitor.poll_transmit(now, out)
    }

    /// An update of the source is at the front of `out` and is sent next, on `by`, over a transport
    /// that carries datagrams of `max_len` bytes. Appends an ack that waits for it; returns the
    /// length of both.
    pub fn board(
        &mut self,
        now: Time,
        by: P,
        (update, max_len): (&Transmit, usize),
        out: &mut Vec<u8>,
    ) -> usize {
        self.ride.board(now, &Leaving { peer: &by, transmit: update, max_len }, out)
    }

    /// When to call [`Receiver::handle_timeout`] next; `None` if never.
    pub fn poll_timeout(&self) -> Option<Time> {
        Time::earliest([self.monitor.poll_timeout(), self.ride.poll_timeout()])
    }

    /// The monitor of the received states.
    pub fn monitor(&self) -> &Monitor<P> {
        &self.monitor
    }

    /// The same, to take records.
    pub fn monitor_mut(&mut self) -> &mut Monitor<P> {
        &mut self.monitor
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::unit::Span;
    use crate::wire::{Cookie, Frames};

    const FORWARD: SessionId = SessionId(7);

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000_000) + Span::from_millis(millis)
    }

    /// An update, with an opening that has a cookie or without.
    fn update(session: u64, seq: u64, cookie: Option<Cookie>) -> Vec<u8> {
        let token = FORWARD.0.to_be_bytes();
        let update = Update {
            session: SessionId(session),
            seq,
            sent_at: at(seq),
            clock_offset: None,
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening: cookie.map(|cookie| Opening { cookie, name: "", token: &token }),
            frames: Frames::fresh(b"state"),
        };
        let mut bytes = vec![0; 200];
        let len = update.write(&mut bytes).expect("it fits");
        bytes.truncate(len);
        bytes
    }

    fn receiver() -> Receiver<u8> {
        let mut receiver = Receiver::new(MonitorParams::default(), Secret::new([1; 16]));
        let zeroes = Some(Cookie::default());
        assert_eq!(hear(&mut receiver, at(0), 1, &update(1, 0, zeroes)), None);
        assert_eq!(receiver.session(), Some(SessionId(1)));
        receiver
    }

    /// The cookie with which an update is answered, if by a challenge.
    fn hear(receiver: &mut Receiver<u8>, now: Time, by: u8, datagram: &[u8]) -> Option<Cookie> {
        let heard = receiver.handle_datagram(now, FORWARD, by, datagram);
        assert!(matches!(heard, Some(Ok(()))), "{heard:?}");
        let mut out = Vec::new();
        let answers = core::iter::from_fn(|| {
            let len = receiver.poll_transmit(now, &mut out)?.len;
            let Ok(Message::Challenge(it)) = Message::parse(&out[..len]) else { return Some(None) };
            Some(Some(it.cookie))
        });
        answers.last().expect("an answer")
    }

    #[test]
    fn a_peer_that_was_started_anew_is_heard_once_it_has_answered_a_challenge() {
        let mut receiver = receiver();
        let first = hear(&mut receiver, at(10), 1, &update(2, 10, Some(Cookie::default())));
        assert_eq!(receiver.session(), Some(SessionId(1)), "until then the former one counts");
        assert_eq!(hear(&mut receiver, at(20), 1, &update(2, 20, first)), None);
        assert_eq!(receiver.session(), Some(SessionId(2)));
    }

    #[test]
    fn no_late_opening_takes_the_place_of_a_session_whatever_its_age() {
        let mut receiver = receiver();
        let of_second = hear(&mut receiver, at(10), 1, &update(2, 10, Some(Cookie::default())));
        let of_third = hear(&mut receiver, at(11), 1, &update(3, 11, Some(Cookie::default())));
        hear(&mut receiver, at(20), 1, &update(2, 20, of_second));
        // Each of these is a copy of an update that was valid, or would have been.
        let late = [(1, Some(Cookie::default())), (3, of_third), (1, None)];
        for (after, (session, cookie)) in [100, 5_000, 29_000].into_iter().zip(late) {
            assert!(hear(&mut receiver, at(after), 1, &update(session, 12, cookie)).is_some());
            assert_eq!(receiver.session(), Some(SessionId(2)));
        }
        assert_eq!(hear(&mut receiver, at(30_000), 1, &update(2, 30_000, None)), None);
    }

    #[test]
    fn a_session_goes_on_after_a_late_opening_that_came_first() {
        let mut receiver = Receiver::new(MonitorParams::default(), Secret::new([1; 16]));
        hear(&mut receiver, at(0), 1, &update(1, 0, Some(Cookie::default())));
        let cookie = hear(&mut receiver, at(5), 1, &update(2, 5, None));
        assert_eq!(hear(&mut receiver, at(9), 1, &update(2, 9, cookie)), None);
        assert_eq!(receiver.session(), Some(SessionId(2)));
    }
}
