//! A model of the kernel's receive path (NAPI): when the kernel stamps the packets of a frame.
//!
//! ```text
//!  frame's end ─► interrupt ─► poll: a packet, a packet, … budget ─► other work ─► poll … ─► ring empty
//!                 │ latency          └ gaps of some µs                └ pause             │
//!                 └── not before the last interrupt + mitigation, if busy ◄────────────┘
//! ```
//!
//! A card writes the packets of a frame to a ring and raises an interrupt. Its handler turns
//! interrupts off and lets the kernel poll (NAPI): up to `budget` packets, each stamped when it is
//! taken and then processed; then other work has its turn. When the ring is empty, interrupts are
//! enabled again. So:
//!
//! - within a poll, stamps differ by the processing time: gaps of a few µs inside a frame;
//! - a frame longer than the budget has pauses inside;
//! - a frame that arrives while the previous one is still polled is taken in the same poll: the
//!   closer processing is to the rate on the air, the smaller the gap between frames, until it
//!   vanishes;
//! - a busy card delays interrupts (mitigation), and frames that arrive meanwhile merge.
//!
//! Hassani, MSc thesis, sections 4.4 to 4.4.2, shows such stamps (Figures 4.11 and 4.13) and names
//! the causes, without numbers.
//!
//! # Where the paper is silent
//!
//! - **[`NapiParams::HANDSET`]** follows from the text's statements on rates, on the channel of its
//!   figures (866.7 Mbit/s, frames of up to 64 packets here): at 100 Mbit/s, packets of a frame are
//!   a few µs apart; at 300 Mbit/s, where frames begin to exceed 8 packets, there are some gaps
//!   inside frames, hence the budget; from 500 Mbit/s on, boundaries blur, hence mitigation, and
//!   processing and pauses that together take most of the 17.4 µs per packet of full frames; with
//!   full frames, there are few errors again, hence a card that is polled without pauses while
//!   packets are queued.
//! - **[`NapiParams::LOOPBACK`]** is not a card: a relay writes the packets of a frame one by one,
//!   and each is stamped in the call that sends it. Its numbers are measured; the book has the
//!   command.
//! - **Busy** is determined by an exponentially weighted mean of the gaps between packets, with a
//!   weight of 1/64 per packet.
//! - A full ring would drop packets. This model does not: after `patience`, other work waits
//!   instead.

use rand::RngExt;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

use crate::unit::{Span, Time};

/// The receive path from a card into the kernel. A spread is the mean of an exponential time that
/// is added to the field before it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct NapiParams {
    /// From an interrupt's cause to the first packet's stamp.
    pub latency: Span,
    /// Its spread.
    pub latency_spread: Span,
    /// The processing time of a packet, above zero.
    pub packet: Span,
    /// Its spread.
    pub packet_spread: Span,
    /// Packets per poll, at least 1.
    pub budget: u32,
    /// The pause between two polls while packets are queued.
    pub pause: Span,
    /// Its spread.
    pub pause_spread: Span,
    /// A packet queued for longer than this is taken without pauses before it.
    pub patience: Span,
    /// The minimum time between two interrupts of a busy card.
    pub mitigation: Span,
    /// The rate from which on a card is busy, in packets per second, above zero.
    pub busy: f64,
    /// The probability, 0 to 1, of a preemption after a packet.
    pub preempted: f64,
    /// The mean duration of a preemption, an exponential time.
    pub preemption: Span,
}

impl NapiParams {
    /// A mobile handset, as section 4.4 describes its stamps.
    pub const HANDSET: Self = Self {
        latency: Span::from_micros(15),
        latency_spread: Span::from_micros(10),
        packet: Span::from_micros(5),
        packet_spread: Span::from_micros(1),
        budget: 8,
        pause: Span::from_micros(60),
        pause_spread: Span::from_micros(20),
        patience: Span::from_micros(600),
        mitigation: Span::from_micros(700),
        busy: 45_000.0,
        preempted: 0.001,
        preemption: Span::from_micros(150),
    };

    /// The loopback behind the path emulator.
    pub const LOOPBACK: Self = Self {
        latency: Span::from_micros(50),
        latency_spread: Span::from_micros(20),
        packet: Span::from_micros(3),
        packet_spread: Span::from_micros(6),
        budget: u32::MAX,
        pause: Span::ZERO,
        pause_spread: Span::ZERO,
        patience: Span::from_millis(2),
        mitigation: Span::ZERO,
        busy: 1e9,
        preempted: 0.001,
        preemption: Span::from_millis(2),
    };

    /// The receive path, without packets.
    ///
    /// # Errors
    /// A field out of its range.
    pub fn build(self, rng: Pcg64) -> Result<Napi, NapiError> {
        let refuse = |field, is_right: bool| if is_right { Ok(()) } else { Err(NapiError(field)) };
        refuse("`packet` above zero", !self.packet.is_zero())?;
        refuse("`budget` from 1 on", self.budget > 0)?;
        refuse("`busy` above zero", self.busy > 0.0)?;
        refuse("`preempted` from 0 to 1", (0.0..=1.0).contains(&self.preempted))?;
        Ok(Napi {
            params: self,
            rng,
            arrived_at: Time::ZERO,
            gap: None,
            interrupt_at: None,
            free_at: Time::ZERO,
            polled: 0,
        })
    }
}

impl Default for NapiParams {
    fn default() -> Self {
        Self::HANDSET
    }
}

