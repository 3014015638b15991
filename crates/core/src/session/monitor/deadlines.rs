//! Freshness of topics with a maximum age.
//!
//! ```text
//!                     state within the limit                  newest delivered one is too old
//!   Unknown ───────────────────────────────► Fresh ─────────────────────────────────────────► Stale
//!      │                                       ▲                                                │
//!      │ first state too old, or of            └──────────── state within the limit ────────────┘
//!      └ unknown age for as long ─► Stale
//! ```
//!
//! A state counts with its maximum possible age ([`StateAge::max`]). A topic keeps its entry when
//! its session ends, so that it becomes stale in time and recovers under its name. Each topic has
//! at most two unpolled alarms, stale and fresh; further ones cancel out. So the last alarm is
//! never lost, and memory is proportional to the number of topics.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use slab::Slab;

use crate::session::cookie::SessionLabel;
use crate::session::held::Since;
use crate::session::latest::StateAge;
use crate::session::max_age::MaxAge;
use crate::session::record::{Record, SourceKey};
use crate::session::topic_record::DEADLINE_COST;
use crate::unit::{Span, Time};

/// An alarm: a topic with a maximum age became stale, or fresh again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// The source; `None` if the session has ended, or the key is removed.
    pub source: Option<SourceKey>,
    /// The name of the source; may be empty.
    pub name: Box<str>,
    /// The session, or the last one.
    pub label: SessionLabel,
    /// The number of the topic, or of the key, at its source.
    pub number: u16,
    /// The name of the topic; empty for a source without topics, and while it is unknown.
    pub topic: Box<str>,
    /// The key; empty if the topic has none.
    pub key: Box<[u8]>,
    /// Whether it is stale now. A key that is removed is not.
    pub is_stale: bool,
    /// The age at that time of the newest delivered state, or, before the first delivery, of the
    /// newest withheld one; `None` if unknown.
    pub age: Option<StateAge>,
    /// The maximum age.
    pub max_age: Span,
}

/// The freshness of a topic with a maximum age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// The maximum age.
    pub max_age: Span,
    /// Whether the newest delivered state is certainly not older; `None` before the first delivery,
    /// while it is not overdue.
    pub is_fresh: Option<bool>,
    /// States that were too old on arrival.
    pub too_old: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Unknown,
    Fresh,
    Stale,
}

/// A topic of a session, and its names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Topic<'a> {
    pub(super) key: u32,
    pub(super) number: u16,
    pub(super) source: &'a str,
    pub(super) name: &'a str,
    pub(super) topic_key: &'a [u8],
    pub(super) label: SessionLabel,
}

impl<'a> Topic<'a> {
    pub(super) fn of<P>(key: u32, record: &'a Record<P>, number: u16) -> Self {
        let topic = record.topic(number);
        let name = topic.map_or("", |topic| topic.name());
        let topic_key = topic.and_then(|topic| topic.key()).unwrap_or_default();
        Self { key, number, source: &record.name, name, topic_key, label: record.label() }
    }

    fn names(&self) -> Names {
        (self.source.into(), self.name.into(), self.topic_key.into())
    }
}

/// The names of a source, a topic and a key.
type Names = (Box<str>, Box<str>, Box<[u8]>);

/// A received state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrived {
    /// Whether it is a new state.
    pub(super) is_new: bool,
    /// Whether it was withheld on its first arrival.
    pub(super) was_withheld: bool,
    pub(super) since: Option<Since>,
    pub(super) age: Option<StateAge>,
}

/// The decision on a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) withhold: bool,
    pub(super) hand_out: bool,
}

#[derive(Debug)]
struct Entry {
    /// The key of its record and its number; `None` if the session has ended.
    place: Option<(u32, u16)>,
    number: u16,
    /// The names, kept from the first alarm or the end of the session on.
    source: Box<str>,
    topic: Box<str>,
    topic_key: Box<[u8]>,
    label: SessionLabel,
    /// After the end of the session, whether the entry continues under its name.
    has_name: bool,
    limit: Option<Span>,
    /// The bound of the age of the newest delivered state, and its uncertainty.
    shown: Option<(Since, Span)>,
    phase: Phase,
    /// The last state reported to the driver.
    is_reported_stale: bool,
    /// The number of unpolled alarms, at most 2, each the opposite of the previous one.
    pending: u8,
    /// The ages in them.
    ages: [Option<StateAge>; 2],
    is_queued: bool,
    /// Whether the newest state has arrived with an unknown age.
    is_unjudged: bool,
    /// When its timer expires.
    wake: Option<Time>,
    /// The order in which sessions ended.
    left: Option<u64>,
    too_old: u64,
}

/// An entry with its places in the maps and queues.
const _: () = assert!(size_of::<Entry>() + 128 <= DEADLINE_COST);

