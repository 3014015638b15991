//! Both ends of a downlink over real sockets on the loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freshline_core::dscp::Dscp;
use freshline_core::session::downlink::{ClientParams, ServerParams};
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use freshline_core::wire::{
    AckMark, CloseReason, Cookie, Join, Message, Opening, Report, SessionId,
};
use freshline_core::wlan::{
    Aggregation, AggregationParams, DownlinkLawConfig, DownlinkParams, NonlinearParams,
};
use freshline_net::ask::Asker;
use freshline_net::clock::Clock;
use freshline_net::credentials::{Right, Rules};
use freshline_net::downlink::payload::{File, Live, Payloads, Synthetic};
use freshline_net::downlink::{
    Client, ClientConfig, ClientError, ClientReport, ClientStatus, ClientWatch, Event, Received,
    Server, ServerConfig, ServerError, ServerReport, SharedRate,
};
use freshline_net::quic::{self, Identity, Limits, Trust};
use freshline_net::source::Transport;
use freshline_net::stop::Stop;

/// Long enough for any machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const RATE: BitRate = BitRate::from_mbps(108);

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn fixed(mbps: u64) -> DownlinkLawConfig {
    let downlink = DownlinkParams { interval: Span::from_millis(50), ..DownlinkParams::default() };
    DownlinkLawConfig::Fixed { rate: BitRate::from_mbps(mbps), downlink }
}

fn config(law: DownlinkLawConfig, payloads: impl Payloads + 'static) -> ServerConfig {
    let params = ServerParams::default();
    let rules = Rules::none(Right::Subscribe);
    ServerConfig {
        listen: loopback(),
        quic: None,
        law,
        params,
        rules,
        payloads: Box::new(payloads),
    }
}

/// A server on a thread of its own.
struct Running {
    address: SocketAddr,
    asker: Asker<ServerReport>,
    stop: Stop,
    thread: JoinHandle<ServerReport>,
}

impl Running {
    fn start(config: ServerConfig) -> Self {
        let mut server = Server::bind(config).unwrap();
        let (address, asker, stop) = (server.local_addr().unwrap(), server.asker(), Stop::new());
        let theirs = stop.clone();
        let thread = thread::spawn(move || {
            server.run(&theirs, None).unwrap();
            server.report()
        });
        Self { address, asker, stop, thread }
    }

    fn end(self) -> ServerReport {
        self.stop.stop();
        self.thread.join().unwrap()
    }

