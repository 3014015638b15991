//! Limits on a source's updates and bytes: they hold for every law, and from the first packet.
//!
//! The law decides when an update should leave. [`Limited`] drives it and delays the update until
//! no limit is exceeded. With T = 1/rate and the time t since the first packet:
//!
//! | limit | from the start | in any window of length t |
//! |---|---|---|
//! | `max_rate` | 1 + t/T states | 2 + t/T states |
//! | `min_age_gain`, with its rate | 1 + t/T updates | 2 + t/T updates |
//! | `max_bandwidth` | rate · t + [`BURST`] + one update | the same |
//!
//! ```text
//! states, updates   may leave at now ≥ tat − T                tat ← max(now, tat) + T       first: + 2T
//! bytes             may leave at now ≥ paid − BURST/rate      paid ← max(now, paid) + bytes/rate
//! ```
//!
//! Both are the virtual scheduling of ITU-T I.371 (GCRA), in whole ns. The second update of the
//! burst is for a law that sends pairs (`service`), and for drivers whose timers are late; at the
//! limit there is no burst. Bytes are those of IP packets: payload, the protocol's header, QUIC,
//! UDP and IP. The driver reports them after they have left ([`Limited::on_bytes`]), so that
//! packets that no law asked for, as those of a handshake, count as well: an update then waits
//! longer.
//!
//! The law is informed of its limits by its [`RateBounds`]: their ceiling becomes the lowest limit.
//! So its rate does not grow beyond the sent rate, and it does not take a limit for the path's
//! capacity. The floor of a law is stronger than `min_age_gain`, but not than the other limits.
//!
//! **States in parts.** A state that takes several updates counts once for `max_rate`, when it
//! begins ([`Limited::on_begin`]): the parts that go on with it are not held up, and leave as fast
//! as the law and the path allow, so that it is complete early. While there are such states
//! `max_rate` does not lower the law's ceiling, which is a rate of updates. `min_age_gain` then has
//! the rate above which no rate lowers the mean age of such states by w
//! ([`Repair::max_rate`](crate::state::Repair::max_rate)): 2·a times that of whole states, for a
//! mean age of a slots.
//!
//! A session's openings follow their own backoff; they count, but do not wait for `max_rate` for
//! longer than the session allows.

use alloc::boxed::Box;

use super::min_age_gain::MinAgeGain;
use super::{Ack, Phase, RateBounds, RateLaw};
use crate::unit::{BitRate, Bytes, Span, Time, UpdateRate};

/// Bytes that may leave before the bandwidth is limited: two packets of full size, as QUIC's
/// handshake needs.
pub const BURST: Bytes = Bytes::new(3_000);

/// Weight of the newest update in the mean size of updates.
const SMOOTHING: f64 = 0.125;

/// After this number of whole states in a row a source counts as one without states in parts: those
/// of mixed lengths do not make its ceiling jump.
const WHOLE: u32 = 16;

/// Limits on the rate and data of a source; none by default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Maximum rate of states; one that takes several updates counts once.
    pub max_rate: Option<UpdateRate>,
    /// The improvement of the mean age that is worth a higher rate; for adaptive laws.
    pub min_age_gain: MinAgeGain,
    /// Maximum data rate as a long-term average, with all headers.
    pub max_bandwidth: Option<BitRate>,
}

impl Limits {
    /// No limits.
    pub const NONE: Self =
        Self { max_rate: None, min_age_gain: MinAgeGain::OFF, max_bandwidth: None };
}

impl Default for Limits {
    fn default() -> Self {
        Self::NONE
    }
}

/// A limit that slows a source down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::max_rate`].
    MaxRate,
    /// [`Limits::min_age_gain`].
    MinAgeGain,
    /// [`Limits::max_bandwidth`].
    MaxBandwidth,
}

impl Limit {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::MaxRate => "max_rate",
            Self::MinAgeGain => "min_age_gain",
            Self::MaxBandwidth => "max_bandwidth",
        }
    }
}

