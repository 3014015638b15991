//! Both ends of a flow of updates: a law that sends, a monitor that answers.
//!
//! ```text
//!   law ─► update ─► … ─► monitor: fresh? ─► age
//!    ▲                        │
//!    └──────── … ◄─── ack ◄───┘
//! ```
//!
//! Over several paths, `session::Paths` says which of them an update takes.

use freshline_core::age::{AgeMeter, AgeProcess, AgeSummary, BacklogProcess, Freshness, Integral};
use freshline_core::path::{DeviceMeter, PathId};
use freshline_core::session::{PathAck, PathCounters, Paths, Route};
use freshline_core::source::{self, EpochRecord, Limited, Limits, RateLaw};
use freshline_core::unit::{Bytes, Span, Time};
use freshline_core::wire;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

use super::Period;
use super::measured::Measured;
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
    law: Limited,
    paths: Paths,
    /// What the devices let be seen through which several paths leave.
    devices: Vec<DeviceMeter>,
    sizes: Sizes,
    rng: Pcg64,
    starts_at: Time,
    ends_at: Time,
    /// Whether it was woken at its end or later. A law that was waiting for an ack may want an update
    /// that was due before the end.
    is_over: bool,
    /// The law's epochs so far, where they are recorded.
    epochs: Option<Vec<EpochRecord>>,
    next_seq: u64,
    fresh: u32,
    stale: u32,
    newest: Option<u64>,
    newest_acked: Option<u64>,
    tally: Tally,
}

/// The measurement. The processes run from the flow's start on, so that an age or a backlog from
/// the warm-up goes on; marks say from where their means count.
#[derive(Debug, Clone)]
struct Tally {
    measured: Measured,
    /// The true age, at the monitor.
    age: AgeMeter,
    /// The age as the source knows it from acks.
    source_age: AgeProcess,
    source_age_from: Integral,
    backlog: BacklogProcess,
    backlog_from: Integral,
    sent: u64,
    /// What each path had carried at the beginning.
    before: Vec<PathCounters>,
    delivered_fresh: u64,
    rtt_sum: Span,
    acked: u64,
}

/// What a flow of updates was like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateOutcome {
    /// The true age at the monitor, from the flow's start on: a source that delivers nothing ages
    /// from there. `None`, as all means and rates here, if the flow has no measured time.
    pub age: Option<AgeSummary>,
    /// The source's own estimate of the mean age, from acks: an upper bound. `None` where there are
    /// no acks.
    pub source_age_mean: Option<Span>,
    /// Time average of updates sent and not acknowledged; `None` where there are no acks.
    pub backlog: Option<f64>,
    /// Mean round trip of fresh acks; `None` if none came.
    pub rtt_mean: Option<Span>,
    /// Updates sent a second.
    pub updates_per_s: Option<f64>,
    /// The same with the copies that take other paths.
    pub packets_per_s: Option<f64>,
    /// Fresh updates that arrived a second.
    pub fresh_per_s: Option<f64>,
    /// Payload of fresh updates, in bit/s.
    pub goodput_bps: Option<f64>,
    /// The measured time: from when until when; `None` if the flow has none.
    pub measured: Option<Period>,
    /// Whether it had begun and no update had arrived by the end.
    pub never_delivered: bool,
}

impl Tally {
    fn new(Period { from: starts_at, until: ends_at }: Period) -> Self {
        let (source_age, backlog) =
            (AgeProcess::starting_at(starts_at), BacklogProcess::new(starts_at));
        Self {
            measured: Measured::between(Period { from: starts_at, until: ends_at }),
            age: AgeMeter::starting_at(starts_at),
            source_age_from: source_age.mark(starts_at),
            source_age,
            backlog_from: backlog.mark(starts_at),
            backlog,
            sent: 0,
            before: Vec::new(),
            delivered_fresh: 0,
            rtt_sum: Span::ZERO,
            acked: 0,
        }
    }

    fn begin(&mut self, now: Time, paths: &Paths) {
        self.measured.begin(now);
        self.age.measure_from(now);
        self.source_age_from = self.source_age.mark(now);
        self.backlog_from = self.backlog.mark(now);
        self.before = counters(paths).collect();
        (self.sent, self.delivered_fresh) = (0, 0);
        (self.rtt_sum, self.acked) = (Span::ZERO, 0);
    }
}

impl UpdateFlow {
    /// A flow that sends from `starts_at` until `ends_at`, as `law` wishes within `limits`.
    pub fn new(
        (law, limits): (Box<dyn RateLaw>, Limits),
        sizes: Sizes,
        Period { from: starts_at, until: ends_at }: Period,
        rng: Pcg64,
    ) -> Self {
        Self {
            law: Limited::new(law, limits),
            paths: Paths::default(),
            devices: Vec::new(),
            sizes,
            rng,
            starts_at,
            ends_at,
            is_over: false,
            epochs: None,
            next_seq: 0,
            fresh: 0,
            stale: 0,
            newest: None,
            newest_acked: None,
            tally: Tally::new(Period { from: starts_at, until: ends_at }),
        }
    }

