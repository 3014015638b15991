//! Counters of a cell, per station.

use alloc::vec::Vec;

use crate::link::{DropCounts, Traffic};
use crate::unit::Span;

/// Counters of one station since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StationStats {
    /// Packets queued for transmission.
    pub arrived: Traffic,
    /// Packets delivered to their receivers.
    pub delivered: Traffic,
    /// Packets dropped, by reason.
    pub drops: DropCounts,
    /// Transmissions: frames, or A-MPDUs.
    pub transmissions: u64,
    /// Transmissions that collided with another one.
    pub collisions: u64,
    /// How often a category lost the medium to a higher one of the same station.
    pub internal_collisions: u64,
    /// MPDUs sent, those sent again included.
    pub attempts: u64,
    /// Packets in them: more than MPDUs where A-MSDUs carry several.
    pub packets: u64,
    /// MPDUs sent again.
    pub retries: u64,
    /// MPDUs lost to noise, and those in captured frames to interference.
    pub noise_losses: u64,
    /// Frames or A-MPDUs for it of which it received at least one MPDU.
    pub received_frames: u64,
    /// The packets that it received in them.
    pub received_packets: u64,
    /// Its airtime, acknowledgements included.
    pub airtime: Span,
}

impl StationStats {
    /// The share of retries among all MPDUs sent, from 0 to 1; zero if no MPDU was sent.
    pub fn retry_rate(&self) -> f64 {
        share(self.retries, self.attempts)
    }

    /// The share of its transmissions that collided, from 0 to 1; zero without transmissions.
    pub fn collision_rate(&self) -> f64 {
        share(self.collisions, self.transmissions)
    }

    /// The mean aggregation level at the sender: packets per transmission; zero without
    /// transmissions.
    pub fn level_sent(&self) -> f64 {
        share(self.packets, self.transmissions)
    }

    /// The mean aggregation level at the receiver: packets per received frame; zero without frames.
    pub fn level_received(&self) -> f64 {
        share(self.received_packets, self.received_frames)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Counters of a cell since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellStats {
    /// By station.
    pub stations: Vec<StationStats>,
    /// Channel accesses; a collision counts once.
    pub exchanges: u64,
    /// The total time that the medium was busy, without the present busy period.
    pub busy: Span,
}

impl CellStats {
    /// The sum of one counter over all stations.
    pub fn sum(&self, of: impl Fn(&StationStats) -> u64) -> u64 {
        self.stations.iter().map(of).sum()
    }
}
