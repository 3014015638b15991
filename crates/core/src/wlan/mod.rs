//! The stop before the receiver: the highest rate of a sender without a long queue in front of Wi-Fi.
//!
//! ```text
//!  sender ─► paced at rate() ─► access point: a queue per station ─► A-MPDU ─► client
//!    ▲                          packets since the last frame        level = packets a frame
//!    │                          leave in the next                          │
//!  law ◄─ on_report ◄────────────── report every Δ ◄── Aggregation ◄────────┘
//! ```
//!
//! An access point packs the packets queued for a station into one frame, an A-MPDU. The more packets arrive
//! between two frames, the more packets a frame has, and the longer it takes: level and delay rise
//! together, and the level gives the delay without a common clock. Up to a level of Nmax (64) each
//! frame empties its queue; from there on the queue grows and overflows. A law holds levels at a
//! target below, for all stations of an access point, from the clients' counts.
//!
//! | what | | from |
//! |---|---|---|
//! | [`Round`] | levels and delays at given rates, rates for levels | 5.2 |
//! | [`mac`] | the cell itself: access point and stations, element by element | IEEE 802.11-2016 |
//! | [`Link`] | airtime of frames and packets: c and w | 5.2.2 |
//! | [`Reports`] | airtime of clients' reports | – |
//! | [`Round::allocate`] | the proportional-fair rates | 5.3 |
//! | [`Aggregation`] | levels, losses and MCS rates from received packets | 4.2.1 |
//! | [`estimator`] | levels from the kernel's timestamps | 4.4 |
//! | [`Napi`] | a model of those timestamps | 4.4 |
//! | [`Fixed`] | the simplest law: a constant rate | – |
//! | [`Linear`] | integrates the level's error, equal airtime | 4.3, Algorithm 1 |
//! | [`Algorithm2`] | does so through F⁻¹, and seeks the level for a delay | 5.4, Algorithm 2 |
//! | [`Nonlinear`] | the same, made robust: the recommended one | 5.4 |
//! | [`Locator`] | whether the bottleneck is the Wi-Fi at all | 4.5 |
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
//!     // Packets leave at the rate for half a second; the client counts, and reports.
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
//! # Strangers
//!
//! Reports come from the network. Numbers are brought into their ranges or the report is left out;
//! of a slot only a station's newest report counts, so that a flood is one report; the number
//! of stations is bounded. Reports of one station do not affect others: c and the round are the
//! medians over stations, and levels stay within the bounds. Remaining attacks are on the book's page.

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

/// A station of the access point, as the driver numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StationId(pub u32);

/// What a station has seen since its last report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// μ̃N: the mean of packets a frame, from 1 on.
    pub level: f64,
    /// The standard deviation of packets a frame.
    pub deviation: f64,
    /// How many frames both are of; a report of none is left out.
    pub frames: u64,
    /// μR = 1/E[1/R]: the harmonic mean of the rates of the frames' data symbols.
    pub rate: BitRate,
    /// The part of the packets, 0 to 1, that did not arrive although the link sends lost ones
    /// again.
    pub loss: f64,
}

/// Counts the packets a frame of one client: by the network card's clock ([`Aggregation`]), or by
/// what can be told from the kernel's.
pub trait LevelCounter: fmt::Debug + Send {
    /// A packet has come. `now` never goes back; stamps may.
    fn on_packet(&mut self, now: Time, packet: Arrival);

    /// So many packets to this station that are not of the counted flow have come in the frame of
    /// this stamp. They take places there: the level is of all packets. Counters that do not know
    /// frames by their stamps ignore it.
    fn on_others(&mut self, _stamp: Time, _packets: u64) {}

    /// Nmax: how many packets a frame can have for this counter; `None` if it does not know.
    fn max_packets(&self) -> Option<NonZeroU16> {
        None
    }

    /// What has been seen since the last report; `None` if that is too little to tell.
    fn report(&mut self, now: Time) -> Option<Report>;

    /// The sender numbers its packets anew: what was seen before tells nothing any more.
    fn restart(&mut self);
}

/// What a law believes of the channel, and what it asks of it. `None` where a law has no such number
/// or knows too little.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Belief {
    /// ĉ: what one frame costs beside its packets.
    pub overhead: Option<Span>,
    /// ν: the target of the slowest station's level, in packets a frame.
    pub slowest_target: Option<f64>,
    /// z: the level from which the station's rate is calculated, in packets a frame. Where ĉ is
    /// right, it is the target.
    pub control_level: Option<f64>,
}

/// More stations than a law was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {0} stations already; raise `max_stations`, or let one leave")]
pub struct TooManyStations(pub usize);

/// Chooses the rate of the packets to each station of one access point.
///
/// The contract: call an `on_*` method for every input, with `now` never going back; then ask
/// [`DownlinkLaw::rate`] and [`DownlinkLaw::poll_timeout`] again. What concerns stations that are not
/// there changes nothing.
pub trait DownlinkLaw: fmt::Debug + Send {
    /// The name in reports and scenarios.
    fn name(&self) -> &'static str;

    /// Packets to `station` are going to be sent. One that is there already stays as it is.
    fn on_join(&mut self, now: Time, station: StationId) -> Result<(), TooManyStations>;

    /// No packets to `station` any more.
    fn on_leave(&mut self, now: Time, station: StationId);

    /// `station` has told what it saw.
    fn on_report(&mut self, now: Time, station: StationId, report: Report);

    /// There was less to send to `station` than its rate allows: its level says nothing of it
    /// until the next slot.
    fn on_app_limited(&mut self, now: Time, station: StationId);

    /// Packets to `station` left at this rate, below the law's own, since the last slot: what is
    /// learnt from its level is of this rate. Laws that learn nothing from rates ignore it.
    fn on_paced(&mut self, _now: Time, _station: StationId, _rate: BitRate) {}

    /// Frames to `station` have at most this many packets, as its client's latest report says: Nmax for
    /// this station in place of [`DownlinkParams::max_packets`], which `None` restores. It is brought into 2 to
    /// 1024. Laws without levels ignore it.
    fn on_max_packets(&mut self, _station: StationId, _packets: Option<NonZeroU16>) {}

    /// The time of [`DownlinkLaw::poll_timeout`] has come; calls before it change nothing.
    fn handle_timeout(&mut self, now: Time);

    /// When to call [`DownlinkLaw::handle_timeout`] next.
    fn poll_timeout(&self) -> Option<Time>;

    /// The rate of IP packets to `station`, to be sent evenly spaced; it means nothing where that is
    /// not there.
    fn rate(&self, station: StationId) -> BitRate;

    /// The level that it seeks for `station`, in packets a frame; `None` where it seeks none.
    fn target(&self, station: StationId) -> Option<f64>;

    /// What it believes of the channel to `station`.
    fn belief(&self, _station: StationId) -> Belief {
        Belief::default()
    }
}
