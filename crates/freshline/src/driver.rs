//! The parts below the handles, for applications that run sources and monitors on their own threads.
//!
//! | | |
//! |---|---|
//! | [`SourceBuilder::build`](crate::SourceBuilder::build) | a [`source::Source`] of any states: `run` it on a thread of the application, or drive it by [`Polled`] |
//! | [`MonitorBuilder::build`](crate::MonitorBuilder::build) | a [`monitor::Monitor`], to be `run` on a thread of the application |
//! | [`session`] | the protocol without sockets and clocks, for any transport: `handle_datagram`, `handle_timeout`, `poll_transmit`, `poll_timeout`, `poll_event` |
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use freshline::driver::{Polled, source::{States, sampler::Synthetic}};
//! use std::os::fd::AsFd;
//!
//! let states = States::Of(Box::new(Synthetic::new(64)));
//! let source = freshline::Source::builder("udp://127.0.0.1:3774").build(states)?;
//! let mut source = Polled::new(source)?;
//! for _ in 0..3 {
//!     let readable = source.as_fd(); // wait for this one beside those of the application
//!     # let _ = readable;
//!     source.turn(&mut ())?;
//! }
//! source.close();
//! # Ok(())
//! # }
//! ```

pub use freshline_core::session;
pub use freshline_net::source::Polled;
pub use freshline_net::{
    Refusal, Refusals, Waker, ask, clock, dial, framing, marks, quic, source, stop, via,
};
#[cfg(feature = "monitor")]
pub use freshline_net::{credentials, metrics, monitor, relay};
