//! The sender of a stream.
//!
//! ```text
//!            acknowledge.rs                                transmit.rs
//! ack ─► scoreboard ─► RACK ─► recovery ─► law ─► window ─► lost first, then new ─► segment
//!            │                                      ▲
//!        round trips, delivery rate      timers.rs ─┘ timeout, tail probe
//! ```

mod acknowledge;
mod offload;
mod small_queue;
mod timers;
mod transmit;

use freshline_core::host::SendBuffer;
use freshline_core::mesh::Heard;
use freshline_core::path::Acked;
use freshline_core::unit::{Bytes, Packets, Span, Time};

use super::buffer::BufferParams;
use super::congestion::CongestionControl;
use super::delivery_rate::DeliveryRate;
use super::pacer::Pacer;
use super::rack::Rack;
use super::recovery::Episode;
use super::rtt::RttEstimator;
use super::scoreboard::Scoreboard;

pub use small_queue::SmallQueue;
use timers::Timers;
use transmit::WindowUse;

/// BLIP's timeout: 6 ticks of 512/1024 s, TinyOS having 1024 binary milliseconds per second
/// (`TcpP.nc`, `tcplib.c`).
const BLIP_TIMEOUT: Span = Span::from_millis(3000);

/// Settings of a [`Sender`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SenderParams {
    /// The payload of a full segment: 1448 bytes, for packets of 1500 bytes.
    pub segment: Bytes,
    /// Sends packets of several segments, of up to this much payload (TCP segmentation offload);
    /// `None`, the default, sends a packet per segment.
    pub offload: Option<Bytes>,
    /// The limit on its packets in the queue of its own host (TCP small queues); `None`, the
    /// default, is no limit.
    pub small_queue: Option<SmallQueue>,
    /// The send buffer (`tcp_wmem`), of whose memory 9/16 are payload.
    pub buffer: BufferParams,
    /// Holds back a segment that is not full while data is in flight (Nagle, RFC 9293 section
    /// 3.7.4). Off by default: applications that care for age set `TCP_NODELAY`.
    pub nagle: bool,
    /// Whether data is sent as ECN-capable.
    pub ecn: bool,
    /// The minimum of the retransmission timeout above the smoothed round trip: 200 ms, as in
    /// Linux.
    pub min_rto_margin: Span,
    /// The minimum of the whole timeout: zero in Linux, 1 s in RFC 6298.
    pub min_rto: Span,
    /// How losses are found and repaired.
    pub repair: Repair,
}

/// How losses are found and repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Repair {
    /// As in Linux: SACK, RACK, tail loss probes, timeouts by RFC 6298.
    #[default]
    Linux,
    /// As TinyOS's BLIP does (`support/sdk/c/blip/libtcp/tcplib.c`): a constant timeout of six
    /// ticks of 512/1024 s, which is not doubled, and the second consecutive duplicate ack (the
    /// third ack with that number). After either, all unacknowledged data is sent again. Windows
    /// stay those of the law; BLIP's own output function applies its window to the first segment
    /// only.
    Blip,
}

impl Default for SenderParams {
    fn default() -> Self {
        Self {
            segment: Bytes::new(1448),
            offload: None,
            small_queue: None,
            buffer: BufferParams::SEND,
            nagle: false,
            ecn: false,
            min_rto_margin: Span::from_millis(200),
            min_rto: Span::ZERO,
            repair: Repair::Linux,
        }
    }
}

/// Counters of a sender since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderStats {
    /// Segments with data or FIN, retransmissions included.
    pub segments: Packets,
    /// Payload, retransmissions included.
    pub payload: Bytes,
    /// Segments sent again.
    pub retransmissions: Packets,
    /// Recoveries from loss without a timeout.
    pub fast_recoveries: u64,
    /// Reductions because of marks.
    pub mark_reductions: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Recoveries and timeouts that turned out to be spurious, and were undone.
    pub needless_recoveries: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// The number of round-trip samples.
    pub rtt_samples: u64,
    /// Their sum.
    pub rtt_sum: Span,
}

