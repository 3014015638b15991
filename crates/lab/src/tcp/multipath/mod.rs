//! A connection over several paths: TCP subflows with one stream over all, as in MPTCP (RFC 8684).
//!
//! ```text
//!                                     ┌─► subflow: sender ─► … ─► receiver ─┐
//!   application ─► buffer ─► scheduler┤                                     ├─► reassembly ─► delivered
//!        ▲            ▲               └─► subflow: sender ─► … ─► receiver ─┘        │
//!        │            └── data ack, one window over all ◄──── with each ack ◄────────┘
//!        └ again: what blocks the window (opportunistic), what a subflow timed out on (reinjection)
//! ```
//!
//! Subflows are the lab's own [`Sender`](super::Sender)s and [`Receiver`](super::Receiver)s,
//! schedulers those of [`freshline_core::path`]. Data is handed to a subflow segment by segment
//! when its window has room, so that unassigned data can still take any path.
//!
//! # What is as in MPTCP for Linux (v0.9x)
//!
//! - The first subflow opens the connection, the others join when it is open.
//! - The receive window is one, counted from the data ack; a subflow delivers to it in its own order.
//! - Opportunistic retransmission and penalisation: where the window, or the send buffer, keeps a
//!   subflow from sending, it takes the segment that blocks all, if another one's round trip is
//!   more than four times as long or its window is at most 4; the window of a slower subflow that
//!   has this segment in flight is halved, at most once per round trip of the waiting one. (Raiciu
//!   et al., How Hard Can It Be? Designing and Implementing a Deployable Multipath TCP, NSDI 2012,
//!   section 4.2.)
//! - Reinjection: when a subflow's timer expires, all segments that it has in flight are sent on
//!   other subflows too, and it gets no new data until it has delivered something.
//!
//! # Where sources are silent
//!
//! - **Device queue.** n is the number of packets that are queued or being sent at the first hop or
//!   the cell's station, from any sender. The device rate is the rate under load, measured over 10
//!   ms of it: long enough for a few packets of the slowest Wi-Fi, and short compared with a round
//!   trip under load.
//! - **DSS options** make a full packet of 1428 bytes of payload; acks carry 8 bytes more
//!   (RFC 8684 section 3.3, 4-byte numbers, no checksum).

mod handler;
mod independent;
mod receiver;
mod sender;
mod subflow;

pub use receiver::{MultipathReceiver, Reordering};
pub use sender::{MultipathParams, MultipathSender, MultipathStats};
pub use subflow::Subflow;

use freshline_core::unit::Bytes;

use super::segment::{Block, Segment};

/// The DSS option with data ack and mapping, padded.
const DSS_MAPPING: Bytes = Bytes::new(20);
/// IPv4 and TCP without options.
const HEADERS: u64 = 40;
/// The maximum size of options in a TCP header (RFC 9293 section 3.1).
const MAX_OPTIONS: Bytes = Bytes::new(40);
/// The DSS option with a data ack alone.
const DSS_ACK: Bytes = Bytes::new(8);

/// The position of a segment's payload in the whole stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The offset of its first byte in the subflow.
    pub start: u64,
    /// Its bytes in the whole stream.
    pub data: Block,
}

impl Mapping {
    /// The subflow's offset after it.
    fn end(&self) -> u64 {
        self.start + self.data.end - self.data.start
    }
}

/// The acknowledgement of the whole stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataAck {
    /// All data below this offset has arrived.
    pub acked_to: u64,
    /// Where the receive window ends.
    pub window_end: u64,
}

/// A segment of a subflow with its DSS option for the whole stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Carried {
    /// The subflow's segment.
    pub segment: Segment,
    /// Present in a segment with payload.
    pub mapping: Option<Mapping>,
    /// Present in a segment from the receiver.
    pub data_ack: Option<DataAck>,
}

impl Carried {
    /// The IPv4 packet with the DSS option.
    pub fn wire_size(&self) -> Bytes {
        let option = match (self.mapping, self.data_ack) {
            (Some(_), _) => DSS_MAPPING,
            (None, Some(_)) => DSS_ACK,
            (None, None) => Bytes::ZERO,
        };
        let without = self.segment.wire_size();
        let bare = Bytes::new(HEADERS + u64::from(self.segment.len));
        // Where SACK blocks leave no room, a real stack omits one of them.
        (without + option).min((bare + MAX_OPTIONS).max(without))
    }
}
