//! The router's stop: the choice of the next packet, and of packets to drop.
//!
//! A queueing discipline ([`Qdisc`]) holds packets until a link, or a shaper in its place, asks for
//! the next one. [`Fifo`] is the simplest one. [`Ifil`] keeps the newest packet of each flow, and
//! [`Ifc`] shares a link between [`Ifil`] and other traffic.
//!
//! Each packet that is not sent is returned through the `drops` sink with the reason, when the
//! discipline drops it: on arrival (a full queue, or an AQM that finds the queue too long) or on
//! departure (an AQM that finds the packet too old).

pub mod analysis;
mod checksum;
mod codel;
mod config;
mod discipline;
mod drr;
mod dual;
mod error;
mod fifo;
mod flow_hash;
mod fq_codel;
mod header;
mod hold;
mod ifc;
mod ifil;
mod ifil_hosts;
mod ip;
mod lifo;
mod limit;
mod matching;
mod packet_lists;
mod recent;
mod red;
mod report;
mod ring;
mod stream;
mod waiting;

pub use checksum::complete_checksum;
pub use codel::{Codel, Params as CodelParams};
#[cfg(feature = "wlan")]
pub(crate) use codel::{Control as CodelControl, Law as CodelLaw};
pub use config::{DualConfig, IfcConfig, ParseQdiscError, QdiscConfig};
pub use discipline::Discipline;
pub use drr::{Drr, Params as DrrParams};
pub use dual::Dual;
pub use error::QdiscError;
pub use fifo::Fifo;
pub use fq_codel::{FqCodel, Params as FqCodelParams};
pub use header::{Ecn, FlowKey, Header};
pub use hold::{Hold, Params as HoldParams};
pub use ifc::{
    AnyScheduler, AoiShare, AoiShareError, Class, Classifier, Credit, Decision, Guard, Ifc,
    Irregularity, ParseClassifierError, Reason, Rule, Scheduler, SchedulerParams, Sdm, SdmParams,
    Tdm, TdmParams, classify,
};
pub use ifil::{Ifil, Isolation, Params as IfilParams};
pub use ifil_hosts::IfilHosts;
pub use ip::mark_congestion;
pub use lifo::Lifo;
pub use limit::{Limit, ParseLimitError};
pub use matching::{DscpSet, Ends, Literal, Match, ParseMatchError, Prefix, Test};
pub use recent::RecentRate;
pub use red::{Params as RedParams, Red};
pub use report::{
    AccountReport, BacklogReport, ClassReport, FlowReport, KernelDropsReport, RouterReport,
    UnshapedReport,
};
pub use ring::Ring;
pub use stream::StreamProtocol;

use crate::unit::{Bytes, Packets, Span, Time};

/// The properties of a packet that queues and links use.
pub trait Packet {
    /// The size that counts against rates and limits: all of the packet as it is on the wire,
    /// headers included, and so never zero.
    fn size(&self) -> Bytes;

    /// The number of packets on the wire, of which [`Packet::size`] is the sum: above one for a
    /// super-packet, which only a link that keeps packets together may carry whole
    /// ([`HopConfig::keeps_together`](crate::link::HopConfig::keeps_together)).
    #[inline]
    fn packets(&self) -> Packets {
        Packets::new(1)
    }

    /// Its header. All packets without one are one flow, which is not marked.
    fn header(&self) -> Header {
        Header::default()
    }

    /// Its class, if it is known already ([`Ifc::classify`]); otherwise a queue with classes
    /// classifies it.
    fn class(&self) -> Option<Class> {
        None
    }

    /// Marks it as having met congestion, if its sender supports ECN (RFC 3168 section 5). Returns
    /// whether it is marked now.
    fn mark(&mut self) -> bool {
        false
    }
}

/// A dropped packet, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drop<P> {
    /// The packet, handed back to its owner.
    pub packet: P,
    /// Why it was dropped.
    pub reason: DropReason,
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// It is larger than the link's maximum.
    TooBig,
    /// It met a queue at its limit.
    QueueFull,
    /// A newer packet of its flow took its place in the queue.
    Replaced,
    /// An AQM dropped it to signal congestion to its sender.
    Congestion,
    /// The link lost it after it had been sent.
    Loss,
    /// More packets were in flight on the link than the emulation holds: see [`crate::link`],
    /// "Memory".
    LineFull,
    /// It was queued for a shared medium longer than that queue's maximum.
    Lifetime,
    /// All transmissions on a shared medium failed, up to the sender's retry limit.
    RetryLimit,
}

impl DropReason {
    /// Every reason, in the order of a packet's path.
    pub const ALL: [Self; 8] = [
        Self::TooBig,
        Self::QueueFull,
        Self::Replaced,
        Self::Congestion,
        Self::Loss,
        Self::LineFull,
        Self::Lifetime,
        Self::RetryLimit,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooBig => "too_big",
            Self::QueueFull => "queue_full",
            Self::Replaced => "replaced",
            Self::Congestion => "congestion",
            Self::Loss => "loss",
            Self::LineFull => "line_full",
            Self::Lifetime => "lifetime",
            Self::RetryLimit => "retry_limit",
        }
    }
}

/// A packet that leaves a queue to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dequeued<P> {
    /// The packet.
    pub packet: P,
    /// How long it was queued, without its own transmission.
    pub sojourn: Span,
}

/// The length of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// How many packets.
    pub packets: Packets,
    /// Their sizes together.
    pub bytes: Bytes,
}

/// Takes the packets that a discipline drops.
pub type Drops<'a, P> = dyn FnMut(Drop<P>) + 'a;

/// A queueing discipline.
///
/// `now` never goes back from one call to the next. Once a queue has reached its maximum backlog it
/// allocates no more.
pub trait Qdisc<P: Packet> {
    /// Takes a packet. It, or queued packets in its favour, may be dropped.
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut Drops<'_, P>);

    /// The next packet to send, or `None` if none may leave now. May drop packets before it.
    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<Dequeued<P>>;

    /// When to ask again after [`Qdisc::dequeue`] returned `None` although packets are queued.
    /// `None` for a work-conserving discipline, which never delays packets.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// The current queue length.
    fn backlog(&self) -> Backlog;

    /// Calls `see` with each queued packet: those of one queue in the order of their arrival, one
    /// queue after the other. A discipline that cannot list its packets calls it with none, the
    /// default.
    fn each_queued(&self, _see: &mut dyn FnMut(&P)) {}

    /// How many packets it has marked ([`Packet::mark`]) since its start, instead of dropping them.
    fn marked(&self) -> Packets {
        Packets::ZERO
    }
}
