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
use crate::unit::{Span, Time};
use crate::wire::{CloseReason, Heading, Message, Opening, SessionId, Update, heading};

/// Receives the return direction of a [`Source`](crate::session::Source) whose updates want it
/// ([`SourceParams::wants_return`](crate::session::SourceParams)): a monitor of one session, which only the
/// peer of the source's session can open. [`Dialer`](super::Dialer) has both.
#[derive(Debug)]
pub struct Receiver<P> {
    monitor: Monitor<P>,
    ride: Ride<P>,
    /// The session before the present one.
    former: Option<SessionId>,
    /// Of the present one.
    opened: Option<Opened>,
}

/// When the opening left that has begun a session, by its sender's clock, and when it came.
#[derive(Debug, Clone, Copy)]
struct Opened {
    sent_at: Time,
    received_at: Time,
}

/// A session that was heard within this time is in use. A peer that was started anew opens another one every 2.5 s at
/// the rarest, so it waits little longer for this.
const IN_USE: Span = Span::from_secs(2);
/// No datagram is later than this. One that seems to be comes from a process that was started anew, whose clock
/// began again.
const LATEST: Span = Span::from_secs(60);

impl Opened {
    /// Whether an update left before it, in the same process.
    fn is_after(&self, now: Time, sent_at: Time) -> bool {
        let by_its_clock = self.sent_at + now.since(self.received_at);
        sent_at < self.sent_at && by_its_clock.since(sent_at) < LATEST
    }
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
    /// A receiver without a session. Of `params`, admission and the number of sources are set here.
    pub fn new(params: MonitorParams, secret: Secret) -> Self {
        let (admission, max_sources) = (Admission::Proven, 1);
        let params = MonitorParams { admission, max_sources, reserved: 0, ..params };
        Self {
            monitor: Monitor::new(params, secret),
            ride: Ride::new(),
            former: None,
            opened: None,
        }
    }

