//! A source with topics and its monitor: the endpoints of `freshline_core::session`, as in
//! `updates`, with states of their real lengths.
//!
//! ```text
//!   states ──► source ── poll_transmit ──► parcel, as long as the datagram ──► … ──► monitor ──► tally
//! ```
//!
//! A periodic state is handed to the source when it is generated; a sampled one, when the source
//! asks for states. Both endpoints read one clock. Addresses count as validated, so that a session
//! opens in one round trip. A state of a key begins with the number of its stream, by which the
//! tally knows it before the key's name has arrived. The application takes records as soon as they
//! are available.

mod states;
mod tally;

use freshline_core::link::Direction;
use freshline_core::path::PathId;
use freshline_core::session::{
    Admission, MaxAge, Monitor, MonitorEvent, MonitorParams, Names, Paths, Secret, Source,
    SourceEvent, SourceKey, SourceParams, TopicError, TopicId, TopicParams, TopicRecord,
};
use freshline_core::source::{Limits, RateLaw};
use freshline_core::unit::{Bytes, Span, Time};
use freshline_core::wire::OpeningTooLong;
use rand::RngExt;
use rand_pcg::Pcg64;

use super::datagrams::Datagrams;
use super::devices::Devices;
use super::parcel::{Body, Load, UDP_OVER_IPV4};
use super::{AgeRecord, Period};
use states::{Generated, States};
pub use states::{Generation, StateSizes, Topic};
use tally::Tally;
pub use tally::{DeadlineOutcome, TopicOutcome};

/// The settings of topics and their monitor.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicsSettings {
    /// The name of the source.
    pub name: String,
    /// Its topics, at least one.
    pub topics: Vec<Topic>,
    /// The maximum ages at the monitor.
    pub max_age: Vec<MaxAge>,
    /// Whether the endpoints know weights, deadlines, rates, urgency and maximum ages. Otherwise
    /// the topics are equal, and these settings affect the measurements only.
    pub has_rules: bool,
    /// The maximum size of the session's datagrams.
    pub max_datagram: Bytes,
    /// The headers around a datagram.
    pub overhead: Bytes,
}

impl TopicsSettings {
    /// QUIC's, as `freshline source` sends them.
    pub const MAX_DATAGRAM: Bytes = Bytes::new(1150);
    /// UDP's and IPv4's.
    pub const OVERHEAD: Bytes = UDP_OVER_IPV4;
}

/// Topics that a source rejects.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadTopics {
    /// The source's name is invalid.
    #[error("its name cannot be that of a source: {0}")]
    Name(#[from] OpeningTooLong),
    /// A topic, or the list of topics, is invalid.
    #[error(transparent)]
    Topic(#[from] TopicError),
}

/// A flow with several topics.
pub struct TopicsFlow {
    source: Source,
    monitor: Monitor<PathId>,
    ids: Vec<TopicId>,
    devices: Devices,
    overhead: Bytes,
    states: States,
    starts_at: Time,
    ends_at: Time,
    is_over: bool,
    has_delivered: bool,
    datagrams: Datagrams,
    is_awake: bool,
    may_answer: bool,
    /// For each number at the source, its stream, and how many of its states were too old on
    /// arrival.
    by_number: Vec<(Option<u16>, u64)>,
    too_old: u64,
    /// The present session.
    heard: Option<SourceKey>,
    counts: Counts,
    before: Counts,
    tally: Tally,
}

/// Running sums since the flow's start.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    sent: u64,
    delivered_bytes: u64,
    acked: u64,
    rtt_sum: Span,
    packets: u64,
}

/// The result of a flow with topics.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicsOutcome {
    /// The result of each topic.
    pub topics: Vec<TopicOutcome>,
    /// The mean true ages of all topics and keys, summed up with the weights of their topics, in s;
    /// `None`, like all rates here, if the flow has no measured time.
    pub weighted_age: Option<f64>,
    /// The mean round trip of fresh acks; `None` if there was no fresh ack.
    pub rtt_mean: Option<Span>,
    /// Updates sent per second.
    pub updates_per_s: Option<f64>,
    /// Updates sent per second, copies on other paths included.
    pub packets_per_s: Option<f64>,
    /// Bytes of states that were handed out, in bit/s.
    pub goodput_bps: Option<f64>,
    /// The measured time; `None` if the flow has none.
    pub measured: Option<Period>,
    /// Whether it had begun and no update had arrived by the end.
    pub never_delivered: bool,
}