    /// The first report for which this holds.
    fn once(&self, condition: impl Fn(&ServerReport) -> bool) -> ServerReport {
        let clock = Clock::new();
        let end = clock.now() + PATIENCE.into();
        loop {
            let report = self.asker.report(usize::MAX).unwrap();
            if condition(&report) {
                return report;
            }
            assert!(clock.now() < end, "in vain: {report:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The packets that a client received.
#[derive(Default)]
struct Seen {
    payload: Vec<u8>,
    closed: Option<CloseReason>,
    /// Set when enough has arrived: the client may end.
    enough: Option<(usize, Stop)>,
}

impl ClientWatch for Seen {
    fn packet(&mut self, _now: Time, packet: &Received<'_>) {
        assert!(packet.kernel.is_some(), "the kernel timestamps each packet");
        self.payload.extend_from_slice(packet.payload);
        if let Some((enough, stop)) = &self.enough
            && self.payload.len() >= *enough
        {
            stop.stop();
        }
    }

    fn event(&mut self, _now: Time, event: &Event<'_>) {
        if let Event::Closed(reason) = event {
            self.closed = Some(*reason);
            if let (CloseReason::BadToken | CloseReason::Full, Some((_, stop))) =
                (reason, &self.enough)
            {
                stop.stop();
            }
        }
    }
}

fn client(server: SocketAddr, transport: Transport, name: &str, token: &[u8]) -> Client {
    Client::new(ClientConfig {
        server: server.into(),
        transport,
        params: ClientParams {
            name: name.into(),
            token: token.into(),
            first_wait: Span::from_millis(20),
            ..ClientParams::default()
        },
        counter: Box::new(Aggregation::new(AggregationParams::default())),
        rate: SharedRate::new(RATE),
        capture: None,
        warm_up: Span::ZERO,
    })
    .unwrap()
}

/// Runs a client until it ends by itself, or has received `enough` bytes.
fn receive(mut client: Client, enough: Option<usize>) -> (Seen, ClientReport) {
    let stop = Stop::new();
    let enough = enough.map(|bytes| (bytes, stop.clone()));
    let mut seen = Seen { enough, ..Seen::default() };
    let until = Clock::new().now() + PATIENCE.into();
    client.run(&stop, Some(until), &mut seen).unwrap();
    (seen, client.report())
}

/// Bytes that encode their position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at) as u8).collect()
}

fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn a_file_comes_whole_and_its_end_ends_the_client() {
    let bytes = pattern(300_000);
    let file = file_of(&bytes);
    let server = Running::start(config(fixed(40), File::open(file.path(), false).unwrap()));
    let (seen, report) = receive(client(server.address, Transport::Udp, "tv", b""), None);
    assert_eq!(seen.closed, Some(CloseReason::Done));
    assert!(seen.payload == bytes, "{} bytes", seen.payload.len());
    assert_eq!((report.counters.missing, report.counters.copies), (0, 0));
    let told = server.once(|report| report.counters.left == 1);
    let last = &told.ended[0];
    assert_eq!((&last.client[..], last.payload_bytes, told.clients_active), ("tv", 300_000, 0));
    server.end();
}

#[test]
fn the_same_over_quic_for_two_clients_at_once() {
    let state = tempfile::tempdir().unwrap();
    let identity = Identity::from_state_dir(state.path()).unwrap();
    // Shorter than the transfer of 1.6 s: a connection by which a client has joined stays.
    let (in_flight, opening_timeout) = (Limits::DOWNLINK_IN_FLIGHT, Duration::from_secs(1));
    let limits = Limits { in_flight, opening_timeout, ..Limits::default() };
    let bytes = pattern(2_000_000);
    let file = file_of(&bytes);
    let server = Running::start(ServerConfig {
        quic: Some(quic::ServerConfig::new(&identity, None, limits).unwrap()),
        ..config(fixed(10), File::open(file.path(), false).unwrap())
    });
    let trust = Trust::Pinned(identity.fingerprint());
    let transport = Transport::Quic {
        config: quic::ClientConfig::new(&trust, None).unwrap(),
        server_name: "localhost".into(),
    };
    let address = server.address;
    let clients = ["one", "other"].map(|name| {
        let transport = transport.clone();
        thread::spawn(move || receive(client(address, transport, name, b""), None).0)
    });
    for one in clients {
        let seen = one.join().unwrap();
        assert_eq!(seen.closed, Some(CloseReason::Done));
        assert!(seen.payload == bytes, "{} bytes", seen.payload.len());
    }
    let report = server.end();
    let counters = report.counters;
    assert_eq!((counters.joined, counters.challenged, counters.moved), (2, 0, 0));
}

/// Reports each read before it begins.
struct Outcome<R> {
    reader: R,
    reads: Sender<()>,
}

impl<R: Read> Read for Outcome<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let _ = self.reads.send(());
        self.reader.read(out)
    }
}

#[test]
fn a_live_stream_comes_from_where_a_client_joined() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (reads, has_read) = channel();
    let fresh = Span::from_secs(60);
    let server = Running::start(config(fixed(50), Live::new(Outcome { reader, reads }, fresh)));
    writer.write_all(b"before anybody listens").unwrap();
    // A reader that reads again has processed the bytes before.
    (0..2).for_each(|_| has_read.recv_timeout(PATIENCE).unwrap());
    let address = server.address;
    let receiver = thread::spawn(move || {
        receive(client(address, Transport::Udp, "late", b""), Some(9)).0.payload
    });
    server.once(|report| report.counters.joined == 1);
    writer.write_all(b"now ").unwrap();
    server.once(|report| report.clients.iter().any(|client| client.payload_bytes >= 4));
    writer.write_all(b"again").unwrap();
    assert_eq!(receiver.join().unwrap(), b"now again");
    server.end();
}

#[test]
fn clients_report_and_come_back_to_a_server_that_was_started_anew() {
    let first = Running::start(config(fixed(5), Synthetic::new(1000)));
    let address = first.address;
    let (stop, client) = (Stop::new(), client(address, Transport::Udp, "", b""));
    let theirs = stop.clone();
    let running = thread::spawn(move || {
        let mut client = client;
        client.run(&theirs, None, &mut ()).unwrap();
        client.report()
    });
    let tells = |client: &ClientStatus| client.reports > 2 && client.level.is_some();
    let told = first.once(|report| report.clients.iter().any(tells));
    let [status] = &told.clients[..] else { panic!("{told:?}") };
    // A harmonic mean, rounded down.
    assert!(status.mcs_rate_bps.unwrap().abs_diff(RATE.as_bps()) <= 1, "{status:?}");
    assert!(status.level >= Some(1.0) && status.delay_ms.is_some(), "{status:?}");
    first.end();
    let second = ServerConfig { listen: address, ..config(fixed(5), Synthetic::new(1000)) };
    let second = Running::start(second);
    second.once(|report| report.clients.iter().any(|client| client.reports > 2));
    stop.stop();
    let report = running.join().unwrap();
    assert!(report.delay_p50_ms.is_some() && report.counters.joins >= 3, "{report:?}");
    second.once(|report| report.counters.left == 1);
    second.end();
}