/// A law within limits. It is driven as a [`RateLaw`] is.
pub struct Limited {
    law: Box<dyn RateLaw>,
    /// The law's own bounds; `None` if it does not adapt its rate.
    own: Option<RateBounds>,
    limits: Limits,
    /// Half of the smallest round trip.
    base: Option<Span>,
    /// The rate of `min_age_gain` with this base and `cut`, cached as it is needed more often than
    /// these change.
    worthwhile: Option<UpdateRate>,
    /// Of states, within `max_rate`.
    states: Pace,
    /// Of updates, within the rate of `min_age_gain`.
    updates: Pace,
    /// The last state in parts, if recent.
    cut: Option<Cut>,
    /// Whole states since.
    whole: u32,
    /// When all bytes so far are paid for.
    paid: Time,
    sizes: Sizes,
}

/// The virtual scheduling of one rate.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    /// When the next one would leave at the limit.
    tat: Option<Time>,
}

/// A state that takes several updates.
#[derive(Debug, Clone, Copy)]
struct Cut {
    symbols: f64,
    /// The mean age of such states without the delay, in periods of the law's rate.
    age_slots: f64,
}

/// The bytes of an update.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    mean: Option<f64>,
    /// Bytes since the last update left, once one has.
    since: Option<Bytes>,
}

impl Limited {
    /// `law` within `limits`.
    pub fn new(law: Box<dyn RateLaw>, limits: Limits) -> Self {
        let own = law.bounds();
        let mut limited = Self {
            law,
            own,
            limits,
            base: None,
            worthwhile: None,
            states: Pace::default(),
            updates: Pace::default(),
            cut: None,
            whole: 0,
            paid: Time::ZERO,
            sizes: Sizes::default(),
        };
        limited.apply_limits();
        limited
    }

    /// The law.
    pub fn law(&self) -> &dyn RateLaw {
        &*self.law
    }

    /// Whether there is a limit of the bandwidth.
    pub fn has_max_bandwidth(&self) -> bool {
        self.limits.max_bandwidth.is_some()
    }

    /// Whether the law adapts its rate to the path.
    pub fn adapts(&self) -> bool {
        self.own.is_some()
    }

    /// See [`RateLaw::restart`]. The path may be another one; data sent so far still counts.
    pub fn restart(&mut self, now: Time) {
        self.base = None;
        self.law.restart(now);
        self.apply_limits();
    }

    /// See [`RateLaw::on_sent`]: an update with a whole state, or one that names a state again.
    #[inline]
    pub fn on_sent(&mut self, now: Time, seq: u64) {
        self.states.count(now, self.limits.max_rate);
        self.on_part(now, seq);
    }

    /// The same for an update with a whole state. After some in a row, states do not count as in
    /// parts.
    pub fn on_whole(&mut self, now: Time, seq: u64) {
        self.whole = self.whole.saturating_add(1);
        if self.cut.is_some() && self.whole >= WHOLE {
            self.cut = None;
            self.apply_limits();
        }
        self.on_sent(now, seq);
    }

    /// A state that takes several updates begins: its first part leaves now. It has this number of
    /// symbols, and `age_slots` is [`Repair::age_slots`](crate::state::Repair::age_slots).
    pub fn on_begin(&mut self, now: Time, symbols: u32, age_slots: f64) {
        self.states.count(now, self.limits.max_rate);
        self.whole = 0;
        self.cut = Some(Cut { symbols: symbols.max(1).into(), age_slots: age_slots.max(0.5) });
        self.apply_limits();
    }

    /// See [`RateLaw::on_sent`]: an update with a part of a state.
    #[inline]
    pub fn on_part(&mut self, now: Time, seq: u64) {
        self.updates.count(now, self.worthwhile);
        self.law.on_sent(now, seq);
        if self.limits.max_bandwidth.is_some() {
            self.sizes.next();
            self.apply_limits();
        }
    }

