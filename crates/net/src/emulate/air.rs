//! Captures the packets that arrive over the air, like a monitor next to the receiver: a pcap file
//! of link type 127, with one record per MPDU.
//!
//! ```text
//! radiotap: TSFT, how it was sent, A-MPDU │ 802.11 data with QoS │ LLC/SNAP │ IP …
//! ```
//!
//! All records of a frame have the frame's end as their time, on the wall clock and, in µs since
//! the emulator's start, as their TSFT. Records are in the order of frames, although the receiver
//! hands up packets held back behind a missing one later. Stations have the addresses 02:66:6c:00
//! followed by their numbers; the packets that they send come from a host with the highest number.
//!
//! # What is left out
//!
//! Frames that no station received, acknowledgements and beacons. Retransmissions of an MPDU are
//! not flagged; its sequence number counts the received packets.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use freshline_core::link::{Airborne, Conditions, ConditionsConfig};
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wlan::air::{Ampdu, DataFrame, Phy, Radiotap};
use freshline_core::wlan::mac::{CellConfig, Delivered, Guard, Mode, Received, Standard};

use super::frames::FrameLogError;
use super::pcap;

/// An error of the capture is reported as an error of the frame log.
pub(super) type AirError = FrameLogError;

/// The maximum number of records held for earlier ones; beyond it, records are written in the order
/// of arrival.
const WAITING: usize = 1 << 16;
const ACCESS_POINT: u32 = 0;
/// The number of the host beyond the access point.
const BEYOND: u32 = u16::MAX as u32;

/// A capture of the air. Records are buffered in memory before they are written.
#[derive(Debug)]
pub(super) struct AirCapture {
    /// The wall clock at [`Time::ZERO`].
    epoch: Duration,
    start: Time,
    file: PathBuf,
    out: BufWriter<File>,
    cell: CellConfig,
    /// How long a receiver may hold a packet back.
    held: Span,
    /// The physical-layer parameters of frames, by rate.
    phys: HashMap<BitRate, Option<Phy>>,
    /// The number of the next MPDU, by sender and receiver.
    next_seq: HashMap<(u32, u32), u16>,
    /// The numbers of frames that may still get records, by sender, receiver and end.
    references: HashMap<(u32, u32, Time), u32>,
    frames: u32,
    /// Records that may not be written yet.
    waiting: BinaryHeap<Reverse<(Time, u64, Vec<u8>)>>,
    records: u64,
    /// The first failure to write.
    failure: Option<io::Error>,
}

impl AirCapture {
    /// The capture of the cell of `conditions`, if a capture is wanted. TSFT counts from `start`,
    /// and [`Time::ZERO`] is `epoch` after 1970.
    pub(super) fn of<P: Airborne>(
        file: Option<&Path>,
        config: &ConditionsConfig,
        conditions: &Conditions<P>,
        (epoch, start): (Duration, Time),
    ) -> Result<Option<Self>, AirError> {
        let Some(file) = file else { return Ok(None) };
        let cell = config.wlan.as_ref().filter(|_| conditions.cell().is_some());
        let cell = cell.ok_or(FrameLogError::NoCell)?.clone();
        let created = File::create(file).map(BufWriter::new).and_then(|mut out| {
            pcap::write_header(&mut out, pcap::RADIOTAP)?;
            Ok(out)
        });
        let out = created.map_err(|source| FrameLogError::File { file: file.into(), source })?;
        // Without noise a receiver has no gaps.
        let held = if cell.propagation.is_some() { cell.lifetime } else { Span::ZERO };
        Ok(Some(Self {
            epoch,
            start,
            file: file.into(),
            out,
            cell,
            held,
            phys: HashMap::new(),
            next_seq: HashMap::new(),
            references: HashMap::new(),
            frames: 0,
            waiting: BinaryHeap::new(),
            records: 0,
            failure: None,
        }))
    }

    /// Records a packet that arrived over the air; `ip` is the whole packet.
    pub(super) fn record<P>(&mut self, arrival: &Delivered<P>, ip: &[u8]) {
        let Delivered { at, from, to, frame, .. } = *arrival;
        let radio = Radiotap {
            tsft: Some(frame.at.since(self.start).as_micros()),
            phy: self.phy(frame.rate),
            ampdu: self.ampdu(at, from, to, frame),
            ..Radiotap::default()
        };
        let seq = self.next_seq.entry((from, to)).or_default();
        let number = *seq;
        *seq = (number + 1) % 4096;
        let from_ap = from == ACCESS_POINT;
        let header = DataFrame {
            from_ap,
            station: address(if from_ap { to } else { from }),
            peer: address(ACCESS_POINT),
            third: address(BEYOND),
            seq: number,
            is_retry: false,
            priority: Some(0),
        };
        let mut record = Vec::with_capacity(ip.len() + 80);
        radio.write(&mut record);
        header.write(ip, &mut record);
        self.waiting.push(Reverse((frame.at, self.records, record)));
        self.records += 1;
        self.write_until(at - self.held);
    }

    /// Writes the buffered records; returns the first failure ever, if there was one.
    pub(super) fn flush(&mut self) -> Result<(), AirError> {
        self.write_until(Time::MAX);
        let flushed = self.failure.take().map_or_else(|| self.out.flush(), Err);
        let flushed = flushed.or_else(|error| match error.kind() {
            // The reader of a pipe has closed it.
            io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        });
        flushed.map_err(|source| FrameLogError::File { file: self.file.clone(), source })
    }

