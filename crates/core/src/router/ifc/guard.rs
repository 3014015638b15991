//! The guard admits a flow to the AoI class only once it has behaved like updates.
//!
//! Updates of a state arrive one by one, at even intervals and with similar sizes. Frames of a
//! video, a tunnel or a download arrive in bursts, or with sizes that jump. The guard remembers
//! recent flows and admits one to the AoI class only after it has been regular for
//! [`Guard::PROBATION`] and [`Guard::PACKETS`] packets. Until then, and again after each irregular
//! packet, the flow's packets are drop-averse: a wrong decision costs some queueing and no packet.
//!
//! ```text
//!          PACKETS regular packets and PROBATION
//!  on trial ──────────────────────────────────► regular
//!      ▲ └─┐ an irregular packet                   │
//!      └───┴───────────────────────────────────────┘
//! ```
//!
//! A packet is irregular if it arrives after less than a quarter of the flow's mean gap, or if its
//! size differs from the one before by more than a quarter and 32 bytes. A flow that once showed
//! the header of a known stream is a stream for as long as it is remembered. A flow that was silent
//! for [`Guard::MEMORY`] starts again.
//!
//! Flows are kept in sets of four, by a keyed hash; a new flow replaces the one in its set that was
//! silent longest. A flood of invented flows can so put regular flows on trial again, which delays
//! their updates and loses none.

use alloc::boxed::Box;
use alloc::vec;

use rand::Rng;

use crate::router::flow_hash::{FlowHash, FlowWords};
use crate::router::{FlowKey, Header, StreamProtocol};
use crate::unit::{Bytes, Span, Time};

/// Why a flow does not behave like updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Irregularity {
    /// It is too new.
    New,
    /// Packets came in bursts.
    Bursts,
    /// Sizes differ.
    Sizes,
    /// Another packet of the flow had the header of this protocol.
    Protocol(StreamProtocol),
}

impl Irregularity {
    /// The reason in a few words, for reports.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::New => "its flow is not known long enough",
            Self::Bursts => "its flow comes in bursts",
            Self::Sizes => "its flow has packets of unequal sizes",
            Self::Protocol(_) => "its flow carries a stream",
        }
    }
}

/// The recent flows, and their regularity.
#[derive(Debug)]
pub struct Guard {
    hash: FlowHash,
    flows: Box<[Option<TrackedFlow>]>,
}

#[derive(Debug, Clone, Copy)]
struct TrackedFlow {
    key: FlowKey,
    last: Time,
    size: Bytes,
    /// The time between two packets, smoothed by one eighth.
    mean_gap: Option<Span>,
    /// The start of the regular packets, and their number.
    regular_since: Time,
    regular: u32,
    /// The last irregularity.
    irregularity: Irregularity,
}

impl Guard {
    /// How long a flow must be regular before its packets are updates.
    pub const PROBATION: Span = Span::from_secs(1);
    /// The minimum number of regular packets for that.
    pub const PACKETS: u32 = 8;
    /// A flow that was silent for longer starts on trial again.
    pub const MEMORY: Span = Span::from_secs(60);

    const SETS: usize = 256;
    const FLOWS_IN_SET: usize = 4;

    /// A guard without flows. The secret of its hash comes from `rng`.
    pub fn new(rng: &mut impl Rng) -> Self {
        let flows = vec![None; Self::SETS * Self::FLOWS_IN_SET].into_boxed_slice();
        Self { hash: FlowHash::draw(rng), flows }
    }

    /// Takes in a packet of a flow: returns why it must not replace others, or `None` if it may.
    pub fn on_packet(&mut self, now: Time, header: &Header, size: Bytes) -> Option<Irregularity> {
        let flow = self.flow(now, header.flow, size);
        flow.look(now, size, header.stream);
        flow.verdict(now)
    }

    /// The flow's entry, perhaps a new one.
    fn flow(&mut self, now: Time, key: FlowKey, size: Bytes) -> &mut TrackedFlow {
        let set = self.hash.hash(FlowWords::from(key)) as usize % Self::SETS * Self::FLOWS_IN_SET;
        let set = &mut self.flows[set..set + Self::FLOWS_IN_SET];
        let is_known = |place: &Option<TrackedFlow>| {
            place.is_some_and(|flow| flow.key == key && now.since(flow.last) <= Self::MEMORY)
        };
        let known = set.iter().position(is_known);
        let place = known.unwrap_or_else(|| {
            // First an outdated entry of the same flow is replaced, then a free one, then the one
            // silent longest.
            let silence = |place: &Option<TrackedFlow>| {
                place.map(|flow| (flow.key != key).then_some(flow.last)).unwrap_or_default()
            };
            let places = set.iter().map(silence).enumerate();
            places.min_by_key(|(_, last)| *last).map_or(0, |(place, _)| place)
        });
        if known.is_none() {
            set[place] = None;
        }
        set[place].get_or_insert(TrackedFlow {
            key,
            last: now,
            size,
            mean_gap: None,
            regular_since: now,
            regular: 0,
            irregularity: Irregularity::New,
        })
    }
}

