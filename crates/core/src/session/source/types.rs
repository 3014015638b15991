//! A source's settings, events, datagrams and counters.

use alloc::string::String;
use alloc::vec::Vec;

use super::TopicId;
use super::states::Need;
use crate::dscp::Dscp;
use crate::path::PathId;
use crate::source::Limits;
use crate::unit::Span;
use crate::wire::{self, AckMark, CloseReason};

/// Settings of [`Source`](super::Source).
#[derive(Debug, Clone)]
pub struct SourceParams {
    /// A name for people and metrics, at most [`Opening::MAX_NAME`](wire::Opening::MAX_NAME) bytes.
    pub name: String,
    /// A token sent to the monitor in the opening, at most
    /// [`Opening::MAX_TOKEN`](wire::Opening::MAX_TOKEN) bytes.
    pub token: Vec<u8>,
    /// The wait after the first opening without an answer. 200 ms: longer than nearly all round
    /// trips, and short for a person.
    pub first_wait: Span,
    /// Limits on sending, from the first packet on. Openings are sent at most at the maximum rate,
    /// independent of the monitor's answers, or once per [`SourceParams::max_wait`] if that is
    /// faster; without a maximum rate, at the ceiling of
    /// [`RateBounds`](crate::source::RateBounds::default).
    pub limits: Limits,
    /// The maximum wait between openings; a monitor that comes back is found within 1.25 times
    /// this. 2 s: one small packet in this time is a negligible load.
    pub max_wait: Span,
    /// Without an ack for this long, and for [`SourceParams::silence_rounds`] round trips and
    /// periods of the rate (or of keep-alives, if shorter), the session is reopened.
    pub silence: Span,
    /// See [`SourceParams::silence`]. 8: at 10 % loss in each direction, one false alarm in half a
    /// million updates.
    pub silence_rounds: u32,
    /// The maximum interval between updates while the session is open; the last state is repeated
    /// if there is no newer one. 20 s: a third of the time after which monitors forget a source by
    /// default, so two in a row may be lost.
    pub keep_alive: Span,
    /// Whether a state that has not changed since the monitor acknowledged it may be left out,
    /// except in keep-alives.
    pub on_change: bool,
    /// The code point of updates with a whole state while the session is open. Parts of states,
    /// openings and closes are never marked, so that a router that replaces marked packets by newer
    /// ones does not take them.
    pub dscp: Dscp,
    /// The code point requested for acks; if unset, the monitor decides.
    pub ack_mark: Option<AckMark>,
    /// The longest datagram that the transport carries, in bytes. 65,507: UDP over IPv4.
    pub max_datagram: usize,
    /// The longest state, in bytes; one that does not fit into a datagram takes several. 8 MiB: an
    /// uncompressed image of 1920 by 1080 pixels.
    pub max_state: usize,
    /// Whether repair symbols may follow the symbols of a state in several updates; a receiver
    /// without the code cannot use them.
    pub repair: bool,
    /// Whether updates ask for states of the return direction, as those of a
    /// [`Dialer`](crate::session::Dialer) that receives.
    pub wants_return: bool,
    /// Whether acks are measured for [`Source::age`](super::Source::age), which takes a
    /// considerable part of the processing time of an ack. No decision of the source depends on it.
    pub measure_age: bool,
}

impl Default for SourceParams {
    fn default() -> Self {
        Self {
            name: String::new(),
            token: Vec::new(),
            first_wait: Span::from_millis(200),
            limits: Limits::NONE,
            max_wait: Span::from_secs(2),
            silence: Span::from_secs(1),
            silence_rounds: 8,
            keep_alive: Span::from_secs(20),
            on_change: false,
            dscp: Dscp::DEFAULT,
            ack_mark: None,
            max_datagram: 65_507,
            max_state: 8 << 20,
            repair: true,
            wants_return: false,
            measure_age: true,
        }
    }
}

/// How a state is cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// The size of a symbol in bytes.
    pub(super) symbol_len: u16,
    /// Whether there may be repair symbols.
    pub(super) has_repair: bool,
}

