//! The host's stop: the choice of the packet that leaves first.
//!
//! An upload fills the transmit queue of its host, and other packets are queued behind it: those of
//! a call or a game, and the acks of a download. A host can see which of its packets are not
//! urgent, and delay only those.
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
//! The thesis is Im, PhD thesis, Seoul National University, 2015: TCP Performance Enhancement in
//! Wireless Networks, chapter 3.

mod config;
mod error;
mod sorpc;

pub use config::BandLawConfig;
pub use error::BandLawError;
pub use sorpc::{Sorpc, SorpcParams};

use crate::unit::Bytes;

/// The priority of a packet on its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Band {
    /// Before all others (FIFO0 in Figure 3.5 of the thesis).
    #[default]
    Urgent,
    /// Only if no urgent packet is queued (FIFO1).
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
    /// The bytes in it: written and not yet acknowledged, whether sent or not. Qs(t) in the thesis.
    pub queued: Bytes,
    /// Its current capacity, in the same unit: both of payload, or both of memory. sndbuf(t) in the
    /// thesis.
    pub size: Bytes,
}

/// The properties of a packet leaving its host that a law uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outgoing {
    /// A TCP segment that is more than an ack: payload, sent for the first time or again, or a SYN
    /// or FIN, which must not overtake payload.
    Data(SendBuffer),
    /// A TCP segment that is only an ack.
    Ack,
    /// UDP and all else.
    Other,
}

/// Chooses the band of each packet, from the host's information about it. It has no state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BandLaw {
    /// No priorities, as on a host that does not classify packets.
    Single,
    /// Data from a well-filled send buffer is bulk.
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
