//! A browser's session: a source of the Freshline protocol whose topics carry the browser's
//! subscription.
//!
//! Free of clocks, sockets and tasks: [`pump`](crate::pump) drives it. Its topics
//! (`docs/dashboard.md` has their formats):
//!
//! | topic | key | state |
//! |---|---|---|
//! | `names` | id of a series | JSON: source, topic, key |
//! | `states` | id of a series | flags, length, error of the age, payload |
//! | `sources` | id of a source | JSON: name, address, counters and ages |
//! | `link` | – | JSON: the law between gateway and browser |

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use freshline::{LawConfig, Limits, State, TopicKind, TopicParams};
use freshline_core::path::PathId;
use freshline_core::session::{
    Need, Secret, Source, SourceEvent, SourceParams, TopicId, Transmit, TransportState,
};
use freshline_core::unit::{Span, Time};
use serde_json::json;

use crate::error::GatewayError;
use crate::series::{Id, Ids, MAX, Name};
use crate::statuses::Statuses;

/// A state has no known age.
const UNKNOWN_AGE: u8 = 1;

/// A state is longer than [`Settings::max_state`], and cut.
const CUT: u8 = 2;

/// Flags, length and the error of the age in front of a state.
const HEADER: usize = 9;

/// The maximum bytes of states of a browser, below the 64 MiB that a page holds; beyond it states
/// are cut.
const MAX_BYTES: usize = 48 << 20;

/// Names that found no room are counted up to this number.
const MAX_LEFT_OUT: usize = 1 << 12;

/// Weight of the newest round trip.
const SMOOTHING: f64 = 0.125;

/// The settings that all sessions share.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// When to send.
    pub(crate) law: LawConfig,
    /// Limits towards each browser.
    pub(crate) limits: Limits,
    /// The longest part of a state that is sent, in bytes.
    pub(crate) max_state: usize,
}

/// The transport of the datagrams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carrier {
    /// `webtransport` or `websocket`.
    pub(crate) name: &'static str,
    /// The longest datagram, in bytes.
    pub(crate) max_datagram: usize,
}

/// One browser.
pub(crate) struct Session {
    source: Source,
    carrier: Carrier,
    max_state: usize,
    topics: Topics,
    series: Ids<Name>,
    sources: Ids<Box<str>>,
    left_out: HashSet<Name>,
    /// States that are to be put again: there was no number, or their age was not known.
    again: HashMap<Name, State>,
    /// Bytes of the states of series, by id, and their sum.
    lengths: HashMap<u16, usize>,
    bytes: usize,
    /// Smoothed round trip, s.
    srtt: Option<f64>,
    /// An update is due for which there was no new state.
    is_hungry: bool,
    /// A state with its header.
    buffer: Vec<u8>,
}

struct Topics {
    names: TopicId,
    states: TopicId,
    sources: TopicId,
    link: TopicId,
}

impl Session {
    pub(crate) fn new(
        now: Time,
        secret: Secret,
        settings: &Settings,
        carrier: Carrier,
    ) -> Result<Self, GatewayError> {
        let params = SourceParams {
            name: "gateway".into(),
            limits: settings.limits,
            max_datagram: carrier.max_datagram,
            max_state: settings.max_state + HEADER,
            keep_alive: Span::from_secs(2),
            // Browsers do not have the code.
            repair: false,
            ..SourceParams::default()
        };
        let kind = TopicKind::Keyed { max_keys: MAX as u16 };
        let keyed = |name, weight| TopicParams { kind, weight, ..TopicParams::new(name) };
        let topics = vec![
            keyed("names", 4.0),
            keyed("states", 1.0),
            keyed("sources", 0.1),
            TopicParams { weight: 0.5, ..TopicParams::new("link") },
        ];
        let impossible = |error: &dyn std::fmt::Display| GatewayError::Session(error.to_string());
        let mut source = Source::new(params, secret, settings.law.build(), now)
            .map_err(|error| impossible(&error))?
            .with_topics(topics)
            .map_err(|error| impossible(&error))?;
        source.handle_transport(now, PathId::FIRST, TransportState::Ready);
        let mut ids = source.topics().map(|(topic, _)| topic);
        let mut next = || ids.next().ok_or_else(|| impossible(&"four topics"));
        let topics = Topics { names: next()?, states: next()?, sources: next()?, link: next()? };
        drop(ids);
        Ok(Self {
            source,
            carrier,
            max_state: settings.max_state,
            topics,
            series: Ids::default(),
            sources: Ids::default(),
            left_out: HashSet::new(),
            again: HashMap::new(),
            lengths: HashMap::new(),
            bytes: 0,
            srtt: None,
            is_hungry: true,
            buffer: Vec::new(),
        })
    }