/// A setting out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stamps of the kernel: give {0}")]
pub struct NapiError(&'static str);

/// Stamps packets, without allocation.
#[derive(Debug, Clone)]
pub struct Napi {
    params: NapiParams,
    rng: Pcg64,
    arrived_at: Time,
    /// The mean time between packets in seconds; `None` before there are two.
    gap: Option<f64>,
    interrupt_at: Option<Time>,
    /// When the processing of the last packet ends.
    free_at: Time,
    /// Packets since the last pause.
    polled: u32,
}

impl Napi {
    /// The stamp of a packet that arrived in the ring at `now`, which never goes back. It is later
    /// than all earlier stamps.
    pub fn stamp(&mut self, now: Time) -> Time {
        self.measure(now);
        let params = self.params;
        let starts_at = if now > self.free_at || self.interrupt_at.is_none() {
            self.polled = 0;
            let held_until = self.interrupt_at.filter(|_| self.is_busy());
            let held_until = held_until.map_or(now, |before| before + params.mitigation);
            let latency = self.draw(params.latency, params.latency_spread);
            let interrupt_at = now.max(held_until);
            self.interrupt_at = Some(interrupt_at);
            interrupt_at + latency
        } else if self.polled >= params.budget && self.free_at.since(now) < params.patience {
            self.polled = 0;
            self.free_at + self.draw(params.pause, params.pause_spread)
        } else {
            self.free_at
        };
        self.polled = self.polled.saturating_add(1);
        self.free_at = starts_at + self.draw(params.packet, params.packet_spread);
        if self.rng.random::<f64>() < params.preempted {
            let away = self.draw(Span::ZERO, params.preemption);
            self.free_at += away;
        }
        starts_at
    }

    fn measure(&mut self, now: Time) {
        let gap = now.since(self.arrived_at).as_secs_f64();
        if self.interrupt_at.is_some() {
            self.gap = Some(self.gap.map_or(gap, |mean| mean + (gap - mean) / 64.0));
        }
        self.arrived_at = now;
    }

    fn is_busy(&self) -> bool {
        self.gap.is_some_and(|gap| gap * self.params.busy < 1.0)
    }

    fn draw(&mut self, least: Span, spread: Span) -> Span {
        if spread.is_zero() {
            return least;
        }
        let drawn: f64 = Exp1.sample(&mut self.rng);
        least + spread.mul_f64(drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use rand::SeedableRng;

    /// Without random times.
    const EXACT: NapiParams = NapiParams {
        latency: Span::from_micros(10),
        latency_spread: Span::ZERO,
        packet: Span::from_micros(5),
        packet_spread: Span::ZERO,
        budget: 3,
        pause: Span::from_micros(50),
        pause_spread: Span::ZERO,
        patience: Span::from_millis(2),
        mitigation: Span::from_micros(300),
        busy: 20_000.0,
        preempted: 0.0,
        preemption: Span::ZERO,
    };

    fn napi(params: NapiParams) -> Napi {
        params.build(Pcg64::seed_from_u64(1)).unwrap()
    }

    /// Stamps of packets that come at these times, all in µs.
    fn stamps(params: NapiParams, came: &[u64]) -> Vec<u64> {
        let mut napi = napi(params);
        let at = |micros: &u64| Time::ZERO + Span::from_micros(*micros);
        came.iter().map(|micros| napi.stamp(at(micros)).since(Time::ZERO).as_micros()).collect()
    }

    #[test]
    fn a_frame_is_polled_with_pauses_and_the_next_one_after_an_interrupt() {
        let came = [0, 0, 0, 0, 1_000, 1_000];
        assert_eq!(stamps(EXACT, &came), [10, 15, 20, 75, 1_010, 1_015]);
    }

    #[test]
    fn a_frame_that_comes_during_a_poll_is_joined() {
        assert_eq!(stamps(EXACT, &[0, 0, 17, 17]), [10, 15, 20, 75]);
    }

    #[test]
    fn a_busy_card_holds_interrupts_back() {
        let idle = NapiParams { busy: 1e9, budget: 100, ..EXACT };
        assert_eq!(stamps(idle, &[0, 0, 100, 100]), [10, 15, 110, 115]);
        let busy = NapiParams { busy: 20_000.0, ..idle };
        assert_eq!(stamps(busy, &[0, 0, 0, 0, 100, 100, 200]), [10, 15, 20, 25, 310, 315, 320]);
    }

    #[test]
    fn a_way_that_cannot_be_is_refused() {
        for (params, what) in [
            (
                NapiParams { packet: Span::ZERO, ..EXACT },
                "stamps of the kernel: give `packet` above zero",
            ),
            (NapiParams { budget: 0, ..EXACT }, "stamps of the kernel: give `budget` from 1 on"),
            (
                NapiParams { busy: f64::NAN, ..EXACT },
                "stamps of the kernel: give `busy` above zero",
            ),
            (
                NapiParams { preempted: 2.0, ..EXACT },
                "stamps of the kernel: give `preempted` from 0 to 1",
            ),
        ] {
            let error = params.build(Pcg64::seed_from_u64(1)).unwrap_err();
            assert_eq!(alloc::string::ToString::to_string(&error), what);
        }
    }

    proptest! {
        #[test]
        fn stamps_rise_and_are_never_before_the_packet_and_keep_up(
            gaps in prop::collection::vec(prop_oneof![Just(0u64), 0..2_000u64], 1..300),
        ) {
            let mut napi = napi(NapiParams::HANDSET);
            let (mut now, mut last) = (Time::ZERO, None);
            for gap in gaps {
                now += Span::from_micros(gap);
                let stamp = napi.stamp(now);
                prop_assert!(stamp >= now && last.is_none_or(|last| stamp > last));
                last = Some(stamp);
            }
        }
    }
}
