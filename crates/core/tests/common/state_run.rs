//! States of n symbols over a path, slot by slot: ages at the receiver under the law, and under fixed rules.
//!
//! One symbol may leave in each slot. The symbol of slot t arrives at t + R/2 unless `lost[t]`, and
//! the source learns that at t + R. A loss is known when a symbol that left three slots later or
//! more is acknowledged, or 9/8 R after it left (RFC 9002). All rules are run with the same losses.

use freshline_core::state::repair::{CurrentState, FormerState, NewerState, Params, Repair};
use freshline_core::unit::Span;

/// The length of a slot. Only its ratio to the round trip matters.
const SLOT: Span = Span::from_millis(1);

/// How symbols are lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Channel {
    pub(crate) loss: f64,
    /// The mean number of losses in a row; 0: independent.
    pub(crate) burst: f64,
}

impl Channel {
    /// The fate of the symbol of each slot, from a seed.
    pub(crate) fn losses(self, slots: usize, seed: u64) -> Vec<bool> {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678_9ABC_DEF1);
        for _ in 0..16 {
            random.next();
        }
        if self.burst <= 0.0 {
            return (0..slots).map(|_| random.next() < self.loss).collect();
        }
        let to_good = 1.0 / self.burst;
        let to_bad = to_good * self.loss / (1.0 - self.loss);
        let mut is_bad = random.next() < self.loss;
        let mut fate = || {
            let was_bad = is_bad;
            is_bad = if is_bad { random.next() >= to_good } else { random.next() < to_bad };
            was_bad
        };
        (0..slots).map(|_| fate()).collect()
    }
}

/// Xorshift64*.
struct Random(u64);

impl Random {
    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A course of states.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course<'a> {
    pub(crate) symbols: u32,
    /// Slots.
    pub(crate) round_trip: u32,
    /// The slots in which states are put, in ascending order, the first one 0; `None`: the next state is
    /// sampled when it begins.
    pub(crate) puts: Option<&'a [u32]>,
    pub(crate) lost: &'a [bool],
}

/// When the former state is repaired.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Former {
    Never,
    /// If the current state has `ratio` times as many symbols to send as the round has; `extra` are
    /// repair symbols of the round beyond the shortage.
    Ratio {
        ratio: f64,
        extra: u32,
    },
    /// Always, and no third state begins before it is complete.
    Always,
}

/// A rule that chooses the next symbol to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    Law,
    /// The law, but a state that was put replaces the current one until this share of it has left.
    LawReplacing(f64),
    Fixed {
        repair: u32,
        former: Former,
        /// Known losses of the current state are sent again.
        retransmits: bool,
        /// The next state begins when the current one is known to be complete.
        is_waiting: bool,
    },
}

/// Ages in slots, the forward delay included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) mean: f64,
    pub(crate) p99: f64,
    /// The maximum time between two deliveries.
    pub(crate) max_gap: u32,
    /// States that arrived, and symbols that left, per slot.
    pub(crate) delivered: f64,
    pub(crate) sent: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    number: u64,
    born: u32,
    unsent: u32,
    lost: u32,
    in_flight: u32,
    acked: u32,
    received: u32,
    /// Repair symbols to send now.
    repair: u32,
    is_planned: bool,
}

impl State {
    fn needed(&self, n: u32) -> u32 {
        n.saturating_sub(self.acked)
    }

    fn shortage(&self, n: u32) -> u32 {
        self.needed(n).saturating_sub(self.in_flight)
    }
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    number: u64,
    is_acked: bool,
}

enum Choice {
    Former,
    Current,
    Idle,
}

struct Run<'a> {
    course: Course<'a>,
    rule: Rule,
    law: Repair,
    now: u32,
    current: State,
    former: Option<State>,
    sent: Vec<Option<Sent>>,
    /// Slots before this one are accounted for.
    known: u32,
    /// The newest state that is delivered: at the receiver, and as the source knows.
    newest: Option<(u64, u32)>,
    newest_known: Option<u32>,
    /// When a state was last sent to its end.
    ended: u32,
    /// Generation of the state that was put last, and how many were.
    put: u32,
    puts: usize,
    gaps: (u32, u32),
    deliveries: u64,
}