#[test]
fn who_shows_no_token_and_who_is_one_too_many_is_told() {
    let DownlinkLawConfig::Nonlinear(law) = law(Span::from_millis(5)) else { unreachable!() };
    let downlink = DownlinkParams { max_stations: 1, ..law.downlink };
    let law = DownlinkLawConfig::Nonlinear(NonlinearParams { downlink, ..law });
    let params = ServerParams { tokens: vec![b"open".to_vec()], ..ServerParams::default() };
    let server = Running::start(ServerConfig { params, ..config(law, Synthetic::new(1000)) });
    let address = server.address;
    let try_with =
        |token: &[u8]| receive(client(address, Transport::Udp, "", token), Some(usize::MAX)).0;
    assert_eq!(try_with(b"wrong").closed, Some(CloseReason::BadToken));
    let stop = Stop::new();
    let (theirs, mut first) = (stop.clone(), client(address, Transport::Udp, "", b"open"));
    let first = thread::spawn(move || first.run(&theirs, None, &mut ()));
    server.once(|report| report.clients_active == 1);
    assert_eq!(try_with(b"open").closed, Some(CloseReason::Full));
    stop.stop();
    first.join().unwrap().unwrap();
    server.end();
}

#[test]
fn packets_that_no_client_takes_are_refused() {
    for (bytes, is_right) in [(68, false), (69, true), (9028, true), (9029, false)] {
        let mut law = fixed(1);
        law.downlink_mut().packet = Bytes::new(bytes);
        let bound = Server::bind(config(law, Synthetic::new(1)));
        assert_eq!(bound.is_ok(), is_right, "{bytes}");
        if let Err(error) = bound {
            assert!(matches!(error, ServerError::Packet { .. }), "{error}");
        }
    }
}

fn law(delay: Span) -> DownlinkLawConfig {
    let downlink = DownlinkParams { interval: Span::from_millis(100), ..DownlinkParams::default() };
    DownlinkLawConfig::Nonlinear(NonlinearParams { downlink, delay, ..Default::default() })
}

/// A client that is programmed here, and may send anything.
struct Stranger {
    socket: UdpSocket,
    session: SessionId,
    number: u32,
}

impl Stranger {
    fn join(server: SocketAddr, session: u64) -> Self {
        let socket = UdpSocket::bind(loopback()).unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let stranger = Self { socket, session: SessionId(session), number: 0 };
        stranger.ask(Cookie::default());
        let mut buffer = [0; 2048];
        loop {
            let len = stranger.socket.recv(&mut buffer).unwrap();
            match Message::parse(&buffer[..len]) {
                Ok(Message::Challenge(challenge)) => stranger.ask(challenge.cookie),
                Ok(Message::Packet(_)) => return stranger,
                other => panic!("{other:?}"),
            }
        }
    }

    fn ask(&self, cookie: Cookie) {
        let (mut bytes, opening) = ([0; 400], Opening { cookie, name: "", token: b"" });
        let len = Join { session: self.session, opening }.write(&mut bytes).unwrap();
        self.socket.send(&bytes[..len]).unwrap();
    }

    /// Answers every packet with this report, until none has arrived for a second.
    fn lie(mut self, seen: freshline_core::wlan::Report, told: &Receiver<()>) {
        self.socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut buffer = [0; 2048];
        while let Ok(len) = self.socket.recv(&mut buffer) {
            if told.try_recv().is_ok() {
                return;
            }
            let Ok(Message::Packet(packet)) = Message::parse(&buffer[..len]) else { continue };
            self.number += 1;
            let report = Report {
                session: self.session,
                number: self.number,
                newest_seq: packet.seq,
                newest_sent_at: packet.sent_at,
                newest_received_at: packet.sent_at,
                hold: Span::ZERO,
                received: self.number,
                seen: Some(seen),
                marks: Default::default(),
                delivered: None,
                max_packets: None,
            };
            // A full buffer is not an error.
            let _ = self.socket.send(&report.bytes());
        }
    }
}

