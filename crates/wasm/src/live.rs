//! A run in steps: between two steps a page draws its packets, ages and measurements.

use freshline_core::link::{HopStats, Loss};
use freshline_core::router::DropReason;
use freshline_core::unit::{Span, Time};
use freshline_lab::scenario::Built;
use freshline_lab::world::{Changed, Flow, Parcel, Place, Routed, UpdateFlow};
use serde::Serialize;

use crate::dial::Dial;
use crate::settings::{BadSettings, Delays, Settings};

/// A scenario of the page while it runs.
pub struct Live {
    settings: Settings,
    built: Built,
    dial: Dial,
    /// The drop counts of the bottleneck at the last call of [`Live::drops`].
    drops: Drops,
    /// Ages that have not been taken.
    ages: Vec<f64>,
}

/// Where along the path a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// Between a source and the queue.
    Access = 0,
    /// In the queue of the bottleneck.
    Queue = 1,
    /// In transmission at the bottleneck.
    Transmission = 2,
    /// Between the bottleneck and the monitor.
    Line = 3,
    /// On the reverse path, between the monitor and the bottleneck.
    ReturnLine = 4,
    /// On the reverse path, between the bottleneck and the source.
    ReturnAccess = 5,
}

/// A packet at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Where it is.
    pub spot: Spot,
    /// How far it has come there, from 0 to 1; in the queue 0.
    pub fraction: f64,
    /// The number of its source from 0, or the number of sources for the TCP stream.
    pub flow: u32,
}

/// Packets that were dropped at the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drops {
    /// By the queue: it was full, or its discipline dropped them against congestion.
    pub queue: u64,
    /// By the queue, for newer packets of their flows.
    pub replaced: u64,
    /// On the line.
    pub lost: u64,
}

/// The measurements since the last change of a setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Numbers {
    /// The time that was measured, in s.
    pub measured_s: f64,
    /// Each source.
    pub sources: Vec<SourceNumbers>,
    /// Goodput of the TCP stream in bit/s; `None` without one.
    pub tcp_bps: Option<f64>,
}

/// The measurements of a source since the last change of a setting. A time is `None` before it
/// is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceNumbers {
    /// The mean age at the monitor, in s.
    pub age_mean_s: Option<f64>,
    /// The age that was not exceeded 95 % of the time, in s.
    pub age_p95_s: Option<f64>,
    /// The mean round trip, in s.
    pub rtt_mean_s: Option<f64>,
    /// Updates sent per second.
    pub updates_per_s: Option<f64>,
    /// The fraction of packets that were dropped or lost.
    pub dropped: Option<f64>,
    /// The rate that the law has in force now, per second.
    pub law_rate: f64,
}

/// The hops of the scenario, in the order of [`Settings::toml`].
const ACCESS: usize = 0;
const RETURN_ACCESS: usize = 1;
const BOTTLENECK: usize = 2;
const RETURN_LINE: usize = 3;

impl Live {
    /// The scenario at time zero.
    ///
    /// # Errors
    /// [`BadSettings`].
    pub fn new(settings: Settings) -> Result<Self, BadSettings> {
        // Longer than any page stays open: 8,760 h are a year.
        let scenario = settings.scenario("8760h", "0s")?;
        let dial = Dial::new(settings.law_config());
        let built = scenario.build_with_laws(0, &dial)?;
        debug_assert_eq!(built.links[0].forward, [ACCESS]);
        debug_assert_eq!(built.links[0].reverse, [RETURN_ACCESS]);
        debug_assert_eq!(built.links[1].forward, [BOTTLENECK]);
        debug_assert_eq!(built.links[1].reverse, [RETURN_LINE]);
        Ok(Self { settings, built, dial, drops: Drops::default(), ages: Vec::new() })
    }

    /// Takes other settings, and restarts the measurement. Law, rates, delays, jitter and loss
    /// change while the run goes on. Another seed, number of sources, queue or cross traffic begins
    /// another run at time zero, and the answer is true.
    ///
    /// # Errors
    /// [`BadSettings`], with which nothing changes.
    pub fn set(&mut self, settings: Settings) -> Result<bool, BadSettings> {
        settings.check()?;
        let of_the_run = |it: &Settings| (it.seed, it.sources, it.queue, it.cross_traffic);
        if of_the_run(&settings) != of_the_run(&self.settings) {
            *self = Self::new(settings)?;
            return Ok(true);
        }
        let Delays { before, behind, jitter } = settings.delays();
        let loss = Loss::Bernoulli(settings.loss);
        let world = &mut self.built.world;
        for hop in [ACCESS, RETURN_ACCESS] {
            world.change(Changed::Delay { hop, delay: before });
        }
        // The jitter first: a delay is never shorter.
        world.change(Changed::Jitter { hop: BOTTLENECK, jitter });
        for hop in [BOTTLENECK, RETURN_LINE] {
            world.change(Changed::Delay { hop, delay: behind });
        }
        world.change(Changed::Loss { hop: BOTTLENECK, loss });
        if settings.bottleneck_kbit != self.settings.bottleneck_kbit {
            world.change(Changed::Rate { hop: BOTTLENECK, rate: settings.bottleneck() });
        }
        world.begin_measuring();
        self.dial.set(settings.law_config());
        self.settings = settings;
        Ok(false)
    }

