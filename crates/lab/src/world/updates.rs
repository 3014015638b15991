//! Both ends of a flow of updates: a law that sends, a monitor that answers.
//!
//! ```text
//!   law ─► update ─► … ─► monitor: fresh? ─► age
//!    ▲                        │
//!    └──────── … ◄─── ack ◄───┘
//! ```
//!
//! Over several paths, `session::Paths` says which of them an update takes.

use freshline_core::age::{AgeMeter, AgeProcess, AgeSummary, BacklogProcess, Freshness};
use freshline_core::path::{DeviceMeter, PathId};
use freshline_core::session::{PathAck, PathCounters, Paths, Route};
use freshline_core::source::{self, RateLaw};
use freshline_core::unit::{Bytes, Span, Time};
use freshline_core::wire;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

use super::parcel::{Ack, Body, Load, UDP_OVER_IPV4, Update};

/// How large updates are on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// State in each update.
    pub payload: Bytes,
    /// Headers around it.
    pub overhead: Bytes,
    /// An ack with its headers; `None` if the monitor sends none.
    pub ack: Option<Bytes>,
    /// How the size of an update on the wire is drawn.
    pub distribution: SizeDistribution,
}

/// How the size of a packet on the wire is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeDistribution {
    /// Always the same.
    #[default]
    Constant,
    /// Exponential, drawn once when it is sent, which makes a link an M server.
    Exponential,
    /// Exponential, drawn anew for each hop, as in tandem queues with independent services.
    ExponentialEachHop,
}

impl Sizes {
    /// Those of our own protocol over UDP and IPv4 (`docs/protocol.md`).
    pub fn of_our_protocol(payload: Bytes) -> Self {
        let length = (wire::Update::HEADER_LEN as u64 + payload.get()).max(wire::Ack::LEN as u64);
        Self {
            payload,
            overhead: Bytes::new(length - payload.get()) + UDP_OVER_IPV4,
            ack: Some(Bytes::new(wire::Ack::LEN as u64) + UDP_OVER_IPV4),
            distribution: SizeDistribution::Constant,
        }
    }
}

/// A flow of updates under way.
pub struct UpdateFlow {
    law: Box<dyn RateLaw>,
    paths: Paths,
    /// What the devices let be seen through which several paths leave.
    devices: Vec<DeviceMeter>,
    sizes: Sizes,
    rng: Pcg64,
    starts_at: Time,
    ends_at: Time,
    next_seq: u64,
    fresh: u32,
    newest: Option<u64>,
    tally: Tally,
}

/// What is measured, from the end of the warm-up on.
#[derive(Debug, Clone)]
struct Tally {
    since: Time,
    /// The true age, at the monitor.
    age: AgeMeter,
    /// The age as the source knows it from acks.
    source_age: AgeProcess,
    backlog: BacklogProcess,
    sent: u64,
    /// What each path had carried at the beginning.
    before: Vec<PathCounters>,
    delivered_fresh: u64,
    rtt_sum: Span,
    acked: u64,
    newest_acked: Option<u64>,
}

/// What a flow of updates was like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateOutcome {
    /// The true age at the monitor; `None` if it never knew one.
    pub age: Option<AgeSummary>,
    /// The source's own estimate of the mean age, from acks: an upper bound.
    pub source_age_mean: Option<Span>,
    /// Time average of updates sent and not acknowledged; `None` where there are no acks.
    pub backlog: Option<f64>,
    /// Mean round trip of fresh acks.
    pub rtt_mean: Option<Span>,
    /// Updates sent a second.
    pub updates_per_s: f64,
    /// The same with the copies that take other paths.
    pub packets_per_s: f64,
    /// Payload of fresh updates, in bit/s.
    pub goodput_bps: f64,
}

impl Tally {
    fn new(since: Time, paths: &Paths) -> Self {
        Self {
            since,
            before: counters(paths).collect(),
            age: AgeMeter::new(),
            source_age: AgeProcess::new(),
            backlog: BacklogProcess::new(since),
            sent: 0,
            delivered_fresh: 0,
            rtt_sum: Span::ZERO,
            acked: 0,
            newest_acked: None,
        }
    }
}

impl UpdateFlow {
    /// A flow that sends from `starts_at` until `ends_at`, as `law` wishes.
    pub fn new(
        law: Box<dyn RateLaw>,
        sizes: Sizes,
        (starts_at, ends_at): (Time, Time),
        rng: Pcg64,
    ) -> Self {
        Self {
            law,
            paths: Paths::default(),
            devices: Vec::new(),
            sizes,
            rng,
            starts_at,
            ends_at,
            next_seq: 0,
            fresh: 0,
            newest: None,
            tally: Tally::new(Time::ZERO, &Paths::default()),
        }
    }

    /// The same over these paths.
    pub fn over(mut self, paths: Paths) -> Self {
        self.devices = vec![DeviceMeter::default(); paths.count()];
        self.tally = Tally::new(Time::ZERO, &paths);
        self.paths = paths;
        self
    }

    /// The device of a path holds so many packets now, and so many have left it since its start.
    pub fn look(&mut self, now: Time, path: PathId, packets: u64, left: u64) {
        if let Some(device) = self.devices.get_mut(usize::from(path.0)) {
            device.look(now, packets, left);
            self.paths.set_queue(path, Some(device.queue()));
        }
    }

    /// What was before counts no more.
    pub fn begin_measuring(&mut self, now: Time) {
        self.tally = Tally::new(now, &self.paths);
    }

    /// Something to do has come due: gives an update to send, and its paths.
    pub fn on_wake(&mut self, now: Time) -> Option<(Route, Load)> {
        if self.law.next_event().is_some_and(|at| at <= now) {
            self.law.on_tick(now);
        }
        let due = self.next_update_at().is_some_and(|at| at <= now);
        due.then(|| self.send(now))?
    }

