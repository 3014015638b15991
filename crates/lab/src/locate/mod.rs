//! Locates the bottlenecks of captured flows over time.
//!
//! ```text
//! capture ─► frame ─┬─ radiotap: stamp ─► receiver: packets of its frames ─┐ level
//!                   └─ IP ─► flow ─► numbers ─► counter ───────────────────┴─► Locator ─► intervals
//! ```
//!
//! A flow is a direction of UDP or TCP. Its loss is computed from numbers in its packets
//! ([`Numbers`]). The level is that of its receiver's frames, with the packets of all flows and
//! encrypted ones. Frames are those reported by a radio. Without a radio, an estimator of frames
//! ([`LocateParams::frames`]) derives them from the times of capture, given by a kernel, of all
//! packets to one IP address.
//!
//! # Where the thesis is silent
//!
//! - **Without numbers** loss is unknown, and so is the bottleneck: levels alone are low whenever
//!   little is sent. The bottleneck is also unknown before the classifier has seen enough frames
//!   and packets.
//! - **TCP** counts segments, in the order of their first byte. A hole that is filled after the
//!   settling time of a frame ([`AggregationParams::settle`]) was a loss, repaired by the sender.
//! - **An interval** begins when the answer has been another one for 5 frames, so that single
//!   frames do not begin one. The first interval begins with the first answer.

mod flow;
mod numbers;
mod receiver;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Read;
use std::net::SocketAddr;

use freshline_core::unit::Time;
use freshline_core::wlan::air::{DataFrame, Radiotap};
use freshline_core::wlan::estimator::{FrameWeights, KernelCounterParams};
use freshline_core::wlan::{AggregationParams, Weights};
use serde::Serialize;

use crate::capture::packet::{Content, Ends, dissect, dissect_ip};
use crate::capture::{CaptureError, Frame, LinkType, read_frames};
use flow::LocatedFlow;
pub use flow::{FlowReport, Place, PlaceInterval};
pub use numbers::Numbers;
use receiver::{Address, Receiver};

/// Parameters of the analysis, and limits on its cost.
#[derive(Debug, Clone)]
pub struct LocateParams {
    /// The classifier.
    pub weights: Weights,
    /// Estimates frames from a kernel's times, if no radio reports them.
    pub frames: FrameWeights,
    /// Nmax: the maximum number of packets per frame, at least 1.
    pub max_packets: u32,
    /// The maximum number of tracked flows; the packets of others are counted.
    pub max_flows: usize,
    /// Flows with fewer packets are left out of the report.
    pub min_packets: u64,
}

/// The results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LocateReport {
    /// The time from the first frame to the last, in s.
    pub duration_s: f64,
    /// All frames of the file.
    pub frames: u64,
    /// The number of encrypted data frames, whose content is unknown.
    pub protected: u64,
    /// Packets of flows beyond the limit.
    pub over_limit: u64,
    /// The flows, in descending order of their number of packets.
    pub flows: Vec<FlowReport>,
}

/// The results, and the error that ended the analysis, if any.
#[derive(Debug)]
pub struct Located {
    /// The results for all readable frames.
    pub report: LocateReport,
    /// Why the reading ended before the end of the file, if it did.
    pub error: Option<CaptureError>,
}

