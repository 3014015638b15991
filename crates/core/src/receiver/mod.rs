//! The last stop: the amount of data in flight towards a receiver.
//!
//! A TCP sender keeps at most min(cwnd, rwnd) in flight. A receive window larger than the path's
//! BDP becomes a queue at the bottleneck. A law of this module chooses the window from measurements
//! at the receiver alone.
//!
//! ```text
//!  data ─► on_round_trip, on_arrival ─┐
//!  application ─► on_read ────────────┴─► law ─► window() ─► every ack
//! ```
//!
//! | law | window | from |
//! |---|---|---|
//! | [`Fixed`] | constant | the minimum: an application sets it once |
//! | [`Autotune`] | ahead of the bytes read, and never smaller | Linux |
//! | [`Drwa`] | in proportion to RTTm/RTT | the baseline of the thesis |
//! | [`Rtac`] | that of Reno behind a RED queue | the thesis |
//! | [`Algorithm1`] | the same, exactly as printed, with K set by hand | the thesis, Algorithm 1 |
//!
//! The thesis is Im, PhD thesis, Seoul National University, 2015: TCP Performance Enhancement in
//! Wireless Networks, chapter 2.
//!
//! No law has a timer: without arrivals there are no acks, and so no window to advertise.

mod algorithm1;
mod autotune;
mod config;
mod drwa;
mod fixed;
mod peak;
mod remote;
mod round;
mod rtac;
mod variation;

pub use algorithm1::Algorithm1;
pub use autotune::Autotune;
pub use config::{WindowLawConfig, WindowLawError};
pub use drwa::{Drwa, DrwaParams};
pub use fixed::Fixed;
pub use remote::{QueueOwner, Remote};
pub use rtac::{A, AutoParams, Flight, Rtac, RtacParams, Slope, slope};
pub use variation::{Delta, DeltaError};

use core::fmt;

use crate::unit::{Bytes, Packets, Span, Time};

/// The range of a receive window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The initial window.
    pub initial: Bytes,
    /// The maximum.
    pub most: Bytes,
}

impl Limits {
    /// The window nearest to the one wanted: at least `least` segments, at most [`Limits::most`].
    fn bound(&self, wanted: f64, least: Packets, segment: Bytes) -> Bytes {
        let floor = least.get().saturating_mul(segment.get());
        // `as` saturates, and converts NaN into zero.
        Bytes::new((wanted as u64).max(floor).min(self.most.get()))
    }
}

/// Data that had not arrived before, whether in order or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its length.
    pub bytes: Bytes,
    /// The largest segment seen, which is taken as a full one; never zero.
    pub segment: Bytes,
}

/// Chooses the receive window. The driver never takes back an edge that it has advertised (RFC 9293
/// section 3.8.6.2.1), so a smaller window takes effect as data arrives.
pub trait WindowLaw: fmt::Debug {
    /// The name in reports and scenarios.
    fn name(&self) -> &'static str;

    /// Data arrived `sample` after the ack that it answers was sent, by timestamps (RFC 7323).
    /// Later data with the same echo is no sample. Is called before the [`WindowLaw::on_arrival`]
    /// of that data.
    fn on_round_trip(&mut self, now: Time, sample: Span);

    /// New data has arrived.
    fn on_arrival(&mut self, now: Time, arrival: Arrival);

    /// The application has read `bytes` more, in order.
    fn on_read(&mut self, now: Time, bytes: Bytes);

    /// The receive window.
    fn window(&self) -> Bytes;
}
