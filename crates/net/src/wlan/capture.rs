//! Captures of the air: each UDP packet of a server, with its frame.
//!
//! [`Capture`] reads on its own thread and hands over the packets of the server, so that the caller
//! polls it together with its sockets:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use freshline_net::Waker;
//! use freshline_net::wlan::capture::{Capture, CaptureSource, Seen};
//! use mio::{Poll, Token};
//!
//! let mut poll = Poll::new()?;
//! let waker = mio::Waker::new(poll.registry(), Token(7))?;
//! let waker = Arc::new(Waker::new(move || waker.wake()));
//! let source: CaptureSource = "mon0".parse()?;
//! let mut capture = Capture::open(&source, "192.0.2.7:3775".parse()?, waker)?;
//! // After each event of the waker:
//! while let Some(seen) = capture.next() {
//!     let Seen::Packet(packet) = seen else { continue };
//!     // Wire: `Message::parse(&packet.payload)`; then, of a `Packet`, an `Arrival` with its `seq`,
//!     // `packet.stamp` and `packet.rate`.
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Frames with a wrong check sequence are left out. Encrypted frames cannot be read and are
//! counted; a driver that decrypts frames before it passes them to its monitor interface leaves
//! them readable. Memory is bounded: if more than 4096 packets are queued for the caller, the
//! newest are dropped and counted.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use etherparse::{IpNumber, LaxIpSlice};
use freshline_core::unit::{BitRate, Time};
use freshline_core::wlan::air::{DataFrame, Radiotap};
use pcap_parser::{Linktype, PcapBlockOwned, PcapError, create_reader};
use serde::Serialize;

pub use super::error::CaptureError;
use super::monitor_socket::MonitorSocket;
use crate::waker::Waker;

/// The link type of radiotap in capture files.
const RADIOTAP: Linktype = Linktype(127);
/// The maximum number of packets queued for the caller.
const WAITING: usize = 4096;
/// The maximum part of a file held in memory: no block is longer than this.
const BUFFER: usize = 1 << 20;
/// The maximum number of interfaces in a file.
const INTERFACES: usize = 1024;
/// The maximum number of stations whose other packets are counted.
const STATIONS: usize = 64;
/// The length of the header in front of a datagram's payload (RFC 768).
const UDP_HEADER: usize = 8;

/// The origin of captured frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaptureSource {
    /// An interface in monitor mode.
    Interface(String),
    /// A pcap or pcapng file, or a pipe with such data.
    File(PathBuf),
}

impl FromStr for CaptureSource {
    type Err = Infallible;

    /// A text with a slash or a dot in it, or the name of an existing file, is a file; any other is
    /// an interface.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let path = PathBuf::from(text);
        let is_file = text.contains(['/', '.']) || path.exists();
        Ok(if is_file { Self::File(path) } else { Self::Interface(text.to_owned()) })
    }
}

/// An observation of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A packet of the server.
    Packet(Captured),
    /// Other packets in a frame to a station that has received packets of the server.
    Others(Others),
}

/// The receiver address of a frame.
pub type Station = [u8; 6];

/// Packets of other senders to a station, including encrypted ones, counted as often as they were
/// on the air.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Others {
    /// The station.
    pub station: Station,
    /// The stamp of their frame, as in [`Captured`].
    pub stamp: Time,
    /// The number of packets.
    pub packets: u64,
}

/// A packet of the server, seen on the air.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The receiver of its frame.
    pub station: Station,
    /// Equal for all packets of one frame, and different from all other frames near it: see
    /// [`Stamp`](freshline_core::wlan::air::Stamp).
    pub stamp: Time,
    /// The rate of the frame's data; `None` if the capture does not contain it.
    pub rate: Option<BitRate>,
    /// The receiver.
    pub to: SocketAddr,
    /// The datagram.
    pub payload: Vec<u8>,
}

/// The counters of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CaptureCounts {
    /// Frames that were captured.
    pub frames: u64,
    /// Packets of the server among them.
    pub packets: u64,
    /// Frames of data that are encrypted.
    pub protected: u64,
    /// Packets of the server in frames for which the capture contains neither time nor A-MPDU.
    pub unstamped: u64,
    /// Packets that were dropped because the caller did not take them in time.
    pub dropped: u64,
}

