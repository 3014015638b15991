//! Where the bottleneck of captured flows lies, over time.
//!
//! ```text
//! capture ─► frame ─┬─ radiotap: stamp ─┐
//!                   └─ IP ─► flow ──────┴─► numbers ─► counter ─► Locator ─► spells
//! ```
//!
//! A flow is a direction of UDP or TCP. Its loss comes from numbers in its packets ([`Numbers`]);
//! its frames from what a radio says, or, where it says nothing, from the times of capture, which a
//! kernel gave, by the estimator of frames ([`LocateParams::frames`]).
//!
//! # Where the thesis is silent
//!
//! - **Without numbers** nothing is known to be lost: levels alone decide, and the flow says so.
//! - **TCP** counts segments, in the order of their first byte. A hole that is filled later than a
//!   frame waits ([`AggregationParams::settle`]) was lost on its way, and sent again by its sender.
//! - **A spell** begins when the answer has been another one for 5 frames, so that single frames
//!   make none. The first one begins with the first answer.

mod flow;
mod numbers;

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;

use freshline_core::unit::{BitRate, Time};
use freshline_core::wlan::air::{DataFrame, Radiotap};
use freshline_core::wlan::estimator::FrameWeights;
use freshline_core::wlan::{AggregationParams, Arrival, Weights};
use serde::Serialize;

use crate::capture::packet::{Content, Ends, dissect, dissect_ip};
use crate::capture::{CaptureError, Frame, LinkType, read_frames};
use flow::Flow;
pub use flow::{FlowReport, Place, Spell};
pub use numbers::Numbers;

/// What a capture is searched for, and what that may cost.
#[derive(Debug, Clone)]
pub struct LocateParams {
    /// The classifier.
    pub weights: Weights,
    /// Tells frames from a kernel's times, where no radio does.
    pub frames: FrameWeights,
    /// So many flows are followed; the packets of others are counted.
    pub max_flows: usize,
    /// Flows with fewer packets are left out of the report.
    pub min_packets: u64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LocateReport {
    /// From the first frame to the last, in s.
    pub duration_s: f64,
    /// All frames of the file.
    pub frames: u64,
    /// Those of data that are encrypted, and told nothing.
    pub protected: u64,
    /// Packets of flows beyond the limit.
    pub over_limit: u64,
    /// Flows, those with the most packets first.
    pub flows: Vec<FlowReport>,
}

/// What was found, and whether that is all of the file.
#[derive(Debug)]
pub struct Located {
    /// In all that could be read.
    pub report: LocateReport,
    /// Why the reading ended before the end of the file, if it did.
    pub error: Option<CaptureError>,
}

/// Reads a capture and says of each flow where its bottleneck was.
pub fn locate(input: impl Read, params: &LocateParams) -> Located {
    let mut search = Search::new(params);
    let end = read_frames(input, |frame| search.on_frame(&frame));
    let end = match (end, search.unknown_link) {
        (Ok(()), Some(number)) if search.unknown == search.frames => {
            Err(CaptureError::LinkType(number))
        }
        (end, _) => end,
    };
    Located { report: search.report(), error: end.err() }
}

struct Search<'a> {
    params: &'a LocateParams,
    frames: u64,
    unknown: u64,
    unknown_link: Option<u32>,
    protected: u64,
    over_limit: u64,
    period: Option<(Time, Time)>,
    flows: Vec<Flow>,
    flow_of: HashMap<Ends, usize>,
}

impl<'a> Search<'a> {
    fn new(params: &'a LocateParams) -> Self {
        Self {
            params,
            frames: 0,
            unknown: 0,
            unknown_link: None,
            protected: 0,
            over_limit: 0,
            period: None,
            flows: Vec::new(),
            flow_of: HashMap::new(),
        }
    }

    fn on_frame(&mut self, frame: &Frame<'_>) {
        self.frames += 1;
        // Files are not always in order; the counters' time never goes back.
        let (first, last) = self.period.unwrap_or((frame.at, frame.at));
        let now = last.max(frame.at);
        self.period = Some((first, now));
        match frame.link {
            LinkType::Other(RADIOTAP) => self.on_record(now, frame.bytes),
            LinkType::Other(number) => {
                self.unknown += 1;
                self.unknown_link.get_or_insert(number);
            }
            _ => {
                if let Ok(packet) = dissect(frame) {
                    self.on_packet(now, packet.ends, packet.content, frame.at, None, false);
                }
            }
        }
    }

    /// A frame of 802.11 behind radiotap.
    fn on_record(&mut self, now: Time, record: &[u8]) {
        let Ok((radio, mpdu)) = Radiotap::parse(record) else { return };
        let parsed = DataFrame::parse(mpdu, radio.is_padded);
        let Some((_, payload)) = parsed.ok().filter(|_| !radio.is_bad) else { return };
        self.protected += u64::from(payload.is_protected());
        let rate = radio.phy.and_then(|phy| phy.rate());
        let stamp = radio.stamp();
        for ip in payload.packets() {
            if let Ok(packet) = dissect_ip(ip, ip.len()) {
                let (stamp, is_stamped) =
                    (stamp.map_or(now, |stamp| stamp.as_time()), stamp.is_some());
                self.on_packet(now, packet.ends, packet.content, stamp, rate, is_stamped);
            }
        }
    }

    fn on_packet(
        &mut self,
        now: Time,
        ends: Ends,
        content: Content<'_>,
        stamp: Time,
        rate: Option<BitRate>,
        is_stamped: bool,
    ) {
        // What carries nothing shares frames with what it acknowledges, and says nothing of loss.
        if matches!(&content, Content::Tcp(segment) if segment.len == 0) {
            return;
        }
        let flow = match self.flow_of.get(&ends) {
            Some(flow) => *flow,
            None if self.flows.len() < self.params.max_flows => {
                let Some(flow) = Flow::new(ends, &content, is_stamped, self.params) else { return };
                self.flows.push(flow);
                self.flow_of.insert(ends, self.flows.len() - 1);
                self.flows.len() - 1
            }
            None => {
                self.over_limit += 1;
                return;
            }
        };
        let rate = rate.unwrap_or(BitRate::from_bps(1));
        let arrival = Arrival { seq: 0, stamp, rate };
        self.flows[flow].on_packet(now, &content, arrival);
    }

    fn report(self) -> LocateReport {
        let (first, last) = self.period.unwrap_or_default();
        let end = last + AggregationParams::default().settle;
        let enough = |flow: &Flow| flow.packets() >= self.params.min_packets;
        let flows = self.flows.into_iter().filter(enough);
        let mut flows: Vec<_> = flows.map(|flow| flow.report(first, last, end)).collect();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.packets));
        LocateReport {
            duration_s: last.since(first).as_secs_f64(),
            frames: self.frames,
            protected: self.protected,
            over_limit: self.over_limit,
            flows,
        }
    }
}

/// The link type of frames of 802.11 behind radiotap.
const RADIOTAP: u32 = 127;

/// The ends of a flow, for people.
fn ends_of(ends: Ends) -> (SocketAddr, SocketAddr) {
    (ends.from, ends.to)
}