#[derive(Debug)]
pub(super) struct Deadlines {
    rules: Vec<MaxAge>,
    /// The maximum number of topics of ended sessions.
    max_left: usize,
    entries: Slab<Entry>,
    by_place: BTreeMap<(u32, u16), u32>,
    /// Entries of ended sessions with a name.
    by_name: BTreeMap<Names, u32>,
    left: BTreeMap<u64, u32>,
    leavings: u64,
    wakes: BTreeSet<(Time, u32)>,
    queue: VecDeque<u32>,
    stale: usize,
    too_old: u64,
}

impl Deadlines {
    pub(super) fn new(rules: Vec<MaxAge>, max_left: usize) -> Self {
        Self {
            rules,
            max_left,
            entries: Slab::new(),
            by_place: BTreeMap::new(),
            by_name: BTreeMap::new(),
            left: BTreeMap::new(),
            leavings: 0,
            wakes: BTreeSet::new(),
            queue: VecDeque::new(),
            stale: 0,
            too_old: 0,
        }
    }

    /// Whether no topic has a deadline.
    pub(super) fn are_none(&self) -> bool {
        self.rules.is_empty()
    }

    /// A state of a topic has arrived, or was repeated.
    pub(super) fn judge(&mut self, now: Time, topic: Topic<'_>, arrived: Arrived) -> Verdict {
        let Arrived { is_new, was_withheld, since, age } = arrived;
        let id = self.find(topic);
        let entry = &mut self.entries[id as usize];
        let Some(limit) = entry.limit else {
            return Verdict { withhold: false, hand_out: is_new || was_withheld };
        };
        let known = since.map(|since| (since, since.max_age(now)));
        if let Some((since, max)) = known.filter(|(_, max)| *max <= limit) {
            let uncertainty = age.map_or(max, |age| age.uncertainty);
            entry.shown = Some((since, uncertainty));
            entry.is_unjudged = false;
            self.enter(id, Phase::Fresh, age);
            self.arm(id, since.is_above_at(limit, now));
            return Verdict { withhold: false, hand_out: is_new || was_withheld };
        }
        let is_first_known = known.is_some() && (is_new || entry.is_unjudged);
        entry.is_unjudged = known.is_none() && (is_new || entry.is_unjudged);
        entry.too_old += u64::from(is_first_known);
        self.too_old += u64::from(is_first_known);
        if entry.phase == Phase::Unknown {
            match known {
                Some(_) => self.enter(id, Phase::Stale, age),
                None => self.arm(id, now + limit),
            }
        }
        Verdict { withhold: is_new || was_withheld, hand_out: false }
    }

    /// A key of this source is removed, or continues under another number: it does not count as
    /// stale any more.
    pub(super) fn forget(&mut self, key: u32, number: u16, source: &str) {
        if let Some(id) = self.by_place.remove(&(key, number)) {
            let entry = &mut self.entries[id as usize];
            (entry.place, entry.source) = (None, source.into());
            self.enter(id, Phase::Unknown, None);
            self.drop_when_reported(id);
        }
    }

    /// A session ends.
    pub(super) fn leave<P>(&mut self, now: Time, key: u32, record: &Record<P>) {
        let topics: Vec<(u16, u32)> = self
            .by_place
            .range((key, 0)..=(key, u16::MAX))
            .map(|((_, number), id)| (*number, *id))
            .collect();
        for (number, id) in topics {
            self.by_place.remove(&(key, number));
            let topic = Topic::of(key, record, number);
            let entry = &mut self.entries[id as usize];
            entry.place = None;
            (entry.source, entry.topic, entry.topic_key) = topic.names();
            // A further topic without a name cannot be found again.
            let has_name = !topic.source.is_empty() && (number == 0 || !topic.name.is_empty());
            let is_needed = match entry.phase {
                _ if entry.limit.is_none() => false,
                Phase::Unknown => false,
                Phase::Fresh => true,
                Phase::Stale => has_name,
            };
            if !is_needed {
                self.drop_when_reported(id);
                continue;
            }
            self.leavings += 1;
            entry.left = Some(self.leavings);
            self.left.insert(self.leavings, id);
            entry.has_name = has_name;
            if has_name {
                let name = topic.names();
                // Names are unique among sessions, and the entry of an ended one was taken over.
                if let Some(before) = self.by_name.insert(name, id) {
                    self.end_left(before);
                }
            }
        }
        while self.left.len() > self.max_left
            && let Some((_, oldest)) = self.left.first_key_value()
        {
            let oldest = *oldest;
            // Report it too early rather than never.
            let age = self.entries[oldest as usize].age_at(now);
            self.enter(oldest, Phase::Stale, age);
            self.end_left(oldest);
        }
    }

    // ---- time ----

