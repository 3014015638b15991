//! The link's stop: rate, delay and loss, as a [`Hop`], and hops in series as a [`Path`]. Both
//! directions between two ends, with the Wi-Fi between them if there is any, are [`Conditions`].
//!
//! ```text
//! enqueue ─► mtu ─► qdisc ─► transmitter ─► loss ─► line (delay ± jitter) ─► poll
//!             │       │    (rate or trace)    │       │
//!             ▼       ▼                       ▼       ▼
//!           drops   drops                   drops   drops
//! ```
//!
//! Everything here is a state machine on the driver's time. The canonical loop hands packets in
//! as they come, takes out all that is due, and sleeps until the next event:
//!
//! ```
//! # use freshline_core::link::PathConfig;
//! # use freshline_core::router::Packet;
//! # use freshline_core::unit::{Bytes, Time};
//! # use rand_pcg::Pcg64;
//! # #[derive(Debug)] struct Update;
//! # impl Packet for Update { fn size(&self) -> Bytes { Bytes::new(1024) } }
//! let config = PathConfig { hop: vec!["rate=6mbit,delay=10ms".parse()?] };
//! let mut path = config.build(|hop| Pcg64::new(7, hop as u128))?;
//! let mut now = Time::ZERO;
//! path.enqueue(now, Update, &mut |drop| println!("{drop:?}"));
//! while let Some(wake) = path.poll_timeout() {
//!     now = wake;
//!     while let Some(delivered) = path.poll(now, &mut |drop| println!("{drop:?}")) {
//!         assert_eq!(delivered.at, Time::from_nanos(11_365_334));
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Time
//!
//! A driver that is late changes nothing: what happened between two calls is worked out in the
//! order in which it happened, at the times at which it happened. A transmission starts at the
//! very end of the one before it, and a packet enters a hop when the hop before delivered it.
//! When a departure and an arrival coincide, the departure comes first; so what arrives at the
//! very time of a trace's delivery opportunity is too late for it.
//!
//! # Change
//!
//! A hop may get another rate or delay at given times ([`HopChange`]). A new rate counts at once,
//! also for what is left of the packet in transmission; a new delay counts for packets whose
//! transmission ends after it, and with the order kept none of them overtakes another. The delay lines
//! of a trace ([`Trace`]) act in the same way, on top of the delay of the hop.
//!
//! # Randomness
//!
//! Each hop owns one generator, handed to it when it is made, so the n-th packet over a hop
//! meets the same fate whatever happens elsewhere and whenever the driver looks.
//!
//! # Memory
//!
//! A hop holds what its qdisc's limit allows, one packet in transmission, and a line of at most
//! [`Hop::LINE_PACKETS`] and [`Hop::LINE_BYTES`]. What comes in excess onto the line is dropped
//! as [`DropReason::LineFull`](crate::router::DropReason::LineFull).

mod conditions;
mod config;
mod error;
mod framing;
mod histogram;
mod hop;
mod line;
mod loss;
mod path;
mod serialiser;
mod stats;
mod trace;
mod trace_config;
mod trace_file;
mod trace_model;
mod transmitter;

pub use conditions::{Airborne, Conditions, ConditionsConfig, ConditionsError, Direction, Passage};
pub use config::{HopConfig, ParseHopError, ParseOrderError, PathConfig, PathError};
pub use error::FieldError;
pub use framing::{Cells, Framing, ParseFramingError};
pub use histogram::SpanHistogram;
pub use hop::{Delivered, Hop, HopChange};
pub use line::Order;
pub use loss::{GilbertElliott, Loss};
pub use path::Path;
pub use stats::{DropCounts, HopStats, Traffic};
pub use trace::{Trace, TraceError};
pub use trace_config::TraceConfig;
pub use trace_file::{TraceFile, TraceFileError};
pub use trace_model::{CellularModel, LeoModel, LongRun, TraceModel, TraceModelError};

use alloc::sync::Arc;

use crate::unit::{BitRate, Bytes, Span};

/// What a link does to packets behind its queue.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkParams {
    /// The largest packet that it takes; `None` is any size. A larger one is dropped in front of
    /// the queue.
    pub mtu: Option<Bytes>,
    /// The rate of transmission; `None` is infinitely fast.
    pub rate: Option<BitRate>,
    /// The times at which packets are transmitted, in place of a rate, and changes of what is added to
    /// `delay`.
    /// It starts at [`Time::ZERO`].
    ///
    /// [`Time::ZERO`]: crate::unit::Time::ZERO
    pub trace: Option<Arc<Trace>>,
    /// The bytes that the link layer adds to each packet: they take time at the rate or of the trace.
    pub framing: Framing,
    /// The propagation delay, from the end of the transmission to the delivery; a trace may add
    /// to it.
    pub delay: Span,
    /// The delay of a packet is drawn uniformly from `delay` ± `jitter`, and never negative.
    pub jitter: Span,
    /// Whether jitter may reorder packets.
    pub order: Order,
    /// The random loss, after the transmission: a lost packet has used the link.
    pub loss: Loss,
}