    /// The same over these paths.
    pub fn over(mut self, paths: Paths) -> Self {
        self.devices = vec![DeviceMeter::default(); paths.count()];
        self.tally.before = counters(&paths).collect();
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

    /// From now on the control epochs of the law are recorded.
    pub fn record_epochs(&mut self) {
        self.epochs = Some(Vec::new());
    }

    /// The control epochs of the law that have been recorded; none of a law without epochs.
    pub fn epochs(&self) -> &[EpochRecord] {
        self.epochs.as_deref().unwrap_or_default()
    }

    fn record_epoch(&mut self) {
        let Some(epochs) = &mut self.epochs else { return };
        if let Some(record) = self.law.law().last_epoch()
            && epochs.last().is_none_or(|last| last.ended_s < record.ended_s)
        {
            epochs.push(*record);
        }
    }

    /// The warm-up has ended: counts and means are from now on, while the age goes on.
    pub fn begin_measuring(&mut self, now: Time) {
        self.tally.begin(now, &self.paths);
    }

    /// Something to do has come due: gives an update to send, and its paths.
    pub fn on_wake(&mut self, now: Time) -> Option<(Route, Load)> {
        if self.law.poll_timeout().is_some_and(|at| at <= now) {
            self.law.handle_timeout(now);
            self.record_epoch();
        }
        self.is_over = now >= self.ends_at;
        let due = self.next_update_at().is_some_and(|at| at <= now);
        due.then(|| self.send(now))?
    }

    /// An update has come to the monitor: gives the ack, if it asks for one and the monitor sends any.
    pub fn on_update(&mut self, now: Time, update: Update) -> Option<Load> {
        let was_fresh = self.newest.is_none_or(|newest| update.seq > newest);
        if was_fresh {
            self.newest = Some(update.seq);
            self.fresh = self.fresh.wrapping_add(1);
            if self.tally.measured.has(now) {
                self.tally.delivered_fresh += 1;
                self.tally.age.on_update(now, update.generated_at);
            }
        } else if self.newest != Some(update.seq) {
            self.stale = self.stale.wrapping_add(1);
        }
        let (fresh, stale) = (self.fresh, self.stale);
        let body = Body::Ack(Ack { update, received_at: now, fresh, stale, was_fresh });
        self.sizes.ack.filter(|_| update.wants_ack).map(|size| Load::plain(size, body))
    }

    /// An ack has come back to the source by a path.
    pub fn on_ack(&mut self, now: Time, path: PathId, ack: Ack) {
        let Ack { update: Update { seq, generated_at, .. }, received_at, fresh, stale, .. } = ack;
        self.paths.on_ack(now, path, &PathAck { seq, hold: Span::ZERO, received_at });
        let is_measured = self.tally.measured.has(now);
        if is_measured {
            self.tally.backlog.on_ack(now, seq);
        }
        if self.newest_acked.is_none_or(|newest| seq > newest) {
            self.newest_acked = Some(seq);
            self.tally.rtt_sum += now.since(generated_at);
            self.tally.acked += 1;
            if is_measured {
                let _: Freshness = self.tally.source_age.on_update(now, generated_at);
            }
        }
        let (sent_at, hold) = (generated_at, Span::ZERO);
        let ack = source::Ack { seq, generated_at, sent_at, hold, received_at, fresh, stale };
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

    /// `now`, or the end of the flow if that was earlier: age and backlog are measured until then.
    pub fn measured_until(&self, now: Time) -> Time {
        self.tally.measured.clip(now)
    }

    /// How much of its time has been measured; `None` if none has.
    pub fn measured(&self, now: Time) -> Option<Span> {
        self.tally.measured.passed(now)
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
    pub fn poll_timeout(&self) -> Option<Time> {
        let tick = self.law.poll_timeout().filter(|_| self.next_seq > 0);
        Time::earliest([self.next_update_at(), tick])
    }

    /// What was measured until `now`.
    pub fn outcome(&self, now: Time) -> UpdateOutcome {
        let tally = &self.tally;
        let until = tally.measured.clip(now);
        let rate = |count: u64| tally.measured.rate(now, count as f64);
        let has_acks = self.sizes.ack.is_some();
        let rtt_mean = (tally.acked > 0).then(|| tally.rtt_sum / tally.acked);
        UpdateOutcome {
            age: tally.age.summary(until),
            source_age_mean: tally
                .source_age
                .mean_since(tally.source_age_from, until)
                .filter(|_| has_acks),
            backlog: tally.backlog.mean_since(tally.backlog_from, until).filter(|_| has_acks),
            rtt_mean,
            updates_per_s: rate(tally.sent),
            packets_per_s: rate(self.sent_by_path().sum()),
            fresh_per_s: rate(tally.delivered_fresh),
            goodput_bps: rate(tally.delivered_fresh * self.sizes.payload.get() * 8),
            measured: tally.measured.period(now),
            never_delivered: self.newest.is_none() && now > self.starts_at,
        }
    }

    fn next_update_at(&self) -> Option<Time> {
        let at = self.law.next_update_at()?.max(self.starts_at);
        (at < self.ends_at && !self.is_over).then_some(at)
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
                false => self.paths.on_sent_without_ack_request(now, path),
            }
        }
        let whole = self.sizes.payload + self.sizes.overhead;
        let size = match self.sizes.distribution {
            SizeDistribution::Constant => whole,
            _ => exponential(whole, &mut self.rng),
        };
        self.law.on_bytes(now, size * route.all().count() as u64);
        let body = Body::Update(Update { seq, generated_at: now, wants_ack });
        Some((route, Load::plain(size, body)))
    }

    /// The size that an update has on its next hop, if it is drawn anew.
    pub fn size_on_hop(&mut self) -> Option<Bytes> {
        let each_hop = self.sizes.distribution == SizeDistribution::ExponentialEachHop;
        each_hop.then(|| exponential(self.sizes.payload + self.sizes.overhead, &mut self.rng))
    }
}

impl super::Flow {
    /// From now on the control epochs of its law, if it has one with epochs, are recorded.
    pub(super) fn record_epochs(&mut self) {
        if let Self::Updates(updates) = self {
            updates.record_epochs();
        }
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
