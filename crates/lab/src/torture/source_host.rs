//! A source, the application that it serves, and their clocks.

use freshline_core::path::{PathId, SchedulerConfig};
use freshline_core::session::{Paths, Secret, Source, SourceEvent, SourceParams, TransportState};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::SessionId;
use rand::RngExt;
use rand_pcg::Pcg64;

use super::clock::Clock;
use super::plan::{Leave, SourcePlan};

/// A datagram, and the number of the path by which it leaves.
pub(super) type Leaving = (usize, Vec<u8>);

pub(super) struct SourceHost {
    pub(super) endpoint: Source,
    pub(super) clock: Clock,
    /// The port from which it sends now, of each path; none while its interface is gone.
    ports: Vec<Option<u16>>,
    /// How many interfaces and addresses there have been.
    last_port: u16,
    /// How far the labels of the application's states are off, in ns.
    labels_off_by: i64,
    /// The world asks far more often than it changes.
    poll_timeout: Option<Time>,
    plan: SourcePlan,
    rng: Pcg64,
}

impl SourceHost {
    pub(super) fn new(plan: SourcePlan, mut rng: Pcg64) -> Self {
        let (endpoint, clock) = process(&plan, Time::ZERO, &mut rng);
        let ports = vec![Some(1); plan.delays.len()];
        let (labels_off_by, poll_timeout) = (0, None);
        let mut host =
            Self { endpoint, clock, ports, last_port: 1, labels_off_by, poll_timeout, plan, rng };
        host.plan_timeout();
        host
    }

    /// The port of a path; none while its interface is gone.
    pub(super) fn port(&self, path: usize) -> Option<u16> {
        self.ports[path]
    }

    /// Another port for a path that has one.
    pub(super) fn change_port(&mut self, path: usize) {
        self.last_port += 1;
        self.ports[path] = self.ports[path].map(|_| self.last_port);
    }

    /// The interface of a path is gone, or there again with another port.
    pub(super) fn set_interface(&mut self, now: Time, path: usize, is_there: bool) {
        if self.ports[path].is_some() == is_there {
            return;
        }
        self.last_port += 1;
        self.ports[path] = is_there.then_some(self.last_port);
        let (local, id) = (self.clock.read(now), PathId(path as u8));
        let state = if is_there { TransportState::Ready } else { TransportState::Down };
        self.endpoint.handle_transport(local, id, state);
        self.plan_timeout();
    }

    /// Replaces the process by a new one; gives the last words of the old one.
    pub(super) fn restart(&mut self, now: Time, leave: Leave) -> Option<Vec<u8>> {
        let last_words = (leave == Leave::Close).then(|| {
            self.endpoint.close();
            let mut out = Vec::new();
            let len = self.endpoint.poll_transmit(self.clock.read(now), &mut out)?.len;
            Some(out[..len].to_vec())
        });
        (self.endpoint, self.clock) = process(&self.plan, now, &mut self.rng);
        for path in (0..self.ports.len()).filter(|path| self.ports[*path].is_none()) {
            let (local, id) = (self.clock.read(now), PathId(path as u8));
            self.endpoint.handle_transport(local, id, TransportState::Down);
        }
        self.plan_timeout();
        last_words.flatten()
    }

    pub(super) fn step_labels(&mut self, by_ms: i64) {
        self.labels_off_by = by_ms * 1_000_000;
    }

    /// When it wants to send or to be woken; `None` if never, which is a fault.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.poll_timeout
    }

    /// Lets it do what is due; what happened to its session goes to `learned`. The update that left, if
    /// one did, with its number, and what leaves by which path.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        mut learned: impl FnMut(&Self, SourceEvent),
    ) -> Option<(u64, Vec<Leaving>)> {
        let local = self.clock.read(now);
        self.endpoint.handle_timeout(local);
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                SourceEvent::StateWanted(_) => {
                    let seq = self.endpoint.counters().sent;
                    let state = state(self.endpoint.session(), seq);
                    let labels = local.as_nanos().saturating_add_signed(self.labels_off_by);
                    let put = self.endpoint.put(local, Time::from_nanos(labels), &state);
                    put.expect("states are short");
                }
                SourceEvent::RenewTransports { .. } => {}
                event => learned(self, event),
            }
        }
        let (mut datagrams, mut seq, mut out) = (Vec::new(), None, Vec::new());
        while let Some(transmit) = self.endpoint.poll_transmit(local, &mut out) {
            assert_eq!(transmit.is_copy, seq.is_some(), "one update a turn");
            seq = transmit.seq;
            datagrams.push((usize::from(transmit.path.0), out[..transmit.len].to_vec()));
        }
        self.plan_timeout();
        Some((seq?, datagrams))
    }

    /// What a datagram tells it; nothing if it is left aside.
    pub(super) fn receive(
        &mut self,
        now: Time,
        path: usize,
        datagram: &[u8],
    ) -> Option<SourceEvent> {
        let by = PathId(path as u8);
        let result = self.endpoint.handle_datagram(self.clock.read(now), by, datagram);
        let event = result.ok().and_then(|()| self.endpoint.poll_event());
        self.plan_timeout();
        event
    }

    /// The age at the monitor as this source knows it.
    pub(super) fn known_age(&self, now: Time) -> Option<Span> {
        self.endpoint.age().process().age(self.clock.read(now))
    }

    fn plan_timeout(&mut self) {
        let next = self.endpoint.poll_timeout();
        self.poll_timeout = next.map(|local| self.clock.world(local));
    }
}

/// The state that a source sends as update `seq`: told by it alone, of varying length.
pub(super) fn state(session: SessionId, seq: u64) -> Vec<u8> {
    let text = format!("{:016x} {seq} ", session.0);
    text.bytes().cycle().take(8 + (seq % 97) as usize).collect()
}

fn process(plan: &SourcePlan, now: Time, rng: &mut Pcg64) -> (Source, Clock) {
    let clock = Clock::random(rng, plan.ppm);
    let params = SourceParams { name: plan.name.clone(), ..SourceParams::default() };
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
