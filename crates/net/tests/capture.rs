//! A client's results from captures near the air, from files and live.
//!
//! Unsafe: one ioctl, TUNSETLINK, makes a TAP device look like one in monitor mode, and no safe
//! interface offers it; the device is opened here too, as the link is set before the device is
//! visible by name.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshline_core::unit::BitRate;
use freshline_core::wlan::air::{Ampdu, DataFrame, Phy, Radiotap, Stamp, Width};
use freshline_core::wlan::mac::Guard;
use freshline_net::Waker;
use freshline_net::wlan::capture::{Capture, CaptureError, CaptureSource, Captured, Others, Seen};
use mio::{Poll, Token};
use nix::sched::{CloneFlags, unshare};

const SERVER: &str = "192.0.2.7:3775";
const STATION: [u8; 6] = [0; 6];

/// A record: radiotap, 802.11, IPv4 and UDP from the port given, with one byte of payload.
fn record(port: u16, reference: u32, byte: u8) -> Vec<u8> {
    let phy = Phy::Vht { mcs: 9, streams: 1, width: Width::Mhz80, guard: Guard::Long };
    let ampdu = Some(Ampdu { reference, is_last: false });
    let radio = Radiotap { tsft: Some(7), phy: Some(phy), ampdu, ..Radiotap::default() };
    let [high, low] = port.to_be_bytes();
    let ip = [0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 7, 192, 0, 2, 8];
    let udp = [high, low, 0, 9, 0, 9, 0, 0, byte];
    let mut bytes = Vec::new();
    radio.write(&mut bytes);
    DataFrame { from_ap: true, ..DataFrame::default() }
        .write(&[&ip[..], &udp].concat(), &mut bytes);
    bytes
}

fn pcap(link: u32, records: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
    file.extend(link.to_le_bytes());
    for record in records {
        let len = (record.len() as u32).to_le_bytes();
        file.extend([&[0; 8][..], &len, &len, record].concat());
    }
    file
}

/// All packets of the server that come until the source ends, or `enough` are there.
fn collect(
    source: &CaptureSource,
    enough: usize,
    feed: impl FnOnce(),
) -> Result<Vec<Captured>, CaptureError> {
    let all = collect_all(source, enough, feed)?;
    let packet = |seen| match seen {
        Seen::Packet(packet) => Some(packet),
        Seen::Others(_) => None,
    };
    Ok(all.into_iter().filter_map(packet).collect())
}

fn collect_all(
    source: &CaptureSource,
    enough: usize,
    feed: impl FnOnce(),
) -> Result<Vec<Seen>, CaptureError> {
    let mut poll = Poll::new().unwrap();
    let waker = mio::Waker::new(poll.registry(), Token(0)).unwrap();
    let waker = Arc::new(Waker::new(move || waker.wake()));
    let mut capture = Capture::open(source, SERVER.parse().unwrap(), waker)?;
    feed();
    let (mut all, begin) = (Vec::new(), Instant::now());
    let mut events = mio::Events::with_capacity(4);
    loop {
        let has_ended = capture.has_ended();
        all.extend(std::iter::from_fn(|| capture.next()));
        let packets = all.iter().filter(|seen| matches!(seen, Seen::Packet(_))).count();
        if has_ended || packets >= enough {
            assert_eq!(capture.counts().packets, packets as u64);
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", capture.counts());
        poll.poll(&mut events, Some(Duration::from_secs(1))).unwrap();
    }
    capture.take_error().map_or(Ok(all), Err)
}

fn expected(reference: u32, byte: u8) -> Captured {
    let to: SocketAddr = "192.0.2.8:9".parse().unwrap();
    let (stamp, rate) = (Stamp::Reference(reference).as_time(), Some(BitRate::from_mbps(390)));
    Captured { station: STATION, stamp, rate, to, payload: vec![byte] }
}

#[test]
fn packets_of_others_to_the_same_station_are_counted_per_frame() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("air.pcap");
    // An encrypted frame and one for another station.
    let mut hidden = record(99, 1, 0);
    let frame_control = hidden.len() - 29 - 8 - 24;
    assert_eq!(hidden[frame_control], 0x08);
    hidden[frame_control + 1] |= 0x40;
    let mut elsewhere = record(99, 1, 0);
    elsewhere[frame_control + 4] ^= 8;
    let records = [
        record(99, 1, 0), // before the station is known
        record(3775, 1, 1),
        record(99, 1, 2),
        elsewhere,
        hidden,
        record(3775, 2, 3),
        record(99, 2, 4),
    ];
    std::fs::write(&path, pcap(127, &records)).unwrap();
    let all = collect_all(&CaptureSource::File(path), usize::MAX, || ()).unwrap();
    let others = |reference, packets| {
        let stamp = Stamp::Reference(reference).as_time();
        Seen::Others(Others { station: STATION, stamp, packets })
    };
    let packet = |reference, byte| Seen::Packet(expected(reference, byte));
    assert_eq!(all, [packet(1, 1), packet(2, 3), others(1, 2), others(2, 1)]);
}

