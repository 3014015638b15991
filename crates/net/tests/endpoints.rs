//! A source keeps a monitor fresh over real sockets on loopback: by UDP and by QUIC, let in or
//! not, and with every way out of the monitor.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use freshline_core::session::{MonitorParams, SourceEvent, SourceKey, SourceParams};
use freshline_core::source::{AcpPlus, AcpPlusParams, Fixed, RateBounds};
use freshline_core::unit::{Time, UpdateRate};
use freshline_core::wire::{Challenge, CloseReason, Cookie, Message};
use freshline_net::clock::Clock;
use freshline_net::monitor::output::{Outputs, QuerySocket, serve_metrics};
use freshline_net::monitor::{Asker, Monitor, MonitorConfig, MonitorReport, Record, Watch};
use freshline_net::quic::{ClientConfig, Identity, Limits, ServerConfig, Trust};
use freshline_net::source::sampler::{Latest, Sampler, Synthetic};
use freshline_net::source::{
    self, Event, Source, SourceConfig, SourceError, SourceReport, Transport, Ways,
};
use freshline_net::stop::Stop;

const PATIENCE: Duration = Duration::from_secs(20);

/// A monitor on a thread of its own.
struct Running {
    address: SocketAddr,
    asker: Asker,
    stop: Stop,
    thread: JoinHandle<MonitorReport>,
}

impl Running {
    fn start(config: MonitorConfig, mut watch: impl Watch + Send + 'static) -> Self {
        let mut monitor = Monitor::bind(config).expect("a monitor");
        let address = monitor.local_addr().expect("its address");
        let (asker, stop) = (monitor.asker(), Stop::new());
        let theirs = stop.clone();
        let thread = std::thread::spawn(move || {
            monitor.run(&theirs, None, &mut watch).expect("it runs");
            monitor.report(&watch)
        });
        Self { address, asker, stop, thread }
    }

