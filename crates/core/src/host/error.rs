//! Why a law of the bands cannot be built.

/// Invalid settings.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BandLawError {
    /// A threshold with which all packets would be bulk, or none.
    #[error("`threshold` is {0}, which is not above 0 and at most 1; give for example 0.5")]
    Threshold(f64),
}
