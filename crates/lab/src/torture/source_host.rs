//! A source, commanded or not, its application, and their clocks.

use freshline_core::path::{PathId, SchedulerConfig};
use freshline_core::session::{
    Dialer, DialerEvent, MonitorEvent, MonitorParams, Paths, Secret, Source, SourceEvent,
    SourceKey, SourceParams, TopicId, Transmit, TransportState,
};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::SessionId;
use rand::RngExt;
use rand_pcg::Pcg64;

use super::clock::Clock;
use super::ledger::{Ledger, Sample, mix};
use super::log::Log;
use super::plan::{Leave, SourcePlan};
use super::topics::Topics;

/// An event at a source.
pub(super) enum Happened {
    /// It learned something.
    Learned(SourceEvent),
    /// It was given a state of the return direction.
    Commanded(Given),
    /// It received one that may be too old to be given.
    Withheld,
    /// It answered a datagram; lengths in bytes.
    Answered { question: usize, answer: usize },
}

/// A state of the return direction.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) state: Vec<u8>,
    /// The return session.
    pub(super) session: SessionId,
    /// Whether the state has opened that session, possibly again.
    pub(super) opened: bool,
}

/// A source, and the receiver of the return direction if it is commanded.
enum Endpoint {
    Source(Box<Source>),
    Dialer(Box<Dialer>),
}

/// A datagram to be sent.
pub(super) struct Leaving {
    /// The number of the path.
    pub(super) path: usize,
    /// The number of its update, unless it is a copy.
    pub(super) seq: Option<u64>,
    pub(super) datagram: Vec<u8>,
}

pub(super) struct SourceHost {
    end: Endpoint,
    pub(super) clock: Clock,
    /// The port from which it sends on each path; `None` while the path's interface is down.
    ports: Vec<Option<u16>>,
    /// The number of interfaces and addresses so far.
    last_port: u16,
    /// The offset of the labels of the application's states, in ns.
    labels_off_by: i64,
    /// A cache, as it is read far more often than it changes.
    poll_timeout: Option<Time>,
    /// The first session of the present process.
    process: SessionId,
    /// The first sessions of all processes so far.
    processes: Vec<SessionId>,
    /// Whether the process is stopped.
    pub(super) is_stopped: bool,
    /// The number of states put so far, by all processes.
    put: u64,
    topics: Topics,
    plan: SourcePlan,
    receiver: MonitorParams,
    rng: Pcg64,
}

/// The maximum datagram of a source whose states take several.
const MAX_DATAGRAM: usize = 9_000;

/// Larger states take several updates.
pub(super) const MAX_WHOLE: usize = MAX_DATAGRAM;

/// The maximum state of such a source.
pub(super) const MAX_LARGE: usize = 60_000;

/// The maximum number of updates per state, without repair.
pub(super) const MAX_PARTS: u64 = 7;

impl SourceHost {
    /// A source with the settings of its receiver, if it is commanded.
    pub(super) fn new(plan: SourcePlan, receiver: MonitorParams, mut rng: Pcg64) -> Self {
        let mut topics = Topics::new(&plan);
        let (end, clock) = process(&plan, &mut topics, &receiver, Time::ZERO, &mut rng);
        let ports = vec![Some(1); plan.delays.len()];
        let process = end.source().session();
        let mut host = Self {
            end,
            clock,
            ports,
            last_port: 1,
            labels_off_by: 0,
            poll_timeout: None,
            process,
            processes: vec![process],
            is_stopped: false,
            put: 0,
            topics,
            plan,
            receiver,
            rng,
        };
        host.plan_timeout();
        host
    }

    /// Its sender.
    pub(super) fn endpoint(&self) -> &Source {
        self.end.source()
    }

    /// The present process, identified by the first of its sessions.
    pub(super) fn process(&self) -> SessionId {
        self.process
    }

    /// Whether this is, or was, one of its processes.
    pub(super) fn has_run(&self, process: SessionId) -> bool {
        self.processes.contains(&process)
    }

    /// The port of a path; `None` while its interface is down.
    pub(super) fn port(&self, path: usize) -> Option<u16> {
        self.ports[path]
    }

    /// The number of its paths.
    pub(super) fn paths(&self) -> usize {
        self.ports.len()
    }

    /// Changes the port of a path, if it has one.
    pub(super) fn change_port(&mut self, path: usize) {
        self.last_port += 1;
        self.ports[path] = self.ports[path].map(|_| self.last_port);
    }

    /// The interface of a path goes down, or is up again with another port.
    pub(super) fn set_interface(&mut self, now: Time, path: usize, is_there: bool) {
        if self.ports[path].is_some() == is_there {
            return;
        }
        self.last_port += 1;
        self.ports[path] = is_there.then_some(self.last_port);
        let (local, id) = (self.clock.read(now), PathId(path as u8));
        let state = if is_there { TransportState::Ready } else { TransportState::Down };
        self.end.source_mut().handle_transport(local, id, state);
        self.plan_timeout();
    }

