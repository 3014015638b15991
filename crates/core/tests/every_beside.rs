//! Records together with states that fill each datagram, records of several topics, and urgent ones
//! without end: each has its turn.

#[path = "common/session.rs"]
mod driven;

use freshline_core::session::{
    Admission, Monitor, MonitorEvent, MonitorParams, RecordError, Secret, Source, SourceParams,
    StreamId, TopicId, TopicKind, TopicParams,
};
use freshline_core::source::{Fixed, Limits};
use freshline_core::unit::{BitRate, Bytes, Span, Time, UpdateRate};

fn records(name: &str, stream: u64) -> TopicParams {
    TopicParams { kind: TopicKind::every(StreamId(stream)), ..TopicParams::new(name) }
}

/// How many records of each topic have arrived, and how many states of all others.
fn run(topics: Vec<TopicParams>, lengths: &[usize], limits: Limits, length: Span) -> Vec<u64> {
    let law = Box::new(Fixed::new(UpdateRate::saturating(100.0)));
    let params = SourceParams { max_datagram: 1_200, limits, ..SourceParams::default() };
    let source = Source::new(params, Secret::new([7; 16]), law, Time::ZERO).expect("no name");
    let mut source = source.with_topics(topics).expect("they are legal");
    let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
    let mut monitor: Monitor<u8> = Monitor::new(params, Secret::new([1; 16]));
    let (mut now, mut arrived, first) = (Time::ZERO, vec![0; lengths.len()], vec![1; lengths[0]]);
    while now < Time::ZERO + length {
        now = source.poll_timeout().expect("it goes on").max(now + Span::from_micros(100));
        let topics: Vec<_> = source.topics().map(|(id, it)| (id, it.kind)).collect();
        for ((topic, kind), len) in topics.into_iter().zip(lengths) {
            match kind {
                // As many as there is room for.
                TopicKind::Every { .. } => while put_record(&mut source, now, topic, *len) {},
                _ => source.put_topic(now, topic, now, &vec![1; *len]).expect("it fits"),
            }
        }
        for (transmit, datagram) in driven::turn(&mut source, now, &first, |_| ()) {
            source.handle_wire_bytes(now, Bytes::new(transmit.len as u64 + 28));
            let heard = driven::tell(&mut monitor, now, transmit.path.0, &datagram);
            for event in &heard.events {
                match event {
                    MonitorEvent::Record { source, topic } => {
                        while monitor.take_record(now, *source, *topic).is_some() {
                            arrived[usize::from(*topic)] += 1;
                        }
                    }
                    MonitorEvent::Topic { topic, .. } => arrived[usize::from(*topic)] += 1,
                    MonitorEvent::Fresh { is_repeat: false, .. } => arrived[0] += 1,
                    _ => {}
                }
            }
            if !heard.reply.is_empty() {
                let _ = source.handle_datagram(now, transmit.path, &heard.reply);
            }
        }
    }
    arrived
}

fn put_record(source: &mut Source, now: Time, topic: TopicId, len: usize) -> bool {
    match source.put_record(now, topic, now, &vec![2; len]) {
        Ok(_) => true,
        Err(RecordError::Full { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn states_that_fill_each_datagram_leave_records_their_share() {
    for max_bandwidth in [None, Some(BitRate::from_bps(500_000))] {
        let limits = Limits { max_bandwidth, ..Limits::NONE };
        let states = ["a", "b", "c"].map(TopicParams::new);
        let topics = [&states[..], &[records("short", 1), records("long", 2)]].concat();
        let arrived = run(topics, &[350, 350, 350, 40, 500], limits, Span::from_secs(60));
        println!("{max_bandwidth:?}: {arrived:?}");
        let bytes = arrived[3] * 40 + arrived[4] * 500;
        let states: u64 = arrived[..3].iter().sum::<u64>() * 350;
        let share = bytes as f64 / (bytes + states) as f64;
        assert!((0.03..0.12).contains(&share), "{share}");
        assert!(arrived[3] > 50 && arrived[4] > 50, "both have their turns");
    }
}

#[test]
fn urgent_records_without_end_take_turns_with_states() {
    let urgent = TopicParams { is_urgent: true, ..records("stop", 1) };
    let topics = vec![TopicParams::new("pose"), urgent];
    let arrived = run(topics, &[900, 500], Limits::NONE, Span::from_secs(60));
    println!("{arrived:?}");
    assert!(arrived[0] > 60 * 18, "a fifth of 100 updates per second, about");
    assert!(arrived[1] > 60 * 100);
}
