//! TCP's information about a connection (`struct tcp_info`).

use crate::netlink::attributes::ne_u32;

/// The fields of `struct tcp_info` (`linux/tcp.h`) that show where time is lost. Times are in µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// The application had less to send than the path's capacity, when `delivery_rate` was
    /// measured.
    pub is_app_limited: bool,
    /// The sender's segment in bytes.
    pub mss: u32,
    /// Segments that are in flight.
    pub in_flight: u32,
    /// How long ago data arrived last, in ms.
    pub since_received_ms: u32,
    /// The smoothed round trip.
    pub rtt: u32,
    /// Its mean deviation.
    pub rtt_variation: u32,
    /// The minimum round trip; `u32::MAX` before the first one.
    pub min_rtt: u32,
    /// The round trip as the receiver of data estimates it; 0 if it does not know.
    pub receiver_rtt: u32,
    /// The congestion window in segments.
    pub cwnd: u32,
    /// Bytes that were acknowledged, received in order, sent, and sent again.
    pub bytes_acked: u64,
    /// Likewise.
    pub bytes_received: u64,
    /// Likewise.
    pub bytes_sent: u64,
    /// Likewise.
    pub bytes_retransmitted: u64,
    /// Segments out and in, with and without data.
    pub segments_out: u32,
    /// Likewise.
    pub segments_in: u32,
    /// Segments with data.
    pub data_segments_out: u32,
    /// Likewise.
    pub data_segments_in: u32,
    /// Received segments with data that an earlier one was missing before.
    pub out_of_order: u32,
    /// Bytes that are not sent yet.
    pub unsent: u32,
    /// The newest measured rate of delivery, in bytes per second.
    pub delivery_rate: u64,
    /// How long there was data to send.
    pub busy: u64,
    /// Of that, how long the receive window of the peer was too small.
    pub window_limited: u64,
    /// Of that, how long the send buffer was too small.
    pub buffer_limited: u64,
    /// The window that the peer offers, and the one that this host offers, in bytes.
    pub send_window: u32,
    /// Likewise.
    pub receive_window: u32,
}

impl TcpInfo {
    /// Reads the structure as far as it goes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let word = |at: usize| bytes.get(at..).and_then(ne_u32).unwrap_or_default();
        let long = |at: usize| {
            let value = bytes.get(at..).and_then(|rest| rest.first_chunk());
            value.map_or(0, |value| u64::from_ne_bytes(*value))
        };
        Self {
            is_app_limited: bytes.get(7).is_some_and(|flags| flags & 1 != 0),
            mss: word(16),
            in_flight: word(24),
            since_received_ms: word(52),
            rtt: word(68),
            rtt_variation: word(72),
            cwnd: word(80),
            receiver_rtt: word(92),
            bytes_acked: long(120),
            bytes_received: long(128),
            segments_out: word(136),
            segments_in: word(140),
            unsent: word(144),
            min_rtt: word(148),
            data_segments_in: word(152),
            data_segments_out: word(156),
            delivery_rate: long(160),
            busy: long(168),
            window_limited: long(176),
            buffer_limited: long(184),
            bytes_sent: long(200),
            bytes_retransmitted: long(208),
            out_of_order: word(224),
            send_window: word(228),
            receive_window: word(232),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_at_the_offsets_of_the_kernels_structure() {
        let mut bytes = [0; 248];
        for (at, value) in [(68, 20_500_u32), (148, 20_000), (92, 21_000), (224, 3), (232, 65_535)]
        {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        for (at, value) in [(120, 1_u64 << 33), (176, 5), (208, 1448)] {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[7] = 1;
        let expected = TcpInfo {
            is_app_limited: true,
            rtt: 20_500,
            min_rtt: 20_000,
            receiver_rtt: 21_000,
            out_of_order: 3,
            receive_window: 65_535,
            bytes_acked: 1 << 33,
            window_limited: 5,
            bytes_retransmitted: 1448,
            ..TcpInfo::default()
        };
        assert_eq!(TcpInfo::parse(&bytes), expected);
        let short = TcpInfo::parse(&bytes[..160]);
        assert_eq!((short.rtt, short.bytes_retransmitted), (20_500, 0));
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
    }
}
