//! The downlink's messages: join, packet and report.

use core::num::NonZeroU16;

use super::cursor::{Reader, Writer};
use super::update::{read_opening, write_opening};
use super::{Ack, AckMark, HEADER_LEN, Marks, Opening, ParseError, SessionId};
use crate::unit::{BitRate, Span, Time};
use crate::wlan::{self, Delivered};

pub(super) const JOIN: u8 = 5;
pub(super) const PACKET: u8 = 6;
pub(super) const REPORT: u8 = 7;

/// A client asks for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join<'a> {
    /// The session, chosen by the client.
    pub session: SessionId,
    /// Its credentials.
    pub opening: Opening<'a>,
}

impl<'a> Join<'a> {
    /// The shortest join: as long as an ack, so that no answer is longer than its question.
    pub const MIN_LEN: usize = Ack::LEN;

    /// Its length on the wire, in bytes.
    pub(crate) fn len(&self) -> usize {
        (HEADER_LEN + self.opening.len()).max(Self::MIN_LEN)
    }

    /// Writes the message to the front of `out` and returns its length; `None` where it does not
    /// fit.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let len = self.len();
        if out.len() < len || self.opening.check().is_err() {
            return None;
        }
        let mut writer = Writer::message(out, JOIN, self.session);
        write_opening(&mut writer, &self.opening);
        writer.pad_to(len);
        Some(len)
    }

    pub(super) fn read(
        session: SessionId,
        mut reader: Reader<'a>,
        datagram_len: usize,
    ) -> Result<Self, ParseError> {
        if datagram_len < Self::MIN_LEN {
            return Err(ParseError::Truncated);
        }
        Ok(Self { session, opening: read_opening(&mut reader)? })
    }
}

/// One packet of a downlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The session.
    pub session: SessionId,
    /// Counts the packets of the session from 0.
    pub seq: u64,
    /// When it was sent, on the server's clock. A report that repeats it proves that the packet
    /// arrived.
    pub sent_at: Time,
    /// The server's estimate of (client's clock − server's clock) in ns, once it has one. With it a
    /// client can compute the one-way delay without synchronised clocks.
    pub clock_offset: Option<i64>,
    /// Δ: the interval of the client's reports, in whole ms up to 65 s.
    pub interval: Span,
    /// The requested code point of reports; without it, the client decides. A client that does not
    /// know the field ignores it.
    pub ack_mark: Option<AckMark>,
    /// The rest of the datagram.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Bytes before the payload.
    pub const HEADER_LEN: usize = HEADER_LEN + 28;

    /// Writes the packet to the front of `out` and returns its length; `None` where it does not
    /// fit.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let len = Self::HEADER_LEN + self.payload.len();
        if out.len() < len {
            return None;
        }
        let interval_ms =
            u16::try_from(self.interval.as_micros() / 1000).unwrap_or(u16::MAX).max(1);
        Writer::message(out, PACKET, self.session)
            .put(&[u8::from(self.clock_offset.is_some()), AckMark::write(self.ack_mark)])
            .put(&interval_ms.to_be_bytes())
            .put(&self.seq.to_be_bytes())
            .put(&self.sent_at.as_nanos().to_be_bytes())
            .put(&self.clock_offset.unwrap_or(0).to_be_bytes())
            .put(self.payload);
        Some(len)
    }

    pub(super) fn read(session: SessionId, mut reader: Reader<'a>) -> Result<Self, ParseError> {
        let [flags, ack_mark] = reader.array()?;
        let interval_ms = reader.u16()?;
        if interval_ms == 0 {
            return Err(ParseError::Field("interval"));
        }
        let seq = reader.u64()?;
        let sent_at = Time::from_nanos(reader.u64()?);
        let offset = i64::from_be_bytes(reader.array()?);
        Ok(Self {
            session,
            seq,
            sent_at,
            clock_offset: (flags & 1 != 0).then_some(offset),
            interval: Span::from_millis(interval_ms.into()),
            ack_mark: AckMark::read(ack_mark),
            payload: reader.rest(),
        })
    }
}