    /// An update left that the law did not ask for, such as an opening of the session.
    pub fn on_opening(&mut self, now: Time) {
        self.states.count(now, self.limits.max_rate);
        self.on_empty_opening(now);
    }

    /// The same for one that carries no state.
    pub fn on_empty_opening(&mut self, now: Time) {
        self.updates.count(now, self.worthwhile);
    }

    /// This many bytes left, with all headers: those of an update after its [`Limited::on_sent`],
    /// and all others.
    pub fn on_bytes(&mut self, now: Time, bytes: Bytes) {
        let Some(rate) = self.limits.max_bandwidth else { return };
        self.paid = self.paid.max(now) + rate.time_to_send(bytes);
        if let Some(since) = &mut self.sizes.since {
            *since += bytes;
        }
    }

    /// See [`RateLaw::on_ack`].
    pub fn on_ack(&mut self, now: Time, ack: &Ack) {
        if self.limits.min_age_gain != MinAgeGain::OFF {
            let base = (now.since(ack.sent_at) - ack.hold) / 2;
            if self.base.is_none_or(|least| base < least) {
                self.base = Some(base);
                self.apply_limits();
            }
        }
        self.law.on_ack(now, ack);
    }

    /// An update was due, and the source left its unchanged state out: see
    /// [`RateLaw::on_unchanged`].
    pub fn on_unchanged(&mut self, now: Time) {
        self.law.on_unchanged(now);
    }

    /// See [`RateLaw::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        self.law.handle_timeout(now);
    }

    /// See [`RateLaw::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        self.law.poll_timeout()
    }

    /// See [`RateLaw::next_update_at`]; not before the limits allow an update with a state.
    #[inline]
    pub fn next_update_at(&self) -> Option<Time> {
        Some(self.law.next_update_at()?.max(self.not_before()))
    }

    /// The same for an update that goes on with a state.
    pub fn next_part_at(&self) -> Option<Time> {
        Some(self.law.next_update_at()?.max(self.part_not_before()))
    }

    /// The earliest time at which the limits allow an update with a state, or the first part of
    /// one. It may lie in the past.
    #[inline]
    pub fn not_before(&self) -> Time {
        self.states.not_before(self.limits.max_rate).max(self.part_not_before())
    }

    /// The same for an update that goes on with a state.
    #[inline]
    pub fn part_not_before(&self) -> Time {
        self.updates.not_before(self.worthwhile).max(self.affordable_at())
    }

    /// The earliest time at which the bandwidth allows an update or an opening.
    #[inline]
    pub fn affordable_at(&self) -> Time {
        let burst = self.limits.max_bandwidth.map(|rate| rate.time_to_send(BURST));
        burst.map_or(Time::ZERO, |burst| self.paid - burst)
    }

    /// The earliest time at which the bandwidth allows an update and `reserve` more at once; at
    /// most [`BURST`] can be.
    pub fn affordable_with(&self, reserve: Bytes) -> Time {
        let rate = self.limits.max_bandwidth;
        self.affordable_at() + rate.map_or(Span::ZERO, |rate| rate.time_to_send(reserve))
    }

    /// The limit of the number of updates with a state each.
    pub fn max_rate(&self) -> Option<UpdateRate> {
        let both = [self.limits.max_rate, self.worthwhile];
        both.into_iter().flatten().reduce(|one, other| one.clamp(UpdateRate::MIN, other))
    }

    /// See [`RateLaw::wants_ack`].
    pub fn wants_ack(&self, now: Time) -> bool {
        self.law.wants_ack(now)
    }

    /// See [`RateLaw::rate`].
    pub fn rate(&self) -> UpdateRate {
        self.law.rate()
    }

    /// See [`RateLaw::phase`].
    pub fn phase(&self) -> Phase {
        self.law.phase()
    }

    /// The limit without which the source would, or might, send more.
    pub fn limited_by(&self) -> Option<Limit> {
        let (rate, limit) = self.lowest(self.max_state_rate())?;
        let wish = self.law.rate();
        let is_reached = match self.own {
            // Its ceiling is the limit.
            Some(own) => wish >= own.clamp(rate) && rate <= own.ceiling,
            None => wish > rate,
        };
        is_reached.then_some(limit)
    }

    // ---- steps ----

    /// The rate that is worth it, of an adaptive law, and not below its floor.
    fn min_age_gain(&self, own: RateBounds) -> Option<UpdateRate> {
        let rate = self.limits.min_age_gain.max_rate(self.base.unwrap_or(Span::ZERO))?;
        // The formula is for an age of half a slot.
        let rate = self.cut.map_or(rate, |cut| times(rate, 2.0 * cut.age_slots));
        Some(rate.clamp(own.floor, UpdateRate::MAX))
    }

    /// The rate of updates that the bandwidth allows, by their mean size.
    fn affordable(&self) -> Option<UpdateRate> {
        let bytes_per_second = self.limits.max_bandwidth?.as_bps() as f64 / 8.0;
        Some(UpdateRate::saturating(bytes_per_second / self.sizes.mean?))
    }

    /// The rate of updates at which states leave at `max_rate`.
    fn max_state_rate(&self) -> Option<UpdateRate> {
        Some(times(self.limits.max_rate?, self.cut.map_or(1.0, |cut| cut.symbols)))
    }

    /// The limit that allows the lowest rate of updates, of which `max_rate` allows this one.
    fn lowest(&self, max_rate: Option<UpdateRate>) -> Option<(UpdateRate, Limit)> {
        let all = [
            (max_rate, Limit::MaxRate),
            (self.worthwhile, Limit::MinAgeGain),
            (self.affordable(), Limit::MaxBandwidth),
        ];
        let all = all.into_iter().filter_map(|(rate, limit)| Some((rate?, limit)));
        all.reduce(|low, next| if next.0 < low.0 { next } else { low })
    }

    /// Lowers the law's ceiling to the lowest limit.
    fn apply_limits(&mut self) {
        let Some(own) = self.own else { return };
        self.worthwhile = self.min_age_gain(own);
        let max_rate = self.limits.max_rate.filter(|_| self.cut.is_none());
        let ceiling = match self.lowest(max_rate) {
            Some((rate, _)) => own.ceiling.clamp(UpdateRate::MIN, rate),
            None => own.ceiling,
        };
        self.law.set_bounds(RateBounds { ceiling, ..own });
    }
}

