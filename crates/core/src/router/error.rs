//! Why a discipline cannot be built.

use alloc::boxed::Box;

use crate::unit::{Bytes, Packets, Span};

/// A discipline that cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QdiscError {
    /// A queue that lets nothing through.
    #[error("`limit` is zero, and everything passes through the queue; give at least `1p`")]
    ZeroLimit,
    /// Another parameter that must not be zero.
    #[error("`{field}` is zero; give more, such as `{example}`")]
    Zero {
        /// The name of the parameter.
        field: &'static str,
        /// A reasonable value.
        example: &'static str,
    },
    /// CoDel's target lies above its interval.
    #[error("`target` ({target}) is above `interval` ({interval}); give about a twentieth of it")]
    TargetAboveInterval {
        /// The target given.
        target: Span,
        /// The interval given.
        interval: Span,
    },
    /// Too few or too many queues for flows.
    #[error("`queues` is {queues}; give from 1 to {most}, such as 1024")]
    Queues {
        /// The number given.
        queues: u32,
        /// The maximum.
        most: u32,
    },
    /// Turns of queues that send next to nothing.
    #[error("`quantum` is {quantum}; give at least `{least}`, such as `1514B`")]
    Quantum {
        /// The quantum given.
        quantum: Bytes,
        /// The minimum.
        least: Bytes,
    },
    /// RED's thresholds are not in order.
    #[error(
        "RED needs `min` ({min}) below `max` ({max}), and `max` up to `limit` ({limit}); leave out \
         `min` and `max` to have them follow from `limit`"
    )]
    Thresholds {
        /// The lower threshold.
        min: Bytes,
        /// The upper one.
        max: Bytes,
        /// The queue's limit.
        limit: Bytes,
    },
    /// RED's maximum probability is out of range.
    #[error("`max_probability` is {0}; give above 0 and at most 1, such as 0.02")]
    MaxProbability(f64),
    /// RED's burst does not reach the lower threshold.
    #[error(
        "`burst` is {burst}, which is less than `min`; give at least `{least}`, or leave it out"
    )]
    BurstTooSmall {
        /// The burst given.
        burst: Packets,
        /// The minimum.
        least: Packets,
    },
    /// TDM with a frame too short for its intervals.
    #[error("`frame` is {frame}; give at least {least}, such as `100ms`")]
    ShortFrame {
        /// The frame given.
        frame: Span,
        /// The minimum.
        least: Span,
    },
    /// IFIL with a table that is too large.
    #[error("`limit` is {limit}, and each flow takes memory from the start; give at most {most}")]
    TooManyFlows {
        /// The limit given.
        limit: Packets,
        /// The maximum.
        most: Packets,
    },
    /// The dual transmit queue as a part of another discipline.
    #[error("`dual` is all of a host's queue, and no part of one; give `fifo` or `fq_codel`")]
    NestedDual,
    /// A part of freshness control, or a band of the dual transmit queue.
    #[error("`{class}`: {reason}")]
    Child {
        /// The class or band whose queue it is.
        class: &'static str,
        /// The error of that queue.
        reason: Box<QdiscError>,
    },
}
