//! A downlink of packets: a server that sends at the rates of its law, clients that report.
//!
//! ```text
//!  Server                                             Client
//!    │ ◄─────────────── join ────────────────────────── │ at once, then after 0.2, 0.4 … 2 s
//!    │ ──────────────── challenge ────────────────────► │ (where addresses can be forged)
//!    │ ◄─────────────── join, with the cookie ───────── │
//!  law.rate() ────────── packet, packet, … ───────────► │ counter.on_packet()
//!    │ ◄─────────────── report ──────────────────────── │ counter.report(), once per interval
//!  law.on_report()                                      │
//! ```
//!
//! Both are state machines without clock or socket, with the contract of every endpoint of
//! [`session`](crate::session). Packets to a client are sent evenly spaced. Clients report when the
//! server's clock, which packets carry, passes a multiple of the interval: so all reports cover the
//! same period, although the clients' clocks are not synchronised.
//!
//! # Untrusted peers
//!
//! - Until an address has returned a cookie, the server keeps no state of it, and answers with
//!   fewer bytes than it received.
//! - A report counts only if it contains the sending time of one of the last [`REMEMBERED`]
//!   packets: a host that does not receive the packets cannot impersonate the client, nor keep them
//!   flowing. A report must come from the address that joined; from another address it is answered
//!   by a challenge, so that packets cannot be redirected to a host that has not requested them.
//! - A session is bound to the token that began it: knowing its id is not enough to redirect its
//!   packets.
//! - Reports beyond four per interval are ignored.
//! - The output queue is bounded: one payload per client, 1024 answers, one close per client; and
//!   so are the unpolled events.
//! - A client is a station of the law. A host that joins several times gets several stations'
//!   shares; tokens control which hosts may join.

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
