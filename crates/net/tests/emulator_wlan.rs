//! The path emulator with Wi-Fi on the path, over real sockets on the loopback.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use freshline_core::link::{ConditionsConfig, PathConfig};
use freshline_core::unit::Span;
use freshline_core::wlan::mac::{CellConfig, RateConfig, Standard, Width};
use freshline_net::clock::Clock;
use freshline_net::emulate::{Emulator, EmulatorConfig, Handle, Report};
use socket2::SockRef;

/// Long enough for any machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const SEED: u64 = 7;
/// With 28 bytes of headers 1028 bytes.
const PAYLOAD: usize = 1000;

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(loopback()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // A reader that is late on a busy machine loses nothing.
    SockRef::from(&socket).set_recv_buffer_size(4 << 20).unwrap();
    socket
}

/// 802.11ac at 81 Mbit/s, with these hops on the reverse path.
fn wlan(reverse: &[&str]) -> EmulatorConfig {
    let cell = CellConfig {
        standard: Standard::Ac,
        rate: RateConfig::Mcs(4),
        width: Width::Mhz40,
        ..CellConfig::default()
    };
    let reverse = PathConfig { hop: reverse.iter().map(|text| text.parse().unwrap()).collect() };
    let conditions = ConditionsConfig { reverse, wlan: Some(cell), ..ConditionsConfig::default() };
    EmulatorConfig { conditions, max_flows: 4, ..EmulatorConfig::default() }
}

/// Waits until the live report meets the condition.
fn wait_for(handle: &Handle, condition: impl Fn(&Report) -> bool) {
    let clock = Clock::new();
    let end = clock.now() + PATIENCE.into();
    while !condition(&handle.report()) {
        assert!(clock.now() < end, "in vain: {:?}", handle.report());
        thread::sleep(Duration::from_millis(1));
    }
}

/// The numbers on the datagrams that one client received.
type Seen = Vec<u32>;

/// Sends `packets` numbered datagrams to each of `clients` at once, no faster than socket buffers
/// take them: the hop of the reverse path sets the pace. Returns the clients' datagrams and the
/// report.
fn stream(config: EmulatorConfig, clients: usize, packets: u32) -> (Vec<Seen>, Report) {
    let server = socket();
    let mut emulator =
        Emulator::bind(loopback(), server.local_addr().unwrap(), config, SEED).unwrap();
    let (address, handle) = (emulator.local_addr(), emulator.handle());
    let running = thread::spawn(move || emulator.run(None));
    let clients: Vec<_> = (0..clients)
        .map(|_| {
            let client = socket();
            client.connect(address).unwrap();
            client.send(b"here").unwrap();
            let (_, at_server) = server.recv_from(&mut [0; 8]).unwrap();
            let receiver = thread::spawn(move || {
                let mut seen = Seen::new();
                let mut buffer = [0; 2048];
                while let Ok(4..) = client.recv(&mut buffer) {
                    seen.push(u32::from_le_bytes(buffer[..4].try_into().unwrap()));
                }
                seen
            });
            (at_server, receiver)
        })
        .collect();
    let mut datagram = [0; PAYLOAD];
    for number in 0..packets {
        for (client, _) in &clients {
            datagram[..4].copy_from_slice(&number.to_le_bytes());
            server.send_to(&datagram, client).unwrap();
        }
        if number % 50 == 49 {
            let sent = u64::from(number + 1) * clients.len() as u64;
            wait_for(&handle, |report| report.reverse.hops[0].packets_in == sent);
        }
    }
    wait_for(&handle, |report| {
        let inside = report.wlan.as_ref().map_or(0, |cell| cell.packets_in_flight);
        inside + report.reverse.hops[0].packets_in_flight == 0
    });
    let seen = clients.into_iter().map(|(at_server, receiver)| {
        server.send_to(b"end", at_server).unwrap();
        receiver.join().unwrap()
    });
    let seen = seen.collect();
    handle.stop();
    (seen, running.join().unwrap().unwrap())
}

/// Every client saw all `packets`, in order.
fn assert_complete(seen: &[Seen], packets: u32) {
    for numbers in seen {
        assert!(numbers.iter().copied().eq(0..packets), "{} of {packets} came", numbers.len());
    }
}

/// The lines of a log of frames, each with its numbers by column.
fn frames(file: &Path) -> Vec<[u64; 7]> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("frame_ns,delivered_ns,from,to,rate_bps,packets,bytes"));
    let numbers = |line: &str| -> Vec<u64> {
        line.split(',').map(|number| number.parse().unwrap()).collect()
    };
    lines.map(|line| numbers(line).try_into().unwrap()).collect()
}

