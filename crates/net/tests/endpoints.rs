//! A source keeps a monitor fresh over real sockets on loopback: by UDP and by QUIC, admitted or
//! not, and with every output of the monitor.

#[path = "../../cli/tests/common/promtool.rs"]
mod promtool;
#[path = "common/quic_ends.rs"]
mod quic_ends;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use freshline_core::session::{MonitorParams, SourceEvent, SourceKey, SourceParams};
use freshline_core::source::{AcpPlus, AcpPlusParams, Fixed, RateBounds};
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{
    Challenge, CloseReason, Cookie, Frames, Message, OffsetEstimate, Opening, SessionId, Update,
};
use freshline_net::Waker;
use freshline_net::clock::Clock;
use freshline_net::credentials::{Right, Rules};
use freshline_net::framing::Framing;
use freshline_net::monitor::output::{OutFormat, Outputs, StateSocket, serve_metrics};
use freshline_net::monitor::{Asker, Monitor, MonitorConfig, MonitorReport, Record, Watch};
use freshline_net::quic::{Limits, ServerConfig};
use freshline_net::source::sampler::{Latest, Need, Sampler, Synthetic, Take};
use freshline_net::source::{
    self, Event, Source, SourceConfig, SourceError, SourcePaths, SourceReport, States, TooLarge,
    Transport,
};
use freshline_net::stop::Stop;
use quic_ends::{limited_quic, quic};

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

    /// Ends it once this holds: a monitor that is told to stop does not wait for datagrams in
    /// flight.
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
        rules: Rules::none(Right::Publish),
        detailed: 2,
        forget: MonitorConfig::FORGET,
    }
}

fn source_config(monitor: SocketAddr, transport: Transport) -> SourceConfig {
    SourceConfig {
        monitor: monitor.into(),
        transport,
        paths: SourcePaths::default(),
        params: SourceParams { name: "it".into(), ..SourceParams::default() },
        law: Box::new(Fixed::new(UpdateRate::saturating(200.0))),
        states: States::Of(Box::new(Synthetic::new(100))),
    }
}

/// Stops after `acks` acks, or when the monitor has closed the session.
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

/// Runs a source until `acks` of its updates are acknowledged, or until the session is closed.
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
    source.law = Box::new(AcpPlus::new(AcpPlusParams { bounds, ..AcpPlusParams::departure() }));
    let (report, _) = run_until(300, source);
    // The source sent a goodbye, which may still be in flight.
    let seen = monitor.end_once(|monitor| monitor.counters.closed == 1).counters;
    assert_eq!(seen.opened, 1);
    assert!(report.acked >= 300 && report.sent <= seen.fresh + seen.stale + 5, "{report:?}");
    assert!(report.rtt_mean_ms.is_some_and(|rtt| rtt < 1_000.0));
    // The updates that open the session, and the law's first probes, follow closely.
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
fn a_connection_by_which_a_session_came_outlasts_the_time_to_open_one() {
    let opening_timeout = Duration::from_secs(1);
    let (server, transport) = limited_quic(Limits { opening_timeout, ..Limits::default() });
    let monitor = Running::start(config(Some(server)), ());
    // At 200/s: two seconds.
    let (report, _) = run_until(400, source_config(monitor.address, transport));
    assert_eq!(report.opened, 1, "{report:?}");
    assert_eq!(monitor.end().counters.opened, 1);
}

