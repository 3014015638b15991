//! A link that flows of updates share with traffic that fills the rest.
//!
//! ```text
//! d = update/C    l = drop-averse packet/C    base = p + d + T/2: an update that never waits
//! R = N·d + l, or N·d above T: a round, one update of each flow, at γ = 1
//!
//! SDM     round = max(N·d/γ, R)
//!   round ≤ T   age = base + l/2                  drop-averse C·(1 − N·d/T)
//!   round > T   age = base + round/2              drop-averse C·(1 − N·d/round)
//!
//! TDM     closed = (1 − γ)·frame + l/2, or 0 at γ = 1: updates wait for the end of it
//!         open = γ·frame + (u·d + (1 − u)·l)/2, u = N·d/max(R, T)
//!         M = N·min(1, closed/T): flows of which an update waits then
//!   R ≤ T       wait = (closed²/2 + closed·l + open·l/2 + closed·(M − 1)⁺·d/2 + (M·d)²/2)
//!                      / (open + closed)
//!               used = (open·N/T + M)·d / (open + closed)
//!   R > T       wait = (closed²/2 + closed·R + open·R/2) / (open + closed)
//!               used = open·N·d/R / (open + closed)
//!               age = base + wait                drop-averse C·(1 − used)
//! ```
//!
//! Ages fall and drop-averse throughput falls as γ rises; the book proves it.

use crate::unit::{BitRate, Bytes, Span};

/// A link, N flows of periodic updates, and drop-averse traffic that fills the rest.
///
/// All flows are alike, and the moments of their updates are spread evenly over the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bottleneck {
    /// C: the rate of the link, above zero.
    pub rate: BitRate,
    /// p: the propagation delay.
    pub propagation: Span,
    /// N: how many flows of updates there are, at least one.
    pub flows: u32,
    /// T: from one update of a flow to its next, above zero.
    pub update_period: Span,
    /// An update on the wire, with all headers, above zero.
    pub update_size: Bytes,
    /// A drop-averse packet on the wire, with all headers; zero for a fluid, which can be
    /// interrupted anywhere.
    pub drop_averse_size: Bytes,
}

/// What divides the link between the classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// By bytes sent (size-driven multiplexing).
    Sdm,
    /// By time (time-division multiplexing).
    Tdm {
        /// The time in which each class has the priority once, above zero.
        frame: Span,
    },
}

/// What a share of the link leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// The mean age of each flow behind the link.
    pub age: Span,
    /// What is left for drop-averse traffic, with all headers.
    pub drop_averse: BitRate,
}

/// A question that the model has no answer to.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// Nothing is sent, or it is sent infinitely often.
    #[error("`{0}` is zero; give one above zero")]
    Zero(&'static str),
    /// Not a share of updates.
    #[error(
        "the share of updates is {0}; give one above 0 (where nothing leaves past traffic that \
         fills the link) and at most 1"
    )]
    NotAShare(f64),
    /// The updates of all flows do not fit into their part of the frame.
    #[error(
        "a frame of {frame} leaves updates {share} of it, but one of each flow takes {round}; \
         give a longer frame, or a share of at least {least}"
    )]
    FrameTooShort {
        /// The frame.
        frame: Span,
        /// The share of updates.
        share: f64,
        /// What an update of each flow takes.
        round: Span,
        /// The least share; above 1 if none is enough.
        least: f64,
    },
}

impl Bottleneck {
    /// The steady state with the share γ = `share` of updates, above 0 and at most 1.
    pub fn predict(&self, scheduler: Scheduler, share: f64) -> Result<Prediction, ModelError> {
        let model = Model::new(self)?;
        if !(share > 0.0 && share <= 1.0) {
            return Err(ModelError::NotAShare(share));
        }
        let least = model.least_share(scheduler)?;
        match scheduler {
            Scheduler::Tdm { frame } if share < least => Err(ModelError::FrameTooShort {
                frame,
                share,
                round: Span::from_secs_f64(model.updates()),
                least,
            }),
            _ => Ok(model.prediction(scheduler, share)),
        }
    }
}

/// A bottleneck in seconds and bits per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    rate: f64,
    pub(super) period: f64,
    /// N.
    flows: f64,
    /// d.
    update: f64,
    /// l.
    pub(super) drop_averse: f64,
    propagation: f64,
}

impl Model {
    pub(super) fn new(link: &Bottleneck) -> Result<Self, ModelError> {
        let needed = [
            ("rate", link.rate.as_bps()),
            ("flows", link.flows.into()),
            ("update_period", link.update_period.as_nanos()),
            ("update_size", link.update_size.get()),
        ];
        if let Some((name, _)) = needed.into_iter().find(|(_, value)| *value == 0) {
            return Err(ModelError::Zero(name));
        }
        let rate = link.rate.as_bps() as f64;
        let time_to_send = |size: Bytes| 8.0 * size.get() as f64 / rate;
        Ok(Self {
            rate,
            period: link.update_period.as_secs_f64(),
            flows: link.flows.into(),
            update: time_to_send(link.update_size),
            drop_averse: time_to_send(link.drop_averse_size),
            propagation: link.propagation.as_secs_f64(),
        })
    }