#[test]
fn a_file_tells_the_server_s_packets_with_their_frames() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("air.pcap");
    let source = CaptureSource::File(path.clone());
    let records = [record(3775, 1, 1), record(99, 1, 2), record(3775, 2, 3), vec![0; 9]];
    let whole = pcap(127, &records);
    std::fs::write(&path, &whole).unwrap();
    let all = collect(&source, usize::MAX, || ()).unwrap();
    assert_eq!(all, [expected(1, 1), expected(2, 3)]);

    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let cut = collect(&source, usize::MAX, || ()).unwrap_err();
    assert!(matches!(cut, CaptureError::Damaged(_)), "{cut}");
    std::fs::write(&path, pcap(1, &records)).unwrap();
    let wired = collect(&source, usize::MAX, || ()).unwrap_err().to_string();
    assert!(wired.contains("link type 1, and radiotap is 127"), "{wired}");
    std::fs::write(&path, b"no capture at all, but long enough for one").unwrap();
    assert!(matches!(collect(&source, 1, || ()).unwrap_err(), CaptureError::Foreign(_)));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(collect(&source, 1, || ()).unwrap_err(), CaptureError::File { .. }));
}

/// The same as pcapng, little endian: section header, interface, packets.
fn pcapng(records: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let body = [body, &vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
        let len = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &len, &body, &len].concat()
    };
    let section = [&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat();
    let mut file = block(0x0a0d_0d0a, &section);
    file.extend(block(1, &[127, 0, 0, 0, 0, 0, 4, 0]));
    for record in records {
        let len = (record.len() as u32).to_le_bytes();
        file.extend(block(6, &[&[0; 12][..], &len, &len, record].concat()));
    }
    file
}

#[test]
fn a_pipe_tells_packets_as_soon_as_they_are_whole_also_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let records = [record(3775, 1, 1), record(3775, 2, 3)];
    for (number, bytes) in [pcap(127, &records), pcapng(&records)].into_iter().enumerate() {
        for piece in [1, bytes.len()] {
            let path = folder.path().join(format!("air{number}-{piece}"));
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            // The pipe stays open: the end of the file does not end the wait.
            let mut pipe = File::options().read(true).write(true).open(&path).unwrap();
            let feed = || {
                for piece in bytes.chunks(piece) {
                    pipe.write_all(piece).unwrap();
                    std::thread::sleep(Duration::from_micros(100));
                }
            };
            let all = collect(&CaptureSource::File(path), 2, feed).unwrap();
            assert_eq!(all, [expected(1, 1), expected(2, 3)]);
        }
    }
}

/// The interface for settings of TAP devices.
mod tap {
    nix::ioctl_write_int!(set_link, b'T', 205);
    // Its number has the size of an `int`, not that of the `ifreq` it takes.
    nix::ioctl_write_ptr_bad!(set_iff, nix::request_code_write!(b'T', 202, 4), [u8; 40]);
}

#[test]
fn an_interface_in_monitor_mode_is_followed_live() {
    // A namespace for this thread only; the capture's thread is started from it.
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        println!("skipped: needs root, for a network namespace of its own ({error})");
        return;
    }
    let Ok(mut tap) = File::options().read(true).write(true).open("/dev/net/tun") else {
        println!("skipped: needs /dev/net/tun");
        return;
    };
    let mut request = [0; 40];
    request[..6].copy_from_slice(b"flmon0");
    request[16..18].copy_from_slice(&0x1002u16.to_ne_bytes()); // IFF_TAP | IFF_NO_PI
    // SAFETY: the request is as long as `struct ifreq`, and lives through the call.
    unsafe { tap::set_iff(tap.as_raw_fd(), &request) }.unwrap();
    let source: CaptureSource = "flmon0".parse().unwrap();
    let wired = collect(&source, 1, || ()).unwrap_err();
    assert!(matches!(wired, CaptureError::NotMonitor(_)), "{wired}");
    // SAFETY: the argument is a number, not a pointer.
    if let Err(error) = unsafe { tap::set_link(tap.as_raw_fd(), 803) } {
        println!("skipped: needs TUN devices with other link types ({error})");
        return;
    }
    let up = Command::new("ip").args(["link", "set", "flmon0", "up"]).status();
    if !up.is_ok_and(|up| up.success()) {
        println!("skipped: needs iproute2's `ip`");
        return;
    }
    let feed = || {
        for (reference, byte) in [(1, 1), (1, 2), (2, 3)] {
            tap.write_all(&record(3775, reference, byte)).unwrap();
            tap.write_all(&record(99, reference, byte)).unwrap();
        }
    };
    let all = collect(&source, 3, feed).unwrap();
    assert_eq!(all, [expected(1, 1), expected(1, 2), expected(2, 3)]);

    let none = collect(&"flmon9".parse().unwrap(), 1, || ()).unwrap_err();
    assert!(matches!(none, CaptureError::NoInterface(_)), "{none}");
}
