//! Code points (DSCP) on the wire: those of a source and a monitor in a capture on the router, and
//! the packets that a router replaces by their code points.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freshline_core::router::Header;
use freshline_core::wire::{Message, Update};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use super::net::{Net, Running, can_run};
use super::running::{Router, count, output_of};

const EF: u8 = 46;
const CS5: u8 = 40;
const PORT: u16 = 3774;
/// Payload of an update.
const SIZE: usize = 300;

/// A UDP datagram on the router.
#[derive(Debug)]
struct Seen {
    /// From the source to the monitor.
    is_forward: bool,
    dscp: u8,
    payload: Vec<u8>,
}

/// A packet socket on the router, and the packets that it has captured.
struct Capture {
    stop: Arc<AtomicBool>,
    reading: JoinHandle<Vec<Seen>>,
}

impl Capture {
    fn start(net: &Net) -> Self {
        // ETH_P_ALL; a packet of each device, so that each passes twice.
        let protocol = Protocol::from(i32::from(3u16.to_be()));
        let open = || Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)).unwrap();
        let socket = net.within("r", open);
        socket.set_recv_buffer_size(4 << 20).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let reading = thread::spawn(move || {
            let (mut seen, mut packet) = (Vec::new(), vec![0; 1 << 16]);
            while !stopped.load(Ordering::Relaxed) {
                if let Ok(len) = (&socket).read(&mut packet) {
                    seen.extend(datagram(&packet[..len]));
                }
            }
            seen
        });
        Self { stop, reading }
    }

    fn stop(self) -> Vec<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        self.reading.join().unwrap()
    }
}

/// A UDP datagram to or from the monitor.
fn datagram(packet: &[u8]) -> Option<Seen> {
    let header = Header::of_ip(packet)?;
    let is_forward = header.flow.destination_port == PORT;
    if !is_forward && header.flow.source_port != PORT {
        return None;
    }
    let headers = if packet[0] >> 4 == 4 { 20 + 8 } else { 40 + 8 };
    Some(Seen { is_forward, dscp: header.dscp, payload: packet.get(headers..)?.to_vec() })
}

/// A monitor on B.
struct Monitor {
    running: Running,
    url: String,
    pin: Option<String>,
    _state: tempfile::TempDir,
}

impl Monitor {
    fn start(net: &Net, scheme: &str, host: &str, flags: &[&str]) -> Self {
        let url = format!("{scheme}://{host}:{PORT}");
        let state = tempfile::tempdir().unwrap();
        let mut arguments = vec!["monitor", &url, "--json"];
        match scheme {
            "quic" => arguments.extend(["--state-dir", state.path().to_str().unwrap()]),
            _ => arguments.push("--insecure"),
        }
        arguments.extend(flags);
        let mut child = net.freshline("b", &arguments).spawn().unwrap();
        let pin = said_at_start(&mut child, scheme == "quic");
        Self { running: Running(child), url, pin, _state: state }
    }

    /// Runs a source on A until it ends; returns its report.
    fn source(&self, net: &Net, flags: &[&str]) -> Value {
        let size = SIZE.to_string();
        let mut arguments = vec!["source", &self.url, "--size", &size, "--json", "--law", "fixed"];
        arguments.extend(self.pin.iter().flat_map(|pin| ["--pin", pin]));
        arguments.extend(flags);
        let (code, out, said) = output_of(net.freshline("a", &arguments).spawn().unwrap());
        assert_eq!(code, Some(0), "{said}");
        serde_json::from_str(&out).unwrap()
    }

    fn stop(mut self) -> Value {
        self.running.signal(nix::sys::signal::Signal::SIGTERM);
        let mut out = String::new();
        self.running.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        serde_json::from_str(&out).unwrap()
    }
}

/// Reads the line with the monitor's address, and its fingerprint; later output is discarded.
fn said_at_start(child: &mut Child, has_pin: bool) -> Option<String> {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let last = if has_pin { "fingerprint " } else { "listening at " };
    let said = lines.find_map(|line| Some(line.strip_prefix(last)?.to_owned()));
    let said = said.expect("the monitor starts");
    thread::spawn(move || lines.for_each(drop));
    has_pin.then_some(said)
}

