//! The sending host of a stream: the priority band of each packet, and the send buffer behind it.

use freshline_core::host::{Band, BandLaw, Outgoing, SendBuffer};
use freshline_core::unit::{Bytes, Span, Time};

use super::{Body, Parcel, World};
use crate::tcp::{Segment, Sender};

/// A law of the bands, and its observations.
#[derive(Debug)]
pub(super) struct Host {
    law: BandLaw,
    tally: Tally,
    /// When data was first assigned to the bulk band.
    first_bulk_at: Option<Time>,
}

/// Measurements per segment with data, from the end of the warm-up on.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    segments: u64,
    bulk: u64,
    /// Sums over segments.
    occupancy: f64,
    queue_per_window: f64,
}

/// Host-queue measurements of a stream's segments with data.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HostOutcome {
    /// The mean fill level of the send buffer; `None`, as the next two, if there was no segment.
    pub occupancy_mean: Option<f64>,
    /// The mean amount of data in the send buffer, in windows.
    pub queue_per_window: Option<f64>,
    /// The fraction of segments in the bulk band.
    pub bulk: Option<f64>,
    /// The time from the beginning of the stream until data was first in the bulk band; `None` if
    /// it never was.
    pub bulk_after: Option<Span>,
}

impl World {
    /// A parcel has crossed a hop or the air. If that was its first leg, it has left its host,
    /// whose sender may be held back by TCP small queues.
    pub(super) fn left_host(&mut self, parcel: &Parcel) {
        let flow = parcel.flow as usize;
        if let (0, Body::Segment(number)) = (parcel.leg, parcel.load.body)
            && let Some(stream) = self.flows[flow].flow.stream_mut()
            && stream.on_left_host(number)
        {
            self.transmit(flow);
            self.reschedule_flow(flow);
        }
    }
}

impl Host {
    pub(super) fn new(law: BandLaw) -> Self {
        Self { law, tally: Tally::default(), first_bulk_at: None }
    }

    /// Discards the measurements so far.
    pub(super) fn begin_measuring(&mut self) {
        self.tally = Tally::default();
    }

    /// The band of a segment that `sender` has just sent.
    pub(super) fn band(&mut self, now: Time, segment: &Segment, sender: &Sender) -> Band {
        let has_payload = segment.len > 0;
        if !has_payload && !segment.flags.syn && !segment.flags.fin {
            return self.law.band(Outgoing::Ack);
        }
        let mut buffer = sender.buffer();
        if segment.flags.syn {
            // Nothing is written before the stream is open.
            buffer.queued = Bytes::ZERO;
        }
        let band = self.law.band(Outgoing::Data(buffer));
        if !has_payload {
            return band;
        }
        if band == Band::Bulk {
            self.first_bulk_at.get_or_insert(now);
        }
        self.tally.count(buffer, sender, band);
        band
    }

    pub(super) fn outcome(&self, starts_at: Time) -> HostOutcome {
        let Tally { segments, bulk, occupancy, queue_per_window } = self.tally;
        let mean = |sum: f64| (segments > 0).then(|| sum / segments as f64);
        HostOutcome {
            occupancy_mean: mean(occupancy),
            queue_per_window: mean(queue_per_window),
            bulk: mean(bulk as f64),
            bulk_after: self.first_bulk_at.map(|at| at.since(starts_at)),
        }
    }
}

impl Tally {
    fn count(&mut self, SendBuffer { queued, size }: SendBuffer, sender: &Sender, band: Band) {
        let window = sender.window().get() * sender.segment_size().get();
        let queued = queued.get() as f64;
        self.segments += 1;
        self.bulk += u64::from(band == Band::Bulk);
        self.occupancy += queued / size.get().max(1) as f64;
        self.queue_per_window += queued / window.max(1) as f64;
    }
}
