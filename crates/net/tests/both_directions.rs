//! Both directions over real sockets on loopback: a source dials, sends video, and gets commands from the
//! monitor, by UDP and by QUIC.

#[path = "common/quic_ends.rs"]
mod quic_ends;

use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use freshline_core::session::{MonitorParams, SourceKey, SourceParams, TopicKind, TopicParams};
use freshline_core::source::{BURST, Fixed, LawConfig, Limits};
use freshline_core::unit::{BitRate, Bytes, Time, UpdateRate};
use freshline_core::wire::StreamId;
use freshline_net::clock::Clock;
use freshline_net::credentials::{Right, Rules};
use freshline_net::framing::Framing;
use freshline_net::monitor::{
    Incoming, Monitor, MonitorConfig, Record, ReturnConfig, ReturnTopic, Watch,
};
use freshline_net::quic::ServerConfig;
use freshline_net::source::sampler::{Command, Latest, Shared, Synthetic};
use freshline_net::source::{Source, SourceConfig, SourcePaths, States, Transport};
use freshline_net::stop::Stop;
use quic_ends::quic;

const PATIENCE: Duration = Duration::from_secs(20);

/// Passes states on.
struct PassOn(Sender<Vec<u8>>);

impl Watch for PassOn {
    fn fresh(&mut self, _now: Time, _source: SourceKey, record: &Record) {
        let _ = self.0.send(record.payload().unwrap_or_default().to_vec());
    }
}

/// The monitor's sending: the newest of these states to each source.
fn commands(rate: f64, states: Shared) -> ReturnConfig {
    ReturnConfig {
        params: SourceParams { name: "base".into(), ..SourceParams::default() },
        law: LawConfig::Fixed { rate: UpdateRate::saturating(rate) },
        topics: vec![ReturnTopic { params: TopicParams::new("cmd"), states }],
    }
}

/// A monitor that sends these states.
fn base(quic: Option<ServerConfig>, states: ReturnConfig) -> Monitor {
    bound(quic).returning(states).expect("it can send")
}

fn bound(quic: Option<ServerConfig>) -> Monitor {
    Monitor::bind(MonitorConfig {
        listen: "127.0.0.1:0".parse().expect("an address"),
        quic,
        params: MonitorParams::default(),
        rules: Rules::none(Right::Publish),
        detailed: 2,
        forget: MonitorConfig::FORGET,
    })
    .expect("a monitor")
}

/// A source that sends states of this size at this rate, and passes received states on.
fn robot(
    monitor: SocketAddr,
    (name, size, rate): (String, usize, f64),
    transport: Transport,
    received: Sender<Vec<u8>>,
) -> Source {
    let config = SourceConfig {
        monitor: monitor.into(),
        transport,
        paths: SourcePaths::default(),
        params: SourceParams { name, ..SourceParams::default() },
        law: Box::new(Fixed::new(UpdateRate::saturating(rate))),
        states: States::Of(Box::new(Synthetic::new(size))),
    };
    let incoming = Incoming::new(MonitorParams::default(), PassOn(received));
    let source = Source::new(config).expect("a source");
    source.receiving(Box::new(incoming.expect("random numbers")))
}

/// Two sources of 50 kB dial a monitor, whose stream has commands: each gets each, as they come slowly.
fn commands_arrive_by(quic: Option<ServerConfig>, transport: Transport) {
    let (video, seen) = channel();
    let (read, mut write) = std::io::pipe().expect("a pipe");
    let shared = Shared::new(Box::new(Latest::new(read, Framing::Lines, 1000)));
    let mut monitor = base(quic, commands(100.0, shared));
    let address = monitor.local_addr().expect("its address");
    let (stop, end) = (Stop::new(), Some(Clock::new().now() + PATIENCE.into()));
    let theirs = stop.clone();
    let base = std::thread::spawn(move || monitor.run(&theirs, end, &mut PassOn(video)));
    let robots: Vec<_> = ["one", "two"]
        .map(|name| {
            let (sender, commands) = channel();
            let (stop, transport) = (stop.clone(), transport.clone());
            let robot = std::thread::spawn(move || {
                robot(address, (name.into(), 50_000, 500.0), transport, sender).run(
                    &stop,
                    end,
                    &mut (),
                )
            });
            (robot, commands)
        })
        .into();
    for number in 0..20 {
        let line = format!("go {number}\n");
        std::io::Write::write_all(&mut write, line.as_bytes()).expect("it is read");
        for (_, commands) in &robots {
            let command = commands.recv_timeout(PATIENCE).expect("it arrives");
            assert_eq!(command, line.trim_end().as_bytes());
        }
    }
    let state = seen.recv_timeout(PATIENCE).expect("video arrives, too");
    assert_eq!(state.len(), 50_000);
    stop.stop();
    base.join().expect("it ends").expect("it runs");
    for (robot, _) in robots {
        robot.join().expect("it ends").expect("it runs");
    }
}