    /// N·d: the time that an update of each flow takes.
    pub(super) fn updates(&self) -> f64 {
        self.flows * self.update
    }

    /// R: the time from one update of a flow to its next if updates go first, as far as it is
    /// longer than T. A packet of the other class leaves whenever no update waits.
    pub(super) fn fastest_round(&self) -> f64 {
        if self.updates() > self.period {
            self.updates()
        } else {
            self.updates() + self.drop_averse
        }
    }

    /// The least share for which the model holds; 0 if it holds for all above.
    pub(super) fn least_share(&self, scheduler: Scheduler) -> Result<f64, ModelError> {
        match scheduler {
            Scheduler::Sdm => Ok(0.0),
            Scheduler::Tdm { frame } if frame.is_zero() => Err(ModelError::Zero("frame")),
            Scheduler::Tdm { frame } => Ok(self.updates() / frame.as_secs_f64()),
        }
    }

    pub(super) fn prediction(&self, scheduler: Scheduler, share: f64) -> Prediction {
        let (wait, used) = match scheduler {
            Scheduler::Sdm => self.sdm(share),
            Scheduler::Tdm { frame } => self.tdm(share, frame.as_secs_f64()),
        };
        Prediction {
            age: Span::from_secs_f64(self.age_without_wait() + wait),
            drop_averse: BitRate::from_bps(libm::round(self.rate * (1.0 - used).max(0.0)) as u64),
        }
    }

    /// A share at or above the transition point of SDM, moved away from it.
    pub(super) fn clear_of_the_transition(&self, share: f64) -> f64 {
        if self.fastest_round() > self.period || self.updates() / share > self.period {
            return share;
        }
        let margin = self.drop_averse.max(0.01 * self.period);
        (self.updates() / (self.period - margin)).min(1.0)
    }

    /// base: the mean age if no update waits.
    pub(super) fn age_without_wait(&self) -> f64 {
        self.propagation + self.update + self.period / 2.0
    }

    /// The mean time that updates, those that are replaced too, wait for the next service of
    /// their flow, in s, and the part of the link that updates use.
    fn sdm(&self, share: f64) -> (f64, f64) {
        let round = (self.updates() / share).max(self.fastest_round());
        if round <= self.period {
            (self.drop_averse / 2.0, self.updates() / self.period)
        } else {
            (round / 2.0, self.updates() / round)
        }
    }

