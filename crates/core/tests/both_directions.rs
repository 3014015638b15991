//! Both directions of a session: a robot dials, and receives commands over the path that it has
//! opened. After losses, restarts of either end, silence or a change of address, fresh states
//! arrive in both directions; strangers and peers that repeat their requests get nothing.

#[path = "common/both_ways.rs"]
mod both_ways;

use both_ways::{DATAGRAM, DELAY, Got, HEADERS, World, dialer, fast, fixed, listener, params};
use freshline_core::path::PathId;
use freshline_core::session::{
    Listener, ListenerEvent, Monitor, MonitorParams, Reach, Relation, Secret, Source, SourceEvent,
    SourceParams,
};
use freshline_core::source::{Fixed, LawConfig, LawName, RateLaw};
use freshline_core::unit::{BitRate, Bytes, Span, Time, UpdateRate};
use freshline_core::wire::{Ack, Close, CloseReason, Frames, Message};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::SeedableRng;

#[test]
fn a_robot_that_dials_is_commanded_half_a_round_trip_after_its_session_is_open() {
    let mut world = World::new(fast(), fixed);
    // Opening, challenge, opening with the cookie; then an ack and the return session's opening.
    world.run(DELAY * 4 + Span::from_millis(5));
    assert_eq!(world.dialer.source().reach(), Reach::Open);
    assert_eq!(world.at_dialer.states, 1);
    world.run(Span::from_secs(10));
    world.assert_fresh(Span::from_millis(50), "without losses");
    assert_eq!(world.wanted, 1);
    let key = world.listener.return_sources().next().expect("there is one");
    let source = world.listener.return_source(key).expect("it is open");
    assert_eq!(source.reach(), Reach::Open);
    assert_eq!(source.counters().opened, 1);
}

#[test]
fn losses_in_both_directions_leave_both_fresh() {
    for seed in 0..10 {
        let mut world = World::new(fast(), fixed);
        world.random = Pcg32::seed_from_u64(seed);
        world.lose(0.3);
        world.run(Span::from_secs(30));
        world.assert_fresh(Span::from_millis(500), &format!("seed {seed}"));
    }
}

#[test]
fn a_listener_that_was_restarted_sends_again() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    world.listener = listener(2);
    world.run(Span::from_secs(5));
    world.assert_fresh(Span::from_millis(50), "after the restart");
    let receiver = world.dialer.receiver();
    assert_eq!(receiver.len(), 1, "the former return session has ended");
    assert_eq!(world.wanted, 2);
}

#[test]
fn a_dialer_that_was_restarted_is_sent_to_again() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    world.dialer = dialer(fixed, 5);
    // Those of its former life are on their path.
    world.at_dialer = Got::default();
    world.run(Span::from_secs(5));
    world.assert_fresh(Span::from_millis(50), "after the restart");
    assert_eq!(world.listener.return_sources().count(), 1);
}

#[test]
fn an_outage_heals_in_both_directions() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    for seconds in [2, 30, 200] {
        (world.forward.is_cut, world.back.is_cut) = (true, true);
        world.run(Span::from_secs(seconds));
        (world.forward.is_cut, world.back.is_cut) = (false, false);
        // The listener receives the dialer after 2.5 s and three round trips at most, and then the
        // dialer the listener.
        world.run(Span::from_secs(6));
        world.assert_fresh(Span::from_millis(50), &format!("after {seconds} s"));
        assert_eq!(world.listener.return_sources().count(), 1);
    }
}

#[test]
fn the_return_session_ends_with_the_forward_one() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    world.dialer.source_mut().close();
    world.run(Span::from_secs(1));
    assert_eq!(world.listener.return_sources().count(), 0);
    let (got, sent) = (world.at_dialer.states, world.back.free_at);
    world.run(Span::from_secs(100));
    assert_eq!((got, sent), (world.at_dialer.states, world.back.free_at), "nothing leaves");
}

#[test]
fn a_silent_dialer_is_sent_openings_only_until_its_session_is_idle() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    world.forward.is_cut = true;
    world.run(Span::from_secs(200));
    assert_eq!(world.listener.return_sources().count(), 0);
    assert_eq!(world.listener.monitor().len(), 0);
}

#[test]
fn only_the_peer_of_the_forward_session_opens_a_return_session() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(2));
    let now = world.now;
    let opening = |token: &[u8]| {
        let params = SourceParams { token: token.to_vec(), ..params("") };
        let mut stranger =
            Source::new(params, Secret::new([99; 16]), fixed(), now).expect("it fits");
        stranger.handle_timeout(now);
        while let Some(event) = stranger.poll_event() {
            if let SourceEvent::StateWanted(_) = event {
                stranger.put(now, now, b"stranger").expect("it fits");
            }
        }
        let mut out = Vec::new();
        let len = stranger.poll_transmit(now, &mut out).expect("an opening").len;
        out.truncate(len);
        out
    };
    let known = world.dialer.receiver().records().next().map(|it| it.1.session);
    for token in [&b""[..], &[0; 8], b"guessed"] {
        let _ = world.dialer.handle_datagram(now, PathId::FIRST, &opening(token));
        let mut out = Vec::new();
        let answer = world.dialer.poll_transmit(now, &mut out).expect("a refusal");
        let answer = Message::parse(&out[..answer.len]);
        let Ok(Message::Close(Close { reason: CloseReason::BadToken, .. })) = answer else {
            panic!("{answer:?}")
        };
    }
    let after = world.dialer.receiver().records().next().map(|it| it.1.session);
    assert_eq!(known, after);
}

