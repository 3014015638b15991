//! wlan.
mod allocation;
mod model;
mod vht;

pub use allocation::{Allocation, AllocationError, Binding, Limits};
pub use model::{Fluctuation, Link, ModelError, Round, airtime};
pub use vht::{Access, Guard, LONGEST_FRAME, Vht, VhtError, VhtParams, Width, subframe};
