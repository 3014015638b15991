//! Tests of an application's freshness in virtual time: how old is a robot's pose at the monitor over LTE, or
//! alongside a download? A minute over LTE takes tens of milliseconds; for the time on your host, run
//! `cargo run --release -p freshline --features sim --example simulated`.
//!
//! A [`Sim`] holds a network: a preset, or a scenario of the lab (`docs/lab.md`). The builder of a source runs it over
//! sockets ([`SourceBuilder::spawn`](crate::SourceBuilder::spawn)) or in a simulation
//! ([`SourceBuilder::simulate`](crate::SourceBuilder::simulate)), that of a monitor too, and both return the same
//! handles. So the test runs the code that is deployed; sessions, laws and queues are those of the network threads
//! and of the lab.
//!
//! ```
//! use std::time::Duration;
//! use freshline::{Monitor, Source, sim::Sim};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut sim = Sim::lte()?;
//! let monitor = Monitor::builder("udp://127.0.0.1:3774").simulate(&mut sim)?;
//! let robot = Source::builder(&monitor.url()).name("robot-7").topic("pose").simulate(&mut sim, "source")?;
//! let pose = robot.topic("pose")?;
//! sim.every(Duration::from_millis(10), move |now| {
//!     pose.put(format!("t={}", now.as_secs_f64())).expect("the source runs");
//! });
//! sim.run_for(Duration::from_secs(10));
//! let report = sim.report();
//! assert!(report.age("robot-7/pose")?.mean < Duration::from_millis(100), "{report}");
//! assert!(monitor.latest("robot-7/pose").is_some());
//! # Ok(())
//! # }
//! ```
//!
//! Virtual time passes only in [`Sim::run_for`], [`Sim::run_until`] and [`Sim::run_until_done`]. A call that waits over
//! sockets, such as [`Subscription::next_state`](crate::Subscription::next_state), does not wait here: it returns
//! `None` if nothing is pending. The same calls with the same seed give the same results. A source or a monitor ends
//! when its handle is dropped, as over sockets: keep the handle while time passes. A [`Relay`](crate::Relay) cannot be
//! simulated.

mod attach;
mod driver;
mod error;
mod hosts;
mod report;
mod tally;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use freshline_core::link::Loss;
use freshline_core::unit::{BitRate, Span, Time};
use freshline_lab::engine::Streams;
use freshline_lab::scenario::{Change, LinkHops, Scenario, ScenarioError, Source};
use freshline_lab::world::Changed;

use driver::Driver;

pub use error::SimError;
pub use report::{Age, Delay, LinkDirection, Report, SourceTraffic};

/// LTE, as [`Sim::lte`] has it.
const LTE: &str = include_str!("lte.toml");

/// A network in virtual time, with the applications that run over it.
pub struct Sim {
    text: String,
    /// Where the files are that the scenario names.
    folder: PathBuf,
    changes: Vec<Change>,
    /// Whether any number of sources may share its flow.
    is_preset: bool,
    scenario: Scenario,
    driver: Driver,
    tasks: Vec<Task>,
    /// Whether it has run, be it for no time: then packets may be in flight.
    has_begun: bool,
    has_warmed_up: bool,
    /// Changes of links by their numbers, for when the world is built again: until the simulation has begun.
    link_changes: Vec<(usize, LinkChange)>,
}

/// A change of a link in both directions.
#[derive(Debug, Clone, Copy)]
enum LinkChange {
    Rate(BitRate),
    Loss(Loss),
}

impl LinkChange {
    fn of(self, hop: usize) -> Changed {
        match self {
            Self::Rate(rate) => Changed::Rate { hop, rate },
            Self::Loss(loss) => Changed::Loss { hop, loss },
        }
    }
}

/// A task of the application, which runs at certain times.
struct Task {
    at: Time,
    /// `None`: once.
    period: Option<Span>,
    run: Box<dyn FnMut(Duration)>,
}

/// The flow of a source in the world.
struct Place {
    /// The number of its flow.
    flow: usize,
    /// How many paths it has.
    paths: usize,
}

impl Sim {
    /// An LTE uplink, the link `lte`: a capacity of up to 12 Mbit/s that varies by the cellular model of Sprout
    /// (Winstein et al.), with outages of 100 ms on average, and a base RTT of 50 ms. Any number of sources share its
    /// flow `source`; add them before the simulation runs.
    ///
    /// # Errors
    /// None for this preset.
    pub fn lte() -> Result<Self, SimError> {
        Ok(Self { is_preset: true, ..Self::scenario(LTE)? })
    }

