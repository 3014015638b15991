//! Relays over real sockets on loopback: the newest state of each source is at each destination,
//! with its age from the generation, whatever happens to the other ends.

#[path = "../../cli/tests/common/promtool.rs"]
mod promtool;

use std::collections::BTreeMap;
use std::io::{PipeWriter, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use freshline_core::session::{
    MonitorParams, RemovedTopic, SourceKey, SourceParams, TopicKind, TopicParams, TopicRecord,
};
use freshline_core::source::{Fixed, LawConfig};
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::KeyText;
use freshline_net::clock::Clock;
use freshline_net::credentials::{Right, Rules};
use freshline_net::framing::Framing;
use freshline_net::monitor::{self, Monitor, MonitorConfig, MonitorReport, Record};
use freshline_net::relay::{self, Destination, Relay, RelayConfig, RelayError, RelayReport};
use freshline_net::source::sampler::{Keys, Latest, Sampler, Synthetic};
use freshline_net::source::{self, Source, SourceConfig, SourcePaths, Transport};
use freshline_net::stop::Stop;

const PATIENCE: Duration = Duration::from_secs(20);

const RATE: f64 = 100.0;

/// Hands states on with the age that is known of them.
struct States(Sender<(Vec<u8>, Option<Span>)>);

impl States {
    fn send(&self, now: Time, record: &Record) {
        // The test may have ended.
        let _ = self.0.send((record.payload().unwrap_or_default().to_vec(), record.state_age(now)));
    }
}

impl monitor::Watch for States {
    fn fresh(&mut self, now: Time, _: SourceKey, record: &Record) {
        self.send(now, record);
    }

    fn aged(&mut self, now: Time, _: SourceKey, record: &Record) {
        self.send(now, record);
    }
}

/// By the names of topic and key, the state and its age in s as it came.
type Named = BTreeMap<String, (Vec<u8>, f64)>;

/// A monitor's view of the topics and keys of its only source.
#[derive(Clone, Default)]
struct Mirror(Arc<Mutex<Named>>);

impl Mirror {
    fn held(&self) -> MutexGuard<'_, Named> {
        self.0.lock().expect("no panic")
    }

    fn put(&self, topic: Option<&TopicRecord>, bytes: Option<&[u8]>, age: Option<Span>) {
        let name = topic.map_or(String::new(), |topic| named(topic.name(), topic.key()));
        let age = age.map_or(f64::NAN, Span::as_secs_f64);
        self.held().insert(name, (bytes.unwrap_or_default().to_vec(), age));
    }

    /// Waits until it has these states and no others.
    fn wait_for(&self, what: &str, expected: &[(&str, &[u8])]) {
        wait_until(what, || {
            let held = self.held();
            let states = held.iter().map(|(name, (bytes, _))| (&**name, &**bytes));
            states.eq(expected.iter().copied())
        });
    }
}

fn named(topic: &str, key: Option<&[u8]>) -> String {
    let key = key.map(|key| format!(" {}", KeyText(key)));
    format!("{topic}{}", key.unwrap_or_default())
}

impl monitor::Watch for Mirror {
    fn opened(&mut self, _: Time, _: SourceKey, _: &Record) {
        self.held().clear();
    }

    fn fresh(&mut self, now: Time, _: SourceKey, record: &Record) {
        self.put(record.topic(0), record.payload(), record.state_age(now));
    }

    fn fresh_topic(&mut self, now: Time, _: SourceKey, _: &Record, topic: &TopicRecord) {
        self.put(Some(topic), topic.payload(), topic.state_age(now));
    }

    fn removed(&mut self, _: Time, _: SourceKey, _: &Record, removed: &RemovedTopic) {
        self.held().remove(&named(&removed.name, Some(&removed.key)));
    }
}

/// A topic whose states are the lines that are written to the pipe.
fn topic(name: &str, kind: TopicKind) -> (PipeWriter, source::Topic) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let sampler: Box<dyn Sampler> = match kind {
        TopicKind::Keyed { .. } => Box::new(Keys::new(reader, Framing::Lines, 1 << 20)),
        _ => Box::new(Latest::new(reader, Framing::Lines, 1 << 20)),
    };
    let params = TopicParams { kind, ..TopicParams::new(name) };
    (writer, source::Topic { params, sampler })
}

