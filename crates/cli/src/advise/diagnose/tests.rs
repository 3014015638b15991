//! Synthetic observations, with one fault each.

use freshline_core::unit::Span;
use freshline_net::clock::Clock;
use freshline_system::netlink::{NextHop, SocketMemory, TcpInfo};

use super::diagnose;
use crate::advise::finding::{Direction, Fault, Finding, Stop};
use crate::advise::observation::{
    Connection, Interface, InterfaceSample, Observation, Probe, RouteChange, TcpSample, UdpSocket,
};

const DEVICE: u32 = 2;
const SAMPLES: u32 = 60;
/// Seconds between samples.
const EACH: f64 = 0.05;

/// A host with one interface that sends and receives at these rates in Mbit/s.
fn host(up: f64, down: f64) -> Observation {
    let bytes = |mbit: f64, number: u32| (mbit * 125_000.0 * EACH * f64::from(number)) as u64;
    let samples = (0..SAMPLES).map(|number| InterfaceSample {
        at: EACH * f64::from(number),
        left_bytes: bytes(up, number),
        sent_bytes: bytes(up, number),
        received_bytes: bytes(down, number),
        ..InterfaceSample::default()
    });
    let interface = Interface {
        device: DEVICE,
        name: "eth0".to_owned(),
        discipline: "pfifo_fast".to_owned(),
        samples: samples.collect(),
        ..Interface::default()
    };
    Observation {
        seconds: EACH * f64::from(SAMPLES),
        interfaces: vec![interface],
        exits: vec![DEVICE],
        ..Observation::default()
    }
}

/// A connection; `at` changes the state of the n-th sample.
fn connection(at: impl Fn(u64, &mut TcpSample)) -> Connection {
    let sample = |number: u32| {
        let mut sample = TcpSample {
            at: EACH * f64::from(number),
            info: TcpInfo { mss: 1448, min_rtt: 20_000, rtt: 21_000, ..TcpInfo::default() },
            ..TcpSample::default()
        };
        at(number.into(), &mut sample);
        sample
    };
    Connection {
        local: "192.0.2.1:5000".parse().unwrap(),
        remote: "198.51.100.1:443".parse().unwrap(),
        device: Some(DEVICE),
        samples: (0..SAMPLES).map(sample).collect(),
    }
}

/// A bulk upload at this rate in Mbit/s with this round trip.
fn upload(mbit: f64, rtt_ms: u32) -> Connection {
    connection(move |number, sample| {
        let bytes = (mbit * 125_000.0 * EACH) as u64 * number;
        sample.info.bytes_acked = bytes;
        sample.info.bytes_sent = bytes;
        sample.info.busy = number * (EACH * 1e6) as u64;
        sample.info.rtt = rtt_ms * 1000;
    })
}

/// A bulk download likewise.
fn download(mbit: f64, rtt_ms: u32) -> Connection {
    connection(move |number, sample| {
        sample.info.bytes_received = (mbit * 125_000.0 * EACH) as u64 * number;
        sample.info.data_segments_in = (sample.info.bytes_received / 1448) as u32;
        sample.info.receiver_rtt = rtt_ms * 1000;
        sample.info.since_received_ms = 1;
        sample.info.receive_window = 3_000_000;
    })
}

/// Small requests with this round trip of the n-th sample.
fn requests(rtt_ms: impl Fn(u64) -> u32) -> Connection {
    connection(move |number, sample| {
        sample.info.data_segments_out = number as u32;
        sample.info.bytes_acked = 100 * number;
        sample.info.bytes_sent = 100 * number;
        sample.info.bytes_received = 100 * number;
        sample.info.rtt = rtt_ms(number) * 1000;
    })
}

fn with(mut seen: Observation, connections: impl IntoIterator<Item = Connection>) -> Observation {
    seen.connections.extend(connections);
    seen
}

#[track_caller]
fn only(seen: &Observation) -> (Stop, Direction, Fault, Finding) {
    let found = diagnose(seen);
    let [one] = &found[..] else { panic!("{found:#?}") };
    (one.stop, one.direction, one.fault, one.clone())
}

