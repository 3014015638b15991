//! The mesh: nodes that are sources and routers at once, with memory for a few packets.
//!
//! ```text
//!   a node's own segments ──► wait TXP ──►┐
//!                                          ├──► a FIFO of a few packets ──► radio ──► parent ──► … border router
//!   its children's segments ──────────────►┘
//! ```
//!
//! A node next to the border router has short round trips and few losses, so TCP gives it several
//! times the goodput of a node six hops away. [`Dtpa`] delays a node's own segments, and only
//! these, while the node gets more than its share (Im, PhD thesis, Seoul National University, 2015:
//! TCP Performance Enhancement in Wireless Networks, chapter 4). The thesis leaves the value of the
//! common share c open: it is set by hand, or [`Census`] estimates it. The border router's children
//! estimate it from packets overheard from the border router, and each other node adopts the target
//! of its parent.

pub mod census;
pub mod dtpa;

pub use census::{Census, CensusParams, Heard};
pub use dtpa::{Dtpa, DtpaParams, DtpaParamsError, Share};
