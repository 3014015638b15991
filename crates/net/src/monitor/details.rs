//! A monitor's statistics of its sources, in addition to its records of them.

use std::cell::Cell;
use std::collections::VecDeque;

use freshline_core::age::AgeMeter;
use freshline_core::session::{self, SourceKey};
use freshline_core::unit::{Span, Time};

use super::status::{SourceStatus, payload_bytes, status, with_freshness};
use super::topic_status::{SHOWN, TopicState};
use super::{Record, Sender};

/// Maximum bytes of states of further topics and keys in the statuses of all sources together.
const SHOWN_OF_TOPICS: usize = 16 << 20;

/// Statistics of the first sources, up to a limit, in addition to their records.
pub(super) struct Details {
    limit: usize,
    /// An absent source is forgotten this long after its last update.
    forget_after: Span,
    kept: usize,
    by_index: Vec<Option<Box<AgeMeter>>>,
    /// Named sources that were silent for too long, the latest last, up to the limit. Their age
    /// goes on growing until they come back, and then counts in their statistics.
    absent: VecDeque<Absent>,
    ended: VecDeque<SourceStatus>,
}

struct Absent {
    /// Without a payload that is longer than [`SHOWN`], as the monitor's limits no longer count it.
    record: Box<Record>,
    payload_bytes: Option<u64>,
    meter: Box<AgeMeter>,
    replaced: u64,
}

impl Absent {
    /// Its last status.
    fn last(&self, now: Time) -> SourceStatus {
        let status = status(Some(&self.meter), &self.record, now, self.replaced);
        let is_held = status.payload_bytes == self.payload_bytes;
        let payload = status.payload.filter(|_| is_held);
        SourceStatus { payload, payload_bytes: self.payload_bytes, ..status }
    }
}

/// The owner of a source: numbers that identify its token and its certificate.
fn owner(record: &Record) -> (u64, u64) {
    (record.credential(), record.peer.origin.owner)
}

impl Details {
    pub(super) fn new(limit: usize, forget_after: Span) -> Self {
        Self {
            limit,
            forget_after,
            kept: 0,
            by_index: Vec::new(),
            absent: VecDeque::new(),
            ended: VecDeque::new(),
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// A source has opened a session. The statistics of an absent source with the same credential
    /// continue; with another credential they end, as the name now belongs to the new source. The
    /// statistics of a restarted source continue, too: its session takes the key of the former one
    /// of its name, whose meter is still here, since that session neither closed nor expired.
    pub(super) fn insert(&mut self, source: SourceKey, record: &Record) {
        let superseded = self.take(source).filter(|_| !record.name.is_empty());
        let same = |absent: &Absent| !record.name.is_empty() && absent.record.name == record.name;
        let at = self.absent.iter().position(same);
        let absent = match at.and_then(|at| self.absent.remove(at)) {
            Some(absent) if owner(&absent.record) == owner(record) => Some(absent.meter),
            Some(absent) => {
                self.put_down(absent.last(record.heard_at));
                None
            }
            None => None,
        };
        let before = superseded.or(absent);
        if self.kept < self.limit {
            let index = source.index();
            if self.by_index.len() <= index {
                self.by_index.resize_with(index + 1, || None);
            }
            self.by_index[index] = Some(before.unwrap_or_else(|| Box::new(AgeMeter::new())));
            self.kept += 1;
        }
    }

    /// A source has left; keeps its last status.
    pub(super) fn end(&mut self, source: SourceKey, record: &Record, now: Time, replaced: u64) {
        if let Some(meter) = self.take(source) {
            self.put_down(status(Some(&meter), record, now, replaced));
        }
    }

    /// Keeps the last status of a source, without its state, which is no longer shown.
    fn put_down(&mut self, last: SourceStatus) {
        self.ended.push_back(SourceStatus { payload: None, ..last });
        if self.ended.len() > self.limit {
            self.ended.pop_front();
        }
    }

    /// A source was silent for too long.
    pub(super) fn expire(
        &mut self,
        source: SourceKey,
        mut record: Box<Record>,
        now: Time,
        replaced: u64,
    ) {
        if record.name.is_empty() {
            return self.end(source, &record, now, replaced);
        }
        let Some(meter) = self.take(source) else { return };
        let payload_bytes = payload_bytes(&record);
        if record.payload().is_none_or(|payload| payload.len() > SHOWN) {
            record.set_payload(Vec::new());
        }
        self.absent.push_back(Absent { record, payload_bytes, meter, replaced });
        if self.absent.len() > self.limit {
            self.forget_oldest(now);
        }
    }

    /// Ends the absent sources that are no longer permitted.
    pub(super) fn revoke(&mut self, now: Time, is_permitted: impl Fn(&Record) -> bool) {
        let absent = std::mem::take(&mut self.absent);
        for one in absent {
            if is_permitted(&one.record) {
                self.absent.push_back(one);
            } else {
                self.put_down(one.last(now));
            }
        }
    }

    /// Forgets the sources that have been absent for too long.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        while self.poll_timeout().is_some_and(|at| at <= now) {
            self.forget_oldest(now);
        }
    }