impl Pace {
    fn count(&mut self, now: Time, rate: Option<UpdateRate>) {
        let Some(rate) = rate else { return };
        let period = rate.period();
        let tat = self.tat.map_or(now + period * 2, |tat| tat.max(now) + period);
        // An opening that did not wait delays no more than the next update.
        self.tat = Some(tat.min(now + period * 2));
    }

    fn not_before(&self, rate: Option<UpdateRate>) -> Time {
        self.tat.zip(rate).map_or(Time::ZERO, |(tat, rate)| tat - rate.period())
    }
}

fn times(rate: UpdateRate, factor: f64) -> UpdateRate {
    UpdateRate::saturating(rate.per_second() * factor)
}

impl Sizes {
    /// The next update leaves: all bytes since the last one are the cost of that one.
    fn next(&mut self) {
        if let Some(since) = self.since.replace(Bytes::ZERO) {
            let sample = since.get() as f64;
            let mean = self.mean.map_or(sample, |mean| mean + SMOOTHING * (sample - mean));
            self.mean = Some(mean.max(1.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::super::{Fixed, Lazy, LazyParams};
    use super::*;

    /// Updates of a law that wants to send all the time, at times that the driver reaches late.
    fn updates(limits: Limits, lateness: &[u64], sizes: &[u64]) -> Vec<(Time, u64)> {
        let law = Box::new(Fixed::new(UpdateRate::saturating(1e6)));
        let mut limited = Limited::new(law, limits);
        let mut now = Time::ZERO;
        let each = lateness.iter().zip(sizes.iter().cycle()).enumerate();
        each.map(|(seq, (late, size))| {
            let due = limited.next_update_at().expect("a fixed rate");
            now = now.max(due) + Span::from_micros(*late);
            limited.on_sent(now, seq as u64);
            limited.on_bytes(now, Bytes::new(*size));
            (now, *size)
        })
        .collect()
    }

    proptest! {
        #[test]
        fn bytes_from_the_start_and_in_each_window_stay_below_rate_and_burst(
            kbit in 2u64..20_000,
            lateness in prop::collection::vec(0u64..50_000, 1..200),
            sizes in prop::collection::vec(40u64..1_500, 1..20),
        ) {
            let max_bandwidth = Some(BitRate::from_bps(1_000 * kbit));
            let sent = updates(Limits { max_bandwidth, ..Limits::NONE }, &lateness, &sizes);
            let most = sizes.iter().max().expect("some");
            for (first, (from, _)) in sent.iter().enumerate() {
                let mut bytes = 0;
                for (at, size) in &sent[first..] {
                    bytes += size;
                    let earned = at.since(*from).as_secs_f64() * 125.0 * kbit as f64;
                    prop_assert!(bytes as f64 <= earned + (BURST.get() + most) as f64 + 1.0);
                }
            }
        }

        #[test]
        fn updates_from_the_start_and_in_each_window_stay_below_the_rate(
            per_second in 0.1f64..5_000.0,
            lateness in prop::collection::vec(0u64..50_000, 1..200),
        ) {
            let rate = UpdateRate::saturating(per_second);
            let sent = updates(Limits { max_rate: Some(rate), ..Limits::NONE }, &lateness, &[84]);
            for (first, (from, _)) in sent.iter().enumerate() {
                let burst = if first == 0 { 1.0 } else { 2.0 };
                for (count, (at, _)) in sent[first..].iter().enumerate() {
                    let earned = at.since(*from).as_secs_f64() / rate.period().as_secs_f64();
                    prop_assert!((count + 1) as f64 <= earned + burst + 1e-6);
                }
            }
        }
    }

    #[test]
    fn the_long_term_average_is_reached() {
        let max_bandwidth = Some(BitRate::from_bps(200_000));
        let sent = updates(Limits { max_bandwidth, ..Limits::NONE }, &[30; 2_000], &[500]);
        let (last, _) = sent[sent.len() - 1];
        let bps = (2_000.0 * 500.0 - 3_500.0) * 8.0 / last.since(Time::ZERO).as_secs_f64();
        assert!((195_000.0..=200_000.0).contains(&bps), "{bps}");
    }

    #[test]
    fn without_limits_nothing_is_delayed() {
        let mut limited = Limited::new(Box::new(Lazy::new(LazyParams::default())), Limits::NONE);
        limited.on_opening(Time::ZERO);
        limited.on_bytes(Time::ZERO, Bytes::MAX);
        assert_eq!(limited.next_update_at(), limited.law().next_update_at());
        assert_eq!((limited.not_before(), limited.limited_by()), (Time::ZERO, None));
    }

    #[test]
    fn a_state_in_parts_counts_once_and_its_parts_are_not_held_up() {
        let law = Box::new(Fixed::new(UpdateRate::saturating(1_000.0)));
        let limits = Limits { max_rate: UpdateRate::new(10.0), ..Limits::NONE };
        let (mut limited, mut now) = (Limited::new(law, limits), Time::ZERO);
        limited.on_begin(now, 20, 29.0);
        for seq in 0..20 {
            limited.on_part(now, seq);
            now = limited.next_part_at().expect("a fixed rate");
        }
        assert_eq!(now, Time::ZERO + Span::from_millis(20));
        assert_eq!(limited.next_update_at(), Some(Time::ZERO + Span::from_millis(100)));
        assert_eq!(limited.limited_by(), Some(Limit::MaxRate), "1000/s are 50 states/s");
    }

    #[test]
    fn max_rate_does_not_lower_the_ceiling_of_a_law_that_sends_parts() {
        let limits = Limits { max_rate: UpdateRate::new(10.0), ..Limits::NONE };
        let ceiling = UpdateRate::saturating(500.0);
        let bounds = RateBounds { ceiling, ..RateBounds::default() };
        let law = Box::new(Lazy::new(LazyParams { bounds, ..LazyParams::default() }));
        let mut limited = Limited::new(law, limits);
        let set = |limited: &Limited| limited.law.bounds().expect("it adapts").ceiling;
        assert_eq!(set(&limited), UpdateRate::saturating(10.0));
        limited.on_begin(Time::ZERO, 20, 29.0);
        assert_eq!(set(&limited), ceiling);
    }

    #[test]
    fn some_whole_states_in_a_row_end_the_limit_of_states_in_parts() {
        let limits = Limits { max_rate: UpdateRate::new(10.0), ..Limits::NONE };
        let mut limited = Limited::new(Box::new(Lazy::new(LazyParams::default())), limits);
        let ceiling = |limited: &Limited| limited.law.bounds().expect("it adapts").ceiling;
        limited.on_begin(Time::ZERO, 20, 29.0);
        for seq in 0..u64::from(WHOLE) {
            assert!(ceiling(&limited) > UpdateRate::saturating(10.0));
            limited.on_whole(Time::ZERO, seq);
        }
        assert_eq!(ceiling(&limited), UpdateRate::saturating(10.0));
    }

    #[test]
    fn a_law_is_informed_of_the_lowest_limit_and_reports_name_it() {
        let limits = Limits {
            max_rate: UpdateRate::new(800.0),
            min_age_gain: MinAgeGain::default(),
            max_bandwidth: Some(BitRate::from_bps(80_000)),
        };
        let mut limited = Limited::new(Box::new(Lazy::new(LazyParams::default())), limits);
        let mut now = Time::ZERO;
        let mut round_trip = |limited: &mut Limited, seq: u64, size| {
            limited.on_sent(now, seq);
            limited.on_bytes(now, Bytes::new(size));
            let sent_at = now;
            now += Span::from_micros(100);
            let ack = Ack { fresh: seq as u32 + 1, ..Ack::of(seq, sent_at, now) };
            limited.on_ack(now, &ack);
        };
        round_trip(&mut limited, 0, 10);
        assert_eq!(limited.rate(), UpdateRate::saturating(800.0), "10,000/s by the round trip");
        assert_eq!(limited.limited_by(), Some(Limit::MaxRate));
        round_trip(&mut limited, 1, 100);
        // 80 kbit/s are 1000 updates/s of 10 bytes.
        assert_eq!(limited.limited_by(), Some(Limit::MaxRate));
        for seq in 2..100 {
            round_trip(&mut limited, seq, 100);
        }
        let rate = limited.rate().per_second();
        assert!((100.0..101.0).contains(&rate), "{rate}");
        assert_eq!(limited.limited_by(), Some(Limit::MaxBandwidth));
    }

    #[test]
    fn what_is_worth_it_is_no_limit_to_a_fixed_rate_or_below_a_floor() {
        let limits = Limits { min_age_gain: MinAgeGain::default(), ..Limits::NONE };
        let law = Box::new(Fixed::new(UpdateRate::saturating(5e3)));
        let fixed = Limited::new(law, limits);
        assert_eq!((fixed.max_rate(), fixed.limited_by()), (None, None));
        let floor = UpdateRate::saturating(2e3);
        let bounds = RateBounds { floor, ceiling: UpdateRate::saturating(1e4) };
        let law = Box::new(Lazy::new(LazyParams { bounds, ..LazyParams::default() }));
        let limited = Limited::new(law, limits);
        assert_eq!((limited.max_rate(), limited.rate()), (Some(floor), floor));
    }
}
