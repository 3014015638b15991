//! A mesh of battery-powered nodes: IEEE 802.15.4, 6LoWPAN, a tree to a border router.
//!
//! ```text
//! a node's own packet ──►┐
//!                        ├─► FIFO of 15 ─► frames ─► CSMA/CA ─► parent ─► … ─► border router ─► wire
//! its children's ───────►┘                              ▲
//!                          TCP acks come down ──────────┘  the same queues, in reverse
//! ```
//!
//! | file | content |
//! |---|---|
//! | `phy` | times and sizes of the standard |
//! | `radio` | CSMA/CA, acknowledgements, retries, hidden nodes, capture |
//! | `csma` | back-offs: the standard's, and those of TinyOS's driver of the CC2420 |
//! | `adaptation` | 6LoWPAN: headers and fragments, as far as sizes go |
//! | `tree` | parents, given or by ETX |
//! | `network` | queues, forwarding, drops and their places |
//! | `saturation` | the expected throughput, by a published model |
//!
//! # What is left out
//!
//! Routing messages, beacons, duty cycles, encryption, and the time that a node's processor takes.
//! Ranges are circles. A packet whose fragments arrived only in part is dropped by its sender, and
//! is not reassembled.

mod adaptation;
mod config;
mod csma;
mod network;
pub mod phy;
mod radio;
mod saturation;
mod tree;

pub use adaptation::{Frames, HEADER};
pub use config::{LinkLoss, MeshConfig, MeshError};
pub use csma::{Backoff, Csma};
pub use network::{Delivered, Drop, DropReason, Limit, Mesh, NodeStats, Observer};
pub use radio::{Event, Outcome, Radio, RadioStats, Reach};
pub use saturation::Saturation;
pub use tree::{Hears, ROOT, Tree, TreeError};
