//! The host's stop: which of its packets goes first.
//!
//! An upload fills the transmit queue of the host that it leaves, and other packets wait
//! behind it: those of a call or a game, and the acks that a download needs. A host can see
//! which of its packets are in no hurry, and hold those back alone.
//!
//! ```text
//!  socket ─► Outgoing ─► law ─► Band ─┬─► urgent ─┐
//!                                     └─► bulk ───┴─► strict priority ─► link     (router::Dual)
//! ```
//!
//! | law | bulk is | from |
//! |---|---|---|
//! | [`BandLaw::Single`] | nothing | the minimum: one queue for all |
//! | [`Sorpc`] | data from a send buffer that is half full or more | the thesis |
//!
//! (The thesis: Im, PhD thesis, Seoul National University, 2015: TCP Performance Enhancement in Wireless
//! Networks, chapter 3.)

mod config;
mod error;
mod sorpc;

pub use config::BandLawConfig;
pub use error::BandLawError;
pub use sorpc::{Sorpc, SorpcParams};

use crate::unit::Bytes;

/// How soon a packet leaves its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Band {
    /// Before all others (FIFO0 in 003 Figure 3.5).
    #[default]
    Urgent,
    /// When nothing urgent waits (FIFO1).
    Bulk,
}

impl Band {
    /// The name in reports and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::Bulk => "bulk",
        }
    }
}

/// The send buffer of a stream as one of its packets leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendBuffer {
    /// What is in it: written and not yet acknowledged, whether sent or not. Qs(t) in 003.
    pub queued: Bytes,
    /// What it holds now, in the same bytes: both of payload, or both of memory. sndbuf(t) in 003.
    pub size: Bytes,
}

/// A packet that leaves its host, as far as a law looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outgoing {
    /// A TCP segment that is no mere ack: payload, sent for the first time or again, or a SYN or FIN,
    /// which is not to overtake payload.
    Data(SendBuffer),
    /// A TCP segment that only acknowledges.
    Ack,
    /// UDP and all else.
    Other,
}

/// Chooses the band of each packet, from what a host knows of it. It remembers nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BandLaw {
    /// Nothing goes before anything else, as in a host that classifies nothing.
    Single,
    /// Data from a send buffer that is well filled waits.
    Sorpc(Sorpc),
}

impl BandLaw {
    /// The band of a packet that leaves now.
    pub fn band(self, outgoing: Outgoing) -> Band {
        match self {
            Self::Single => Band::Urgent,
            Self::Sorpc(law) => law.band(outgoing),
        }
    }
}
