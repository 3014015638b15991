//! Emulated links: a [`Hop`] has a rate, a delay and loss; a [`Path`] is a series of hops;
//! [`Conditions`] are both directions between two ends, with a Wi-Fi cell if there is one.
//!
//! ```text
//! enqueue ─► mtu ─► qdisc ─► transmitter ─► loss ─► line (delay ± jitter) ─► poll
//!             │       │    (rate or trace)    │       │
//!             ▼       ▼                       ▼       ▼
//!           drops   drops                   drops   drops
//! ```
//!
//! Everything here is a state machine on the driver's time. The canonical loop queues packets as
//! they arrive, polls all that are due, and sleeps until the next event:
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
//! A late driver does not change the result: all events between two calls are computed in order,
//! with their own times. A transmission starts exactly when the previous one ends, and a packet
//! enters a hop when the previous hop delivered it. If a departure and an arrival coincide, the
//! departure comes first; so a packet that arrives exactly at a trace's delivery opportunity is too
//! late for it.
//!
//! # Change
//!
//! A hop may change its rate or delay at given times ([`HopChange`]). A new rate applies at once,
//! also to the rest of the packet in transmission. A new delay applies to packets whose
//! transmission ends after the change; with [`Order::Kept`], no packet overtakes another. The delay
//! lines of a trace ([`Trace`]) act in the same way, in addition to the delay of the hop.
//!
//! # Randomness
//!
//! Each hop owns one random generator, passed at construction, so the n-th packet over a hop always
//! has the same loss and delay, independent of other hops and of the driver's timing.
//!
//! # Memory
//!
//! A hop holds packets up to its qdisc's limit, one packet in transmission, and a line of at most
//! [`Hop::LINE_PACKETS`] and [`Hop::LINE_BYTES`]. Packets beyond the line's limit are dropped as
//! [`DropReason::LineFull`](crate::router::DropReason::LineFull).

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

/// The parameters of a link, after its queue.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkParams {
    /// The largest packet that it takes; `None` is any size. Larger packets are dropped before the
    /// queue.
    pub mtu: Option<Bytes>,
    /// The rate of transmission; `None` is infinitely fast.
    pub rate: Option<BitRate>,
    /// The times at which packets are transmitted, instead of a rate, and the delays added to
    /// `delay`. It starts at [`Time::ZERO`].
    ///
    /// [`Time::ZERO`]: crate::unit::Time::ZERO
    pub trace: Option<Arc<Trace>>,
    /// The bytes that the link layer adds to each packet: they use the rate or the trace's
    /// opportunities.
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
