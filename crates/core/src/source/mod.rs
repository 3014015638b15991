//! The first stop: the time of the next update.
//!
//! After every input the driver (the session endpoint, over sockets or in the lab) asks the law for
//! the time of the next update and of the next timeout. It samples the state at the departure of
//! the update, so that no state ages before it is sent:
//!
//! ```text
//!            next_update_at()          sample, send
//!   law ──────────────────────► driver ────────────► path ─► monitor
//!    ▲                            │                             │
//!    └── on_sent, on_ack, handle_timeout ┴──────────── ack ◄───────────┘
//! ```
//!
//! | law | rate | from |
//! |---|---|---|
//! | [`AcpPlus`] | seeks the minimum mean age by steps of backlog, ×0.75 to ×1.25 per epoch | ACP+ paper, Algorithm 1 (`acp+`), and our variant of its estimates (`acp+d`) |
//! | [`Acp`] | its predecessor, with a step size κ | thesis, Algorithm 2 |
//! | [`Lazy`] | one update per smoothed round trip | thesis, section 3.8 |
//! | [`Tenth`] | keeps its mean number of queued updates at about a tenth | `docs/fresher.md` |
//! | [`Fixed`] | a constant rate: the simplest law | – |
//!
//! [`LawConfig`] names them with their settings, and builds them. [`Limited`] drives a law within
//! [`Limits`] that hold for any law.
//!
//! The ACP+ paper is Shreedhar, Kaul, Yates: An Empirical Study of Ageing in the Cloud; the thesis
//! is Shreedhar, PhD thesis, IIIT-Delhi.

mod acp;
mod acp_plus;
mod base_delay;
mod config;
mod departures;
mod epoch;
mod estimator;
mod feedback;
mod fixed;
mod lazy;
mod limits;
mod log;
mod min_age_gain;
mod pacer;
mod queueing_delay;
mod service;
mod sparse;
mod startup;
mod steering;
mod tenth;

pub use acp::{Acp, EpochEnd, Params as AcpParams, Reset, ShortfallCheck};
pub use acp_plus::{AcpPlus, MultiplicativeDecrease, Params as AcpPlusParams};
pub use config::{LawConfig, LawError, LawName};
pub use epoch::{Backlog, Losses};
pub use estimator::{Estimates, GapSource, Params as EstimatorParams, Silence};
pub use fixed::Fixed;
pub use lazy::{Lazy, Params as LazyParams, SendTime};
pub use limits::{BURST, Limit, Limited, Limits};
pub use log::EpochRecord;
pub use min_age_gain::MinAgeGain;
pub use queueing_delay::DelaySource;
pub use sparse::Acks;
pub use startup::Params as StartupParams;
pub use steering::Tie;
pub use tenth::{Params as TenthParams, Tenth};

use crate::unit::{Span, Time, UpdateRate};

/// The measurements of one ack, for a law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// The acknowledged update; updates are numbered in the order of sending.
    pub seq: u64,
    /// When that update's state was sampled, on the source's clock.
    pub generated_at: Time,
    /// When that update left, on the source's clock.
    pub sent_at: Time,
    /// The length of that update in bytes: its states and headers; headers are taken to be equally
    /// long in all.
    pub len: u32,
    /// How long the monitor held it before answering.
    pub hold: Span,
    /// When it arrived, on the *monitor's* clock: only differences between acks mean anything.
    pub received_at: Time,
    /// How many fresh updates the monitor had received by then, modulo 2³².
    pub fresh: u32,
    /// How many stale updates (that came after a fresher one), likewise.
    pub stale: u32,
}

#[cfg(test)]
impl Ack {
    /// The ack of an update that left once it was sampled, and was answered at once; the counters
    /// are zero.
    fn of(seq: u64, sent_at: Time, received_at: Time) -> Self {
        let (generated_at, hold) = (sent_at, Span::ZERO);
        Self { seq, generated_at, sent_at, len: 100, hold, received_at, fresh: 0, stale: 0 }
    }
}

/// The phase of a law, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Single probes measure the round trip.
    Probing,
    /// The law steers the rate.
    Steering,
}

/// A controller of the rate of updates.
///
/// The contract: call an `on_*` method or `handle_timeout` for every input, with `now` never going
/// back; then ask the getters again. An ack that is not fresher than all before changes nothing.
/// Rates are always finite, positive and within the law's bounds; only the floor may be lowered, by
/// a long round trip or by losses that last.
pub trait RateLaw: Send {
    /// The law's name, as given on a command line.
    fn name(&self) -> &'static str;

    /// Forgets the path and starts over: a session was opened, or the path came back.
    fn restart(&mut self, now: Time);

    /// Update `seq` has just left.
    fn on_sent(&mut self, now: Time, seq: u64);

    /// An ack has just arrived.
    fn on_ack(&mut self, now: Time, ack: &Ack);

    /// The time of [`RateLaw::poll_timeout`] has come; calls before it change nothing.
    fn handle_timeout(&mut self, now: Time);

    /// When to call [`RateLaw::handle_timeout`] next.
    fn poll_timeout(&self) -> Option<Time>;

    /// When the next update should leave, which may lie in the past; `None` while the law waits
    /// for an ack or for [`RateLaw::poll_timeout`].
    fn next_update_at(&self) -> Option<Time>;

    /// Whether the update that leaves now asks for an ack; asked right before
    /// [`RateLaw::on_sent`]. An update that does not may be acknowledged all the same.
    fn wants_ack(&self, _now: Time) -> bool {
        true
    }

    /// The current rate.
    fn rate(&self) -> UpdateRate;

    /// Whether the law still probes.
    fn phase(&self) -> Phase;

    /// Floor and ceiling of an adaptive law's rate; `None` for a law with a fixed rate.
    fn bounds(&self) -> Option<RateBounds> {
        None
    }

    /// Takes other bounds, which hold at once and after [`RateLaw::restart`]. A law without bounds
    /// ignores them.
    fn set_bounds(&mut self, _bounds: RateBounds) {}

    /// An update was due, and the source left it out, as its state has not changed and the monitor
    /// has it. The source sends less than the law allows, so a higher rate is untested, and the
    /// current one is not wrong.
    fn on_unchanged(&mut self, _now: Time) {}

    /// The last control epoch that has ended, of a law that has epochs. At most one ends per call
    /// of an `on_*` method.
    fn last_epoch(&self) -> Option<&EpochRecord> {
        None
    }
}

/// Floor and ceiling of a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct RateBounds {
    /// Minimum rate: the path must be heard from to be known. The default of one update in 2 s
    /// keeps NAT bindings open (30 s and more, RFC 4787 section 4.3) and costs next to nothing.
    /// [`Tenth`] goes below it where a round trip takes longer than a period, and down to a third
    /// of the default or of a lower floor where losses persist.
    pub floor: UpdateRate,
    /// Maximum rate. The default of 10,000/s is far beyond the use of a person or a control loop,
    /// and bounds the rate of a law on a path as fast as loopback.
    pub ceiling: UpdateRate,
}

impl Default for RateBounds {
    fn default() -> Self {
        Self { floor: UpdateRate::saturating(0.5), ceiling: UpdateRate::saturating(1e4) }
    }
}

impl RateBounds {
    fn clamp(&self, rate: UpdateRate) -> UpdateRate {
        rate.clamp(self.floor, self.ceiling)
    }
}
