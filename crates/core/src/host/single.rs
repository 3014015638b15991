//! One band for everything: the plainest law.

use super::{Band, BandLaw, Outgoing};
use crate::unit::Time;

/// Nothing goes before anything else, as in a host that classifies nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Single;

impl BandLaw for Single {
    fn name(&self) -> &'static str {
        "single"
    }

    fn band(&mut self, _now: Time, _outgoing: Outgoing) -> Band {
        Band::Urgent
    }
}
