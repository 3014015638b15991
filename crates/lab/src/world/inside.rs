//! The packets inside of a wired hop at a moment, for drawings.

use freshline_core::router::Qdisc;

use super::{Parcel, World};

/// Where a packet is inside of a hop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    /// In the queue.
    Queued,
    /// In transmission, with the fraction that is sent, from 0 to 1.
    Transmitting(f64),
    /// Between the transmitter and the end of the hop, with the fraction of its delay that has
    /// passed, from 0 to 1.
    Propagating(f64),
}

impl World {
    /// Calls `see` with each packet inside of a hop and with its place: first the packets of the
    /// queue, as [`Qdisc::each_queued`] orders them, then the one in transmission, then the
    /// propagating ones, of which the first arrives next.
    ///
    /// # Panics
    /// If there is no hop with this number in [`World::hops`].
    pub fn each_inside(&self, hop: usize, mut see: impl FnMut(&Parcel, Place)) {
        let hop = &self.hops[hop];
        hop.queue().each_queued(&mut |parcel| see(parcel, Place::Queued));
        if let Some((parcel, sent)) = hop.in_transmission(self.now) {
            see(parcel, Place::Transmitting(sent));
        }
        let whole = hop.max_delay().as_secs_f64();
        for (arrives_at, parcel) in hop.propagating() {
            let left = arrives_at.since(self.now).as_secs_f64();
            // A delay that was lowered leaves packets with more to go than the whole of it.
            let behind = if whole > 0.0 { (1.0 - left / whole).clamp(0.0, 1.0) } else { 1.0 };
            see(parcel, Place::Propagating(behind));
        }
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::unit::{Span, Time};

    use super::*;
    use crate::scenario::Scenario;

    /// 10 updates of 1000 bytes a second over 8 kbit/s: each takes a second to send.
    const CROWDED: &str = r#"
title = "A queue that grows"
duration = "10s"

[[link]]
name = "slow"
forward = { rate = "8kbit", delay = "2s", jitter = "1s", queue = "QUEUE" }

[[flow]]
name = "source"
path = ["slow"]
updates = { law = "fixed", rate = "10/s", payload = "972B", overhead = "28B", ack = "0B" }
"#;

    fn places(queue: &str, at: Span) -> Vec<Place> {
        let scenario = Scenario::parse(&*CROWDED.replace("QUEUE", queue)).unwrap();
        let mut world = scenario.build(0).unwrap().world;
        world.run_until(Time::ZERO + at);
        let mut places = Vec::new();
        world.each_inside(0, |_, place| places.push(place));
        assert_eq!(places.len() as u64, world.hops()[0].inside().get(), "all of them are seen");
        places
    }

    #[test]
    fn every_packet_inside_of_a_hop_is_seen_at_its_place() {
        for queue in ["fifo", "fq_codel", "ifc"] {
            let places = places(queue, Span::from_millis(4500));
            let queued = places.iter().filter(|place| **place == Place::Queued).count();
            assert!(queued > 0, "{queue}: {places:?}");
            let sent: Vec<_> = places
                .iter()
                .filter_map(|place| match place {
                    Place::Transmitting(sent) => Some(*sent),
                    _ => None,
                })
                .collect();
            assert!(matches!(sent[..], [sent] if (sent - 0.5).abs() < 1e-9), "{queue}: {sent:?}");
            let behind: Vec<_> = places
                .iter()
                .filter_map(|place| match place {
                    Place::Propagating(behind) => Some(*behind),
                    _ => None,
                })
                .collect();
            assert!(behind.iter().all(|it| (0.0..=1.0).contains(it)), "{queue}: {behind:?}");
            assert!(behind.is_sorted_by(|first, next| first >= next), "{queue}: {behind:?}");
            assert!(!behind.is_empty());
        }
    }
}
