//! Frames from real kernel timestamps: datagrams come through the path emulator's Wi-Fi, over sockets of
//! the loopback, stamped by the kernel (SO_TIMESTAMPNS); the emulator's log of frames is the truth.
//!
//! A busy machine stops the emulator for milliseconds, and frames leave together that should leave
//! apart. The log also shows how many did: a run with many of them proves nothing.
//!
//! With `-- --nocapture` the test prints the figures of the book.

#[path = "common/verdict.rs"]
mod verdict;

use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use freshline_core::link::{ConditionsConfig, PathConfig};
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wlan::estimator::{
    FRAMES, FrameWeights, KernelCounter, KernelCounterParams, LEVELS, LevelWeights,
};
use freshline_core::wlan::mac::{CellConfig, RateConfig, Standard, Width};
use freshline_core::wlan::{Arrival, LevelCounter, NapiParams};
use freshline_net::emulate::{Emulator, EmulatorConfig};
use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use socket2::SockRef;
use verdict::{TRIES, Verdict};

const PATIENCE: Duration = Duration::from_secs(20);
const PAYLOAD: usize = 1000;
const PACKETS: u32 = 6_000;
/// Half of the time between frames: a frame with a larger lateness is not separate from the next
/// one.
const TIMELY: Span = Span::from_micros(200);
/// The fraction of frames that may be late: half of the fraction that shifts levels by a fifth, and
/// F1 as much, if each is taken for a part of the one before.
const FEW: f64 = 0.1;

/// A packet: its number, when the kernel stamped it, and the frame that it came in.
#[derive(Clone, Copy)]
struct Seen {
    seq: u32,
    stamp: Time,
    frame: Time,
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    SockRef::from(&socket).set_recv_buffer_size(8 << 20).unwrap();
    socket
}

/// 802.11ac at 81 Mbit/s, and packets at `mbps` for it.
fn config(mbps: u32, frames: &Path) -> EmulatorConfig {
    let cell = CellConfig {
        standard: Standard::Ac,
        rate: RateConfig::Mcs(4),
        width: Width::Mhz40,
        ..CellConfig::default()
    };
    let pace = format!("rate={mbps}mbit,queue=100000p");
    let reverse = PathConfig { hop: vec![pace.parse().unwrap()] };
    let conditions = ConditionsConfig { reverse, wlan: Some(cell), ..ConditionsConfig::default() };
    let frames = Some(frames.to_owned());
    EmulatorConfig { conditions, max_flows: 1, frames, ..EmulatorConfig::default() }
}

/// The next datagram: its first bytes, and its stamp.
fn receive(client: &UdpSocket) -> Option<(u32, Time)> {
    let mut buffer = [0; 2048];
    let mut slices = [IoSliceMut::new(&mut buffer)];
    let mut control = cmsg_space!(TimeSpec);
    let flags = MsgFlags::empty();
    let message =
        recvmsg::<SockaddrIn>(client.as_raw_fd(), &mut slices, Some(&mut control), flags).ok()?;
    let stamp = message.cmsgs().ok()?.find_map(|one| match one {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
        _ => None,
    })?;
    let (bytes, nanos) = (message.bytes, stamp.tv_sec() * 1_000_000_000 + stamp.tv_nsec());
    let seq = u32::from_le_bytes(buffer[..4].try_into().ok()?);
    (bytes == PAYLOAD).then(|| (seq, Time::from_nanos(nanos.unsigned_abs())))
}

/// All packets at `mbps`; `None` if some were lost on the path to the client.
fn run(mbps: u32, seed: u64) -> Option<Vec<Seen>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("frames.csv");
    let (server, client) = (socket(), socket());
    setsockopt(&client, sockopt::ReceiveTimestampns, &true).unwrap();
    let listen: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let target = server.local_addr().unwrap();
    let mut emulator = Emulator::bind(listen, target, config(mbps, &file), seed).unwrap();
    client.connect(emulator.local_addr()).unwrap();
    let handle = emulator.handle();
    let running = thread::spawn(move || emulator.run(None));
    client.send(b"here").unwrap();
    let (_, at_server) = server.recv_from(&mut [0; 8]).unwrap();
    let sender = thread::spawn(move || {
        let mut datagram = [0; PAYLOAD];
        for number in 0..PACKETS {
            datagram[..4].copy_from_slice(&number.to_le_bytes());
            server.send_to(&datagram, at_server).unwrap();
            // The hop in front of the cell sets the pace; this only keeps its buffers from
            // overflowing.
            if number % 20 == 19 {
                thread::sleep(Duration::from_micros(u64::from(20 * 8_224 / mbps) * 9 / 10));
            }
        }
        // Shorter than the others, until one gets through.
        for _ in 0..3 {
            server.send_to(b"over", at_server).unwrap();
        }
    });
    let mut stamps = Vec::new();
    while let Some(one) = receive(&client) {
        stamps.push(one);
    }
    sender.join().unwrap();
    handle.stop();
    running.join().unwrap().unwrap();
    let frames = frames(&file);
    let came = stamps.len() == PACKETS as usize && frames.len() >= stamps.len();
    let seen = |((seq, stamp), frame): (&(u32, Time), &Time)| Seen {
        seq: *seq,
        stamp: *stamp,
        frame: *frame,
    };
    came.then(|| stamps.iter().zip(&frames).map(seen).collect())
}