    // ---- states and statuses ----

    /// A state that the browser wants.
    pub(crate) fn put(&mut self, now: Time, state: &State) {
        let name = Name::of(state);
        self.again.remove(&name);
        if state.is_removed() {
            return self.forget(now, &name);
        }
        let id = match self.series.get(&name) {
            Some(Id::Known(id)) => id,
            Some(Id::New(id)) if self.put_name(now, id, &name) => {
                self.left_out.remove(&name);
                id
            }
            found => {
                if found.is_some() {
                    self.series.remove(&name);
                }
                if found.is_some() && self.again.len() < MAX {
                    // Removed keys keep their numbers until the browser knows of it.
                    self.again.insert(name, state.clone());
                } else if self.left_out.len() < MAX_LEFT_OUT {
                    self.left_out.insert(name);
                }
                return;
            }
        };
        let age = state.age();
        self.write(state, age, id);
        let generated_at = now - Span::from(age.unwrap_or_default()).min(now.since(Time::ZERO));
        if !self.put_keyed(now, self.topics.states, id, generated_at) || age.is_none() {
            self.again.insert(name, state.clone());
        }
        self.is_hungry = false;
    }

    /// Writes a state with its header into the buffer.
    fn write(&mut self, state: &State, age: Option<Duration>, id: u16) {
        let payload = state.payload();
        let before = self.lengths.remove(&id).unwrap_or(0);
        self.bytes -= before;
        let sent = payload.len().min(self.max_state).min(MAX_BYTES.saturating_sub(self.bytes));
        self.bytes += sent;
        self.lengths.insert(id, sent);
        let flags = if age.is_none() { UNKNOWN_AGE } else { 0 }
            | if sent < payload.len() { CUT } else { 0 };
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let uncertainty = state.age_uncertainty().unwrap_or_default().as_micros();
        let uncertainty = u32::try_from(uncertainty).unwrap_or(u32::MAX);
        self.buffer.clear();
        self.buffer.push(flags);
        self.buffer.extend_from_slice(&len.to_be_bytes());
        self.buffer.extend_from_slice(&uncertainty.to_be_bytes());
        self.buffer.extend_from_slice(&payload[..sent]);
    }

    /// Puts pending states again: those for which no number was free, or whose age was unknown.
    pub(crate) fn put_again(&mut self, now: Time) {
        let known =
            |name: &Name, state: &State| state.age().is_some() || !self.series.contains(name);
        let again = self.again.iter().filter(|(name, state)| known(name, state));
        let again: Vec<_> = again.map(|(_, state)| state.clone()).collect();
        again.iter().for_each(|state| self.put(now, state));
    }

    /// Names a series, and returns whether a number was free for it.
    fn put_name(&mut self, now: Time, id: u16, name: &Name) -> bool {
        let of = self.source_id(&name.source);
        let mut value = json!({ "source": name.source, "of": of });
        if !name.topic.is_empty() {
            value["topic"] = (*name.topic).into();
        }
        if let Some(key) = &name.key {
            value["key"] = shown_key(key).into();
        }
        self.put_json(now, self.topics.names, id, &value)
    }

    /// The id of a source; `None` if all ids are in use.
    fn source_id(&mut self, name: &str) -> Option<u16> {
        match self.sources.get(&name.into())? {
            Id::Known(id) | Id::New(id) => Some(id),
        }
    }

    /// A series is gone.
    fn forget(&mut self, now: Time, name: &Name) {
        self.left_out.remove(name);
        if let Some(id) = self.series.remove(name) {
            self.remove_series(now, id);
        }
    }

    fn remove_series(&mut self, now: Time, id: u16) {
        self.bytes -= self.lengths.remove(&id).unwrap_or(0);
        for topic in [self.topics.names, self.topics.states] {
            // A key that was never put is not there.
            let _ = self.source.remove_key(now, topic, &id.to_be_bytes());
        }
    }

    /// Puts the sources as the monitor sees them. A source that is not among them any more, or is
    /// not wanted, stays only if it has series.
    pub(crate) fn put_statuses(
        &mut self,
        now: Time,
        statuses: &Statuses,
        wants: impl Fn(&str) -> bool,
    ) {
        for (name, line) in statuses.lines().filter(|(name, _)| wants(name)) {
            if let Some(id) = self.source_id(name) {
                self.put_json(now, self.topics.sources, id, line);
            }
        }
        let with_series: HashSet<_> = self.series.names().map(|name| name.source.clone()).collect();
        let gone = self
            .sources
            .retain(|name| with_series.contains(name) || wants(name) && statuses.has(name));
        for id in gone {
            let _ = self.source.remove_key(now, self.topics.sources, &id.to_be_bytes());
        }
    }

