//! How large buffers may grow (`tcp_rmem`, `tcp_wmem`).

use freshline_core::receiver::Limits;
use freshline_core::unit::Bytes;

/// A buffer's limits in bytes of memory: the last two numbers of `tcp_rmem` or `tcp_wmem`. The first one, which
/// counts when memory is short, has no meaning here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferParams {
    /// At the start.
    pub default: Bytes,
    /// At most.
    pub max: Bytes,
}

impl BufferParams {
    /// Linux's `tcp_rmem` since 6.16: 131072 and 33554432. Earlier kernels have 6291456 at most.
    pub const RECEIVE: Self = Self { default: Bytes::new(131_072), max: Bytes::new(33_554_432) };
    /// Linux's `tcp_wmem`: 16384 and 4194304.
    pub const SEND: Self = Self { default: Bytes::new(16_384), max: Bytes::new(4_194_304) };

    /// The windows of a receive buffer. Half of it counts (`tcp_adv_win_scale` = 1), the rest being
    /// the kernel's overhead.
    pub fn windows(&self) -> Limits {
        let half = |memory: Bytes| Bytes::new(memory.get() / 2);
        Limits { initial: half(self.default), most: half(self.max.max(self.default)) }
    }

    /// How many bytes of payload a send buffer holds with a window of `segments`: it has room for
    /// two windows, so that there is always one to be sent next.
    pub(super) fn payload(&self, segments: u64) -> u64 {
        let memory = (2 * segments).saturating_mul(RESERVED);
        let memory = self.default.get().max(memory).min(self.max.get());
        memory / 16 * PAYLOAD_SIXTEENTHS
    }
}

/// The memory that Linux reserves for a segment of Ethernet in a send buffer, in bytes.
const RESERVED: u64 = 4352;
/// The share of a send buffer's memory that is payload. On Linux 6.18, 4 MiB hold 1510 to 1770
/// full segments in flight, as they lie in memory alone or in pairs: 0.52 to 0.61 of it.
const PAYLOAD_SIXTEENTHS: u64 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_buffer_follows_the_window_up_to_its_limit() {
        assert_eq!(BufferParams::SEND.payload(10), 87_040 / 16 * 9);
        assert_eq!(BufferParams::SEND.payload(10_000) / 1448, 1629);
    }
}