    #[inline]
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.wake(now);
        }
    }

    fn wake(&mut self, now: Time) {
        while let Some(&(at, id)) = self.wakes.first()
            && at <= now
        {
            self.wakes.pop_first();
            let entry = &mut self.entries[id as usize];
            entry.wake = None;
            let (Some(limit), phase) = (entry.limit, entry.phase) else { continue };
            match (phase, entry.shown) {
                (Phase::Fresh, Some((since, _))) if since.max_age(now) <= limit => {
                    let later = since.is_above_at(limit, now);
                    // At the maximum time there is no later time.
                    if later > now {
                        self.arm(id, later);
                    }
                }
                (Phase::Fresh | Phase::Unknown, _) => {
                    let age = entry.age_at(now);
                    self.enter(id, Phase::Stale, age);
                }
                (Phase::Stale, _) => {}
            }
        }
    }

    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// The next alarm; `record` finds the record of a topic.
    #[inline]
    pub(super) fn poll<'a, P: 'a>(
        &mut self,
        record: impl Fn(u32) -> Option<&'a Record<P>>,
    ) -> Option<Alarm> {
        if self.queue.is_empty() { None } else { self.next_alarm(record) }
    }

    fn next_alarm<'a, P: 'a>(
        &mut self,
        record: impl Fn(u32) -> Option<&'a Record<P>>,
    ) -> Option<Alarm> {
        while let Some(id) = self.queue.pop_front() {
            let entry = &mut self.entries[id as usize];
            entry.is_queued = false;
            if let Some(record) = entry.place.and_then(|(key, _)| record(key)) {
                entry.source = record.name.clone();
            }
            let alarm = entry.take_alarm();
            if entry.pending > 0 {
                entry.is_queued = true;
                self.queue.push_front(id);
            } else if entry.place.is_none()
                && (entry.left.is_none() || (entry.is_reported_stale && !entry.has_name))
            {
                self.end_left(id);
            }
            if alarm.is_some() {
                return alarm;
            }
        }
        None
    }

    // ---- getters ----

    /// The limit of a topic of a session.
    pub(super) fn limit(&self, source: &str, topic: &str) -> Option<Span> {
        MaxAge::of(&self.rules, source, topic)
    }

    pub(super) fn freshness(&self, key: u32, topic: u16) -> Option<Freshness> {
        self.freshness_of(*self.by_place.get(&(key, topic))?)
    }

    /// The freshness after the source's session has ended.
    pub(super) fn freshness_after(
        &self,
        source: &str,
        topic: &str,
        key: &[u8],
    ) -> Option<Freshness> {
        if self.by_name.is_empty() {
            return None;
        }
        self.freshness_of(*self.by_name.get(&(source.into(), topic.into(), key.into()))?)
    }

    fn freshness_of(&self, id: u32) -> Option<Freshness> {
        let Entry { limit, phase, too_old, .. } = &self.entries[id as usize];
        let is_fresh = (*phase != Phase::Unknown).then_some(*phase == Phase::Fresh);
        limit.map(|max_age| Freshness { max_age, is_fresh, too_old: *too_old })
    }

    /// Topics that are stale now.
    pub(super) fn stale(&self) -> usize {
        self.stale
    }

    /// States that were too old on arrival.
    pub(super) fn too_old(&self) -> u64 {
        self.too_old
    }

    // ---- steps ----

    /// The entry of a topic, which is created if missing, or taken over from the previous session.
    fn find(&mut self, topic: Topic<'_>) -> u32 {
        let place = (topic.key, topic.number);
        let id = match self.by_place.get(&place) {
            Some(id) => *id,
            None => {
                let limit = self.limit(topic.source, topic.name);
                let id = self.entries.insert(Entry::new(place, topic, limit)) as u32;
                self.by_place.insert(place, id);
                self.take_over(id, topic);
                id
            }
        };
        let entry = &mut self.entries[id as usize];
        if *entry.topic != *topic.name || *entry.topic_key != *topic.topic_key {
            // Its name has arrived.
            (entry.source, entry.topic, entry.topic_key) = topic.names();
            let limit = self.limit(topic.source, topic.name);
            self.entries[id as usize].limit = limit;
            if limit.is_none() {
                self.enter(id, Phase::Unknown, None);
            }
            self.take_over(id, topic);
        }
        id
    }

    /// Takes over the entry of an ended session with these names.
    fn take_over(&mut self, id: u32, topic: Topic<'_>) {
        let has_name = !topic.source.is_empty() && (topic.number == 0 || !topic.name.is_empty());
        if !has_name || self.by_name.is_empty() {
            return;
        }
        let name = topic.names();
        let Some(before) = self.by_name.get(&name).copied() else { return };
        // The successor reports its unreported alarms.
        let before_entry = &mut self.entries[before as usize];
        let (shown, phase, wake) = (before_entry.shown, before_entry.phase, before_entry.wake);
        let (is_reported_stale, too_old) = (before_entry.is_reported_stale, before_entry.too_old);
        let ages = before_entry.ages;
        let pending = core::mem::take(&mut before_entry.pending);
        self.end_left(before);
        let entry = &mut self.entries[id as usize];
        entry.too_old += too_old;
        entry.is_reported_stale = is_reported_stale;
        if entry.phase == Phase::Unknown {
            (entry.shown, entry.phase, entry.pending, entry.ages) = (shown, phase, pending, ages);
            self.stale += usize::from(phase == Phase::Stale);
            wake.into_iter().for_each(|at| self.arm(id, at));
        } else {
            entry.pending = u8::from((entry.phase == Phase::Stale) != is_reported_stale);
        }
        self.queue(id);
    }

    fn enter(&mut self, id: u32, phase: Phase, age: Option<StateAge>) {
        let entry = &mut self.entries[id as usize];
        let (was_stale, is_stale) = (entry.phase == Phase::Stale, phase == Phase::Stale);
        entry.phase = phase;
        if was_stale == is_stale {
            return;
        }
        if entry.pending == 2 {
            entry.pending = 1;
        } else {
            entry.ages[usize::from(entry.pending)] = age;
            entry.pending += 1;
        }
        self.stale -= usize::from(was_stale);
        self.stale += usize::from(is_stale);
        self.queue(id);
    }

    /// Queues the entry for the driver, if it has an alarm.
    fn queue(&mut self, id: u32) {
        let entry = &mut self.entries[id as usize];
        if entry.pending > 0 && !core::mem::replace(&mut entry.is_queued, true) {
            self.queue.push_back(id);
        }
    }

    /// Sets the timer of an entry to this time, or keeps an earlier one.
    fn arm(&mut self, id: u32, at: Time) {
        let entry = &mut self.entries[id as usize];
        if entry.wake.is_some_and(|wake| wake <= at) {
            return;
        }
        if let Some(wake) = entry.wake.replace(at) {
            self.wakes.remove(&(wake, id));
        }
        self.wakes.insert((at, id));
    }

    /// Keeps the topic of an ended session only until its alarm is reported.
    fn end_left(&mut self, id: u32) {
        let entry = &mut self.entries[id as usize];
        if let Some(left) = entry.left.take() {
            self.left.remove(&left);
            let name = (entry.source.clone(), entry.topic.clone(), entry.topic_key.clone());
            if self.by_name.get(&name) == Some(&id) {
                self.by_name.remove(&name);
            }
        }
        self.drop_when_reported(id);
    }

    fn drop_when_reported(&mut self, id: u32) {
        let entry = &mut self.entries[id as usize];
        if let Some(wake) = entry.wake.take() {
            self.wakes.remove(&(wake, id));
        }
        let (is_queued, is_news) = (entry.is_queued, entry.pending > 0);
        // Bounds their number for a driver that never polls.
        let pending = self.entries.len() - self.by_place.len() - self.left.len();
        if is_queued && is_news && pending <= 2 * self.max_left {
            return;
        }
        if is_queued {
            self.queue.retain(|queued| *queued != id);
        }
        self.stale -= usize::from(self.entries[id as usize].phase == Phase::Stale);
        self.entries.remove(id as usize);
    }
}

