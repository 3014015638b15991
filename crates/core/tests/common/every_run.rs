//! A source with a pose and a topic of records, a path, and a monitor, in virtual time. Both ends
//! can be restarted: their saved state stands for the files of drivers.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::VecDeque;

use freshline_core::age::{AgeMeter, AgeSummary};
use freshline_core::dscp::Dscp;
use freshline_core::session::{
    Cursor, Monitor, MonitorEvent, MonitorParams, RecordError, Secret, Source, SourceEvent,
    SourceParams, StreamId, TakenRecord, TopicId, TopicKind, TopicParams,
};
use freshline_core::source::{Limits, RateLaw};
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::driven;
use crate::wire::{Wire, arrived, next_at};

/// The maximum size of a datagram, and the headers of IPv4 and UDP.
pub(crate) const DATAGRAM: usize = 1_200;
const HEADERS: u64 = 28;

/// The topics' places.
pub(crate) const POSE: u16 = 0;
pub(crate) const LOG: u16 = 1;

/// The stream of the records.
pub(crate) const STREAM: StreamId = StreamId(0x5eed);

/// When a pose is sampled, and its length.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pose {
    Never,
    /// As an update leaves.
    Sampled(usize),
    /// With this period.
    Timed(Span, usize),
}

/// The parameters of a run.
pub(crate) struct Setup {
    pub(crate) law: fn() -> Box<dyn RateLaw>,
    pub(crate) limits: Limits,
    pub(crate) pose: Pose,
    /// Records in all, and their lengths in turn.
    pub(crate) records: u64,
    pub(crate) lengths: &'static [usize],
    /// The period of records; none: as fast as they are taken.
    pub(crate) period: Option<Span>,
    pub(crate) max_bytes: u32,
    pub(crate) is_urgent: bool,
    /// The path's rate, in each direction.
    pub(crate) rate: BitRate,
    pub(crate) delay: Span,
    pub(crate) loss: f64,
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) setup: Setup,
    pub(crate) source: Source,
    pub(crate) log: TopicId,
    pub(crate) monitor: Monitor<u8>,
    forward: Wire,
    reverse: Wire,
    busy_until: Time,
    random: Pcg32,
    /// Whether all datagrams are lost.
    pub(crate) is_cut: bool,
    pub(crate) starts: u8,
    /// Records that the source has put: each with its first number and its own.
    spool: VecDeque<(u64, u64)>,
    /// The next record.
    pub(crate) put: u64,
    next_put: Time,
    next_pose: Time,
    poses: u8,
    /// Refusals for lack of room.
    pub(crate) full: u64,
    /// How far the application is, as the monitor's driver has written it down.
    pub(crate) journal: Option<Cursor>,
    /// Records that the application has got, in order, and a digest of them all.
    pub(crate) taken: u64,
    pub(crate) digest: u64,
    /// Whether the application takes records.
    pub(crate) is_taking: bool,
    pub(crate) delays: Vec<Span>,
    pub(crate) age: AgeMeter,
    pub(crate) max_held: [usize; 2],
    /// Updates so far.
    pub(crate) updates: u64,
}

/// Record `number`.
pub(crate) fn record(number: u64, lengths: &[usize]) -> Vec<u8> {
    let len = lengths[number as usize % lengths.len()];
    (0..len as u64)
        .map(|at| (number.wrapping_mul(0x9e37_79b9).wrapping_add(at) >> 3) as u8)
        .collect()
}

