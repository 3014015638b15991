//! The steady state of a link that flows of updates share with traffic that fills the rest: mean
//! age, and throughput left for that traffic.
//!
//! ```text
//! d = update/C    l = drop-averse packet/C    ρ = N·d/T: what updates ask for
//! age = p + d + T/2 + wait                    drop-averse = C·(1 − used)
//!
//! SDM   round = N·d/γ                         from an update of a flow to its next
//!   round ≤ T   wait = l/2                                 used = ρ
//!   round > T   wait = round/2                             used = γ
//!
//! TDM   frame = T_f + l (T_f at γ = 1)        a packet in transmission at the end of an interval
//!   ρ ≤ 1       closed = (1 − γ)·T_f + 3·l/2, at most frame (0 at γ = 1); arrivals then are queued
//!               M = N·min(1, closed/T)        flows with a queued update at the end of it
//!               wait = (closed² + (frame − closed)·l + closed·(M − 1)⁺·d + (M·d)²) / (2·frame)
//!               used = (N·(frame − closed)/T + M·(1 − (M − 1)⁺·d/(2·T)))·d / frame
//!   ρ > 1       frame = T_f + (d + l)/2
//!               closed = (1 − γ)·T_f + l/2    (0 at γ = 1)
//!               wait = (closed² + (frame + closed)·N·d) / (2·frame)
//!               used = (frame − closed) / frame
//! ```
//!
//! The age and the rate left for drop-averse traffic both fall as γ rises; the book proves it.

use crate::router::{AoiShare, SchedulerParams, TdmParams};
use crate::unit::{BitRate, Bytes, Span};

/// A link, N flows of periodic updates, and drop-averse traffic that fills the rest.
///
/// All flows have the same period and size, and their updates are spread evenly over the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bottleneck {
    /// C: the rate of the link, above zero.
    pub rate: BitRate,
    /// p: the propagation delay.
    pub propagation: Span,
    /// N: the number of flows of updates, at least one.
    pub flows: u32,
    /// T: from one update of a flow to its next, above zero.
    pub update_period: Span,
    /// An update on the wire, with all headers, above zero.
    pub update_size: Bytes,
    /// A drop-averse packet on the wire, with all headers; zero for a fluid, which can be
    /// interrupted anywhere.
    pub drop_averse_size: Bytes,
}

/// The result of a share of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// The mean age of each flow behind the link.
    pub age: Span,
    /// The throughput left for drop-averse traffic, with all headers.
    pub drop_averse: BitRate,
}

/// Parameters outside the model's range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A parameter is zero.
    #[error("`{0}` is zero; give one above zero")]
    Zero(&'static str),
    /// No share for updates.
    #[error("a share of 0 lets no update past traffic that fills the link; give one above 0")]
    NoShare,
    /// The updates of all flows do not fit into their part of the frame.
    #[error(
        "updates have {share} of a frame of {frame}, and need {needed} to catch up with queued \
         updates; give a longer frame, or a larger share"
    )]
    FrameTooShort {
        /// The frame.
        frame: Span,
        /// The share of updates.
        share: AoiShare,
        /// The time that the queued updates, and arrivals meanwhile, take.
        needed: Span,
    },
    /// While one packet is sent, more updates arrive than the model can follow.
    #[error(
        "a drop-averse packet takes {packet}, longer than the {left} that updates leave in every \
         period; the model holds for SDM and a share of at most {most:.6}"
    )]
    LinkTooSlow {
        /// The transmission time of a drop-averse packet.
        packet: Span,
        /// The time left of a period after an update of each flow.
        left: Span,
        /// The maximum share.
        most: f64,
    },
}

impl Bottleneck {
    /// The steady state with the share γ of updates, above 0. SDM's credit does not enter.
    pub fn predict(
        &self,
        scheduler: SchedulerParams,
        share: AoiShare,
    ) -> Result<Prediction, ModelError> {
        let model = Model::new(self, scheduler)?;
        if share == AoiShare::ZERO {
            return Err(ModelError::NoShare);
        }
        let (least, most) = model.shares();
        if share.get() > most {
            let packet = Span::from_secs_f64(model.drop_averse);
            let left = Span::from_secs_f64(model.period - model.updates());
            let most = model.updates() / (model.updates() + model.drop_averse);
            return Err(ModelError::LinkTooSlow { packet, left, most });
        }
        match scheduler {
            SchedulerParams::Tdm(TdmParams { frame }) if share.get() < least => {
                let needed = Span::from_secs_f64(model.catching_up());
                Err(ModelError::FrameTooShort { frame, share, needed })
            }
            _ => Ok(model.prediction(share)),
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
    /// T_f, for TDM.
    frame: Option<f64>,
}

impl Model {
    pub(super) fn new(link: &Bottleneck, scheduler: SchedulerParams) -> Result<Self, ModelError> {
        let frame = match scheduler {
            SchedulerParams::Sdm(_) => None,
            SchedulerParams::Tdm(TdmParams { frame: Span::ZERO }) => {
                return Err(ModelError::Zero("frame"));
            }
            SchedulerParams::Tdm(TdmParams { frame }) => Some(frame.as_secs_f64()),
        };
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
            frame,
        })
    }

