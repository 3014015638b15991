//! Measures the delay that bands cannot control: a queue in a ring, a modem or a router further on.
//!
//! An upload's round trip above its minimum is queueing delay. The backlog of the device's queueing
//! disciplines explains a part of it, backlog over delivery rate; in the rest, packets of all bands
//! share one queue. TCP's minimum is that of the last five minutes (`tcp_min_rtt_wlen`), so it is
//! too long for an upload that began in a standing queue: the maximum over all uploads counts.
//!
//! The measurement does not show where that queue is. Congestion further on, or in the direction of
//! the acks, lengthens the round trip as well.

use freshline_core::unit::{Bytes, Span};

use super::Band;
use super::flow::{RoundTrips, StreamReport};

/// An upload that sent nothing for longer than this does not count.
const RECENT: Span = Span::from_secs(1);

/// The delay of uploads above their minimum RTT, minus that of `backlog`; `None` without uploads.
pub(super) fn unmanaged_delay(flows: &[StreamReport], backlog: Bytes) -> Option<Span> {
    let is_upload = |flow: &&StreamReport| flow.band == Band::Bulk && flow.idle <= RECENT;
    let uploads = || flows.iter().filter(is_upload);
    let above_min = |RoundTrips { smoothed, min }| smoothed.max(min) - min;
    let delays = uploads().filter_map(|flow| flow.round_trips).map(above_min);
    let delay = delays.max()?;
    let rate: u64 = uploads().map(|flow| flow.rate.as_bps()).sum();
    let explained = backlog.get() as f64 * 8.0 / rate.max(1) as f64;
    let explained = Span::from_secs_f64(explained.min(3600.0));
    Some(delay.max(explained) - explained)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::unit::BitRate;

    use crate::sorpc::Account;

    fn flow(band: Band, rtt_ms: u64, min_ms: u64, mbps: u64) -> StreamReport {
        StreamReport {
            remote: "192.0.2.1:443".parse().unwrap(),
            local_port: 40_000,
            queued: Bytes::ZERO,
            size: Bytes::ZERO,
            band,
            sent: Account::default(),
            idle: Span::ZERO,
            round_trips: Some(RoundTrips {
                smoothed: Span::from_millis(rtt_ms),
                min: Span::from_millis(min_ms),
            }),
            rate: BitRate::from_mbps(mbps),
        }
    }

    #[test]
    fn a_queue_that_the_backlog_does_not_explain_is_measured() {
        let uploads = [flow(Band::Bulk, 170, 20, 6), flow(Band::Bulk, 170, 160, 4)];
        let delay = |backlog| unmanaged_delay(&uploads, Bytes::new(backlog));
        assert_eq!(delay(0), Some(Span::from_millis(150)));
        // 100 ms of 10 Mbit/s.
        assert_eq!(delay(125_000), Some(Span::from_millis(50)));
        assert_eq!(delay(1_000_000), Some(Span::ZERO));
    }

    #[test]
    fn without_an_upload_that_sends_nothing_is_known() {
        let urgent = flow(Band::Urgent, 500, 20, 1);
        assert_eq!(unmanaged_delay(&[urgent], Bytes::ZERO), None);
        let idle = StreamReport { idle: Span::from_secs(2), ..flow(Band::Bulk, 500, 20, 1) };
        let new = StreamReport { round_trips: None, ..flow(Band::Bulk, 500, 20, 1) };
        assert_eq!(unmanaged_delay(&[idle, new], Bytes::ZERO), None);
    }
}