/// Whether a datagram is one that carries a marked update or ack, and whether it must not be marked;
/// a packet of QUIC shows that only by its header and length.
fn kind(seen: &Seen, is_quic: bool) -> [bool; 2] {
    if is_quic {
        let is_handshake = seen.payload[0] & 0x80 != 0;
        // Packets without a datagram have some 30 bytes.
        let datagram = if seen.is_forward { SIZE } else { 56 };
        return [!is_handshake && seen.payload.len() >= datagram, is_handshake];
    }
    match Message::parse(&seen.payload) {
        Ok(Message::Update(Update { opening, .. })) => [opening.is_none(), opening.is_some()],
        Ok(Message::Ack(_)) => [true, false],
        Ok(Message::Challenge(_) | Message::Close(_)) => [false, true],
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_capture_shows_marks_on_updates_and_acks_alone_by_both_families_and_transports() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    for host in ["10.77.2.1", "[fd77:2::1]"] {
        for scheme in ["udp", "quic"] {
            let case = format!("{scheme}://{host}");
            let monitor = Monitor::start(&net, scheme, host, &[]);
            let capture = Capture::start(&net);
            let flags = ["--dscp", "EF", "--ack-dscp", "CS5", "--rate", "100/s"];
            let report = monitor.source(&net, &[&flags[..], &["--duration", "2s"]].concat());
            let seen = capture.stop();
            let monitor = monitor.stop();

            let is_quic = scheme == "quic";
            let [mut marked, mut unmarked, mut openings] = [[0u32; 2]; 3];
            for one in &seen {
                let [is_marked, must_not] = kind(one, is_quic);
                let way = usize::from(!one.is_forward);
                let mark = [EF, CS5][way];
                if one.dscp != 0 {
                    assert_eq!(one.dscp, mark, "{case}");
                    assert!(is_marked, "{case}: {:x?}", one.payload);
                    marked[way] += 1;
                } else if must_not {
                    unmarked[way] += 1;
                } else {
                    // Of QUIC, one cannot see which updates open the session.
                    openings[way] += u32::from(is_marked);
                }
            }
            // Of 200; a busy machine sends fewer.
            assert!(marked.iter().all(|count| *count > 80), "{case}: {marked:?}");
            assert!(unmarked.iter().all(|count| *count > 0), "{case}: {unmarked:?}");
            let most = if is_quic { marked[0] / 10 } else { 0 };
            assert!(openings[0] <= most && openings[1] == 0, "{case}: {openings:?}");

            let marks = &report["marks"];
            assert_eq!(count(&marks["dscp"]), u64::from(EF));
            for (direction, mark) in [("forward", EF), ("reverse", CS5)] {
                assert_eq!(
                    count(&marks[direction]["received_dscp"]),
                    u64::from(mark),
                    "{case}: {marks}"
                );
                assert_eq!(marks[direction]["is_preserved"], true, "{case}: {marks}");
                assert_eq!(count(&marks[direction]["remarked"]), 0, "{case}: {marks}");
            }
            assert_eq!(count(&monitor["ended"][0]["dscp"]), u64::from(EF), "{case}");
        }
    }
}

#[test]
fn a_router_that_goes_by_marks_replaces_updates_and_neither_handshakes_nor_acks() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    for scheme in ["udp", "quic"] {
        // The rate of updates is several times the link's capacity.
        let flags = ["--rate", "500kbit", "--classify", "dscp=EF force"];
        let other = [&flags[..], &["--queue-number", "7"]].concat();
        let forward = Router::start(&net, &flags);
        let back = Router::by_name(&net, "a", &other);
        let monitor = Monitor::start(&net, scheme, "10.77.2.1", &[]);
        let capture = Capture::start(&net);
        let report = monitor.source(&net, &["--dscp", "EF", "--rate", "500/s", "--duration", "2s"]);
        drop(monitor);
        let seen = capture.stop();
        assert!(seen.iter().any(|one| one.is_forward && one.dscp == EF));
        let (forward, back) = (forward.stop(), back.stop());
        assert!(count(&forward["classes"][0]["replaced"]) > 100, "{scheme}: {forward}");
        assert_eq!(count(&forward["classes"][1]["replaced"]), 0, "{scheme}: {forward}");
        assert!(count(&forward["classes"][1]["packets_in"]) > 0, "{scheme}: {forward}");
        // Acks are marked only on request.
        assert_eq!(count(&back["classes"][0]["packets_in"]), 0, "{scheme}: {back}");
        assert_eq!(count(&back["classes"][1]["replaced"]), 0, "{scheme}: {back}");
        assert!(count(&back["classes"][1]["packets_in"]) > 10, "{scheme}: {back}");
        assert_eq!(count(&report["opened"]), 1, "{scheme}: {report}");
    }
}
