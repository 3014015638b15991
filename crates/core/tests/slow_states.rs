//! States that change rarely: the monitor knows their age one round trip after the opening, does
//! not forget the source, and does not count a repeated state as a new one.

#[path = "common/session.rs"]
mod driven;

use freshline_core::path::PathId;
use freshline_core::session::{
    Admission, Monitor, MonitorEvent, MonitorParams, Secret, Source, SourceEvent, SourceParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{Frame, Frames, OffsetEstimate, Opening, SessionId, StateId, Update};

/// The monitor's clock is this far behind: its process began 30 s after the state was sampled.
const BEHIND: Span = Span::from_secs(70);

/// One-way delay.
const DELAY: Span = Span::from_millis(5);

const SAMPLED_AT: Time = Time::from_nanos(40_000_000_000);

/// The update with the one state that is due at `now`.
fn update(source: &mut Source, now: Time) -> Vec<u8> {
    let mut out = Vec::new();
    source.handle_timeout(now);
    while let Some(event) = source.poll_event() {
        if matches!(event, SourceEvent::StateWanted(_)) {
            source.put(now, SAMPLED_AT, b"state").expect("it fits");
        }
    }
    let len = source.poll_transmit(now, &mut out).expect("it is due").len;
    assert!(source.poll_transmit(now, &mut out).is_none());
    out[..len].to_vec()
}

/// Sends the one state at `now`; returns the source's event for the answer, and whether the monitor
/// took it for a new state.
fn send(source: &mut Source, monitor: &mut Monitor<u8>, now: Time) -> (Option<SourceEvent>, bool) {
    let update = update(source, now);
    let heard = driven::tell(monitor, now + DELAY - BEHIND, 1, &update);
    let is_new = matches!(heard.event(), Some(MonitorEvent::Fresh { is_repeat: false, .. }));
    let back_at = now + DELAY + DELAY;
    source.handle_datagram(back_at, PathId::FIRST, &heard.reply).expect("an answer");
    (source.poll_event(), is_new)
}

#[test]
fn a_state_that_does_not_change_has_an_age_and_is_kept_alive() {
    let now = Time::ZERO + Span::from_secs(100);
    let law = Box::new(Fixed::new(UpdateRate::saturating(100.0)));
    let params = SourceParams::default();
    let keep_alive = params.keep_alive;
    let mut source = Source::new(params, Secret::new([1; 16]), law, now).expect("short names");
    let mut monitor = Monitor::new(MonitorParams::default(), Secret::new([1; 16]));
    assert_eq!(send(&mut source, &mut monitor, now).0, Some(SourceEvent::Challenged));
    let now = now + DELAY * 2;
    assert_eq!(send(&mut source, &mut monitor, now), (Some(SourceEvent::Opened), true));
    let age = |monitor: &Monitor<u8>, now: Time| {
        let (_, record) = monitor.records().next().expect("it is open");
        record.state_age(now - BEHIND)
    };
    assert_eq!(age(&monitor, now + DELAY), None, "an opening cannot tell the clocks' distance");

    // So the state is sent again at once, and only once.
    let now = now + DELAY * 2;
    assert_eq!(source.repeat_at(), Some(now));
    let (event, is_new) = send(&mut source, &mut monitor, now);
    assert!(matches!(event, Some(SourceEvent::Acked { .. })), "{event:?}");
    assert!(!is_new, "outputs have it already");
    assert_eq!(source.repeat_at(), None);
    // The state is older than the monitor's process, 30 s: it counts from that one's start.
    let since_start = (now + DELAY - BEHIND).since(Time::ZERO);
    assert_eq!(age(&monitor, now + DELAY), Some(since_start));
    assert_eq!(source.keep_alive_at(), Some(now + keep_alive));
    assert_eq!(monitor.records().next().map(|(_, record)| record.fresh()), Some(2));
}

#[test]
fn a_state_that_came_with_a_reopening_does_not_keep_the_age_of_the_one_before() {
    let update = |seq, generated_at, clock_offset: Option<i64>, bytes: &'static [u8]| {
        let name = Opening { cookie: Default::default(), name: "it", token: b"" };
        let session = SessionId(1);
        let opening = clock_offset.is_none().then_some(name);
        let behind = seq - if bytes == b"one" { 0 } else { 2 };
        Update {
            session,
            seq,
            sent_at: generated_at,
            clock_offset: clock_offset.map(|ns| OffsetEstimate::new(ns, Span::from_millis(3))),
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening,
            frames: Frames::one(Frame::State { id: StateId { behind, ..StateId::FRESH }, bytes }),
        }
    };
    let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
    let mut monitor = Monitor::<u8>::new(params, Secret::new([1; 16]));
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    let mut take = |received_at: Time, update: Update<'_>| {
        let mut datagram = [0; 256];
        let len = update.write(&mut datagram).expect("it fits");
        let heard = driven::tell(&mut monitor, received_at, 1, &datagram[..len]);
        let Some(&MonitorEvent::Fresh { source, is_repeat, brings_age, .. }) = heard.event() else {
            panic!("{heard:?}");
        };
        let record = monitor.record(source).expect("it is open");
        (is_repeat, brings_age, record.state_age(received_at).map(Span::as_millis_f64))
    };
    let (first, second) = (at(100_000), at(112_000));
    assert_eq!(take(at(100_005), update(0, first, None, b"one")), (false, false, None));
    assert_eq!(take(at(100_015), update(1, first, Some(0), b"one")), (true, true, Some(15.0)));
    // The path is down. The second state comes with the opening after it.
    assert_eq!(take(at(115_005), update(2, second, None, b"two")), (false, false, None));
    assert_eq!(take(at(115_010), update(3, second, None, b"two")), (true, false, None));
    assert_eq!(take(at(115_015), update(4, second, Some(0), b"two")), (true, true, Some(3_015.0)));
    // Further repeats change nothing, with a better estimate or without one.
    let repeat = update(5, second, Some(-2_000_000), b"two");
    assert_eq!(take(at(125_015), repeat), (true, false, Some(13_015.0)));
    assert_eq!(take(at(135_015), update(6, second, None, b"two")), (true, false, Some(23_015.0)));
}

