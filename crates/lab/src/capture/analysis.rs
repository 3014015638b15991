//! Assigns packets to flows and sessions, within bounds.

use std::collections::HashMap;
use std::io::Read;

use freshline_core::unit::Time;
use freshline_core::wire::{Ack, Challenge, Close, Message, ParseError, SessionId};

use super::LinkType;
use super::in_order::InOrder;
use super::packet::{Content, Datagram, Ends, Segment, Unused, dissect};
use super::reader::read_frames;
use super::report::{Packets, Report};
use super::session::Session;
use super::tcp::{Belongs, Far, TcpFlow};
use super::{CaptureError, Frame, Timeless};

/// The limits on the memory of an analysis: at most `max_flows` · (`max_outstanding` · 32 B + 60
/// KiB) for TCP, and twice the 60 KiB for sessions. Packets beyond the limits are counted in the
/// report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of directions of TCP flows, and of sessions.
    pub max_flows: usize,
    /// The maximum number of segments or updates in flight in each of them.
    pub max_outstanding: usize,
}

impl Default for Limits {
    /// Enough for 100 ms at 1.9 Gbit/s in packets of 1448 bytes; at most 570 MiB.
    fn default() -> Self {
        Self { max_flows: 1_000, max_outstanding: 16_384 }
    }
}

/// The measurements, and the error that ended them, if any.
#[derive(Debug)]
pub struct Measured {
    /// The measurements of all readable packets.
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
    let mut window = InOrder::default();
    let mut on_frame = |frame: &Frame<'_>| analysis.on_frame(frame);
    let end = read_frames(input, |frame| window.put(&frame, &mut on_frame));
    window.finish(&mut on_frame);
    analysis.packets.out_of_order = window.out_of_order;
    if let Ok(Timeless(count)) = end {
        analysis.packets.no_timestamp = count;
    }
    let Packets { read, unknown_link, .. } = analysis.packets;
    let end = match (end, analysis.unknown_link) {
        (Ok(_), Some(number)) if read == unknown_link => Err(CaptureError::LinkType(number)),
        (end, _) => end,
    };
    Measured { report: analysis.report(), error: end.err() }
}

struct Analysis {
    limits: Limits,
    packets: Packets,
    /// The first link type that is not supported.
    unknown_link: Option<u32>,
    /// The earliest and the latest frame; files are not always in order.
    period: Option<(Time, Time)>,
    flows: Vec<TcpFlow>,
    flow_of: HashMap<Ends, usize>,
    sessions: Vec<Session>,
    session_of: HashMap<SessionId, usize>,
    /// A buffer for a datagram that was captured in part.
    datagram: Vec<u8>,
}