    /// Puts the report on the law between gateway and browser.
    pub(crate) fn put_link(&mut self, now: Time, law: &str) {
        let counters = self.source.counters();
        let ack = self.source.newest_ack();
        let lost = ack.map(|ack| {
            let all = u64::from(ack.fresh) + u64::from(ack.stale) + u64::from(ack.missing);
            if all > 0 { f64::from(ack.missing) / all as f64 } else { 0.0 }
        });
        let link = json!({
            "law": law,
            "transport": self.carrier.name,
            "rate": self.source.law().rate().per_second(),
            "limited_by": self.source.limited_by().map(|limit| limit.name()),
            "srtt_ms": self.srtt.map(|seconds| seconds * 1e3),
            "rtt_min_ms": counters.rtt_min.map(Span::as_millis_f64),
            "backlog": self.source.backlog().mean(now),
            "sent": counters.sent,
            "acked": counters.acked,
            "lost_part": lost,
            "sources": self.sources.len(),
            "series": self.series.len(),
            "left_out": self.left_out.len(),
        });
        let text = link.to_string();
        // It is far shorter than a state may be.
        let _ = self.source.put_topic(now, self.topics.link, now, text.as_bytes());
    }

    fn put_json(
        &mut self,
        now: Time,
        topic: TopicId,
        id: u16,
        value: &impl std::fmt::Display,
    ) -> bool {
        use std::io::Write;
        self.buffer.clear();
        let _ = write!(self.buffer, "{value}");
        self.put_keyed(now, topic, id, now)
    }

    /// Puts the contents of the buffer, and returns whether a number was free for its key.
    fn put_keyed(&mut self, now: Time, topic: TopicId, id: u16, generated_at: Time) -> bool {
        self.source.put_keyed(now, topic, &id.to_be_bytes(), generated_at, &self.buffer).is_ok()
    }

    /// The browser has other wishes: series that it does not want any more are gone.
    pub(crate) fn keep(&mut self, now: Time, wants: impl Fn(&str) -> bool) {
        let full = |name: &Name| match &*name.topic {
            "" => name.source.to_string(),
            topic => format!("{}/{topic}", name.source),
        };
        for id in self.series.retain(|name| wants(&full(name))) {
            self.remove_series(now, id);
        }
        self.again.retain(|name, _| wants(&full(name)));
        self.left_out.clear();
        self.is_hungry = true;
    }

    /// The number of series that it has.
    pub(crate) fn series(&self) -> usize {
        self.series.len()
    }

    /// Whether an update is due for which there was no new state.
    pub(crate) fn is_hungry(&self) -> bool {
        self.is_hungry
    }

    // ---- the contract of endpoints ----

    pub(crate) fn handle_datagram(&mut self, now: Time, datagram: &[u8]) {
        // Ignored datagrams are counted by the source.
        let _ = self.source.handle_datagram(now, PathId::FIRST, datagram);
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.source.handle_timeout(now);
    }

    /// Handles events, and says whether states are wanted.
    pub(crate) fn poll_wants(&mut self) -> bool {
        let mut wants = false;
        while let Some(event) = self.source.poll_event() {
            match event {
                SourceEvent::StateWanted(Need::Newer | Need::Newest) => wants = true,
                SourceEvent::Acked { rtt } => {
                    let rtt = rtt.as_secs_f64();
                    self.srtt = Some(self.srtt.map_or(rtt, |srtt| srtt + SMOOTHING * (rtt - srtt)));
                }
                _ => {}
            }
        }
        self.is_hungry |= wants;
        wants
    }

    pub(crate) fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        self.source.poll_transmit(now, out)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.source.poll_timeout()
    }

    /// Ends the session; the close is the last datagram.
    pub(crate) fn close(&mut self) {
        self.source.close();
    }
}

/// A key as text; in hexadecimal digits if it is not UTF-8.
fn shown_key(key: &[u8]) -> String {
    match str::from_utf8(key) {
        // Or it would pass for the key whose digits these are.
        Ok(text) if !text.starts_with("0x") => text.to_owned(),
        _ => {
            use std::fmt::Write;
            key.iter().fold("0x".to_owned(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        }
    }
}
