//! Age of information: the age of the newest information at a receiver, and its measurement.
//!
//! At time t the age is Δ(t) = t − u(t), where u(t) is the generation time of the freshest update
//! received so far (Kaul, Yates, Gruteser, INFOCOM 2012; Shreedhar, PhD thesis, IIIT-Delhi,
//! section 3.5). Over time it draws a sawtooth: it grows with slope 1 and falls at each delivery
//! of an update that is fresher than all before it.
//!
//! | type | computes | memory |
//! |---|---|---|
//! | [`AgeProcess`] | age, its exact mean (in all, and over an epoch), peaks | under 96 B |
//! | [`AgeHistogram`] | time-weighted quantiles within 1 % | 1 KiB per octave of ages, at most 59 KiB |
//! | [`TimeOver`] | the exact time spent over a limit | 16 B |
//! | [`AgeMeter`] | all three in one | as `AgeHistogram` |
//! | [`BacklogProcess`] | updates sent and not yet acknowledged, their exact mean | 48 B |
//! | [`jain_index`] | how evenly a good is shared | – |
//! | [`theory`] | the mean age that theory predicts | – |
//!
//! All of them are streaming: memory is bounded and an event costs constant time. None reads a clock.
//! A `now` before the last event counts as the time of that event, so that a measurement never runs
//! backwards.
//!
//! ```
//! use freshline_core::age::{AgeMeter, AgeProcess, Freshness};
//! use freshline_core::unit::{Span, Time};
//!
//! let at = |millis| Time::ZERO + Span::from_millis(millis);
//!
//! // A control law holds the process and takes the mean over each control epoch.
//! let mut age = AgeProcess::new();
//! age.on_update(at(30), at(10)); // arrives at 30 ms, was generated at 10 ms
//! let epoch = age.mark(at(40));
//! assert_eq!(age.on_update(at(50), at(40)), Freshness::Fresh);
//! assert_eq!(age.on_update(at(55), at(35)), Freshness::Stale); // overtaken on its way
//! assert_eq!(age.age(at(60)), Some(Span::from_millis(20)));
//! // From 40 to 50 ms the age grew from 30 to 40 ms, from 50 to 60 ms from 10 to 20 ms.
//! assert_eq!(age.mean_since(epoch, at(60)), Some(Span::from_millis(25)));
//!
//! // A monitor or a report holds the meter.
//! let mut meter = AgeMeter::with_limit(Span::from_millis(30));
//! meter.on_update(at(30), at(10));
//! meter.on_update(at(50), at(40));
//! let summary = meter.summary(at(60)).expect("updates came and time passed");
//! assert_eq!(summary.max, Span::from_millis(40));
//! assert_eq!(summary.fraction_over, Some(1.0 / 3.0));
//! ```

mod backlog;
mod fairness;
mod integral;
mod meter;
mod over;
mod process;
mod quantile;
mod ramp;
pub mod theory;

pub use backlog::BacklogProcess;
pub use fairness::jain_index;
pub use integral::Integral;
pub use meter::{AgeMeter, AgeSummary};
pub use over::TimeOver;
pub use process::{AgeProcess, Freshness, Peaks};
pub use quantile::AgeHistogram;
pub use ramp::Ramp;
