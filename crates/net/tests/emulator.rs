//! The path emulator over real sockets on the loopback.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freshline_core::link::{ConditionsConfig, PathConfig};
use freshline_core::unit::{Span, Time};
use freshline_net::clock::Clock;
use freshline_net::emulate::{EmulateError, Emulator, EmulatorConfig, Handle, Report};

/// Long enough for any machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const SEED: u64 = 7;

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn socket(on: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(on).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn path(hops: &[&str]) -> PathConfig {
    PathConfig { hop: hops.iter().map(|text| text.parse().unwrap()).collect() }
}

fn conditions(forward: &[&str], reverse: &[&str]) -> EmulatorConfig {
    let conditions =
        ConditionsConfig { forward: path(forward), reverse: path(reverse), wlan: None };
    EmulatorConfig { conditions, ..EmulatorConfig::default() }
}

/// An emulator on a thread of its own.
struct Running {
    address: SocketAddr,
    handle: Handle,
    thread: JoinHandle<Result<Report, EmulateError>>,
}

impl Running {
    fn towards(target: SocketAddr, config: EmulatorConfig) -> Self {
        let listen = SocketAddr::new(target.ip(), 0);
        let mut emulator = Emulator::bind(listen, target, config, SEED).unwrap();
        let (address, handle) = (emulator.local_addr(), emulator.handle());
        Self { address, handle, thread: thread::spawn(move || emulator.run(None)) }
    }

    fn client(&self) -> UdpSocket {
        let client = socket(SocketAddr::new(self.address.ip(), 0));
        client.connect(self.address).unwrap();
        client
    }

    /// Waits until the live report meets the condition.
    fn wait_for(&self, condition: impl Fn(&Report) -> bool) {
        let clock = Clock::new();
        let end = clock.now() + PATIENCE.into();
        while !condition(&self.handle.report()) {
            assert!(clock.now() < end, "in vain: {:?}", self.handle.report());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(self) -> Report {
        self.handle.stop();
        let report = self.thread.join().unwrap().unwrap();
        for hop in report.forward.hops.iter().chain(&report.reverse.hops) {
            let dropped: u64 = hop.drops.values().sum();
            assert_eq!(
                hop.packets_in,
                hop.packets_out + dropped + hop.packets_in_flight,
                "{hop:?}"
            );
        }
        report
    }
}

/// A target that sends received datagrams back, until it is dropped.
struct Echo {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn on(address: SocketAddr) -> Self {
        let socket = socket(address);
        let address = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                socket.send_to(&buffer[..len], from).unwrap();
            }
        });
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        socket(SocketAddr::new(self.address.ip(), 0)).send_to(b"wake up", self.address).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Sends `payload` and waits for it to come back: how long that took.
fn round_trip(client: &UdpSocket, payload: &[u8]) -> Span {
    let clock = Clock::new();
    let start = clock.now();
    client.send(payload).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let len = client.recv(&mut buffer).unwrap();
    assert!(&buffer[..len] == payload, "{len} bytes came back for {}", payload.len());
    clock.now().since(start)
}

#[test]
fn a_round_trip_takes_at_least_both_delays() {
    let echo = Echo::on(loopback());
    let config = conditions(&["delay=5ms", "delay=10ms"], &["delay=20ms"]);
    let emulator = Running::towards(echo.address, config);
    let client = emulator.client();
    for _ in 0..5 {
        assert!(round_trip(&client, b"update") >= Span::from_millis(35));
    }
    let report = emulator.stop();
    assert_eq!(report.forward.hops.len(), 2);
    assert_eq!((report.forward.hops[1].packets_out, report.reverse.hops[0].packets_out), (5, 5));
    assert_eq!((report.flows.opened, report.flows.active), (1, 1));
}

#[test]
fn a_burst_is_spread_over_the_time_that_the_rate_needs() {
    let target = socket(loopback());
    let config = conditions(&["rate=8mbit"], &[]);
    let emulator = Running::towards(target.local_addr().unwrap(), config);
    let client = emulator.client();
    let clock = Clock::new();
    let start = clock.now();
    // With 28 bytes of headers 1000 bytes each: 1 ms at 8 Mbit/s.
    let packets = 40;
    for _ in 0..packets {
        client.send(&[0; 972]).unwrap();
    }
    for _ in 0..packets {
        target.recv(&mut [0; 2048]).unwrap();
    }
    assert!(clock.now().since(start) >= Span::from_millis(packets));
    let report = emulator.stop();
    let hop = &report.forward.hops[0];
    assert_eq!((hop.packets_out, hop.bytes_out), (packets, packets * 1000));
    assert!(hop.sojourn_max_ms >= 1.0 && hop.utilisation > 0.0, "{hop:?}");
}

#[test]
fn a_full_queue_drops_and_says_so() {
    let target = socket(loopback());
    let config = conditions(&["rate=100bit,queue=2p"], &[]);
    let emulator = Running::towards(target.local_addr().unwrap(), config);
    let client = emulator.client();
    for _ in 0..10 {
        client.send(&[0; 972]).unwrap();
    }
    // More than a minute each: one is in transmission and two wait.
    emulator.wait_for(|report| report.forward.hops[0].packets_in == 10);
    let hop = emulator.stop().forward.hops.remove(0);
    assert_eq!((hop.packets_in_flight, hop.drops["queue_full"]), (3, 7));
}

/// How many of `offered` packets a path with a loss of 0.25 loses.
fn lost_of(offered: u64) -> u64 {
    let target = socket(loopback());
    let config = conditions(&["loss=0.25"], &[]);
    let emulator = Running::towards(target.local_addr().unwrap(), config);
    let client = emulator.client();
    for sent in 1..=offered {
        client.send(b"update").unwrap();
        if sent % 50 == 0 {
            // Not faster than socket buffers can take it.
            emulator.wait_for(|report| {
                let hop = &report.forward.hops[0];
                hop.packets_in == sent && hop.packets_in_flight == 0
            });
        }
    }
    emulator.stop().forward.hops[0].drops["loss"]
}

#[test]
fn loss_follows_from_the_seed() {
    let lost = lost_of(400);
    // Five standard deviations of a binomial of 400 × 0.25.
    assert!(lost.abs_diff(100) < 44, "{lost} of 400");
    assert_eq!(lost_of(400), lost);
}

#[test]
fn two_clients_get_their_own_answers() {
    let echo = Echo::on(loopback());
    let emulator = Running::towards(echo.address, conditions(&["delay=2ms"], &["delay=2ms"]));
    let clients = [emulator.client(), emulator.client()];
    for round in 0..10u8 {
        for (client, socket) in clients.iter().enumerate() {
            socket.send(&[client as u8, round]).unwrap();
        }
        for (client, socket) in clients.iter().enumerate() {
            let mut answer = [0; 8];
            assert_eq!(socket.recv(&mut answer).unwrap(), 2);
            assert_eq!(answer[..2], [client as u8, round]);
        }
    }
    assert_eq!(emulator.stop().flows.opened, 2);
}

#[test]
fn an_absent_target_is_counted_and_may_come_later() {
    let address = socket(loopback()).local_addr().unwrap();
    let emulator = Running::towards(address, conditions(&[], &[]));
    let client = emulator.client();
    for refused in 1..4 {
        client.send(b"anybody?").unwrap();
        emulator.wait_for(|report| report.target_unreachable >= refused);
    }
    let _echo = Echo::on(address);
    round_trip(&client, b"at last");
    emulator.stop();
}

#[test]
fn datagrams_of_every_size_pass_over_both_families() {
    for address in [loopback(), (Ipv6Addr::LOCALHOST, 0).into()] {
        let echo = Echo::on(address);
        let emulator = Running::towards(echo.address, conditions(&["rate=10gbit"], &[]));
        let client = emulator.client();
        let headers = if address.is_ipv4() { 28 } else { 48 };
        let sizes = [0, 1, 2048, 2049, 65_507];
        for size in sizes {
            let payload: Vec<u8> = (0..size).map(|byte| byte as u8).collect();
            round_trip(&client, &payload);
        }
        let report = emulator.stop();
        let expected: usize = sizes.iter().map(|size| size + headers).sum();
        assert_eq!(report.forward.hops[0].bytes_out, expected as u64);
        assert_eq!(report.reverse.hops[0].bytes_out, expected as u64);
        assert_eq!(report.socket_errors, 0);
    }
}

#[test]
fn clients_beyond_the_cap_are_refused_until_others_fall_silent() {
    let echo = Echo::on(loopback());
    let config = EmulatorConfig { max_flows: 1, ..conditions(&[], &[]) };
    let emulator = Running::towards(echo.address, config);
    let (first, second) = (emulator.client(), emulator.client());
    round_trip(&first, b"served");
    second.send(b"refused").unwrap();
    emulator.wait_for(|report| report.flows.refused_packets == 1);
    emulator.stop();

    // Long enough for an answer on a busy machine, short enough to wait for.
    let idle_timeout = Span::from_secs(1);
    let config = EmulatorConfig { max_flows: 1, idle_timeout, ..conditions(&[], &[]) };
    let emulator = Running::towards(echo.address, config);
    round_trip(&emulator.client(), b"served");
    emulator.wait_for(|report| report.flows.active == 0);
    round_trip(&emulator.client(), b"served too");
    let flows = emulator.stop().flows;
    assert!(flows.opened == 2 && flows.expired >= 1, "{flows:?}");
}

#[test]
fn short_clients_make_room_for_others() {
    let echo = Echo::on(loopback());
    let rest = Span::from_millis(1);
    let config = EmulatorConfig { max_flows: 4, rest, ..conditions(&[], &[]) };
    let emulator = Running::towards(echo.address, config);
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(emulator.client());
        round_trip(clients.last().unwrap(), b"served");
        thread::sleep(Duration::from_millis(2));
    }
    let flows = emulator.stop().flows;
    assert_eq!((flows.opened, flows.refused_packets, flows.active), (20, 0, 4), "{flows:?}");
}

#[test]
fn answers_leave_from_the_address_that_the_client_knows() {
    let echo = Echo::on(loopback());
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let listen = listen.parse().unwrap();
        let mut emulator =
            Emulator::bind(listen, echo.address, conditions(&[], &[]), SEED).unwrap();
        let (port, handle) = (emulator.local_addr().port(), emulator.handle());
        let running = thread::spawn(move || emulator.run(None));
        for to in [[127, 0, 0, 1], [127, 0, 0, 2], [127, 9, 8, 7]] {
            // A client of one address receives nothing for others.
            let client = socket(loopback());
            client.connect(SocketAddr::from((to, port))).unwrap();
            round_trip(&client, b"asked");
        }
        handle.stop();
        assert_eq!(running.join().unwrap().unwrap().flows.opened, 3);
    }
}