/// A datagram that a source has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The path on which to send it.
    pub path: PathId,
    /// Its length: it is at the front of the buffer.
    pub len: usize,
    /// Its code point.
    pub dscp: Dscp,
    /// The number of the update in it; `None` for the close.
    pub seq: Option<u64>,
    /// Whether the update was already sent on another path.
    pub is_copy: bool,
}

/// Whether a path can carry datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportState {
    /// It is down: its connection or its interface is gone.
    Down,
    /// Its connection is being established. While no path is ready and one is connecting, openings
    /// are held back.
    Connecting,
    /// It can carry datagrams.
    Ready,
}

/// Whether the monitor is known to receive the source's datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Not yet, or no longer: openings are sent, `attempts` so far.
    Opening {
        /// Openings sent since the monitor's last answer.
        attempts: u32,
    },
    /// The monitor answers.
    Open,
}

/// An event, or a request to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceEvent {
    /// An update is due: answer with [`Source::put`](super::Source::put), now or later.
    StateWanted(Need),
    /// An opening is due: renew transports first, as its answer arrives at the socket from which it
    /// was sent.
    RenewTransports {
        /// Whether to renew all transports; otherwise only those down.
        all: bool,
    },
    /// The first ack: the session is open.
    Opened,
    /// A fresh ack with its round trip, without the time that the monitor held the update.
    Acked {
        /// Round trip of the update and its ack.
        rtt: Span,
    },
    /// The monitor does not know the session and requires a cookie.
    Challenged,
    /// The monitor ended or refused the session; openings continue at a low rate.
    Closed(CloseReason),
    /// No ack for too long; openings are sent.
    Silent,
    /// The application at the monitor has received more records of a topic:
    /// [`Source::records_done`](super::Source::records_done).
    RecordsDone {
        /// The topic.
        topic: TopicId,
    },
}

/// Why a datagram was ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Not a message of this protocol.
    #[error("not a message: {0}")]
    Unreadable(#[from] wire::ParseError),
    /// A message of another session, on a path that is down, or of a kind that only sources send.
    #[error("not meant for this session")]
    Misplaced,
    /// An ack of an update that was never sent, or not at that time.
    #[error("an ack of an update that was never sent")]
    NeverSent,
    /// An ack that is not fresher than an earlier one, or of an update that arrived after a fresher
    /// one.
    #[error("an ack that came after a fresher one")]
    Late,
}

/// The counters of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceCounters {
    /// Updates handed to the transport.
    pub sent: u64,
    /// Payload bytes of these.
    pub payload_bytes: u64,
    /// Updates that asked for an ack.
    pub ack_requests: u64,
    /// Fresh acks.
    pub acked: u64,
    /// Acks that arrived after a fresher one, or twice.
    pub late_acks: u64,
    /// Datagrams ignored for other reasons.
    pub ignored: u64,
    /// Updates that a newer one replaced before they left the host.
    pub replaced: u64,
    /// Updates with a part of a state.
    pub parts: u64,
    /// Updates with a part that repeats a symbol or is for repair.
    pub repair_parts: u64,
    /// States in several updates that are complete at the monitor.
    pub large_states: u64,
    /// States in several updates that a newer one replaced before they were complete.
    pub abandoned_states: u64,
    /// Times the session was opened.
    pub opened: u64,
    /// Unchanged states that were left out.
    pub unchanged: u64,
    /// States that were longer than [`Source::max_state`](super::Source::max_state).
    pub too_large: u64,
    /// Bytes sent, with all headers, as far as the driver reports them.
    pub wire_bytes: u64,
    /// Payload bytes of updates known to have arrived fresh at the monitor; an update without its
    /// own ack counts with the length of the next acknowledged one.
    pub delivered_bytes: u64,
    /// Sum of the round trips of fresh acks.
    pub rtt_sum: Span,
    /// The minimum of these round trips.
    pub rtt_min: Option<Span>,
}

impl SourceCounters {
    /// Mean round trip, once there was an ack.
    pub fn rtt_mean(&self) -> Option<Span> {
        (self.acked > 0).then(|| self.rtt_sum / self.acked)
    }
}
