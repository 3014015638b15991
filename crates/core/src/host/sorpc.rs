//! SORPC chooses the band of each packet that leaves a host, by the occupancy of its socket's send
//! buffer: packets of a nearly full send buffer are bulk, all others are urgent. Its goal is that
//! uploads do not delay interactive packets and acks.
//!
//! ```text
//! SOR(t) = Qs(t) / sndbuf(t)                      bytes / bytes (equation 3.1)
//! data   → bulk if SOR(t) ≥ SORth, else urgent          (section 3.3.2)
//! pure acks, UDP and all else → urgent
//! ```
//!
//! Im, PhD thesis, Seoul National University, 2015, chapter 3. The buffer follows the window,
//! sndbuf = min{2·cwnd, tcp_wmem_max} (equation 3.2). A file transfer keeps it full; an interactive
//! application fills only a small part of it. The law needs no configuration and no port numbers:
//! it reads two numbers of the socket.
//!
//! # Where the paper is silent
//!
//! The alternatives that were tried, with numbers: `docs/host.md`.
//!
//! - **Memory.** The law has no state: each packet is classified separately, as printed. At the end
//!   of a file the buffer drains, and its last window, urgent again, overtakes segments that are
//!   still queued as bulk. A longer bulk period would avoid this and make the file take longer.
//!   Where the kernel limits a stream's packets in the queue (TCP small queues), there is little to
//!   overtake.
//! - **Competing uploads** are unfair for a while in one bulk queue, which the thesis leaves open
//!   (section 3.4.4). Fair service within the bulk band ([`Dual`](crate::router::Dual)) avoids that
//!   without a cost; hold-downs achieve less, and cost goodput, so the law has no hold-down.
//! - **SYN and FIN** are classified as data, as on Linux: an urgent FIN would overtake data.
//! - **A buffer of size 0** counts as full.

use super::{Band, BandLawError, Outgoing, SendBuffer};

/// Settings of [`Sorpc`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct SorpcParams {
    /// SORth, above 0 and at most 1: the occupancy of the buffer from which on a stream is bulk.
    /// 0.5 (section 3.4.1 of the thesis).
    pub threshold: f64,
}

impl Default for SorpcParams {
    fn default() -> Self {
        Self { threshold: 0.5 }
    }
}

impl SorpcParams {
    /// The law.
    ///
    /// # Errors
    /// A threshold outside its range.
    pub fn build(self) -> Result<Sorpc, BandLawError> {
        let threshold = self.threshold;
        if threshold > 0.0 && threshold <= 1.0 {
            Ok(Sorpc { params: self })
        } else {
            Err(BandLawError::Threshold(threshold))
        }
    }
}

/// The law of section 3.3.2 of the thesis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sorpc {
    params: SorpcParams,
}

impl Sorpc {
    /// The band of a packet that leaves now.
    pub fn band(self, outgoing: Outgoing) -> Band {
        match outgoing {
            Outgoing::Data(buffer) if self.is_bulk(buffer) => Band::Bulk,
            Outgoing::Data(_) | Outgoing::Ack | Outgoing::Other => Band::Urgent,
        }
    }

    /// SOR(t) ≥ SORth, without a division.
    fn is_bulk(self, SendBuffer { queued, size }: SendBuffer) -> bool {
        queued.get() as f64 >= self.params.threshold * size.get() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Bytes;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    fn data(queued: u64, size: u64) -> Outgoing {
        Outgoing::Data(SendBuffer { queued: Bytes::new(queued), size: Bytes::new(size) })
    }

    fn bands(threshold: f64, all: &[Outgoing]) -> Vec<Band> {
        let law = SorpcParams { threshold }.build().unwrap();
        all.iter().map(|outgoing| law.band(*outgoing)).collect()
    }

    #[test]
    fn data_is_bulk_from_the_threshold_on() {
        let all = [data(0, 1000), data(499, 1000), data(500, 1000), data(1000, 1000)];
        assert_eq!(bands(0.5, &all), [Band::Urgent, Band::Urgent, Band::Bulk, Band::Bulk]);
        assert_eq!(bands(1.0, &all), [Band::Urgent, Band::Urgent, Band::Urgent, Band::Bulk]);
    }

    #[test]
    fn a_buffer_that_grows_past_what_waits_makes_its_stream_urgent_again() {
        let all = [data(500, 1000), data(500, 2000), data(1000, 2000)];
        assert_eq!(bands(0.5, &all), [Band::Bulk, Band::Urgent, Band::Bulk]);
    }

    #[test]
    fn acks_and_all_that_is_not_tcp_are_urgent() {
        let all = [data(9, 10), Outgoing::Ack, Outgoing::Other];
        assert_eq!(bands(0.5, &all), [Band::Bulk, Band::Urgent, Band::Urgent]);
    }

    #[test]
    fn sizes_at_their_limits_are_judged_too() {
        let all = [data(0, 0), data(u64::MAX, 0), data(0, u64::MAX), data(u64::MAX, u64::MAX)];
        assert_eq!(bands(0.5, &all), [Band::Bulk, Band::Bulk, Band::Urgent, Band::Bulk]);
    }

    #[test]
    fn thresholds_that_would_make_all_bulk_or_none_are_refused() {
        for threshold in [0.0, -0.5, 1.1, f64::NAN, f64::INFINITY] {
            let error = SorpcParams { threshold }.build().unwrap_err();
            assert!(error.to_string().contains("above 0 and at most 1"), "{error}");
        }
    }
}