#[test]
fn a_datagram_to_a_broadcast_address_is_answered_from_an_address_of_the_host() {
    let echo = Echo::on(loopback());
    let listen = "0.0.0.0:0".parse().unwrap();
    let mut emulator = Emulator::bind(listen, echo.address, conditions(&[], &[]), SEED).unwrap();
    let (port, handle) = (emulator.local_addr().port(), emulator.handle());
    let running = thread::spawn(move || emulator.run(None));
    let client = socket(loopback());
    client.set_broadcast(true).unwrap();
    client.send_to(b"asked", ("127.255.255.255", port)).unwrap();
    let (len, from) = client.recv_from(&mut [0; 64]).unwrap();
    assert_eq!((len, from.ip()), (5, loopback().ip()));
    handle.stop();
    running.join().unwrap().unwrap();
}

#[test]
fn rules_know_the_ports_and_the_classes_of_packets() {
    let echo = Echo::on(loopback());
    let port = echo.address.port();
    for rule in [format!("port={port} force"), "dscp=46 force".to_owned()] {
        // A datagram that is not an update is refused by a queue without room for it.
        let queue = format!(
            "[[forward.hop]]\nrate = '100kbit'\nqueue = {{ discipline = 'ifc', classifier = '{rule}', \
             aoi = 'ifil', drop_averse = '1B' }}"
        );
        let conditions: ConditionsConfig = toml::from_str(&queue).unwrap();
        let config = EmulatorConfig { conditions, ..EmulatorConfig::default() };
        let emulator = Running::towards(echo.address, config);
        let client = emulator.client();
        socket2::SockRef::from(&client).set_tos_v4(46 << 2).unwrap();
        round_trip(&client, b"an update");
        emulator.stop();
    }
}

