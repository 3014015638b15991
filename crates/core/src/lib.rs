//! Freshline's control laws: what decides, at each stop of an update's journey, how fresh it
//! arrives.
//!
//! ```text
//! source ──► host ──► path ──► link ──► router ──► wlan ──► receiver
//!    ▲                                                          │
//!    └──────────────── feedback: acks and reports ──────────────┘
//! ```
//!
//! | module | what is there |
//! |---|---|
//! | [`unit`](mod@unit) | time, rates and sizes as types |
//! | [`dscp`] | the code point in a packet's header, which names its class |
//! | [`age`] | how old is what the far end knows: the measure of everything else |
//! | [`wire`] | the messages of the protocol, byte by byte |
//! | [`source`] | the first stop: when to generate the next update (ACP+, ACP, Lazy, fixed) |
//! | [`host`] | which of a host's packets goes first (SORPC, the dual transmit queue) |
//! | [`path`] | which of several paths a packet takes (QAware, freshest, and others) |
//! | [`link`] | what a hop does to a packet: queue, rate, delay, jitter, loss |
//! | [`router`] | what waits in a hop, and what is dropped |
//! | [`wlan`] | how fast a sender may be without queueing in front of Wi-Fi |
//! | [`receiver`] | the last stop: how much may be in flight (RTAC, DRWA, auto-tuning) |
//! | [`mesh`] | all stops at once, for nodes that forward for others (DTPA) |
//! | [`session`] | the endpoints' protocol: sessions, cookies, probes, acks, expiry |
//! | [`state`] | states larger than a datagram: cut into symbols, repaired, put together |
//!
//! # The contract
//!
//! Everything here is a pure state machine. It reads no clock and opens no socket, allocates in
//! no hot path, and draws random numbers only from a generator that it was handed. What has
//! happened goes in through `on_*`, each with `now`, which never goes back; what it wants next
//! comes out of getters. So the same struct runs over real sockets (`freshline-net`) and in
//! virtual time, and this is all that a driver does:
//!
//! ```
//! use freshline_core::source::{Ack, Lazy, LazyParams, RateLaw};
//! use freshline_core::unit::{Span, Time};
//!
//! // A path on which every update arrives after 10 ms, and its ack 10 ms later.
//! let mut law = Lazy::new(LazyParams::default());
//! let mut now = Time::ZERO;
//! for seq in 0..100 {
//!     // Sleep until the law wants an update; sample, and send.
//!     now = now.max(law.next_update_at().expect("no ack is missing"));
//!     let sent_at = now;
//!     law.on_sent(now, seq);
//!     // The ack comes.
//!     now += Span::from_millis(20);
//!     let received_at = sent_at + Span::from_millis(10);
//!     let fresh = seq as u32 + 1;
//!     let (hold, len, stale) = (Span::ZERO, 100, 0);
//!     let ack = Ack { seq, generated_at: sent_at, sent_at, len, hold, received_at, fresh, stale };
//!     law.on_ack(now, &ack);
//! }
//! assert_eq!(law.rate().period(), Span::from_millis(20), "one update a round trip");
//! ```
//!
//! A law's file reads in this order: what it does and from which paper, its `Params` with the
//! reason of each constant, its state, inputs, getters, private steps, tests.
#![no_std]

extern crate alloc;

pub mod age;
mod buckets;
pub mod dscp;
#[cfg(feature = "router")]
pub mod host;
#[cfg(feature = "wlan")]
pub mod link;
pub mod mesh;
pub mod path;
pub mod pattern;
#[cfg(feature = "serde")]
mod reading;
pub mod receiver;
#[cfg(feature = "router")]
pub mod router;
pub mod session;
pub mod source;
pub mod state;
pub mod unit;
pub mod wire;
#[cfg(feature = "wlan")]
pub mod wlan;