impl SenderStats {
    /// The mean round trip, once there is a sample.
    pub fn mean_rtt(&self) -> Option<Span> {
        (self.rtt_samples > 0).then(|| self.rtt_sum / self.rtt_samples)
    }
}

/// The sending end. Call [`Sender::connect`] once; after each input, call [`Sender::poll_transmit`]
/// until it returns `None`, and again at [`Sender::poll_timeout`].
#[derive(Debug)]
pub struct Sender {
    params: SenderParams,
    law: Box<dyn CongestionControl>,
    state: State,
    source: Source,
    board: Scoreboard,
    rack: Rack,
    rtt: RttEstimator,
    rate: DeliveryRate,
    pacer: Pacer,
    timers: Timers,
    episode: Option<Episode>,
    /// The offset at which the receiver's window ends.
    window_end: u64,
    window_use: WindowUse,
    /// The memory of the packets in the host's own queue.
    host_memory: Bytes,
    /// When data was sent last.
    last_sent_at: Time,
    /// The timestamp that the next segment returns.
    echo: Option<Time>,
    /// With [`Repair::Blip`]: consecutive acks that acknowledge nothing.
    duplicates: u32,
    /// A handshake segment is to be sent.
    handshake_due: bool,
    /// The window was reduced; the next new segment reports this to the receiver.
    announce_reduced: bool,
    /// A FIN was sent at the end of the stream.
    fin_sent: bool,
    /// Segments acknowledged since the last [`Sender::take_acked`].
    acked: Vec<Acked>,
    stats: SenderStats,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Connecting,
    Open,
}

/// The state of the application's data.
#[derive(Debug, Clone, Copy)]
struct Source {
    /// Bytes written.
    written: u64,
    /// There is always more.
    unlimited: bool,
    /// Nothing is written any more, and the FIN may be sent.
    closed: bool,
}

impl Sender {
    /// A sender that is not connected, governed by `law`.
    pub fn new(params: SenderParams, law: Box<dyn CongestionControl>) -> Self {
        Self {
            params,
            law,
            state: State::Idle,
            source: Source { written: 0, unlimited: false, closed: false },
            board: Scoreboard::default(),
            rack: Rack::default(),
            rtt: match params.repair {
                Repair::Linux => RttEstimator::new(params.min_rto_margin, params.min_rto),
                Repair::Blip => RttEstimator::with_timeout(BLIP_TIMEOUT),
            },
            duplicates: 0,
            rate: DeliveryRate::new(),
            pacer: Pacer::default(),
            timers: Timers::default(),
            episode: None,
            window_end: 0,
            window_use: WindowUse::default(),
            host_memory: Bytes::ZERO,
            last_sent_at: Time::ZERO,
            echo: None,
            handshake_due: false,
            announce_reduced: false,
            fin_sent: false,
            acked: Vec::new(),
            stats: SenderStats::default(),
        }
    }

    /// Begins the handshake. Data may be written before and after.
    pub fn connect(&mut self, now: Time) {
        if self.state == State::Idle {
            self.state = State::Connecting;
            self.handshake_due = true;
            self.arm_timeout(now);
        }
    }

    /// Sets the expected sojourn time in its device queue of a segment that is sent now; `None`,
    /// the default, if it is unknown.
    pub fn set_device_wait(&mut self, wait: Option<Span>) {
        self.board.device_wait = wait;
    }

    /// The segments acknowledged since the last call that were sent once and with a known sojourn
    /// time.
    pub fn take_acked(&mut self) -> impl Iterator<Item = Acked> {
        self.acked.drain(..)
    }

    /// Writes up to `bytes` into the send buffer. Returns the number of bytes accepted.
    pub fn write(&mut self, bytes: Bytes) -> Bytes {
        if self.source.closed {
            return Bytes::ZERO;
        }
        let taken = bytes.get().min(self.writable().get());
        self.source.written += taken;
        Bytes::new(taken)
    }

    /// The number of bytes that the send buffer would accept.
    pub fn writable(&self) -> Bytes {
        self.buffer_size() - self.held()
    }

