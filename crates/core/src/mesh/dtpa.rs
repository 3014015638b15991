//! Dynamic TX period adjustment (DTPA) controls the pace of a mesh node's own TCP segments: it
//! spreads a window over a period, so that each node gets the same share c, whatever its loss rate
//! and round trip.
//!
//! ```text
//! x = cwnd / (TXP + RTT)          cwnd = a/√p                  (4.1, 4.3; x in segments/s)
//! TXP = max(a/(c·√p) − RTT, 0)    so that x = c for every node (4.5, 4.6; seconds)
//! p = (timeouts + fast retransmits) / segments sent            Algorithm 2
//! ```
//!
//! The congestion window remains Reno's (4.2); a window's worth of segments takes TXP + RTT instead
//! of RTT. Packets that a node forwards for its children are not delayed. Im, PhD thesis, sections
//! 4.3.1 and 4.3.2.
//!
//! All arithmetic is in integers, for nodes without a floating-point unit and for the kernel, whose
//! program computes the same; the state is at most 64 bytes, and nothing is allocated.
//!
//! # Where the paper is silent
//!
//! - **a** is printed as √3/2, with its root's bar lost: √(3/2), of Reno with an ack for each
//!   segment (Mathis et al. 1997).
//! - **c has a unit**: segments per second, as MSS has been left out of (4.5).
//! - **No loss yet** would be an infinite period; TXP is 0 until the first loss.
//! - **A window that cannot grow to a/√p.** With few losses (4.1) assumes a window that small nodes
//!   do not have, and their period would be far too long: [`DtpaParams::max_window`] bounds the
//!   window. The law as printed has no bound.
//! - **A window that grows beyond a/√p.** That is the mean of Reno's saw. Between two losses its
//!   window grows from W/2 to W in W/2 round trips, in which it sends 3/8·W² = 1/p segments; so its
//!   peak is W = √(8/(3p)) = 4/3·a/√p. Reno stops there because its own window causes a loss, but a
//!   window that is spread over a period causes no loss: it would grow on, and the rate with it. So
//!   the window is limited to the peak and one segment more, since windows are whole, and no node
//!   gets more than (4/3 + √p/a)·c ([`Dtpa::max_window`]). [`DtpaParams::peak_bound`] switches this
//!   off, for the law as printed.
//! - **Weight of old losses.** Algorithm 2 counts from the start; [`DtpaParams::memory`] halves the
//!   counts at intervals.
//! - **Place of the period.** "Wait, then transmit" fits a window of one segment. With more, the
//!   window is spread over TXP + RTT ([`Dtpa::spacing`]): the same rate, and no bursts into a
//!   parent's queue.

use crate::unit::{Span, Time};

/// 3/2 of a² = 3/2, as numerator and denominator.
const A_SQUARED: (u64, u64) = (3, 2);
/// Windows are computed with this many bits behind the point.
const FRACTION_BITS: u32 = 8;
/// In segments. A smaller window would wait for the receiver's delayed acks.
const SMALLEST_WINDOW: u32 = 2;
/// Reno's window just before a loss is 4/3 of its mean.
const PEAK: (u64, u64) = (4, 3);
/// The maximum period: beyond TCP's maximum timeout, a node would be considered dead.
const LONGEST: Span = Span::from_secs(120);

/// The target rate of every node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Share {
    /// c in segments per 1000 s, so that an integer can express a segment per minute; above 0.
    per_1000_s: u32,
}

impl Share {
    /// `per_second` segments per second, rounded to a thousandth; `None` unless between 0.001 and 4
    /// million.
    pub fn per_second(per_second: f64) -> Option<Self> {
        let scaled = per_second * 1e3;
        let is_one = (1.0..=f64::from(u32::MAX)).contains(&scaled);
        is_one.then_some(Self { per_1000_s: (scaled + 0.5) as u32 })
    }

    /// Segments per 1000 s.
    pub const fn per_1000_s(self) -> u32 {
        self.per_1000_s
    }
}

/// Settings of [`Dtpa`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct DtpaParams {
    /// The weight of a new round trip is 1 over this; at least 1. 8: the thesis does not give β,
    /// and 1/8 is TCP's own (RFC 6298).
    pub rtt_weight: u32,
    /// The maximum window in segments, at least 2; unset as printed.
    pub max_window: Option<u32>,
    /// The number of sent segments after which all counts are halved, at least 2; unset as printed.
    pub memory: Option<u32>,
    /// Whether the window is limited to Reno's peak while there is a period; not as printed.
    pub peak_bound: bool,
}

impl Default for DtpaParams {
    fn default() -> Self {
        Self { rtt_weight: 8, max_window: None, memory: None, peak_bound: true }
    }
}

