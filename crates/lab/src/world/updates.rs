//! A source of updates and its monitor: the endpoints of `freshline_core::session`.
//!
//! ```text
//!   source ── poll_transmit ──► parcel of the scenario's size ──► … ──► handle_datagram ─► monitor
//!     ▲                                                                                     │
//!     └── handle_datagram ◄── … ◄─────────────── parcel ◄──────────────── poll_transmit ────┘
//! ```
//!
//! The endpoints read one clock, and a state is sampled when its update is sent. Its bytes are
//! counted and not copied: the session carries empty states in packets of the size that [`Sizes`]
//! defines, or, if a state takes several updates, a state with symbols of a few bytes. Addresses
//! count as validated, as after QUIC's handshake, so that a session opens in one round trip.
//!
//! In a scenario without acks, the session is opened before the first update, without a packet. The
//! monitor's answers are discarded, and no timer of the session waits for one: the law alone sets
//! the rate.

mod sizes;
mod tally;

use freshline_core::age::{AgeProcess, BacklogProcess};
use freshline_core::link::Direction;
use freshline_core::path::PathId;
use freshline_core::session::{
    Admission, Monitor, MonitorEvent, MonitorParams, PathCounters, Paths, Reach, Secret, Source,
    SourceEvent, SourceParams,
};
use freshline_core::source::{EpochRecord, Limits, RateLaw};
use freshline_core::unit::{Bytes, Span, Time, UpdateRate};
use freshline_core::wire::Message;
use rand::RngExt;
use rand_pcg::Pcg64;

use super::datagrams::{Datagrams, MAX_OF_PARTS, SYMBOL};
use super::devices::Devices;
use super::parcel::{Body, Load};
use super::{Delivery, Period};
pub use sizes::{SizeDistribution, Sizes};
use tally::Tally;
pub use tally::UpdateOutcome;

/// Longer than any run.
const FOREVER: Span = Span::from_secs(1 << 31);

/// A flow of updates.
pub struct UpdateFlow {
    source: Source,
    monitor: Monitor<PathId>,
    devices: Devices,
    sizes: Sizes,
    rng: Pcg64,
    starts_at: Time,
    ends_at: Time,
    /// Whether it was woken at its end or later. A law that was waiting for an ack may request an
    /// update that was due before the end.
    is_over: bool,
    /// Whether an update has arrived over the network.
    has_delivered: bool,
    /// The law's epochs so far, if they are recorded.
    epochs: Option<Vec<EpochRecord>>,
    datagrams: Datagrams,
    /// The placeholder for the state.
    state: Vec<u8>,
    /// Whether the source was woken and may have more to send.
    is_awake: bool,
    /// Whether the monitor may have an answer: at most one per datagram.
    may_answer: bool,
    tally: Tally,
}

impl UpdateFlow {
    /// A flow that sends over `paths` during `period`, controlled by `law` within `limits`. The
    /// session's secrets are drawn from `secrets`, sizes from `rng`.
    pub fn new(
        (law, limits): (Box<dyn RateLaw>, Limits),
        paths: Paths,
        sizes: Sizes,
        period: Period,
        secrets: &mut Pcg64,
        rng: Pcg64,
    ) -> Self {
        let Period { from: starts_at, until: ends_at } = period;
        // The lab measures the true age, and the source's estimate by its own definition.
        let mut params = SourceParams { limits, measure_age: false, ..SourceParams::default() };
        let state = vec![0; if sizes.symbols > 1 { sizes.symbols as usize * SYMBOL } else { 0 }];
        if sizes.symbols > 1 {
            (params.max_datagram, params.max_state) = (MAX_OF_PARTS, state.len());
        }
        if sizes.ack.is_none() {
            (params.first_wait, params.silence, params.keep_alive) = (FOREVER, FOREVER, FOREVER);
        }
        let devices = Devices::of(&paths);
        let source = Source::new(params, Secret::new(secrets.random()), law, starts_at);
        let source = source.expect("an empty name is short").over(paths);
        let mut at_monitor =
            MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
        if sizes.ack.is_none() {
            at_monitor.idle = FOREVER;
        }
        let mut tally = Tally::new(period);
        tally.before = counters(&source).collect();
        Self {
            source,
            monitor: Monitor::new(at_monitor, Secret::new(secrets.random())),
            devices,
            sizes,
            rng,
            starts_at,
            ends_at,
            is_over: false,
            has_delivered: false,
            epochs: None,
            datagrams: Datagrams::new(),
            state,
            is_awake: false,
            may_answer: false,
            tally,
        }
    }

    /// The device of a path holds this number of packets now, and `left` have left it since its start.
    pub fn look(&mut self, now: Time, path: PathId, packets: u64, left: u64) {
        self.devices.look((now, path), (packets, left), &mut self.source);
    }