    /// An update has come to the monitor: gives the ack, if it asks for one and the monitor sends any.
    pub fn on_update(&mut self, now: Time, update: Update) -> Option<Load> {
        let was_fresh = self.newest.is_none_or(|newest| update.seq > newest);
        if was_fresh {
            self.newest = Some(update.seq);
            self.fresh = self.fresh.wrapping_add(1);
            self.tally.delivered_fresh += 1;
            self.tally.age.on_update(now, update.generated_at);
        }
        let body = Body::Ack(Ack { update, received_at: now, fresh: self.fresh, was_fresh });
        self.sizes.ack.filter(|_| update.wants_ack).map(|size| Load::plain(size, body))
    }

    /// An ack has come back to the source by a path.
    pub fn on_ack(&mut self, now: Time, path: PathId, ack: Ack) {
        let Ack { update: Update { seq, generated_at, .. }, received_at, fresh, .. } = ack;
        self.paths.on_ack(now, path, &PathAck { seq, hold: Span::ZERO, received_at });
        self.tally.backlog.on_ack(now, seq);
        if self.tally.newest_acked.is_none_or(|newest| seq > newest) {
            self.tally.newest_acked = Some(seq);
            self.tally.rtt_sum += now.since(generated_at);
            self.tally.acked += 1;
            let _: Freshness = self.tally.source_age.on_update(now, generated_at);
        }
        let (sent_at, hold) = (generated_at, Span::ZERO);
        let ack = source::Ack { seq, generated_at, sent_at, hold, received_at, fresh };
        self.law.on_ack(now, &ack);
    }

    /// How large its packets are.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The true age at the monitor.
    pub const fn age(&self) -> &AgeProcess {
        self.tally.age.process()
    }

    /// Updates sent and not acknowledged.
    pub const fn backlog(&self) -> &BacklogProcess {
        &self.tally.backlog
    }

    /// Updates sent.
    pub const fn sent(&self) -> u64 {
        self.tally.sent
    }

    /// How many fresh acks came, and the sum of their round trips.
    pub const fn round_trips(&self) -> (u64, Span) {
        (self.tally.acked, self.tally.rtt_sum)
    }

    /// When to call [`UpdateFlow::on_wake`] next.
    pub fn next_event(&self) -> Option<Time> {
        let tick = self.law.next_event().filter(|_| self.next_seq > 0);
        Time::earliest([self.next_update_at(), tick])
    }

    /// What was measured until `now`.
    pub fn outcome(&self, now: Time) -> UpdateOutcome {
        let tally = &self.tally;
        let seconds = now.since(tally.since).as_secs_f64();
        let rtt_mean = (tally.acked > 0).then(|| tally.rtt_sum / tally.acked);
        UpdateOutcome {
            age: tally.age.summary(now),
            source_age_mean: tally.source_age.mean(now),
            backlog: self.sizes.ack.and_then(|_| tally.backlog.mean(now)),
            rtt_mean,
            updates_per_s: tally.sent as f64 / seconds,
            packets_per_s: self.sent_by_path().sum::<u64>() as f64 / seconds,
            goodput_bps: tally.delivered_fresh as f64 * self.sizes.payload.get() as f64 * 8.0
                / seconds,
        }
    }

    fn next_update_at(&self) -> Option<Time> {
        let at = self.law.next_update_at()?.max(self.starts_at);
        (at < self.ends_at).then_some(at)
    }

    /// What took each path since the beginning of what is measured, copies included.
    pub fn sent_by_path(&self) -> impl Iterator<Item = u64> {
        let before = self.tally.before.iter();
        counters(&self.paths).zip(before).map(|(after, before)| after.sent - before.sent)
    }

    fn send(&mut self, now: Time) -> Option<(Route, Load)> {
        // In the lab clocks agree.
        let route = self.paths.route(now, self.law.rate().period(), Some(0))?;
        let seq = self.next_seq;
        self.next_seq += 1;
        self.tally.sent += 1;
        if self.sizes.ack.is_some() {
            self.tally.backlog.on_sent(now, seq);
        }
        let wants_ack = self.paths.want_every_ack() || self.law.wants_ack(now);
        self.law.on_sent(now, seq);
        for path in route.all() {
            match wants_ack {
                true => self.paths.on_sent(now, path, seq, path != route.first),
                false => self.paths.on_sent_unasking(now, path),
            }
        }
        let whole = self.sizes.payload + self.sizes.overhead;
        let size = match self.sizes.distribution {
            SizeDistribution::Constant => whole,
            _ => exponential(whole, &mut self.rng),
        };
        let body = Body::Update(Update { seq, generated_at: now, wants_ack });
        Some((route, Load::plain(size, body)))
    }

    /// The size that an update has on its next hop, if it is drawn anew.
    pub fn size_on_hop(&mut self) -> Option<Bytes> {
        let each_hop = self.sizes.distribution == SizeDistribution::ExponentialEachHop;
        each_hop.then(|| exponential(self.sizes.payload + self.sizes.overhead, &mut self.rng))
    }
}

/// What each path has carried.
fn counters(paths: &Paths) -> impl Iterator<Item = PathCounters> {
    paths.statuses(Time::ZERO, None).map(|status| status.counters)
}

/// Exponentially distributed around `mean`, at least a byte.
fn exponential(mean: Bytes, rng: &mut Pcg64) -> Bytes {
    let factor: f64 = Exp1.sample(rng);
    Bytes::new((mean.get() as f64 * factor).round().max(1.0) as u64)
}
