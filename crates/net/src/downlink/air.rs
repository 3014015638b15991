//! A client's capture: the client's packets in it, and the reasons if it has none.
//!
//! A capture runs on its own thread, and shows packets sooner or later than the socket does. It
//! alone determines which packets belong to a frame; payloads and delays come from the socket.

use std::net::SocketAddr;
use std::sync::Arc;

use freshline_core::session::downlink::{Client as Session, Stamp};
use freshline_core::unit::{Span, Time};
use serde::Serialize;

use super::rate::SharedRate;
use crate::waker::Waker;
use crate::wlan::capture::{
    Capture, CaptureCounts, CaptureError, CaptureSource, Captured, Others, Seen, Station,
};

/// Captured packets to process before the socket is checked again.
const TAKEN_A_TURN: usize = 1024;
/// If packets have arrived for this long and the capture has seen none of them, it is
/// misconfigured.
const UNSEEN: Span = Span::from_secs(3);

/// The results of a client's capture, including the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CaptureReport {
    /// The capture's counters.
    #[serde(flatten)]
    pub counts: CaptureCounts,
    /// Packets of this client's session among those of the server.
    pub ours: u64,
    /// Packets of other flows to the same station, which take places in its frames.
    pub others: u64,
    /// Packets of this session that were counted in no frame because neither the capture nor `rate`
    /// provides their rate.
    pub unrated: u64,
}

/// A problem of a capture.
#[derive(Debug)]
pub enum CaptureTrouble {
    /// Packets arrive, but the capture has seen none of them for some seconds.
    Unseen(CaptureReport),
    /// It shows this client's packets, but their rate is unknown.
    Unrated,
    /// It has ended, with the error if there was one: frames are no longer counted.
    Ended(Option<CaptureError>),
}

/// A capture that feeds a session.
pub(super) struct Air {
    capture: Capture,
    report: CaptureReport,
    /// The station that receives this session's packets, by the newest packet.
    station: Option<Station>,
    /// The counts of packets by socket and by capture, at the time of the last check.
    looked: Option<(Time, [u64; 2])>,
    told_unseen: bool,
    told_unrated: bool,
    told_end: bool,
}

impl Air {
    pub(super) fn open(
        source: &CaptureSource,
        server: SocketAddr,
        waker: Arc<Waker>,
    ) -> Result<Self, CaptureError> {
        Ok(Self {
            capture: Capture::open(source, server, waker)?,
            report: CaptureReport::default(),
            station: None,
            looked: None,
            told_unseen: false,
            told_unrated: false,
            told_end: false,
        })
    }

    /// The server has answered from this address.
    pub(super) fn set_server(&self, server: SocketAddr) {
        self.capture.set_server(server);
    }

    /// Processes captured packets; returns whether there may be more.
    pub(super) fn feed(
        &mut self,
        now: Time,
        session: &mut Session,
        rate: &SharedRate,
        captured: &mut dyn FnMut(u64, Time),
    ) -> bool {
        for _ in 0..TAKEN_A_TURN {
            match self.capture.next() {
                Some(Seen::Packet(packet)) => self.on_packet(now, &packet, session, rate, captured),
                Some(Seen::Others(others)) => self.on_others(others, session),
                None => return false,
            }
        }
        true
    }

    fn on_packet(
        &mut self,
        now: Time,
        packet: &Captured,
        session: &mut Session,
        rate: &SharedRate,
        captured: &mut dyn FnMut(u64, Time),
    ) {
        let Captured { station, stamp, payload, .. } = packet;
        let Ok(seq) = session.captured_seq(payload) else {
            // A packet of another client, perhaps on the same machine.
            return self
                .on_others(Others { station: *station, stamp: *stamp, packets: 1 }, session);
        };
        self.station = Some(*station);
        self.report.ours += 1;
        captured(seq, *stamp);
        let rate = packet.rate.filter(|rate| rate.as_bps() > 0).or_else(|| rate.get());
        match rate {
            Some(rate) => _ = session.handle_captured(now, Stamp { at: *stamp, rate }, payload),
            None => self.report.unrated += 1,
        }
    }

    /// Counts other packets, which take places in frames to this station.
    fn on_others(&mut self, others: Others, session: &mut Session) {
        if self.station == Some(others.station) {
            self.report.others += others.packets;
            session.handle_captured_others(others.stamp, others.packets);
        }
    }

    pub(super) fn report(&self) -> CaptureReport {
        CaptureReport { counts: self.capture.counts(), ..self.report }
    }