    /// Discards all measurements and restarts them now.
    pub fn begin_measuring(&mut self) {
        self.built.world.begin_measuring();
    }

    /// Runs for `span`, and records all ages each `step`, which is above zero, and at the end.
    ///
    /// # Panics
    /// If `step` is zero.
    pub fn advance(&mut self, span: Span, step: Span) {
        assert!(!step.is_zero(), "a step takes time");
        let end = self.built.world.now() + span;
        while self.built.world.now() < end {
            let next = (self.built.world.now() + step).min(end);
            self.built.world.run_until(next);
            self.record_ages();
        }
    }

    fn record_ages(&mut self) {
        let now = self.now();
        self.ages.push(now.since(Time::ZERO).as_secs_f64());
        let Self { built, ages, .. } = self;
        let sources = built.world.flows().iter().filter_map(|routed| routed.flow.updates());
        ages.extend(sources.map(|source| {
            let age = source.age().age(now);
            age.map_or(0.0, Span::as_secs_f64)
        }));
    }

    /// Takes the ages that were recorded: of each moment its time in s, then the age of each source
    /// in s.
    pub fn take_ages(&mut self) -> Vec<f64> {
        std::mem::take(&mut self.ages)
    }

    /// Virtual time.
    pub const fn now(&self) -> Time {
        self.built.world.now()
    }

    /// The settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Calls `see` with each packet on the path: spot by spot, in the queue as it orders them.
    pub fn each_packet(&self, mut see: impl FnMut(Seen)) {
        let world = &self.built.world;
        for hop in [ACCESS, BOTTLENECK, RETURN_LINE, RETURN_ACCESS] {
            world.each_inside(hop, |parcel, place| see(seen(hop, parcel, place)));
        }
    }

    /// The packets that were dropped at the bottleneck since this was last called.
    pub fn drops(&mut self) -> Drops {
        let now = Drops::of(self.built.world.hops()[BOTTLENECK].stats());
        let before = std::mem::replace(&mut self.drops, now);
        Drops {
            queue: now.queue - before.queue,
            replaced: now.replaced - before.replaced,
            lost: now.lost - before.lost,
        }
    }

    /// The measurements since the last change of a setting.
    pub fn numbers(&self) -> Numbers {
        let now = self.now();
        let flows = self.built.world.flows();
        let updates = |flow: &Flow| flow.updates().and_then(|it| it.measured(now));
        let measured = flows.iter().find_map(|routed| updates(&routed.flow));
        let source = |routed: &Routed| {
            routed.flow.updates().map(|flow| source_numbers(flow, routed.dropped, now))
        };
        let tcp = flows.iter().find_map(|routed| routed.flow.stream());
        Numbers {
            measured_s: measured.map_or(0.0, Span::as_secs_f64),
            sources: flows.iter().filter_map(source).collect(),
            tcp_bps: tcp.and_then(|stream| stream.outcome(now).goodput_bps),
        }
    }
}

impl Drops {
    fn of(stats: &HopStats) -> Self {
        let of = |reason| stats.drops.of(reason).get();
        Self {
            queue: of(DropReason::QueueFull) + of(DropReason::Congestion),
            replaced: of(DropReason::Replaced),
            lost: of(DropReason::Loss),
        }
    }
}

fn seen(hop: usize, parcel: &Parcel, place: Place) -> Seen {
    let (spot, fraction) = match (hop, place) {
        (BOTTLENECK, Place::Queued) => (Spot::Queue, 0.0),
        (BOTTLENECK, Place::Transmitting(sent)) => (Spot::Transmission, sent),
        (BOTTLENECK, Place::Propagating(behind)) => (Spot::Line, behind),
        (ACCESS, place) => (Spot::Access, fraction_of(place)),
        (RETURN_LINE, place) => (Spot::ReturnLine, fraction_of(place)),
        (_, place) => (Spot::ReturnAccess, fraction_of(place)),
    };
    Seen { spot, fraction, flow: parcel.flow }
}

/// On a hop without a rate, whose queue is always empty.
fn fraction_of(place: Place) -> f64 {
    match place {
        Place::Queued | Place::Transmitting(_) => 0.0,
        Place::Propagating(behind) => behind,
    }
}

