//! The mesh: nodes that are sources and routers at once, with memory for a few packets.
//!
//! ```text
//!   a node's own segments ──► wait TXP ──►┐
//!                                          ├──► a FIFO of a few packets ──► radio ──► parent ──► … border router
//!   its children's segments ──────────────►┘
//! ```
//!
//! A node next to the border router meets short round trips and few losses, so TCP gives it several
//! times the goodput of a node six hops away. [`Dtpa`] delays a node's own segments, and only these,
//! while the node gets more than its share (Im, PhD thesis, Seoul National
//! University, 2015: TCP Performance Enhancement in Wireless Networks, chapter 4). The share that
//! every node is to have, c, is the question that the thesis leaves open: it is fixed by hand, or
//! [`Census`] finds it: the border router's children from packets overheard from it, and each other node
//! takes the target of its parent.

pub mod census;
pub mod dtpa;

pub use census::{Census, CensusParams, Heard};
pub use dtpa::{Dtpa, DtpaParams, DtpaParamsError, Share};