#[test]
fn it_stops_when_its_time_has_come() {
    let target = socket(loopback()).local_addr().unwrap();
    let mut emulator = Emulator::bind(loopback(), target, conditions(&[], &[]), SEED).unwrap();
    let report = emulator.run(Some(Clock::new().now() + Span::from_millis(5))).unwrap();
    assert!(report.duration_s >= 0.005);
    assert_eq!(report.seed, SEED);
    // With an end in the past, the emulator does not start.
    assert_eq!(emulator.run(Some(Time::ZERO)).unwrap().forward.hops[0].packets_in, 0);
}

#[test]
fn what_cannot_be_emulated_is_refused_with_the_reason() {
    let taken = socket(loopback()).local_addr().unwrap();
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], 0));
    let config = conditions(&[], &["delay=1ms", "loss=7"]);
    for (listen, config, reason) in [
        (loopback(), config, "reverse path, hop 2: `loss` is 7; give"),
        (elsewhere, conditions(&[], &[]), "cannot listen on 192.0.2.1:0"),
    ] {
        let error = Emulator::bind(listen, taken, config, SEED).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn the_report_keeps_its_keys() {
    let target = socket(loopback()).local_addr().unwrap();
    let emulator = Emulator::bind(loopback(), target, conditions(&["delay=1ms"], &[]), SEED);
    let report = serde_json::to_value(emulator.unwrap().handle().report()).unwrap();
    let hop = &report["forward"]["hops"][0];
    assert_eq!(hop["conditions"]["delay"], "1ms");
    for reason in ["too_big", "queue_full", "loss", "line_full"] {
        assert_eq!(hop["drops"][reason], 0, "{reason}");
    }
    assert_eq!(hop["sojourn_mean_ms"], 0.0);
    assert_eq!(report["reverse"]["timing_error"]["p99_ms"], 0.0);
}