    /// A link, `link`, with this capacity and propagation delay in each direction, such as `"12mbit"` and `"40ms"`, and
    /// queues of 100 packets. Any number of sources share its flow `source`; add them before the simulation runs.
    ///
    /// # Errors
    /// [`SimError::Scenario`] if one of the two cannot be parsed.
    pub fn link(rate: &str, delay: &str) -> Result<Self, SimError> {
        let (rate, delay) = (toml_text(rate), toml_text(delay));
        let text = format!(
            "title = \"A link\"\nduration = \"10min\"\n\n[[link]]\nname = \"link\"\n\
             forward = {{ rate = {rate}, delay = {delay}, queue = \"100p\" }}\n\n\
             [[flow]]\nname = \"source\"\npath = [\"link\"]\nexternal = {{}}\n"
        );
        Ok(Self { is_preset: true, ..Self::scenario(&text)? })
    }

    /// The network of a scenario in TOML. Flows without a simulated source are cross traffic. `duration`, `runs` and
    /// `sweep` are ignored. Relative paths of trace files start at the working directory.
    ///
    /// # Errors
    /// [`SimError::Scenario`] with the line of the mistake.
    pub fn scenario(text: &str) -> Result<Self, SimError> {
        Self::of(text.to_owned(), PathBuf::new())
    }

    /// The network of a scenario file. Relative paths of trace files start at its folder.
    ///
    /// # Errors
    /// [`SimError::Read`] if the file cannot be read, and [`SimError::Scenario`] with the line of a mistake.
    pub fn scenario_file(path: impl AsRef<Path>) -> Result<Self, SimError> {
        let path = path.as_ref();
        let text = fs::read_to_string(path)
            .map_err(|error| SimError::Read { path: path.to_owned(), error })?;
        Self::of(text, path.parent().map(Path::to_owned).unwrap_or_default())
    }

    fn of(text: String, folder: PathBuf) -> Result<Self, SimError> {
        let scenario = parse(&text, &folder, &[])?;
        let driver = Driver::new(scenario_world(&scenario)?);
        Ok(Self {
            text,
            folder,
            changes: Vec::new(),
            is_preset: false,
            has_begun: false,
            has_warmed_up: scenario.warm_up.is_zero(),
            scenario,
            driver,
            tasks: Vec::new(),
            link_changes: Vec::new(),
        })
    }

    /// Sets the seed of all randomness. Default: 1, or that of the scenario.
    ///
    /// # Errors
    /// [`SimError::TooLate`] once there is a source or a monitor.
    pub fn seed(self, seed: u64) -> Result<Self, SimError> {
        self.set("seed", &seed.to_string())
    }

    /// Sets a key of the scenario, as `freshline lab run --set` does, such as `link.lte.forward.delay` to `60ms`.
    /// Earlier calls of [`Sim::set_rate`] and [`Sim::set_loss`] stay in effect.
    ///
    /// # Errors
    /// [`SimError::Set`] if the key or the value cannot be, and [`SimError::TooLate`] once there is a source or a
    /// monitor.
    pub fn set(mut self, key: &str, value: &str) -> Result<Self, SimError> {
        let is_empty = self.driver.sources.is_empty() && !self.driver.has_monitor();
        if !is_empty || self.has_begun {
            return Err(SimError::TooLate(format!("{key}={value}")));
        }
        self.changes.push(Change::parse(&format!("{key}={value}"))?);
        self.rebuild(parse(&self.text, &self.folder, &self.changes)?)?;
        self.has_warmed_up = self.scenario.warm_up.is_zero();
        Ok(self)
    }

    // ---- the application ----

    /// Calls `task` at the present time and then once per `period` of virtual time (at least 1 µs), with the time since
    /// the start of the simulation. Tasks that are due at the same time run in the order of these calls.
    pub fn every(&mut self, period: Duration, task: impl FnMut(Duration) + 'static) {
        let period = Span::from(period).max(Span::from_micros(1));
        let (at, run) = (self.driver.now(), Box::new(task));
        self.tasks.push(Task { at, period: Some(period), run });
    }

    /// Calls `task` once, at this time since the start of the simulation, or at the present time if that is later.
    pub fn at(&mut self, time: Duration, task: impl FnOnce() + 'static) {
        let mut task = Some(task);
        let run = Box::new(move |_| {
            if let Some(task) = task.take() {
                task();
            }
        });
        let at = self.driver.now().max(Time::ZERO + Span::from(time));
        self.tasks.push(Task { at, period: None, run });
    }

    /// The virtual time since the start.
    pub fn now(&self) -> Duration {
        self.driver.now().since(Time::ZERO).into()
    }