    /// When to call [`Details::handle_timeout`] next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.absent.front().map(|oldest| oldest.record.heard_at + self.forget_after)
    }

    fn forget_oldest(&mut self, now: Time) {
        if let Some(oldest) = self.absent.pop_front() {
            self.put_down(oldest.last(now));
        }
    }

    fn take(&mut self, source: SourceKey) -> Option<Box<AgeMeter>> {
        let meter = self.by_index.get_mut(source.index()).and_then(Option::take)?;
        self.kept -= 1;
        Some(meter)
    }

    fn meter(&self, source: SourceKey) -> Option<&AgeMeter> {
        self.by_index.get(source.index()).and_then(Option::as_deref)
    }

    pub(super) fn ended(&self) -> Vec<SourceStatus> {
        self.ended.iter().cloned().collect()
    }

    pub(super) fn on_fresh(&mut self, source: SourceKey, record: &Record, now: Time) {
        if let Some(Some(meter)) = self.by_index.get_mut(source.index())
            && let Some(age) = record.state_age(now)
        {
            meter.on_update(now, now - age);
        }
    }

    /// At most `most` sources: the open ones that are watched in detail, then absent ones, the latest
    /// first, then the other open ones.
    pub(super) fn statuses(
        &self,
        sessions: &session::Monitor<Sender>,
        now: Time,
        most: usize,
        replaced: impl Fn(SourceKey) -> u64,
    ) -> Vec<SourceStatus> {
        let (detailed, others): (Vec<_>, Vec<_>) =
            sessions.records().partition(|(source, _)| self.meter(*source).is_some());
        let room = Cell::new(SHOWN_OF_TOPICS);
        let status_of = |(source, record): (SourceKey, &Record)| {
            let mut status = status(self.meter(source), record, now, replaced(source));
            let mut left = room.get();
            for (status, topic) in status.topics.iter_mut().zip(record.topics()) {
                let number = topic.number();
                let is_handed_out = sessions.max_age(record, number).is_none()
                    || sessions.latest_of(now, record, number).is_some();
                status.state = TopicState::of(topic, &mut left).filter(|_| is_handed_out);
            }
            room.set(left);
            with_freshness(status, sessions, Some(source), record, now)
        };
        let absent = self.absent.iter().rev();
        let absent =
            absent.map(|one| with_freshness(one.last(now), sessions, None, &one.record, now));
        let detailed = detailed.into_iter().map(status_of);
        let others = others.into_iter().map(status_of);
        detailed.chain(absent).chain(others).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::session::{Admission, MonitorEvent, MonitorParams, Origin, Secret};
    use freshline_core::wire::{
        Frame, Frames, OffsetEstimate, Opening, SessionId, TopicName, Update,
    };

    use super::*;

    const IDLE: Span = Span::from_secs(60);

    const DAY: Span = Span::from_secs(24 * 3600);

    fn sender() -> Sender {
        let address = "127.0.0.1:1".parse().expect("an address");
        Sender { address, local: None, connection: None, origin: Origin::default() }
    }

    /// A monitor in virtual time, driven as the real one is.
    struct World {
        sessions: session::Monitor<Sender>,
        details: Details,
    }

    impl World {
        fn new(limit: usize) -> Self {
            Self::with_tokens(limit, &[])
        }

        fn with_tokens(limit: usize, tokens: &[&[u8]]) -> Self {
            let tokens = tokens.iter().map(|token| token.to_vec()).collect();
            Self::with_params(limit, MonitorParams { tokens, ..MonitorParams::default() })
        }

        fn with_params(limit: usize, params: MonitorParams) -> Self {
            let params = MonitorParams { admission: Admission::Proven, idle: IDLE, ..params };
            let sessions = session::Monitor::new(params, Secret::new([1; 16]));
            Self { sessions, details: Details::new(limit, DAY) }
        }

        /// A source opens a session with a state sampled now; both ends have the same clock.
        fn open(&mut self, now: Time, name: &str, session: u64) -> SourceKey {
            self.open_as(b"", now, name, session)
        }

        /// The same with a token.
        fn open_as(&mut self, token: &[u8], now: Time, name: &str, session: u64) -> SourceKey {
            let update = Update {
                session: SessionId(session),
                seq: 0,
                sent_at: now,
                clock_offset: Some(OffsetEstimate::new(0, Span::from_millis(1))),
                wants_ack: true,
                wants_return: false,
                ack_mark: None,
                opening: Some(Opening { cookie: Default::default(), name, token }),
                frames: Frames::fresh(b"state"),
            };
            let mut datagram = [0; 200];
            let len = update.write(&mut datagram).unwrap();
            self.sessions.handle_datagram(now, sender(), &datagram[..len]).unwrap();
            let event = self.sessions.poll_event();
            let Some(MonitorEvent::Fresh { source, opened: true, .. }) = event else {
                panic!("{event:?}");
            };
            self.details.insert(source, self.sessions.record(source).unwrap());
            // The age comes with the first update after the opening.
            let known = Update { seq: 1, opening: None, ..update };
            self.hear(&known, now);
            self.details.on_fresh(source, self.sessions.record(source).unwrap(), now);
            source
        }

        fn hear(&mut self, update: &Update<'_>, now: Time) {
            let mut datagram = [0; 200];
            let len = update.write(&mut datagram).unwrap();
            self.sessions.handle_datagram(now, sender(), &datagram[..len]).unwrap();
            while self.sessions.poll_event().is_some() {}
        }

        fn handle_timeout(&mut self, now: Time) {
            while let Some(due) = self.sessions.poll_timeout().filter(|due| *due <= now) {
                self.sessions.handle_timeout(due);
                while let Some(event) = self.sessions.poll_event() {
                    if let MonitorEvent::Gone { source, record, .. } = event {
                        self.details.expire(source, record, due, 0);
                    }
                }
            }
            self.details.handle_timeout(now);
        }

        fn names(&self, now: Time, most: usize) -> Vec<String> {
            let statuses = self.details.statuses(&self.sessions, now, most, |_| 0);
            statuses.into_iter().map(|status| status.source).collect()
        }

        fn ended(&self) -> Vec<String> {
            self.details.ended().into_iter().map(|status| status.source).collect()
        }
    }

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(1_000 + secs)
    }

    #[test]
    fn nothing_that_is_shown_of_a_source_is_the_id_of_its_session() {
        let mut world = World::new(1);
        let id = 0x5E55_1071_5E55_1071;
        world.open(Time::ZERO, "", id);
        let statuses = world.details.statuses(&world.sessions, Time::ZERO, 10, |_| 0);
        let shown = serde_json::to_string(&statuses).expect("it can be written").to_lowercase();
        assert_eq!(statuses[0].source, statuses[0].session);
        assert!(
            !shown.contains(&format!("{id:016x}")) && !shown.contains(&id.to_string()),
            "{shown}"
        );
    }

    #[test]
    fn a_silent_source_stays_in_front_of_live_ones_without_details() {
        let mut world = World::new(2);
        world.open(at(0), "silent", 1);
        world.open(at(50), "one", 2);
        world.open(at(50), "other", 3);
        assert_eq!(world.names(at(51), 2), ["silent", "one"]);
        world.handle_timeout(at(80));
        assert_eq!(world.names(at(80), 2), ["one", "silent"]);
        assert_eq!(world.names(at(80), 9), ["one", "silent", "other"]);
        // A live source that is watched in detail comes before it.
        world.open(at(81), "new", 4);
        assert_eq!(world.names(at(81), 2).len(), 2);
        assert!(!world.names(at(81), 2).contains(&"silent".into()));
    }

    #[test]
    fn a_restart_keeps_the_outage_before_it_however_short_it_was() {
        for outage in [30, 90] {
            let mut world = World::new(2);
            world.open(at(0), "robot", 1);
            world.handle_timeout(at(outage));
            world.open(at(outage), "robot", 2);
            let now = at(outage + 10);
            let [status] = &world.details.statuses(&world.sessions, now, 9, |_| 0)[..] else {
                panic!("one source");
            };
            assert_eq!(status.age_ms, Some(10_000.0));
            assert_eq!(status.age_max_ms, Some(outage as f64 * 1e3), "{status:?}");
            assert_eq!(world.details.kept, 1);
        }
        // Without a name it cannot be recognised as the same source.
        let mut world = World::new(2);
        world.open(at(0), "", 1);
        world.open(at(30), "", 2);
        assert_eq!(world.names(at(30), 9).len(), 2);
    }

    #[test]
    fn silent_sources_are_forgotten_after_a_time_and_beyond_a_number() {
        let mut world = World::new(2);
        world.open(at(0), "first", 1);
        world.open(at(1), "second", 2);
        world.handle_timeout(at(80));
        assert_eq!(world.names(at(80), 9), ["second", "first"]);
        world.open(at(81), "third", 3);
        world.handle_timeout(at(160));
        assert_eq!(world.names(at(160), 9), ["third", "second"]);
        assert_eq!(world.ended(), ["first"]);
        assert_eq!(world.details.poll_timeout(), Some(at(1) + DAY));
        world.handle_timeout(at(1) + DAY);
        assert_eq!(world.names(at(1) + DAY, 9), ["third"]);
        world.handle_timeout(at(81) + DAY);
        assert!(world.names(at(81) + DAY, 9).is_empty());
        assert_eq!(
            (world.ended(), world.details.poll_timeout()),
            (vec!["second".into(), "third".into()], None)
        );
    }

    #[test]
    fn of_a_silent_source_with_topics_no_state_is_shown_that_is_too_old() {
        let max_age = vec!["robot/pose=90s".parse().expect("a rule")];
        let params = MonitorParams { max_age, max_large: 1 << 20, ..MonitorParams::default() };
        let mut world = World::with_params(2, params);
        world.open(at(0), "robot", 1);
        let name = Frame::Name(TopicName { topic: 0, name: "pose", key: None, stream: None });
        for (seq, frames) in [(2, Frames::one(name)), (3, Frames::fresh(b"here"))] {
            let update = Update {
                session: SessionId(1),
                seq,
                sent_at: at(0),
                clock_offset: Some(OffsetEstimate::new(0, Span::from_millis(1))),
                wants_ack: true,
                wants_return: false,
                ack_mark: None,
                opening: None,
                frames,
            };
            world.hear(&update, at(0));
        }
        for (secs, is_shown) in [(80, true), (100, false)] {
            world.handle_timeout(at(secs));
            let [status] = &world.details.statuses(&world.sessions, at(secs), 9, |_| 0)[..] else {
                panic!("one source");
            };
            assert_eq!(status.first_topic(), Some("pose"));
            assert_eq!(
                (status.payload.is_some(), status.stale_topics),
                (is_shown, u64::from(!is_shown))
            );
            assert_eq!(status.topics[0].freshness.is_fresh, Some(is_shown));
        }
    }

    #[test]
    fn of_a_silent_source_with_a_large_state_the_length_alone_is_kept() {
        for (len, is_kept) in [(SHOWN, true), (SHOWN + 1, false)] {
            let mut world = World::new(2);
            world.open(at(0), "camera", 1);
            while let Some(due) = world.sessions.poll_timeout().filter(|due| *due <= at(200)) {
                world.sessions.handle_timeout(due);
                while let Some(event) = world.sessions.poll_event() {
                    if let MonitorEvent::Gone { source, mut record, .. } = event {
                        record.set_payload(vec![7; len]);
                        world.details.expire(source, record, due, 0);
                    }
                }
            }
            let [status] = &world.details.statuses(&world.sessions, at(200), 9, |_| 0)[..] else {
                panic!("one source");
            };
            let bytes = status.payload_bytes;
            assert_eq!((status.payload.is_some(), bytes), (is_kept, Some(len as u64)));
            assert!(is_kept || world.details.absent[0].record.payload() == Some(&[]));
        }
    }

    #[test]
    fn a_source_that_is_silent_ends_with_its_credential_or_when_another_one_has_its_name() {
        let mut world = World::with_tokens(4, &[b"one", b"two"]);
        let source = world.open_as(b"one", at(0), "robot", 1);
        let one = world.sessions.record(source).unwrap().credential();
        world.open_as(b"one", at(0), "meter", 2);
        world.open_as(b"two", at(0), "lamp", 3);
        world.handle_timeout(at(200));
        assert_eq!(world.names(at(200), 9).len(), 3, "all are silent");
        // Another token takes the name: the age of the former source does not continue.
        world.open_as(b"two", at(300), "robot", 4);
        let robots = world.details.statuses(&world.sessions, at(300), 9, |_| 0);
        let robots: Vec<_> = robots.iter().filter(|status| status.source == "robot").collect();
        assert!(robots.len() == 1 && robots[0].age_max_ms.is_some_and(|age| age < 1e3));
        assert_eq!(world.ended(), ["robot"]);
        world.details.revoke(at(300), |record| record.credential() != one);
        assert_eq!(
            (world.names(at(300), 9), world.ended()),
            (vec!["robot".to_string(), "lamp".into()], vec!["robot".to_string(), "meter".into()],)
        );
    }
}
