//! The delivery rate, and whether it was limited by the application (Cheng et al., "Delivery Rate
//! Estimation", draft-cheng-iccrg-delivery-rate-estimation).
//!
//! Each segment stores, when it is sent, the number of segments delivered by then and the time of
//! the last delivery. With its ack, the rate over its flight is
//!
//! ```text
//! rate = (delivered now − delivered then) / max(time of sending, time of acks)
//! ```
//!
//! where the maximum of the two times keeps aggregated acks from inflating the rate.

use freshline_core::unit::{Span, Time};

/// The state of delivery when a segment was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Snapshot {
    /// Segments delivered by then.
    delivered: u64,
    /// When the last of them was known to be delivered.
    delivered_at: Time,
    /// When the first segment of the flight was sent.
    first_sent_at: Time,
    app_limited: bool,
}

/// The rate of delivery over the last round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSample {
    /// Segments delivered in `interval`.
    pub delivered: u64,
    /// The duration of that, above zero.
    pub interval: Span,
    /// The total number of segments delivered when the newest acknowledged segment was sent.
    pub prior_delivered: u64,
    /// Whether the sender had too little to send at some time in between, so that the path's
    /// capacity may be higher.
    pub app_limited: bool,
}

/// Of the segments that one ack delivers, the one sent last, and when it was sent.
#[derive(Debug, Clone, Copy)]
struct Newest {
    sent_at: Time,
    then: Snapshot,
}

#[derive(Debug)]
pub(super) struct DeliveryRate {
    /// Segments delivered so far.
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    /// The rate is limited by the application until this many segments are delivered.
    app_limited_until: u64,
    /// The newest among the segments that the present ack delivers.
    newest: Option<Newest>,
}

impl DeliveryRate {
    pub(super) fn new() -> Self {
        Self {
            delivered: 0,
            delivered_at: Time::ZERO,
            first_sent_at: Time::ZERO,
            app_limited_until: 0,
            newest: None,
        }
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// A segment is about to be sent, with `in_flight` others in flight.
    pub(super) fn on_sent(&mut self, now: Time, in_flight: u64) -> Snapshot {
        if in_flight == 0 {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            app_limited: self.app_limited_until > 0,
        }
    }

    /// The application has nothing to send although the window has room, with `in_flight` segments
    /// in flight.
    pub(super) fn on_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// A segment has been delivered. After the last one of an ack, call [`DeliveryRate::sample`].
    pub(super) fn on_delivered(&mut self, now: Time, sent_at: Time, then: Snapshot) {
        self.delivered += 1;
        self.delivered_at = now;
        let newer =
            |newest: Newest| (then.delivered, sent_at) >= (newest.then.delivered, newest.sent_at);
        if self.newest.is_none_or(newer) {
            self.newest = Some(Newest { sent_at, then });
            self.first_sent_at = sent_at;
        }
    }

    /// The sample of an ack, unless its interval is shorter than a round trip and therefore wrong.
    pub(super) fn sample(&mut self, min_rtt: Option<Span>) -> Option<RateSample> {
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let Newest { sent_at, then } = self.newest.take()?;
        let sending = sent_at.since(then.first_sent_at);
        let acking = self.delivered_at.since(then.delivered_at);
        let interval = sending.max(acking);
        if interval.is_zero() || min_rtt.is_some_and(|min| interval < min) {
            return None;
        }
        Some(RateSample {
            delivered: self.delivered - then.delivered,
            interval,
            prior_delivered: then.delivered,
            app_limited: then.app_limited,
        })
    }
}