/// Something that runs on a thread of its own, and its last report.
struct Running<R> {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<R>>,
}

impl<R> Running<R> {
    fn end(mut self) -> R {
        self.stop.stop();
        self.thread.take().expect("it runs").join().expect("it ends")
    }
}

impl<R> Drop for Running<R> {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn free_address() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("its address")
}

fn monitor_config(listen: SocketAddr) -> MonitorConfig {
    MonitorConfig {
        listen,
        quic: None,
        params: MonitorParams::default(),
        rules: Rules::none(Right::Publish),
        detailed: 9,
        forget: MonitorConfig::FORGET,
    }
}

fn start_monitor(
    listen: SocketAddr,
    mut watch: impl monitor::Watch + Send + 'static,
) -> Running<MonitorReport> {
    let mut monitor = Monitor::bind(monitor_config(listen)).expect("a monitor");
    let (address, stop) = (monitor.local_addr().expect("its address"), Stop::new());
    let theirs = stop.clone();
    let thread = std::thread::spawn(move || {
        monitor.run(&theirs, None, &mut watch).expect("it runs");
        monitor.report(&watch)
    });
    Running { address, stop, thread: Some(thread) }
}

fn relay_config(listen: SocketAddr, to: &[SocketAddr]) -> RelayConfig {
    let destination = |to: &SocketAddr| Destination {
        monitor: (*to).into(),
        transport: Transport::Udp,
        paths: SourcePaths::default(),
        params: SourceParams { keep_alive: Span::from_millis(100), ..SourceParams::default() },
        law: LawConfig::Fixed { rate: UpdateRate::saturating(RATE) },
    };
    RelayConfig {
        monitor: monitor_config(listen),
        destinations: to.iter().map(destination).collect(),
    }
}

struct RunningRelay {
    running: Running<RelayReport>,
    asker: relay::Asker,
}

fn start_relay(listen: SocketAddr, to: &[SocketAddr]) -> RunningRelay {
    let mut relay = Relay::bind(relay_config(listen, to)).expect("a relay");
    let (address, stop) = (relay.local_addr().expect("its address"), Stop::new());
    let (theirs, asker) = (stop.clone(), relay.asker());
    let thread = std::thread::spawn(move || {
        relay.run(&theirs, None, &mut (), &mut []).expect("it runs");
        relay.report(&())
    });
    RunningRelay { running: Running { address, stop, thread: Some(thread) }, asker }
}

fn start_source(name: &str, monitor: SocketAddr, sampler: Box<dyn Sampler>) -> Running<()> {
    start_source_of(name, monitor, source::States::Of(sampler))
}

fn start_source_of(name: &str, monitor: SocketAddr, states: source::States) -> Running<()> {
    let config = SourceConfig {
        monitor: monitor.into(),
        transport: Transport::Udp,
        paths: SourcePaths::default(),
        params: SourceParams { name: name.into(), ..SourceParams::default() },
        law: Box::new(Fixed::new(UpdateRate::saturating(RATE))),
        states,
    };
    let (stop, mut source) = (Stop::new(), Source::new(config).expect("a source"));
    let theirs = stop.clone();
    let thread = std::thread::spawn(move || {
        source.run(&theirs, None, &mut ()).expect("it runs");
    });
    Running { address: monitor, stop, thread: Some(thread) }
}

