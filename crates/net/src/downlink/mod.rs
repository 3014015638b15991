//! A downlink of packets on real clocks and sockets: a server that sends at the rates of its law, and
//! clients that count packets a frame.
//!
//! ```text
//!  payloads ─► session::downlink::Server ─► carrier (UDP or QUIC) ─► access point ─►┐
//!                   ▲ when and how fast                                            │
//!                   └────────── reports ◄── session::downlink::Client ◄── stamps ◄─┤
//!                                                            └──────── capture ◄─┘
//! ```
//!
//! All protocol logic is in [`freshline_core::session::downlink`]. An endpoint is one thread, one
//! `mio` poll, one timer.
//!
//! # Pacing
//!
//! Packets leave one by one, each when it is due, by a timer of the kernel's (`timerfd`). A timer that
//! is late by less than [`CATCH_UP`](freshline_core::session::downlink::ServerParams) is made up by
//! packets that follow closely, and by more is not. Segmentation offload would send bursts, and the
//! kernel's pacing (`SO_TXTIME`) needs a queueing discipline that few devices have; what `sendmsg`
//! makes of the spacing stands in the book.

mod air;
mod client;
mod clients;
pub mod metrics;
pub mod payload;
mod rate;
mod report;
mod server;
mod stamps;

pub use air::{CaptureReport, CaptureTrouble};
pub use client::{Client, ClientConfig, ClientError, ClientWatch, Event, Received};
pub use rate::SharedRate;
pub use report::{ClientReport, ClientStatus, ServerReport};
pub use server::{Server, ServerConfig, ServerError};
pub use stamps::KernelTime;