impl TopicsFlow {
    /// A flow that sends over `paths` during `period`, controlled by `law` within `limits`. The
    /// session's secrets are drawn from `secrets`, times and lengths of states from `rng`.
    ///
    /// # Errors
    /// [`BadTopics`] if the source cannot have this name or these topics.
    pub fn new(
        (law, limits): (Box<dyn RateLaw>, Limits),
        paths: Paths,
        settings: TopicsSettings,
        period: Period,
        secrets: &mut Pcg64,
        rng: Pcg64,
    ) -> Result<Self, BadTopics> {
        let Period { from: starts_at, until: ends_at } = period;
        let TopicsSettings { name, topics, max_age, has_rules, max_datagram, overhead } = settings;
        let limit = |topic: &Topic| MaxAge::of(&max_age, &name, &topic.params.name);
        let max_ages: Vec<Option<Span>> = topics.iter().map(limit).collect();
        let declared = |topic: &Topic| match has_rules {
            true => topic.params.clone(),
            false => TopicParams {
                kind: topic.params.kind,
                ..TopicParams::new(topic.params.name.clone())
            },
        };
        let declared: Vec<TopicParams> = topics.iter().map(declared).collect();
        let params = SourceParams {
            name,
            limits,
            max_datagram: max_datagram.get() as usize,
            // The lab measures the true age.
            measure_age: false,
            ..SourceParams::default()
        };
        let devices = Devices::of(&paths);
        let source = Source::new(params, Secret::new(secrets.random()), law, starts_at)?;
        let source = source.over(paths).with_topics(declared)?;
        let at_monitor = MonitorParams {
            admission: Admission::Proven,
            names: Names::Any,
            max_age: if has_rules { max_age } else { Vec::new() },
            ..MonitorParams::default()
        };
        let states = States::new(topics, starts_at, rng);
        Ok(Self {
            ids: source.topics().map(|(id, _)| id).collect(),
            source,
            monitor: Monitor::new(at_monitor, Secret::new(secrets.random())),
            devices,
            overhead,
            tally: Tally::new(period, &states, &max_ages),
            states,
            starts_at,
            ends_at,
            is_over: false,
            has_delivered: false,
            datagrams: Datagrams::new(),
            is_awake: false,
            may_answer: false,
            by_number: Vec::new(),
            too_old: 0,
            heard: None,
            counts: Counts::default(),
            before: Counts::default(),
        })
    }

    /// The device of a path holds this number of packets now, and `left` have left it since its start.
    pub fn look(&mut self, now: Time, path: PathId, packets: u64, left: u64) {
        self.devices.look((now, path), (packets, left), &mut self.source);
    }

    /// Whether there are several paths, so that the source needs the queue lengths of their
    /// devices.
    pub(super) fn has_choice(&self) -> bool {
        self.devices.are_several()
    }

    /// The warm-up has ended: counts and means begin now, while ages continue.
    pub fn begin_measuring(&mut self, now: Time) {
        self.before = self.counts();
        self.tally.begin(now);
    }

    /// Handles an event that is due. Then call [`TopicsFlow::poll_transmit`].
    pub fn on_wake(&mut self, now: Time) {
        self.monitor.handle_timeout(now);
        self.hear(now);
        self.is_over = now >= self.ends_at;
        if self.is_over || now < self.starts_at {
            return;
        }
        let Self { states, source, ids, tally, .. } = self;
        while let Some(state) = states.poll(now) {
            tally.on_generated(now, state.stream);
            if !put(now, source, ids, &state) {
                tally.on_refused(now, state.stream);
            }
        }
        self.is_awake = true;
        self.source.handle_timeout(now);
        while let Some(event) = self.source.poll_event() {
            if let SourceEvent::StateWanted(_) = event {
                self.sample(now);
            }
        }
    }

    /// Samples all states that are sampled when an update is sent.
    fn sample(&mut self, now: Time) {
        let Self { states, source, ids, .. } = self;
        for index in 0..states.sampled() {
            put(now, source, ids, &states.sample(index));
        }
    }

