//! What a monitor reports of its sources.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;

use freshline_core::age::AgeMeter;
use freshline_core::dscp::Dscp;
use freshline_core::session::{self, MonitorCounters, SourceKey, TopicRecord};
use freshline_core::unit::{Span, Time};
use serde::Serialize;

use super::freshness::FreshnessStatus;
use super::topic_status::{SHOWN, TopicState, TopicStatus};
use super::{Record, Sender};
use crate::refusal::Refusals;

/// The most bytes of states of further topics and keys that the statuses of all sources contain together.
const SHOWN_OF_TOPICS: usize = 16 << 20;

/// A source as the monitor sees it at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct SourceStatus {
    /// The name that the source gave itself, or the label of its session if it gave none.
    pub source: String,
    /// The label of its session: a keyed hash of the id, which only this monitor can make.
    pub session: String,
    /// Where its last update came from.
    pub address: SocketAddr,
    /// Time since its last update in s, fresh or not.
    pub silence_s: f64,
    /// Age of the freshest state in ms, once the source has sent the clocks' offset with it.
    pub age_ms: Option<f64>,
    /// By how much that age may differ from the true one in ms, to either side; see
    /// [`StateAge`](freshline_core::session::StateAge).
    pub age_uncertainty_ms: Option<f64>,
    /// Time-average age in ms.
    pub age_mean_ms: Option<f64>,
    /// 95th percentile of age in ms.
    pub age_p95_ms: Option<f64>,
    /// Mean of the ages just before each reset, in ms.
    pub peak_age_mean_ms: Option<f64>,
    /// Largest age in ms.
    pub age_max_ms: Option<f64>,
    /// Fresh updates per second, while the age was known.
    pub updates_per_s: f64,
    /// Updates that were the freshest when they came.
    pub fresh: u64,
    /// Updates that came after a fresher one.
    pub stale: u64,
    /// Updates that have not come.
    pub missing: u64,
    /// States that a newer one replaced before an output took them.
    pub replaced: u64,
    /// Whether states are fresh enough, if there is a maximum age.
    #[serde(flatten)]
    pub freshness: FreshnessStatus,
    /// Topics that are stale, the first one included.
    pub stale_topics: u64,
    /// The code point (DSCP) of its last update as it came, 0 to 63; none where the kernel has none.
    pub dscp: Option<Dscp>,
    /// Sequence number of the freshest update.
    pub seq: u64,
    /// Length of the freshest state in bytes; none before the first state is complete.
    pub payload_bytes: Option<u64>,
    /// The freshest state, if it is not longer than [`SHOWN`], and not older than its maximum age.
    #[serde(skip)]
    pub payload: Option<Vec<u8>>,
    /// When it was sampled, on the source's clock.
    #[serde(skip)]
    pub(crate) generated_at: Time,
    /// Its topics, if it has any; the state of the first one is that of the source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<TopicStatus>,
}

impl SourceStatus {
    /// States of all topics that were too old as they came.
    pub fn too_old(&self) -> u64 {
        match &self.topics[..] {
            [] => self.freshness.too_old,
            topics => topics.iter().map(|topic| topic.freshness.too_old).sum(),
        }
    }
}

/// A monitor's run in numbers.
#[derive(Debug, Clone, Serialize)]
pub struct MonitorReport {
    /// Length of the run in s.
    pub duration_s: f64,
    /// Sources at its end.
    pub sources_open: usize,
    /// Topics that are stale, also of sources with a name that are gone.
    pub stale_topics: usize,
    /// What was counted over all sources.
    #[serde(flatten)]
    pub counters: MonitorCounters,
    /// What was refused, or gave way to newcomers, by reason.
    #[serde(rename = "refused_by")]
    pub refusals: Refusals,
    /// The open sources that are watched in detail, then silent ones with a name, then the other
    /// open ones.
    pub sources: Vec<SourceStatus>,
    /// The last state of sources that closed their session or were forgotten, the latest last, up to
    /// the number of those watched in detail.
    pub ended: Vec<SourceStatus>,
}

/// What is kept beside the records for the first sources, up to a limit.
pub(super) struct Details {
    limit: usize,
    /// An absent source is forgotten this long after its last update.
    forget_after: Span,
    kept: usize,
    by_index: Vec<Option<Box<AgeMeter>>>,
    /// Sources with a name that were silent for too long, the latest last, up to the limit: their age
    /// goes on growing until they come back, and counts in their statistics then.
    absent: VecDeque<Absent>,
    ended: VecDeque<SourceStatus>,
}

struct Absent {
    /// Without a payload that is longer than [`SHOWN`]: the monitor's limits do not count it any more.
    record: Box<Record>,
    payload_bytes: Option<u64>,
    meter: Box<AgeMeter>,
    replaced: u64,
}

impl Absent {
    /// The last of it.
    fn last(&self, now: Time) -> SourceStatus {
        let status = status(Some(&self.meter), &self.record, now, self.replaced);
        let is_held = status.payload_bytes == self.payload_bytes;
        let payload = status.payload.filter(|_| is_held);
        SourceStatus { payload, payload_bytes: self.payload_bytes, ..status }
    }
}

/// Whose a source is: what stands for its token and for its certificate.
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

    /// A source has opened a session. One that was absent with the same credential continues its
    /// statistics; of another credential they end, as its name is the newcomer's now. So does one
    /// that was restarted: its session takes the key of the former one of its name, whose meter is
    /// still here, since that session neither closed nor expired.
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

    /// A source has left; this is the last of it.
    pub(super) fn end(&mut self, source: SourceKey, record: &Record, now: Time, replaced: u64) {
        if let Some(meter) = self.take(source) {
            self.put_down(status(Some(&meter), record, now, replaced));
        }
    }

    /// Keeps the last of a source, without its state, which nothing shows any more.
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

    /// Ends the absent sources that are not permitted any more.
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

    /// Time has passed: forgets the sources that have been absent for too long.
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