    /// Whether there are several paths, so that the source needs the queue lengths of their
    /// devices.
    pub(super) fn has_choice(&self) -> bool {
        self.devices.are_several()
    }

    /// From now on the control epochs of the law are recorded.
    pub fn record_epochs(&mut self) {
        self.epochs = Some(Vec::new());
    }

    /// The recorded control epochs of the law; empty for a law without epochs.
    pub fn epochs(&self) -> &[EpochRecord] {
        self.epochs.as_deref().unwrap_or_default()
    }

    /// The period from its start until `now`, or until the end of the age's measurement if that was
    /// earlier.
    pub fn age_period(&self, now: Time) -> Period {
        Period { from: self.starts_at, until: self.measured_until(now).max(self.starts_at) }
    }

    /// From now on the deliveries that reset the age are recorded.
    pub fn record_ages(&mut self) {
        self.tally.deliveries.record();
    }

    /// The deliveries that have been recorded, in the order of their arrival.
    pub fn deliveries(&self) -> &[Delivery] {
        self.tally.deliveries.all()
    }

    fn record_epoch(&mut self) {
        let Some(epochs) = &mut self.epochs else { return };
        if let Some(record) = self.source.law().last_epoch()
            && epochs.last().is_none_or(|last| last.ended_s < record.ended_s)
        {
            epochs.push(*record);
        }
    }

    /// The warm-up has ended: counts and means begin now, while the age continues.
    pub fn begin_measuring(&mut self, now: Time) {
        self.tally.begin(now, counters(&self.source));
    }

    /// Handles an event that is due. Then call [`UpdateFlow::poll_transmit`].
    pub fn on_wake(&mut self, now: Time) {
        self.monitor.handle_timeout(now);
        while self.monitor.poll_event().is_some() {}
        self.is_over = now >= self.ends_at;
        if self.is_over || now < self.starts_at {
            return;
        }
        if self.sizes.ack.is_none() && self.source.reach() != Reach::Open {
            self.open_unseen(now);
        }
        self.wake_source(now);
        self.record_epoch();
    }