/// An invalid setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DtpaParamsError {
    /// The smoothing would divide by zero.
    #[error("rtt_weight is 0; give 1 or more, 8 is usual")]
    RttWeight,
    /// A window that would wait for the receiver's delayed acks.
    #[error(
        "max_window is below 2; give the segments that the window can grow to, or leave it out"
    )]
    MaxWindow,
    /// Counts that are always zero.
    #[error("memory is below 2; give the segments after which counts are halved, or leave it out")]
    Memory,
}

impl DtpaParams {
    /// # Errors
    /// [`DtpaParamsError`] names the setting that is out of its range.
    pub fn check(&self) -> Result<(), DtpaParamsError> {
        if self.rtt_weight == 0 {
            return Err(DtpaParamsError::RttWeight);
        }
        if self.max_window.is_some_and(|most| most < SMALLEST_WINDOW) {
            return Err(DtpaParamsError::MaxWindow);
        }
        if self.memory.is_some_and(|memory| memory < 2) {
            return Err(DtpaParamsError::Memory);
        }
        Ok(())
    }
}

/// A node's loss and round trip, and the period that follows from them.
#[derive(Debug, Clone, Copy)]
pub struct Dtpa {
    params: DtpaParams,
    /// c; `None`: no limit, and so no period.
    share: Option<Share>,
    sent: u32,
    timeouts: u32,
    fast_retransmits: u32,
    /// Smoothed, in µs; 0 before the first sample.
    srtt_us: u32,
    period_us: u32,
    /// Reno's peak, in whole segments, plus one; 0 while there is no period, and where
    /// [`DtpaParams::peak_bound`] is switched off.
    peak: u32,
}

impl Dtpa {
    /// A node that has sent nothing. Without a share it is Reno.
    ///
    /// # Errors
    /// As [`DtpaParams::check`].
    pub fn new(params: DtpaParams, share: Option<Share>) -> Result<Self, DtpaParamsError> {
        params.check()?;
        let none = 0;
        Ok(Self {
            params,
            share,
            sent: none,
            timeouts: none,
            fast_retransmits: none,
            srtt_us: 0,
            period_us: 0,
            peak: 0,
        })
    }

    /// Sets another share, from the next round trip on.
    pub fn set_share(&mut self, share: Option<Share>) {
        self.share = share;
    }

    /// A segment of the node's own was sent, for the first time or again.
    pub fn on_sent(&mut self, _now: Time) {
        self.sent = self.sent.saturating_add(1);
        let is_old = self.params.memory.is_some_and(|memory| self.sent >= memory);
        if is_old || self.sent == u32::MAX {
            self.sent /= 2;
            self.timeouts /= 2;
            self.fast_retransmits /= 2;
        }
    }

    /// The retransmission timer has expired.
    pub fn on_rto(&mut self, _now: Time) {
        self.timeouts = self.timeouts.saturating_add(1);
    }

    /// Three duplicate acks: a segment is retransmitted.
    pub fn on_fast_retransmit(&mut self, _now: Time) {
        self.fast_retransmits = self.fast_retransmits.saturating_add(1);
    }

    /// An ack gave a valid round trip: the period is computed again.
    pub fn on_round_trip(&mut self, _now: Time, sample: Span) {
        let sample = micros(sample);
        let weight = self.params.rtt_weight;
        self.srtt_us = if self.srtt_us == 0 {
            sample
        } else {
            let sum = u64::from(self.srtt_us) * u64::from(weight - 1) + u64::from(sample);
            (sum / u64::from(weight)) as u32
        };
        let window = self.fair_window();
        let round = self.fair_round_us(window);
        self.period_us = round.saturating_sub(u64::from(self.srtt_us)).min(max_us()) as u32;
        let (over, under) = PEAK;
        let peak = ((window * over / under) >> FRACTION_BITS) as u32 + 1;
        self.peak = if self.period_us > 0 && self.params.peak_bound { peak } else { 0 };
    }

    /// TXP.
    pub fn period(&self) -> Span {
        Span::from_micros(u64::from(self.period_us))
    }

    /// R̂TT; `None` before the first sample.
    pub fn round_trip(&self) -> Option<Span> {
        (self.srtt_us > 0).then(|| Span::from_micros(u64::from(self.srtt_us)))
    }

    /// c.
    pub fn share(&self) -> Option<Share> {
        self.share
    }

    /// The maximum window in segments, at least 2: [`DtpaParams::max_window`], and while there is a
    /// period Reno's peak. TCP limits its window to it, and so does [`Dtpa::spacing`].
    pub fn max_window(&self) -> u32 {
        let peak = if self.peak > 0 { self.peak } else { u32::MAX };
        self.params.max_window.unwrap_or(u32::MAX).min(peak).max(SMALLEST_WINDOW)
    }

