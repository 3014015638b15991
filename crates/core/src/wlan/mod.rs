//! Downlink laws for Wi-Fi: each finds the highest rate of a sender that keeps the queue at the
//! access point short.
//!
//! ```text
//!  sender ─► paced at rate() ─► access point: a queue per station ─► A-MPDU ─► client
//!    ▲                          packets since the last frame        level = packets/frame
//!    │                          leave in the next                          │
//!  law ◄─ on_report ◄────────────── report every Δ ◄── Aggregation ◄────────┘
//! ```
//!
//! An access point sends all packets queued for a station in one frame, an A-MPDU. The more packets
//! arrive between two frames, the more packets a frame has, and the longer it takes: the level
//! (packets per frame) and the delay rise together, so the level measures the delay without a
//! common clock. Below a level of Nmax (64) each frame empties its queue; at Nmax the queue grows
//! and overflows. A law holds the levels of all stations of an access point at a target below Nmax,
//! by the clients' reports.
//!
//! | item | purpose | from |
//! |---|---|---|
//! | [`Round`] | levels and delays at given rates, rates for levels | 5.2 |
//! | [`mac`] | a simulated cell: access point and stations | IEEE 802.11-2016 |
//! | [`Link`] | airtime of frames and packets: c and w | 5.2.2 |
//! | [`Reports`] | airtime of clients' reports | – |
//! | [`Round::allocate`] | the proportional-fair rates | 5.3 |
//! | [`Aggregation`] | levels, losses and MCS rates from received packets | 4.2.1 |
//! | [`estimator`] | levels from the kernel's timestamps | 4.4 |
//! | [`Napi`] | a model of those timestamps | 4.4 |
//! | [`Fixed`] | the simplest law: a constant rate | – |
//! | [`Linear`] | integral control of the level, equal airtime | 4.3, Algorithm 1 |
//! | [`Algorithm2`] | the same through F⁻¹, with a level for a delay bound | 5.4, Algorithm 2 |
//! | [`Nonlinear`] | the same, made robust: the recommended one | 5.4 |
//! | [`Locator`] | whether the bottleneck is the Wi-Fi or the backhaul | 4.5 |
//! | [`Guarded`] | any law, limited to the rate of arrivals if the backhaul is slow | 4.5 |
//!
//! Sections are of Hassani, MSc thesis: Achieving Low Delay & High Rate in 802.11ac Edge Networks.
//!
//! ```
//! use freshline_core::unit::{BitRate, Span, Time};
//! use freshline_core::wlan::{DownlinkLaw, NonlinearParams, Report, StationId};
//!
//! let mut law = NonlinearParams::default().build()?;
//! let (station, mut now) = (StationId(0), Time::ZERO);
//! law.on_join(now, station)?;
//! for _ in 0..20 {
//!     // Packets are sent at the rate for half a second; the client counts them and reports.
//!     let packets_a_second = law.rate(station).as_bps() as f64 / 12_000.0;
//!     let round = 200e-6 / (1.0 - 31.67e-6 * packets_a_second);
//!     let level = (packets_a_second * round).clamp(1.0, 64.0);
//!     let rate = BitRate::from_mbps(390);
//!     now += Span::from_millis(500);
//!     law.on_report(now, station, Report { level, deviation: 2.0, frames: 400, rate, loss: 0.0 });
//!     while law.poll_timeout().is_some_and(|due| due <= now) {
//!         law.handle_timeout(now);
//!     }
//! }
//! // 32 packets every 200 + 32 · 31.67 µs.
//! assert_eq!(law.rate(station).as_bps() / 1_000_000, 316);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Untrusted clients
//!
//! Reports come from the network. Numbers are clamped to their ranges, or the report is ignored;
//! only the newest report of a station per slot counts, so a flood counts as one report; the number
//! of stations is bounded. Reports of one station do not affect others: c and the round are medians
//! over stations, and levels stay within bounds. Remaining attacks are on the book's page.

mod aggregation;
pub mod air;
mod algorithm2;
mod allocation;
mod bottleneck;
mod config;
mod delivery;
pub mod estimator;
mod fixed;
mod guard;
mod linear;
mod link;
pub mod mac;
mod model;
mod napi;
mod nonlinear;
mod params;
mod reports;
mod slot;

pub use aggregation::{Aggregation, AggregationParams, Arrival};
pub use algorithm2::{Algorithm2, Algorithm2Law, Algorithm2Params, Algorithm2State};
pub use allocation::{Allocation, AllocationError, Binding, Limits};
pub use bottleneck::{Bottleneck, FrameSeen, Locator, LocatorError, Training, Weights};
pub use config::DownlinkLawConfig;
pub use delivery::{Account, Delivered, Delivery, URGENT_EXCESS, urgent_gap};
pub use fixed::Fixed;
pub use guard::Guarded;
pub use linear::{Linear, LinearLaw, LinearParams, LinearState, Sharing, gain_limit};
pub use link::{Link, airtime};
pub use model::{Fluctuation, ModelError, Round};
pub use napi::{Napi, NapiError, NapiParams};
pub use nonlinear::{Nonlinear, NonlinearLaw, NonlinearParams, NonlinearState};
pub use params::{DownlinkParams, ParamsError};
pub use reports::Reports;
pub use slot::{SlotLaw, Slotted, Station};