#[test]
fn one_that_is_not_open_gets_no_return_session() {
    let mut world = World::new(fast(), fixed);
    // Its acks and challenges never come, so it shows no cookie: it is a forged address.
    world.back.is_cut = true;
    world.run(Span::from_secs(60));
    assert_eq!((world.wanted, world.listener.return_sources().count()), (0, 0));
}

#[test]
fn a_source_that_does_not_ask_gets_nothing() {
    let start = Time::from_nanos(1_000_000_000);
    let mut source =
        Source::new(params("robot"), Secret::new([1; 16]), fixed(), start).expect("it fits");
    let mut listener = listener(1);
    let (mut datagram, mut answer, mut acks) = (Vec::new(), Vec::new(), 0);
    for step in 0..5_000 {
        let now = start + Span::from_millis(step);
        source.handle_timeout(now);
        while let Some(event) = source.poll_event() {
            if let SourceEvent::StateWanted(_) = event {
                source.put(now, now, b"state").expect("it fits");
            }
        }
        while let Some(transmit) = source.poll_transmit(now, &mut datagram) {
            let update = &datagram[..transmit.len];
            listener.handle_datagram(now, 1, None, update).expect("an update");
        }
        while let Some(event) = listener.poll_event() {
            assert!(matches!(event, ListenerEvent::Monitor(_)), "{event:?}");
        }
        while let Some(transmit) = listener.poll_transmit(now, &mut answer) {
            acks += 1;
            source.handle_datagram(now, PathId::FIRST, &answer[..transmit.len]).expect("it is new");
        }
    }
    assert!(acks > 100, "{acks}");
}

#[test]
fn commands_are_not_late_beside_video_at_the_capacity_of_the_other_direction() {
    // 50 kB and 100 B over 8 Mbit/s in both directions. Parts of video leave at 0.97 of the
    // capacity, or as the default law decides; in the other direction, commands share the path with
    // their acks.
    let rate = BitRate::from_mbps(8);
    let by_law: fn() -> Box<dyn RateLaw> =
        || LawConfig::with_defaults(LawName::AcpPlusD).expect("its bounds are fine").build();
    let full: fn() -> Box<dyn RateLaw> = || Box::new(Fixed::new(UpdateRate::saturating(790.0)));
    for (video, commands) in [(by_law, by_law), (full, by_law), (full, fixed)] {
        let mut world = World::new(rate, commands);
        world.dialer = dialer(video, 1);
        (world.state_len, world.command_len) = (50_000, 100);
        world.run(Span::from_secs(20));
        (world.at_dialer, world.at_listener) = (Got::default(), Got::default());
        let (sent, from) = (world.forward.sent, world.now);
        world.run(Span::from_secs(60));
        let transmission = rate.time_to_send(Bytes::new(DATAGRAM as u64 + HEADERS));
        let ack = rate.time_to_send(Bytes::new(Ack::LEN_OF_PARTS as u64 + HEADERS));
        let limit = DELAY + transmission * 2 + ack;
        let (p50, p99) = (world.at_dialer.age(500), world.at_dialer.age(990));
        let bits = (world.forward.sent - sent) as f64 * 8.0;
        let used = bits / world.now.since(from).as_secs_f64() / 8e6;
        println!(
            "{} commands, age on arrival p50 {p50} p99 {p99}, limit {limit}; {} states of video, {used:.2} \
             of the capacity",
            world.at_dialer.states, world.at_listener.states
        );
        assert!(p99 <= limit, "{p99} of {limit}");
        assert!(world.at_dialer.states > 600 && world.at_listener.states > 400);
    }
}

#[test]
fn states_of_any_length_use_the_path_under_tenth() {
    // The law sees how long each part took. A short last part of a state took less, and the others must not
    // pass for queued on that account.
    let rate = BitRate::from_mbps(8);
    let tenth: fn() -> Box<dyn RateLaw> =
        || LawConfig::with_defaults(LawName::Tenth).expect("its bounds are fine").build();
    for len in [20_000, 50_000, 100_000, 101_000] {
        let mut world = World::new(rate, fixed);
        world.dialer = dialer(tenth, 1);
        (world.state_len, world.command_len) = (len, 100);
        world.run(Span::from_secs(10));
        let (sent, from) = (world.forward.sent, world.now);
        world.run(Span::from_secs(20));
        let bits = (world.forward.sent - sent) as f64 * 8.0;
        let used = bits / world.now.since(from).as_secs_f64() / 8e6;
        println!("states of {len} bytes: {used:.3} of the capacity");
        assert!(used > 0.8, "states of {len} bytes: {used:.3} of the capacity");
    }
}