    /// Runs the simulation for this much virtual time.
    pub fn run_for(&mut self, time: Duration) {
        self.run_to(self.driver.now() + Span::from(time));
    }

    /// Runs the simulation until this time since its start. Does nothing if that is past.
    pub fn run_until(&mut self, time: Duration) {
        self.run_to(Time::ZERO + Span::from(time));
    }

    /// Runs the simulation in steps of `step` (at least 1 µs) until `is_done` returns true, for at most `limit`. Returns
    /// the last answer of `is_done`, which is called before each step and at the end.
    pub fn run_until_done(
        &mut self,
        step: Duration,
        limit: Duration,
        mut is_done: impl FnMut() -> bool,
    ) -> bool {
        let step = Span::from(step).max(Span::from_micros(1));
        let end = self.driver.now() + Span::from(limit);
        loop {
            if is_done() {
                return true;
            }
            if self.driver.now() >= end {
                return false;
            }
            self.run_to((self.driver.now() + step).min(end));
        }
    }

    // ---- the network ----

    /// Sets the capacity of a link in both directions, such as `"2mbit"`, also where it followed a trace.
    ///
    /// # Errors
    /// [`SimError::Unknown`] if there is no such link, and [`SimError::Scenario`] for a rate that cannot be.
    pub fn set_rate(&mut self, link: &str, rate: &str) -> Result<(), SimError> {
        let refused = |error: String| SimError::from(ScenarioError::Malformed(error));
        let parsed: BitRate = rate.parse().map_err(|error| refused(format!("{error}")))?;
        if parsed == BitRate::from_bps(0) {
            return Err(refused("a rate of zero: take `cut` for an outage".to_owned()));
        }
        self.change_link(link, LinkChange::Rate(parsed))
    }

    /// Sets the loss of a link in both directions: the probability, 0 to 1, with which each packet is lost after its
    /// transmission.
    ///
    /// # Errors
    /// [`SimError::Unknown`] if there is no such link.
    pub fn set_loss(&mut self, link: &str, probability: f64) -> Result<(), SimError> {
        let probability = if probability.is_nan() { 0.0 } else { probability.clamp(0.0, 1.0) };
        self.change_link(link, LinkChange::Loss(Loss::Bernoulli(probability)))
    }

    /// Loses all packets of a link: an outage, until [`Sim::set_loss`] ends it.
    ///
    /// # Errors
    /// [`SimError::Unknown`] if there is no such link.
    pub fn cut(&mut self, link: &str) -> Result<(), SimError> {
        self.set_loss(link, 1.0)
    }

    // ---- results ----

    /// Discards all measurements and measures from the present time on. The end of a scenario's `warm_up` does this
    /// by itself.
    pub fn begin_measuring(&mut self) {
        self.has_warmed_up = true;
        self.driver.begin_measuring();
    }

    /// Reports the measurements until the present time. Copies histograms, so call it at the end rather than in each
    /// step.
    pub fn report(&self) -> Report {
        Report::of(&self.scenario, &self.driver)
    }

    // ---- steps ----

    fn run_to(&mut self, end: Time) {
        if !self.has_warmed_up && end > Time::ZERO + self.scenario.warm_up {
            let warm = Time::ZERO + self.scenario.warm_up;
            self.run_events(warm);
            self.begin_measuring();
        }
        self.run_events(end);
    }

    /// Does all that is due until `end`.
    fn run_events(&mut self, end: Time) {
        if end < self.driver.now() {
            return;
        }
        self.has_begun = true;
        loop {
            let due = self.tasks.iter().map(|task| task.at).min();
            let next = Time::earliest([due, self.driver.next()]).filter(|at| *at <= end);
            let Some(at) = next else { break };
            self.driver.advance(at);
            self.run_tasks();
        }
        self.driver.advance(end);
    }

    fn run_tasks(&mut self) {
        let now = self.driver.now();
        let since_start = Duration::from(now.since(Time::ZERO));
        for task in self.tasks.iter_mut().filter(|task| task.at <= now) {
            (task.run)(since_start);
            task.at = task.period.map_or(Time::MAX, |period| task.at.max(now) + period);
        }
        self.tasks.retain(|task| task.at < Time::MAX);
    }

    /// Takes another scenario, with the links as they were changed. Packets in flight would be lost.
    fn rebuild(&mut self, scenario: Scenario) -> Result<(), SimError> {
        self.driver.built = scenario_world(&scenario)?;
        self.scenario = scenario;
        for (link, change) in self.link_changes.clone() {
            self.apply(link, change);
        }
        Ok(())
    }

    fn streams(&self) -> Streams {
        Streams::new(self.scenario.seed, 0)
    }