    /// Returns each problem once. `packets` have arrived by the socket.
    pub(super) fn trouble(&mut self, now: Time, packets: u64) -> Option<CaptureTrouble> {
        if self.capture.has_ended() {
            if std::mem::replace(&mut self.told_end, true) {
                return None;
            }
            return Some(CaptureTrouble::Ended(self.capture.take_error()));
        }
        if self.report.unrated > 0 && !std::mem::replace(&mut self.told_unrated, true) {
            return Some(CaptureTrouble::Unrated);
        }
        let seen = [packets, self.report.ours];
        let (since, before) = *self.looked.get_or_insert((now, seen));
        // While no packets come, it cannot see them either.
        if seen[1] != before[1] || seen[0] == before[0] {
            self.looked = Some((now, seen));
            return None;
        }
        if now.since(since) < UNSEEN || std::mem::replace(&mut self.told_unseen, true) {
            return None;
        }
        Some(CaptureTrouble::Unseen(self.report()))
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::session::downlink::ClientParams;
    use freshline_core::unit::BitRate;
    use freshline_core::wire::{Message, Packet, SessionId};
    use freshline_core::wlan::air::{Ampdu, DataFrame, Phy, Radiotap, Width};
    use freshline_core::wlan::mac::Guard;
    use freshline_core::wlan::{Aggregation, AggregationParams};
    use mio::{Poll, Token};

    use super::*;

    const INTERVAL: Span = Span::from_millis(500);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn packet(session: u64, seq: u64) -> Vec<u8> {
        let packet = Packet {
            session: SessionId(session),
            seq,
            sent_at: at(1000),
            clock_offset: None,
            interval: INTERVAL,
            ack_mark: None,
            payload: b"",
        };
        let mut out = vec![0; Packet::HEADER_LEN];
        packet.write(&mut out).unwrap();
        out
    }

    /// A pcap record: an MPDU of an A-MPDU to a station, from this port of the server.
    fn record(station: u8, ampdu: u32, port: u16, payload: &[u8]) -> Vec<u8> {
        let phy = Phy::Vht { mcs: 9, streams: 1, width: Width::Mhz80, guard: Guard::Long };
        let ampdu = Some(Ampdu { reference: ampdu, is_last: false });
        let radio = Radiotap { tsft: Some(7), phy: Some(phy), ampdu, ..Radiotap::default() };
        let len = |headers: usize| ((headers + payload.len()) as u16).to_be_bytes();
        let ip =
            [&[0x45, 0][..], &len(28), &[0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 7, 192, 0, 2, 8]];
        let udp = [&port.to_be_bytes()[..], &[0, 9], &len(8), &[0, 0], payload];
        let mut bytes = Vec::new();
        radio.write(&mut bytes);
        let station = [2, 0, 0, 0, 0, station];
        DataFrame { from_ap: true, station, ..DataFrame::default() }
            .write(&[ip.concat(), udp.concat()].concat(), &mut bytes);
        let len = (bytes.len() as u32).to_le_bytes();
        [&[0; 8][..], &len, &len, &bytes].concat()
    }

    #[test]
    fn levels_count_packets_of_other_flows_in_the_same_frames() {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
        file.extend(127u32.to_le_bytes());
        for frame in 0..20u32 {
            let own =
                |of_frame| record(1, frame, 3775, &packet(5, u64::from(frame * 3 + of_frame)));
            // Packets of another session on the same machine, and of another server.
            let others = [record(1, frame, 3775, &packet(6, 0)), record(1, frame, 99, b"x")];
            let elsewhere = record(2, frame, 99, b"x");
            file.extend([own(0), others.concat(), own(1), elsewhere, own(2)].concat());
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("air.pcap");
        std::fs::write(&path, file).unwrap();

        let counter = Box::new(Aggregation::new(AggregationParams::default()));
        let mut session =
            Session::new(ClientParams::default(), SessionId(5), counter, at(0)).unwrap();
        for seq in 0..60 {
            session.handle_datagram(at(1), &packet(5, seq)).unwrap();
        }
        let poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::of_poll(poll.registry(), Token(0)).unwrap());
        let server = "192.0.2.7:3775".parse().unwrap();
        let mut air = Air::open(&CaptureSource::File(path), server, waker).unwrap();
        while !air.capture.has_ended() {
            std::thread::yield_now();
        }
        while air.feed(at(2), &mut session, &SharedRate::new(BitRate::from_mbps(1)), &mut |_, _| ())
        {
        }
        let report = air.report();
        assert_eq!((report.ours, report.others, report.unrated), (60, 40, 0));
        let mut out = Vec::new();
        let len = session.poll_transmit(at(1000), &mut out).unwrap().len;
        let Ok(Message::Report(told)) = Message::parse(&out[..len]) else { panic!("no report") };
        let seen = told.seen.unwrap();
        assert_eq!((seen.level, seen.frames, seen.loss), (5.0, 20, 0.0));
    }
}
