//! Which packet belongs where, within bounds.

use std::collections::HashMap;
use std::io::Read;

use freshline_core::unit::Time;
use freshline_core::wire::{Ack, Message, ParseError, SessionId};

use super::LinkType;
use super::packet::{Content, Datagram, Ends, Segment, Unused, dissect};
use super::reader::{CaptureError, Frame, read_frames};
use super::report::{Packets, Report};
use super::session::Session;
use super::tcp::Flow;

/// What a capture may cost: at most `max_flows` · (`max_outstanding` · 32 B + 60 KiB) for TCP, and
/// twice the 60 KiB for sessions. What is beyond is counted in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Directions of TCP flows, and as many sessions.
    pub max_flows: usize,
    /// Segments or updates under way in each of them.
    pub max_outstanding: usize,
}

impl Default for Limits {
    /// Enough for 100 ms at 1.9 Gbit/s in packets of 1448 bytes; 570 MiB at the very worst.
    fn default() -> Self {
        Self { max_flows: 1_000, max_outstanding: 16_384 }
    }
}

/// What was measured, and whether that is all of the file.
#[derive(Debug)]
pub struct Measured {
    /// Of all that could be read.
    pub report: Report,
    /// Why the reading ended before the end of the file, if it did.
    pub error: Option<CaptureError>,
}

/// Measures the ages in a capture.
///
/// ```
/// use freshline_core::unit::{Bytes, Time};
/// use freshline_lab::capture::{Limits, LinkType, PcapWriter, measure};
///
/// let mut writer = PcapWriter::new(Vec::new(), LinkType::Raw)?;
/// writer.write(Time::from_nanos(5), &[0x45, 0, 0, 20], Bytes::new(20))?;
/// let measured = measure(&writer.into_inner()?[..], Limits::default());
/// assert!(measured.error.is_none());
/// assert_eq!(measured.report.packets.read, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn measure(input: impl Read, limits: Limits) -> Measured {
    let mut analysis = Analysis::new(limits);
    let end = read_frames(input, |frame| analysis.on_frame(&frame));
    let Packets { read, unknown_link, .. } = analysis.packets;
    let end = match (end, analysis.unknown_link) {
        (Ok(()), Some(number)) if read == unknown_link => Err(CaptureError::LinkType(number)),
        (end, _) => end,
    };
    Measured { report: analysis.report(), error: end.err() }
}

struct Analysis {
    limits: Limits,
    packets: Packets,
    /// The first link type that was not understood.
    unknown_link: Option<u32>,
    /// The earliest frame and the latest; files are not always in order.
    period: Option<(Time, Time)>,
    flows: Vec<Flow>,
    flow_of: HashMap<Ends, usize>,
    sessions: Vec<Session>,
    session_of: HashMap<SessionId, usize>,
    /// Room for a datagram that was captured in part.
    datagram: Vec<u8>,
}

impl Analysis {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            packets: Packets::default(),
            unknown_link: None,
            period: None,
            flows: Vec::new(),
            flow_of: HashMap::new(),
            sessions: Vec::new(),
            session_of: HashMap::new(),
            datagram: Vec::new(),
        }
    }

    fn on_frame(&mut self, frame: &Frame<'_>) {
        let now = frame.at;
        let (first, last) = self.period.unwrap_or((now, now));
        self.period = Some((first.min(now), last.max(now)));
        self.packets.read += 1;
        if let LinkType::Other(number) = frame.link {
            self.unknown_link.get_or_insert(number);
            self.packets.unknown_link += 1;
            return;
        }
        let count = match dissect(frame) {
            Ok(packet) => match packet.content {
                Content::Tcp(segment) => self.on_tcp(now, packet.ends, segment),
                Content::Udp(datagram) => self.on_udp(now, packet.ends, datagram),
            },
            Err(Unused::Other) => &mut self.packets.other,
            Err(Unused::Fragment) => &mut self.packets.fragments,
            Err(Unused::Cut) => &mut self.packets.cut,
        };
        *count += 1;
    }

    /// Returns where the packet counts.
    fn on_tcp(&mut self, now: Time, ends: Ends, segment: Segment) -> &mut u64 {
        let Segment { seq, ack, sacked, syn, len } = segment;
        if let (Some(ack), Some(flow)) = (ack, self.flow_of.get(&ends.reversed())) {
            self.flows[*flow].on_ack(now, ack, sacked);
        }
        if syn {
            // The ports are used again.
            self.flow_of.remove(&ends);
        }
        if len > 0 {
            // A SYN takes a number too.
            let seq = seq.wrapping_add(syn.into());
            let flow = match self.flow_of.get(&ends) {
                Some(flow) => *flow,
                None if self.flows.len() < self.limits.max_flows => {
                    self.flows.push(Flow::new(now, ends, seq, self.limits.max_outstanding));
                    self.flow_of.insert(ends, self.flows.len() - 1);
                    self.flows.len() - 1
                }
                None => return &mut self.packets.over_limit,
            };
            self.flows[flow].on_segment(now, seq, len);
        }
        &mut self.packets.tcp
    }

    /// Returns where the packet counts.
    fn on_udp(&mut self, now: Time, ends: Ends, datagram: Datagram<'_>) -> &mut u64 {
        let Datagram { payload, len } = datagram;
        let bytes = match Message::parse(payload) {
            Err(ParseError::Truncated) if payload.len() < Ack::LEN.min(len) => {
                return &mut self.packets.cut;
            }
            // What was cut off is the state itself, which nobody asks for.
            Err(ParseError::Truncated) if payload.len() < len => {
                self.datagram.clear();
                self.datagram.extend_from_slice(payload);
                self.datagram.resize(len, 0);
                &self.datagram
            }
            _ => payload,
        };
        match Message::parse(bytes) {
            Ok(Message::Update(update)) => {
                let session = match self.session_of.get(&update.session) {
                    Some(session) => *session,
                    None if self.sessions.len() < self.limits.max_flows => {
                        let id = update.session;
                        let session = Session::new(now, ends, id, self.limits.max_outstanding);
                        self.sessions.push(session);
                        self.session_of.insert(id, self.sessions.len() - 1);
                        self.sessions.len() - 1
                    }
                    None => return &mut self.packets.over_limit,
                };
                self.sessions[session].on_update(now, ends, &update);
            }
            Ok(Message::Ack(ack)) => {
                if let Some(session) = self.session_of.get(&ack.session) {
                    self.sessions[*session].on_ack(now, &ack);
                }
            }
            Ok(_) => {}
            Err(_) => return &mut self.packets.other,
        }
        &mut self.packets.session
    }

    fn report(self) -> Report {
        let (first, last) = self.period.unwrap_or_default();
        Report {
            duration_s: last.since(first).as_secs_f64(),
            packets: self.packets,
            flows: self.flows.iter().map(|flow| flow.report(first)).collect(),
            sessions: self.sessions.iter().map(|session| session.report(first)).collect(),
        }
    }
}
