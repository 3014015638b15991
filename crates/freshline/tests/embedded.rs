//! Sources, monitors and relays inside a program: handles, both directions, credentials, and a caller's mistakes.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use freshline::driver::source::{States, sampler::Synthetic};
use freshline::{
    Error, Fingerprint, Monitor, MonitorEvent, PutError, Relay, Source, SourceEvent, State,
    Subscription, TopicKind, TopicParams,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Long enough for loopback on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn monitor() -> Monitor {
    Monitor::builder("udp://127.0.0.1:0").spawn().expect("loopback can be listened at")
}

fn next(states: &Subscription) -> State {
    states.next_within(PATIENCE).expect("a state arrives in time")
}

/// Whether a descriptor becomes readable in time.
fn is_readable(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let patience = PollTimeout::try_from(patience).unwrap();
    poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], patience).unwrap() > 0
}

/// The next state with this payload.
fn wait_for(states: &Subscription, payload: &[u8]) -> State {
    std::iter::repeat_with(|| next(states)).find(|state| state.payload() == payload).unwrap()
}

#[test]
fn the_newest_state_arrives_with_its_age() {
    let monitor = monitor();
    let source = Source::builder(&monitor.url()).name("robot").topic("pose").spawn().unwrap();
    let states = monitor.subscribe("robot/*");
    source.topic("pose").unwrap().put("first").unwrap();
    assert_eq!(next(&states).name(), "robot/pose");
    source.topic("pose").unwrap().put("second").unwrap();
    let state = wait_for(&states, b"second");
    assert_eq!((state.source(), state.topic(), state.key()), ("robot", "pose", None));
    while state.age().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(state.age().unwrap() < PATIENCE && state.age_uncertainty().unwrap() < PATIENCE);
    assert_eq!(monitor.latest("robot/pose").unwrap().payload(), b"second");
    assert!(monitor.latest("robot/map").is_none());
    assert!(source.is_open() && source.rate() > 0.0 && source.age().is_some());
    assert_eq!(monitor.sources(10).unwrap()[0].source, "robot");
    assert_eq!(source.events().next_within(PATIENCE), Some(SourceEvent::Opened));
    let report = source.close().unwrap();
    assert!(report.acked > 0);
    let gone = std::iter::from_fn(|| monitor.events().next_within(PATIENCE));
    let mut gone = gone.filter(|event| matches!(event, MonitorEvent::Gone { .. }));
    assert!(gone.next().is_some());
    assert!(monitor.latest("robot/pose").is_none(), "its source has closed the session");
    assert!(monitor.close().unwrap().counters.fresh > 0);
}

#[test]
fn a_slow_reader_gets_the_newest_and_holds_nobody_up() {
    let monitor = monitor();
    let [slow, quick] = [monitor.subscribe("robot"), monitor.subscribe("*")];
    let source = Source::builder(&monitor.url()).name("robot").spawn().unwrap();
    for number in 0..20_u8 {
        source.put([number]).unwrap();
        wait_for(&quick, &[number]);
    }
    assert_eq!(next(&slow).payload(), [19]);
    assert!(slow.replaced() > 0 && slow.try_next().is_none());
    drop(monitor);
    assert!(slow.next_state().is_none() && slow.is_over(), "the monitor has ended");
}

#[test]
fn keys_are_held_each_and_removed() {
    let monitor = monitor();
    let tf = TopicParams { kind: TopicKind::KEYED, ..TopicParams::new("tf") };
    let source = Source::builder(&monitor.url()).name("robot").topic(tf).spawn().unwrap();
    let (tf, states) = (source.topic("tf").unwrap(), monitor.subscribe("robot/tf"));
    tf.put_key("arm", "1").unwrap();
    tf.put_key("leg", "2").unwrap();
    wait_for(&states, b"1");
    wait_for(&states, b"2");
    assert_eq!(monitor.latest_key("robot/tf", "arm").unwrap().payload(), b"1");
    assert_eq!(monitor.keys("robot/tf").len(), 2);
    tf.remove_key("arm").unwrap();
    assert!(wait_for(&states, b"").is_removed());
    assert!(monitor.latest_key("robot/tf", "arm").is_none());
    assert_eq!(monitor.keys("robot/tf").len(), 1);
}

#[test]
fn records_arrive_once_each_in_order_and_are_done_when_they_are_dropped() {
    let monitor = monitor();
    let log = TopicParams { kind: TopicKind::EVERY, ..TopicParams::new("log") };
    let source = Source::builder(&monitor.url()).name("robot").topic(log).spawn().unwrap();
    let log = source.topic("log").unwrap();
    for number in 0..500_u16 {
        while let Err(error) = log.push(number.to_be_bytes()) {
            assert!(matches!(error, PutError::Full { .. }), "{error}");
        }
    }
    // Without a reader, records wait at the source. Records that a reader has not read go to the
    // next one.
    let leaves = monitor.subscribe("robot/log");
    assert_eq!(next(&leaves).payload(), 0_u16.to_be_bytes());
    drop(leaves);
    let records = monitor.subscribe("robot/log");
    for number in 1..500_u16 {
        let record = next(&records);
        assert!(record.is_record());
        assert_eq!(record.payload(), number.to_be_bytes());
    }
}