    /// As [`Model::sdm`].
    fn tdm(&self, share: f64, frame: f64) -> (f64, f64) {
        let round = self.fastest_round();
        // A packet that is under way when an interval ends prolongs it by half of itself.
        let closed = if share < 1.0 { (1.0 - share) * frame + self.drop_averse / 2.0 } else { 0.0 };
        let of_updates = self.updates() / round.max(self.period);
        let last_packet = of_updates * self.update + (1.0 - of_updates) * self.drop_averse;
        let open = share * frame + last_packet / 2.0;
        let until_open = closed * closed / 2.0;
        let (waits, served) = if round > self.period {
            (until_open + (closed + open / 2.0) * round, open * self.flows / round)
        } else {
            let waiting = self.flows * (closed / self.period).min(1.0);
            let rush = waiting * self.update;
            let others = (waiting - 1.0).max(0.0) * self.update;
            let turns = closed * others / 2.0 + rush * rush / 2.0;
            let packets = (closed + open / 2.0) * self.drop_averse;
            (until_open + turns + packets, open * self.flows / self.period + waiting)
        };
        (waits / (open + closed), served * self.update / (open + closed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::analysis::{PulseTrain, Tie};
    use alloc::string::ToString;
    use proptest::prelude::*;

    /// The single link of the paper's Figure 6: an update has 1024 bytes in UDP and IPv4, the
    /// others fill packets of 1500 bytes.
    const PAPER: Bottleneck = Bottleneck {
        rate: BitRate::from_mbps(10),
        propagation: Span::from_millis(10),
        flows: 1,
        update_period: Span::from_millis(5),
        update_size: Bytes::new(1052),
        drop_averse_size: Bytes::new(1500),
    };

    fn ms(span: Span) -> f64 {
        span.as_millis_f64()
    }

    #[test]
    fn the_papers_truthful_row_is_the_plateau_of_sdm_above_the_transition_point() {
        let truthful = PAPER.predict(Scheduler::Sdm, 0.5).unwrap();
        assert_eq!(truthful, PAPER.predict(Scheduler::Sdm, 0.3).unwrap());
        // 10 + 0.84 + 2.5 ms and half a packet of 1.2 ms; 10 − 1.68 Mbit/s.
        assert!((ms(truthful.age) - 13.94).abs() < 0.01, "{truthful:?}");
        assert_eq!(truthful.drop_averse, BitRate::from_bps(8_316_800));
        let paper = 13.57;
        assert!((ms(truthful.age) / paper - 1.0).abs() < 0.05);
    }

    #[test]
    fn at_the_transition_point_the_age_falls_by_half_a_period() {
        let fluid = Bottleneck { drop_averse_size: Bytes::ZERO, ..PAPER };
        // d/T = 0.16832.
        let below = fluid.predict(Scheduler::Sdm, 0.168_319).unwrap();
        let above = fluid.predict(Scheduler::Sdm, 0.168_321).unwrap();
        assert!((ms(below.age) - ms(above.age) - 2.5).abs() < 1e-4);
        assert!(below.drop_averse.as_bps().abs_diff(above.drop_averse.as_bps()) < 20);
    }

    #[test]
    fn one_flow_under_fluid_sdm_is_a_pulse_train_with_the_output_period_d_over_gamma() {
        let fluid = Bottleneck { drop_averse_size: Bytes::ZERO, ..PAPER };
        let transmission = fluid.rate.time_to_send(fluid.update_size);
        for share in [0.01, 0.05, 0.123, 0.168, 0.17, 0.3, 1.0] {
            let train = PulseTrain {
                update_period: fluid.update_period,
                output_period: transmission.mul_f64(1.0 / share),
                transmission,
                propagation: fluid.propagation,
            };
            let predicted = fluid.predict(Scheduler::Sdm, share).unwrap().age;
            assert!((ms(predicted) - ms(train.generic_ifil_age())).abs() < 1e-5, "{share}");
            assert!(train.ifil_age(Tie::ArrivalFirst) <= predicted + Span::from_nanos(2));
        }
    }

    #[test]
    fn flows_that_overload_the_link_take_turns() {
        let crowd = Bottleneck { flows: 60, ..PAPER };
        let alone = crowd.predict(Scheduler::Sdm, 1.0).unwrap();
        assert_eq!(alone.drop_averse, BitRate::from_bps(0));
        let round = 60.0 * 0.8416;
        assert!((ms(alone.age) - (10.0 + 0.8416 + 2.5 + round / 2.0)).abs() < 1e-3);
        let half = crowd.predict(Scheduler::Sdm, 0.5).unwrap();
        assert!((ms(half.age) - ms(alone.age) - round / 2.0).abs() < 1e-3);
        assert_eq!(half.drop_averse, BitRate::from_mbps(5));
        // With all the time for updates, both schedulers do the same.
        let frame = Span::from_secs(1);
        assert_eq!(crowd.predict(Scheduler::Tdm { frame }, 1.0), Ok(alone));
    }

    #[test]
    fn what_the_model_cannot_answer_it_says() {
        let tdm = Scheduler::Tdm { frame: Span::from_millis(10) };
        let zero = Bottleneck { flows: 0, ..PAPER };
        assert_eq!(zero.predict(tdm, 0.5), Err(ModelError::Zero("flows")));
        for share in [0.0, -0.1, 1.1, f64::NAN] {
            let error = PAPER.predict(tdm, share).unwrap_err();
            assert!(matches!(error, ModelError::NotAShare(_)), "{share}");
        }
        let error = PAPER.predict(tdm, 0.05).unwrap_err().to_string();
        assert!(error.contains("at least 0.08416"), "{error}");
        let never = Scheduler::Tdm { frame: Span::ZERO };
        assert_eq!(PAPER.predict(never, 0.5), Err(ModelError::Zero("frame")));
    }

    fn bottleneck() -> impl Strategy<Value = Bottleneck> {
        (100_000u64..10_000_000_000, 0u64..100, 1u32..200, 1u64..1_000_000, 1u64..9000, 0u64..9000)
            .prop_map(|(rate, delay, flows, period, update, other)| Bottleneck {
                rate: BitRate::from_bps(rate),
                propagation: Span::from_millis(delay),
                flows,
                update_period: Span::from_micros(period),
                update_size: Bytes::new(update),
                drop_averse_size: Bytes::new(other),
            })
    }

    proptest! {
        #[test]
        fn a_larger_share_lowers_age_and_drop_averse_throughput(
            link in bottleneck(),
            one in 0.001f64..=1.0,
            other in 0.001f64..=1.0,
            frame in prop::option::of(1u64..1_000_000),
        ) {
            let scheduler = match frame {
                None => Scheduler::Sdm,
                Some(micros) => Scheduler::Tdm { frame: Span::from_micros(micros) },
            };
            let (less, more) = (one.min(other), one.max(other));
            if let Ok(less) = link.predict(scheduler, less) {
                let more = link.predict(scheduler, more).unwrap();
                // Rounded to a ns and a bit/s.
                prop_assert!(more.age <= less.age + Span::from_nanos(1));
                prop_assert!(more.drop_averse.as_bps() <= less.drop_averse.as_bps() + 1);
            }
        }
    }
}