/// The ages under `rule`. The first quarter of the course is left out.
pub(crate) fn run(course: Course<'_>, rule: Rule) -> Outcome {
    let mut law = Repair::new(Params::default());
    law.on_slot(SLOT);
    law.on_round_trip(SLOT * u64::from(course.round_trip));
    let mut run = Run {
        course,
        rule,
        law,
        now: 0,
        current: State { unsent: course.symbols, ..State::default() },
        former: None,
        sent: Vec::with_capacity(course.lost.len()),
        known: 0,
        newest: None,
        newest_known: None,
        ended: 0,
        put: 0,
        puts: 0,
        gaps: (0, 0),
        deliveries: 0,
    };
    let slots = course.lost.len() as u32;
    let warm = slots / 4;
    let mut ages = vec![0u32; slots as usize + 1];
    for now in 0..slots {
        run.now = now;
        run.step();
        if now >= warm {
            ages[(now - run.newest.map_or(0, |(_, born)| born)) as usize] += 1;
        }
    }
    let counted = f64::from(slots - warm);
    let delay = f64::from(course.round_trip) / 2.0 + 0.5;
    let sum: f64 = ages.iter().enumerate().map(|(age, count)| age as f64 * f64::from(*count)).sum();
    let mut left = counted * 0.99;
    let p99 = ages.iter().position(|count| {
        left -= f64::from(*count);
        left <= 0.0
    });
    Outcome {
        mean: sum / counted + delay,
        p99: p99.unwrap_or(0) as f64 + delay,
        max_gap: run.gaps.1,
        delivered: run.deliveries as f64 / f64::from(slots),
        sent: run.sent.iter().flatten().count() as f64 / f64::from(slots),
    }
}

/// The mean age if the source knew the fate of each symbol at once, and sent each state until it is complete:
/// infinite incremental redundancy with feedback at once.
pub(crate) fn mean_with_instant_feedback(course: Course<'_>) -> f64 {
    let (mut born, mut newest, mut received) = (0, None, 0);
    let (mut sum, mut count) = (0.0, 0);
    for (now, lost) in course.lost.iter().enumerate() {
        received += u32::from(!lost);
        if received == course.symbols {
            (newest, received) = (Some(born), 0);
            born = now + 1;
        }
        if let Some(newest) = newest.filter(|_| now >= course.lost.len() / 4) {
            sum += (now - newest) as f64;
            count += 1;
        }
    }
    sum / f64::from(count) + f64::from(course.round_trip) / 2.0 + 0.5
}

