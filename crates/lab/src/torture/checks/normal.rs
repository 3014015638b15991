//! Age returns to normal: some time after the healing it is determined by the rate and the path,
//! and both ends know it.

use freshline_core::source::{Phase, RateLaw};
use freshline_core::unit::{Span, Time};

use super::{CLOCKS_DIFFER, Check};
use crate::torture::hosts::Hosts;
use crate::torture::observation::Observation;
use crate::torture::plan::Plan;
use crate::torture::source_host::MAX_PARTS;
use crate::torture::timetable::{MAX_PAUSE, Timetable};

/// The maximum age of estimates of the clocks' offset.
const OFFSET_LASTS: Span = Span::from_secs(20);

pub(super) struct Normal {
    timetable: Timetable,
    /// The one-way delay to the monitor, for each source on its slowest path.
    delays: Vec<Span>,
    /// For each source, whether states take several updates, and the number of its other topics of
    /// states.
    large: Vec<bool>,
    others: Vec<u64>,
    /// When the newest command given to a source was put; `None` if the source is not commanded.
    /// Damage can request commands in its name.
    commanded: Vec<Option<Time>>,
    /// Whether commands may be too old to be given.
    withholds: bool,
}

impl Normal {
    pub(super) fn new(plan: &Plan, timetable: Timetable) -> Self {
        let slowest = |delays: &Vec<Span>| delays.iter().copied().max().unwrap_or(Span::ZERO);
        let delays = plan.sources.iter().map(|source| slowest(&source.delays)).collect();
        let large = plan.sources.iter().map(|source| source.large).collect();
        let others = plan.sources.iter().map(|it| u64::from(it.keys) + u64::from(it.urgent));
        let others = others.collect();
        let commanded = plan.sources.iter().map(|it| it.is_commanded.then_some(Time::ZERO));
        let (commanded, withholds) = (commanded.collect(), plan.monitor.max_age.is_some());
        Self { timetable, delays, large, others, commanded, withholds }
    }

    fn check_commands(&self, hosts: &Hosts, source: usize) -> Result<(), String> {
        let session = hosts.sources[source].endpoint().session();
        let sender = hosts.monitor.return_source(session).filter(|_| !self.withholds);
        let Some((sender, given)) = sender.zip(self.commanded[source]) else { return Ok(()) };
        let (age, delay) = (hosts.now.since(given), self.delays[source]);
        // This includes the 1 ms that an ack waits for a state with which it is sent.
        let normal = delay + max_pause(sender.law(), delay) + Span::from_millis(2);
        if age > normal {
            return Err(format!("source {source}: a command of {age}, {normal} would be normal"));
        }
        Ok(())
    }

    /// The additional age of states because of other topics: topics take turns, and the update
    /// after an urgent one is sent half a period late. ACP may reduce its rate to one update per
    /// round trip for an epoch, which is then added.
    fn turns(&self, law: &dyn RateLaw, source: usize) -> Span {
        let (others, period) = (self.others[source], law.rate().period());
        match others {
            0 => Span::ZERO,
            _ if law.name() == "acp" => period.max(self.delays[source] * 2) * (others + 2),
            _ => period * (others + 1),
        }
    }

    fn check(&self, hosts: &Hosts, source: usize) -> Result<(), String> {
        let host = &hosts.sources[source];
        let session = host.endpoint().session();
        let Some(record) = hosts.monitor.record(session) else {
            return Err(format!("source {source} is unknown to the monitor"));
        };
        let Some(put_at) = hosts.ledger.put_at(session, record.generated_at) else {
            return Err(format!("source {source} never sent the state that the monitor holds"));
        };
        let age = hosts.now.since(put_at);
        let delay = self.delays[source];
        let law = host.endpoint().law();
        let pause = max_pause(law, delay);
        // A large state, its repair symbols, and the next state.
        let updates = if self.large[source] { 3 * MAX_PARTS } else { 1 };
        let turns = self.turns(law, source);
        let normal = delay + pause * updates + turns + Span::from_millis(1);
        if age > normal {
            return Err(format!("source {source}: an age of {age}, {normal} would be normal"));
        }
        let error = Span::from_micros(1) + delay + OFFSET_LASTS.mul_f64(CLOCKS_DIFFER);
        if let Some(known) = hosts.monitor.known_age(hosts.now, record)
            && known.as_nanos().abs_diff(age.as_nanos()) > error.as_nanos()
        {
            return Err(format!(
                "the monitor knows an age of {known} of source {source}, in truth it is {age}"
            ));
        }
        let most = age + normal + delay;
        host.known_age(hosts.now)
            .is_some_and(|known| known <= most)
            .then_some(())
            .ok_or_else(|| format!("source {source} does not know its age of {age}"))
    }
}

/// The maximum time between two updates of a law on a path with this delay.
pub(super) fn max_pause(law: &dyn RateLaw, delay: Span) -> Span {
    // A law changes its rate by a quarter at a time, and the previous period may have been the
    // longer one.
    match law.phase() {
        Phase::Probing => MAX_PAUSE,
        // After a train of four updates it pauses for as many periods, plus one round trip.
        Phase::Steering if law.name() == "tenth" => law.rate().period() * 6 + delay * 2,
        Phase::Steering => law.rate().period() * 2,
    }
}

impl Check for Normal {
    fn property(&self) -> &'static str {
        "age returns to normal"
    }

    fn on_observation(&mut self, hosts: &Hosts, seen: &Observation) -> Result<(), String> {
        if let Observation::Commanded { source, given } = seen
            && let Some(command) = hosts.ledger.command(&given.state)
        {
            self.commanded[*source] = Some(command.at);
        }
        Ok(())
    }

    fn on_step(&mut self, hosts: &Hosts) -> Result<(), String> {
        let Timetable { settled, away, .. } = self.timetable;
        if !(settled..away).contains(&hosts.now) {
            return Ok(());
        }
        (0..hosts.sources.len()).try_for_each(|source| {
            self.check(hosts, source)?;
            self.check_commands(hosts, source)
        })
    }
}
