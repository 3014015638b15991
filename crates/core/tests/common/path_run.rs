//! Runs a law over a path in virtual time and measures the results.
//!
//! ```text
//!   law ─ update ─► forward hops ─► monitor
//!    ▲                 ▲  cross traffic joins here
//!    └──── ack ◄── reverse hops ◄──────┘
//! ```

use freshline_core::age::{AgeMeter, AgeSummary, BacklogProcess};
use freshline_core::link::PathConfig;
use freshline_core::router::Packet;
use freshline_core::source::{Ack, RateLaw};
use freshline_core::unit::{Bytes, Span, Time, UpdateRate};
use freshline_core::wire;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

/// Payload of every update.
pub(crate) const PAYLOAD: usize = 1024;
/// IPv4 and UDP headers.
const UNDERLAY: usize = 28;
/// An update as it is on the wire.
pub(crate) const UPDATE_SIZE: Bytes =
    Bytes::new((wire::Update::HEADER_LEN + PAYLOAD + UNDERLAY) as u64);
const ACK_SIZE: Bytes = Bytes::new((wire::Ack::LEN + UNDERLAY) as u64);

/// The setting of a run.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    /// Hops from the source to the monitor.
    pub(crate) forward: PathConfig,
    /// Hops from the monitor to the source.
    pub(crate) back: PathConfig,
    /// Whether updates take a constant or a random time on each link.
    pub(crate) service: Service,
    /// Other packets, of an update's size, that enter the forward path.
    pub(crate) cross: Option<Cross>,
    /// How late the host's timers wake everything, on average; exponentially distributed.
    pub(crate) lateness: Span,
    /// How long the run takes.
    pub(crate) length: Span,
    /// Results before this time do not count.
    pub(crate) warm_up: Span,
    /// The seed of all randomness.
    pub(crate) seed: u64,
}

/// How long updates take on a link.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Service {
    /// As their size has it.
    Constant,
    /// Exponentially distributed around that, as in M/M/1: sizes are drawn so.
    Exponential,
}

/// A flow that does not care.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cross {
    /// Its packets a second.
    pub(crate) rate: UpdateRate,
    /// When its first packet enters.
    pub(crate) from: Time,
    /// When it has ended.
    pub(crate) until: Time,
}

/// Measurements after the warm-up.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// The age at the monitor.
    pub(crate) age: AgeSummary,
    /// Mean number of updates sent and not yet acknowledged.
    pub(crate) backlog: f64,
    /// Updates sent a second.
    pub(crate) sent_per_second: f64,
    /// Second by second from the start of the run.
    pub(crate) seconds: Vec<Second>,
}

/// One second of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Second {
    /// Mean age at the monitor.
    pub(crate) age: Span,
    /// The law's rate at its end.
    pub(crate) rate: UpdateRate,
}

/// Hops as they are written in flags.
pub(crate) fn hops<const N: usize>(texts: [&str; N]) -> PathConfig {
    PathConfig { hop: texts.map(|text| text.parse().expect("a hop")).into() }
}

/// Two slow hops and a fast one between them, with a round trip of 30 ms when idle: the path of
/// `scenarios/paths/two-slow-one-fast.toml`.
pub(crate) fn two_slow_one_fast() -> Course {
    let slow = "rate=2mbit,delay=5ms,queue=100p";
    Course {
        forward: hops([slow, "rate=20mbit,delay=5ms,queue=100p", slow]),
        back: hops(["rate=20mbit,delay=15ms,queue=100p"]),
        service: Service::Constant,
        cross: None,
        lateness: Span::ZERO,
        length: Span::from_secs(70),
        warm_up: Span::from_secs(10),
        seed: 1,
    }
}

impl Course {
    /// The rate that the slowest hop of the forward path can carry.
    pub(crate) fn bottleneck(&self) -> UpdateRate {
        let slowest = self.forward.hop.iter().filter_map(|hop| hop.rate).min();
        UpdateRate::from_period(slowest.expect("a hop with a rate").time_to_send(UPDATE_SIZE))
    }

    /// Runs `law` from the start to the end.
    pub(crate) fn run(&self, law: &mut dyn RateLaw) -> Outcome {
        Run::new(self).run(law)
    }
}

#[derive(Debug, Clone, Copy)]
enum Carried {
    Update { seq: u64, generated_at: Time, size: Bytes },
    Cross,
    Ack(Ack),
}

impl Packet for Carried {
    fn size(&self) -> Bytes {
        match self {
            Self::Update { size, .. } => *size,
            Self::Cross => UPDATE_SIZE,
            Self::Ack(_) => ACK_SIZE,
        }
    }
}

type Path = freshline_core::link::Path<freshline_core::router::Discipline<Carried>, Carried, Pcg64>;

struct Run<'a> {
    course: &'a Course,
    forward: Path,
    back: Path,
    sizes: Pcg64,
    timers: Pcg64,
    next_seq: u64,
    next_cross: Option<Time>,
    newest: Option<u64>,
    fresh: u32,
    /// Since the warm-up.
    meter: AgeMeter,
    backlog: BacklogProcess,
    sent: u64,
    /// Since the start.
    all: AgeMeter,
    seconds: Vec<Second>,
}