    /// The next packet to send, from either end, with its path. Call it until it returns `None`.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(u8, Direction, Load)> {
        if std::mem::take(&mut self.may_answer)
            && let Some(answer) = self.monitor.poll_transmit(now, self.datagrams.room())
            && let Some(size) = self.sizes.ack
        {
            let body = Body::Answer(self.datagrams.keep(answer.len));
            return Some((answer.peer.0, Direction::Reverse, Load::plain(size, body)));
        }
        if !self.is_awake {
            return None;
        }
        let Some(transmit) = self.source.poll_transmit(now, self.datagrams.room()) else {
            self.is_awake = false;
            return None;
        };
        if let Some(seq) = transmit.seq.filter(|_| !transmit.is_copy) {
            self.tally.sent += 1;
            if self.sizes.ack.is_some() {
                self.tally.backlog.on_sent(now, seq);
            }
        }
        let size = self.sizes.draw(&mut self.rng);
        self.source.handle_wire_bytes(now, size);
        let body = Body::Update(self.datagrams.keep(transmit.len));
        Some((transmit.path.0, Direction::Forward, Load::plain(size, body)))
    }

    /// A datagram of the source has arrived at the monitor on a path. Then call
    /// [`UpdateFlow::poll_transmit`].
    pub fn on_update(&mut self, now: Time, path: PathId, number: u32) {
        let Some(datagram) = self.datagrams.get(number) else { return };
        (self.has_delivered, self.may_answer) = (true, true);
        // The result is reported by events.
        let _ = self.monitor.handle_datagram(now, path, datagram);
        self.datagrams.remove(number);
        while let Some(event) = self.monitor.poll_event() {
            if let MonitorEvent::Fresh { source, is_repeat: false, .. } = event
                && let Some(record) = self.monitor.record(source)
            {
                self.tally.on_fresh(now, record.generated_at);
            }
        }
    }

    /// An answer of the monitor has arrived at the source on a path.
    pub fn on_answer(&mut self, now: Time, path: PathId, number: u32) {
        let Some(datagram) = self.datagrams.get(number) else { return };
        // The result is reported by events.
        let _ = self.source.handle_datagram(now, path, datagram);
        self.datagrams.remove(number);
        while let Some(event) = self.source.poll_event() {
            match event {
                SourceEvent::Opened => {}
                SourceEvent::Acked { rtt } => {
                    self.tally.rtt_sum += rtt;
                    self.tally.round_trips.record(rtt);
                }
                _ => continue,
            }
            if let Some(acked) = self.source.newest_acked() {
                self.tally.on_ack(now, acked.seq, acked.generated_at);
            }
        }
    }

    /// A packet of the flow was dropped.
    pub fn on_dropped(&mut self, number: u32) {
        self.datagrams.remove(number);
    }

    pub(super) const fn datagrams_mut(&mut self) -> &mut Datagrams {
        &mut self.datagrams
    }

    /// The sizes of its packets.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The message of a packet in flight, by its number. Its payload is empty.
    pub fn message(&self, number: u32) -> Option<Message<'_>> {
        self.datagrams.message(number)
    }

    /// The true age at the monitor.
    pub const fn age(&self) -> &AgeProcess {
        self.tally.age.process()
    }

    /// `now`, or the end of the flow if that was earlier: the end of the measurement of age and
    /// backlog.
    pub fn measured_until(&self, now: Time) -> Time {
        self.tally.measured.clip(now)
    }

    /// The present rate of its law.
    pub fn law_rate(&self) -> UpdateRate {
        self.source.law().rate()
    }

    /// The length of its measured time so far; `None` before it begins.
    pub fn measured(&self, now: Time) -> Option<Span> {
        self.tally.measured.passed(now)
    }

    /// Updates sent and not acknowledged.
    pub const fn backlog(&self) -> &BacklogProcess {
        &self.tally.backlog
    }

    /// Updates sent, openings included.
    pub const fn sent(&self) -> u64 {
        self.tally.sent
    }

    /// The number of fresh acks, and the sum of their round trips.
    pub const fn round_trips(&self) -> (u64, Span) {
        (self.tally.round_trips.count(), self.tally.rtt_sum)
    }

    /// When to call [`UpdateFlow::on_wake`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.is_over {
            return None;
        }
        let source = self.source.poll_timeout().map(|at| at.max(self.starts_at));
        Time::earliest([source.filter(|at| *at < self.ends_at), self.monitor.poll_timeout()])
    }

    /// The measurements until `now`.
    pub fn outcome(&self, now: Time) -> UpdateOutcome {
        let tally = &self.tally;
        let until = tally.measured.clip(now);
        let rate = |count: u64| tally.measured.rate(now, count as f64);
        let has_acks = self.sizes.ack.is_some();
        let is_acked = tally.round_trips.count() > 0;
        UpdateOutcome {
            age: tally.age.summary(until),
            source_age_mean: tally.source_age_mean(until).filter(|_| has_acks),
            backlog: tally.backlog_mean(until).filter(|_| has_acks),
            rtt_mean: is_acked.then(|| tally.round_trips.mean()),
            rtt_p99: is_acked.then(|| tally.round_trips.quantile(0.99)),
            updates_per_s: rate(tally.sent),
            packets_per_s: rate(self.sent_by_path().sum()),
            fresh_per_s: rate(tally.delivered_fresh),
            goodput_bps: rate(tally.delivered_fresh * self.sizes.state_len() * 8),
            measured: tally.measured.period(now),
            never_delivered: !self.has_delivered && now > self.starts_at,
        }
    }

    /// The number of updates sent on each path during the measurement, copies included.
    pub fn sent_by_path(&self) -> impl Iterator<Item = u64> {
        let before = self.tally.before.iter();
        counters(&self.source).zip(before).map(|(after, before)| after.sent - before.sent)
    }

    /// The size of an update on its next hop, if it is drawn per hop.
    #[inline]
    pub fn size_on_hop(&mut self) -> Option<Bytes> {
        self.sizes.draw_on_hop(&mut self.rng)
    }

    /// Lets the source handle due events, and samples the state that it asks for.
    fn wake_source(&mut self, now: Time) {
        self.is_awake = true;
        self.source.handle_timeout(now);
        while let Some(event) = self.source.poll_event() {
            if let SourceEvent::StateWanted(_) = event {
                self.source.put(now, now, &self.state).expect("it fits");
            }
        }
    }

    /// Opens the session without a packet.
    fn open_unseen(&mut self, now: Time) {
        self.wake_source(now);
        let Self { source, monitor, datagrams, .. } = self;
        let written = datagrams.room();
        while let Some(opening) = source.poll_transmit(now, written) {
            // It is accepted: the address is validated, and there is no other source.
            let _ = monitor.handle_datagram(now, opening.path, &written[..opening.len]);
        }
        while let Some(answer) = monitor.poll_transmit(now, written) {
            let _ = source.handle_datagram(now, answer.peer, &written[..answer.len]);
        }
        while monitor.poll_event().is_some() || source.poll_event().is_some() {}
    }
}

/// The counters of each path.
fn counters(source: &Source) -> impl Iterator<Item = PathCounters> {
    source.paths().statuses(Time::ZERO, None).map(|status| status.counters)
}
