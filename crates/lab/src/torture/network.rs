//! The network between the hosts: a world of [`crate::world`], with flows of external datagrams.
//!
//! ```text
//!  source ──► fault ─► hop ──► monitor              each path of each source; the same in reverse
//!  stranger ─────────► hop ──► monitor or source
//! ```

use freshline_core::link::{Direction, HopConfig, Order};
use freshline_core::unit::{Span, Time};
use rand_pcg::Pcg64;

use super::plan::{Damaged, Plan};
use super::weather::Weather;
use crate::world::{Changed, External, Fault, Faults, Flow, Leg, Routed, Wire, World};

/// Hosts with this number or above are strangers.
pub(super) const FIRST_STRANGER: usize = 1_000;

/// The delay of a stranger's datagram.
const STRANGERS_DELAY: Span = Span::from_millis(1);

/// Random streams with this number or above are those of hops and faults.
const STREAMS: u128 = 2_000;

/// The indices of the world's flows. Path n of either ends at the same path of a source.
const SESSIONS: usize = 0;
const STRANGERS: usize = 1;

/// The end of a path that is not at the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Address {
    /// The index of the source, or, for a stranger, [`FIRST_STRANGER`] or above.
    pub(super) host: usize,
    /// The index of the path of that source.
    pub(super) path: usize,
    pub(super) port: u16,
}

/// The destination of a datagram that has arrived.
pub(super) enum Arrived {
    AtMonitor { from: Address },
    AtSource { to: Address },
}

pub(super) struct Network {
    world: World,
    paths: Vec<Path>,
    /// Whether datagrams with flipped bits arrive.
    unchecked: bool,
}

struct Path {
    source: usize,
    /// The index among the source's paths.
    number: usize,
    delay: Span,
    /// See [`Weather::foreign`].
    foreign: f64,
}

impl Network {
    /// Healthy paths.
    pub(super) fn new(plan: &Plan) -> Self {
        let mut paths = Vec::new();
        for (source, plan) in plan.sources.iter().enumerate() {
            let each = plan.delays.iter().enumerate();
            paths.extend(each.map(|(number, &delay)| Path { source, number, delay, foreign: 0.0 }));
        }
        let mut streams = (STREAMS..).map(|stream| Pcg64::new(plan.seed.into(), stream));
        let mut stream = || streams.next().expect("there is always another one");
        let (mut hops, mut faults, mut legs) = (Vec::new(), Vec::new(), Vec::new());
        for delay in paths.iter().flat_map(|path| [path.delay; 2]) {
            let number = hops.len() as u32;
            legs.extend([Leg::Fault(number), Leg::Hop(number)]);
            hops.push(hop(delay, stream()));
            faults.push(Fault::new(Faults::default(), stream()));
        }
        let strangers = vec![Leg::Hop(hops.len() as u32); 2 * paths.len()];
        hops.push(hop(STRANGERS_DELAY, stream()));
        let flows = vec![routed(legs, paths.len()), routed(strangers, paths.len())];
        let world = World::new(hops, Vec::new(), flows).with_faults(faults);
        Self { world, paths, unchecked: plan.damaged == Damaged::Delivered }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.world.poll_timeout()
    }

    /// Lets packets travel until `now`. Then call [`Network::poll_arrival`].
    pub(super) fn run_until(&mut self, now: Time) {
        self.world.run_until(now);
    }

    /// The next datagram that has arrived, in `datagram`.
    pub(super) fn poll_arrival(&mut self, datagram: &mut Vec<u8>) -> Option<Arrived> {
        let mut arrived = |flow| Some((flow, self.world.poll_arrival(flow, datagram)?));
        let (flow, arrival) = arrived(SESSIONS).or_else(|| arrived(STRANGERS))?;
        let Path { source, number: path, .. } = self.paths[usize::from(arrival.path)];
        let port = arrival.port;
        Some(match (arrival.direction, flow) {
            (Direction::Reverse, _) => {
                Arrived::AtSource { to: Address { host: source, path, port } }
            }
            (Direction::Forward, STRANGERS) => {
                let host = FIRST_STRANGER + usize::from(port);
                Arrived::AtMonitor { from: Address { host, path, port } }
            }
            (Direction::Forward, _) => {
                Arrived::AtMonitor { from: Address { host: source, path, port } }
            }
        })
    }

    /// Sends a datagram from a source to the monitor, or in reverse.
    pub(super) fn send(&mut self, source: Address, direction: Direction, datagram: &[u8]) {
        let path = self.index(source.host, source.path) as u8;
        self.world.send(SESSIONS, path, direction, source.port, datagram);
    }

    /// Sends a datagram from the stranger with this number to the monitor.
    pub(super) fn send_to_monitor(&mut self, stranger: u16, datagram: &[u8]) {
        self.world.send(STRANGERS, 0, Direction::Forward, stranger, datagram);
    }

    /// Sends a datagram from a stranger to a source.
    pub(super) fn send_to_source(&mut self, source: Address, datagram: &[u8]) {
        let path = self.index(source.host, source.path) as u8;
        self.world.send(STRANGERS, path, Direction::Reverse, source.port, datagram);
    }

    /// The ratio of strangers' datagrams to Freshline's on a path of a source.
    pub(super) fn foreign(&self, source: Address) -> f64 {
        self.paths[self.index(source.host, source.path)].foreign
    }

