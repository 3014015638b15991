//! TCP small queues: limits a stream's packets in the queue of its own host
//! (`tcp_small_queue_check`, Linux, `tcp_output.c`).
//!
//! ```text
//! limit = max(2 packets, pacing rate / 2^shift),    at most 1 MiB for a law without a pacing rate
//! ```
//!
//! counts memory (`sk_wmem_alloc`): 16/9 of the payload, as the send buffer does. The shift is 10,
//! 1/1024 s; a Wi-Fi device asks for 7, 1/128 s (`ieee80211_alloc_hw`, `tx_sk_pacing_shift`). At
//! the limit the sender waits until a packet leaves the queue, unless at most one is
//! unacknowledged. Retransmissions have twice the limit.

use freshline_core::unit::Bytes;

use super::Sender;

/// `tcp_limit_output_bytes`.
const MOST: u64 = 1 << 20;

/// The limit on a stream's packets in the queue of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmallQueue {
    /// The pacing rate is divided by two to the power of this: 10, and 7 for Wi-Fi.
    pub pacing_shift: u8,
}

impl SmallQueue {
    /// The memory of a packet with this payload.
    pub fn memory(payload: Bytes) -> Bytes {
        Bytes::new(payload.get() * 16 / 9)
    }
}

impl Sender {
    /// The settings of small queues, if it has them.
    pub fn small_queue(&self) -> Option<SmallQueue> {
        self.params.small_queue
    }

    /// A packet with this memory has entered the queue of its host.
    pub fn on_entered_host(&mut self, memory: Bytes) {
        self.host_memory += memory;
    }

    /// A packet with this memory has left it.
    pub fn on_left_host(&mut self, memory: Bytes) {
        self.host_memory = self.host_memory - memory;
    }

    /// Whether the stream's packets in the queue of its host have reached the limit.
    pub(super) fn is_throttled(&self) -> bool {
        let Some(SmallQueue { pacing_shift }) = self.params.small_queue else { return false };
        let paced = (self.pacing_bps() / 8) >> pacing_shift.min(63);
        let most = if self.law.pacing_rate().is_some() { u64::MAX } else { MOST };
        let packets = 2 * SmallQueue::memory(self.params.segment).get();
        let limit = packets.max(paced).min(most);
        let factor = if self.board.lost() > 0 { 2 } else { 1 };
        self.host_memory.get() > limit.saturating_mul(factor) && self.board.outstanding() > 1
    }
}
