//! The sources of a monitor: their sessions and their reports. Reads no clock and no socket, so that
//! tests run it in virtual time.

use std::collections::HashSet;
use std::num::NonZeroU64;

use freshline_core::dscp::Dscp;
use freshline_core::session::{
    Access, Clocked, Datagram, Listener, ListenerEvent, ListenerTransmit, MonitorTransmit,
    SourceKey,
};
use freshline_core::unit::{Bytes, Time};
use freshline_core::wire::Ack;

use super::books::Books;
use super::returns::Returning;
use super::{Record, Sender, SourceStatus, Watch};
use crate::carrier::Answer;
use crate::credentials::{Credentials, Rules};
use crate::quic::ConnKey;

/// The connections of a session.
fn connections_of(record: &Record) -> impl Iterator<Item = NonZeroU64> {
    senders_of(record).filter_map(|sender| sender.connection).map(ConnKey::serial)
}

/// The senders that have opened the session.
fn senders_of(record: &Record) -> impl Iterator<Item = &Sender> {
    record.bound().iter().chain([&record.peer])
}

/// Whether a datagram from `sender` belongs to this source: by its QUIC connection, or by its
/// address.
fn is_of(record: &Record, sender: &Sender) -> bool {
    let is_it = |it: &Sender| match sender.connection {
        Some(_) => it.connection == sender.connection,
        None => it.connection.is_none() && it.address == sender.address,
    };
    senders_of(record).any(is_it)
}

/// Sessions, and the details of some of them.
pub(super) struct Sources {
    pub(super) sessions: Listener<Sender>,
    /// The rules for opening sessions.
    pub(super) rules: Rules,
    pub(super) books: Books,
    /// The return sessions to sources that ask for them.
    pub(super) returning: Option<Returning>,
    /// The buffer for answers.
    pub(super) out: Vec<u8>,
}

impl Sources {
    /// Handles a datagram, with a code point if the kernel reported it, from a sender whose
    /// certificate has `names`; writes the answer to `reply`.
    pub(super) fn handle_datagram(
        &mut self,
        at: Clocked,
        (sender, names): (Sender, &[Box<str>]),
        (dscp, datagram): (Option<Dscp>, &[u8]),
        reply: &mut [u8; Ack::LEN_OF_PARTS],
        watch: &mut dyn Watch,
    ) -> Answer {
        let check = self.rules.of(names);
        let access = check.as_ref().map(|check| check as &dyn Access);
        let datagram = Datagram::marked(datagram, dscp);
        // The session counts ignored datagrams itself.
        let _ = self.sessions.handle_datagram(at, sender, access, datagram);
        let is_known = self.attend(at, Some(&sender), watch);
        // Acks that were held back for a state of the return direction can be for another sender,
        // and leave later.
        let is_answered = self.sessions.monitor().next_peer() == Some(&sender);
        let monitor = is_answered.then(|| self.sessions.monitor_mut());
        let Some(transmit) =
            monitor.and_then(|monitor| monitor.poll_transmit(at.now, &mut self.out))
        else {
            return Answer { is_known, ..Answer::default() };
        };
        let MonitorTransmit { len, dscp, .. } = transmit;
        reply[..len].copy_from_slice(&self.out[..len]);
        Answer { len, dscp, is_known }
    }

    /// Delivers events; returns whether one came from `sender` in an open session. Events of other
    /// sources may have been pending.
    fn attend(
        &mut self,
        at: impl Into<Clocked>,
        sender: Option<&Sender>,
        watch: &mut dyn Watch,
    ) -> bool {
        let Self { sessions, books, returning, rules, .. } = self;
        let at = at.into();
        let mut is_known = false;
        while let Some(event) = sessions.poll_event() {
            let event = match (event, &mut *returning) {
                (ListenerEvent::Monitor(event), _) => event,
                (ListenerEvent::ReturnEnded { source }, Some(returning)) => {
                    returning.end(source);
                    continue;
                }
                (ListenerEvent::ReturnWanted { source }, Some(returning)) => {
                    returning.open(at.now, source, rules, sessions);
                    continue;
                }
                (ListenerEvent::Return { source, event }, Some(returning)) => {
                    let record = sessions.monitor().record(source);
                    is_known |= record.zip(sender).is_some_and(|(record, it)| is_of(record, it));
                    returning.on_event(at.now, source, event, sessions);
                    continue;
                }
                (_, None) => continue,
            };
            is_known |= books.on_event(at.received_at, sessions.monitor(), event, watch);
        }
        is_known
    }

    /// Hands out records as long as there is room for them, one topic after the other.
    pub(super) fn hand_out_records(&mut self, now: Time, watch: &mut dyn Watch) {
        self.books.hand_out_records(now, self.sessions.monitor_mut(), watch);
    }

