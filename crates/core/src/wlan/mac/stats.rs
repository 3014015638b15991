//! Counters of a cell, by station.

use alloc::vec::Vec;

use crate::link::{DropCounts, Traffic};
use crate::unit::Span;

/// What one station did since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StationStats {
    /// What it was given to send.
    pub arrived: Traffic,
    /// What of it was delivered.
    pub delivered: Traffic,
    /// What of it was given up.
    pub drops: DropCounts,
    /// How often it transmitted: frames, or A-MPDUs.
    pub transmissions: u64,
    /// Of these, how many met another one.
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
    /// For how long it transmitted, its acknowledgements included.
    pub airtime: Span,
}

impl StationStats {
    /// The part of all MPDUs that were sent again, from 0 to 1; zero if none was sent.
    pub fn retry_rate(&self) -> f64 {
        share(self.retries, self.attempts)
    }

    /// The part of its transmissions that met another one, from 0 to 1; zero if there was none.
    pub fn collision_rate(&self) -> f64 {
        share(self.collisions, self.transmissions)
    }

    /// The mean aggregation level of what it sent: packets a transmission; zero if there was none.
    pub fn level_sent(&self) -> f64 {
        share(self.packets, self.transmissions)
    }

    /// The mean aggregation level as it sees it: packets received a frame; zero if there was none.
    pub fn level_received(&self) -> f64 {
        share(self.received_packets, self.received_frames)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What happened in a cell since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellStats {
    /// By station.
    pub stations: Vec<StationStats>,
    /// How often somebody transmitted, a collision counting once.
    pub exchanges: u64,
    /// For how long the medium was busy, without what goes on now.
    pub busy: Span,
}

impl CellStats {
    /// A count of all stations together.
    pub fn sum(&self, of: impl Fn(&StationStats) -> u64) -> u64 {
        self.stations.iter().map(of).sum()
    }
}