#[test]
fn commands_go_back_over_the_path_that_the_source_has_dialled() {
    let monitor = Monitor::builder("udp://127.0.0.1:0").name("base").topic("cmd").spawn().unwrap();
    let source = Source::builder(&monitor.url()).name("robot").topic("pose").receive();
    let source = source.max_age("base/cmd", PATIENCE).spawn().unwrap();
    source.topic("pose").unwrap().put("here").unwrap();
    let commands = source.subscribe("base/*");
    monitor.topic("cmd").unwrap().put("go").unwrap();
    assert_eq!(next(&commands).payload(), b"go");
    assert_eq!(source.latest("base/cmd").unwrap().text(), Some("go"));
    assert!(monitor.topic("other").unwrap_err().to_string().contains("\"cmd\""));
}

#[test]
fn a_token_and_a_pin_are_checked_and_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    std::fs::write(&tokens, "a secret\n").unwrap();
    let listening =
        freshline::Listening::default().state_dir(dir.path()).token_file(tokens.clone());
    let monitor = Monitor::builder("quic://127.0.0.1:0").listening(listening).spawn().unwrap();
    let pin = monitor.fingerprint().expect("it has a certificate");
    let source = |token: &str| {
        Source::builder(&monitor.url()).name("robot").pin(pin).token(token).spawn().unwrap()
    };
    let stranger = source("a guess");
    stranger.put("no").unwrap();
    let refused = std::iter::from_fn(|| stranger.events().next_within(PATIENCE))
        .find(|event| matches!(event, SourceEvent::Closed(_)));
    assert!(refused.is_some());
    drop(stranger);
    let known = source("a secret");
    known.put("yes").unwrap();
    assert_eq!(next(&monitor.subscribe("robot")).payload(), b"yes");
    std::fs::write(&tokens, "another\n").unwrap();
    assert_eq!(monitor.reload().unwrap(), 1, "its session has ended");
    std::fs::write(&tokens, "").unwrap();
    let error = monitor.reload().unwrap_err().to_string();
    assert!(error.contains("it is empty"), "{error}");
}

#[test]
fn a_relay_passes_states_on() {
    let hub = monitor();
    let house = Monitor::builder("udp://127.0.0.1:0");
    let relay = Relay::builder(house).to(&hub.url()).spawn().unwrap();
    let source = Source::builder(&relay.url()).name("robot").topic("pose").spawn().unwrap();
    source.put("here").unwrap();
    assert_eq!(next(&hub.subscribe("robot/pose")).payload(), b"here");
    assert_eq!(relay.report(10).unwrap().destinations.len(), 1);
    drop(source);
    relay.close().unwrap();
}

#[test]
fn mistakes_are_errors_that_say_what_to_do() {
    let said = |result: Result<Source, Error>| result.unwrap_err().to_string();
    assert!(said(Source::builder("http://x").spawn()).contains("neither udp nor quic"));
    assert!(said(Source::builder("quic://127.0.0.1").spawn()).contains("`pin`"));
    let pin: Fingerprint = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
    let pinned = Source::builder("udp://127.0.0.1:1").pin(pin).spawn();
    assert!(said(pinned).contains("`pin` means nothing on udp://"));
    let token = Source::builder("udp://127.0.0.1:1").token("secret").spawn();
    assert!(said(token).contains("`token` means nothing on udp://"));
    let twice = Source::builder("udp://127.0.0.1:1").topic("pose").topic("pose").spawn();
    assert!(said(twice).contains("pose"));
    let listens = Monitor::builder("udp://0.0.0.0:0").spawn().unwrap_err().to_string();
    assert!(listens.contains("insecure"), "{listens}");
    let limit = Monitor::builder("udp://127.0.0.1:0").max_age("a b", PATIENCE).spawn();
    assert!(matches!(limit.unwrap_err(), Error::MaxAge(_)));
    let source = Source::builder("udp://127.0.0.1:1").topic("pose").spawn().unwrap();
    let pose = source.topic("pose").unwrap();
    assert!(pose.push("x").unwrap_err().to_string().contains("of kind latest"));
    assert_eq!(source.topic("map").unwrap_err().known, ["pose"]);
    source.close().unwrap();
    assert!(matches!(pose.put("late"), Err(PutError::Closed(_))));
}