    /// A sampler of a return session may have a state.
    pub(super) fn look_at_returns(&mut self, now: Time) {
        if let Some(returning) = &mut self.returning {
            returning.on_turn(now, &mut self.sessions);
        }
    }

    /// Writes the next datagram of a return session to `out`.
    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<ListenerTransmit<Sender>> {
        self.sessions.poll_transmit(now, &mut self.out)
    }

    /// Counts the bytes that this source's return session has sent, with all headers.
    pub(super) fn on_sent(&mut self, now: Time, source: SourceKey, bytes: Bytes) {
        if let Some(session) = self.sessions.return_source_mut(source) {
            session.handle_wire_bytes(now, bytes);
        }
    }

    /// The machine has slept.
    pub(super) fn handle_resume(&mut self, now: Time) {
        self.sessions.handle_resume(now);
    }

    /// Handles due timers. Calls before [`Sources::poll_timeout`] change nothing.
    pub(super) fn handle_timeout(&mut self, now: Time, watch: &mut dyn Watch) {
        self.sessions.handle_timeout(now);
        self.attend(now, None, watch);
        self.books.details.handle_timeout(now);
    }

    /// Puts other credentials in force, if given. Ends the sessions that they do not permit, and
    /// the sessions with a connection in `connections`, which are no longer trusted; the
    /// credentials end silent sources, too. Returns the number of sessions ended, and adds their
    /// connections to `connections`.
    pub(super) fn replace_credentials(
        &mut self,
        now: Time,
        credentials: Option<Credentials>,
        connections: &mut HashSet<NonZeroU64>,
        watch: &mut dyn Watch,
    ) -> usize {
        let Self { sessions, rules, books: Books { details, .. }, returning, .. } = self;
        rules.credentials = credentials.or(rules.credentials.take());
        if let Some(returning) = returning {
            returning.revoke(rules, sessions);
        }
        let sessions = sessions.monitor_mut();
        let is_permitted = |record: &Record| rules.permit(record.credential(), &record.name);
        details.revoke(now, is_permitted);
        let untrusted = connections.clone();
        let is_trusted = |record: &Record| {
            connections_of(record).all(|connection| !untrusted.contains(&connection))
        };
        let goes_on = |record: &Record| is_permitted(record) && is_trusted(record);
        let ends = sessions.records().map(|(_, record)| record).filter(|record| !goes_on(record));
        connections.extend(ends.flat_map(connections_of));
        let number = sessions.revoke(now, goes_on);
        self.attend(now, None, watch);
        number
    }