#[test]
fn only_senders_of_the_forward_session_can_end_the_return_session() {
    let mut world = World::new(fast(), fixed);
    let relation = |before: &u8, now: &u8| match before == now {
        true => Relation::Same,
        false => Relation::Other,
    };
    let monitor = Monitor::new(MonitorParams::default(), Secret::new([1; 16]));
    world.listener = Listener::new(monitor.with_relation(relation)).returning();
    world.run(Span::from_secs(2));
    let key = world.listener.return_sources().next().expect("there is one");
    let session = world.listener.return_source(key).expect("it is open").session();
    let close = Close { session, reason: CloseReason::Done }.bytes();
    let mut ends_it = |peer: u8| {
        let _ = world.listener.handle_datagram(world.now, peer, None, &close);
        let source = world.listener.return_source(key).expect("it is there");
        source.reach() != Reach::Open
    };
    assert!(!ends_it(9), "a stranger that has overheard the id");
    assert!(ends_it(1));
}

#[test]
fn acks_ride_on_the_states_that_answer_them() {
    // A controller takes 0.3 ms for a command; the robot sends 50 states/s.
    let mut world = World::new(fast(), || Box::new(Fixed::new(UpdateRate::saturating(1_000.0))));
    world.dialer = dialer(fixed, 1);
    world.answers_after = Some(Span::from_micros(300));
    world.run(Span::from_secs(5));
    let (states, commands) = (world.at_listener.states, world.at_dialer.states);
    let datagrams = world.back.datagrams;
    world.run(Span::from_secs(20));
    let states = world.at_listener.states - states;
    assert_eq!(states, 1_000);
    assert!((998..=1_000).contains(&(world.at_dialer.states - commands)));
    // Acks and commands share datagrams, except for acks that keep the return session alive.
    assert!(
        (998..=1_002).contains(&(world.back.datagrams - datagrams)),
        "{}",
        world.back.datagrams
    );
    // Both laws get the round trip of their updates as before, without the delay of acks.
    let trip = |source: &Source| source.counters().rtt_mean().expect("acks arrive").as_millis_f64();
    let key = world.listener.return_sources().next().expect("there is one");
    let back = world.listener.return_source(key).expect("it is open");
    for rtt in [trip(world.dialer.source()), trip(back)] {
        assert!((40.0..40.2).contains(&rtt), "{rtt} ms");
    }
}

#[test]
fn an_ack_that_waited_for_a_state_holds_up_no_answer_to_another_address() {
    let mut world = World::new(fast(), || Box::new(Fixed::new(UpdateRate::saturating(1_000.0))));
    world.dialer = dialer(fixed, 1);
    world.answers_after = Some(Span::from_micros(300));
    world.run(Span::from_secs(5));
    let seq = world.dialer.source().counters().sent;
    let mut hear = |seq: u64, peer: u8| {
        let update = world.forge(seq, Frames::NONE);
        world.listener.handle_datagram(world.now, peer, None, &update[..]).expect("it is new");
        world.listener.monitor().next_peer().copied()
    };
    assert_eq!(hear(seq, 1), None, "its ack waits for a command");
    assert_eq!(hear(seq + 1, 2), Some(2), "the former ack waits no more");
    let mut out = Vec::new();
    let answers = core::iter::from_fn(|| world.listener.poll_transmit(world.now, &mut out));
    assert!(answers.map(|answer| answer.peer).take(2).eq([2, 1]));
}

#[test]
fn a_listener_whose_machine_has_slept_believes_no_ack_from_before() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    let key = world.listener.return_sources().next().expect("there is one");
    let round_trips = |world: &World| {
        let counters = world.listener.return_source(key).expect("it is open").counters();
        (counters.opened, counters.rtt_sum, counters.acked)
    };
    let before = round_trips(&world);
    // Acks are on their path.
    world.now += Span::from_secs(3_600);
    world.listener.handle_resume(world.now);
    world.run(Span::from_secs(2));
    world.assert_fresh(Span::from_millis(50), "after the sleep");
    let after = round_trips(&world);
    assert_eq!(after.0, before.0 + 1, "it is opened again");
    let mean = (after.1 - before.1) / (after.2 - before.2);
    assert!(mean <= DELAY * 3, "{mean}");
}

#[test]
fn an_update_counts_whatever_rides_on_it() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(2));
    let mut bytes = world.forge(1_000, Frames::NONE);
    // An ack of a session that is not there.
    let ack = [b"FL\x02\x02", &[7; 68][..]].concat();
    bytes.extend(ack);
    bytes[12] |= 32;
    let fresh = world.listener.monitor().counters().fresh;
    world.listener.handle_datagram(world.now, 1, None, &bytes[..]).expect("the update counts");
    assert_eq!(world.listener.monitor().counters().fresh, fresh + 1);
}