    /// The minimum distance of the node's own segments with a window of `cwnd` segments: (TXP +
    /// RTT) / cwnd; `None` while there is no period, and TCP's own clock applies.
    pub fn spacing(&self, cwnd: u32) -> Option<Span> {
        let round = u64::from(self.period_us) + u64::from(self.srtt_us);
        let cwnd = cwnd.clamp(1, self.max_window());
        (self.period_us > 0).then(|| Span::from_micros(round / u64::from(cwnd)))
    }

    /// The loss rate of its segments: timeouts and fast retransmits over segments sent.
    pub fn loss(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { f64::from(self.losses()) / f64::from(self.sent) }
    }

    fn losses(&self) -> u32 {
        self.timeouts.saturating_add(self.fast_retransmits)
    }

    /// a/√p, with [`FRACTION_BITS`]; 0 before the first loss.
    fn fair_window(&self) -> u64 {
        let losses @ 1.. = self.losses() else { return 0 };
        let (over, under) = A_SQUARED;
        // At most 3·2³²·2¹⁶ < 2⁵⁰, and its root's fraction has FRACTION_BITS bits.
        let squared = over * (u64::from(self.sent.max(losses)) << (2 * FRACTION_BITS));
        let mut window = (squared / (under * u64::from(losses))).isqrt();
        if let Some(most) = self.params.max_window {
            window = window.min(u64::from(most) << FRACTION_BITS);
        }
        window
    }

    /// cwnd/c: the round in which a window gives the share; 0 if there is no share.
    fn fair_round_us(&self, window: u64) -> u64 {
        let Some(share) = self.share else { return 0 };
        // Below 2²⁶ · 10⁹, so below 2⁵⁶.
        (window * 1_000_000_000 / u64::from(share.per_1000_s())) >> FRACTION_BITS
    }
}

fn max_us() -> u64 {
    LONGEST.as_micros()
}