use core::fmt;
use core::num::NonZeroU16;

use crate::unit::{BitRate, Span, Time};

/// A station of the access point, by the driver's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StationId(pub u32);

/// The measurements of a station since its last report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// μ̃N: the mean number of packets per frame, at least 1.
    pub level: f64,
    /// The standard deviation of packets per frame.
    pub deviation: f64,
    /// The number of frames in both; a report with zero frames is ignored.
    pub frames: u64,
    /// μR = 1/E[1/R]: the harmonic mean of the rates of the frames' data symbols.
    pub rate: BitRate,
    /// The fraction of packets, 0 to 1, that did not arrive, after the link's retries.
    pub loss: f64,
}

/// Counts packets per frame at one client: by the network card's timestamps ([`Aggregation`]), or
/// by the kernel's ([`estimator`]).
pub trait LevelCounter: fmt::Debug + Send {
    /// A packet has arrived. `now` never goes back; stamps may.
    fn on_packet(&mut self, now: Time, packet: Arrival);

    /// `packets` packets of other flows to this station have arrived in the frame with this stamp.
    /// They take places in it: the level counts all packets. Counters that do not identify frames
    /// by stamps ignore it.
    fn on_others(&mut self, _stamp: Time, _packets: u64) {}

    /// Nmax: the maximum number of packets per frame for this counter; `None` if unknown.
    fn max_packets(&self) -> Option<NonZeroU16> {
        None
    }

    /// The measurements since the last report; `None` if there were too few packets.
    fn report(&mut self, now: Time) -> Option<Report>;

    /// The sender restarts its sequence numbers: forgets all earlier packets.
    fn restart(&mut self);
}

/// A law's estimates of the channel, and its targets. `None` if a law has no such value or too
/// little information.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Belief {
    /// ĉ: the overhead of one frame in addition to its packets.
    pub overhead: Option<Span>,
    /// ν: the target of the slowest station's level, in packets per frame.
    pub slowest_target: Option<f64>,
    /// z: the level from which the station's rate is calculated, in packets per frame. It equals
    /// the target if ĉ is exact.
    pub control_level: Option<f64>,
}

/// More stations than a law allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {0} stations already; raise `max_stations`, or let one leave")]
pub struct TooManyStations(pub usize);

/// Chooses the rate of the packets to each station of one access point.
///
/// The contract: call an `on_*` method for every input, with `now` never going back; then read
/// [`DownlinkLaw::rate`] and [`DownlinkLaw::poll_timeout`] again. Inputs for unknown stations are
/// ignored.
pub trait DownlinkLaw: fmt::Debug + Send {
    /// The name in reports and scenarios.
    fn name(&self) -> &'static str;

    /// Adds `station`, before packets are sent to it. Has no effect on a known station.
    fn on_join(&mut self, now: Time, station: StationId) -> Result<(), TooManyStations>;

    /// Removes `station`: no more packets are sent to it.
    fn on_leave(&mut self, now: Time, station: StationId);

    /// A report of `station` has arrived.
    fn on_report(&mut self, now: Time, station: StationId, report: Report);

    /// There was less to send to `station` than its rate allows: until the next slot, its level is
    /// not a measure of the rate.
    fn on_app_limited(&mut self, now: Time, station: StationId);

    /// Since the last slot, packets to `station` were sent at this rate, below the law's own: its
    /// level belongs to this rate. Laws that do not learn from rates ignore it.
    fn on_paced(&mut self, _now: Time, _station: StationId, _rate: BitRate) {}

    /// Frames to `station` have at most this many packets, as reported by its client: Nmax
    /// for this station instead of [`DownlinkParams::max_packets`], which `None` restores. It is
    /// clamped to 2 to 1024. Laws without levels ignore it.
    fn on_max_packets(&mut self, _station: StationId, _packets: Option<NonZeroU16>) {}

    /// The time of [`DownlinkLaw::poll_timeout`] has come; earlier calls have no effect.
    fn handle_timeout(&mut self, now: Time);

    /// When to call [`DownlinkLaw::handle_timeout`] next.
    fn poll_timeout(&self) -> Option<Time>;

    /// The rate of IP packets to `station`, to be sent evenly spaced; meaningless for an unknown
    /// station.
    fn rate(&self, station: StationId) -> BitRate;

    /// The target level of `station`, in packets per frame; `None` if there is no target.
    fn target(&self, station: StationId) -> Option<f64>;

    /// The law's estimates of the channel to `station`.
    fn belief(&self, _station: StationId) -> Belief {
        Belief::default()
    }
}