impl TrackedFlow {
    fn look(&mut self, now: Time, size: Bytes, stream: Option<StreamProtocol>) {
        if let Some(protocol) = stream {
            self.irregularity = Irregularity::Protocol(protocol);
        }
        let gap = now.since(self.last);
        let difference = size.get().abs_diff(self.size.get());
        let irregularity = if difference > self.size.get() / 4 + 32 {
            Some(Irregularity::Sizes)
        } else {
            let is_burst = self.mean_gap.is_some_and(|mean| gap.as_nanos() < mean.as_nanos() / 4);
            is_burst.then_some(Irregularity::Bursts)
        };
        // The first packet has no gap.
        if self.regular > 0 || self.mean_gap.is_some() {
            let gap = gap.as_nanos();
            let mean = self.mean_gap.map_or(gap, |mean| {
                let mean = mean.as_nanos();
                mean - mean / 8 + gap / 8
            });
            self.mean_gap = Some(Span::from_nanos(mean));
        }
        (self.last, self.size) = (now, size);
        match (irregularity, self.irregularity) {
            (None, _) => self.regular = self.regular.saturating_add(1),
            (Some(found), before) => {
                (self.regular_since, self.regular) = (now, 0);
                if !matches!(before, Irregularity::Protocol(_)) {
                    self.irregularity = found;
                }
            }
        }
    }

    fn verdict(&self, now: Time) -> Option<Irregularity> {
        let is_stream = matches!(self.irregularity, Irregularity::Protocol(_));
        let is_regular =
            self.regular > Guard::PACKETS && now.since(self.regular_since) >= Guard::PROBATION;
        (is_stream || !is_regular).then_some(self.irregularity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    fn guard() -> Guard {
        Guard::new(&mut Pcg64::seed_from_u64(3))
    }

    fn header(port: u16) -> Header {
        let flow = FlowKey { protocol: FlowKey::UDP, source_port: port, ..FlowKey::default() };
        Header { flow, ..Header::default() }
    }

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    /// How many of these packets, each with its time in µs and its size, may replace others.
    fn admitted(guard: &mut Guard, packets: impl IntoIterator<Item = (u64, u64)>) -> usize {
        let admitted =
            |(micros, size)| guard.on_packet(at(micros), &header(1), Bytes::new(size)).is_none();
        packets.into_iter().map(admitted).filter(|admitted| *admitted).count()
    }

    #[test]
    fn even_updates_are_admitted_after_a_second() {
        let updates = |gap: u64| (0..2000).map(move |n| (n * gap, 200 + n % 20));
        assert_eq!(admitted(&mut guard(), updates(5_000)), 2000 - 200);
        assert_eq!(admitted(&mut guard(), updates(1_000_000)), 2000 - 8);
        // With a jitter of a half of the gap.
        let jittered = (0..2000).map(|n| (n * 5_000 + n * 7919 % 2_500, 200));
        assert_eq!(admitted(&mut guard(), jittered), 2000 - 200);
    }

    #[test]
    fn frames_of_a_video_are_never_admitted() {
        // 10 packets of 1200 bytes, 30 times per second, sent at once or spread over 1 ms.
        for spread in [0, 10, 100] {
            let frames =
                (0..300).flat_map(|n| (0..10).map(move |k| (n * 33_333 + k * spread, 1228)));
            assert_eq!(admitted(&mut guard(), frames), 0, "{spread}");
        }
        // One packet per frame, of unequal sizes.
        let sizes = (0..300).map(|n| (n * 33_333, 200 + n * 7919 % 1000));
        assert!(admitted(&mut guard(), sizes) == 0);
    }

    #[test]
    fn one_irregular_packet_puts_a_flow_on_trial_again() {
        let mut guard = guard();
        let updates = |from: u64| (0..300).map(move |n| (from + n * 10_000, 200));
        assert_eq!(admitted(&mut guard, updates(0)), 200);
        let irregular = guard.on_packet(at(3_000_100), &header(1), Bytes::new(1200));
        assert_eq!(irregular, Some(Irregularity::Sizes));
        assert_eq!(guard.on_packet(at(3_010_000), &header(1), Bytes::new(200)), irregular);
        assert_eq!(admitted(&mut guard, updates(3_020_000)), 300 - 99);
    }

    #[test]
    fn a_flow_with_the_header_of_a_stream_stays_one_until_it_is_forgotten() {
        let mut guard = guard();
        let quic = Header { stream: Some(StreamProtocol::Quic), ..header(1) };
        guard.on_packet(at(0), &quic, Bytes::new(200));
        let updates = |from: u64| (1..=300).map(move |n| (from + n * 10_000, 200));
        assert_eq!(admitted(&mut guard, updates(0)), 0);
        assert_eq!(admitted(&mut guard, updates(64_000_000)), 200);
    }

    #[test]
    fn a_flood_of_flows_takes_no_memory() {
        let mut guard = guard();
        for n in 0..50_000 {
            let _ = guard.on_packet(at(n), &header(n as u16), Bytes::new(100));
        }
        assert_eq!(guard.flows.len(), 1024);
    }

    proptest! {
        /// Whatever a flow does, it is admitted only after a second of regular packets.
        #[test]
        fn no_flow_is_admitted_early(
            packets in prop::collection::vec((0u64..400_000, 28u64..1500), 1..60),
        ) {
            let mut guard = guard();
            let (mut now, mut before) = (0, None::<u64>);
            let mut even_since = 0;
            for (gap, size) in packets {
                now += gap;
                if before.is_none_or(|before| size.abs_diff(before) > before / 4 + 32) {
                    even_since = now;
                }
                before = Some(size);
                let admitted = guard.on_packet(at(now), &header(1), Bytes::new(size)).is_none();
                prop_assert!(!admitted || now - even_since >= 1_000_000);
            }
        }
    }
}