#[track_caller]
fn assert_only(seen: &Observation, stop: Stop, direction: Direction, fault: Fault) {
    let found = only(seen);
    assert_eq!((found.0, found.1, found.2), (stop, direction, fault));
}

#[test]
fn without_traffic_or_a_queue_there_is_no_fault() {
    assert_eq!(diagnose(&Observation::default()), []);
    assert_eq!(diagnose(&host(0.0, 0.0)), []);
    // A few ms of a queue with CoDel, and a delayed ack.
    assert_eq!(diagnose(&with(host(10.0, 0.2), [upload(9.5, 32)])), []);
    assert_eq!(diagnose(&with(host(0.2, 10.0), [download(9.5, 32)])), []);
    assert_eq!(diagnose(&with(host(0.1, 0.1), [requests(|_| 60)])), []);
}

#[test]
fn a_round_trip_above_its_minimum_is_a_queue_in_the_direction_of_the_data() {
    let seen = with(host(10.0, 0.2), [upload(9.5, 200)]);
    let (.., finding) = only(&seen);
    assert_only(&seen, Stop::Router, Direction::Up, Fault::UpstreamQueue);
    assert!((finding.value("queueing_delay_ms").unwrap() - 180.0).abs() < 1.0, "{finding:?}");
    let seen = with(host(0.2, 10.0), [download(9.5, 200), requests(|_| 200)]);
    assert_only(&seen, Stop::Router, Direction::Down, Fault::DownstreamQueue);
    let seen = with(host(1.0, 5.0), [upload(0.9, 300), download(4.5, 300)]);
    assert_only(&seen, Stop::Router, Direction::Up, Fault::AckCongestion);
    let others = with(host(0.1, 0.1), [requests(|_| 200)]);
    assert_only(&others, Stop::Router, Direction::Both, Fault::UpstreamQueue);
}

#[test]
fn the_rate_is_that_while_an_upload_runs() {
    let mut short = upload(9.0, 200);
    short.samples.iter_mut().for_each(|sample| sample.info.in_flight = 10);
    short.samples = short.samples[20..40].to_vec();
    let (.., finding) = only(&with(host(3.0, 0.1), [short]));
    let bps = finding.value("delivered_up_bps").unwrap();
    assert!((9e6..9.6e6).contains(&bps), "{finding:?}");
}

#[test]
fn a_queue_over_a_wireless_interface_is_at_the_wlan() {
    let mut seen = with(host(10.0, 0.2), [upload(9.5, 200)]);
    seen.interfaces[0].is_wireless = true;
    assert_only(&seen, Stop::Wlan, Direction::Up, Fault::UpstreamQueue);
    seen.interfaces[0].receive_bps = Some(20e6);
    assert_only(&seen, Stop::Wlan, Direction::Up, Fault::UpstreamQueue);
    seen.interfaces[0].receive_bps = Some(300e6);
    assert_only(&seen, Stop::Router, Direction::Up, Fault::UpstreamQueue);
}

#[test]
fn thousands_of_connections_are_diagnosed_at_once() {
    let clock = Clock::new();
    let begun = clock.now();
    let seen = with(host(0.1, 0.1), std::iter::repeat_n(requests(|_| 21), 4096));
    assert_eq!(diagnose(&seen), []);
    let seen = with(host(0.1, 10.0), std::iter::repeat_n(download(9.5, 200), 4096));
    assert_only(&seen, Stop::Router, Direction::Down, Fault::DownstreamQueue);
    assert!(clock.now().since(begun) < Span::from_secs(20));
}

#[test]
fn a_download_whose_sender_pauses_has_no_queue() {
    let mut paused = download(2.0, 100);
    for (number, sample) in paused.samples.iter_mut().enumerate() {
        sample.info.since_received_ms = 20 + (number as u32 % 2) * 50;
    }
    assert_eq!(diagnose(&with(host(0.1, 2.0), [paused])), []);
}

