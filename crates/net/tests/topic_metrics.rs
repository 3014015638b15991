//! The page of metrics has each topic of a source, and a topic with keys once, however many keys it
//! has.

#[path = "../../cli/tests/common/promtool.rs"]
mod promtool;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use freshline_core::session::{MonitorParams, SourceParams, TopicKind, TopicParams};
use freshline_core::source::Fixed;
use freshline_core::unit::UpdateRate;
use freshline_net::credentials::{Right, Rules};
use freshline_net::framing::Framing;
use freshline_net::monitor::output::serve_metrics;
use freshline_net::monitor::{Asker, Monitor, MonitorConfig};
use freshline_net::source::sampler::{Keys, Sampler, Synthetic};
use freshline_net::source::{Source, SourceConfig, SourcePaths, States, Topic, Transport};
use freshline_net::stop::Stop;

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn topic(params: TopicParams, sampler: impl Sampler + 'static) -> Topic {
    Topic { params, sampler: Box::new(sampler) }
}

/// Two keys whose states are not sent again, with a maximum age of 50 ms, and a pose without one.
fn topics() -> (std::io::PipeWriter, Vec<Topic>) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(b"map\tfirst\nbase\tsecond\n").expect("it is read");
    let tf = TopicParams { kind: TopicKind::KEYED, ..TopicParams::new("tf") };
    let tf = topic(tf, Keys::new(reader, Framing::Lines, 1_000));
    (writer, vec![topic(TopicParams::new("pose"), Synthetic::new(40)), tf])
}

/// Asks for the page until it has all this.
fn page_with(address: SocketAddr, expected: &[&str]) -> String {
    for _ in 0..1_000 {
        let mut page = String::new();
        let mut http = TcpStream::connect(address).expect("it listens");
        write!(http, "GET /metrics HTTP/1.0\r\n\r\n").expect("asked");
        http.read_to_string(&mut page).expect("it answers");
        if expected.iter().all(|line| page.contains(line)) {
            return page.split_once("\r\n\r\n").expect("a header and a body").1.to_owned();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("in vain: {expected:?}")
}

fn started() -> (SocketAddr, Asker, Stop, std::thread::JoinHandle<()>) {
    let max_age = vec!["robot/tf=50ms".parse().expect("a rule")];
    let mut monitor = Monitor::bind(MonitorConfig {
        listen: any_port(),
        quic: None,
        params: MonitorParams { max_age, ..MonitorParams::default() },
        rules: Rules::none(Right::Publish),
        detailed: 2,
        forget: MonitorConfig::FORGET,
    })
    .expect("a monitor");
    let (address, asker, stop) = (monitor.local_addr().expect("one"), monitor.asker(), Stop::new());
    let theirs = stop.clone();
    let thread = std::thread::spawn(move || {
        monitor.run(&theirs, None, &mut ()).expect("it runs");
    });
    (address, asker, stop, thread)
}

#[test]
fn each_topic_has_its_series() {
    let (address, asker, stop, monitor) = started();
    let (_writer, topics) = topics();
    let mut source = Source::new(SourceConfig {
        monitor: address.into(),
        transport: Transport::Udp,
        paths: SourcePaths::default(),
        params: SourceParams { name: "robot".into(), ..SourceParams::default() },
        law: Box::new(Fixed::new(UpdateRate::saturating(200.0))),
        states: States::Topics(topics),
    })
    .expect("a source");
    let theirs = stop.clone();
    let source = std::thread::spawn(move || {
        source.run(&theirs, None, &mut ()).expect("it runs");
    });
    let page = serve_metrics(any_port(), asker, 2).expect("it serves");
    let stale = "freshline_topic_stale{source=\"robot\",topic=\"tf\"} 2";
    let text = page_with(page, &[stale, "freshline_topic_keys{source=\"robot\",topic=\"tf\"} 2"]);
    promtool::check(&text);
    let value = |name: &str, topic: &str| -> Option<f64> {
        let start = format!("freshline_{name}{{source=\"robot\",topic=\"{topic}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start))?.parse().ok()
    };
    let (pose, tf) = (value("topic_age_seconds", "pose"), value("topic_age_seconds", "tf"));
    assert!(pose.is_some_and(|age| age < tf.expect("it is known")), "{pose:?} {tf:?}");
    assert!(tf.is_some_and(|age| age >= 0.04), "{tf:?}: it is stale");
    assert_eq!(value("topic_states_too_old_total", "pose"), Some(0.0));
    assert_eq!(value("topic_states_no_room_total", "tf"), Some(0.0));
    assert_eq!((value("topic_stale", "pose"), value("topic_keys", "pose")), (None, None));
    stop.stop();
    source.join().expect("it ends");
    monitor.join().expect("it ends");
}