    /// The next place of a flow for a source.
    fn claim(&mut self, flow: &str) -> Result<Place, SimError> {
        let at = self.scenario.flows.iter().position(|it| it.name == flow);
        let at = at.ok_or_else(|| SimError::Unknown {
            kind: "flow",
            name: flow.to_owned(),
            known: self.scenario.flows.iter().map(|it| it.name.clone()).collect(),
        })?;
        if self.scenario.flows[at].external.is_none() {
            if self.has_begun {
                return Err(SimError::TooLate(format!("an application for the flow `{flow}`")));
            }
            let mut scenario = self.scenario.clone();
            scenario.make_external(flow)?;
            self.rebuild(scenario)?;
        }
        let is_taken = |place: &usize| self.driver.sources.iter().any(|it| it.flow == *place);
        let places = self.driver.built.flows[at].clone();
        let mut free = places.clone().find(|place| !is_taken(place));
        if free.is_none() && self.is_preset {
            if self.has_begun {
                return Err(SimError::TooLate(format!("a further source of the flow `{flow}`")));
            }
            let mut scenario = self.scenario.clone();
            scenario.flows[at].count += 1;
            self.rebuild(scenario)?;
            free = self.driver.built.flows[at].clone().last();
        }
        let taken = || SimError::FlowTaken { flow: flow.to_owned(), count: places.len() };
        let place = free.ok_or_else(taken)?;
        let paths = 1 + self.driver.built.world.flows()[place].further.len();
        Ok(Place { flow: place, paths })
    }

    fn change_link(&mut self, name: &str, change: LinkChange) -> Result<(), SimError> {
        let at = self.scenario.links.iter().position(|link| link.name == name);
        let at = at.ok_or_else(|| SimError::Unknown {
            kind: "link",
            name: name.to_owned(),
            known: self.scenario.links.iter().map(|link| link.name.clone()).collect(),
        })?;
        if !self.has_begun {
            self.link_changes.push((at, change));
        }
        self.apply(at, change);
        Ok(())
    }

    fn apply(&mut self, link: usize, change: LinkChange) {
        let Some(LinkHops { forward, reverse }) = self.driver.built.links.get(link) else { return };
        for &hop in forward.iter().chain(reverse) {
            self.driver.built.world.change(change.of(hop));
        }
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = &self.scenario.title;
        f.debug_struct("Sim")
            .field("title", title)
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

fn parse(text: &str, folder: &Path, changes: &[Change]) -> Result<Scenario, SimError> {
    let read_file = |name: &str| fs::read_to_string(folder.join(name));
    Ok(Scenario::parse_with(Source { text, read_file: &read_file }, changes)?)
}

fn scenario_world(scenario: &Scenario) -> Result<freshline_lab::scenario::Built, SimError> {
    Ok(scenario.build_with_hosts(0)?)
}

/// A text as TOML has it.
fn toml_text(text: &str) -> String {
    let escaped: String = text.chars().flat_map(char::escape_default).collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn tasks_run_at_their_times_in_the_order_in_which_they_were_given() {
        let mut sim = Sim::link("1mbit", "1ms").unwrap();
        let log = Rc::new(RefCell::new(Vec::new()));
        let [first, second, once] = std::array::from_fn(|_| Rc::clone(&log));
        let ms = Duration::from_millis;
        sim.every(ms(10), move |now| first.borrow_mut().push(("first", now)));
        sim.every(ms(20), move |now| second.borrow_mut().push(("second", now)));
        sim.at(ms(10), move || once.borrow_mut().push(("once", ms(10))));
        sim.run_until(ms(20));
        sim.run_until(ms(5));
        assert_eq!(sim.now(), ms(20), "time does not go back");
        let wanted = [
            ("first", ms(0)),
            ("second", ms(0)),
            ("first", ms(10)),
            ("once", ms(10)),
            ("first", ms(20)),
            ("second", ms(20)),
        ];
        assert_eq!(*log.borrow(), wanted);
    }

    #[test]
    fn texts_are_quoted_for_toml() {
        assert_eq!(toml_text("12mbit"), "\"12mbit\"");
        assert_eq!(toml_text("a\"b\n"), "\"a\\\"b\\n\"");
    }

    #[test]
    fn the_preset_of_lte_has_a_place_for_each_source() {
        let mut sim = Sim::lte().unwrap();
        for _ in 0..3 {
            let place = sim.claim("source").unwrap();
            assert_eq!((place.flow, place.paths), (0, 1), "none is taken");
        }
        assert!(matches!(sim.claim("lte"), Err(SimError::Unknown { kind: "flow", .. })));
    }
}