#[test]
fn aggregation_over_sockets_is_that_of_the_model_and_the_log_is_what_clients_saw() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("frames.csv");
    let packets = 8_000;
    let config =
        EmulatorConfig { frames: Some(file.clone()), ..wlan(&["rate=55mbit,queue=100000p"]) };
    let (seen, report) = stream(config, 1, packets);
    assert_complete(&seen, packets);

    // μN = c·x / (1 − w·x) at 55 Mbit/s with packets of 1028 bytes; the test of core explains it.
    let model = 4.593;
    let cell = report.wlan.unwrap();
    let client = cell.stations.iter().find(|station| station.station == 1).unwrap();
    let level = client.level_received;
    assert!((level / model - 1.0).abs() < 0.1, "{level}, not {model}");

    let down: Vec<_> = frames(&file).into_iter().filter(|[.., to, _, _, _]| *to == 1).collect();
    // The last one signals the end.
    let [.., packets_last, bytes_last] = *down.last().unwrap();
    assert_eq!((packets_last, bytes_last), (1, 3 + 28));
    let logged: u64 = down.iter().map(|[.., packets, _]| packets).sum();
    assert_eq!(logged, u64::from(packets) + 1);
    assert_eq!(down.len() as u64, client.frames_received);
    assert!(down.iter().all(|[frame, delivered, from, _, rate, ..]| {
        frame == delivered && *from == 0 && *rate == 81_000_000
    }));
    // This time includes waits between batches, so only most datagrams went at the full rate.
    let (first, last) = (down[0][0], down[down.len() - 2][0]);
    let took = Span::from_nanos(last - first).as_secs_f64();
    let goodput = f64::from(packets) * 8.0 * (PAYLOAD + 28) as f64 / took / 1e6;
    assert!((goodput / 55.0 - 1.0).abs() < 0.05, "{goodput} Mbit/s");
}

#[test]
fn clients_are_stations_with_frames_of_their_own() {
    let (seen, report) = stream(wlan(&["rate=60mbit,queue=100000p"]), 3, 1_000);
    assert_complete(&seen, 1_000);
    let cell = report.wlan.unwrap();
    let by_number: BTreeMap<_, _> =
        cell.stations.iter().map(|station| (station.station, station)).collect();
    assert_eq!(by_number.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    let received: u64 = (1..4).map(|number| by_number[&number].frames_received).sum();
    // The only losses are collisions of clients that sent their names at the same time.
    let access_point = by_number[&0];
    assert_eq!(access_point.packets_out, 3 * 1_000 + 3);
    assert_eq!(received, access_point.frames - access_point.collisions);
    assert!(access_point.level > 1.0, "{access_point:?}");
    assert_eq!(cell.conditions.stations, 5);
}

#[test]
fn what_clients_send_goes_over_the_same_air() {
    let server = socket();
    let mut emulator =
        Emulator::bind(loopback(), server.local_addr().unwrap(), wlan(&[]), SEED).unwrap();
    let (address, handle) = (emulator.local_addr(), emulator.handle());
    let running = thread::spawn(move || emulator.run(None));
    let client = socket();
    client.connect(address).unwrap();
    for _ in 0..5 {
        client.send(b"there").unwrap();
        let (len, reverse) = server.recv_from(&mut [0; 8]).unwrap();
        server.send_to(b"and back", reverse).unwrap();
        assert_eq!((len, client.recv(&mut [0; 8]).unwrap()), (5, 8));
    }
    handle.stop();
    let cell = running.join().unwrap().unwrap().wlan.unwrap();
    let [access_point, station] = &cell.stations[..] else { panic!("{cell:?}") };
    assert_eq!((access_point.packets_out, station.packets_out), (5, 5));
    assert_eq!((access_point.frames_received, station.frames_received), (5, 5));
    assert!(cell.exchanges == 10 && cell.utilisation > 0.0, "{cell:?}");
}

#[test]
fn a_client_that_fell_silent_leaves_its_place_in_the_cell() {
    let server = socket();
    // Long enough for a datagram on a busy machine, short enough to wait for.
    let idle_timeout = Span::from_secs(1);
    let config = EmulatorConfig { max_flows: 1, idle_timeout, ..wlan(&[]) };
    let mut emulator =
        Emulator::bind(loopback(), server.local_addr().unwrap(), config, SEED).unwrap();
    let (address, handle) = (emulator.local_addr(), emulator.handle());
    let running = thread::spawn(move || emulator.run(None));
    for served in 1..=2 {
        socket().send_to(b"here", address).unwrap();
        server.recv(&mut [0; 8]).unwrap();
        wait_for(&handle, |report| report.flows.expired == served);
    }
    handle.stop();
    let cell = running.join().unwrap().unwrap().wlan.unwrap();
    assert_eq!((cell.stations.len(), cell.stations[1].packets_out), (2, 2));
}

#[test]
fn what_cannot_be_emulated_is_refused_with_the_reason() {
    let frames = Some("/nowhere/frames.csv".into());
    let plain = EmulatorConfig { frames: frames.clone(), ..EmulatorConfig::default() };
    let too_many = EmulatorConfig { max_flows: 2_000, ..wlan(&[]) };
    let mut senseless = wlan(&[]);
    senseless.conditions.wlan.as_mut().unwrap().streams = 9;
    for (config, reason) in [
        (plain, "there are no Wi-Fi frames to log; add a `wlan`"),
        (EmulatorConfig { frames, ..wlan(&[]) }, "cannot write the frames to /nowhere/frames.csv"),
        (too_many, "wlan: a cell takes 1 to 999 clients, not 2000"),
        (senseless, "wlan: `rate` mcs4 does not exist in 802.11ac"),
    ] {
        let error = Emulator::bind(loopback(), loopback(), config, SEED).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{error}");
    }
}
