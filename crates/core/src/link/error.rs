//! Why a hop cannot be built.

use alloc::string::String;

use super::TraceModelError;
use crate::router::QdiscError;
use crate::unit::{Bytes, Span};

/// A field of a hop with an invalid value.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FieldError {
    /// A rate of zero, at which nothing is ever sent.
    #[error("`rate` is zero; give a rate above zero, or leave it out for an infinitely fast link")]
    ZeroRate,
    /// More jitter than delay would deliver packets before they were sent.
    #[error("`jitter` ({jitter}) is larger than `delay` ({delay}); lower one or raise the other")]
    JitterAboveDelay {
        /// The jitter given.
        jitter: Span,
        /// The delay given.
        delay: Span,
    },
    /// A probability outside of 0 to 1.
    #[error("`{field}` is {value}; give a probability from 0 to 1, such as 0.05 for 5 %")]
    NotAProbability {
        /// The name of the field.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// A bad state without an end.
    #[error("`to_bad` needs a `to_good` above 0, or the bad state never ends")]
    EndlessBadState,
    /// A bad state without a beginning.
    #[error("`{0}` means nothing without `to_bad`; add `to_bad`, or leave it out")]
    NoBadState(&'static str),
    /// An MTU below the IPv4 minimum.
    #[error("`mtu` is {0}; give at least 68B, which every IPv4 link takes")]
    MtuTooSmall(Bytes),
    /// Both a rate and a trace.
    #[error("`rate` and `trace` exclude each other; leave one out")]
    RateAndTrace,
    /// A trace whose file has not been read.
    #[error("the trace `{0}` has not been read; traces can be used in files only")]
    TraceNotRead(String),
    /// A model that cannot generate a trace.
    #[error("`trace`: {0}")]
    TraceModel(#[from] TraceModelError),
    /// A change that is out of order.
    #[error("`change` at {at} stands behind a later one; sort them by `at`")]
    ChangeOutOfOrder {
        /// When it would happen.
        at: Span,
    },
    /// A change without a rate or a delay.
    #[error("`change` at {at} has neither `rate` nor `delay`; give one of them")]
    EmptyChange {
        /// When it would happen.
        at: Span,
    },
    /// An invalid queue.
    #[error("`queue`: {0}")]
    Queue(#[from] QdiscError),
}