/// FNV-1a of a digest so far and a record, with its length.
pub(crate) fn digest(before: u64, record: &[u8]) -> u64 {
    let len = (record.len() as u64).to_be_bytes();
    let bytes = len.iter().chain(record);
    bytes.fold(before, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

impl World {
    pub(crate) fn new(seed: u64, setup: Setup) -> Self {
        let start = Time::ZERO + Span::from_secs(1_000);
        let source = new_source(&setup, 0, 0, start);
        let log = source.topics().nth(usize::from(LOG)).expect("there are two").0;
        Self {
            now: start,
            source,
            log,
            monitor: new_monitor(),
            setup,
            forward: Wire::new(),
            reverse: Wire::new(),
            busy_until: Time::ZERO,
            random: Pcg32::seed_from_u64(seed),
            is_cut: false,
            starts: 0,
            spool: VecDeque::new(),
            put: 0,
            next_put: start,
            next_pose: start,
            poses: 0,
            full: 0,
            journal: None,
            taken: 0,
            digest: 0,
            is_taking: true,
            delays: Vec::new(),
            age: AgeMeter::new(),
            max_held: [0; 2],
            updates: 0,
        }
    }

    /// Whether the application has got all records, and the source knows.
    pub(crate) fn is_done(&self) -> bool {
        self.put == self.setup.records
            && self.taken == self.put
            && self.source.records_done(self.log) == self.view().next
    }

    pub(crate) fn view(&self) -> freshline_core::session::RecordsView {
        self.source.records(self.log).expect("it is of records")
    }

    /// Runs until everything is done; returns the duration.
    pub(crate) fn finish(&mut self, within: Span) -> Span {
        let start = self.now;
        while !self.is_done() {
            assert!(self.now < start + within, "{} taken, {:?}", self.taken, self.view());
            self.run(Span::from_millis(10));
        }
        self.now.since(start)
    }

    pub(crate) fn run(&mut self, duration: Span) {
        let end = self.now + duration;
        let mut turns = 0;
        loop {
            self.arrive();
            self.feed();
            self.send();
            let next = next_at(&self.source, [&self.forward, &self.reverse]);
            let next = Time::earliest([next, self.next_feed()]);
            let next = next.map_or(end, |at| at.max(self.now));
            if next >= end {
                self.now = end;
                return;
            }
            turns = if next == self.now { turns + 1 } else { 0 };
            assert!(turns < 100, "it spins: {:?} at {:?}", self.source.poll_timeout(), self.now);
            self.now = next;
        }
    }

    /// The source's process ends silently, and another one reads the spool.
    pub(crate) fn restart_source(&mut self) {
        self.starts += 1;
        let first = self.spool.front().map_or(self.view().next, |(first, _)| *first);
        self.source = new_source(&self.setup, self.starts, first, self.now);
        self.reverse.clear();
        for (first, number) in self.spool.clone() {
            let bytes = record(number, self.setup.lengths);
            let given = self.source.put_record(self.now, self.log, self.now, &bytes);
            assert_eq!(given, Ok(first), "numbers go on");
        }
    }

    /// The monitor's process ends silently, and another one reads the journal.
    pub(crate) fn restart_monitor(&mut self) {
        self.monitor = new_monitor().with_cursors(self.journal.clone());
    }

    fn next_feed(&self) -> Option<Time> {
        let has_more = self.put < self.setup.records;
        let put_at = self.setup.period.filter(|_| has_more).map(|_| self.next_put);
        let pose_at = matches!(self.setup.pose, Pose::Timed(..)).then_some(self.next_pose);
        Time::earliest([put_at, pose_at])
    }

    fn feed(&mut self) {
        if let Pose::Timed(period, len) = self.setup.pose
            && self.next_pose <= self.now
        {
            self.next_pose += period;
            self.put_pose(len);
        }
        while self.put < self.setup.records && self.next_put <= self.now {
            let bytes = record(self.put, self.setup.lengths);
            match self.source.put_record(self.now, self.log, self.now, &bytes) {
                Ok(first) => self.spool.push_back((first, self.put)),
                Err(RecordError::Full { .. }) => {
                    assert!(self.source.record_room(self.log) < bytes.len());
                    self.full += 1;
                    if let Some(period) = self.setup.period {
                        self.next_put += period;
                    }
                    return;
                }
                Err(error) => panic!("{error}"),
            }
            self.put += 1;
            if let Some(period) = self.setup.period {
                self.next_put += period;
            }
        }
    }

    fn put_pose(&mut self, len: usize) {
        let pose = TopicId::FIRST;
        // No two are the same.
        self.poses = self.poses.wrapping_add(1);
        self.source.put_topic(self.now, pose, self.now, &vec![self.poses; len]).expect("it fits");
    }

    fn send(&mut self) {
        self.source.handle_timeout(self.now);
        while let Some(event) = self.source.poll_event() {
            match (event, self.setup.pose) {
                (SourceEvent::StateWanted(_), Pose::Sampled(len)) => self.put_pose(len),
                (SourceEvent::RecordsDone { topic }, _) => {
                    let done = self.source.records_done(topic);
                    let next = self.view().next;
                    while self.spool.front().is_some_and(|(first, _)| {
                        self.spool.get(1).map_or(next, |(first, _)| *first) <= done && *first < done
                    }) {
                        self.spool.pop_front();
                    }
                }
                _ => {}
            }
        }
        self.max_held[0] = self.max_held[0].max(self.view().bytes);
        let mut out = Vec::new();
        while let Some(transmit) = self.source.poll_transmit(self.now, &mut out) {
            assert!(transmit.len <= DATAGRAM, "{transmit:?}");
            assert_eq!(transmit.dscp, Dscp::DEFAULT, "it is not replaced");
            self.updates += u64::from(!transmit.is_copy);
            let bytes = Bytes::new(transmit.len as u64 + HEADERS);
            self.source.handle_wire_bytes(self.now, bytes);
            self.busy_until = self.busy_until.max(self.now) + self.setup.rate.time_to_send(bytes);
            // A full queue drops.
            let is_lost = self.is_lost() || self.busy_until.since(self.now) > Span::from_secs(1);
            if !is_lost {
                let at = self.busy_until + self.setup.delay;
                self.forward.push_back((at, transmit.path, out[..transmit.len].to_vec()));
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        let drawn = f64::from(self.random.next_u32()) / f64::from(u32::MAX);
        self.is_cut || drawn < self.setup.loss
    }

    fn arrive(&mut self) {
        while let Some((_, path, datagram)) = arrived(&mut self.forward, self.now) {
            let heard = driven::tell(&mut self.monitor, self.now, path.0, &datagram);
            assert!(heard.reply.len() <= datagram.len(), "no amplification");
            heard.events.iter().for_each(|event| self.see(event));
            self.max_held[1] = self.max_held[1].max(self.monitor.large_memory());
            if !heard.reply.is_empty() && !self.is_lost() {
                self.reverse.push_back((self.now + self.setup.delay, path, heard.reply));
            }
        }
        while let Some((_, path, datagram)) = arrived(&mut self.reverse, self.now) {
            let _ = self.source.handle_datagram(self.now, path, &datagram);
        }
    }

    fn see(&mut self, event: &MonitorEvent<u8>) {
        match event {
            MonitorEvent::Fresh { source, is_repeat: false, .. } => {
                let record = self.monitor.record(*source).expect("it is open");
                self.age.on_update(self.now, record.generated_at);
            }
            MonitorEvent::Record { source, topic } if self.is_taking => {
                while let Some(taken) = self.monitor.take_record(self.now, *source, *topic) {
                    self.take(&taken);
                }
            }
            _ => {}
        }
    }

    /// The application takes records again, starting with the records that are complete now.
    pub(crate) fn resume_taking(&mut self) {
        self.is_taking = true;
        let sources: Vec<_> = self.monitor.records().map(|(source, _)| source).collect();
        for source in sources {
            while let Some(taken) = self.monitor.take_record(self.now, source, LOG) {
                self.take(&taken);
            }
        }
    }

    fn take(&mut self, taken: &TakenRecord) {
        let expected = record(self.taken, self.setup.lengths);
        assert_eq!(taken.bytes, expected, "record {} in order and once", self.taken);
        assert_eq!((&*taken.cursor.topic, taken.cursor.stream), ("log", STREAM));
        self.taken += 1;
        self.digest = digest(self.digest, &taken.bytes);
        self.delays.push(self.now.since(taken.generated_at));
        self.journal = Some(taken.cursor.clone());
    }

    pub(crate) fn ages(&self) -> AgeSummary {
        self.age.summary(self.now).expect("poses have arrived")
    }
}

fn new_source(setup: &Setup, start: u8, first: u64, now: Time) -> Source {
    let Setup { limits, max_bytes, is_urgent, .. } = *setup;
    let name = "robot".to_owned();
    let params = SourceParams { name, max_datagram: DATAGRAM, limits, ..SourceParams::default() };
    let source = Source::new(params, Secret::new([7 + start; 16]), (setup.law)(), now);
    let kind = TopicKind::Every { stream: STREAM, first, max_bytes };
    let log = TopicParams { kind, is_urgent, ..TopicParams::new("log") };
    let source = source.expect("the name is legal");
    source.with_topics(vec![TopicParams::new("pose"), log]).expect("they are legal")
}

fn new_monitor() -> Monitor<u8> {
    Monitor::new(MonitorParams::default(), Secret::new([1; 16]))
}