    /// Replaces the process by a new one. Returns the close message of the old one.
    pub(super) fn restart(&mut self, now: Time, leave: Leave) -> Option<Vec<u8>> {
        let last_words = (leave == Leave::Close).then(|| {
            self.end.source_mut().close();
            let mut out = Vec::new();
            let len = self.end.poll_transmit(self.clock.read(now), &mut out)?.len;
            Some(out[..len].to_vec())
        });
        (self.end, self.clock) =
            process(&self.plan, &mut self.topics, &self.receiver, now, &mut self.rng);
        self.process = self.endpoint().session();
        self.processes.push(self.process);
        for path in (0..self.ports.len()).filter(|path| self.ports[*path].is_none()) {
            let (local, id) = (self.clock.read(now), PathId(path as u8));
            self.end.source_mut().handle_transport(local, id, TransportState::Down);
        }
        self.plan_timeout();
        last_words.flatten()
    }

    /// Its machine was suspended.
    pub(super) fn resume(&mut self, now: Time) {
        let local = self.clock.read(now);
        self.end.source_mut().handle_resume(local);
        self.plan_timeout();
    }

    pub(super) fn step_labels(&mut self, by_ms: i64) {
        self.labels_off_by = by_ms * 1_000_000;
    }

    /// The time of its next timeout; `None` if never, which is a fault.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.poll_timeout
    }

    /// The same, but never while it is stopped.
    pub(super) fn wakes_at(&self) -> Option<Time> {
        self.poll_timeout.filter(|_| !self.is_stopped)
    }

    /// Handles due timeouts: records states in `ledger` and passes events to `see`. Returns the
    /// datagrams to send.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        ledger: &mut Ledger,
        see: impl FnMut(&Self, Happened),
    ) -> Vec<Leaving> {
        let local = self.clock.read(now);
        let (source, process) = (self.end.source_mut(), self.process);
        self.topics.handle_timeout(source, process, (now, local), ledger);
        self.end.handle_timeout(local);
        self.drain(now, None, ledger, see)
    }

    /// Handles a datagram. Returns the datagrams to send at once.
    pub(super) fn receive(
        &mut self,
        (now, path): (Time, usize),
        datagram: &[u8],
        ledger: &mut Ledger,
        see: impl FnMut(&Self, Happened),
    ) -> Vec<Leaving> {
        let (local, by) = (self.clock.read(now), PathId(path as u8));
        self.end.handle_datagram(local, by, datagram);
        self.drain(now, Some(datagram.len()), ledger, see)
    }

    fn drain(
        &mut self,
        now: Time,
        question: Option<usize>,
        ledger: &mut Ledger,
        mut see: impl FnMut(&Self, Happened),
    ) -> Vec<Leaving> {
        let local = self.clock.read(now);
        while let Some(event) = self.end.poll_event() {
            match event {
                DialerEvent::Source(SourceEvent::StateWanted(_)) => self.put(now, local, ledger),
                DialerEvent::Source(SourceEvent::RenewTransports { .. }) => {}
                DialerEvent::Source(SourceEvent::RecordsDone { .. }) => {
                    self.topics.forget_done(self.end.source());
                }
                DialerEvent::Source(event) => see(self, Happened::Learned(event)),
                DialerEvent::Monitor(MonitorEvent::Fresh {
                    source,
                    opened,
                    is_repeat: false,
                    ..
                }) => {
                    if let Some((session, state)) = self.end.command(source) {
                        see(self, Happened::Commanded(Given { state, session, opened }));
                    }
                }
                DialerEvent::Monitor(MonitorEvent::Withheld { .. }) => {
                    see(self, Happened::Withheld);
                }
                DialerEvent::Monitor(_) => {}
            }
        }
        let (mut left, mut out) = (Vec::new(), Vec::new());
        while let Some(transmit) = self.end.poll_transmit(local, &mut out) {
            let (path, datagram) = (usize::from(transmit.path.0), out[..transmit.len].to_vec());
            let seq = transmit.seq.filter(|_| !transmit.is_copy);
            if let (Some(question), None) = (question, transmit.seq) {
                see(self, Happened::Answered { question, answer: datagram.len() });
            }
            left.push(Leaving { path, seq, datagram });
        }
        self.plan_timeout();
        left
    }

    fn put(&mut self, now: Time, local: Time, ledger: &mut Ledger) {
        self.put += 1;
        let (process, number) = (self.process, self.put);
        let sample = Sample { process, number, len: self.len_of(number), at: now };
        // The source accepts labels from the future as now.
        let label = local.as_nanos().saturating_add_signed(self.labels_off_by);
        let label = Time::from_nanos(label).min(local);
        ledger.put(label, sample);
        let put = self.end.source_mut().put(local, label, &sample.state());
        put.expect("states are short");
        let source = self.end.source_mut();
        self.topics.follow(source, (process, number), (now, local), ledger);
    }

    /// Whether some of its records are not done.
    pub(super) fn has_waiting_records(&self) -> bool {
        self.topics.log.as_ref().is_some_and(Log::is_waiting)
    }

    /// The number of its records that are done.
    pub(super) fn records_done(&self) -> u64 {
        self.topics.log.as_ref().map_or(0, Log::done)
    }

    /// Its name; empty if it has none.
    pub(super) fn name(&self) -> &str {
        &self.plan.name
    }

    /// The age at the monitor, as known to this source.
    pub(super) fn known_age(&self, now: Time) -> Option<Span> {
        let source = self.endpoint();
        // A source with topics measures the age of each.
        let age = source.topic_age(TopicId::FIRST).unwrap_or(source.age().process());
        age.age(self.clock.read(now))
    }

    /// The length of a state.
    fn len_of(&self, number: u64) -> usize {
        if !self.plan.large {
            return 8 + (number % 97) as usize;
        }
        let draw = mix(number);
        let most = [100, MAX_DATAGRAM, MAX_LARGE, MAX_LARGE][draw % 4];
        1 + draw / 4 % most
    }

    fn plan_timeout(&mut self) {
        let next = Time::earliest([self.end.poll_timeout(), self.topics.poll_timeout()]);
        self.poll_timeout = next.map(|local| self.clock.world(local));
    }
}