    /// N·d: the time that an update of each flow takes.
    pub(super) fn updates(&self) -> f64 {
        self.flows * self.update
    }

    /// Whether updates alone would fill the link: ρ > 1.
    fn overloaded(&self) -> bool {
        self.updates() > self.period
    }

    /// How long updates have priority after a closed interval: the time for the queued ones, and
    /// for arrivals while they are sent.
    fn catching_up(&self) -> f64 {
        if self.overloaded() {
            self.updates()
        } else {
            self.updates() / (1.0 - self.updates() / self.period)
        }
    }

    /// The minimum and the maximum share for which the model holds; there may be none between.
    pub(super) fn shares(&self) -> (f64, f64) {
        let left = self.period - self.updates();
        let most = match self.frame {
            _ if self.overloaded() || self.drop_averse <= left => 1.0,
            None => self.updates() / (self.updates() + self.drop_averse),
            Some(_) => 0.0,
        };
        (self.frame.map_or(0.0, |frame| self.catching_up() / frame), most)
    }

    pub(super) fn prediction(&self, share: AoiShare) -> Prediction {
        let (wait, used) = match self.frame {
            None => self.sdm(share.get()),
            Some(frame) => self.tdm(share.get(), frame),
        };
        Prediction {
            age: Span::from_secs_f64(self.age_without_wait() + wait),
            drop_averse: BitRate::from_bps(libm::round(self.rate * (1.0 - used).max(0.0)) as u64),
        }
    }

    /// A share above the transition point of SDM, with some distance from it, if `share` is above
    /// it.
    pub(super) fn clear_of_the_transition(&self, share: AoiShare) -> Option<f64> {
        let above = self.frame.is_none() && self.updates() / share.get() <= self.period;
        let margin = self.drop_averse.max(0.01 * self.period);
        above.then(|| (self.updates() / (self.period - margin)).min(1.0))
    }

    /// The mean age without queueing.
    fn age_without_wait(&self) -> f64 {
        self.propagation + self.update + self.period / 2.0
    }

    /// The mean time until the next service of an update's flow, over all updates including
    /// replaced ones, in s, and the fraction of the link that updates use.
    fn sdm(&self, share: f64) -> (f64, f64) {
        let round = self.updates() / share;
        if round <= self.period {
            (self.drop_averse / 2.0, self.updates() / self.period)
        } else {
            (round / 2.0, share)
        }
    }