#[test]
fn a_monitor_that_stops_says_so_from_the_address_that_its_sources_have_dialled() {
    // A host with several addresses, of which routes choose another one.
    let listen = "0.0.0.0:0".parse().expect("an address");
    let monitor = Running::start(MonitorConfig { listen, ..config(None) }, ());
    let dialled = SocketAddr::new([127, 0, 0, 2].into(), monitor.address.port());
    let source =
        std::thread::spawn(move || run_until(u64::MAX, source_config(dialled, Transport::Udp)).1);
    monitor.end_once(|report| report.sources_open == 1);
    assert_eq!(source.join().expect("it ends"), Some(CloseReason::ShuttingDown));
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

/// States of which each second one is too long.
struct Mixed(u64);

impl Sampler for Mixed {
    fn start(&mut self, _clock: Clock, _waker: Arc<Waker>) -> std::io::Result<()> {
        Ok(())
    }

    fn take(&mut self, now: Time, _need: Need, into: &mut Vec<u8>) -> Take {
        self.0 += 1;
        into.resize(if self.0.is_multiple_of(2) { 100 } else { 20_000 }, b'x');
        Take::Sample { generated_at: now }
    }
}

/// Stops after ten acks, and keeps the updates that did not fit.
#[derive(Default)]
struct LeftOut(Vec<TooLarge>, u64, Stop);

impl source::Watch for LeftOut {
    fn event(&mut self, _now: Time, _: &freshline_core::session::Source, event: &Event<'_>) {
        match event {
            Event::TooLarge(which) => self.0.push(*which),
            Event::Session(SourceEvent::Acked { .. }) => self.1 += 1,
            _ => {}
        }
        if self.1 >= 10 {
            self.2.stop();
        }
    }
}

#[test]
fn a_state_longer_than_the_limit_is_reported_and_left_out() {
    let (server, transport) = quic();
    let monitor = Running::start(config(Some(server)), ());
    let mut source = source_config(monitor.address, transport);
    source.states = States::Of(Box::new(Mixed(0)));
    source.params.max_state = 10_000;
    let mut source = Source::new(source).expect("a source");
    let mut watch = LeftOut::default();
    let end = Clock::new().now() + PATIENCE.into();
    source.run(&watch.2.clone(), Some(end), &mut watch).expect("it goes on");
    let LeftOut(left_out, acked, _) = watch;
    assert!(
        acked >= 10 && left_out[0].given == 20_000 && left_out[0].max == 10_000,
        "{acked} {left_out:?}"
    );
    assert!(left_out[0].to_string().contains("--max-state"), "{}", left_out[0]);
    assert_eq!(source.report().too_large, left_out.len() as u64);
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

/// A few states, and after them only the outcome of `Sampler::take` given here: no usable state.
struct Fails(u64, fn(Time, &mut Vec<u8>) -> Take);

impl Sampler for Fails {
    fn start(&mut self, _clock: Clock, _waker: Arc<Waker>) -> std::io::Result<()> {
        Ok(())
    }

    fn take(&mut self, now: Time, _need: Need, into: &mut Vec<u8>) -> Take {
        self.0 += 1;
        if self.0 > 5 {
            return (self.1)(now, into);
        }
        into.extend_from_slice(b"state");
        Take::Sample { generated_at: now }
    }
}

#[test]
fn a_source_without_usable_states_keeps_its_session_alive_with_the_last_one() {
    let no_sample = |now, _: &mut Vec<u8>| Take::RetryAt(now + Span::from_millis(20), "no".into());
    let too_large = |generated_at, into: &mut Vec<u8>| {
        into.resize(SourceParams::default().max_state + 1, b'x');
        Take::Sample { generated_at }
    };
    for takes in [no_sample, too_large] as [fn(Time, &mut Vec<u8>) -> Take; 2] {
        let (sender, states) = channel();
        let monitor = Running::start(config(None), Payloads(sender));
        let mut source = source_config(monitor.address, Transport::Udp);
        source.states = States::Of(Box::new(Fails(0, takes)));
        source.params.keep_alive = Span::from_millis(50);
        let (report, _) = run_until(8, source);
        assert!(report.acked >= 8, "{report:?}");
        monitor.end();
        assert!(states.iter().all(|state| state == "state"));
    }
}

/// One state that never changes, from a stream that stays open.
fn unchanging(monitor: SocketAddr, keep_alive: Span) -> (std::io::PipeWriter, SourceConfig) {
    let (mut keyboard, sampler) = typed_lines();
    keyboard.write_all(b"state\n").expect("typed");
    let mut source = source_config(monitor, Transport::Udp);
    (source.states, source.params.keep_alive) = (States::Of(sampler), keep_alive);
    (keyboard, source)
}

#[test]
fn a_state_that_never_changes_has_an_age_and_is_not_forgotten() {
    let mut settings = config(None);
    settings.params.idle = Span::from_secs(2);
    let (sender, states) = channel();
    let monitor = Running::start(settings, Ages(sender));
    let (keyboard, source) = unchanging(monitor.address, Span::from_millis(200));
    let (stop, mut source) = (Stop::new(), Source::new(source).expect("a source"));
    let theirs = stop.clone();
    let source = std::thread::spawn(move || source.run(&theirs, None, &mut ()).expect("it runs"));
    // Twice the time after which it is forgotten.
    let until = Clock::new().now() + Span::from_secs(4);
    let mut known = None;
    while known.is_none_or(|age| age < 4_000.0) || Clock::new().now() < until {
        assert!(Clock::new().now() < until + PATIENCE.into(), "its age is unknown: {known:?}");
        std::thread::sleep(Duration::from_millis(10));
        let sources = monitor.asker.sources(1).expect("it runs");
        known = sources.first().and_then(|source| source.age_ms);
    }
    stop.stop();
    source.join().expect("it ends");
    drop(keyboard);
    let seen = monitor.end().counters;
    assert_eq!((seen.opened, seen.expired), (1, 0));
    let states: Vec<_> = states.iter().collect();
    let [("fresh", None), ("aged", Some(_))] = states[..] else {
        panic!("outputs get it without its age, then once with it: {states:?}");
    };
}

/// Hands on when a state is fresh, and when its age is known, with the age.
struct Ages(Sender<(&'static str, Option<Span>)>);

impl Watch for Ages {
    fn fresh(&mut self, now: Time, _source: SourceKey, record: &Record) {
        let _ = self.0.send(("fresh", record.state_age(now)));
    }

    fn aged(&mut self, now: Time, _source: SourceKey, record: &Record) {
        let _ = self.0.send(("aged", record.state_age(now)));
    }
}

/// Opens a session by hand, with a state of the present; both ends have one clock. It never sends a
/// goodbye.
fn open_by_hand(monitor: SocketAddr, session: u64) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.connect(monitor).expect("a monitor");
    let mut cookie = Cookie::default();
    let mut buffer = [0; 200];
    let generated_at = Clock::new().now();
    // The age comes with the first update after the opening.
    let mut is_open = false;
    loop {
        let update = Update {
            session: SessionId(session),
            seq: u64::from(is_open),
            sent_at: generated_at,
            clock_offset: Some(OffsetEstimate::new(0, Span::from_millis(1))),
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening: (!is_open).then_some(Opening { cookie, name: "robot", token: b"" }),
            frames: Frames::fresh(b"state"),
        };
        let len = update.write(&mut buffer).expect("it fits");
        socket.send(&buffer[..len]).expect("sent");
        let len = socket.recv(&mut buffer).expect("an answer");
        match Message::parse(&buffer[..len]).expect("of ours") {
            Message::Challenge(challenge) => cookie = challenge.cookie,
            Message::Ack(_) if is_open => return,
            Message::Ack(_) => is_open = true,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_named_source_that_falls_silent_keeps_its_growing_age() {
    let mut settings = config(None);
    settings.params.idle = Span::from_millis(100);
    let monitor = Running::start(settings, ());
    open_by_hand(monitor.address, 1);
    let mut ages = Vec::new();
    let end = Clock::new().now() + PATIENCE.into();
    while ages.len() < 3 {
        assert!(Clock::new().now() < end, "it does not fall silent: {ages:?}");
        std::thread::sleep(Duration::from_millis(20));
        let report = monitor.asker.report(8).expect("it runs");
        if report.sources_open == 0 {
            let [robot] = &report.sources[..] else { panic!("{report:?}") };
            assert_eq!(robot.source, "robot");
            assert!(robot.silence_s >= 0.1, "{robot:?}");
            ages.extend(robot.age_ms);
        }
    }
    assert!(ages[0] >= 100.0 && ages.is_sorted(), "{ages:?}");
    // It comes back: the outage counts.
    open_by_hand(monitor.address, 2);
    let report = monitor.asker.report(8).expect("it runs");
    let [robot] = &report.sources[..] else { panic!("{report:?}") };
    assert!(robot.age_max_ms >= ages.last().copied(), "{robot:?} {ages:?}");
    monitor.end();
}

/// Forwards received payloads.
struct Payloads(Sender<String>);

impl Watch for Payloads {
    fn fresh(&mut self, _now: Time, _source: SourceKey, record: &Record) {
        let _ =
            self.0.send(String::from_utf8_lossy(record.payload().unwrap_or_default()).into_owned());
    }
}

/// The sending end of a pipe that a source reads.
fn typed_lines() -> (std::io::PipeWriter, Box<dyn Sampler>) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    (writer, Box::new(Latest::new(reader, Framing::Lines, 1000)))
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
    source.states = States::Of(sampler);
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
    outputs.append_states(&lines, OutFormat::Json).expect("a file");
    let command = "cat >/dev/null; echo $FRESHLINE_SOURCE $FRESHLINE_SEQ";
    outputs.run_command(format!("{command} >>{}", commands.display()), Span::from_secs(10));
    let monitor = Running::start(config(None), outputs);
    let (mut keyboard, sampler) = typed_lines();
    keyboard.write_all(b"\"state\"").expect("typed");
    let mut source = source_config(monitor.address, Transport::Udp);
    source.states = States::Of(sampler);
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
    let socket = StateSocket::snapshots(&path, monitor.asker.clone()).expect("a socket");
    assert!(StateSocket::snapshots(&path, monitor.asker.clone()).is_err(), "it is taken");
    let mut answer = String::new();
    let mut reader = UnixStream::connect(&path).expect("it listens");
    reader.read_to_string(&mut answer).expect("it answers");
    assert!(
        answer.contains(r#""source":"it""#)
            && answer.contains(r#""silence_s":"#)
            && answer.ends_with("}\n"),
        "{answer}"
    );
    drop(socket);
    assert!(!path.exists(), "the socket's file goes with it");

    let any = "127.0.0.1:0".parse().expect("an address");
    let address = serve_metrics(any, monitor.asker.clone(), 2).expect("it serves");
    let scrape = |accept: &str| {
        let mut page = String::new();
        let mut http = TcpStream::connect(address).expect("it listens");
        write!(http, "GET /metrics HTTP/1.0\r\n{accept}\r\n").expect("asked");
        http.read_to_string(&mut page).expect("it answers");
        let (head, body) = page.split_once("\r\n\r\n").expect("a header and a body");
        (head.to_lowercase(), body.to_owned())
    };
    let (head, page) = scrape("");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    promtool::check(&page);
    for metric in [
        "freshline_updates_fresh_total{source=\"it\"} ",
        "freshline_loss_ratio{source=\"it\"} 0",
        "freshline_states_replaced_total{source=\"it\"} 0",
        "freshline_refused_total{reason=\"handshake_rate\"} 0",
        "# TYPE freshline_sessions_opened_total counter\nfreshline_sessions_opened_total 1\n",
    ] {
        assert!(page.contains(metric), "{metric} is missing in {page}");
    }
    let (head, page) = scrape("Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(page.ends_with("# EOF\n"), "{page}");
    stop.stop();
    source.join().expect("it ends");
    monitor.end();
}

#[test]
fn a_source_that_has_ended_is_an_error_to_run_again() {
    let monitor = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = monitor.local_addr().expect("an address");
    let mut source = Source::new(source_config(address, Transport::Udp)).expect("a source");
    let stop = Stop::new();
    stop.stop();
    source.run(&stop, None, &mut ()).expect("it runs");
    let end = Clock::new().now() + Span::from_secs(1);
    let again = source.run(&Stop::new(), Some(end), &mut ());
    assert!(matches!(again, Err(SourceError::Ended)), "{again:?}");
}