impl Entry {
    fn new(place: (u32, u16), topic: Topic<'_>, limit: Option<Span>) -> Self {
        Self {
            place: Some(place),
            number: topic.number,
            source: Box::default(),
            topic: topic.name.into(),
            topic_key: topic.topic_key.into(),
            label: topic.label,
            has_name: false,
            limit,
            shown: None,
            phase: Phase::Unknown,
            is_reported_stale: false,
            pending: 0,
            ages: [None; 2],
            is_queued: false,
            is_unjudged: false,
            wake: None,
            left: None,
            too_old: 0,
        }
    }

    /// The next unreported alarm.
    fn take_alarm(&mut self) -> Option<Alarm> {
        self.pending = self.pending.checked_sub(1)?;
        self.is_reported_stale = !self.is_reported_stale;
        let age = self.ages[0];
        self.ages[0] = self.ages[1];
        Some(Alarm {
            source: self.place.map(|(key, _)| SourceKey(key)),
            name: self.source.clone(),
            label: self.label,
            number: self.number,
            topic: self.topic.clone(),
            key: self.topic_key.clone(),
            is_stale: self.is_reported_stale,
            age,
            max_age: self.limit.unwrap_or(Span::MAX),
        })
    }

    /// The age of the last delivered state.
    fn age_at(&self, now: Time) -> Option<StateAge> {
        self.shown.map(|(since, uncertainty)| {
            let max = since.max_age(now);
            let uncertainty = uncertainty.min(max);
            StateAge { estimate: max - uncertainty, uncertainty }
        })
    }
}
