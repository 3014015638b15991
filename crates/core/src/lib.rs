//! Freshline's control laws: the decisions at each stop of an update's journey that determine its
//! age on arrival.
//!
//! ```text
//! source ──► host ──► path ──► link ──► router ──► wlan ──► receiver
//!    ▲                                                          │
//!    └──────────────── feedback: acks and reports ──────────────┘
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`unit`](mod@unit) | time, rates and sizes as types |
//! | [`dscp`] | the code point in a packet's header, which names its class |
//! | [`age`] | the age of the information at the receiver: the measure of all laws |
//! | [`wire`] | the messages of the protocol, byte by byte |
//! | [`source`] | the first stop: when to generate the next update (ACP+, ACP, Lazy, Tenth, fixed) |
//! | [`host`] | which of a host's packets goes first (SORPC, the dual transmit queue) |
//! | [`path`] | which of several paths a packet takes (QAware, freshest, and others) |
//! | [`link`] | the effect of a hop on a packet: queue, rate, delay, jitter, loss |
//! | [`router`] | the queue of a hop: order and drops |
//! | [`wlan`] | the rate of a sender that avoids queueing in front of Wi-Fi |
//! | [`receiver`] | the last stop: the amount of data in flight (RTAC, DRWA, auto-tuning) |
//! | [`mesh`] | all stops at once, for nodes that forward for others (DTPA) |
//! | [`session`] | the endpoints' protocol: sessions, cookies, probes, acks, expiry |
//! | [`state`] | states larger than a datagram: cut into symbols, repaired, reassembled |
//!
//! # The contract
//!
//! Everything here is a pure state machine. It reads no clock and opens no socket, does not
//! allocate in hot paths, and draws random numbers only from a generator that is passed in. Inputs
//! are `on_*` methods, each with `now`, which never goes back; outputs are getters. So the same
//! struct runs over real sockets (`freshline-net`) and in virtual time, and this is all that a
//! driver does:
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
//! The file of a law has this order: its purpose and the paper, its `Params` with the reason for
//! each constant, its state, inputs, getters, private steps, tests.
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