#[test]
fn floods_of_joins_and_reports_cost_neither_memory_nor_the_others_their_packets() {
    let server = Running::start(config(law(Span::from_millis(5)), Synthetic::new(1000)));
    let address = server.address;
    let (stop, mut honest) = (Stop::new(), client(address, Transport::Udp, "honest", b""));
    let theirs = stop.clone();
    let honest = thread::spawn(move || honest.run(&theirs, None, &mut ()));
    server.once(|report| report.counters.reports > 2);
    let flooder = Stranger::join(address, 7);
    let rate = BitRate::from_bps(3_400_000_000);
    let seen =
        freshline_core::wlan::Report { level: 1.0, deviation: 0.0, frames: 9, rate, loss: 0.0 };
    let (tell, told) = channel();
    let lying = thread::spawn(move || flooder.lie(seen, &told));
    // Joins of sessions that do not exist, from one address, with no cookie.
    let socket = UdpSocket::bind(loopback()).unwrap();
    socket.connect(address).unwrap();
    // Of which a busy server's socket drops most: until enough have come.
    let (mut sessions, clock) = (0.., Clock::new());
    let end = clock.now() + PATIENCE.into();
    let before = loop {
        for session in sessions.by_ref().take(20_000) {
            let (mut bytes, cookie) = ([0; 400], Cookie::default());
            let opening = Opening { cookie, name: "", token: b"" };
            let len = Join { session: SessionId(session), opening }.write(&mut bytes).unwrap();
            let _ = socket.send(&bytes[..len]);
        }
        let report = server.asker.report(usize::MAX).unwrap();
        if report.counters.challenged > 1_000 {
            break report;
        }
        assert!(clock.now() < end, "in vain: {report:?}");
    };
    assert_eq!(before.clients_active, 2);
    let reports = |report: &ServerReport| {
        let of = |status: &&ClientStatus| status.client == "honest";
        report.clients.iter().find(of).map_or(0, |status| status.reports)
    };
    let after = server.once(|report| reports(report) > reports(&before) + 5);
    // Of the flood of reports four an interval are looked at, at most.
    let lies: u64 =
        after.clients.iter().map(|status| status.reports).sum::<u64>() - reports(&after);
    let intervals = after.duration_s / 0.1;
    assert!(lies as f64 <= 4.0 * intervals + 1.0, "{lies} in {intervals} intervals");
    assert!(after.counters.ignored > 0);
    tell.send(()).unwrap();
    stop.stop();
    honest.join().unwrap().unwrap();
    lying.join().unwrap();
    server.end();
}

#[test]
fn packets_and_reports_arrive_marked_by_both_families() {
    let [ef, cs5] = [46, 40].map(Dscp::new);
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let mut config = config(fixed(2), Synthetic::new(200));
        config.listen = listen.parse().unwrap();
        config.params.dscp = ef.unwrap();
        config.params.ack_mark = cs5.map(AckMark::Set);
        let server = Running::start(config);
        let stop = Stop::new();
        let mut client = client(server.address, Transport::Udp, "tv", b"");
        let theirs = stop.clone();
        let receiving = thread::spawn(move || {
            client.run(&theirs, None, &mut ()).unwrap();
            client.report()
        });
        let is_known = |client: &ClientStatus| {
            client.marks.forward.is_preserved.is_some()
                && client.marks.reverse.is_preserved.is_some()
        };
        let report = server.once(|report| report.clients.first().is_some_and(is_known));
        let marks = report.clients[0].marks;
        assert_eq!(
            (Some(marks.dscp), marks.forward.received_dscp, marks.reverse.received_dscp),
            (ef, ef, cs5)
        );
        assert_eq!(
            (marks.forward.is_preserved, marks.reverse.is_preserved),
            (Some(true), Some(true))
        );
        assert_eq!((marks.forward.remarked, marks.reverse.remarked), (0, 0), "joins do not count");
        stop.stop();
        assert_eq!(receiving.join().unwrap().dscp, ef);
        server.end();
    }
}

#[test]
fn a_client_that_has_left_is_an_error_to_run_again() {
    let server = UdpSocket::bind(loopback()).unwrap();
    let mut client = client(server.local_addr().unwrap(), Transport::Udp, "tv", b"");
    let stop = Stop::new();
    stop.stop();
    client.run(&stop, None, &mut ()).unwrap();
    let end = Clock::new().now() + Span::from_secs(1);
    let again = client.run(&Stop::new(), Some(end), &mut ());
    assert!(matches!(again, Err(ClientError::Left)), "{again:?}");
}
