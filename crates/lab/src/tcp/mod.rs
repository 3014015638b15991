//! TCP in virtual time: streams that behave as those of Linux do.
//!
//! A stream has two ends, both state machines on the driver's time: a [`Sender`], governed by a
//! law of [`congestion`], and a [`Receiver`]. What happens goes in through `on_*`; segments come
//! out of `poll_transmit`, which is called until there is none; `next_event` says when to call
//! `on_tick` next.
//!
//! ```
//! # use freshline_core::unit::{Bytes, Packets, Span, Time};
//! # use freshline_lab::tcp::congestion::Reno;
//! # use freshline_lab::tcp::{Receiver, ReceiverParams, Sender, SenderParams};
//! let law = Reno::new(Packets::new(10));
//! let mut sender = Sender::new(SenderParams::default(), Box::new(law));
//! let mut receiver = Receiver::new(ReceiverParams::default());
//! let mut now = Time::ZERO;
//! sender.connect(now);
//! sender.write(Bytes::new(10_000));
//! sender.close();
//! while !sender.is_finished() {
//!     // Everything takes 10 ms each way.
//!     now += Span::from_millis(10);
//!     while let Some(segment) = sender.poll_transmit(now) {
//!         receiver.on_segment(now + Span::from_millis(10), &segment);
//!     }
//!     now += Span::from_millis(10);
//!     while let Some(ack) = receiver.poll_transmit(now) {
//!         sender.on_segment(now + Span::from_millis(10), &ack);
//!     }
//! }
//! assert_eq!(receiver.delivered(), Bytes::new(10_000));
//! ```
//!
//! # What is as in Linux
//!
//! Timestamps, SACK, RACK with tail loss probes, proportional rate reduction, timeouts 200 ms
//! above the round trip, an initial window of 10 segments, restart after idle, delayed acks of
//! 40 ms with quick ones at the start, both buffers tuned, HyStart, pacing for the laws that ask
//! for it.
//!
//! # What is left out
//!
//! Segmentation offload: segments are packets. A stream goes one way, and the way back carries
//! acks only; a dialogue takes two streams. The receiving application reads at once, so the
//! window never closes and there are no window probes. Reductions are not undone when a
//! retransmission turns out to have been needless (F-RTO, Eifel).

pub mod apps;
pub mod congestion;

mod autotune;
mod delivery_rate;
mod filter;
mod pacer;
mod rack;
mod ranges;
mod receiver;
mod recovery;
mod rtt;
mod scoreboard;
mod segment;
mod sender;

pub use autotune::BufferParams;
pub use delivery_rate::RateSample;
pub use receiver::{Echo, Receiver, ReceiverParams};
pub use segment::{Block, Flags, SackBlocks, Segment};
pub use sender::{Sender, SenderParams, SenderStats};
