//! Congestion control: laws that limit the segments in flight.
//!
//! | law | answers | source |
//! |---|---|---|
//! | [`FixedWindow`] | nothing: constant; the simplest law | – |
//! | [`Reno`] | loss: halves the window | RFC 5681 |
//! | [`Cubic`] | loss; grows with the cube of time; HyStart | RFC 9438 |
//! | [`HTcp`] | loss; grows with the time since the last one | Leith, Shorten 2004 |
//! | [`Westwood`] | loss: reduces the window to the measured rate | Mascolo et al. 2001 |
//! | [`Vegas`] | the packets that it has queued | Brakmo, Peterson 1995 |
//! | [`Yeah`] | loss and queued packets | Baiocchi et al. 2007 |
//! | [`Dctcp`] | the share of marks | RFC 8257 |
//! | [`Bbr`] | a model of rate and round trip | Cardwell et al. 2016 |
//! | [`Dtpa`] | loss: halves the window, which is paced for equal shares | Im 2015 |
//! | [`Coupled`]: LIA, OLIA | loss; coupled growth of subflows | RFC 6356; Khalili et al. 2013 |
//!
//! Windows are counted in segments, as in Linux, and grow only while the sender is limited by them.
//! A law decides the size of the window after a loss; unless the law governs its own recovery, the
//! sender approaches that size by proportional rate reduction.

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

/// The information in an ack.
#[derive(Debug, Clone, Copy)]
pub struct Ack {
    /// Segments that it delivers, by acknowledgement or SACK.
    pub delivered: Packets,
    /// Segments that it shows to be lost.
    pub lost: Packets,
    /// Segments in flight before it.
    pub prior_in_flight: Packets,
    /// Segments in flight now.
    pub in_flight: Packets,
    /// The round trip of the newest segment delivered, if that was sent only once.
    pub rtt: Option<Span>,
    /// The minimum round trip of the last five minutes.
    pub min_rtt: Span,
    /// Segments delivered since the start.
    pub total_delivered: Packets,
    /// The delivery rate of the path.
    pub rate: Option<RateSample>,
    /// The receiver reports a mark (ECN echo).
    pub marked: bool,
    /// All data below this offset is acknowledged.
    pub acked_to: u64,
    /// The next offset to be sent.
    pub sent_to: u64,
    /// Whether the sender is reducing the window. A law that leaves this to the sender must not
    /// grow meanwhile.
    pub recovering: bool,
    /// Whether the sender is limited by the window.
    pub window_limited: bool,
    /// The maximum number of segments outstanding in the last window.
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

/// The sender resumes after everything was acknowledged and there was nothing to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// The duration of the pause.
    pub span: Span,
    /// The retransmission timeout.
    pub rto: Span,
}

/// A congestion control law.
pub trait CongestionControl: fmt::Debug + Send {
    /// The name in reports.
    fn name(&self) -> &'static str;

    /// The number of segments that may be in flight, at least 1.
    fn window(&self) -> Packets;

    /// The maximum payload rate; with `None`, the sender sends whatever the window allows at once.
    fn pacing_rate(&self) -> Option<BitRate> {
        None
    }

    /// The minimum spacing between segments, from the first on; `None` if the law does not space
    /// them.
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

    /// In a mesh: the share that each node is to get, which a node announces to its children.
    fn target(&self) -> Option<Share> {
        None
    }

    /// In a mesh: a transmission of the parent that the node has overheard.
    fn on_heard(&mut self, _now: Time, _heard: Heard) {}

    /// A segment leaves, as an original or a retransmission.
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

    /// Another subflow of the same connection was blocked by the segments that this one has in
    /// flight. A law with a window halves it, and leaves its threshold unchanged in slow start.
    fn on_penalty(&mut self) {}

    /// An ack has arrived.
    fn on_ack(&mut self, now: Time, ack: &Ack);

    /// A loss or a mark, the first within a window. From here on, [`CongestionControl::window`] is
    /// the target to which the sender reduces its window.
    fn on_congestion(&mut self, now: Time, signal: Signal);

    /// The retransmission timer has expired. If it opens a recovery,
    /// [`CongestionControl::on_congestion`] came just before.
    fn on_rto(&mut self, now: Time);

    /// All segments outstanding at the start of the recovery are acknowledged.
    fn on_recovered(&mut self, _now: Time) {}

    /// The last loss was spurious: the segment had only been late (RFC 3522). Undoes the response.
    fn on_needless(&mut self, _now: Time) {}

    /// Sending resumes after a pause, however short.
    fn on_idle(&mut self, _now: Time, _idle: Idle) {}
}