#[test]
fn an_executor_and_a_loop_that_polls_get_states_without_a_thread_of_their_own() {
    let monitor = monitor();
    let source = Source::builder(&monitor.url()).name("robot").spawn().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let states = monitor.subscribe("robot");
    source.put("one").unwrap();
    let received = runtime.block_on(async {
        // Of a select, the one that is not ready is cancelled; nothing is lost by it.
        tokio::select! {
            state = states.recv() => state,
            () = tokio::time::sleep(PATIENCE) => None,
        }
    });
    assert_eq!(received.unwrap().payload(), b"one");
    while states.try_next().is_some() {}
    assert!(!is_readable(states.descriptor().unwrap(), Duration::ZERO));
    source.put("two").unwrap();
    assert!(is_readable(states.descriptor().unwrap(), PATIENCE));
    assert_eq!(states.try_next().unwrap().payload(), b"two");
    // A source in a loop of the application's own.
    let mut own = Source::builder(&monitor.url()).name("own").topic("pose").polled().unwrap();
    let states = monitor.subscribe("own/*");
    own.topic("pose").unwrap().put("three").unwrap();
    while own.events().try_next() != Some(SourceEvent::Opened) {
        assert!(is_readable(own.as_fd(), PATIENCE));
        own.turn().unwrap();
    }
    while states.try_next().is_none() {
        own.turn().unwrap();
    }
    assert!(own.close().acked > 0);
}