    /// A datagram came from the peer of session `forward`. `None` if it is for the source.
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
                if self.session() != Some(session)
                    && let Ok(Message::Update(update)) = Message::parse(datagram.bytes)
                    && !self.may_enter(now, &update, &access)
                {
                    return Some(Err(Ignored::Misplaced));
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

    /// An update of another session than the present one has come. If it opens its own, the present one ends.
    /// Whether the monitor may have it: a late update, which was delayed in the network or copied by it, ends
    /// nothing and gets no answer.
    fn may_enter(&mut self, now: Time, update: &Update<'_>, access: &Forward) -> bool {
        let opens = update.opening.map(|opening| access.check(&opening).is_ok());
        let present = self.monitor.records().map(|(_, record)| record).next();
        // The monitor refuses openings that are not the peer's.
        if let Some(record) = present.filter(|_| opens != Some(false)) {
            let is_former = self.former == Some(update.session);
            let was_before = self.opened.is_some_and(|it| it.is_after(now, update.sent_at));
            let is_in_use = now.since(record.heard_at) < IN_USE;
            // Each of these alone can also hold of a peer that was started anew, or of the session in which it
            // sends while a late opening has begun another one.
            if [is_former, was_before, is_in_use].into_iter().filter(|sign| *sign).count() > 1 {
                return false;
            }
        }
        if opens == Some(true) {
            // The peer was started anew, or has begun another session.
            self.former = present.map(|record| record.session).or(self.former);
            self.opened = Some(Opened { sent_at: update.sent_at, received_at: now });
            self.monitor.revoke(now, |_| false);
        }
        true
    }

    /// The present session.
    fn session(&self) -> Option<SessionId> {
        self.monitor.records().map(|(_, record)| record.session).next()
    }

    /// Time has passed. Calls before [`Receiver::poll_timeout`] change nothing.
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

    /// An update of the source is at the front of `out`, and leaves next, by `by`, over a transport that
    /// carries datagrams of `max_len` bytes. An ack that waits for it is put behind it; gives the length of
    /// both.
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

    /// What has been received.
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
    use crate::wire::{Cookie, Frames};

    const FORWARD: SessionId = SessionId(7);

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000_000) + Span::from_millis(millis)
    }

    /// An update that left at `sent_at` by the clock of its sender, with an opening or without.
    fn update(session: u64, sent_at: Time, opens: bool) -> Vec<u8> {
        let token = FORWARD.0.to_be_bytes();
        let opening = Opening { cookie: Cookie::default(), name: "", token: &token };
        let update = Update {
            session: SessionId(session),
            seq: sent_at.as_nanos() / 1_000_000,
            sent_at,
            clock_offset: None,
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening: opens.then_some(opening),
            frames: Frames::fresh(b"state"),
        };
        let mut bytes = vec![0; 200];
        let len = update.write(&mut bytes).expect("it fits");
        bytes.truncate(len);
        bytes
    }

    /// A receiver at which session 1 was opened at 1 s and was heard last at 30 s; its sender has been started
    /// so long before session 1.
    fn receiver(uptime: Span) -> Receiver<u8> {
        let mut receiver = Receiver::new(MonitorParams::default(), Secret::new([1; 16]));
        let begun = at(0) + uptime;
        for (now, sent_at, opens) in
            [(at(1_000), begun, true), (at(30_000), begun + Span::from_secs(29), false)]
        {
            assert!(hear(&mut receiver, now, &update(1, sent_at, opens)));
        }
        receiver
    }

    /// Whether an update counts.
    fn hear(receiver: &mut Receiver<u8>, now: Time, datagram: &[u8]) -> bool {
        let fresh = receiver.monitor.counters().fresh;
        let _ = receiver.handle_datagram(now, FORWARD, 1, datagram);
        receiver.monitor.counters().fresh > fresh
    }

    #[test]
    fn a_peer_that_was_started_anew_is_heard_at_once() {
        // Its clock has begun again.
        let mut receiver = receiver(Span::from_secs(3_600));
        assert!(hear(&mut receiver, at(30_010), &update(2, at(300), true)));
        assert_eq!(receiver.session(), Some(SessionId(2)));
        // Nothing that was delayed of its former life counts.
        let sent_at = at(0) + Span::from_secs(3_628);
        assert!(!hear(&mut receiver, at(30_020), &update(1, sent_at, true)));
    }

    #[test]
    fn one_that_was_started_again_within_a_minute_is_heard_once_its_former_session_is_silent() {
        let mut receiver = Receiver::new(MonitorParams::default(), Secret::new([1; 16]));
        assert!(hear(&mut receiver, at(0), &update(1, at(20_000), true)));
        assert!(hear(&mut receiver, at(9_000), &update(1, at(29_000), false)));
        // It could be an opening from before session 1, which was delayed.
        assert!(!hear(&mut receiver, at(10_000), &update(2, at(300), true)));
        assert!(hear(&mut receiver, at(11_000), &update(2, at(1_300), true)));
    }

    #[test]
    fn a_session_goes_on_after_a_late_opening_that_was_taken_for_another_one() {
        // Commands are rare, so session 1 seems to be over.
        let mut receiver = receiver(Span::from_secs(5));
        assert!(hear(&mut receiver, at(40_000), &update(2, at(4_000), true)));
        let again = at(0) + Span::from_secs(5 + 42);
        let _ = receiver.handle_datagram(at(43_000), FORWARD, 1, &update(1, again, false)[..]);
        let mut out = Vec::new();
        let answers = core::iter::from_fn(|| {
            let len = receiver.poll_transmit(at(43_000), &mut out)?.len;
            Some(matches!(Message::parse(&out[..len]), Ok(Message::Challenge(_))))
        });
        assert!(answers.last().expect("an answer"), "a challenge, so it is opened again");
        assert!(hear(&mut receiver, at(43_040), &update(1, again, true)));
        // From now on the late one stays ignored, however rare commands are.
        assert!(!hear(&mut receiver, at(55_000), &update(2, at(4_200), true)));
        assert!(hear(&mut receiver, at(56_000), &update(1, at(60_000), false)));
    }
}