    /// Sets the weather of a path of a source, in both directions.
    pub(super) fn set_weather(&mut self, source: usize, path: usize, weather: &Weather) {
        let index = self.index(source, path);
        let path = &mut self.paths[index];
        path.foreign = weather.foreign;
        // Uniform from the delay up to the delay plus the jitter.
        let jitter = weather.jitter / 2;
        let delay = path.delay + jitter;
        let faults = weather.faults(self.unchecked);
        for (number, direction) in (2 * index..).zip(Direction::ALL) {
            let (hop, fault, loss) = (number, number, weather.loss(direction));
            self.world.change(Changed::Jitter { hop, jitter });
            self.world.change(Changed::Delay { hop, delay });
            self.world.change(Changed::Loss { hop, loss });
            self.world.change(Changed::Faults { fault, faults });
        }
    }

    fn index(&self, source: usize, path: usize) -> usize {
        let is_it = |it: &Path| it.source == source && it.number == path;
        self.paths.iter().position(is_it).expect("the plan has the path")
    }
}

fn hop(delay: Span, rng: Pcg64) -> Wire {
    let config = HopConfig { delay, order: Order::Free, ..HopConfig::default() };
    config.build(rng).expect("a delay is all that it has")
}

/// A flow over `paths`, each with an equal number of the legs, half of them forward.
fn routed(legs: Vec<Leg>, paths: usize) -> Routed {
    let each = (legs.len() / paths) as u32;
    let mut routed = Routed::new(Flow::External(External::new()), legs, each / 2);
    routed.further = (1..paths as u32).map(|path| [each * path, each * path + each / 2]).collect();
    routed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::weather::Partition;

    /// The times at which 1,000 datagrams of 40 zeroes arrive at the monitor, and their bytes.
    fn carried(weather: Weather, damaged: Damaged) -> Vec<(Span, Vec<u8>)> {
        let mut plan = Plan::draw(0);
        plan.damaged = damaged;
        plan.sources[0].delays = vec![Span::from_millis(5)];
        let mut network = Network::new(&plan);
        network.set_weather(0, 0, &weather);
        for _ in 0..1_000 {
            let source = Address { host: 0, path: 0, port: 7 };
            network.send(source, Direction::Forward, &[0; 40]);
        }
        let (mut arrived, mut datagram) = (Vec::new(), Vec::new());
        while let Some(at) = network.poll_timeout() {
            network.run_until(at);
            while let Some(Arrived::AtMonitor { from }) = network.poll_arrival(&mut datagram) {
                assert_eq!(from, Address { host: 0, path: 0, port: 7 });
                arrived.push((at.since(Time::ZERO), datagram.clone()));
            }
        }
        arrived
    }

    #[test]
    fn a_healthy_path_only_takes_time() {
        let arrived = carried(Weather::default(), Damaged::Delivered);
        assert_eq!(arrived, vec![(Span::from_millis(5), vec![0; 40]); 1_000]);
    }

    #[test]
    fn every_fault_happens_about_as_often_as_it_should() {
        let healthy = Weather::default();
        let count = |weather| carried(weather, Damaged::Dropped).len();
        assert!((650..750).contains(&count(Weather { loss: 0.3, ..healthy })));
        assert!((1_250..1_350).contains(&count(Weather { duplication: 0.3, ..healthy })));
        assert!((650..750).contains(&count(Weather { corruption: 0.3, ..healthy })));
        // Bursts of 8 begin every 8 datagrams: half of everything is lost.
        assert!((400..600).contains(&count(Weather { bursts: 0.125, ..healthy })));
        let partition = Partition::ToMonitor;
        assert_eq!(count(Weather { partition, ..healthy }), 0);
        let partition = Partition::ToSource;
        assert_eq!(count(Weather { partition, ..healthy }), 1_000);
        let jitter = Span::from_millis(20);
        let late = carried(Weather { jitter, ..healthy }, Damaged::Dropped);
        let (first, last) = (late[0].0, late[999].0);
        assert!(first >= Span::from_millis(5) && first < Span::from_millis(6), "{first}");
        assert!(last <= Span::from_millis(25) && last > Span::from_millis(24), "{last}");
        let cut = carried(Weather { truncation: 1.0, ..healthy }, Damaged::Dropped);
        assert!(cut.len() == 1_000 && cut.iter().all(|(_, datagram)| datagram.len() < 40));
        let damaged = carried(Weather { corruption: 1.0, ..healthy }, Damaged::Delivered);
        assert!(damaged.iter().all(|(_, datagram)| datagram.len() == 40));
        assert!(damaged.iter().filter(|(_, datagram)| datagram.contains(&1)).count() > 100);
    }

    #[test]
    fn strangers_meet_no_weather() {
        let plan = Plan::draw(0);
        let mut network = Network::new(&plan);
        network.set_weather(0, 0, &Weather { loss: 1.0, ..Weather::default() });
        network.send_to_monitor(3, b"monitor");
        network.send_to_source(Address { host: 0, path: 0, port: 9 }, b"source");
        network.run_until(Time::ZERO + STRANGERS_DELAY);
        let mut datagram = Vec::new();
        let Some(Arrived::AtMonitor { from }) = network.poll_arrival(&mut datagram) else {
            panic!()
        };
        assert_eq!((from.host, &datagram[..]), (FIRST_STRANGER + 3, &b"monitor"[..]));
        let Some(Arrived::AtSource { to }) = network.poll_arrival(&mut datagram) else { panic!() };
        assert_eq!((to.host, to.port, &datagram[..]), (0, 9, &b"source"[..]));
    }
}