    /// When to call [`Sources::handle_timeout`] and [`Sources::hand_out_records`] next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        Time::earliest([self.sessions.poll_timeout(), self.books.poll_timeout()])
    }

    /// At most `most` sources; see [`Details::statuses`].
    pub(super) fn statuses(
        &self,
        now: Time,
        most: usize,
        replaced: impl Fn(SourceKey) -> u64,
    ) -> Vec<SourceStatus> {
        self.books.details.statuses(self.sessions.monitor(), now, most, replaced)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;

    use freshline_core::path::PathId;
    use freshline_core::session::{
        Admission, Dialer, DialerEvent, Monitor, MonitorParams, Origin, Secret, Source,
        SourceEvent, SourceParams, TopicParams,
    };
    use freshline_core::source::{Fixed, LawConfig};
    use freshline_core::unit::{Span, UpdateRate};

    use super::*;
    use crate::clock::Clock;
    use crate::credentials::Right;
    use crate::monitor::{MonitorConfig, ReturnConfig, ReturnTopic};
    use crate::source::sampler::{Shared, Synthetic};
    use crate::waker::Waker;

    fn sender(port: u16) -> Sender {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Sender { address, local: None, connection: None, origin: Origin::default() }
    }

    /// A monitor that sends states of 8 bytes at this rate.
    fn sources(rate: f64) -> Sources {
        let config = ReturnConfig {
            params: SourceParams::default(),
            law: LawConfig::Fixed { rate: UpdateRate::saturating(rate) },
            topics: vec![ReturnTopic {
                params: TopicParams::new("cmd"),
                states: Shared::new(Box::new(Synthetic::new(8))),
            }],
        };
        let waker = Arc::new(Waker::new(|| Ok(())));
        let returning = Returning::new(config, 1_200, Clock::new(), waker).expect("it can be sent");
        let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
        let monitor = Monitor::new(params, Secret::new([1; 16]))
            .with_relation(Sender::relation)
            .with_origin(Sender::origin);
        Sources {
            sessions: Listener::new(monitor).returning(),
            rules: Rules::none(Right::Publish),
            books: Books::new(1, MonitorConfig::FORGET),
            returning: Some(returning),
            out: Vec::new(),
        }
    }

    fn hear(
        sources: &mut Sources,
        now: Time,
        sender: Sender,
        datagram: &[u8],
    ) -> (Answer, Vec<u8>) {
        let mut reply = [0; Ack::LEN_OF_PARTS];
        let (at, from) = (Clocked::from(now), (sender, &[][..]));
        let answer = sources.handle_datagram(at, from, (None, datagram), &mut reply, &mut ());
        (answer, reply[..answer.len].to_vec())
    }

    /// A source and its monitor, on paths without delay: an address each, by its port.
    struct Pair {
        now: Time,
        sources: Sources,
        dialer: Dialer,
    }

    impl Pair {
        /// At these rates in the forward and in the return direction.
        fn new(rate: f64, return_rate: f64) -> Self {
            let now = Time::ZERO + Span::from_secs(1);
            let law = Box::new(Fixed::new(UpdateRate::saturating(rate)));
            let source = Source::new(SourceParams::default(), Secret::new([2; 16]), law, now);
            let source = source.expect("no name");
            let dialer = Dialer::new(source, MonitorParams::default(), Secret::new([3; 16]));
            Self { now, sources: sources(return_rate), dialer }
        }

        /// Runs for this long; updates of the source come from `sender`, and its answers from the
        /// address that was asked.
        fn run(&mut self, millis: u64, sender: Sender) {
            let Self { now, sources, dialer } = self;
            let mut out = Vec::new();
            for _ in 0..millis {
                *now += Span::from_millis(1);
                dialer.handle_timeout(*now);
                while let Some(event) = dialer.poll_event() {
                    if let DialerEvent::Source(SourceEvent::StateWanted(_)) = event {
                        dialer.source_mut().put(*now, *now, b"state").expect("it fits");
                    }
                }
                while let Some(transmit) = dialer.poll_transmit(*now, &mut out) {
                    let mut from = sender;
                    if transmit.seq.is_none() {
                        from.address.set_port(transmit.path.0.into());
                    }
                    let (_, reply) = hear(sources, *now, from, &out[..transmit.len]);
                    let _ = dialer.handle_datagram(*now, PathId::FIRST, &reply[..]);
                }
                sources.handle_timeout(*now, &mut ());
                while let Some(transmit) = sources.poll_transmit(*now) {
                    let datagram = &sources.out[..transmit.len];
                    let is_update = transmit.source.is_some();
                    let by = if is_update { transmit.peer.address.port() as u8 } else { 0 };
                    let _ = dialer.handle_datagram(*now, PathId(by), datagram);
                }
            }
        }
    }

    #[test]
    fn a_datagram_does_not_count_as_known_by_a_pending_event_of_another_source() {
        let mut pair = Pair::new(100.0, 100.0);
        pair.run(100, sender(1));
        let (_, received) = pair.dialer.receiver().records().next().expect("its session is open");
        assert_eq!(received.topics().count(), 1, "it gets states");
        for (port, is_known) in [(2, false), (1, true)] {
            pair.now += Span::from_millis(100);
            // The return session wants a state, but has not been polled for it yet.
            pair.sources.sessions.handle_timeout(pair.now);
            let (answer, _) = hear(&mut pair.sources, pair.now, sender(port), b"nothing");
            assert_eq!(answer.is_known, is_known, "{port}");
        }
    }

    #[test]
    fn a_slow_source_with_two_addresses_keeps_its_slow_return_session() {
        for return_rate in [0.2, 0.9] {
            let mut pair = Pair::new(0.4, return_rate);
            pair.run(6_000, sender(1));
            for step in 0..40 {
                pair.run(2_500, sender(1 + step % 2));
            }
            let sessions = &pair.sources.sessions;
            let key = sessions.return_sources().next().expect("there is one");
            let counters = sessions.return_source(key).expect("it is open").counters();
            assert_eq!((counters.opened, counters.acked), (1, counters.sent), "{return_rate}");
            assert!(counters.sent > 20, "{}", counters.sent);
        }
    }

    #[test]
    fn a_connection_that_gets_another_address_keeps_its_return_session() {
        let by = |port| Sender { connection: Some(ConnKey::numbered(7)), ..sender(port) };
        let mut pair = Pair::new(100.0, 100.0);
        pair.run(5_000, by(1));
        // Its NAT has forgotten it.
        pair.run(5_000, by(2));
        let sessions = &pair.sources.sessions;
        let key = sessions.return_sources().next().expect("there is one");
        let source = sessions.return_source(key).expect("it is open");
        assert_eq!(source.counters().opened, 1);
        let record = sessions.monitor().record(key).expect("it is open");
        assert_eq!((record.bound().len(), record.peer.address.port()), (0, 2));
    }
}