/// A capture that is being read.
#[derive(Debug)]
pub struct Capture {
    packets: Receiver<Seen>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: Mutex<SocketAddr>,
    stop: AtomicBool,
    ended: AtomicBool,
    error: Mutex<Option<CaptureError>>,
    frames: AtomicU64,
    packets: AtomicU64,
    protected: AtomicU64,
    unstamped: AtomicU64,
    dropped: AtomicU64,
}

impl Capture {
    /// Starts to read `source`: UDP packets that `server` sends, from the given port. `waker` is
    /// woken for new packets, and at the end. Opening a named pipe blocks until its other end is
    /// opened.
    ///
    /// # Errors
    /// [`CaptureError`] if there is no such interface or file, or it has no radiotap headers.
    pub fn open(
        source: &CaptureSource,
        server: SocketAddr,
        waker: Arc<Waker>,
    ) -> Result<Self, CaptureError> {
        let (send, packets) = sync_channel(WAITING);
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            error: Mutex::new(None),
            frames: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            protected: AtomicU64::new(0),
            unstamped: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        let sniffer = Sniffer {
            send,
            waker,
            shared: Arc::clone(&shared),
            is_new: false,
            stations: Vec::new(),
            others: None,
        };
        match source {
            CaptureSource::Interface(interface) => {
                let socket = MonitorSocket::open(interface)?;
                thread::spawn(move || sniffer.follow(socket));
            }
            CaptureSource::File(path) => {
                let opened = File::open(path);
                let file =
                    opened.map_err(|source| CaptureError::File { file: path.clone(), source })?;
                let path = path.clone();
                // Reading a pipe may block, reading a file does not.
                if file.metadata().is_ok_and(|data| data.is_file()) {
                    let reader = open_file(file, &path)?;
                    thread::spawn(move || sniffer.read(reader, &path));
                } else {
                    thread::spawn(move || match open_file(file, &path) {
                        Ok(reader) => sniffer.read(reader, &path),
                        Err(error) => sniffer.end(Some(error)),
                    });
                }
            }
        }
        Ok(Self { packets, shared })
    }

    /// Sets the server's address, with which packets of frames read from now on are compared.
    pub fn set_server(&self, server: SocketAddr) {
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }

    /// Takes the next observation; `None` if the queue is empty at the moment.
    #[expect(clippy::should_implement_trait, reason = "more may come after `None`")]
    pub fn next(&mut self) -> Option<Seen> {
        self.packets.try_recv().ok()
    }

    /// Whether reading has ended, because a file is at its end or an interface is gone.
    pub fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    /// The error that ended reading, if there was one; returned once.
    pub fn take_error(&mut self) -> Option<CaptureError> {
        self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The counters so far.
    pub fn counts(&self) -> CaptureCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CaptureCounts {
            frames: count(&self.shared.frames),
            packets: count(&self.shared.packets),
            protected: count(&self.shared.protected),
            unstamped: count(&self.shared.unstamped),
            dropped: count(&self.shared.dropped),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
    }
}

type Reader = Box<dyn pcap_parser::traits::PcapReaderIterator + Send>;

fn open_file(file: File, path: &Path) -> Result<Reader, CaptureError> {
    let whole = WholeStart { file, is_begun: false };
    create_reader(BUFFER, whole).map_err(|_| CaptureError::Foreign(path.to_owned()))
}

/// Returns the first block alone and complete, because the parser expects this when it opens a
/// capture: a pipe delivers the block in pieces. The parser also reads once more before it
/// processes the first block, and that read must not wait for records behind the available ones.
struct WholeStart {
    file: File,
    is_begun: bool,
}

impl Read for WholeStart {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        /// A pcap file's header; less than a pcapng file's first block.
        const HEADER: usize = 24;
        if std::mem::replace(&mut self.is_begun, true) || out.len() < HEADER {
            return self.file.read(out);
        }
        let have = fill(&mut self.file, &mut out[..HEADER])?;
        let len = match out[..HEADER] {
            [0x0a, 0x0d, 0x0d, 0x0a, a, b, c, d, 0x4d, 0x3c, 0x2b, 0x1a, ..] => {
                u32::from_le_bytes([a, b, c, d])
            }
            [0x0a, 0x0d, 0x0d, 0x0a, a, b, c, d, 0x1a, 0x2b, 0x3c, 0x4d, ..] => {
                u32::from_be_bytes([a, b, c, d])
            }
            _ => return Ok(have),
        };
        let end = (len as usize).clamp(have, out.len());
        Ok(have + fill(&mut self.file, &mut out[have..end])?)
    }
}