/// Waits until this holds.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = Clock::new();
    let end = clock.now() + PATIENCE.into();
    while !condition() {
        assert!(clock.now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// The metrics that Prometheus gets.
fn metrics(relay: &RunningRelay) -> String {
    let at = relay::serve_metrics(any(), relay.asker.clone(), 9).expect("metrics");
    let mut stream = TcpStream::connect(at).expect("a connection");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

#[test]
fn a_monitor_that_is_restarted_gets_the_newest_state_again_though_the_source_has_no_newer_one() {
    // One is short, one takes many updates; both are put once, and the stream stays open.
    for len in [9, 300_000] {
        let at = free_address();
        let relay = start_relay(any(), &[at]);
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let sampler = Latest::new(reader, Framing::U32, 1 << 20);
        let _source = start_source("robot", relay.running.address, Box::new(sampler));
        let state: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let generated_at = Clock::new().now();
        writer.write_all(&(len as u32).to_be_bytes()).expect("written");
        writer.write_all(&state).expect("written");
        for round in 0..3 {
            let (sender, states) = channel();
            let monitor = start_monitor(at, States(sender));
            loop {
                let (bytes, age) = states.recv_timeout(PATIENCE).expect("the state arrives");
                assert!(bytes == state, "{} bytes", bytes.len());
                let Some(age) = age else { continue };
                // It counts from the generation, through outages and restarts.
                let truth = Clock::new().now().since(generated_at);
                let error = (age.as_secs_f64() - truth.as_secs_f64()).abs();
                assert!(error < 0.5, "{len}, round {round}: {age} instead of {truth}");
                break;
            }
            drop(monitor.end());
        }
    }
}

#[test]
fn all_topics_and_keys_are_at_each_destination_whenever_it_joins() {
    let [early, late] = [free_address(), free_address()];
    let relay = start_relay(any(), &[early, late]);
    let [at_early, at_late] = [Mirror::default(), Mirror::default()];
    let early_monitor = start_monitor(early, at_early.clone());
    let (mut pose, pose_topic) = topic("pose", TopicKind::Latest);
    let (mut tf, tf_topic) = topic("tf", TopicKind::KEYED);
    let (mut map, map_topic) = topic("map", TopicKind::Latest);
    let states = source::States::Topics(vec![pose_topic, tf_topic, map_topic]);
    let source = start_source_of("robot", relay.running.address, states);
    let generated_at = Clock::new().now();
    let written = "the writer is read";
    tf.write_all(b"arm\t1\nbase\t2\n").expect(written);
    pose.write_all(b"here\n").expect(written);
    let states = [("pose", &b"here"[..]), ("tf arm", b"1"), ("tf base", b"2")];
    at_early.wait_for("all that there is", &states);
    // A topic that has its first state only now, one that takes many updates.
    let large = vec![b'm'; 300_000];
    map.write_all(&[&large[..], b"\n"].concat()).expect(written);
    let mut states = vec![("map", &large[..]), states[0], states[1], states[2]];
    at_early.wait_for("the map", &states);
    let _late_monitor = start_monitor(late, at_late.clone());
    at_late.wait_for("the newest of each", &states);
    let (_, age) = at_late.held()["tf base"];
    let truth = Clock::new().now().since(generated_at).as_secs_f64();
    assert!(age <= truth && age > 0.0, "{age} s, from the generation {truth} s ago");
    // A key is removed, another one comes, and one of its own number again.
    tf.write_all(b"arm\nleg\t3\n").expect(written);
    states[2] = ("tf base", b"2");
    states[3] = ("tf leg", b"3");
    at_early.wait_for("the removal", &states);
    at_late.wait_for("the removal there", &states);
    tf.write_all(b"arm\t4\n").expect(written);
    states.insert(2, ("tf arm", b"4"));
    at_early.wait_for("the key again", &states);
    tf.write_all(b"base\n").expect(written);
    states.remove(3);
    at_late.wait_for("one key less", &states);
    // A restarted monitor gets the topics and keys, without the removed ones.
    drop(early_monitor.end());
    at_early.held().clear();
    let early_monitor = start_monitor(early, at_early.clone());
    at_early.wait_for("all of them again", &states);
    source.end();
    let report = relay.running.end();
    assert_eq!((report.old_states, report.left_out), (0, 0));
    drop(early_monitor.end());
}

#[test]
fn a_destination_that_is_away_does_not_disturb_the_other_one() {
    let (sender, states) = channel();
    let there = start_monitor(any(), States(sender));
    let relay = start_relay(any(), &[free_address(), there.address]);
    let names = ["first", "second", "third"];
    let sources = names
        .map(|name| start_source(name, relay.running.address, Box::new(Synthetic::new(1_000))));
    let are_open = || {
        let report = relay.asker.report(9).expect("it runs");
        report.destinations.iter().map(|to| (to.sessions, to.open)).collect::<Vec<_>>()
    };
    wait_until("three sessions there", || are_open() == [(3, 0), (3, 3)]);
    for _ in 0..100 {
        states.recv_timeout(PATIENCE).expect("states arrive");
    }
    let metrics = metrics(&relay);
    let labels = format!("{{destination=\"{}\",source=\"second\"}}", there.address);
    for name in ["relayed_age_seconds", "relayed_updates_acked_total"] {
        assert!(metrics.contains(&format!("freshline_{name}{labels} ")), "{metrics}");
    }
    assert!(metrics.contains("freshline_age_seconds{source=\"third\"} "), "{metrics}");
    promtool::check(&metrics);
    // A source that ends does so at the destinations too.
    let [first, _second, _third] = sources;
    first.end();
    wait_until("two sessions there", || are_open() == [(2, 0), (2, 2)]);
    let relayed = relay.running.end();
    let there = there.end();
    let ended: Vec<_> = there.ended.iter().map(|status| status.source.as_str()).collect();
    assert_eq!(ended, ["first"]);
    let held: Vec<_> = there.sources.iter().map(|status| status.source.as_str()).collect();
    assert_eq!((held.len(), there.counters.closed), (2, 1), "the end of a relay is silent");
    let rates = relayed.destinations[1].sources.iter().map(|it| it.rate_per_s);
    assert!(rates.eq([RATE, RATE]), "{relayed:?}");
}

#[test]
fn in_a_loop_of_relays_no_state_travels_around() {
    let [a, b] = [free_address(), free_address()];
    let relays = [start_relay(a, &[b]), start_relay(b, &[a])];
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let sampler = Latest::new(reader, Framing::Lines, 1_000);
    let _source = start_source("robot", a, Box::new(sampler));
    writer.write_all(b"the only state\n").expect("written");
    let reports = || relays.each_ref().map(|relay| relay.asker.report(9).expect("it runs"));
    // The second relay takes the name over at the first one, with the state that this one knows.
    wait_until("it comes back", || reports().iter().any(|report| report.old_states > 0));
    let sent = || {
        let sources =
            reports().into_iter().flat_map(|mut report| report.destinations.remove(0).sources);
        sources.map(|it| it.session.sent).sum::<u64>()
    };
    let before = sent();
    std::thread::sleep(Duration::from_secs(2));
    // Keep-alives of both relays are 40; a state that travels around makes as many updates as the laws allow.
    let later = sent() - before;
    assert!(later < 150, "{later} updates in 2 s, where the laws allow 400");
}

#[test]
fn settings_that_cannot_work_are_refused_at_the_start() {
    let (listen, other) = (free_address(), free_address());
    let refused = |config| {
        let error = Relay::bind(config).err().expect("it is refused");
        assert!(error.is_of_settings(), "{error}");
        error
    };
    let error = refused(relay_config(listen, &[]));
    assert!(matches!(error, RelayError::NoDestination), "{error}");
    let error = refused(relay_config(listen, &[other, listen]));
    assert!(matches!(error, RelayError::Itself { .. }), "{error}");
    let error = refused(relay_config(listen, &[other, other]));
    assert!(matches!(error, RelayError::Twice { .. }), "{error}");
    let mut config = relay_config(listen, &[other]);
    config.monitor.params.max_payload = usize::MAX;
    let error = refused(config);
    assert!(matches!(error, RelayError::MaxState { .. }), "{error}");
    let mut config = relay_config(listen, &[other]);
    config.destinations[0].params.token = vec![0; 10_000];
    let error = refused(config);
    assert!(matches!(error, RelayError::Opening(_)), "{error}");
}