#[test]
fn many_threads_put_into_one_topic() {
    let monitor = monitor();
    let source = Source::builder(&monitor.url()).name("robot").topic("pose").spawn().unwrap();
    let (pose, states) = (source.topic("pose").unwrap(), monitor.subscribe("robot/pose"));
    let replaced: usize = std::thread::scope(|scope| {
        let put = |number: u8| {
            let pose = pose.clone();
            move || (0..10_000).filter(|_| pose.put([number; 64]).unwrap().is_some()).count()
        };
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(put(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(pose.replaced(), replaced as u64);
    assert!(replaced > 70_000, "{replaced} of 80000 were replaced before they left");
    pose.put("last").unwrap();
    wait_for(&states, b"last");
}

#[test]
fn a_reader_may_keep_more_records_than_its_queue_holds() {
    let monitor = monitor();
    let log = TopicParams { kind: TopicKind::EVERY, ..TopicParams::new("log") };
    let source = Source::builder(&monitor.url()).name("robot").topic(log).spawn().unwrap();
    let (log, records) = (source.topic("log").unwrap(), monitor.subscribe("robot/log"));
    for number in 0..1_500_u16 {
        log.push(number.to_be_bytes()).unwrap();
    }
    let kept: Vec<_> = (0..1_500).map(|_| next(&records)).collect();
    assert!(
        kept.iter().zip(0_u16..).all(|(record, number)| record.payload() == number.to_be_bytes())
    );
}

#[test]
fn a_restarted_source_leaves_nothing_of_its_former_session() {
    let monitor = monitor();
    let source =
        |topic: &str| Source::builder(&monitor.url()).name("robot").topic(topic).spawn().unwrap();
    let states = monitor.subscribe("robot/*");
    let first = source("map");
    first.put("old").unwrap();
    wait_for(&states, b"old");
    // It takes the name while the first one still has it.
    let second = source("pose");
    second.put("new").unwrap();
    wait_for(&states, b"new");
    assert!(monitor.latest("robot/map").is_none() && monitor.latest("robot/pose").is_some());
    drop(first);
}

#[test]
fn names_with_slashes_do_not_pass_for_another_source() {
    let monitor = monitor();
    let source = |name: &str, topic: &str| {
        Source::builder(&monitor.url()).name(name).topic(topic).spawn().unwrap()
    };
    let states = monitor.subscribe("fleet/*");
    let robot = source("fleet/robot", "cmd");
    robot.put("right").unwrap();
    wait_for(&states, b"right");
    assert_eq!(monitor.latest("fleet/robot/cmd").unwrap().source(), "fleet/robot");
    let other = source("fleet", "robot/cmd");
    other.put("wrong").unwrap();
    assert_eq!(wait_for(&states, b"wrong").source(), "fleet");
    assert!(monitor.latest("fleet/robot/cmd").is_none(), "two could be meant");
}

#[test]
fn a_robot_hears_that_no_command_is_young_enough() {
    let monitor = Monitor::builder("udp://127.0.0.1:0").name("base").topic("cmd").spawn().unwrap();
    let source = Source::builder(&monitor.url()).name("robot").topic("pose");
    let source = source.max_age("base/cmd", Duration::from_millis(200)).spawn().unwrap();
    source.put("here").unwrap();
    let commands = source.subscribe("base/cmd");
    let deadline = std::iter::from_fn(|| {
        monitor.topic("cmd").unwrap().put("go").unwrap();
        Some(commands.next_within(Duration::from_millis(50)))
    });
    assert!(deadline.take(400).flatten().next().is_some(), "one comes in time");
    let events = source.received_events().expect("it receives");
    let stale = std::iter::from_fn(|| events.next_within(PATIENCE));
    let mut stale = stale.filter(|event| matches!(event, MonitorEvent::Stale { .. }));
    assert!(stale.next().is_some());
    assert!(source.latest("base/cmd").is_none());
}

#[test]
fn a_function_on_the_network_thread_is_not_made_to_wait_for_itself() {
    let monitor = Monitor::builder("udp://127.0.0.1:0").name("base").topic("cmd").spawn().unwrap();
    let monitor = std::sync::Arc::new(monitor);
    let source = Source::builder(&monitor.url()).name("robot").topic("pose").receive();
    let source = source.spawn().unwrap();
    source.put("here").unwrap();
    let (asked, commands) = (std::sync::Arc::downgrade(&monitor), source.subscribe("base/cmd"));
    let sample = move |state: &mut Vec<u8>| {
        let sources = asked.upgrade().map(|monitor| monitor.sources(1));
        state.extend(format!("{:?}", sources.and_then(Result::err)).into_bytes());
    };
    monitor.topic("cmd").unwrap().sample_with(sample).unwrap();
    assert_eq!(next(&commands).text(), Some("Some(OwnThread)"));
}

#[test]
fn settings_that_would_do_harm_are_refused() {
    let said = |result: Result<Source, Error>| result.unwrap_err().to_string();
    let url = "udp://127.0.0.1:1";
    assert!(
        said(Source::builder(url).keep_alive(Duration::ZERO).spawn()).contains("at least 1 ms")
    );
    let none = Monitor::builder("udp://127.0.0.1:0").max_sources(0).spawn().unwrap_err();
    assert!(none.to_string().contains("at least 1"), "{none}");
    let dir = tempfile::tempdir().unwrap();
    let open = Monitor::builder("quic://127.0.0.1:0").state_dir(dir.path()).token("").spawn();
    assert!(open.unwrap_err().to_string().contains("1 to 255 bytes"));
    let house = Monitor::builder("udp://127.0.0.1:0").topic("cmd");
    let relay = Relay::builder(house).to(url).spawn().unwrap_err().to_string();
    assert!(relay.contains("a relay sends none"), "{relay}");
    let states = States::Of(Box::new(Synthetic::new(8)));
    let built = Source::builder(url).topic("pose").build(states).err().expect("it has a topic");
    assert!(built.to_string().contains("use `spawn` or `polled`"), "{built}");
}

#[test]
fn a_state_may_be_older_than_its_put() {
    let monitor = monitor();
    let source = Source::builder(&monitor.url()).name("camera").topic("frame").spawn().unwrap();
    let (frame, frames) = (source.topic("frame").unwrap(), monitor.subscribe("camera/frame"));
    let exposed = std::time::Instant::now();
    std::thread::sleep(Duration::from_millis(300));
    frame.put_generated(exposed, "frame").unwrap();
    let state = next(&frames);
    while state.age().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let uncertainty = state.age_uncertainty().unwrap();
    assert!(state.age().unwrap() + uncertainty >= Duration::from_millis(300));
}

#[cfg(feature = "tokio")]
#[test]
fn a_subscription_is_a_stream() {
    use futures_core::Stream;
    let monitor = monitor();
    let source = Source::builder(&monitor.url()).name("robot").spawn().unwrap();
    source.put("one").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut states = monitor.subscribe("robot");
    let first = std::future::poll_fn(|context| std::pin::Pin::new(&mut states).poll_next(context));
    assert_eq!(runtime.block_on(first).unwrap().payload(), b"one");
}

#[test]
fn a_source_can_wait_until_all_has_arrived() {
    let monitor = monitor();
    let log = TopicParams { kind: TopicKind::EVERY, ..TopicParams::new("log") };
    let url = monitor.url();
    let source = Source::builder(&url).name("robot").topic("pose").topic(log).spawn().unwrap();
    let [states, records] = ["robot/pose", "robot/log"].map(|name| monitor.subscribe(name));
    source.topic("pose").unwrap().put("last").unwrap();
    for number in 0..100_u8 {
        source.topic("log").unwrap().push([number]).unwrap();
    }
    let reads = std::thread::spawn(move || (0..100).map(|_| next(&records).payload()[0]).collect());
    source.finish(PATIENCE).unwrap();
    let read: Vec<u8> = reads.join().unwrap();
    assert_eq!((next(&states).payload(), read), (&b"last"[..], (0..100).collect()));
    let nowhere = Source::builder("udp://127.0.0.1:1").spawn().unwrap();
    nowhere.put("lost").unwrap();
    assert!(matches!(nowhere.finish(Duration::from_millis(100)), Err(Error::Undelivered)));
}
