//! Netlink, the kernel's protocol to configure the network: the only client in this workspace.
//!
//! ```text
//! interfaces, addresses, routes, queueing disciplines ─► Route ───┐
//! nl80211 (Wi-Fi) ─────────────────────────────────────► Generic ─┤
//! TCP and UDP sockets (sock_diag) ─────────────────────► Sockets ─┼─► Client ─► socket
//! nf_tables, NFQUEUE ─────────────────────────────────────────────┘
//! ```
//!
//! [`Client`] opens sockets, numbers requests, matches answers, waits for acks, repeats interrupted
//! dumps and limits the length of lists. `netlink-packet-core` and `netlink-packet-route` know the
//! layouts, `netlink-sys` the socket; none of their types is in a public signature here.
//!
//! # Decisions
//!
//! - **Attributes are read one by one, by number.** `netlink-packet-route` rejects a whole message
//!   because of one attribute that a newer kernel has extended, and rewrites the options of
//!   queueing disciplines that it knows. Of its parsers only those of fixed headers and statistics
//!   are used.
//! - **The bodies of nf_tables, NFQUEUE and nl80211 belong to their callers.**
//!   `netlink-packet-netfilter` 0.4 has neither NFQUEUE nor the expressions `queue` and `target`,
//!   and takes four more packages; `netlink-packet-generic` 0.5 would replace four bytes of header
//!   and one attribute.
//! - **Extended acks**: the kernel's own explanation of an error is part of [`NetlinkError`].

mod answer;
mod attributes;
mod client;
mod error;
mod generic;
mod limits;
mod reply;
mod request;
mod route;
mod sockets;

#[doc(hidden)]
pub use answer::Answer;
pub use attributes::{attributes, be_u32, find, ne_u16, ne_u32};
pub use client::{Client, Protocol, TIMEOUT};
pub use error::NetlinkError;
pub use generic::{GENERIC_HEADER, Generic};
pub use reply::{Content, MalformedReply, Reply, replies};
pub use request::{Requests, Writer, encode, flags};
pub use route::{Handle, LinkReport, LinkSettings, NextHop, Qdisc, QueueStats, Route};
pub use sockets::{Socket, SocketMemory, Sockets, TcpInfo, TcpSocket};
