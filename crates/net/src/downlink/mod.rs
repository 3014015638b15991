//! A downlink of packets on real clocks and sockets: a server that sends at the rates of its law,
//! and clients that count packets per frame.
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
//! Packets leave one by one, each at its due time, by a kernel timer (`timerfd`). If a timer is
//! late by less than [`CATCH_UP`](freshline_core::session::downlink::ServerParams), the following
//! packets are sent more closely to catch up; if it is late by more, they are not. Segmentation
//! offload would send bursts, and the kernel's pacing (`SO_TXTIME`) needs a queueing discipline
//! that few devices have; the book documents the resulting spacing of `sendmsg`.

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
