//! How much may be in flight: congestion control.
//!
//! | law | answers | source |
//! |---|---|---|
//! | [`FixedWindow`] | nothing: the plainest one, which defines the minimum | – |
//! | [`Reno`] | loss, by half | RFC 5681 |
//! | [`Cubic`] | loss; grows with the cube of time; HyStart | RFC 9438 |
//! | [`HTcp`] | loss; grows with the time since the last one | Leith, Shorten 2004 |
//! | [`Westwood`] | loss, down to the rate measured | Mascolo et al. 2001 |
//! | [`Vegas`] | the packets that it has queued | Brakmo, Peterson 1995 |
//! | [`Yeah`] | both | Baiocchi et al. 2007 |
//! | [`Dctcp`] | the share of marks | RFC 8257 |
//! | [`Bbr`] | models rate and round trip instead | Cardwell et al. 2016 |
//! | [`Dtpa`] | loss, by half; spreads a window over a round that makes all shares alike | Im 2015 |
//! | [`Coupled`]: LIA, OLIA | loss, of the subflows of a connection together | RFC 6356; Khalili et al. 2013 |
//!
//! Windows are counted in segments, as in Linux, and grow only while they are what limits the
//! sender. A law decides how large the window is after a loss; how the sender gets there, it
//! leaves to proportional rate reduction, unless it governs its own recovery.

mod algorithm;
mod bbr;
mod coupling;
mod cubic;
mod dctcp;
mod delay;
mod dtpa;
mod fixed;
mod htcp;
mod hystart;
mod reno;
mod round;
mod vegas;
mod westwood;
mod window;
mod yeah;

pub use algorithm::{Algorithm, ParseAlgorithmError};
pub use bbr::{Bbr, BbrParams};
pub use coupling::{Coupled, Coupling};
pub use cubic::{Cubic, CubicParams};
pub use dctcp::{Dctcp, DctcpParams};
pub use dtpa::{Dtpa, DtpaSettings};
pub use fixed::FixedWindow;
pub use htcp::{HTcp, HTcpParams};
pub use hystart::HyStartParams;
pub use reno::Reno;
pub use vegas::{Vegas, VegasParams};
pub use westwood::Westwood;
pub use yeah::{Yeah, YeahParams};

use std::fmt;

use freshline_core::mesh::{Heard, Share};
use freshline_core::unit::{BitRate, Packets, Span, Time};

use super::delivery_rate::RateSample;

/// What an ack tells.
#[derive(Debug, Clone, Copy)]
pub struct Ack {
    /// Segments delivered with it, by acknowledgement or SACK.
    pub delivered: Packets,
    /// Segments found to be lost with it.
    pub lost: Packets,
    /// Segments in flight before it.
    pub prior_in_flight: Packets,
    /// Segments in flight now.
    pub in_flight: Packets,
    /// The round trip of the newest segment delivered, where that was sent only once.
    pub rtt: Option<Span>,
    /// The least round trip of the last five minutes.
    pub min_rtt: Span,
    /// Segments delivered since the start.
    pub total_delivered: Packets,
    /// How fast the path delivers.
    pub rate: Option<RateSample>,
    /// The receiver tells of a mark (ECN echo).
    pub marked: bool,
    /// All below this offset is acknowledged.
    pub acked_to: u64,
    /// The next offset to be sent.
    pub sent_to: u64,
    /// Whether the sender is reducing the window; a law that leaves this to it must not grow.
    pub recovering: bool,
    /// Whether the window was what kept the sender from sending more.
    pub window_limited: bool,
    /// The most segments outstanding in the last window.
    pub peak: Packets,
}

/// Why the window is to be reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Segments were lost.
    Loss,
    /// A segment was lost, and a tail loss probe has repaired it.
    Probed,
    /// A queue has marked a packet.
    Mark,
}

/// The sender sends again after everything was acknowledged and there was nothing to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// For how long it sent nothing.
    pub span: Span,
    /// The retransmission timeout.
    pub rto: Span,
}

/// A congestion control law.
pub trait CongestionControl: fmt::Debug + Send {
    /// The name in reports.
    fn name(&self) -> &'static str;

    /// How many segments may be in flight, at least 1.
    fn window(&self) -> Packets;

    /// How fast to send payload at most; `None` sends whatever the window allows at once.
    fn pacing_rate(&self) -> Option<BitRate> {
        None
    }

    /// How far apart segments leave at least, from the first on; `None` if that does not matter.
    fn spacing(&self) -> Option<Span> {
        None
    }

    /// A period that the law adds to the round trip, for reports.
    fn period(&self) -> Option<Span> {
        None
    }

    /// Whether the law wants [`CongestionControl::on_heard`].
    fn listens(&self) -> bool {
        false
    }

    /// In a mesh: what each node is to get, which its node tells its children.
    fn target(&self) -> Option<Share> {
        None
    }

    /// In a mesh: what the node has heard its parent send.
    fn on_heard(&mut self, _now: Time, _heard: Heard) {}

    /// A segment leaves, for the first time or again.
    fn on_sent(&mut self, _now: Time) {}

    /// Whether the law's window holds during recovery too, in place of proportional rate
    /// reduction.
    fn governs_recovery(&self) -> bool {
        false
    }

    /// The slow-start threshold, in packets; infinite before the first loss, `None` for a law without
    /// one.
    fn ssthresh(&self) -> Option<f64> {
        None
    }

    /// Another subflow of the same connection had to wait for what this one has in flight: a law
    /// with a window halves it, and leaves its threshold alone in slow start.
    fn on_penalty(&mut self) {}

    /// An ack has come.
    fn on_ack(&mut self, now: Time, ack: &Ack);

    /// A loss or a mark, the first of a window: from here on, [`CongestionControl::window`] is
    /// what the sender goes down to.
    fn on_congestion(&mut self, now: Time, signal: Signal);

    /// The retransmission timer has struck; where it opens a recovery,
    /// [`CongestionControl::on_congestion`] came just before.
    fn on_rto(&mut self, now: Time);

    /// All that was outstanding when the recovery began is acknowledged.
    fn on_recovered(&mut self, _now: Time) {}

    /// The loss that was last answered was none: the segment had only been late (RFC 3522). The
    /// answer is taken back.
    fn on_needless(&mut self, _now: Time) {}

    /// Sending starts again after a pause, however short.
    fn on_idle(&mut self, _now: Time, _idle: Idle) {}
}