/// A client's report of arrivals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// The session.
    pub session: SessionId,
    /// Counts the reports of the session from 0, modulo 2³².
    pub number: u32,
    /// The newest packet that has arrived.
    pub newest_seq: u64,
    /// When that was sent, as stated in it.
    pub newest_sent_at: Time,
    /// When it arrived, on the client's clock.
    pub newest_received_at: Time,
    /// How long ago that was, in whole µs up to 71 minutes.
    pub hold: Span,
    /// Packets that have arrived in the session, modulo 2³².
    pub received: u32,
    /// Packets per frame since the last report; `None` if too few arrived to measure it.
    pub seen: Option<wlan::Report>,
    /// The code points of that packet and of this report. Unknown for a client whose reports end
    /// before these bytes.
    pub marks: Marks,
    /// Arrivals, for the server's guard. `None` for a client whose reports end before these bytes.
    pub delivered: Option<Delivered>,
    /// Nmax: the maximum number of packets in a frame, as far as the client counts. `None` for a
    /// client that does not know it, or whose reports end before these bytes.
    pub max_packets: Option<NonZeroU16>,
}

impl Report {
    /// Bytes on the wire.
    pub const LEN: usize = HEADER_LEN + 88;
    /// Bytes of a client that does not report the maximum number of packets in a frame.
    pub const LEN_WITHOUT_MAX_PACKETS: usize = HEADER_LEN + 84;
    /// Bytes of a client that does not report arrivals.
    pub const LEN_WITHOUT_ARRIVALS: usize = HEADER_LEN + 64;
    /// Bytes of a client that does not report code points.
    pub const LEN_WITHOUT_MARKS: usize = HEADER_LEN + 60;

    /// The report as bytes. Levels, deviations and losses are rounded to 32-bit floats.
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let micros = |span: Span| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
        let hold_us = micros(self.hold);
        let delivered = self.delivered.unwrap_or_default();
        let kbps = u32::try_from(delivered.rate.as_bps() / 1000).unwrap_or(u32::MAX);
        let [arrived, left] = self.marks.write();
        let nothing = wlan::Report {
            level: 0.0,
            deviation: 0.0,
            frames: 0,
            rate: BitRate::default(),
            loss: 0.0,
        };
        let seen = self.seen.unwrap_or(nothing);
        let frames = u32::try_from(seen.frames).unwrap_or(u32::MAX);
        Writer::message(&mut bytes, REPORT, self.session)
            .put(&self.number.to_be_bytes())
            .put(&self.newest_seq.to_be_bytes())
            .put(&self.newest_sent_at.as_nanos().to_be_bytes())
            .put(&self.newest_received_at.as_nanos().to_be_bytes())
            .put(&hold_us.to_be_bytes())
            .put(&self.received.to_be_bytes())
            .put(&frames.to_be_bytes())
            .put(&(seen.level as f32).to_be_bytes())
            .put(&(seen.deviation as f32).to_be_bytes())
            .put(&(seen.loss as f32).to_be_bytes())
            .put(&seen.rate.as_bps().to_be_bytes())
            .put(&[arrived, left, u8::from(self.delivered.is_some()), 0])
            .put(&delivered.bytes.to_be_bytes())
            .put(&kbps.to_be_bytes())
            .put(&micros(delivered.excess).to_be_bytes())
            .put(&micros(delivered.gap).to_be_bytes())
            .put(&self.max_packets.map_or(0, NonZeroU16::get).to_be_bytes())
            .put(&[0; 2]);
        bytes
    }

    pub(super) fn read(session: SessionId, mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let number = reader.u32()?;
        let newest_seq = reader.u64()?;
        let newest_sent_at = Time::from_nanos(reader.u64()?);
        let newest_received_at = Time::from_nanos(reader.u64()?);
        let hold = Span::from_micros(reader.u32()?.into());
        let received = reader.u32()?;
        let frames = reader.u32()?.into();
        let level = finite(&mut reader, "level")?;
        let deviation = finite(&mut reader, "deviation")?;
        let loss = finite(&mut reader, "loss")?;
        let rate = BitRate::from_bps(reader.u64()?);
        let [arrived, left, flags, _]: [u8; 4] = reader.array().unwrap_or_default();
        let delivered = read_delivered(&mut reader);
        // After a group of fields that is cut off, the positions of later ones are unknown.
        let max_packets = delivered.and_then(|_| reader.u16().ok()).and_then(NonZeroU16::new);
        let delivered = delivered.filter(|_| flags & 1 != 0);
        let seen = wlan::Report { level, deviation, frames, rate, loss };
        Ok(Self {
            session,
            number,
            newest_seq,
            newest_sent_at,
            newest_received_at,
            hold,
            received,
            seen: (frames > 0).then_some(seen),
            marks: Marks::read([arrived, left]),
            delivered,
            max_packets,
        })
    }
}