impl<'a> Run<'a> {
    fn new(course: &'a Course) -> Self {
        let path = |config: &PathConfig, stream: u128| {
            let rng = |hop: usize| Pcg64::new(course.seed.into(), stream + hop as u128);
            config.build(rng).expect("a path")
        };
        Self {
            course,
            forward: path(&course.forward, 100),
            back: path(&course.back, 200),
            sizes: Pcg64::new(course.seed.into(), 300),
            timers: Pcg64::new(course.seed.into(), 400),
            next_seq: 0,
            next_cross: course.cross.map(|cross| cross.from),
            newest: None,
            fresh: 0,
            meter: AgeMeter::new(),
            backlog: BacklogProcess::new(Time::ZERO + course.warm_up),
            sent: 0,
            all: AgeMeter::new(),
            seconds: Vec::new(),
        }
    }

    fn run(mut self, law: &mut dyn RateLaw) -> Outcome {
        let end = Time::ZERO + self.course.length;
        let mut second = Time::ZERO + Span::from_secs(1);
        let mut marked = self.all.process().mark(Time::ZERO);
        let mut now = Time::ZERO;
        while now <= end {
            self.step(now, law);
            if now >= second {
                let age = self.all.process().mean_since(marked, now).unwrap_or(Span::ZERO);
                self.seconds.push(Second { age, rate: law.rate() });
                marked = self.all.process().mark(now);
                second += Span::from_secs(1);
            }
            let next = [law.poll_timeout(), law.next_update_at(), self.next_cross]
                .into_iter()
                .chain([self.forward.poll_timeout(), self.back.poll_timeout(), Some(second)])
                .flatten()
                .min();
            now = next.map_or(Time::MAX, |next| next.max(now) + self.lateness());
        }
        let measured = end.since(Time::ZERO + self.course.warm_up);
        Outcome {
            age: self.meter.summary(end).expect("updates arrived after the warm-up"),
            backlog: self.backlog.mean(end).expect("time passed"),
            sent_per_second: self.sent as f64 / measured.as_secs_f64(),
            seconds: self.seconds,
        }
    }

    fn lateness(&mut self) -> Span {
        let factor: f64 = Exp1.sample(&mut self.timers);
        Span::from_secs_f64(self.course.lateness.as_secs_f64() * factor)
    }

    fn step(&mut self, now: Time, law: &mut dyn RateLaw) {
        while let Some(delivered) = self.forward.poll(now, &mut |_| {}) {
            if let Carried::Update { seq, generated_at, .. } = delivered.packet {
                let ack = self.arrive(now, seq, generated_at);
                self.back.enqueue(now, Carried::Ack(ack), &mut |_| {});
            }
        }
        while let Some(delivered) = self.back.poll(now, &mut |_| {}) {
            if let Carried::Ack(ack) = delivered.packet {
                self.backlog.on_ack(now, ack.seq);
                law.on_ack(now, &ack);
            }
        }
        if law.poll_timeout().is_some_and(|at| at <= now) {
            law.handle_timeout(now);
        }
        if law.next_update_at().is_some_and(|at| at <= now) {
            self.send(now, law);
        }
        if let (Some(at), Some(cross)) = (self.next_cross, self.course.cross)
            && at <= now
        {
            self.forward.enqueue(now, Carried::Cross, &mut |_| {});
            let next = at + cross.rate.period();
            self.next_cross = (next < cross.until).then_some(next);
        }
    }

    fn send(&mut self, now: Time, law: &mut dyn RateLaw) {
        let size = match self.course.service {
            Service::Constant => UPDATE_SIZE,
            Service::Exponential => {
                let factor: f64 = Exp1.sample(&mut self.sizes);
                Bytes::new((UPDATE_SIZE.get() as f64 * factor) as u64 + 1)
            }
        };
        let seq = self.next_seq;
        self.next_seq += 1;
        if now >= Time::ZERO + self.course.warm_up {
            self.sent += 1;
            self.backlog.on_sent(now, seq);
        }
        self.forward.enqueue(now, Carried::Update { seq, generated_at: now, size }, &mut |_| {});
        law.on_sent(now, seq);
    }

    /// The monitor's part.
    fn arrive(&mut self, now: Time, seq: u64, generated_at: Time) -> Ack {
        if self.newest.is_none_or(|newest| seq > newest) {
            self.newest = Some(seq);
            self.fresh += 1;
            self.all.on_update(now, generated_at);
            if now >= Time::ZERO + self.course.warm_up {
                self.meter.on_update(now, generated_at);
            }
        }
        Ack {
            seq,
            generated_at,
            sent_at: generated_at,
            // Where sizes are drawn, they stand for random times of service.
            len: (PAYLOAD + UNDERLAY) as u32,
            hold: Span::ZERO,
            received_at: now,
            fresh: self.fresh,
            stale: 0,
        }
    }
}