    /// As [`Model::sdm`].
    fn tdm(&self, share: f64, frame: f64) -> (f64, f64) {
        let closed = (1.0 - share) * frame;
        let strict = share == 1.0;
        if self.overloaded() {
            let round = self.updates();
            if strict {
                return (round / 2.0, 1.0);
            }
            let closed = closed + self.drop_averse / 2.0;
            let frame = frame + (self.update + self.drop_averse) / 2.0;
            let wait = (closed * closed + (frame + closed) * round) / (2.0 * frame);
            return (wait, (frame - closed) / frame);
        }
        if strict {
            return (self.drop_averse / 2.0, self.updates() / self.period);
        }
        let frame = frame + self.drop_averse;
        let closed = (closed + 1.5 * self.drop_averse).min(frame);
        let open = frame - closed;
        let waiting = self.flows * (closed / self.period).min(1.0);
        let others = (waiting - 1.0).max(0.0) * self.update;
        let rush = waiting * self.update;
        let delays = closed * closed + open * self.drop_averse + closed * others + rush * rush;
        let replaced_in_rush = waiting * others / (2.0 * self.period);
        let served = self.flows * open / self.period + waiting - replaced_in_rush;
        (delays / (2.0 * frame), served * self.update / frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::analysis::{PAPER, PulseTrain, Tie};
    use crate::router::{Credit, SdmParams};
    use alloc::string::ToString;
    use proptest::prelude::*;

    const SDM: SchedulerParams = SchedulerParams::Sdm(SdmParams { credit: Credit::Unlimited });

    fn tdm(frame: Span) -> SchedulerParams {
        SchedulerParams::Tdm(TdmParams { frame })
    }

    fn share(share: f64) -> AoiShare {
        AoiShare::new(share).unwrap()
    }

    fn ms(span: Span) -> f64 {
        span.as_millis_f64()
    }

    #[test]
    fn the_papers_truthful_row_is_the_plateau_of_sdm_above_the_transition_point() {
        let truthful = PAPER.predict(SDM, share(0.5)).unwrap();
        assert_eq!(truthful, PAPER.predict(SDM, share(0.3)).unwrap());
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
        let below = fluid.predict(SDM, share(0.168_319)).unwrap();
        let above = fluid.predict(SDM, share(0.168_321)).unwrap();
        assert!((ms(below.age) - ms(above.age) - 2.5).abs() < 1e-4);
        assert!(below.drop_averse.as_bps().abs_diff(above.drop_averse.as_bps()) < 20);
    }

    #[test]
    fn one_flow_under_fluid_sdm_is_a_pulse_train_with_the_output_period_d_over_gamma() {
        let fluid = Bottleneck { drop_averse_size: Bytes::ZERO, ..PAPER };
        let transmission = fluid.rate.time_to_send(fluid.update_size);
        for gamma in [0.01, 0.05, 0.123, 0.168, 0.17, 0.3, 1.0] {
            let train = PulseTrain {
                update_period: fluid.update_period,
                output_period: transmission.mul_f64(1.0 / gamma),
                transmission,
                propagation: fluid.propagation,
            };
            let predicted = fluid.predict(SDM, share(gamma)).unwrap().age;
            assert!((ms(predicted) - ms(train.generic_ifil_age())).abs() < 1e-5, "{gamma}");
            assert!(train.ifil_age(Tie::ArrivalFirst) <= predicted + Span::from_nanos(2));
        }
    }

    #[test]
    fn flows_that_overload_the_link_take_turns() {
        let crowd = Bottleneck { flows: 60, ..PAPER };
        let alone = crowd.predict(SDM, share(1.0)).unwrap();
        assert_eq!(alone.drop_averse, BitRate::from_bps(0));
        let round = 60.0 * 0.8416;
        assert!((ms(alone.age) - (10.0 + 0.8416 + 2.5 + round / 2.0)).abs() < 1e-3);
        let half = crowd.predict(SDM, share(0.5)).unwrap();
        assert!((ms(half.age) - ms(alone.age) - round / 2.0).abs() < 1e-3);
        assert_eq!(half.drop_averse, BitRate::from_mbps(5));
        // With all the time for updates, both schedulers do the same.
        let frame = Span::from_secs(1);
        assert_eq!(crowd.predict(tdm(frame), share(1.0)), Ok(alone));
    }

    #[test]
    fn what_the_model_cannot_answer_it_says() {
        let short = tdm(Span::from_millis(10));
        let zero = Bottleneck { flows: 0, ..PAPER };
        assert_eq!(zero.predict(short, share(0.5)), Err(ModelError::Zero("flows")));
        assert_eq!(PAPER.predict(SDM, AoiShare::ZERO), Err(ModelError::NoShare));
        let error = PAPER.predict(short, share(0.05)).unwrap_err().to_string();
        assert!(error.contains("larger share"), "{error}");
        let never = tdm(Span::ZERO);
        assert_eq!(PAPER.predict(never, share(0.5)), Err(ModelError::Zero("frame")));
    }

    /// Of any size and speed, with equal weight for each order of magnitude.
    fn bottleneck() -> impl Strategy<Value = Bottleneck> {
        let magnitude = |from: f64, to: f64| (from..to).prop_map(libm::exp10);
        let (rate, period) = (magnitude(5.0, 10.0), magnitude(-6.0, 0.0));
        (rate, 0u64..100, 1u32..200, period, 1u64..9000, 0u64..9000).prop_map(
            |(rate, delay, flows, period, update, other)| Bottleneck {
                rate: BitRate::from_bps(rate as u64),
                propagation: Span::from_millis(delay),
                flows,
                update_period: Span::from_secs_f64(period),
                update_size: Bytes::new(update),
                drop_averse_size: Bytes::new(other),
            },
        )
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
                None => SDM,
                Some(micros) => tdm(Span::from_micros(micros)),
            };
            let (less, more) = (share(one.min(other)), share(one.max(other)));
            let both = (link.predict(scheduler, less), link.predict(scheduler, more));
            if let (Ok(less), Ok(more)) = both {
                // Rounded to a ns and a bit/s.
                prop_assert!(more.age <= less.age + Span::from_nanos(1));
                prop_assert!(more.drop_averse.as_bps() <= less.drop_averse.as_bps() + 1);
            }
        }
    }
}