/// At most 71 minutes, and at least 1 µs, as 0 means unset.
fn micros(span: Span) -> u32 {
    span.as_micros().clamp(1, u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::ZERO;

    fn node(params: DtpaParams, share: f64, sent: u32, losses: u32) -> Dtpa {
        let mut node = Dtpa::new(params, Share::per_second(share)).unwrap();
        for _ in 0..sent {
            node.on_sent(NOW);
        }
        for _ in 0..losses {
            node.on_rto(NOW);
        }
        node
    }

    /// p = 6 %: a/√p = √(1.5/0.06) = 5 segments, which at 2 a second take 2.5 s.
    #[test]
    fn the_state_is_small() {
        let [law, census] = [size_of::<Dtpa>(), size_of::<crate::mesh::Census>()];
        std::println!("Dtpa: {law} bytes, Census: {census} bytes");
        assert!(law <= 64 && census <= 64, "{law} {census}");
    }

    #[test]
    fn the_period_fills_the_round_trip_up_to_the_share() {
        let mut node = node(DtpaParams::default(), 2.0, 100, 6);
        node.on_round_trip(NOW, Span::from_millis(500));
        assert_eq!(node.period(), Span::from_secs(2));
        assert_eq!(node.spacing(5), Some(Span::from_millis(500)));
    }

    #[test]
    fn who_is_worse_off_than_the_share_does_not_wait() {
        let mut node = node(DtpaParams::default(), 2.0, 100, 6);
        node.on_round_trip(NOW, Span::from_secs(3));
        assert_eq!((node.period(), node.spacing(5)), (Span::ZERO, None));
    }

    #[test]
    fn without_a_loss_or_a_share_there_is_no_period() {
        let mut lucky = node(DtpaParams::default(), 2.0, 100, 0);
        let mut reno = node(DtpaParams::default(), 2.0, 100, 6);
        reno.set_share(None);
        for node in [&mut lucky, &mut reno] {
            node.on_round_trip(NOW, Span::from_millis(500));
            assert_eq!(node.period(), Span::ZERO);
        }
    }

    /// √(1.5/0.0001) is 122 segments, 61 s at 2 per second, of which a window of 4 is 2 s.
    #[test]
    fn a_window_that_cannot_grow_bounds_the_wait() {
        let bounded = DtpaParams { max_window: Some(4), ..DtpaParams::default() };
        for (params, expected) in [(DtpaParams::default(), 60.7), (bounded, 1.5)] {
            let mut node = node(params, 2.0, 10_000, 1);
            node.on_round_trip(NOW, Span::from_millis(500));
            assert!((node.period().as_secs_f64() - expected).abs() < 0.05, "{:?}", node.period());
        }
    }

    /// p = 6 %: of a mean of 5 segments the peak is 20/3, and 7 is the next whole window.
    #[test]
    fn the_window_is_held_to_the_peak_while_there_is_a_period() {
        let mut node = node(DtpaParams::default(), 2.0, 100, 6);
        assert_eq!(node.max_window(), u32::MAX);
        node.on_round_trip(NOW, Span::from_millis(500));
        assert_eq!(node.max_window(), 7);
        assert_eq!(node.spacing(1000), node.spacing(7));
        let printed = DtpaParams { peak_bound: false, ..DtpaParams::default() };
        let mut unbounded = self::node(printed, 2.0, 100, 6);
        unbounded.on_round_trip(NOW, Span::from_millis(500));
        assert_eq!((unbounded.period(), unbounded.max_window()), (node.period(), u32::MAX));
        node.on_round_trip(NOW, Span::from_secs(1000));
        assert_eq!((node.period(), node.max_window()), (Span::ZERO, u32::MAX));
    }

    #[test]
    fn old_losses_are_forgotten_with_a_memory() {
        let mut forgetful =
            node(DtpaParams { memory: Some(64), ..DtpaParams::default() }, 2.0, 40, 20);
        let mut printed = node(DtpaParams::default(), 2.0, 40, 20);
        for node in [&mut forgetful, &mut printed] {
            (0..400).for_each(|_| node.on_sent(NOW));
        }
        assert_eq!(forgetful.loss(), 0.0);
        assert!((printed.loss() - 20.0 / 440.0).abs() < 1e-12);
    }

    #[test]
    fn settings_that_cannot_be_are_named() {
        for (params, error) in [
            (DtpaParams { rtt_weight: 0, ..DtpaParams::default() }, DtpaParamsError::RttWeight),
            (
                DtpaParams { max_window: Some(1), ..DtpaParams::default() },
                DtpaParamsError::MaxWindow,
            ),
            (DtpaParams { memory: Some(1), ..DtpaParams::default() }, DtpaParamsError::Memory),
        ] {
            assert_eq!(Dtpa::new(params, None).unwrap_err(), error);
        }
        assert_eq!([0.0, -1.0, 5e6, f64::NAN].map(Share::per_second), [None; 4]);
    }

    proptest! {
        /// Compares the integers with (4.6) in floating point, to a percent of the window's
        /// fraction.
        #[test]
        fn integers_follow_the_equation(
            sent in 1u32..5000, losses in 1u32..500, rtt_us in 1u64..5_000_000,
            share in 0.01f64..100.0,
        ) {
            let sent = sent.max(losses);
            let mut node = node(DtpaParams::default(), share, sent, losses);
            node.on_round_trip(NOW, Span::from_micros(rtt_us));
            let p = f64::from(losses) / f64::from(sent);
            let share = f64::from(node.share().unwrap().per_1000_s()) / 1e3;
            let round = (1.5 / p).sqrt() / share;
            let expected = (round - rtt_us as f64 / 1e6).clamp(0.0, 120.0);
            prop_assert!((node.period().as_secs_f64() - expected).abs() <= 0.004 * round + 2e-6);
            if !node.period().is_zero() {
                let peak = (8.0 / (3.0 * p)).sqrt();
                prop_assert!((f64::from(node.max_window()) - peak - 0.5).abs() <= 0.51 + 0.004 * peak);
                prop_assert!(node.max_window() >= 2);
                // In segments per second, with the microsecond that is rounded off.
                let fastest = 1.0 / (node.spacing(u32::MAX).unwrap().as_secs_f64() + 1e-6);
                let bound = (4.0 / 3.0 + (p / 1.5).sqrt()) * share;
                prop_assert!(expected == 120.0 || fastest <= 1.01 * bound, "{fastest} {bound}");
            }
        }

        #[test]
        fn any_events_leave_a_period_in_bounds(
            events in prop::collection::vec((0u8..4, any::<u64>()), 0..300),
            share in 1u32.., memory in prop::option::of(2u32..),
        ) {
            let share = Share { per_1000_s: share };
            let params = DtpaParams { memory, ..DtpaParams::default() };
            let mut node = Dtpa::new(params, Some(share)).unwrap();
            for (kind, number) in events {
                match kind {
                    0 => node.on_sent(NOW),
                    1 => node.on_rto(NOW),
                    2 => node.on_fast_retransmit(NOW),
                    _ => node.on_round_trip(NOW, Span::from_nanos(number)),
                }
                prop_assert!(node.period() <= LONGEST);
            }
        }
    }
}
