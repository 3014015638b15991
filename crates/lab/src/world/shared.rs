//! Stations that receive packets of several flows, which share their frames.
//!
//! A downlink's level is that of its station's frames, with the packets of all flows. So each
//! downlink is told of the packets of the others.

use std::collections::BTreeMap;

use freshline_core::unit::Time;

use super::{Leg, Routed};

/// The downlinks to each cell and station that receives packets of more than one flow.
#[derive(Debug, Default)]
pub(super) struct SharedStations(BTreeMap<(u32, u32), Vec<usize>>);

impl SharedStations {
    pub(super) fn new(flows: &[Routed]) -> Self {
        let station = |leg: &Leg| match *leg {
            Leg::Air { cell, to, .. } => Some((cell, to)),
            _ => None,
        };
        let mut downlinks: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for (index, routed) in flows.iter().enumerate() {
            let last = (routed.forward_legs as usize).checked_sub(1);
            let last = last.and_then(|last| routed.legs.get(last));
            if let (Some(_), Some(end)) = (routed.flow.downlink(), last.and_then(station)) {
                downlinks.entry(end).or_default().push(index);
            }
        }
        let receives =
            |end, routed: &&Routed| routed.legs.iter().any(|leg| station(leg) == Some(end));
        downlinks.retain(|end, _| flows.iter().filter(|routed| receives(*end, routed)).count() > 1);
        Self(downlinks)
    }

    /// A packet of a flow has arrived at a station of a cell, in the frame with this timestamp.
    pub(super) fn on_delivered(&self, to: (u32, u32), of: u32, stamp: Time, flows: &mut [Routed]) {
        let downlinks = self.0.get(&to).into_iter().flatten();
        for other in downlinks.filter(|other| **other != of as usize) {
            if let Some(downlink) = flows[*other].flow.downlink_mut() {
                downlink.on_other(stamp);
            }
        }
    }
}