impl Run<'_> {
    fn step(&mut self) {
        self.take_feedback();
        self.take_put();
        let n = self.course.symbols;
        let sent = match self.choose() {
            Choice::Idle => None,
            Choice::Former => {
                let former = self.former.as_mut().expect("chosen");
                former.repair -= 1;
                former.in_flight += 1;
                Some(former)
            }
            Choice::Current => {
                let current = &mut self.current;
                if current.is_planned {
                    current.repair -= 1;
                } else if current.lost > 0 {
                    current.lost -= 1;
                } else {
                    current.unsent -= 1;
                }
                current.in_flight += 1;
                Some(current)
            }
        };
        let Some(state) = sent else { return self.sent.push(None) };
        self.sent.push(Some(Sent { number: state.number, is_acked: false }));
        if self.course.lost[self.now as usize] {
            return;
        }
        state.received += 1;
        if state.received == n {
            self.deliveries += 1;
            let (number, born) = (state.number, state.born);
            if self.newest.is_none_or(|(newest, _)| number > newest) {
                self.newest = Some((number, born));
                self.gaps.1 = self.gaps.1.max(self.now - self.gaps.0);
                self.gaps.0 = self.now;
            }
        }
    }

    fn state(&mut self, number: u64) -> Option<&mut State> {
        if self.current.number == number {
            return Some(&mut self.current);
        }
        self.former.as_mut().filter(|former| former.number == number)
    }

    fn take_feedback(&mut self) {
        let (n, round_trip) = (self.course.symbols, self.course.round_trip);
        let mut known = self.known;
        if let Some(slot) = self.now.checked_sub(round_trip)
            && let Some(sent) = self.sent[slot as usize]
            && !self.course.lost[slot as usize]
        {
            self.sent[slot as usize] = Some(Sent { is_acked: true, ..sent });
            let mut newest_known = self.newest_known;
            if let Some(state) = self.state(sent.number) {
                state.acked += 1;
                state.in_flight -= 1;
                if state.acked == n {
                    newest_known = newest_known.max(Some(state.born));
                }
            }
            self.newest_known = newest_known;
            known = known.max((slot + 1).saturating_sub(3));
        }
        if let Some(slot) = self.now.checked_sub(round_trip + round_trip.div_ceil(8)) {
            known = known.max(slot);
        }
        while self.known < known {
            let slot = self.known as usize;
            self.known += 1;
            let Some(sent) = self.sent[slot] else { continue };
            if sent.is_acked {
                self.law.on_arrived();
                continue;
            }
            self.law.on_lost();
            if let Some(state) = self.state(sent.number) {
                state.in_flight -= 1;
                state.lost += 1;
            }
        }
    }

    /// A state is put.
    fn take_put(&mut self) {
        let Some(puts) = self.course.puts else { return };
        self.puts += puts[self.puts..].iter().take_while(|put| **put <= self.now).count();
        let newest = puts[self.puts - 1];
        if newest <= self.put {
            return;
        }
        self.put = newest;
        let sending = self.current.unsent + self.current.lost;
        if sending == 0 || self.current.is_planned {
            return;
        }
        let newer = NewerState {
            symbols: self.course.symbols,
            gain: SLOT * u64::from(newest - self.current.born),
        };
        let replaces = match self.rule {
            Rule::Law => self.law.should_replace(&self.current_state(), &newer),
            Rule::LawReplacing(share) => {
                let left = self.course.symbols - sending.min(self.course.symbols);
                f64::from(left) < share * f64::from(self.course.symbols)
            }
            Rule::Fixed { .. } => false,
        };
        if replaces {
            self.begin(newest);
        }
    }

    fn begin(&mut self, born: u32) {
        let number = self.current.number + 1;
        self.current = State { number, born, unsent: self.course.symbols, ..State::default() };
    }

    fn current_state(&self) -> CurrentState {
        let gain = self.former.map_or(0, |former| self.current.born - former.born);
        let age = self.newest_known.map(|born| SLOT * u64::from(self.now - born));
        CurrentState {
            symbols: self.course.symbols,
            remaining: self.current.unsent + self.current.lost,
            gain: SLOT * u64::from(gain),
            delivered_age: age.unwrap_or(Span::MAX),
            spent: self.now - self.ended,
        }
    }

    fn choose(&mut self) -> Choice {
        let n = self.course.symbols;
        if self.plan_former() {
            return Choice::Former;
        }
        let retransmits = !matches!(self.rule, Rule::Fixed { retransmits: false, .. });
        if !self.current.is_planned {
            if self.current.unsent > 0 || (retransmits && self.current.lost > 0) {
                if !retransmits {
                    self.current.lost = 0;
                }
                return Choice::Current;
            }
            self.current.is_planned = true;
            self.current.repair = self.repair_of_current();
        }
        let shortage = self.current.shortage(n);
        if self.current.repair == 0 && shortage > 0 && retransmits {
            self.current.repair = match self.rule {
                Rule::Fixed { .. } => shortage,
                _ => shortage + self.repair_of_current(),
            };
        }
        if self.current.repair > 0 && self.current.needed(n) > 0 {
            return Choice::Current;
        }
        if self.may_begin() {
            self.ended = self.now;
            self.former = Some(self.current).filter(|state| state.acked < n);
            let born = if self.course.puts.is_some() { self.put } else { self.now };
            self.begin(born);
            return Choice::Current;
        }
        Choice::Idle
    }

    fn may_begin(&self) -> bool {
        let n = self.course.symbols;
        if let Rule::Fixed { former, is_waiting, .. } = self.rule {
            let is_held = self.former.is_some_and(|former| former.acked < n);
            if (former == Former::Always && is_held) || (is_waiting && self.current.acked < n) {
                return false;
            }
        }
        self.course.puts.is_none() || self.put > self.current.born
    }

    fn repair_of_current(&self) -> u32 {
        let n = self.course.symbols;
        match self.rule {
            Rule::Fixed { repair, .. } => repair,
            _ => self.law.repair_symbols(n, self.current.needed(n)),
        }
    }

    /// Whether a symbol of the former state leaves now.
    fn plan_former(&mut self) -> bool {
        let n = self.course.symbols;
        let current = self.current_state();
        let Some(mut former) = self.former else { return false };
        if former.acked >= n {
            self.former = None;
            return false;
        }
        let shortage = former.shortage(n);
        if former.repair == 0 && shortage > 0 {
            let gain =
                self.newest_known.map(|born| SLOT * u64::from(former.born.saturating_sub(born)));
            let state = FormerState {
                needed: former.needed(n),
                in_flight: former.in_flight,
                gain: gain.unwrap_or(Span::MAX),
            };
            former.repair = match self.rule {
                Rule::Fixed { former, .. } => match former {
                    Former::Never => 0,
                    Former::Always => shortage,
                    Former::Ratio { ratio, extra } => {
                        let round = shortage + extra;
                        let is_worth = f64::from(current.remaining) > ratio * f64::from(round);
                        if is_worth { round } else { 0 }
                    }
                },
                _ => self.law.repair_round(&state, &current),
            };
        }
        self.former = Some(former);
        former.repair > 0
    }
}