/// Reads until `out` is full, or there is no more.
fn fill(file: &mut File, out: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < out.len() {
        match file.read(&mut out[have..]) {
            Ok(0) => break,
            Ok(len) => have += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

/// Picks the server's packets out of captured frames.
struct Sniffer {
    send: SyncSender<Seen>,
    waker: Arc<Waker>,
    shared: Arc<Shared>,
    /// Whether packets were handed over since the waker was last woken.
    is_new: bool,
    /// The latest receivers of the server's packets, up to [`STATIONS`].
    stations: Vec<Station>,
    /// Other packets of the newest frame, not handed over yet.
    others: Option<Others>,
}

impl Sniffer {
    /// Reads frames from an interface until the receiver is gone.
    fn follow(mut self, mut socket: MonitorSocket) {
        while !self.is_over() {
            match socket.receive() {
                Ok(Some(record)) => self.on_record(record),
                Ok(None) => self.wake(),
                Err(source) => {
                    let interface = socket.interface().to_owned();
                    return self.end(Some(CaptureError::Interface { interface, source }));
                }
            }
        }
        self.end(None);
    }

    /// Reads a file to its end.
    fn read(mut self, mut reader: Reader, path: &Path) {
        // By interface; an old file has one.
        let mut links = Vec::new();
        let radiotap = |link: Option<&Linktype>| match link {
            Some(&RADIOTAP) => Ok(()),
            link => {
                let link = link.map_or(-1, |link| link.0);
                Err(CaptureError::LinkType { file: path.to_owned(), link })
            }
        };
        let error = loop {
            if self.is_over() {
                break None;
            }
            let step = match reader.next() {
                Ok((consumed, block)) => {
                    let judged = match block {
                        PcapBlockOwned::LegacyHeader(header) => {
                            links = vec![Linktype(header.network.0 & 0xFFFF)];
                            radiotap(links.first())
                        }
                        PcapBlockOwned::Legacy(block) => {
                            self.on_record(block.data);
                            Ok(())
                        }
                        PcapBlockOwned::NG(block) => self.on_block(&block, &mut links, &radiotap),
                    };
                    reader.consume(consumed);
                    judged
                }
                Err(PcapError::Eof) => break None,
                Err(PcapError::Incomplete(_)) => {
                    self.wake();
                    // At its end, the next step determines whether data is left over.
                    reader.refill().map_err(|_| CaptureError::Damaged(path.to_owned()))
                }
                Err(_) => Err(CaptureError::Damaged(path.to_owned())),
            };
            if let Err(error) = step {
                break Some(error);
            }
        };
        self.end(error);
    }

    fn on_block(
        &mut self,
        block: &pcap_parser::Block<'_>,
        links: &mut Vec<Linktype>,
        radiotap: &impl Fn(Option<&Linktype>) -> Result<(), CaptureError>,
    ) -> Result<(), CaptureError> {
        use pcap_parser::Block;
        use pcap_parser::traits::PcapNGPacketBlock;
        match block {
            Block::SectionHeader(_) => links.clear(),
            // Packets of interfaces beyond the maximum are not known to be radiotap.
            Block::InterfaceDescription(interface) if links.len() < INTERFACES => {
                links.push(interface.linktype);
            }
            Block::EnhancedPacket(packet) => {
                radiotap(links.get(packet.if_id as usize))?;
                self.on_record(packet.packet_data());
            }
            _ => {}
        }
        Ok(())
    }

    /// A frame, with its radiotap header.
    fn on_record(&mut self, record: &[u8]) {
        let shared = Arc::clone(&self.shared);
        let server = *shared.server.lock().unwrap_or_else(PoisonError::into_inner);
        shared.frames.fetch_add(1, Ordering::Relaxed);
        let Ok((radio, mpdu)) = Radiotap::parse(record) else { return };
        let parsed = DataFrame::parse(mpdu, radio.is_padded);
        let Some((header, payload)) = parsed.ok().filter(|_| !radio.is_bad) else { return };
        let station = if header.from_ap { header.station } else { header.peer };
        let stamp = radio.stamp().map(|stamp| stamp.as_time());
        // A packet that cannot be read counts, too.
        let mut others = u64::from(payload.is_protected());
        shared.protected.fetch_add(others, Ordering::Relaxed);
        for packet in payload.packets() {
            let Some((_, to, datagram)) = datagram(packet).filter(|(from, ..)| *from == server)
            else {
                others += 1;
                continue;
            };
            let Some(stamp) = stamp else {
                shared.unstamped.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            match self.stations.iter().position(|known| *known == station) {
                // The last one is the station seen last.
                Some(place) => self.stations[place..].rotate_left(1),
                None => {
                    if self.stations.len() == STATIONS {
                        self.stations.remove(0);
                    }
                    self.stations.push(station);
                }
            }
            let rate = radio.phy.and_then(|phy| phy.rate());
            let payload = datagram.into();
            self.hand_over(Seen::Packet(Captured { station, stamp, rate, to, payload }));
        }
        if let Some(stamp) = stamp.filter(|_| others > 0 && self.stations.contains(&station)) {
            self.count(Others { station, stamp, packets: others });
        }
    }

    /// Hands over other packets, once per frame.
    fn count(&mut self, more: Others) {
        match &mut self.others {
            Some(Others { station, stamp, packets })
                if (*station, *stamp) == (more.station, more.stamp) =>
            {
                *packets = packets.saturating_add(more.packets);
            }
            others => {
                let before = others.replace(more);
                before.into_iter().for_each(|before| self.hand_over(Seen::Others(before)));
            }
        }
    }

    fn hand_over(&mut self, seen: Seen) {
        let Self { send, shared, is_new, .. } = self;
        let packets = u64::from(matches!(seen, Seen::Packet(_)));
        match send.try_send(seen) {
            Ok(()) => {
                shared.packets.fetch_add(packets, Ordering::Relaxed);
                *is_new = true;
            }
            Err(TrySendError::Full(_)) => {
                shared.dropped.fetch_add(packets, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => shared.stop.store(true, Ordering::Release),
        }
    }

    fn is_over(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    fn wake(&mut self) {
        if let Some(others) = self.others.take() {
            self.hand_over(Seen::Others(others));
        }
        if std::mem::take(&mut self.is_new) {
            // This fails only if the poll is gone, and then no thread waits.
            let _ = self.waker.wake();
        }
    }

    fn end(mut self, error: Option<CaptureError>) {
        *self.shared.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
        self.shared.ended.store(true, Ordering::Release);
        self.is_new = true;
        self.wake();
    }
}

/// The ends and the payload of an IP packet with a complete UDP datagram.
fn datagram(packet: &[u8]) -> Option<(SocketAddr, SocketAddr, &[u8])> {
    let (ip, cut) = LaxIpSlice::from_slice(packet).ok()?;
    if cut.is_some() || ip.is_fragmenting_payload() || ip.payload_ip_number() != IpNumber::UDP {
        return None;
    }
    let (from, to): (IpAddr, IpAddr) = (ip.source_addr(), ip.destination_addr());
    let udp = ip.payload().payload;
    let &[a, b, c, d, e, f, ..] = udp else { return None };
    let len = usize::from(u16::from_be_bytes([e, f]));
    let payload = udp.get(UDP_HEADER..len)?;
    let port = |high, low| u16::from_be_bytes([high, low]);
    Some((SocketAddr::new(from, port(a, b)), SocketAddr::new(to, port(c, d)), payload))
}