/// Reads a capture and determines the bottleneck of each flow.
pub fn locate(input: impl Read, params: &LocateParams) -> Located {
    let mut search = Search::new(params);
    let end = read_frames(input, |frame| search.on_frame(&frame));
    let end = match (end, search.unknown_link) {
        (Ok(_), Some(number)) if search.unknown == search.frames => {
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
    flows: Vec<LocatedFlow>,
    flow_of: HashMap<Ends, usize>,
    receivers: HashMap<Address, Receiver>,
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
            receivers: HashMap::new(),
        }
    }

    fn on_frame(&mut self, frame: &Frame<'_>) {
        self.frames += 1;
        // Files are not always in order, but the counters' time must not decrease.
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
                    let to = Address::Host(packet.ends.to.ip());
                    self.on_packet(now, to, packet.ends, &packet.content, None);
                }
            }
        }
    }

    /// An 802.11 frame after radiotap.
    fn on_record(&mut self, now: Time, record: &[u8]) {
        let Ok((radio, mpdu)) = Radiotap::parse(record) else { return };
        let parsed = DataFrame::parse(mpdu, radio.is_padded);
        let Some((header, payload)) = parsed.ok().filter(|_| !radio.is_bad) else { return };
        let stamp = radio.stamp().map(|stamp| stamp.as_time());
        let receiver = if header.from_ap { header.station } else { header.peer };
        let to = Address::Station(receiver);
        if payload.is_protected() {
            self.protected += 1;
            if let Some(stamp) = stamp {
                self.count(to, stamp, None);
            }
        }
        for ip in payload.packets() {
            match dissect_ip(ip, ip.len()) {
                Ok(packet) => self.on_packet(now, to, packet.ends, &packet.content, stamp),
                Err(_) => stamp.into_iter().for_each(|stamp| self.count(to, stamp, None)),
            }
        }
    }

    /// A packet in a frame to `to`, whose timestamp the radio reported or not.
    fn on_packet(
        &mut self,
        now: Time,
        to: Address,
        ends: Ends,
        content: &Content<'_>,
        stamp: Option<Time>,
    ) {
        let by_radio = stamp.is_some();
        let stamp = stamp.or_else(|| self.receiver(to)?.frame_of(now));
        // A segment without payload shares frames with the data that it acknowledges, but has no
        // information on loss.
        let is_empty = matches!(content, Content::Tcp(segment) if segment.len == 0);
        let flow = if is_empty { None } else { self.flow(ends, content, by_radio) };
        if let Some(stamp) = stamp {
            self.count(to, stamp, flow);
        }
        if let Some(flow) = flow {
            self.flows[flow].on_packet(now, content, stamp);
        }
    }

    /// Counts a packet in a frame of `to`.
    fn count(&mut self, to: Address, stamp: Time, flow: Option<usize>) {
        self.receiver(to);
        let Self { receivers, flows, .. } = self;
        if let Some(receiver) = receivers.get_mut(&to) {
            receiver.on_packet(stamp, flow, |flow, frame, others| {
                flows[flow].on_others(frame, others);
            });
        }
    }

    /// The receiver with an address; `None` beyond the maximum number of flows, or if the weights
    /// are not those of an estimator.
    fn receiver(&mut self, to: Address) -> Option<&mut Receiver> {
        let is_full = self.receivers.len() >= self.params.max_flows;
        match self.receivers.entry(to) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(_) if is_full => None,
            Entry::Vacant(new) => {
                let most = self.params.max_packets;
                let kernel = KernelCounterParams { most, ..KernelCounterParams::default() };
                let frames = kernel.frames(&self.params.frames).ok()?;
                Some(new.insert(Receiver::new(frames)))
            }
        }
    }

    /// The flow between these ends; `None` beyond the limit.
    fn flow(&mut self, ends: Ends, content: &Content<'_>, by_radio: bool) -> Option<usize> {
        if let Some(flow) = self.flow_of.get(&ends) {
            return Some(*flow);
        }
        if self.flows.len() >= self.params.max_flows {
            self.over_limit += 1;
            return None;
        }
        let flow = LocatedFlow::new(ends, content, by_radio, self.params)?;
        self.flows.push(flow);
        self.flow_of.insert(ends, self.flows.len() - 1);
        Some(self.flows.len() - 1)
    }

    fn report(mut self) -> LocateReport {
        let (first, last) = self.period.unwrap_or_default();
        for receiver in self.receivers.values_mut() {
            let flows = &mut self.flows;
            receiver.end_frame(|flow, frame, others| flows[flow].on_others(frame, others));
        }
        let end = last + AggregationParams::default().settle;
        let enough = |flow: &LocatedFlow| flow.packets() >= self.params.min_packets;
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

/// The link type of 802.11 frames after radiotap.
const RADIOTAP: u32 = 127;

/// The ends of a flow, in readable form.
fn ends_of(ends: Ends) -> (SocketAddr, SocketAddr) {
    (ends.from, ends.to)
}