#[test]
fn commands_arrive_at_sources_that_dialled_by_udp() {
    commands_arrive_by(None, Transport::Udp);
}

#[test]
fn commands_arrive_at_sources_that_dialled_by_quic() {
    let (server, transport) = quic();
    commands_arrive_by(Some(server), transport);
}

#[test]
fn a_command_runs_once_for_all_sources() {
    let dir = tempfile::tempdir().expect("a folder");
    let runs = dir.path().join("runs");
    let command = format!("echo run >> '{0}'; wc -l < '{0}'", runs.display());
    let states = Shared::new(Box::new(Command::new(command, 1000)));
    let mut monitor = base(None, commands(20.0, states));
    let address = monitor.local_addr().expect("its address");
    let stop = Stop::new();
    let theirs = stop.clone();
    let base = std::thread::spawn(move || monitor.run(&theirs, None, &mut ()));
    let robots: Vec<_> = (0..50)
        .map(|number| {
            let ((sender, states), stop) = (channel(), stop.clone());
            let name = format!("robot-{number}");
            let mut robot = robot(address, (name, 10, 20.0), Transport::Udp, sender);
            (std::thread::spawn(move || robot.run(&stop, None, &mut ())), states)
        })
        .collect();
    for (_, states) in &robots {
        for _ in 0..10 {
            states.recv_timeout(PATIENCE).expect("a state");
        }
    }
    stop.stop();
    base.join().expect("it ends").expect("it runs");
    let mut received = 50 * 10;
    for (robot, states) in robots {
        robot.join().expect("it ends").expect("it runs");
        received += states.try_iter().count();
    }
    let runs = std::fs::read_to_string(&runs).expect("it ran").lines().count();
    assert!(runs * 10 < received, "{runs} runs for {received} states");
}

/// States of 50 kB leave within 64 kbit/s, with all headers.
fn bandwidth_is_limited_by(quic: Option<ServerConfig>, transport: Transport) {
    let mut config = commands(100.0, Shared::new(Box::new(Synthetic::new(50_000))));
    let rate = BitRate::from_bps(64_000);
    config.params.limits = Limits { max_bandwidth: Some(rate), ..Limits::NONE };
    let mut monitor = base(quic, config);
    let address = monitor.local_addr().expect("its address");
    let (clock, stop) = (Clock::new(), Stop::new());
    let theirs = stop.clone();
    let base = std::thread::spawn(move || monitor.run(&theirs, None, &mut ()));
    let (sender, states) = channel();
    let mut robot = robot(address, ("robot".into(), 10, 20.0), transport, sender);
    let (theirs, began_at) = (stop.clone(), clock.now());
    let robot = std::thread::spawn(move || robot.run(&theirs, None, &mut ()));
    let state = states.recv_timeout(PATIENCE).expect("a state");
    assert_eq!(state.len(), 50_000);
    // Of the first state nothing left before its session was open.
    let time = clock.now().since(began_at);
    let paid_for = rate.time_to_send(Bytes::new(50_000) - BURST - Bytes::new(1_500));
    assert!(time >= paid_for, "{time} for 50 kB");
    stop.stop();
    base.join().expect("it ends").expect("it runs");
    robot.join().expect("it ends").expect("it runs");
}

#[test]
fn the_bandwidth_of_the_return_direction_is_limited_by_udp() {
    bandwidth_is_limited_by(None, Transport::Udp);
}

#[test]
fn the_bandwidth_of_the_return_direction_is_limited_by_quic() {
    let (server, transport) = quic();
    bandwidth_is_limited_by(Some(server), transport);
}

#[test]
fn a_monitor_does_not_begin_with_what_no_return_session_can_carry() {
    let returning = |change: fn(&mut ReturnConfig)| {
        let mut config = commands(100.0, Shared::new(Box::new(Synthetic::new(8))));
        change(&mut config);
        let monitor = bound(None).returning(config);
        monitor.err().map(|error| error.to_string()).expect("an error")
    };
    let long = returning(|config| config.params.name = "x".repeat(64));
    assert!(long.contains("64 bytes"), "{long}");
    let strange = returning(|config| config.params.name = "Control room".into());
    assert!(strange.contains("\"Control room\""), "{strange}");
    let keyed = returning(|config| config.topics[0].params.kind = TopicKind::KEYED);
    assert!(keyed.contains("only topics of kind latest, not cmd"), "{keyed}");
    let records = |config: &mut ReturnConfig| {
        config.topics[0].params.kind = TopicKind::every(StreamId(1));
    };
    assert!(returning(records).contains("only topics of kind latest, not cmd"));
    let none = returning(|config| config.topics.clear());
    assert!(none.contains("at least one topic"), "{none}");
    let topic = returning(|config| config.topics[0].params.weight = 0.0);
    assert!(topic.contains("weight 0"), "{topic}");
}
