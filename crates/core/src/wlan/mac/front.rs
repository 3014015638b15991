//! The queue in front of the air interface: one per sender, receiver and category.
//!
//! ```text
//!  enqueue ─► discipline ─► the next frame ─► on the air            any discipline of `router`
//!  enqueue ─────────────► waiting ──────────► on the air            drop-tail with a limit in packets
//! ```
//!
//! As in Linux, where mac80211 has FQ-CoDel in this place, a driver takes a packet out of the
//! discipline when it builds the frame that carries it. So a packet in the discipline can still be
//! overtaken, replaced or dropped; a packet that has been in a frame cannot. Real drivers hold one
//! or two frames in addition to the one on the air; the drivers of a cell hold only the packet that
//! did not fit into a frame and begins the next one.

use alloc::boxed::Box;
#[cfg(feature = "serde")]
use alloc::string::ToString;

use rand_pcg::Pcg64;

use crate::router::{Backlog, Discipline, Drops, Limit, Packet, Qdisc, QdiscConfig, QdiscError};
use crate::unit::{Packets, Time};

/// Which queues the stations of a cell have: one in front of each access category, per receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct Queues {
    /// The queue of each station.
    pub stations: QdiscConfig,
    /// The queue of the access point, station 0.
    pub access_point: QdiscConfig,
}

impl Queues {
    /// The same queue at all stations.
    pub fn all(config: QdiscConfig) -> Self {
        Self { access_point: config.clone(), stations: config }
    }

    /// The queue of this station.
    pub(super) fn of(&self, station: u32) -> &QdiscConfig {
        if station == 0 { &self.access_point } else { &self.stations }
    }
}

/// A queue in front of the air.
#[derive(Debug)]
pub(super) enum Front<P> {
    /// Drop-tail: queued packets and packets on the air share one queue and one limit.
    DropTail(Packets),
    /// Packets leave the discipline when a frame takes them.
    Discipline(Box<Discipline<P>>),
}

impl<P: Packet> Front<P> {
    /// The queue of `config`; its random numbers are drawn from `rng`.
    ///
    /// # Panics
    ///
    /// If [`check`] refuses the queue.
    pub(super) fn new(config: &QdiscConfig, rng: &mut Pcg64) -> Self {
        match config {
            QdiscConfig::Fifo { limit: Limit::Packets(limit) } => Self::DropTail(*limit),
            other => match other.build(rng) {
                Ok(queue) => Self::Discipline(Box::new(queue)),
                Err(error) => panic!("a station's queue: {error}"),
            },
        }
    }

    /// The next packet for a frame.
    pub(super) fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, P>) -> Option<P> {
        match self {
            Self::DropTail(_) => None,
            Self::Discipline(queue) => Some(queue.dequeue(now, drops)?.packet),
        }
    }

    /// The packets in the discipline.
    pub(super) fn backlog(&self) -> Backlog {
        match self {
            Self::DropTail(_) => Backlog::default(),
            Self::Discipline(queue) => queue.backlog(),
        }
    }
}

/// Whether a queue is drop-tail, with a limit in packets.
pub(super) fn is_drop_tail(config: &QdiscConfig) -> bool {
    matches!(config, QdiscConfig::Fifo { limit: Limit::Packets(_) })
}

/// Writes a queue in the form of a command line flag if that is complete, else as a table.
#[cfg(feature = "serde")]
pub(super) fn write<S: serde::Serializer>(
    config: &QdiscConfig,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let text = config.to_string();
    match text.parse::<QdiscConfig>() {
        Ok(read) if read == *config => serializer.serialize_str(&text),
        _ => serde::Serialize::serialize(config, serializer),
    }
}

/// The same for an optional queue.
#[cfg(feature = "serde")]
pub(super) fn write_option<S: serde::Serializer>(
    config: &Option<QdiscConfig>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match config {
        Some(config) => write(config, serializer),
        None => serializer.serialize_none(),
    }
}

/// Whether a station can have this queue.
///
/// # Errors
/// Those of [`QdiscConfig::check`]; and [`FrontError::Holds`] for a queue that holds packets back
/// while the medium is idle.
pub(super) fn check(config: &QdiscConfig) -> Result<(), FrontError> {
    if holds(config) { Err(FrontError::Holds) } else { Ok(config.check()?) }
}

fn holds(config: &QdiscConfig) -> bool {
    match config {
        QdiscConfig::Ifil(params) => params.hold.is_some(),
        QdiscConfig::Ifc(ifc) => holds(&ifc.aoi) || holds(&ifc.drop_averse),
        QdiscConfig::Dual(dual) => holds(&dual.urgent) || holds(&dual.bulk),
        _ => false,
    }
}

/// A queue that no station can have.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FrontError {
    /// Its parameters are invalid.
    #[error(transparent)]
    Discipline(#[from] QdiscError),
    /// It holds packets back.
    #[error("a station's queue cannot hold packets back; leave `hold` out")]
    Holds,
}
