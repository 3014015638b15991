//! The parts of a cell, its inputs and its outputs.

use alloc::vec::Vec;

use super::category::{Access, Category};
use super::channel::Channel;
use super::frame::{Delivery, Framing, Received};
use super::front::Queues;
use super::mode::Mode;
use super::protection::Reservation;
use super::rate::RateChoice;
use super::rules::Rules;
use super::timing::Timing;
use crate::unit::{Span, Time};

/// A packet for one hop over the air.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmission<P> {
    /// The station that sends it.
    pub from: u32,
    /// The station that receives it, another one.
    pub to: u32,
    /// The category in which it contends, if the cell has categories.
    pub category: Category,
    /// The packet.
    pub packet: P,
}

/// A packet that arrived over the air.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered<P> {
    /// When it arrived, which is before `now` if the driver is late.
    pub at: Time,
    /// The station that sent it.
    pub from: u32,
    /// The station that received it.
    pub to: u32,
    /// The frame that it came in. It ends after `at` if more MPDUs follow in it, and ended before
    /// `at` if the packet was held back behind a missing one.
    pub frame: Received,
    /// The packet.
    pub packet: P,
}

/// The parts of a cell.
#[derive(Debug)]
pub struct CellParts {
    /// How many stations there are.
    pub stations: u32,
    /// The times between frames.
    pub timing: Timing,
    /// The frames.
    pub framing: Framing,
    /// The modes that stations choose from, from slow to fast; never empty.
    pub modes: Vec<Mode>,
    /// Parameters of contention.
    pub access: Access,
    /// Rules of contention.
    pub rules: Rules,
    /// How frames are protected, if they are.
    pub protection: Option<Reservation>,
    /// The channel between the stations.
    pub channel: Channel,
    /// How stations choose among the modes.
    pub rate: RateChoice,
    /// The queues of the stations.
    pub queues: Queues,
    /// The longest time that a packet may stay in a drop-tail queue.
    pub lifetime: Span,
    /// Whether CoDel drops in drop-tail queues.
    pub codel: bool,
    /// When packets of an A-MPDU arrive.
    pub delivery: Delivery,
}