#[test]
fn probes_separate_the_directions() {
    // The queue varies by 100 ms in one direction; the clocks differ by 1000 s.
    let probes = |up: f64, down: f64| {
        let probe = |number: u32| {
            let queue = 0.1 * f64::from(number % 10) / 10.0;
            let (up, down) = (1000.0 + 0.01 + queue * up, -1000.0 + 0.01 + queue * down);
            Probe { at: EACH, rtt: Some(up + down), up: Some(up), down: Some(down) }
        };
        (0..30).map(probe).collect::<Vec<_>>()
    };
    let mut seen = with(host(0.5, 5.0), [download(4.5, 200)]);
    seen.probes = probes(1.0, 0.0);
    assert_only(&seen, Stop::Router, Direction::Up, Fault::AckCongestion);
    seen.probes = probes(0.0, 1.0);
    assert_only(&seen, Stop::Router, Direction::Down, Fault::DownstreamQueue);
    seen.probes = probes(0.0, 0.0);
    assert_only(&seen, Stop::Router, Direction::Down, Fault::DownstreamQueue);
}

/// The same with a queue of this many bytes in the host's own discipline.
fn queued(mut seen: Observation, bytes: u64, drops: u64) -> Observation {
    for (number, sample) in seen.interfaces[0].samples.iter_mut().enumerate() {
        sample.queued_bytes = bytes;
        sample.drops = drops * number as u64;
    }
    seen
}

#[test]
fn bytes_in_the_own_queue_belong_to_their_sockets() {
    // 100 kB at 8 Mbit/s are 100 ms.
    let mut sender = upload(7.5, 120);
    for sample in &mut sender.samples {
        sample.memory = SocketMemory { sending: 100_000, ..SocketMemory::default() };
    }
    let seen = queued(with(host(8.0, 0.2), [sender]), 100_000, 0);
    let (.., finding) = only(&seen);
    assert_only(&seen, Stop::Host, Direction::Up, Fault::HostQueue);
    assert!((finding.value("own_queueing_delay_ms").unwrap() - 100.0).abs() < 1.0, "{finding:?}");

    let mut seen = queued(host(8.0, 0.2), 100_000, 5);
    let local = "192.0.2.1:6000".parse().unwrap();
    seen.udp_sockets = vec![UdpSocket { local, queued_bytes: 90_000.0, drops: 0 }];
    assert_only(&seen, Stop::Source, Direction::Up, Fault::SourceOverload);

    let mut seen = queued(host(8.0, 0.2), 100_000, 5);
    seen.forwards = true;
    let inside = host(0.2, 8.0).interfaces.remove(0);
    seen.interfaces.push(Interface { device: 9, name: "eth1".to_owned(), ..inside });
    assert_only(&seen, Stop::Router, Direction::Up, Fault::ForwardingQueue);
    assert_eq!(diagnose(&queued(host(8.0, 0.2), 10_000, 0)), [], "10 ms are no standing queue");
}

#[test]
fn a_queue_beyond_this_host_with_foreign_packets_is_the_sources() {
    let seen = with(host(5.0, 0.1), [requests(|_| 300)]);
    assert_only(&seen, Stop::Source, Direction::Up, Fault::SourceOverload);
}

#[test]
fn losses_without_a_queue_are_the_links() {
    let mut lossy = upload(3.0, 22);
    for sample in &mut lossy.samples {
        sample.info.bytes_retransmitted = sample.info.bytes_sent / 50;
    }
    assert_only(&with(host(3.2, 0.1), [lossy]), Stop::Link, Direction::Up, Fault::Loss);
    let mut lossy = upload(3.0, 200);
    for sample in &mut lossy.samples {
        sample.info.bytes_retransmitted = sample.info.bytes_sent / 50;
    }
    let overflow = with(host(3.2, 0.1), [lossy]);
    assert_only(&overflow, Stop::Router, Direction::Up, Fault::UpstreamQueue);
    let mut lossy = download(3.0, 22);
    for (number, sample) in lossy.samples.iter_mut().enumerate() {
        sample.info.out_of_order = number as u32 / 2 * 3;
    }
    assert_only(&with(host(0.1, 3.2), [lossy]), Stop::Link, Direction::Down, Fault::Loss);
    let mut controlled = download(3.0, 22);
    for (number, sample) in controlled.samples.iter_mut().enumerate() {
        sample.info.out_of_order = number as u32 / 20 * 30;
    }
    assert_eq!(diagnose(&with(host(0.1, 3.2), [controlled])), [], "a loss per second is AQM's");
}