    /// The send buffer, in bytes of payload. One that is always full may hold more than its size,
    /// when the window has become smaller.
    pub fn buffer(&self) -> SendBuffer {
        let size = self.buffer_size();
        let queued = if self.source.unlimited { self.held().max(size) } else { self.held() };
        SendBuffer { queued, size }
    }

    fn buffer_size(&self) -> Bytes {
        let window = self.law.window().get().max(transmit::INITIAL_WINDOW);
        Bytes::new(self.params.buffer.payload(window))
    }

    /// Bytes written and not acknowledged.
    fn held(&self) -> Bytes {
        self.written() - self.acknowledged()
    }

    /// The payload of a full segment.
    pub fn segment_size(&self) -> Bytes {
        self.params.segment
    }

    /// From now on the buffer is always full, as with an endless file.
    pub fn set_unlimited(&mut self) {
        self.source.unlimited = true;
    }

    /// Ends the stream after the data written so far.
    pub fn close(&mut self) {
        self.source.unlimited = false;
        self.source.closed = true;
    }

    /// Whether the stream has been closed and all of it is acknowledged.
    pub fn is_finished(&self) -> bool {
        self.fin_sent && self.board.is_empty()
    }

    /// Bytes of the stream written so far: the offset at which the next write begins.
    pub fn written(&self) -> Bytes {
        Bytes::new(self.source.written)
    }

    /// Bytes of the stream acknowledged in order.
    pub fn acknowledged(&self) -> Bytes {
        Bytes::new(self.board.acked_to().min(self.source.written))
    }

    /// Segments in flight.
    pub fn in_flight(&self) -> Packets {
        Packets::new(self.board.in_flight())
    }

    /// The number of segments that may be in flight now.
    pub fn window(&self) -> Packets {
        let window = self.episode.and_then(|episode| episode.window());
        window.filter(|_| !self.law.governs_recovery()).map_or(self.law.window(), Packets::new)
    }

    /// The smoothed round trip, once there is a sample.
    pub fn srtt(&self) -> Option<Span> {
        self.rtt.srtt()
    }

    /// The mean deviation of round trips (RFC 6298), once there is a sample.
    pub fn rtt_variation(&self) -> Option<Span> {
        self.rtt.variation()
    }

    /// The minimum round trip of the last five minutes.
    pub fn min_rtt(&self) -> Option<Span> {
        self.rtt.min()
    }

    /// Whether the handshake is over.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether losses are being repaired.
    pub fn is_recovering(&self) -> bool {
        self.episode.is_some()
    }

    /// Segments in flight, or lost and not yet retransmitted.
    pub fn outstanding(&self) -> Packets {
        Packets::new(self.board.in_flight() + self.board.lost())
    }

    /// Bytes written and not yet sent.
    pub fn not_sent(&self) -> Bytes {
        Bytes::new(self.source.written.saturating_sub(self.board.sent_to()))
    }

    /// Whether it has nothing to send or to repair, and room in its window: data written now leaves
    /// at once, except for pacing.
    pub fn is_starved(&self) -> bool {
        let has_room = self.board.in_flight() < self.window().get();
        self.is_open() && has_room && self.board.lost() == 0 && self.not_sent() == Bytes::ZERO
    }

    /// When the oldest segment in flight was sent.
    pub fn oldest_sent_at(&mut self) -> Option<Time> {
        self.board.oldest_in_flight().map(|sent| sent.sent_at)
    }

    /// Another subflow is blocked by the segments that this one has in flight.
    pub fn penalise(&mut self) {
        self.law.on_penalty();
    }

    /// In a mesh: a transmission of the parent that the node has overheard.
    pub fn on_heard(&mut self, now: Time, heard: Heard) {
        self.law.on_heard(now, heard);
    }

    /// The law that governs the window.
    pub fn law(&self) -> &dyn CongestionControl {
        &*self.law
    }

    /// The counters so far.
    pub fn stats(&self) -> &SenderStats {
        &self.stats
    }

    /// When to call [`Sender::handle_timeout`] and [`Sender::poll_transmit`] next, if nothing arrives.
    pub fn poll_timeout(&self) -> Option<Time> {
        Time::earliest([self.timers.next(), self.window_use.paced_until, self.rack.deadline()])
    }
}