    /// Ends it once this holds: what is under way when it is told to stop is not waited for.
    fn end_once(self, condition: impl Fn(&MonitorReport) -> bool) -> MonitorReport {
        let clock = Clock::new();
        let end = clock.now() + PATIENCE.into();
        loop {
            let report = self.asker.report(usize::MAX).expect("it runs");
            if condition(&report) {
                return self.end();
            }
            assert!(clock.now() < end, "in vain: {report:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(self) -> MonitorReport {
        self.stop.stop();
        self.thread.join().expect("it ends")
    }
}

fn config(quic: Option<ServerConfig>) -> MonitorConfig {
    MonitorConfig {
        listen: "127.0.0.1:0".parse().expect("an address"),
        quic,
        params: MonitorParams::default(),
        detailed: 2,
    }
}

/// QUIC's settings of both sides, with a certificate made for the occasion.
fn quic() -> (ServerConfig, Transport) {
    let state = tempfile::tempdir().expect("a directory");
    let identity = Identity::from_state_dir(state.path()).expect("an identity");
    let server = ServerConfig::new(&identity, None, Limits::default()).expect("a server");
    let trust = Trust::Pinned(identity.fingerprint());
    let config = ClientConfig::new(&trust, None).expect("a client");
    (server, Transport::Quic { config, server_name: "localhost".into() })
}

fn source_config(monitor: SocketAddr, transport: Transport) -> SourceConfig {
    SourceConfig {
        monitor,
        transport,
        ways: Ways::default(),
        params: SourceParams { name: "it".into(), ..SourceParams::default() },
        law: Box::new(Fixed::new(UpdateRate::saturating(200.0))),
        sampler: Box::new(Synthetic::new(100)),
    }
}

/// Waits for so many acks, or until the monitor has closed the session.
struct Until {
    acks: u64,
    acked: u64,
    closed: Option<CloseReason>,
    stop: Stop,
}

impl source::Watch for Until {
    fn event(&mut self, _now: Time, _: &freshline_core::session::Source, event: &Event<'_>) {
        match event {
            Event::Session(SourceEvent::Acked { .. }) => self.acked += 1,
            Event::Session(SourceEvent::Closed(reason)) => self.closed = Some(*reason),
            _ => {}
        }
        if self.acked >= self.acks || self.closed.is_some() {
            self.stop.stop();
        }
    }
}

/// Runs a source until so many of its updates are acknowledged, or it is told that it is closed.
fn run_until(acks: u64, config: SourceConfig) -> (SourceReport, Option<CloseReason>) {
    let mut until = Until { acks, acked: 0, closed: None, stop: Stop::new() };
    let end = Clock::new().now() + PATIENCE.into();
    let mut source = Source::new(config).expect("a source");
    source.run(&until.stop.clone(), Some(end), &mut until).expect("it runs");
    (source.report(), until.closed)
}

fn both_sides_agree(quic: Option<ServerConfig>, transport: Transport) {
    let monitor = Running::start(config(quic), ());
    let mut source = source_config(monitor.address, transport);
    let bounds = RateBounds { ceiling: UpdateRate::saturating(500.0), ..RateBounds::default() };
    source.law = Box::new(AcpPlus::new(AcpPlusParams { bounds, ..AcpPlusParams::default() }));
    let (report, _) = run_until(300, source);
    // It said goodbye, which may still be under way.
    let seen = monitor.end_once(|monitor| monitor.counters.closed == 1).counters;
    assert_eq!(seen.opened, 1);
    assert!(report.acked >= 300 && report.sent <= seen.fresh + seen.late + 5, "{report:?}");
    assert!(report.rtt_mean_ms.is_some_and(|rtt| rtt < 1_000.0));
    // What opens the session, and the law's first probes, follow closely.
    let most = 500.0 * report.duration_s + 25.0;
    assert!(report.sent as f64 <= most, "the ceiling holds: {report:?}");
}

#[test]
fn a_source_keeps_a_monitor_fresh_over_udp() {
    both_sides_agree(None, Transport::Udp);
}

#[test]
fn a_source_keeps_a_monitor_fresh_over_quic() {
    let (server, transport) = quic();
    both_sides_agree(Some(server), transport);
}

#[test]
fn only_a_source_with_a_good_token_is_let_in() {
    let (server, transport) = quic();
    let mut settings = config(Some(server));
    settings.params.tokens = vec![b"one".to_vec(), b"two".to_vec()];
    let monitor = Running::start(settings, ());
    let Transport::Quic { config, server_name } = transport else { unreachable!() };
    let mut told = Vec::new();
    for token in ["", "three", "two"] {
        let transport =
            Transport::Quic { config: config.clone(), server_name: server_name.clone() };
        let mut source = source_config(monitor.address, transport);
        source.params.token = token.as_bytes().to_vec();
        let (report, closed) = run_until(1, source);
        told.push((report.opened, closed));
    }
    let refused = Some(CloseReason::BadToken);
    assert_eq!(told, [(0, refused), (0, refused), (1, None)]);
    assert_eq!(monitor.end().counters.opened, 1);
}

#[test]
fn a_full_monitor_says_so_and_serves_whom_it_has() {
    let mut settings = config(None);
    settings.params.max_sources = 1;
    let monitor = Running::start(settings, ());
    let first = source_config(monitor.address, Transport::Udp);
    let (stop, mut first) = (Stop::new(), Source::new(first).expect("a source"));
    let theirs = stop.clone();
    let first = std::thread::spawn(move || {
        first.run(&theirs, None, &mut ()).expect("it runs");
        first.report()
    });
    while monitor.asker.sources(1).expect("it runs").is_empty() {
        std::thread::yield_now();
    }
    let mut second = source_config(monitor.address, Transport::Udp);
    second.params.name = "another".into();
    let (second, closed) = run_until(1, second);
    assert_eq!((second.opened, closed), (0, Some(CloseReason::Full)));
    stop.stop();
    assert_eq!(first.join().expect("it ends").opened, 1);
    monitor.end();
}

#[test]
fn a_state_too_large_for_a_datagram_is_a_clear_error() {
    let (server, transport) = quic();
    let monitor = Running::start(config(Some(server)), ());
    let mut source = source_config(monitor.address, transport);
    source.sampler = Box::new(Synthetic::new(2_000));
    let mut source = Source::new(source).expect("a source");
    let error = source.run(&Stop::new(), None, &mut ()).expect_err("it cannot be sent");
    assert!(matches!(error, SourceError::PayloadTooLarge { given: 2_000, .. }), "{error}");
    assert!(error.to_string().contains("udp://"), "{error}");
    monitor.end();
}

#[test]
fn a_source_in_doubt_moves_to_a_new_socket_before_an_opening_and_hears_its_answer() {
    let monitor = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    monitor.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let config = source_config(monitor.local_addr().expect("its address"), Transport::Udp);
    let stop = Stop::new();
    let theirs = stop.clone();
    let source = std::thread::spawn(move || {
        Source::new(config).expect("a source").run(&theirs, None, &mut ()).expect("it runs");
    });
    let mut buffer = [0; 2_000];
    let mut froms = Vec::new();
    let mut shown = Cookie::default();
    for answered in [false, false, false, true, false] {
        let (len, from) = monitor.recv_from(&mut buffer).expect("an opening");
        let Ok(Message::Update(update)) = Message::parse(&buffer[..len]) else {
            panic!("an update");
        };
        let session = update.session;
        shown = update.opening.expect("an opening").cookie;
        froms.push(from);
        if answered {
            let challenge = Challenge { session, cookie: Cookie([7; 16]) };
            monitor.send_to(&challenge.bytes(), from).expect("sent");
        }
    }
    stop.stop();
    source.join().expect("it ends");
    assert_eq!(froms[0], froms[2]);
    assert_ne!(froms[2], froms[3], "three went unanswered");
    assert_eq!(froms[3], froms[4]);
    assert_eq!(shown, Cookie([7; 16]), "the answer was heard");
}

/// Hands on what comes.
struct Payloads(Sender<String>);

impl Watch for Payloads {
    fn fresh(&mut self, _now: Time, _source: SourceKey, record: &Record) {
        let _ = self.0.send(String::from_utf8_lossy(&record.payload).into_owned());
    }
}

/// The sending end of a pipe that a source reads.
fn typed_lines() -> (std::io::PipeWriter, Box<dyn Sampler>) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    (writer, Box::new(Latest::new(reader)))
}

fn next(payloads: &Receiver<String>) -> String {
    payloads.recv_timeout(PATIENCE).expect("a state")
}

#[test]
fn the_last_line_arrives_before_the_source_ends() {
    let (sender, payloads) = channel();
    let monitor = Running::start(config(None), Payloads(sender));
    let (mut keyboard, sampler) = typed_lines();
    let mut source = source_config(monitor.address, Transport::Udp);
    source.sampler = sampler;
    let source = std::thread::spawn(move || {
        let mut source = Source::new(source).expect("a source");
        source.run(&Stop::new(), None, &mut ()).expect("it runs");
    });
    keyboard.write_all(b"one\n").expect("typed");
    assert_eq!(next(&payloads), "one");
    keyboard.write_all(b"two\nthree\nfour\n").expect("typed");
    while next(&payloads) != "four" {}
    keyboard.write_all(b"last").expect("typed");
    drop(keyboard);
    source.join().expect("it ends with the stream");
    assert_eq!(payloads.try_iter().last().as_deref(), Some("last"));
    monitor.end();
}

#[test]
fn states_leave_by_lines_by_command_by_socket_and_as_metrics() {
    let directory = tempfile::tempdir().expect("a directory");
    let (lines, commands) = (directory.path().join("lines"), directory.path().join("commands"));
    let mut outputs = Outputs::new();
    outputs.write_lines(Box::new(std::fs::File::create(&lines).expect("a file")));
    outputs.run_command(format!(
        "cat >/dev/null; echo $FRESHLINE_SOURCE $FRESHLINE_SEQ >>{}",
        commands.display()
    ));
    let monitor = Running::start(config(None), outputs);
    let (mut keyboard, sampler) = typed_lines();
    keyboard.write_all(b"\"state\"").expect("typed");
    let mut source = source_config(monitor.address, Transport::Udp);
    source.sampler = sampler;
    let stop = Stop::new();
    let theirs = stop.clone();
    let source = std::thread::spawn(move || {
        let mut source = Source::new(source).expect("a source");
        source.run(&theirs, None, &mut ()).expect("it runs");
    });
    keyboard.write_all(b"\n").expect("typed");
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    while read(&lines).is_empty() || read(&commands).is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(read(&lines).contains(r#""payload":"\"state\"""#), "{}", read(&lines));
    assert!(read(&commands).starts_with("it "), "{}", read(&commands));

    let path = directory.path().join("socket");
    let socket = QuerySocket::listen(&path, monitor.asker.clone()).expect("a socket");
    assert!(QuerySocket::listen(&path, monitor.asker.clone()).is_err(), "it is taken");
    let mut answer = String::new();
    let mut reader = UnixStream::connect(&path).expect("it listens");
    reader.read_to_string(&mut answer).expect("it answers");
    assert!(answer.contains(r#""source":"it""#) && answer.ends_with("}\n"), "{answer}");
    drop(socket);
    assert!(!path.exists(), "the socket's file goes with it");

    let any = "127.0.0.1:0".parse().expect("an address");
    let address = serve_metrics(any, monitor.asker.clone(), 2).expect("it serves");
    let mut page = String::new();
    let mut http = TcpStream::connect(address).expect("it listens");
    http.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("asked");
    http.read_to_string(&mut page).expect("it answers");
    for metric in [
        "freshline_updates_fresh_total{source=\"it\"} ",
        "freshline_loss_ratio{source=\"it\"} 0",
        "freshline_states_replaced_total{source=\"it\"} 0",
        "freshline_sessions_opened_total 1",
        "# EOF",
    ] {
        assert!(page.contains(metric), "{metric} is missing in {page}");
    }
    stop.stop();
    source.join().expect("it ends");
    monitor.end();
}
