//! Why a law of the bands cannot be built.

/// Settings that make no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BandLawError {
    /// A threshold by which everything would be bulk, or nothing.
    #[error("`threshold` is {0}, which is not above 0 and at most 1; give for example 0.5")]
    Threshold(f64),
}
