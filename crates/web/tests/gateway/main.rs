//! Browsers at a gateway: states over both transports, commands, and refusals.

mod browser;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use browser::{Browser, PATIENCE};
use freshline::{Monitor, Source, SourceStatus, Subscription, TopicKind, TopicParams};
use freshline_web::{Config, Gateway, Hub, HubError};
use serde_json::{Value, json};

/// A monitor whose browsers may send commands.
struct Commanded {
    monitor: Arc<Monitor>,
    commands: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Hub for Commanded {
    fn observe(&self, pattern: &str) -> Subscription {
        self.monitor.observe(pattern)
    }

    fn sources(&self, max: usize) -> Result<Vec<SourceStatus>, HubError> {
        self.monitor.sources(max).map_err(HubError::new)
    }

    fn commands(&self) -> Vec<String> {
        vec!["cmd".into()]
    }

    fn command(&self, topic: &str, state: Vec<u8>) -> Result<(), HubError> {
        if topic != "cmd" {
            return Err(HubError::new("there is `cmd` alone"));
        }
        self.commands.lock().unwrap().push(state);
        Ok(())
    }
}

struct World {
    monitor: Arc<Monitor>,
    gateway: Gateway,
    token: String,
    commands: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let monitor = Monitor::builder("udp://127.0.0.1:0").spawn().expect("a monitor");
        let monitor = Arc::new(monitor);
        let commands = Arc::new(Mutex::new(Vec::new()));
        let mut config = Config::new("127.0.0.1:0".parse().unwrap()).expect("random bytes");
        change(&mut config);
        let token = config.token.as_str().to_owned();
        let hub = Commanded { monitor: Arc::clone(&monitor), commands: Arc::clone(&commands) };
        let gateway = Gateway::spawn(config, hub).expect("a gateway");
        Self { monitor, gateway, token, commands }
    }

    fn source(&self, name: &str, topics: &[TopicParams]) -> Source {
        let builder = Source::builder(&self.monitor.url()).name(name);
        let builder = topics.iter().cloned().fold(builder, |builder, topic| builder.topic(topic));
        builder.spawn().expect("a source")
    }

    async fn websocket(&self) -> Browser {
        Browser::websocket(self.gateway.address(), &self.token).await.expect("it is let in")
    }

    fn hash(&self) -> String {
        let answer = get(self.gateway.address(), "/api/endpoint", Some(&self.token));
        let body = answer.split("\r\n\r\n").nth(1).expect("a body");
        let endpoint: Value = serde_json::from_str(body).expect("JSON");
        endpoint["webtransport"]["hashes"][0].as_str().expect("a hash").to_owned()
    }
}

