//! SORPC: what leaves a send buffer that is well filled is bulk.
//!
//! ```text
//! SOR(t) = Qs(t) / sndbuf(t)                      (003, equation 3.1)
//! data   → bulk where SOR(t) ≥ SORth, else urgent      (section 3.3.2)
//! acks, UDP and all else → urgent
//! ```
//!
//! The buffer follows the window, sndbuf = 2·cwnd (equation 3.2), and grows as the window does. An
//! application that has a file to send keeps it full; one that sends what its user types or does
//! never has more in it than a small part. Nothing needs to be configured, no port be known, and
//! two numbers of the socket are all that is read.
//!
//! # Where the paper is silent
//!
//! Numbers are of the lab: 20.7 Mbit/s, 50 ms, a send buffer of 2 MB of payload.
//!
//! - **Memory.** There is none: each packet is judged by itself, as printed. As a file ends its
//!   buffer drains, and its last window, urgent again, overtakes what of it still waits as bulk: of a
//!   file of 0.2 to 4 MB alone on the link, 3 to 10 % of the segments are sent again for it, beside
//!   another upload up to 16 % with fair service and 30 % without. To stay bulk down to a tenth of
//!   the buffer nearly ends that, and such a file takes 1 to 16 % longer beside another upload, 6 to
//!   21 % without fair service. Where the kernel lets a stream have only few packets in the queue
//!   (TCP small queues), there is little to overtake.
//! - **Uploads that compete** are unfair for a while in one bulk queue, which 003 leaves open
//!   (section 3.4.4): of two that begin 10 s apart, Jain's index over the late one's first 10 s is
//!   0.56. A hold-down, by which data is bulk only when SOR has been above SORth for 0.2, 0.5, 1, 2 s,
//!   makes it 0.63, 0.70, 0.80, 0.95, and costs up to 5 % of goodput, 2 to 6 % of segments sent
//!   again, and up to 70 ms for all that is urgent. To let a new stream wait before it is urgent
//!   changes nothing, as an upload's data is bulk from its first segment on. Fair service within the
//!   bulk band ([`Dual`](super::Dual)) makes it 0.999 and costs nothing, so there is no hold-down.
//! - **A segment without payload is an ack**, be it SYN or FIN.
//! - **A buffer of no size** is full.

use super::{Band, BandLaw, BandLawError, Outgoing, SendBuffer};
use crate::unit::Time;

/// Settings of [`Sorpc`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct SorpcParams {
    /// SORth, above 0 and at most 1: from which part of its buffer on a stream is bulk. 0.5
    /// (003 section 3.4.1).
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

/// The law of 003 section 3.3.2.
#[derive(Debug, Clone, Copy)]
pub struct Sorpc {
    params: SorpcParams,
}

impl BandLaw for Sorpc {
    fn name(&self) -> &'static str {
        "sorpc"
    }

    fn band(&mut self, _now: Time, outgoing: Outgoing) -> Band {
        match outgoing {
            Outgoing::Data(buffer) if self.is_bulk(buffer) => Band::Bulk,
            Outgoing::Data(_) | Outgoing::Ack | Outgoing::Other => Band::Urgent,
        }
    }
}

impl Sorpc {
    /// SOR(t) ≥ SORth, without a division.
    fn is_bulk(&self, SendBuffer { queued, size }: SendBuffer) -> bool {
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
        let mut law = SorpcParams { threshold }.build().unwrap();
        all.iter().map(|outgoing| law.band(Time::ZERO, *outgoing)).collect()
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
