//! States larger than a datagram: cut into symbols, repaired, reassembled.
//!
//! A **state** is the unit that an application puts. An **update** is one datagram of its source. A
//! state that does not fit into an update is cut into **symbols** of equal length, and each symbol
//! travels in an update of its own as a [`Part`]. The receiver delivers a state whole or not at
//! all, and the newest one wins.
//!
//! ```text
//!   source                                                         receiver
//!   ┌──────────┐   parts, in updates that the rate law paces   ┌──────────┐
//!   │ Transfer │ ────────────────────────────────────────────► │ Assembly │ ──► states
//!   └──────────┘ ◄──────────────────────────────────────────── └──────────┘
//!                   acks: which updates have been received
//! ```
//!
//! - [`Layout`]: how a state is cut. `data` symbols hold the state; `repair` symbols are made of
//!   them by a Reed-Solomon code. Any `data` symbols of either kind are enough.
//! - [`Transfer`]: one outgoing state. It knows which symbols were not sent, are in flight, lost or
//!   acknowledged. A topic has two of them: the current state and the former one, which may still
//!   need a repair.
//! - [`Assembly`]: the incoming states of one topic of one source, at most two at a time.
//! - [`Budget`]: the bytes that all assemblies of a monitor may hold together.
//! - [`Repair`]: the law that chooses the symbol that leaves next.
//! - [`schedule`]: the rule that chooses the topic whose state leaves next.
//! - [`Encoder`], [`Decoder`]: the code. A source has one encoder, a monitor one decoder.
//!
//! Everything here is without clock and socket. Parts come from the network: a receiver holds at
//! most twice the bytes that it has received, plus 8 KiB per state, and does no more work per part
//! than a copy. A complete state costs a copy of its bytes, and the decoding if repair symbols are
//! used.

mod assembly;
mod budget;
mod code;
mod half;
mod layout;
pub mod repair;
pub mod schedule;
mod transfer;

use crate::unit::Time;

pub use assembly::{Assembly, AssemblyCounters, Limits, Outcome, Refusal, Taken};
pub use budget::{Budget, Party};
pub use code::{AVAILABLE, Decoder, Encoder, max_repair, prepare};
pub use layout::{Layout, LayoutError};
pub use repair::{CurrentState, FormerState, NewerState, Params as RepairParams, Repair};
pub use transfer::{Outgoing, Transfer};

/// One symbol of a state, as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// The stream of states that the state belongs to.
    pub topic: u16,
    /// Counts the states of the topic.
    pub number: u64,
    /// When the state was sampled, on the source's clock. It is the same in all parts of a state,
    /// to the ns.
    pub generated_at: Time,
    /// How the state is cut.
    pub layout: Layout,
    /// The index of the symbol: data symbols first, then repair symbols.
    pub index: u32,
    /// The symbol, [`Layout::symbol_size`] bytes long.
    pub bytes: &'a [u8],
}