/// A request by HTTP, and its answer.
fn get(at: SocketAddr, path: &str, token: Option<&str>) -> String {
    let mut stream = TcpStream::connect(at).expect("it listens");
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{token}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

// ---- output for browsers ----

#[tokio::test]
async fn both_transports_show_states_with_their_ages() {
    let world = World::new();
    let robot = world.source("robot-7", &["pose".into(), "battery".into()]);
    robot.topic("pose").unwrap().put(b"x=1").unwrap();
    robot.topic("battery").unwrap().put(b"81 %").unwrap();
    let by_datagrams =
        Browser::webtransport(world.gateway.address(), &world.hash(), &world.token).await;
    for mut browser in [world.websocket().await, by_datagrams.expect("it is let in")] {
        browser.subscribe(&["*"]).await;
        browser.until("two states", |browser| browser.shown().len() == 2).await;
        let pose = browser.state_of("robot-7", "pose").expect("it is shown");
        assert_eq!((&*pose.state, pose.len, pose.flags), (&b"x=1"[..], 3, 0));
        robot.topic("pose").unwrap().put(b"x=2").unwrap();
        let is_new = |browser: &Browser| {
            let pose = browser.state_of("robot-7", "pose");
            pose.is_some_and(|pose| pose.state == b"x=2" && pose.age_ms.is_some())
        };
        browser.until("the new pose and its age", is_new).await;
        let age = browser.state_of("robot-7", "pose").unwrap().age_ms.unwrap();
        assert!(age < 5_000.0, "{age}");
        let has_sources = |browser: &Browser| !browser.sources().is_empty();
        browser.until("the sources", has_sources).await;
        assert_eq!(browser.sources()[0][0], "robot-7");
        let has_both = |browser: &Browser| browser.link().is_some_and(|link| link["series"] == 2);
        browser.until("the link", has_both).await;
        assert_eq!(browser.link().unwrap()["law"], "acp+d");
        robot.topic("pose").unwrap().put(b"x=1").unwrap();
    }
}

#[tokio::test]
async fn only_what_a_browser_subscribes_to_is_sent() {
    let world = World::new();
    let sources = ["robot-1", "robot-2", "house"].map(|name| {
        let source = world.source(name, &["pose".into(), "log".into()]);
        source.topic("pose").unwrap().put(name.as_bytes()).unwrap();
        source.topic("log").unwrap().put(b"started").unwrap();
        source
    });
    let mut browser = world.websocket().await;
    browser.until("the link", |browser| browser.link().is_some()).await;
    assert!(browser.shown().is_empty(), "nothing before the first pattern");
    browser.subscribe(&["robot-*/pose"]).await;
    browser.until("both poses", |browser| browser.shown().len() == 2).await;
    browser.subscribe(&["house/*", "robot-2/log"]).await;
    let has_those = |browser: &Browser| {
        let has = |source, topic| browser.state_of(source, topic).is_some();
        has("house", "pose")
            && has("house", "log")
            && has("robot-2", "log")
            && !has("robot-1", "pose")
    };
    browser.until("others", has_those).await;
    assert_eq!(browser.shown().len(), 3);
    drop(sources);
}

#[tokio::test]
async fn keys_and_sources_that_are_gone_leave_the_page() {
    let world = World::new();
    let keyed = TopicParams { kind: TopicKind::KEYED, ..TopicParams::new("tf") };
    let robot = world.source("robot", &[keyed]);
    let topic = robot.topic("tf").unwrap();
    topic.put_key("arm", b"1").unwrap();
    topic.put_key([0xff, 0x00], b"2").unwrap();
    let mut browser = world.websocket().await;
    browser.subscribe(&["robot/*"]).await;
    browser.until("two keys", |browser| browser.shown().len() == 2).await;
    let keys: Vec<_> = browser.shown().into_iter().map(|shown| shown.name["key"].clone()).collect();
    assert!(keys.contains(&json!("arm")) && keys.contains(&json!("0xff00")), "{keys:?}");
    topic.remove_key("arm").unwrap();
    browser.until("one key", |browser| browser.shown().len() == 1).await;
    browser.until("the source", |browser| browser.sources().len() == 1).await;
    robot.close().expect("it ran");
    let is_empty = |browser: &Browser| browser.shown().is_empty() && browser.sources().is_empty();
    browser.until("an empty page", is_empty).await;
}

#[tokio::test]
async fn what_a_source_does_not_bring_again_leaves_the_page() {
    let world = World::new();
    let keyed = TopicParams { kind: TopicKind::KEYED, ..TopicParams::new("tf") };
    let before = world.source("robot", std::slice::from_ref(&keyed));
    for key in ["arm", "leg"] {
        before.topic("tf").unwrap().put_key(key, b"1").unwrap();
    }
    let mut browser = world.websocket().await;
    browser.subscribe(&["*"]).await;
    browser.until("two keys", |browser| browser.shown().len() == 2).await;
    before.close().expect("it ran");
    // Sooner than the monitor is asked for its sources again.
    let after = world.source("robot", &[keyed]);
    after.topic("tf").unwrap().put_key("arm", b"2").unwrap();
    let has_new = |browser: &Browser| {
        browser.state_of("robot", "tf").is_some_and(|shown| shown.state == b"2")
            && browser.shown().len() == 1
    };
    browser.until("the new key alone", has_new).await;
}

#[tokio::test]
async fn a_page_full_of_series_changes_to_others() {
    let world = World::with(|config| config.limits.max_rate = None);
    let kind = TopicKind::Keyed { max_keys: 1300 };
    let topics = ["a", "b"].map(|name| TopicParams { kind, ..TopicParams::new(name) });
    let robot = world.source("robot", &topics);
    for key in 0..1300_u16 {
        for topic in ["a", "b"] {
            robot.topic(topic).unwrap().put_key(key.to_be_bytes(), topic.as_bytes()).unwrap();
        }
    }
    let mut browser = world.websocket().await;
    for topic in ["a", "b", "a"] {
        browser.subscribe(&[&format!("robot/{topic}")]).await;
        let are_all = |browser: &Browser| {
            let shown = browser.shown();
            shown.len() == 1300 && shown.iter().all(|shown| shown.name["topic"] == topic)
        };
        browser.until("all keys of the other topic", are_all).await;
    }
}

#[tokio::test]
async fn an_age_that_becomes_known_later_is_shown() {
    let world = World::new();
    let mut browser = world.websocket().await;
    browser.subscribe(&["*"]).await;
    browser.until("the answer", |browser| browser.replies.len() == 1).await;
    let source = Source::builder(&world.monitor.url()).name("config").spawn().expect("a source");
    source.put(b"once").expect("it is put");
    let has_age = |browser: &Browser| {
        browser.state_of("config", "").is_some_and(|it| it.flags == 0 && it.age_ms.is_some())
    };
    browser.until("its age", has_age).await;
}

#[tokio::test]
async fn a_page_takes_no_record_from_applications() {
    let world = World::new();
    let mut browser = world.websocket().await;
    browser.subscribe(&["*"]).await;
    let every = TopicParams { kind: TopicKind::EVERY, ..TopicParams::new("log") };
    let robot = world.source("robot", &[every]);
    for number in 0..20_u8 {
        robot.topic("log").unwrap().push([number]).unwrap();
    }
    let monitor = Arc::clone(&world.monitor);
    let read = tokio::task::spawn_blocking(move || {
        let records = monitor.subscribe("robot/log");
        (0..20).map(|_| records.next_within(PATIENCE).expect("a record").payload()[0]).collect()
    });
    let read: Vec<u8> = read.await.expect("it reads");
    assert_eq!(read, (0..20).collect::<Vec<_>>());
    let is_last = |browser: &Browser| {
        browser.state_of("robot", "log").is_some_and(|shown| shown.state == [19])
    };
    browser.until("the last record", is_last).await;
}

#[tokio::test]
async fn large_states_come_in_parts_and_larger_ones_are_cut() {
    let world = World::with(|config| config.max_state = 50_000);
    let camera = world.source("camera", &["image".into(), "raw".into()]);
    let image: Vec<u8> = (0..40_000_u32).map(|at| (at % 251) as u8).collect();
    camera.topic("image").unwrap().put(image.clone()).unwrap();
    camera.topic("raw").unwrap().put(vec![9; 70_000]).unwrap();
    let mut browser = world.websocket().await;
    browser.subscribe(&["*"]).await;
    browser.until("both", |browser| browser.shown().len() == 2).await;
    let shown = browser.state_of("camera", "image").unwrap();
    assert!(shown.state == image && shown.flags == 0);
    let cut = browser.state_of("camera", "raw").unwrap();
    assert_eq!((cut.state.len(), cut.len, cut.flags & 2), (50_000, 70_000, 2));
}

#[tokio::test]
async fn a_browser_that_stops_reading_gets_the_newest_state_first() {
    let world = World::new();
    let robot = world.source("robot", &["count".into()]);
    let count = robot.topic("count").unwrap();
    count.put(vec![b'0'; 900]).unwrap();
    let mut browser = world.websocket().await;
    browser.subscribe(&["*"]).await;
    browser.until("a state", |browser| browser.shown().len() == 1).await;
    for number in 1..=300_u32 {
        let mut state = format!("{number:>8}").into_bytes();
        state.resize(900, b' ');
        count.put(state).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before = browser.datagrams;
    let is_last = |browser: &Browser| {
        browser.state_of("robot", "count").is_some_and(|shown| shown.state.starts_with(b"     300"))
    };
    browser.until("the last number", is_last).await;
    // A law without acks sends little: 3 s of 300 states are not in the socket.
    let late = browser.datagrams - before;
    assert!(late < 100, "{late} messages before the newest state");
}

#[tokio::test]
async fn browsers_end_with_the_monitor() {
    let world = World::new();
    let mut browser = world.websocket().await;
    browser.until("the link", |browser| browser.link().is_some()).await;
    world.monitor.stop();
    browser.until_closed().await;
}

// ---- commands ----

#[tokio::test]
async fn commands_are_put_and_answered() {
    let world = World::new();
    let mut browser = world.websocket().await;
    browser.say(json!({ "id": 1, "command": { "topic": "cmd", "text": "stop" } })).await;
    browser.say(json!({ "id": 2, "command": { "topic": "cmd", "base64": "AP8=" } })).await;
    browser.say(json!({ "id": 3, "command": { "topic": "other", "text": "stop" } })).await;
    browser.say(json!({ "id": 4, "command": { "topic": "cmd" } })).await;
    browser.until("four answers", |browser| browser.replies.len() == 4).await;
    let are_done: Vec<_> = browser.replies.iter().map(|reply| reply["ok"] == true).collect();
    assert_eq!(are_done, [true, true, false, false], "{:?}", browser.replies);
    assert_eq!(*world.commands.lock().unwrap(), [b"stop".to_vec(), vec![0, 255]]);
}

// ---- refusals ----

#[tokio::test]
async fn nothing_is_told_without_the_token() {
    let world = World::new();
    let at = world.gateway.address();
    for token in ["", "wrong-wrong-wrong-wrong"] {
        assert!(get(at, "/api/endpoint", Some(token)).starts_with("HTTP/1.1 401"));
        assert!(Browser::websocket(at, token).await.is_err());
        assert!(Browser::webtransport(at, &world.hash(), token).await.is_err());
    }
    assert!(get(at, "/", None).starts_with("HTTP/1.1 200"), "the page has no state in it");
    assert!(world.gateway.url().ends_with(&format!("/#token={}", world.token)));
}

#[tokio::test]
async fn there_are_no_more_browsers_than_permitted() {
    let world = World::with(|config| config.max_browsers = 2);
    let at = world.gateway.address();
    let first = world.websocket().await;
    let _second = world.websocket().await;
    assert!(Browser::websocket(at, &world.token).await.is_err());
    assert!(Browser::webtransport(at, &world.hash(), &world.token).await.is_err());
    drop(first);
    let began = std::time::Instant::now();
    while Browser::websocket(at, &world.token).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "its place is not free");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn hostile_messages_end_one_session_at_most() {
    let world = World::new();
    let mut honest = world.websocket().await;
    let mut browser = world.websocket().await;
    for nonsense in ["", "{", "[]", "null", r#"{"subscribe":5}"#, r#"{"id":{"a":[1]}}"#] {
        browser.say_text(nonsense.to_owned()).await;
    }
    let many: Vec<_> = (0..65).map(|number| number.to_string()).collect();
    browser.say(json!({ "subscribe": many })).await;
    browser.say(json!({ "subscribe": ["*".repeat(257)] })).await;
    browser.until("eight refusals", |browser| browser.replies.len() == 8).await;
    assert!(browser.replies.iter().all(|reply| reply["ok"] == false), "{:?}", browser.replies);
    let mut flooding = world.websocket().await;
    for _ in 0..200 {
        flooding.say(json!({ "id": 1 })).await;
    }
    flooding.until_closed().await;
    let mut huge = world.websocket().await;
    huge.say_text("x".repeat(70_000)).await;
    huge.until_closed().await;
    honest.until("the link", |browser| browser.link().is_some()).await;
}