    /// Writes the records of frames up to `until`.
    fn write_until(&mut self, until: Time) {
        while let Some(Reverse((at, ..))) = self.waiting.peek() {
            if *at > until && self.waiting.len() <= WAITING {
                break;
            }
            let Some(Reverse((at, _, record))) = self.waiting.pop() else { break };
            if self.failure.is_some() {
                continue;
            }
            let since_1970 = self.epoch + Duration::from(at.since(Time::ZERO));
            if let Err(error) = pcap::write_record(&mut self.out, since_1970, &record) {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// The frame of a packet, if frames are A-MPDUs.
    fn ampdu(&mut self, at: Time, from: u32, to: u32, frame: Received) -> Option<Ampdu> {
        if !self.cell.standard.aggregates() {
            return None;
        }
        let oldest = at - self.held;
        if self.references.len() > WAITING {
            self.references.retain(|(.., end), _| *end >= oldest);
        }
        let frames = &mut self.frames;
        let reference = *self.references.entry((from, to, frame.at)).or_insert_with(|| {
            *frames = frames.wrapping_add(1);
            *frames
        });
        Some(Ampdu { reference, is_last: false })
    }

    /// The physical-layer parameters of a frame of this rate.
    fn phy(&mut self, rate: BitRate) -> Option<Phy> {
        let cell = &self.cell;
        *self.phys.entry(rate).or_insert_with(|| phy_of(cell, rate))
    }
}

/// The mode of `cell` with this rate.
fn phy_of(cell: &CellConfig, rate: BitRate) -> Option<Phy> {
    let CellConfig { standard, width, guard, streams, .. } = *cell;
    let wide = |mcs| match standard {
        Standard::N => Mode::ht(8 * (streams - 1) + mcs, width, guard),
        Standard::Ac => Mode::vht(mcs, streams, width, guard),
        Standard::A | Standard::G => None,
    };
    let fits = |mode: &Mode| mode.rate() == rate;
    match (0..10).filter_map(wide).find(fits) {
        Some(mode) => Phy::of_mode(standard, &mode, guard),
        None => Mode::legacy(standard, rate)
            .and_then(|mode| Phy::of_mode(Standard::A, &mode, Guard::Long)),
    }
}

/// The address of a station.
fn address(station: u32) -> [u8; 6] {
    let [.., high, low] = station.to_be_bytes();
    [0x02, b'f', b'l', 0, high, low]
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::router::Packet;
    use freshline_core::unit::Bytes;
    use freshline_core::wlan::air::Stamp;

    struct Update;

    impl Packet for Update {
        fn size(&self) -> Bytes {
            Bytes::new(20)
        }
    }

    impl Airborne for Update {
        fn station(&self) -> u32 {
            1
        }
    }

    fn conditions(text: &str) -> ConditionsConfig {
        toml::from_str(text).unwrap()
    }

    fn arrival(frame: u64, at: u64) -> Delivered<Update> {
        let frame = Received { at: Time::from_nanos(frame), rate: BitRate::from_bps(87_750_000) };
        Delivered { at: Time::from_nanos(at), from: 0, to: 1, frame, packet: Update }
    }

    const CELL: &str = "[wlan]\nstandard = '802.11ac'\nrate = 'mcs2'\nwidth = '80MHz'\n";
    const NOISE: &str = "side_m = 5.0\n[wlan.propagation]\npower_dbm = 16\n";

    #[test]
    fn records_are_in_the_order_of_frames_and_read_as_they_were_sent() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let config = conditions(&[CELL, NOISE].concat());
        let built = config.build::<Update>(1, 1).unwrap();
        let zero = (Duration::from_secs(1), Time::ZERO);
        let mut air = AirCapture::of(Some(file.path()), &config, &built, zero).unwrap().unwrap();
        let ip = [0x45; 20];
        // The second of three was held back until the next frame arrived.
        for arrival in [arrival(5_000, 5_000), arrival(9_000, 9_000), arrival(5_000, 9_000)] {
            air.record(&arrival, &ip);
        }
        air.flush().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        let (mut at, mut seen) = (24, Vec::new());
        while at < bytes.len() {
            let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
            let (radio, mpdu) = Radiotap::parse(&bytes[at + 16..at + 16 + len]).unwrap();
            let (frame, payload) = DataFrame::parse(mpdu, false).unwrap();
            assert_eq!(payload.packets().collect::<Vec<_>>(), [ip]);
            assert_eq!(radio.phy.unwrap().rate(), Some(BitRate::from_bps(87_750_000)));
            seen.push((radio.tsft.unwrap(), radio.stamp().unwrap(), frame.seq));
            at += 16 + len;
        }
        let [first, second] = [1, 2].map(Stamp::Reference);
        assert_eq!(seen, [(5, first, 0), (5, first, 2), (9, second, 1)]);
    }

    #[test]
    fn a_path_without_wifi_has_no_air() {
        let config = conditions("");
        let built = config.build::<Update>(1, 1).unwrap();
        let zero = (Duration::ZERO, Time::ZERO);
        let refused = AirCapture::of(Some(Path::new("/nowhere")), &config, &built, zero);
        assert!(matches!(refused, Err(FrameLogError::NoCell)));
    }
}