fn read_delivered(reader: &mut Reader<'_>) -> Option<Delivered> {
    let bytes = reader.u64().ok()?;
    let rate = BitRate::from_bps(u64::from(reader.u32().ok()?) * 1000);
    let [excess, gap] = [reader.u32().ok()?, reader.u32().ok()?].map(u64::from);
    Some(Delivered { bytes, rate, excess: Span::from_micros(excess), gap: Span::from_micros(gap) })
}

fn finite(reader: &mut Reader<'_>, field: &'static str) -> Result<f64, ParseError> {
    let number = f32::from_be_bytes(reader.array()?);
    if number.is_finite() && number >= 0.0 {
        Ok(number.into())
    } else {
        Err(ParseError::Field(field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dscp::Dscp;
    use crate::wire::{Cookie, Message};
    use proptest::prelude::*;

    const SESSION: SessionId = SessionId(9);

    #[test]
    fn a_join_is_as_long_as_what_may_answer_it() {
        let opening = Opening { cookie: Cookie([3; 16]), name: "tv", token: b"" };
        let join = Join { session: SESSION, opening };
        let mut out = [0; 400];
        assert_eq!(join.write(&mut out), Some(Join::MIN_LEN));
        assert_eq!(Message::parse(&out[..Join::MIN_LEN]), Ok(Message::Join(join)));
        assert_eq!(Message::parse(&out[..Join::MIN_LEN - 1]), Err(ParseError::Truncated));
        assert_eq!(join.write(&mut out[..Join::MIN_LEN - 1]), None);
        let long = "x".repeat(64);
        let wrong = Join { opening: Opening { name: &long, ..opening }, ..join };
        assert_eq!(wrong.write(&mut out), None);
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        let seen = wlan::Report {
            level: 8.5,
            deviation: 2.25,
            frames: 40,
            rate: BitRate::from_mbps(390),
            loss: 0.125,
        };
        let (rate, hold) = (BitRate::from_mbps(25_000), Span::from_micros(7));
        let report = Report {
            session: SESSION,
            number: 4,
            newest_seq: 77,
            newest_sent_at: Time::from_nanos(5),
            newest_received_at: Time::from_nanos(6),
            hold,
            received: 70,
            seen: Some(seen),
            marks: Marks { seen: Dscp::new(46), sent: Dscp::new(0) },
            delivered: Some(Delivered { bytes: 1 << 40, rate, excess: hold, gap: hold }),
            max_packets: NonZeroU16::new(128),
        };
        let bytes = report.bytes();
        let older = Report { max_packets: None, ..report };
        let short = Message::parse(&bytes[..Report::LEN_WITHOUT_MAX_PACKETS]);
        assert_eq!(short, Ok(Message::Report(older)));
        let older = Report { delivered: None, ..older };
        let short = Message::parse(&bytes[..Report::LEN_WITHOUT_MARKS]);
        assert_eq!(short, Ok(Message::Report(Report { marks: Marks::default(), ..older })));
        let short = Message::parse(&bytes[..Report::LEN_WITHOUT_ARRIVALS]);
        assert_eq!(short, Ok(Message::Report(older)));
        assert_eq!(Message::parse(&bytes), Ok(Message::Report(report)));
        for (at, field) in [(52, "level"), (56, "deviation"), (60, "loss")] {
            for wrong in [f32::NAN, f32::INFINITY, -1.0] {
                let mut bytes = bytes;
                bytes[at..at + 4].copy_from_slice(&wrong.to_be_bytes());
                assert_eq!(Message::parse(&bytes), Err(ParseError::Field(field)));
            }
        }
        let nothing = Report { seen: None, ..report };
        assert_eq!(Message::parse(&nothing.bytes()), Ok(Message::Report(nothing)));
    }

    proptest! {
        #[test]
        fn packets_survive_the_wire(
            session: u64, seq: u64, sent: u64, clock_offset: Option<i64>, ms in 1..=u16::MAX,
            payload in proptest::collection::vec(any::<u8>(), 0..1500),
        ) {
            let packet = Packet {
                session: SessionId(session),
                seq,
                sent_at: Time::from_nanos(sent),
                clock_offset,
                interval: Span::from_millis(ms.into()),
                ack_mark: None,
                payload: &payload,
            };
            let mut out = [0; 1600];
            let len = packet.write(&mut out).unwrap();
            prop_assert_eq!(len, Packet::HEADER_LEN + payload.len());
            prop_assert_eq!(Message::parse(&out[..len]), Ok(Message::Packet(packet)));
            prop_assert_eq!(packet.write(&mut out[..len - 1]), None);
        }
    }
}