/// Why a message was not used.
enum Unread {
    /// It is not one of Freshline's.
    Foreign,
    /// Too little of it was captured.
    Cut,
    /// It belongs to a session beyond the limit.
    Limit,
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
            Err(Unused::Cut) => &mut self.packets.truncated,
        };
        *count += 1;
    }

    /// Returns the counter of the packet.
    fn on_tcp(&mut self, now: Time, ends: Ends, segment: Segment) -> &mut u64 {
        let Segment { seq, ack, sacked, syn, len } = segment;
        if let (Some(ack), Some(flow)) = (ack, self.flow_of.get(&ends.reversed()).copied()) {
            // An acknowledged segment was not damaged.
            let answered = self.flows[flow].take_answered(ack);
            let flow = match answered {
                Some(first) => self.begin_flow(ends.reversed(), first),
                None => Some(flow),
            };
            if let Some(flow) = flow {
                self.flows[flow].on_ack(now, ack, sacked);
            }
        }
        if syn {
            // The ports are reused.
            self.flow_of.remove(&ends);
            // They are also reused if the ack that answers an opening acknowledges data that was
            // not sent.
            let is_foreign = |flow: &usize| ack.is_some_and(|ack| !self.flows[*flow].has_sent(ack));
            if self.flow_of.get(&ends.reversed()).is_some_and(is_foreign) {
                self.flow_of.remove(&ends.reversed());
            }
        }
        if len > 0 {
            // A SYN takes a sequence number, too.
            let seq = seq.wrapping_add(syn.into());
            let known = self.flow_of.get(&ends).copied();
            let flow = match known.map(|flow| self.flows[flow].belongs(now, seq, len)) {
                Some(Belongs::Here) => known,
                Some(Belongs::Nowhere) => return &mut self.packets.tcp,
                Some(Belongs::Another(first)) => self.begin_flow(ends, first),
                None => self.begin_flow(ends, Far { at: now, seq, len: 0 }),
            };
            let Some(flow) = flow else { return &mut self.packets.over_limit };
            self.flows[flow].on_segment(now, seq, len);
        }
        &mut self.packets.tcp
    }

    /// Begins a flow with its first segment, which is not counted yet if its length is zero; `None`
    /// beyond the limit.
    fn begin_flow(&mut self, ends: Ends, first: Far) -> Option<usize> {
        self.flow_of.remove(&ends);
        if self.flows.len() >= self.limits.max_flows {
            return None;
        }
        let mut flow = TcpFlow::new(first.at, ends, first.seq, self.limits.max_outstanding);
        if first.len > 0 {
            flow.on_segment(first.at, first.seq, first.len);
        }
        self.flows.push(flow);
        self.flow_of.insert(ends, self.flows.len() - 1);
        Some(self.flows.len() - 1)
    }

    /// Returns the counter of the packet. It may hold several messages of one length, which a
    /// network card will split (GSO), or which it has merged (GRO).
    fn on_udp(&mut self, now: Time, ends: Ends, datagram: Datagram<'_>) -> &mut u64 {
        let Datagram { mut payload, mut len } = datagram;
        let mut is_first = true;
        loop {
            let message_len = match self.on_message(now, ends, payload, len) {
                Ok(message_len) => message_len,
                // A message after a readable one belongs to the same protocol.
                Err(Unread::Foreign) if is_first => return &mut self.packets.other,
                Err(Unread::Cut) if is_first => return &mut self.packets.truncated,
                Err(Unread::Limit) if is_first => return &mut self.packets.over_limit,
                Err(_) => {
                    self.packets.unread_messages += 1;
                    break;
                }
            };
            is_first = false;
            if message_len == 0 || message_len >= len {
                break;
            }
            len -= message_len;
            payload = payload.get(message_len..).unwrap_or_default();
            if payload.len() < Ack::LEN.min(len) {
                self.packets.unread_messages += len.div_ceil(message_len) as u64;
                break;
            }
        }
        &mut self.packets.session
    }

    /// Handles the first message of a datagram of `len` bytes, of which `payload` was captured.
    /// Returns its length, or 0 if it cannot be one of several.
    fn on_message(
        &mut self,
        now: Time,
        ends: Ends,
        payload: &[u8],
        len: usize,
    ) -> Result<usize, Unread> {
        let bytes = match Message::parse(payload) {
            Err(ParseError::Truncated) if payload.len() < Ack::LEN.min(len) => {
                return Err(Unread::Cut);
            }
            // Only the state was cut off, which is not needed.
            Err(ParseError::Truncated) if payload.len() < len => {
                self.datagram.clear();
                self.datagram.extend_from_slice(payload);
                self.datagram.resize(len, 0);
                &self.datagram
            }
            _ => payload,
        };
        Ok(match Message::parse(bytes) {
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
                    None => return Err(Unread::Limit),
                };
                self.sessions[session].on_update(now, ends, &update);
                update.len()
            }
            Ok(Message::Ack(ack)) => {
                if let Some(session) = self.session_of.get(&ack.session) {
                    self.sessions[*session].on_ack(now, &ack);
                }
                ack.len()
            }
            Ok(Message::Challenge(_)) => Challenge::LEN,
            Ok(Message::Close(_)) => Close::LEN,
            Ok(_) => 0,
            Err(_) => return Err(Unread::Foreign),
        })
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
