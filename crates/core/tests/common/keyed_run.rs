//! A source with one topic with keys, a path, and a monitor, in virtual time.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::BTreeMap;

use freshline_core::path::PathId;
use freshline_core::session::{
    KeyError, Monitor, MonitorEvent, MonitorParams, Secret, Source, SourceParams, TopicError,
    TopicId, TopicKind, TopicParams,
};
use freshline_core::source::{Fixed, Limits, RateLaw};
use freshline_core::unit::{BitRate, Bytes, Span, Time, UpdateRate};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::driven;
use crate::wire::{Wire, arrived, next_at};

/// The maximum size of a datagram.
pub(crate) const DATAGRAM: usize = 1_200;

/// The monitor's contents according to its events: the number in the state of each key.
pub(crate) type Mirror = BTreeMap<Vec<u8>, u64>;

/// A source with one topic with keys, a path, and a monitor.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) source: Source,
    pub(crate) monitor: Monitor<u8>,
    /// By how much its clock is ahead of the source's.
    pub(crate) ahead: Span,
    pub(crate) forward: Wire,
    pub(crate) reverse: Wire,
    pub(crate) delay: Span,
    /// Maximum additional delay, so that datagrams overtake each other.
    pub(crate) jitter: Span,
    /// Of updates and of acks, in 2⁻³².
    pub(crate) loss: u32,
    /// Of updates that arrive twice.
    pub(crate) copies: u32,
    /// The path's capacity, and the time until which it is busy.
    pub(crate) rate: Option<BitRate>,
    pub(crate) busy_until: Time,
    pub(crate) random: Pcg32,
    pub(crate) mirror: Mirror,
    /// Keys whose removal was reported.
    pub(crate) removed: Vec<Vec<u8>>,
    /// The greatest number of each key so far.
    pub(crate) greatest: Mirror,
    pub(crate) ages: BTreeMap<Vec<u8>, Age>,
    /// States put so far.
    pub(crate) put: u64,
}

/// The true age of a key at the monitor, in s.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Age {
    pub(crate) newest: f64,
    pub(crate) since: f64,
    pub(crate) area: f64,
}

impl Age {
    /// The age until `now` is added; from then on that of a state sampled at `newest` counts.
    pub(crate) fn on_arrival(&mut self, now: f64, newest: f64) {
        self.area += ((now - self.newest).powi(2) - (self.since - self.newest).powi(2)) / 2.0;
        (self.since, self.newest) = (now, self.newest.max(newest));
    }
}

pub(crate) fn secs(time: Time) -> f64 {
    time.since(Time::ZERO).as_secs_f64()
}

pub(crate) fn keyed(name: &str, max_keys: u16) -> TopicParams {
    TopicParams { kind: TopicKind::Keyed { max_keys }, ..TopicParams::new(name) }
}

pub(crate) fn new_source(
    law: Box<dyn RateLaw>,
    limits: Limits,
    topics: Vec<TopicParams>,
) -> Result<Source, TopicError> {
    let params = SourceParams { max_datagram: DATAGRAM, limits, ..SourceParams::default() };
    let source = Source::new(params, Secret::new([7; 16]), law, Time::ZERO).expect("no name");
    source.with_topics(topics)
}

pub(crate) fn new_monitor(max_large: usize) -> Monitor<u8> {
    let params = MonitorParams { max_large, ..MonitorParams::default() };
    Monitor::new(params, Secret::new([1; 16]))
}