/// For each packet to the client in its order, when its frame came.
fn frames(file: &Path) -> Vec<Time> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().skip(1);
    let down = lines.filter_map(|line| {
        let numbers: Vec<u64> = line.split(',').map(|number| number.parse().unwrap()).collect();
        let [frame, _, _, to, _, packets, _] = numbers[..] else { panic!("{line}") };
        (to == 1).then(|| vec![Time::from_nanos(frame); packets as usize])
    });
    down.flatten().collect()
}

fn is_first(seen: &[Seen], at: usize) -> bool {
    at == 0 || seen[at].frame != seen[at - 1].frame
}

/// F1 of first packets, and the estimated mean level.
fn told(mut counter: KernelCounter, seen: &[Seen]) -> (f64, f64) {
    let (mut found, mut wrong, mut missed) = (0.0, 0.0, 0.0);
    let begin = seen[0].stamp;
    let mut now = Time::ZERO;
    for (at, packet) in seen.iter().enumerate() {
        now = now.max(Time::ZERO + packet.stamp.since(begin));
        let (seq, stamp, rate) = (packet.seq.into(), packet.stamp, BitRate::from_mbps(81));
        counter.on_packet(now, Arrival { seq, stamp, rate });
        match (is_first(seen, at), counter.is_first()) {
            (true, Some(true)) => found += 1.0,
            (true, Some(false)) => missed += 1.0,
            (false, Some(true)) => wrong += 1.0,
            _ => {}
        }
    }
    let report = counter.report(now + Span::from_millis(200)).unwrap();
    (2.0 * found / (2.0 * found + wrong + missed), report.level)
}

/// 1, 50, 90 and 99 % of the gaps inside of frames, and between them, in µs.
fn gaps(seen: &[Seen]) -> [[f64; 4]; 2] {
    let between = |first: bool| {
        let mut gaps: Vec<f64> = (1..seen.len())
            .filter(|at| is_first(seen, *at) == first)
            .map(|at| seen[at].stamp.since(seen[at - 1].stamp).as_nanos() as f64 / 1e3)
            .collect();
        gaps.sort_by(f64::total_cmp);
        let last = gaps.len().saturating_sub(1) as f64;
        [0.01, 0.5, 0.9, 0.99].map(|part| gaps.get((part * last) as usize).copied().unwrap_or(0.0))
    };
    [between(false), between(true)]
}

/// The same frames, stamped by the model.
fn modelled(seen: &[Seen]) -> Vec<Seen> {
    let mut napi = NapiParams::LOOPBACK.build(Pcg64::seed_from_u64(1)).unwrap();
    seen.iter().map(|packet| Seen { stamp: napi.stamp(packet.frame), ..*packet }).collect()
}

/// The fraction of frames that were sent later than [`TIMELY`], relative to the one that was sent
/// earliest.
fn late(seen: &[Seen]) -> f64 {
    let firsts = (0..seen.len()).filter(|at| is_first(seen, *at)).map(|at| seen[at]);
    let took: Vec<Span> = firsts.map(|first| first.stamp.since(first.frame)).collect();
    let least = took.iter().min().copied().unwrap_or_default();
    let late = took.iter().filter(|took| **took - least > TIMELY).count();
    late as f64 / took.len() as f64
}

/// Sends packets at `mbps`, and prints the estimates of their frames.
fn measure(mbps: u32, seed: u64, frames: &FrameWeights, levels: &LevelWeights) -> Verdict {
    let Some(seen) = run(mbps, seed) else { return Verdict::Unknown };
    let params = KernelCounterParams::default();
    let firsts = (0..seen.len()).filter(|at| is_first(&seen, *at)).count();
    let truth = seen.len() as f64 / firsts as f64;
    let (threshold, _) = told(params.threshold(frames).unwrap(), &seen);
    let (logistic, level) = told(params.logistic(frames).unwrap(), &seen);
    let (_, corrected) = told(params.svm(frames, levels).unwrap(), &seen);
    let late = late(&seen);
    println!(
        "{mbps} Mbit/s: level {truth:.2}; F1 {threshold:.3} by threshold, {logistic:.3} by \
         logistic, level {level:.2}, corrected {corrected:.2}; {:.1} % of frames late",
        late * 100.0
    );
    for (which, packets) in [("real", &seen), ("model", &modelled(&seen))] {
        let [inside, between] = gaps(packets);
        println!("  {which}: gaps 1, 50, 90, 99 %: inside {inside:.1?}, between {between:.1?} µs");
    }
    let is_told = logistic > 0.8 && (level / truth - 1.0).abs() < 0.25;
    Verdict::of(is_told, late, FEW)
}

#[test]
#[ignore = "long: measures delays in real time"]
fn the_shipped_weights_tell_frames_from_real_stamps() {
    let frames: FrameWeights = toml::from_str(FRAMES).unwrap();
    let levels: LevelWeights = toml::from_str(LEVELS).unwrap();
    for mbps in [40, 55, 62] {
        let mut seeds = 0..;
        let mut tried = || measure(mbps, seeds.next().unwrap(), &frames, &levels);
        assert!(tried().or_again(tried), "{mbps} Mbit/s: not once in {TRIES} tries");
    }
}
