//! TCP in virtual time: streams that behave like those of Linux.
//!
//! A stream has two ends, both state machines in the driver's time: a [`Sender`], governed by a law
//! of [`congestion`], and a [`Receiver`]. Events go in through `on_*`. Segments come out of
//! `poll_transmit`, to be called until it returns `None`. `poll_timeout` returns the time of the
//! next call of `handle_timeout`.
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
//! Timestamps, SACK and duplicate SACK, RACK with tail loss probes, proportional rate reduction,
//! undoing the response to spurious losses (Eifel), timeouts 200 ms above the round trip, an
//! initial window of 10 segments, restart after idle, delayed acks of 40 ms with quick acks at the
//! start, auto-tuning of both buffers, HyStart, pacing for the laws that ask for it.
//!
//! Over 20 Mbit/s and 20 ms, from the start of the connection (`tests/tcp_beside_linux.rs`):
//!
//! | law | queue | s | mean RTT, lab | Linux 6.18 | sent again, lab | Linux 6.18 |
//! |---|---|---|---|---|---|---|
//! | cubic | 500 packets | 60 | 265.5 ms | 270.1 ms | 69 | 68 |
//! | reno | 500 packets | 60 | 242.7 ms | 241.9 ms | 540 | 540 |
//! | cubic | 2000 packets | 100 | 883 ms | 827 ms | 0 | 0 |
//! | reno | 2000 packets | 100 | 968 ms | 1052 ms | 0 | 0 |
//! | bbr | 2000 packets | 60 | 25.5 ms | 27.6 ms | 0 | 0 |
//!
//! Goodputs agree within 0.2 %. In the third and fourth rows the send buffer is the limit. Under
//! random loss, Reno's goodput over 40 s is 6.5 Mbit/s with 1 % (Linux: 6.3) and 1.5 Mbit/s with 10
//! % (Linux: 1.4), the mean of five seeds in the lab, and one run of Linux.
//!
//! # What is left out
//!
//! Segmentation offload is off by default: each packet has one segment ([`SenderParams::offload`]).
//! A stream has one direction, and its reverse path carries acks only; a bidirectional connection
//! takes two streams. The receiving application reads at once, so the window never closes and there
//! are no window probes. A spurious timeout is not detected before its retransmission is
//! acknowledged (no F-RTO).

pub mod apps;
pub mod congestion;
pub mod multipath;

mod buffer;
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

pub use buffer::BufferParams;
pub use delivery_rate::RateSample;
pub use receiver::{Echo, Receiver, ReceiverParams};
pub use segment::{Block, Flags, SackBlocks, Segment};
pub use sender::{Repair, Sender, SenderParams, SenderStats, SmallQueue};
