//! A downlink of packets: a server that sends at the rates of its law, clients that report.
//!
//! ```text
//!  Server                                             Client
//!    │ ◄─────────────── join ────────────────────────── │ at once, then after 0.2, 0.4 … 2 s
//!    │ ──────────────── challenge ────────────────────► │ (where addresses can be forged)
//!    │ ◄─────────────── join, with the cookie ───────── │
//!  law.rate() ────────── packet, packet, … ───────────► │ counter.on_packet()
//!    │ ◄─────────────── report ──────────────────────── │ counter.report(), once an interval
//!  law.on_report()                                      │
//! ```
//!
//! Both are state machines without clock or socket, with the contract of every endpoint of
//! [`session`](crate::session). Packets to a client leave evenly spaced. Clients
//! report when the server's clock, which packets show, passes a multiple of the interval: so all of
//! them tell of the same time, although their clocks have nothing in common.
//!
//! # Strangers
//!
//! - Before an address has shown a cookie the server keeps nothing of it, and answers with fewer
//!   bytes than came.
//! - A report counts only if it shows when one of the last [`REMEMBERED`] packets was sent: who does
//!   not get the packets cannot speak for the client, nor keep them flowing. It comes from the
//!   address that joined; from elsewhere it is answered by a challenge, so that packets cannot be
//!   led to somebody who has not asked for them.
//! - A session stays with the token that began it: to know its name is not enough to have its
//!   packets led elsewhere.
//! - Of reports that come faster than four an interval the rest is left aside.
//! - What is held for sending is bounded: one payload per client, 1024 answers, a close per client; and
//!   so are the events that a driver has not polled.
//! - A client is a station of the law. Who joins several times gets as many stations' shares; tokens
//!   say who may join at all.

mod client;
mod datagram;
mod feed;
mod pace;
mod record;
mod server;
mod types;

pub use client::{
    Client, ClientCounters, ClientEvent, ClientIgnored, ClientMessage, ClientParams,
    ClientTransmit, ReceivedPacket, Stamp,
};
pub use datagram::ReceivedDatagram;
pub use record::{ClientKey, ClientRecord, REMEMBERED};
pub use server::{Server, ServerEvent};
pub use types::{PutError, ServerCounters, ServerIgnored, ServerParams, ServerTransmit};