/// The length of the state that is held, if there is one.
fn payload_bytes(record: &Record) -> Option<u64> {
    record.payload().map(|payload| payload.len() as u64)
}

fn status(meter: Option<&AgeMeter>, record: &Record, now: Time, replaced: u64) -> SourceStatus {
    let session = record.label().to_string();
    let ms = |span: Option<Span>| span.map(Span::as_millis_f64);
    let elapsed = record.age.duration(now).as_secs_f64();
    // Its statistics go back to before an absence.
    let age = meter.map_or(&record.age, AgeMeter::process);
    let shown = record.payload().filter(|payload| payload.len() <= SHOWN);
    let uncertainty = record.bounded_age(now).map(|age| age.uncertainty);
    SourceStatus {
        source: if record.name.is_empty() { session.clone() } else { record.name.to_string() },
        session,
        address: record.peer.address,
        silence_s: now.since(record.heard_at).as_secs_f64(),
        age_ms: ms(record.state_age(now)),
        age_uncertainty_ms: ms(record.state_age(now).and(uncertainty)),
        age_mean_ms: ms(age.mean(now)),
        age_p95_ms: ms(meter.and_then(|meter| meter.quantile(now, 0.95))),
        peak_age_mean_ms: ms(age.peaks().map(|peaks| peaks.mean)),
        age_max_ms: ms(age.max(now)),
        updates_per_s: if elapsed > 0.0 { record.fresh() as f64 / elapsed } else { 0.0 },
        fresh: record.fresh(),
        stale: record.stale(),
        missing: record.missing(),
        replaced,
        freshness: FreshnessStatus::default(),
        stale_topics: 0,
        dscp: record.dscp(),
        seq: record.newest_seq,
        payload_bytes: payload_bytes(record),
        payload: shown.map(<[u8]>::to_vec),
        generated_at: record.generated_at,
        topics: record.topics().map(|topic| TopicStatus::of(record, topic, now)).collect(),
    }
}

/// A status with what the monitor knows of maximum ages, and without a state that is too old. Of an absent
/// source, `source` is `None`.
fn with_freshness(
    mut status: SourceStatus,
    sessions: &session::Monitor<Sender>,
    source: Option<SourceKey>,
    record: &Record,
    now: Time,
) -> SourceStatus {
    let freshness = |number: u16, topic: Option<&TopicRecord>| match source {
        Some(source) => sessions.freshness(source, number),
        None => {
            let name = topic.map_or("", TopicRecord::name);
            let key = topic.and_then(TopicRecord::key).unwrap_or_default();
            sessions.freshness_after(&record.name, name, key)
        }
    };
    let first = FreshnessStatus::of(freshness(0, record.topic(0)));
    let (mut all, mut topics) = (vec![first], record.topics());
    status.freshness = all[0];
    for status in &mut status.topics {
        let topic = topics.next();
        let number = topic.map_or(0, TopicRecord::number);
        status.freshness = FreshnessStatus::of(freshness(number, topic));
        all.extend((number > 0).then_some(status.freshness));
    }
    status.stale_topics = all.iter().filter(|one| one.is_fresh == Some(false)).count() as u64;
    if sessions.max_age(record, 0).is_some() && sessions.latest_of(now, record, 0).is_none() {
        (status.payload, status.payload_bytes) = (None, None);
    }
    status
}

#[cfg(test)]
mod tests {
    use freshline_core::session::{Admission, MonitorEvent, MonitorParams, Origin, Secret};
    use freshline_core::wire::{Frames, OffsetEstimate, Opening, SessionId, Update};

    use super::*;

    const IDLE: Span = Span::from_secs(60);

    const DAY: Span = Span::from_secs(24 * 3600);

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
            let params = MonitorParams {
                admission: Admission::Proven,
                idle: IDLE,
                tokens: tokens.iter().map(|token| token.to_vec()).collect(),
                ..MonitorParams::default()
            };
            let sessions = session::Monitor::new(params, Secret::new([1; 16]));
            Self { sessions, details: Details::new(limit, DAY) }
        }

        /// A source opens a session with a state of now; both ends have the same clock.
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
                ack_mark: None,
                opening: Some(Opening { cookie: Default::default(), name, token }),
                frames: Frames::fresh(b"state"),
            };
            let mut datagram = [0; 200];
            let len = update.write(&mut datagram).unwrap();
            let sender = Sender {
                address: "127.0.0.1:1".parse().unwrap(),
                connection: None,
                origin: Origin::default(),
            };
            self.sessions.handle_datagram(now, sender, &datagram[..len]).unwrap();
            let event = self.sessions.poll_event();
            let Some(MonitorEvent::Fresh { source, opened: true, .. }) = event else {
                panic!("{event:?}");
            };
            self.details.insert(source, self.sessions.record(source).unwrap());
            // The age comes with the first update after the opening.
            let known = Update { seq: 1, opening: None, ..update };
            let len = known.write(&mut datagram).unwrap();
            self.sessions.handle_datagram(now, sender, &datagram[..len]).unwrap();
            self.sessions.poll_event();
            self.details.on_fresh(source, self.sessions.record(source).unwrap(), now);
            source
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
        // A live one that is watched in detail comes before it.
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
        // Without a name nobody knows that it is the same source.
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
        // Another token takes the name: no age is that of the former source.
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