impl Endpoint {
    fn source(&self) -> &Source {
        match self {
            Self::Source(source) => source,
            Self::Dialer(dialer) => dialer.source(),
        }
    }

    fn source_mut(&mut self) -> &mut Source {
        match self {
            Self::Source(source) => source,
            Self::Dialer(dialer) => dialer.source_mut(),
        }
    }

    /// The state of the return direction that it holds.
    fn command(&self, source: SourceKey) -> Option<(SessionId, Vec<u8>)> {
        let Self::Dialer(dialer) = self else { return None };
        let record = dialer.receiver().record(source)?;
        Some((record.session, record.payload()?.to_vec()))
    }

    fn handle_datagram(&mut self, now: Time, by: PathId, datagram: &[u8]) {
        // An ignored datagram changes nothing.
        let _ = match self {
            Self::Source(source) => source.handle_datagram(now, by, datagram).is_ok(),
            Self::Dialer(dialer) => dialer.handle_datagram(now, by, datagram).is_ok(),
        };
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Source(source) => source.handle_timeout(now),
            Self::Dialer(dialer) => dialer.handle_timeout(now),
        }
    }

    fn poll_event(&mut self) -> Option<DialerEvent> {
        match self {
            Self::Source(source) => source.poll_event().map(DialerEvent::Source),
            Self::Dialer(dialer) => dialer.poll_event(),
        }
    }

    fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        match self {
            Self::Source(source) => source.poll_transmit(now, out),
            Self::Dialer(dialer) => dialer.poll_transmit(now, out),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Source(source) => source.poll_timeout(),
            Self::Dialer(dialer) => dialer.poll_timeout(),
        }
    }
}

fn process(
    plan: &SourcePlan,
    topics: &mut Topics,
    receiver: &MonitorParams,
    now: Time,
    rng: &mut Pcg64,
) -> (Endpoint, Clock) {
    let (mut source, clock) = sender(plan, now, rng);
    source = topics.begin(source, &plan.name, clock.read(now));
    if !plan.is_commanded {
        return (Endpoint::Source(Box::new(source)), clock);
    }
    let secret = Secret::new(rng.random());
    let dialer = Dialer::new(source, receiver.clone(), secret);
    (Endpoint::Dialer(Box::new(dialer)), clock)
}

fn sender(plan: &SourcePlan, now: Time, rng: &mut Pcg64) -> (Source, Clock) {
    let clock = Clock::random(rng, plan.ppm);
    let mut params = SourceParams { name: plan.name.clone(), ..SourceParams::default() };
    if plan.large {
        params.max_datagram = MAX_DATAGRAM;
    }
    let secret = Secret::new(rng.random());
    let source = Source::new(params, secret, plan.law.build(), clock.read(now));
    let source = source.expect("names are short");
    if plan.delays.len() == 1 {
        return (source, clock);
    }
    let scheduler: SchedulerConfig = plan.scheduler.parse().expect("there is one");
    let paths = Paths::new(plan.delays.len(), &scheduler).expect("it lets nothing wait");
    (source.over(paths), clock)
}