/// The state of this number.
pub(crate) fn state(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

pub(crate) fn number_of(state: &[u8]) -> u64 {
    u64::from_be_bytes(*state.first_chunk().expect("a number"))
}

impl World {
    /// 1000 updates/s without other limits, and without losses.
    pub(crate) fn new(seed: u64, max_keys: u16) -> Self {
        let law = Box::new(Fixed::new(UpdateRate::saturating(1_000.0)));
        Self::with_law(seed, law, Limits::NONE, max_keys)
    }

    pub(crate) fn with_law(
        seed: u64,
        law: Box<dyn RateLaw>,
        limits: Limits,
        max_keys: u16,
    ) -> Self {
        Self {
            now: Time::ZERO,
            source: new_source(law, limits, vec![keyed("tf", max_keys)]).expect("it is legal"),
            monitor: new_monitor(1 << 30),
            ahead: Span::ZERO,
            forward: Wire::new(),
            reverse: Wire::new(),
            delay: Span::from_millis(20),
            jitter: Span::ZERO,
            loss: 0,
            copies: 0,
            rate: None,
            busy_until: Time::ZERO,
            random: Pcg32::seed_from_u64(seed),
            mirror: Mirror::new(),
            removed: Vec::new(),
            greatest: Mirror::new(),
            ages: BTreeMap::new(),
            put: 0,
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], len: usize) -> Result<u64, KeyError> {
        self.put += 1;
        let state = state(self.put, len);
        self.source.put_keyed(self.now, TopicId::FIRST, key, self.now, &state)?;
        Ok(self.put)
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.source.remove_key(self.now, TopicId::FIRST, key).expect("it has keys")
    }

    pub(crate) fn run(&mut self, duration: Span) {
        let end = self.now + duration;
        loop {
            let next = next_at(&self.source, [&self.forward, &self.reverse]);
            self.now = next.map_or(end, |at| at.max(self.now).min(end));
            if self.now == end {
                return;
            }
            self.arrive();
            self.send();
        }
    }

    pub(crate) fn draw(&mut self) -> u32 {
        self.random.next_u32()
    }

    /// When a datagram arrives that leaves the path's queue at `left`.
    pub(crate) fn arrival(&mut self, left: Time) -> Time {
        let part = f64::from(self.draw()) / f64::from(u32::MAX);
        left + self.delay + Span::from_nanos((self.jitter.as_nanos() as f64 * part) as u64)
    }

    pub(crate) fn send(&mut self) {
        self.source.handle_timeout(self.now);
        while self.source.poll_event().is_some() {}
        let mut out = Vec::new();
        while let Some(transmit) = self.source.poll_transmit(self.now, &mut out) {
            assert!(transmit.len <= DATAGRAM, "{transmit:?}");
            let bytes = transmit.len as u64 + 28;
            self.source.handle_wire_bytes(self.now, Bytes::new(bytes));
            if let Some(rate) = self.rate {
                let takes = rate.time_to_send(Bytes::new(bytes));
                self.busy_until = self.busy_until.max(self.now) + takes;
            }
            let left = self.busy_until.max(self.now);
            let copies = if self.draw() < self.copies { 2 } else { 1 };
            for _ in 0..copies {
                let (at, is_lost) = (self.arrival(left), self.draw() < self.loss);
                if !is_lost {
                    push(&mut self.forward, at, transmit.path, out[..transmit.len].to_vec());
                }
            }
        }
    }

    pub(crate) fn arrive(&mut self) {
        while let Some((_, path, datagram)) = arrived(&mut self.forward, self.now) {
            let heard = driven::tell(&mut self.monitor, self.now + self.ahead, path.0, &datagram);
            assert!(heard.reply.len() <= datagram.len(), "no amplification");
            heard.events.iter().for_each(|event| self.see(event));
            let (at, is_lost) = (self.arrival(self.now), self.draw() < self.loss);
            if !heard.reply.is_empty() && !is_lost {
                push(&mut self.reverse, at, path, heard.reply);
            }
        }
        while let Some((_, path, datagram)) = arrived(&mut self.reverse, self.now) {
            let _ = self.source.handle_datagram(self.now, path, &datagram);
        }
    }

    pub(crate) fn see(&mut self, event: &MonitorEvent<u8>) {
        match event {
            MonitorEvent::Topic { source, topic } => {
                let record = self.monitor.record(*source).expect("it is open");
                let Some(topic) = record.topic(*topic) else { return };
                if topic.name() != "tf" && self.source.topics().count() > 1 {
                    return;
                }
                assert_eq!(topic.name(), "tf");
                let key = topic.key().expect("it has one").to_vec();
                let payload = topic.payload().expect("it has a state");
                let number = number_of(payload);
                assert_eq!(payload, state(number, payload.len()), "whole");
                let before = self.greatest.insert(key.clone(), number);
                assert!(before < Some(number), "{key:?} goes back from {before:?} to {number}");
                let (now, sampled_at) = (secs(self.now), secs(topic.generated_at()));
                if let Some(age) = self.ages.get_mut(&key) {
                    age.on_arrival(now, sampled_at);
                }
                self.mirror.insert(key, number);
            }
            MonitorEvent::Removed { topic, .. } => {
                assert_eq!(&*topic.name, "tf");
                assert!(self.mirror.remove(&*topic.key).is_some(), "it was there");
                self.removed.push(topic.key.to_vec());
            }
            _ => {}
        }
    }

    /// The monitor's present contents.
    pub(crate) fn held(&self) -> Mirror {
        let records = self.monitor.records();
        let topics = records.flat_map(|(_, record)| record.topics());
        let held = topics.filter_map(|topic| Some((topic.key()?.to_vec(), topic.payload()?)));
        held.map(|(key, payload)| (key, number_of(payload))).collect()
    }

    /// Another monitor answers from now on.
    pub(crate) fn restart_monitor(&mut self) {
        self.monitor = new_monitor(1 << 30);
        self.mirror.clear();
        self.greatest.clear();
    }
}

/// Puts a datagram on its wire so that it arrives in time.
pub(crate) fn push(wire: &mut Wire, at: Time, path: PathId, datagram: Vec<u8>) {
    let place = wire.partition_point(|(other, ..)| *other <= at);
    wire.insert(place, (at, path, datagram));
}