fn source_numbers(flow: &UpdateFlow, dropped: u64, now: Time) -> SourceNumbers {
    let outcome = flow.outcome(now);
    let seconds = |span: Option<Span>| span.map(Span::as_secs_f64);
    let sent: u64 = flow.sent_by_path().sum();
    SourceNumbers {
        age_mean_s: seconds(outcome.age.map(|age| age.mean)),
        age_p95_s: seconds(outcome.age.map(|age| age.p95)),
        rtt_mean_s: seconds(outcome.rtt_mean),
        updates_per_s: outcome.updates_per_s,
        dropped: (sent > 0).then(|| dropped as f64 / sent as f64),
        law_rate: flow.law_rate().per_second(),
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::source::LawName;

    use super::*;
    use crate::settings::tests::settings;
    use crate::settings::{CrossTraffic, Queue};

    const STEP: Span = Span::from_millis(5);

    fn spots(live: &Live) -> Vec<Spot> {
        let mut spots = Vec::new();
        live.each_packet(|seen| {
            assert!((0.0..=1.0).contains(&seen.fraction), "{seen:?}");
            spots.push(seen.spot);
        });
        spots
    }

    #[test]
    fn packets_are_seen_on_all_spots_of_the_path() {
        let overloaded = Settings { rate: 100.0, ..settings() };
        let mut live = Live::new(overloaded).unwrap();
        live.advance(Span::from_secs(2), STEP);
        let spots = spots(&live);
        for spot in [Spot::Access, Spot::Queue, Spot::Transmission, Spot::Line, Spot::ReturnLine] {
            assert!(spots.contains(&spot), "{spot:?}: {spots:?}");
        }
        let drops = live.drops();
        assert!(drops.queue > 0 && drops.lost > 0 && drops.replaced == 0, "{drops:?}");
        assert_eq!(live.drops(), Drops::default(), "they are counted once");
    }

    #[test]
    fn ages_are_recorded_at_each_step_for_each_source() {
        let mut live = Live::new(settings()).unwrap();
        live.advance(Span::from_secs(1), STEP);
        let ages = live.take_ages();
        let moments: Vec<_> = ages.chunks_exact(3).collect();
        assert_eq!(moments.len(), 200);
        assert!(moments.is_sorted_by(|first, next| first[0] < next[0]));
        // No age is below the delay less its jitter, 45 ms, once an update has come.
        assert!(moments[100..].iter().all(|moment| moment[1] > 0.045 && moment[2] > 0.045));
        assert!(live.take_ages().is_empty());
    }

    #[test]
    fn settings_of_the_path_and_the_law_change_while_the_run_goes_on() {
        let mut live = Live::new(settings()).unwrap();
        live.advance(Span::from_secs(1), STEP);
        let changed = Settings {
            law: LawName::Tenth,
            bottleneck_kbit: 300,
            delay_ms: 20.0,
            jitter_ms: 0.0,
            loss: 0.0,
            ..settings()
        };
        assert_eq!(live.set(changed), Ok(false));
        assert_eq!(live.now(), Time::ZERO + Span::from_secs(1));
        live.advance(Span::from_secs(5), STEP);
        live.drops();
        live.begin_measuring();
        live.advance(Span::from_secs(10), STEP);
        let numbers = live.numbers();
        assert_eq!(numbers.measured_s, 10.0);
        for source in &numbers.sources {
            // At 20/s each, as before, the queue would be full.
            assert!(live.settings().capacity() < 20.0);
            assert!(source.updates_per_s.unwrap() < 20.0, "{source:?}");
            assert!(source.age_mean_s.unwrap() < 0.5, "{source:?}");
            assert_eq!(source.dropped, Some(0.0));
        }
        assert_eq!(live.drops(), Drops::default());
    }

    #[test]
    fn another_queue_or_number_of_sources_begins_another_run() {
        let mut live = Live::new(settings()).unwrap();
        live.advance(Span::from_secs(1), STEP);
        let other = Settings { sources: 5, queue: Queue::Ifc, ..settings() };
        assert_eq!(live.set(other.clone()), Ok(true));
        assert_eq!((live.now(), live.numbers().sources.len()), (Time::ZERO, 5));
        let refused = Settings { loss: 7.0, ..other.clone() };
        assert!(live.set(refused).is_err());
        assert_eq!(live.settings(), &other);
    }

    #[test]
    fn a_tcp_stream_fills_a_plain_queue_and_freshness_control_passes_it() {
        let age = |queue| {
            let cross_traffic = CrossTraffic::Tcp;
            let beside = Settings { queue, cross_traffic, loss: 0.0, ..settings() };
            let mut live = Live::new(beside).unwrap();
            live.advance(Span::from_secs(10), STEP);
            live.begin_measuring();
            live.advance(Span::from_secs(10), STEP);
            let numbers = live.numbers();
            assert!(numbers.tcp_bps.unwrap() > 1e5, "{numbers:?}");
            numbers.sources[0].age_mean_s.unwrap()
        };
        let (plain, fresh) = (age(Queue::Fifo), age(Queue::Ifc));
        assert!(plain > 3.0 * fresh, "{plain} {fresh}");
    }
}