    /// The next packet to send, from either end, with its path. Call it until it returns `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(u8, Direction, Load)> {
        if std::mem::take(&mut self.may_answer)
            && let Some(answer) = self.monitor.poll_transmit(now, self.datagrams.room())
        {
            let size = self.overhead + Bytes::new(answer.len as u64);
            let body = Body::Answer(self.datagrams.keep(answer.len));
            return Some((answer.peer.0, Direction::Reverse, Load::plain(size, body)));
        }
        if !self.is_awake {
            return None;
        }
        let Some(transmit) = self.source.poll_transmit(now, self.datagrams.room()) else {
            self.is_awake = false;
            return None;
        };
        self.counts.sent += u64::from(transmit.seq.is_some() && !transmit.is_copy);
        let size = self.overhead + Bytes::new(transmit.len as u64);
        self.source.handle_wire_bytes(now, size);
        let body = Body::Topics(self.datagrams.keep(transmit.len));
        Some((transmit.path.0, Direction::Forward, Load::plain(size, body)))
    }

    /// A datagram of the source has arrived at the monitor on a path. Then call
    /// [`TopicsFlow::poll_transmit`].
    pub fn on_update(&mut self, now: Time, path: PathId, number: u32) {
        let Some(datagram) = self.datagrams.get(number) else { return };
        (self.has_delivered, self.may_answer) = (true, true);
        // The result is reported by events.
        let _ = self.monitor.handle_datagram(now, path, datagram);
        self.datagrams.remove(number);
        self.hear(now);
    }

    /// An answer of the monitor has arrived at the source on a path.
    pub fn on_answer(&mut self, now: Time, path: PathId, number: u32) {
        let Some(datagram) = self.datagrams.get(number) else { return };
        // The result is reported by events.
        let _ = self.source.handle_datagram(now, path, datagram);
        self.datagrams.remove(number);
        while let Some(event) = self.source.poll_event() {
            match event {
                SourceEvent::Acked { rtt } => {
                    self.counts.acked += 1;
                    self.counts.rtt_sum += rtt;
                }
                SourceEvent::StateWanted(_) => self.sample(now),
                _ => {}
            }
        }
    }

    /// A packet of the flow was dropped.
    pub fn on_dropped(&mut self, number: u32) {
        self.datagrams.remove(number);
    }

    pub(super) const fn datagrams_mut(&mut self) -> &mut Datagrams {
        &mut self.datagrams
    }

    /// A datagram in flight, by its number.
    pub(crate) fn datagram(&self, number: u32) -> Option<&[u8]> {
        self.datagrams.get(number)
    }

    /// When to call [`TopicsFlow::on_wake`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.is_over {
            return None;
        }
        let source = self.source.poll_timeout().map(|at| at.max(self.starts_at));
        let sends = Time::earliest([source, self.states.next_at()]);
        Time::earliest([sends.filter(|at| *at < self.ends_at), self.monitor.poll_timeout()])
    }

    /// Updates sent, openings included.
    pub fn sent(&self) -> u64 {
        self.counts.sent
    }

    /// The period from its start until `now`, or until the end of the age's measurement if that was
    /// earlier.
    pub fn age_period(&self, now: Time) -> Period {
        Period { from: self.starts_at, until: self.tally.measured.clip(now).max(self.starts_at) }
    }

    /// From now on the deliveries that reset the age of a topic or key are recorded.
    pub fn record_ages(&mut self) {
        self.tally.record_ages();
    }

    /// The deliveries that have been recorded, by topic and key.
    pub fn deliveries(&self) -> impl Iterator<Item = AgeRecord<'_>> {
        let streams = self.states.streams().iter().zip(self.tally.deliveries());
        streams.map(|(stream, deliveries)| AgeRecord {
            topic: &self.states.topics()[usize::from(stream.topic)].params.name,
            key: stream.key.as_ref().map(|(_, number)| *number),
            deliveries,
        })
    }

    /// The number of fresh acks, and the sum of their round trips.
    pub fn round_trips(&self) -> (u64, Span) {
        (self.counts.acked, self.counts.rtt_sum)
    }

    /// The true ages at `now`, summed up with the weights of their topics, in s, and the number of
    /// stale topics and keys.
    pub fn present(&self, now: Time) -> (f64, usize) {
        (self.tally.weighted_age(now), self.tally.stale())
    }

    /// The measurements until `now`.
    pub fn outcome(&self, now: Time) -> TopicsOutcome {
        let (after, before) = (self.counts(), self.before);
        let measured = self.tally.measured;
        let rate = |after: u64, before: u64| measured.rate(now, (after - before) as f64);
        let acked = after.acked - before.acked;
        let bits = rate(after.delivered_bytes, before.delivered_bytes).map(|bytes| bytes * 8.0);
        TopicsOutcome {
            topics: self.tally.outcomes(now),
            weighted_age: self.tally.weighted_age_mean(now),
            rtt_mean: (acked > 0).then(|| (after.rtt_sum - before.rtt_sum) / acked),
            updates_per_s: rate(after.sent, before.sent),
            packets_per_s: rate(after.packets, before.packets),
            goodput_bps: bits,
            measured: measured.period(now),
            never_delivered: !self.has_delivered && now > self.starts_at,
        }
    }

    fn counts(&self) -> Counts {
        let paths = self.source.paths().statuses(Time::ZERO, None);
        Counts { packets: paths.map(|path| path.counters.sent).sum(), ..self.counts }
    }

    /// Handles the events of the monitor.
    fn hear(&mut self, now: Time) {
        while let Some(event) = self.monitor.poll_event() {
            match event {
                MonitorEvent::Fresh { source, is_repeat: false, .. } => {
                    self.on_state(now, source, 0);
                }
                MonitorEvent::Topic { source, topic } => self.on_state(now, source, topic),
                MonitorEvent::Record { source, topic } => self.take_records(now, source, topic),
                MonitorEvent::Opened { source }
                | MonitorEvent::Part { source }
                | MonitorEvent::Withheld { source } => self.heard = Some(source),
                MonitorEvent::Freshness(alarm) => {
                    let found = self.named(alarm.number, &alarm.topic, &alarm.key);
                    if let Some(stream) = self.stream(alarm.number, found) {
                        self.tally.on_freshness(now, stream, alarm.is_stale);
                    }
                }
                _ => {}
            }
        }
        let too_old = self.monitor.counters().too_old;
        if std::mem::replace(&mut self.too_old, too_old) != too_old {
            self.find_too_old(now);
        }
    }

    /// The monitor delivers a state of this topic or key.
    fn on_state(&mut self, now: Time, source: SourceKey, number: u16) {
        self.heard = Some(source);
        let Some(record) = self.monitor.record(source) else { return };
        let (payload, generated_at) = match number {
            0 => (record.payload(), record.generated_at),
            _ => match record.topic(number) {
                Some(topic) => (topic.payload(), topic.generated_at()),
                None => return,
            },
        };
        let Some(payload) = payload else { return };
        let len = payload.len() as u64;
        let found = self.states.of_topic(number).or_else(|| self.states.of_state(payload));
        if let Some(stream) = self.stream(number, found) {
            self.counts.delivered_bytes += len;
            self.tally.on_state(now, stream, generated_at);
        }
    }

    /// Records of this topic are complete.
    fn take_records(&mut self, now: Time, source: SourceKey, number: u16) {
        self.heard = Some(source);
        let Some(stream) = self.states.of_topic(number) else { return };
        while let Some(taken) = self.monitor.take_record(now, source, number) {
            self.counts.delivered_bytes += taken.bytes.len() as u64;
            self.tally.on_state(now, stream, taken.generated_at);
        }
    }

    /// More states were too old on arrival: finds their streams.
    fn find_too_old(&mut self, now: Time) {
        let Some(source) = self.heard else { return };
        let Some(record) = self.monitor.record(source) else { return };
        let found = |topic: &TopicRecord| {
            let key = topic.key().unwrap_or_default();
            (topic.number(), self.named(topic.number(), topic.name(), key))
        };
        let mut numbers: Vec<(u16, Option<u16>)> = record.topics().map(found).collect();
        if numbers.iter().all(|(number, _)| *number > 0) {
            numbers.push((0, self.states.of_topic(0)));
        }
        for (number, found) in numbers {
            let Some(known) = self.monitor.freshness(source, number) else { continue };
            let Some(stream) = self.stream(number, found) else { continue };
            let before =
                std::mem::replace(&mut self.by_number[usize::from(number)].1, known.too_old);
            // A session that opens again counts from zero.
            let count = known.too_old.checked_sub(before).unwrap_or(known.too_old);
            self.tally.on_withheld(now, stream, count);
        }
    }

    /// The stream of a number at the source; if the number is new, it is `found`.
    fn stream(&mut self, number: u16, found: Option<u16>) -> Option<u16> {
        let place = usize::from(number);
        if self.by_number.len() <= place {
            self.by_number.resize(place + 1, (None, 0));
        }
        let known = &mut self.by_number[place].0;
        *known = known.or(found);
        *known
    }

    /// The stream of a number at the source, by the names of its topic and its key, which may still
    /// be unknown.
    fn named(&self, number: u16, topic: &str, key: &[u8]) -> Option<u16> {
        self.states.of_topic(number).or_else(|| self.states.of_key(topic, key))
    }
}

/// Hands a state to the source. Returns whether it was accepted: a record is refused if the source
/// has no room for it. All other conditions were checked with the scenario.
fn put(now: Time, source: &mut Source, ids: &[TopicId], state: &Generated<'_>) -> bool {
    let topic = ids[state.topic];
    match state.key {
        Some(key) => source.put_keyed(now, topic, key, now, state.bytes).is_ok(),
        None if state.is_record => source.put_record(now, topic, now, state.bytes).is_ok(),
        None => source.put_topic(now, topic, now, state.bytes).is_ok(),
    }
}
