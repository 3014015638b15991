//! The dual transmit queue in a file.

use rand::{Rng, SeedableRng};

use super::QdiscConfig;
use crate::host::Band;
use crate::router::{Discipline, Dual, FqCodelParams, Packet, QdiscError, Ring};
use crate::unit::{Packets, Span};

/// The bands' queues. In a file:
///
/// ```toml
/// queue = { discipline = "dual", urgent = "1000p", bulk = "1000p" }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct DualConfig {
    /// The queue of the urgent band: a FIFO, as in Im, PhD thesis.
    pub urgent: QdiscConfig,
    /// The queue of the bulk band. FQ-CoDel with a target of 100 ms and an interval of ten times
    /// that (RFC 8289 section 3.2), for streams that share it evenly; the thesis has a FIFO.
    pub bulk: QdiscConfig,
    /// The capacity of the device's ring below the bands, in packets. 0: a driver whose ring BQL
    /// limits to next to none; the phone of the thesis has 256 (Table 2.1) and no BQL (2.5.5).
    pub ring: Packets,
}

/// Both bands and the device's ring below them, as a configuration names them.
pub(crate) type DualRing<P> = Ring<P, Dual<Discipline<P>, Discipline<P>>>;

impl Default for DualConfig {
    fn default() -> Self {
        let (target, interval) = (Span::from_millis(100), Span::from_secs(1));
        let bulk = FqCodelParams { target, interval, ..FqCodelParams::default() };
        let urgent = QdiscConfig::default();
        Self { urgent, bulk: QdiscConfig::FqCodel(bulk), ring: Packets::ZERO }
    }
}

impl DualConfig {
    pub(crate) fn build<P: Packet, R: Rng + SeedableRng>(
        &self,
        rng: &mut R,
    ) -> Result<DualRing<P>, QdiscError> {
        let urgent = self.urgent.build_part(Band::Urgent.name(), rng)?;
        let bands = Dual::new(urgent, self.bulk.build_part(Band::Bulk.name(), rng)?);
        Ok(Ring::new(bands, self.ring))
    }
}