#[test]
fn windows_and_buffers_limit_transfers() {
    let limited = |window: bool| {
        let mut limited = upload(2.0, 21);
        for sample in &mut limited.samples {
            let share = sample.info.busy * 4 / 5;
            match window {
                true => sample.info.window_limited = share,
                false => sample.info.buffer_limited = share,
            }
        }
        with(host(2.1, 0.1), [limited])
    };
    assert_only(&limited(true), Stop::Receiver, Direction::Up, Fault::ReceiveWindow);
    assert_only(&limited(false), Stop::Source, Direction::Up, Fault::SendBuffer);
    let mut small = download(4.0, 21);
    small.samples.iter_mut().for_each(|sample| sample.info.receive_window = 11_000);
    assert_only(
        &with(host(0.1, 4.2), [small]),
        Stop::Receiver,
        Direction::Down,
        Fault::ReceiveWindow,
    );
}

#[test]
fn a_program_that_reads_slowly_is_the_receivers() {
    let mut slow = download(4.0, 300);
    for sample in &mut slow.samples {
        (sample.unread, sample.info.receive_window) = (200_000, 20_000);
    }
    let mut paused = slow.clone();
    paused.samples.iter_mut().for_each(|sample| sample.info.bytes_received = 7);
    assert_eq!(diagnose(&with(host(0.1, 0.1), [paused])), [], "a paused video");
    assert_only(&with(host(0.1, 4.2), [slow]), Stop::Receiver, Direction::Down, Fault::SlowReader);
    let mut seen = host(0.1, 4.2);
    let local = "192.0.2.1:6000".parse().unwrap();
    seen.udp_sockets = vec![UdpSocket { local, queued_bytes: 0.0, drops: 500 }];
    assert_only(&seen, Stop::Receiver, Direction::Down, Fault::SlowReader);
}

#[test]
fn a_long_path_and_a_step_of_the_round_trip_are_the_paths() {
    let mut far = requests(|_| 300);
    far.samples.iter_mut().for_each(|sample| sample.info.min_rtt = 299_000);
    assert_only(&with(host(0.1, 0.1), [far]), Stop::Path, Direction::Both, Fault::LongPath);
    // The kernel's average approaches the new round trip by an eighth with each ack.
    let average = |number: u64| 140.0 - 119.0 * 0.875_f64.powi(number.saturating_sub(30) as i32);
    let stepped = requests(move |number| if number < 30 { 21 } else { average(number) as u32 });
    assert_only(&with(host(0.1, 0.1), [stepped]), Stop::Path, Direction::Both, Fault::RouteChange);
    let rising = requests(|number| 21 + number as u32 * 2);
    let found = diagnose(&with(host(0.1, 0.1), [rising]));
    assert!(found.iter().all(|one| one.fault != Fault::RouteChange), "{found:?}");
}

#[test]
fn another_next_hop_is_a_change_of_the_route() {
    let mut seen = with(host(0.1, 0.1), [requests(|_| 21)]);
    let hop = |device| NextHop { device, gateway: None };
    let to = "198.51.100.1".parse().unwrap();
    seen.route_changes = vec![RouteChange { to, from_hop: hop(DEVICE), to_hop: hop(3) }];
    assert_only(&seen, Stop::Path, Direction::Both, Fault::RouteChange);
}

#[test]
fn the_costliest_fault_comes_first() {
    let mut seen = with(host(10.0, 0.2), [upload(9.5, 400)]);
    let local = "192.0.2.1:6000".parse().unwrap();
    seen.udp_sockets = vec![UdpSocket { local, queued_bytes: 0.0, drops: 500 }];
    let faults: Vec<_> = diagnose(&seen).iter().map(|one| one.fault).collect();
    assert_eq!(faults, [Fault::UpstreamQueue, Fault::SlowReader]);
}
