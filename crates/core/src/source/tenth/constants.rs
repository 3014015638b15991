//! The constants of Tenth; `docs/fresher.md` has the theory behind them.

/// Weight of the newest round trip in srtt: Lazy's.
pub(super) const SMOOTHING: f64 = 0.2;

/// The number of updates in transit at the beginning of start-up.
pub(super) const FIRST: f64 = 1.0;

/// The number in transit above which more updates lower the age by little; see [`tenth`](super).
pub(super) const AMPLE: f64 = 10.0;

/// Updates per round in start-up, and in any round that takes long or has this number of losses.
pub(super) const FEW: u32 = 3;

/// A round takes long after this time, s, and three round trips.
pub(super) const LONG: f64 = 1.0;

/// A queue of this number of updates is deep.
pub(super) const DEEP: f64 = 4.0;

/// The queue is the source's own if less than this fraction of the queueing delay remains after a
/// pause;
pub(super) const DRAINED: f64 = 0.25;

/// then this fraction of the floor remains. With all of it, a crowd would hold a queue of one
/// update each.
pub(super) const OURS: f64 = 0.5;

/// With this number of updates queued in start-up, the queue exceeds the target, and start-up ends.
pub(super) const FULL: f64 = 1.0;

/// The maximum load, as a fraction of the bottleneck rate: where nothing is random, no update is
/// queued below the full load, and all are at it.
pub(super) const EDGE: f64 = 0.96;

/// The smallest step up: the first one after a step down.
pub(super) const STEP: f64 = 0.02;

/// Losses are counted over this number of round trips at least.
pub(super) const ROUND_TRIPS: f64 = 2.0;

/// The minimum number of updates per round trip while losses are tested.
pub(super) const TESTING: f64 = 0.5;

/// The minimum rate for trains, 1/s: after a train there is a gap of four periods.
pub(super) const SLOW: f64 = 2.0;

/// A price of this number of κ needs no whole round, only this number of updates,
pub(super) const CLEAR: f64 = 16.0;
pub(super) const CLEARLY: u32 = 2;

/// and the number in transit falls to this fraction at once.
pub(super) const CUT: f64 = 0.5;

/// The base delay contained a queue if it was this fraction above the new one.
pub(super) const FELL: f64 = 0.25;

/// A test of losses holds the rate for this number of round trips, or this time in s,
pub(super) const HOLD: f64 = 40.0;
pub(super) const MIN_HOLD: f64 = 5.0;

/// and only if less than this fraction is lost.
pub(super) const HELD: f64 = 0.5;