/// A source whose session is open, and when it opened.
fn opened(rate: f64) -> (Source, Monitor<u8>, Time) {
    let now = Time::ZERO + Span::from_secs(100);
    let law = Box::new(Fixed::new(UpdateRate::saturating(rate)));
    let params = SourceParams::default();
    let mut source = Source::new(params, Secret::new([1; 16]), law, now).expect("short names");
    let mut monitor = Monitor::new(MonitorParams::default(), Secret::new([1; 16]));
    assert_eq!(send(&mut source, &mut monitor, now).0, Some(SourceEvent::Challenged));
    let now = now + DELAY * 2;
    assert_eq!(send(&mut source, &mut monitor, now).0, Some(SourceEvent::Opened));
    (source, monitor, now + DELAY * 2)
}

/// Sends the one state at `now`, which is lost.
fn lose(source: &mut Source, now: Time) {
    update(source, now);
}

#[test]
fn a_slow_source_finds_a_dead_monitor_by_its_keep_alives() {
    let (mut source, mut monitor, now) = opened(0.01);
    assert!(matches!(send(&mut source, &mut monitor, now).0, Some(SourceEvent::Acked { .. })));
    let mut out = Vec::new();
    let silent_at = 'silent: loop {
        let due = source.poll_timeout().expect("it goes on");
        source.handle_timeout(due);
        while let Some(event) = source.poll_event() {
            match event {
                SourceEvent::StateWanted(_) => {
                    source.put(due, SAMPLED_AT, b"state").expect("it fits");
                }
                event => break 'silent (event == SourceEvent::Silent).then_some(due),
            }
        }
        // They are lost.
        while source.poll_transmit(due, &mut out).is_some() {}
    };
    let silent_at = silent_at.expect("it is silent");
    // The first keep-alive leaves after 20 s, and 8 more times as long are waited: not 8 times 100 s.
    assert_eq!(silent_at.since(now), Span::from_secs(20 + 8 * 20));
}

#[test]
fn the_clocks_offset_is_told_again_if_the_update_with_it_is_lost() {
    let (mut source, mut monitor, opened_at) = opened(0.01);
    assert!(source.poll_timeout().is_some_and(|at| at <= opened_at));
    lose(&mut source, opened_at);
    let age = |monitor: &Monitor<u8>, now: Time| {
        let (_, record) = monitor.records().next().expect("it is open");
        record.age.age(now - BEHIND)
    };
    // Long before the law's next update, and twice as late each time.
    for wait in [200, 400, 800] {
        let due = opened_at + Span::from_millis(wait);
        assert_eq!(source.poll_timeout(), Some(due));
        assert!(source.repeat_at().is_some_and(|at| at <= due));
        assert_eq!(age(&monitor, due), None);
        lose(&mut source, due);
    }
    let due = opened_at + Span::from_millis(1600);
    assert_eq!(source.poll_timeout(), Some(due));
    assert!(matches!(send(&mut source, &mut monitor, due).0, Some(SourceEvent::Acked { .. })));
    assert!(age(&monitor, due + DELAY).is_some());
    assert_eq!(source.repeat_at(), None);
    assert!(source.poll_timeout().is_some_and(|at| at.since(due) > Span::from_secs(10)));
}
