//! What saturation throughput ought to be, by a published model.

/// A saturated cell.
#[derive(Debug, Clone, Copy)]
pub struct Saturation;
