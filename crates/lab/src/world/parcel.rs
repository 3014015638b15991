//! What travels through the lab.

use freshline_core::router::Packet;
use freshline_core::unit::{Bytes, Time};

/// A packet with its way.
#[derive(Debug, Clone, Copy)]
pub struct Parcel {
    /// Whose it is.
    pub flow: u32,
    /// The leg of its flow's way that it is on.
    pub leg: u32,
    /// Whether it goes to the far end or comes back.
    pub direction: Direction,
    /// When it entered this leg.
    pub since: Time,
    /// What is sent.
    pub load: Load,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the source to the far end.
    There,
    /// From the far end to the source.
    Back,
}

/// What a flow sends.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Its size on the wire, headers included.
    pub size: Bytes,
    /// What it is.
    pub body: Body,
}

/// What a parcel carries.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// State on its way to a monitor.
    Update(Update),
    /// A monitor's answer on its way back.
    Ack(Ack),
    /// A TCP segment, which its flow keeps under this number.
    Segment(u32),
    /// Cross traffic.
    Filler,
}

/// An update.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    /// Its number, from 0.
    pub seq: u64,
    /// When its state was sampled, which is when it left.
    pub generated_at: Time,
}

/// The answer to an update.
#[derive(Debug, Clone, Copy)]
pub struct Ack {
    /// The update that is answered.
    pub update: Update,
    /// When it arrived.
    pub received_at: Time,
    /// Fresh updates until then.
    pub fresh: u32,
    /// Whether this was one of them.
    pub was_fresh: bool,
}

impl Packet for Parcel {
    fn size(&self) -> Bytes {
        self.load.size
    }
}
