//! The address of a session's return direction: it follows a dialer whose address changes, and no
//! other party can redirect it.

#[path = "common/both_ways.rs"]
mod both_ways;

use both_ways::{DELAY, World, dialer, fast, fixed, listener, params, state};
use freshline_core::path::PathId;
use freshline_core::session::{
    Admission, Listener, ListenerEvent, Monitor, MonitorParams, ReturnParams, Secret, Source,
    SourceEvent,
};
use freshline_core::source::{Fixed, RateLaw};
use freshline_core::unit::{BitRate, Span, Time, UpdateRate};
use freshline_core::wire::{Ack, Cookie, Frame, Frames, Opening, SessionId, StateId, Update};

#[test]
fn commands_follow_a_dialer_whose_nat_gives_it_another_address() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    world.address = 2;
    // Nothing has come from the former address for a second; then openings go to the new one.
    world.run(Span::from_secs(1) + DELAY * 4 + Span::from_millis(300));
    world.assert_fresh(Span::from_millis(80), "after the move");
    assert_eq!((world.wanted, world.dialer.source().counters().opened), (1, 1));
}

#[test]
fn nobody_can_lead_the_return_direction_to_others() {
    let full: fn() -> Box<dyn RateLaw> = || Box::new(Fixed::new(UpdateRate::saturating(790.0)));
    let mut world = World::new(BitRate::from_mbps(8), full);
    world.dialer = dialer(fixed, 1);
    world.command_len = 50_000;
    world.run(Span::from_secs(5));
    for _ in 0..10 {
        // Long enough for the listener to believe it; the victim answers nothing.
        let before = world.forward.sent;
        (world.forged, world.to_second) = (Some(2), 0);
        world.run(Span::from_secs(4));
        let forged = world.forward.sent - before;
        assert!(world.to_second <= forged, "{} for {forged}", world.to_second);
        world.forged = None;
        world.run(Span::from_secs(4));
    }
    world.run(Span::from_secs(3));
    assert!(world.at_dialer.states > 100, "{}", world.at_dialer.states);
}

#[test]
fn a_dialer_with_two_addresses_keeps_its_return_session() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    // As over two paths: updates come from either, and both are the dialer's.
    for step in 0..100 {
        world.forged = (step % 2 == 0).then_some(2);
        world.run(Span::from_millis(100));
        world.assert_fresh(Span::from_millis(80), "over two paths");
    }
    let key = world.listener.return_sources().next().expect("there is one");
    let source = world.listener.return_source(key).expect("it is open");
    assert_eq!(source.counters().opened, 1);
}

/// States of the dialer every 2.5 s.
fn rare() -> Box<dyn RateLaw> {
    Box::new(Fixed::new(UpdateRate::saturating(0.4)))
}

/// The return session's id, and how often it was opened.
fn session_of(world: &World) -> (SessionId, u64) {
    let key = world.listener.return_sources().next().expect("there is one");
    let source = world.listener.return_source(key).expect("it is open");
    (source.session(), source.counters().opened)
}

/// A world whose dialer sends rarely, and whose listener has sent one command.
fn rare_world() -> World {
    let mut world = World::new(fast(), fixed);
    world.dialer = dialer(rare, 1);
    world.answers_after = Some(Span::from_secs(1_000_000));
    world.run(Span::from_secs(6));
    let key = world.listener.return_sources().next().expect("there is one");
    world.put_command(key);
    world.run(Span::from_secs(1));
    assert_eq!(world.at_dialer.states, 1);
    world
}

#[test]
fn a_slow_dialer_with_two_addresses_gets_each_command_once() {
    let mut world = rare_world();
    world.second = Some(2);
    let before = session_of(&world);
    for step in 0..60 {
        world.forged = (step % 2 == 0).then_some(2);
        world.run(Span::from_millis(2_500));
    }
    assert_eq!(world.at_dialer.states, 1);
    assert_eq!(session_of(&world), before);
}

#[test]
fn a_slow_dialer_is_found_at_another_address_by_its_next_update() {
    let mut world = rare_world();
    world.address = 2;
    // Its next update, a question to the former address without an answer for a second, and an opening.
    world.run(Span::from_millis(2_500) + Span::from_secs(1) + DELAY * 4);
    let key = world.listener.return_sources().next().expect("there is one");
    world.put_command(key);
    world.run(DELAY * 3);
    let age = world.now.since(world.at_dialer.newest.expect("a command"));
    assert!(age <= DELAY * 3, "the newest command is {age} old");
}

#[test]
fn an_outage_of_all_paths_does_not_move_the_return_direction() {
    let mut world = World::new(fast(), fixed);
    world.second = Some(2);
    world.run(Span::from_secs(5));
    let before = session_of(&world).0;
    for _ in 0..5 {
        (world.forward.is_cut, world.back.is_cut) = (true, true);
        world.run(Span::from_millis(1_500));
        // The second path's datagrams arrive first.
        (world.forward.is_cut, world.back.is_cut, world.forged) = (false, false, Some(2));
        world.run(Span::from_millis(900));
        world.forged = None;
        world.run(Span::from_secs(4));
        assert_eq!(session_of(&world).0, before);
    }
}

#[test]
fn a_dead_address_is_left_also_for_two_that_take_turns() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    (world.address, world.second) = (3, Some(2));
    for step in 0..60 {
        world.forged = (step % 2 == 0).then_some(2);
        world.run(Span::from_millis(100));
    }
    world.assert_fresh(Span::from_millis(80), "over the other two");
}

#[test]
fn neither_late_updates_nor_copies_move_the_return_direction() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    let before = session_of(&world).0;
    run_listener(&mut world, Span::from_millis(1_100));
    let sent = world.dialer.source().counters().sent;
    for seq in [sent - 3, sent - 40] {
        let _ = world.listener.handle_datagram(world.now, 2, None, &forge(&world, seq)[..]);
        run_listener(&mut world, Span::from_secs(3));
    }
    assert_eq!(session_of(&world).0, before);
}

#[test]
fn copies_of_an_old_update_do_not_hold_the_return_direction_at_a_former_address() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    let old = copy(&world);
    world.address = 2;
    for _ in 0..8 {
        let _ = world.listener.handle_datagram(world.now, 1, None, &old[..]);
        world.run(Span::from_millis(500));
    }
    world.assert_fresh(Span::from_millis(80), "after the move");
}

#[test]
fn an_address_that_has_answered_lately_is_taken_up_without_another_session() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    let first = session_of(&world).0;
    world.address = 2;
    world.run(Span::from_secs(5));
    let second = session_of(&world).0;
    assert_ne!(first, second);
    for address in [1, 2, 1] {
        world.address = address;
        world.run(Span::from_secs(1) + DELAY * 4 + Span::from_millis(300));
        world.assert_fresh(Span::from_millis(80), &format!("back at {address}"));
        assert_eq!(session_of(&world).0, second);
        world.run(Span::from_secs(3));
    }
    // After a minute the address may belong to another host.
    world.run(Span::from_secs(61));
    world.address = 2;
    world.run(Span::from_secs(5));
    assert_ne!(session_of(&world).0, second);
}

/// Only the listener runs: nothing arrives from the dialer.
fn run_listener(world: &mut World, duration: Span) {
    let end = world.now + duration;
    while world.now < end {
        world.step_listener();
        let next = world.listener.poll_timeout().unwrap_or(end);
        world.now = next.max(world.now + Span::from_nanos(1)).min(end);
    }
}

/// The dialer's newest update.
fn copy(world: &World) -> Vec<u8> {
    forge(world, world.dialer.source().counters().sent - 1)
}

/// An update of the dialer, forged by a party that knows the session.
fn forge(world: &World, seq: u64) -> Vec<u8> {
    let state = state(world.now, 20);
    world.forge(seq, Frames::one(Frame::State { id: StateId::FRESH, bytes: &state }))
}

/// The update that the dialer would send next.
fn next(world: &World) -> Vec<u8> {
    forge(world, world.dialer.source().counters().sent)
}

#[test]
fn one_forged_update_buys_few_bytes_for_a_victim() {
    // Of states that an opening could carry, too.
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    run_listener(&mut world, Span::from_millis(1_100));
    let forged = next(&world);
    world.to_second = 0;
    world.listener.handle_datagram(world.now, 2, None, &forged[..]).expect("it is of the session");
    run_listener(&mut world, Span::from_secs(200));
    // Besides the ack of the update.
    let bytes = world.to_second - Ack::LEN as u64;
    assert!((1..=3 * forged.len() as u64).contains(&bytes), "{bytes} for {}", forged.len());
}

#[test]
fn a_moved_return_session_has_another_id_that_only_its_new_address_learns() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    let former = session_of(&world).0;
    let forged = next(&world);
    world.listener.handle_datagram(world.now, 2, None, &forged[..]).expect("it is of the session");
    run_listener(&mut world, Span::from_millis(1_100));
    assert_ne!(session_of(&world).0, former);
    // An answer made with knowledge of the former session is rejected.
    let mut ack = [0; Ack::LEN];
    ack[..12].copy_from_slice(&[b"FL\x02\x02", &former.0.to_be_bytes()[..]].concat());
    assert!(world.listener.handle_datagram(world.now, 2, None, &ack[..]).is_err());
    world.address = 2;
    world.run(Span::from_secs(6));
    world.assert_fresh(Span::from_millis(80), "once it answers");
}

#[test]
fn acks_of_commands_keep_them_where_they_are() {
    // Updates of the dialer are rare, with copies over a second path; its acks show where it is.
    let mut world = World::new(fast(), fixed);
    world.dialer = dialer(rare, 1);
    world.run(Span::from_secs(5));
    let key = world.listener.return_sources().next().expect("there is one");
    for _ in 0..20 {
        world.run(Span::from_millis(1_700));
        // A copy of the newest update comes by the other path.
        let copy = copy(&world);
        world
            .listener
            .handle_datagram(world.now, 2, None, &copy[..])
            .expect("it is of the session");
    }
    let source = world.listener.return_source(key).expect("it is open");
    assert_eq!(source.counters().opened, 1);
}

#[test]
fn a_driver_that_opens_a_return_session_late_is_not_told_that_it_has_ended() {
    let params_of_monitor =
        MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
    let monitor = Monitor::new(params_of_monitor, Secret::new([1; 16]));
    let mut listener = Listener::new(monitor).returning();
    let (now, mut datagram) = (Time::from_nanos(9), [0; 200]);
    let mut open = |listener: &mut Listener<u8>, session| {
        let opening = Opening { cookie: Cookie::default(), name: "robot", token: b"" };
        let update = Update {
            session: SessionId(session),
            seq: 0,
            sent_at: now,
            clock_offset: None,
            wants_ack: true,
            wants_return: true,
            ack_mark: None,
            opening: Some(opening),
            frames: Frames::fresh(b"state"),
        };
        let len = update.write(&mut datagram).expect("it fits");
        listener.handle_datagram(now, 1, None, &datagram[..len]).expect("it is legal");
    };
    let returns = |listener: &mut Listener<u8>| {
        let events = std::iter::from_fn(|| listener.poll_event());
        let of_returns = events.filter_map(|event| match event {
            ListenerEvent::ReturnWanted { source } => Some((true, source)),
            ListenerEvent::ReturnEnded { source } => Some((false, source)),
            _ => None,
        });
        of_returns.collect::<Vec<_>>()
    };
    let return_params = || ReturnParams {
        source: params(""),
        secret: Secret::new([3; 16]),
        law: fixed(),
        topics: Vec::new(),
    };
    open(&mut listener, 1);
    let [(true, source)] = returns(&mut listener)[..] else { panic!("it wants states") };
    // The source is restarted before the driver has looked at that.
    open(&mut listener, 2);
    listener.open_return(now, source, return_params()).expect("the new session wants states, too");
    assert_eq!(returns(&mut listener), [], "the driver's open return session stays open");
    assert!(listener.return_source(source).is_some());
    // From then on each restart ends it and requires another one.
    open(&mut listener, 3);
    assert_eq!(returns(&mut listener), [(false, source), (true, source)]);
}

#[test]
fn a_source_that_takes_over_a_name_and_wants_nothing_is_sent_nothing() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    let source = Source::new(params("robot"), Secret::new([9; 16]), fixed(), world.now);
    let mut source = source.expect("it fits");
    let (mut out, end) = (Vec::new(), world.now + Span::from_secs(10));
    // It dials from address 3, over a path without delay.
    while world.now < end {
        source.handle_timeout(world.now);
        while let Some(event) = source.poll_event() {
            if let SourceEvent::StateWanted(_) = event {
                source.put(world.now, world.now, b"state").expect("it fits");
            }
        }
        while let Some(transmit) = source.poll_transmit(world.now, &mut out) {
            let _ = world.listener.handle_datagram(world.now, 3, None, &out[..transmit.len]);
        }
        world.listener.handle_timeout(world.now);
        while world.listener.poll_event().is_some() {}
        while let Some(answer) = world.listener.poll_transmit(world.now, &mut out) {
            assert!(answer.peer == 3 || source.counters().opened == 0, "to {}", answer.peer);
            let _ = source.handle_datagram(world.now, PathId::FIRST, &out[..answer.len]);
        }
        world.now += Span::from_millis(10);
    }
    assert_eq!(source.counters().opened, 1);
    assert_eq!(world.listener.return_sources().count(), 0);
}

#[test]
fn a_late_copy_of_a_former_opening_ends_nothing() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    let former = world.opening.clone().expect("it was opened");
    // A listener that was restarted opens another one.
    world.listener = listener(2);
    world.run(Span::from_secs(5));
    let label = |world: &World| world.dialer.receiver().records().next().expect("one").1.session;
    let present = label(&world);
    world.dialer.handle_datagram(world.now, PathId::FIRST, &former).expect("it is challenged");
    assert_eq!(label(&world), present);
}

#[test]
fn a_late_opening_of_a_session_that_was_left_ends_nothing() {
    let mut world = World::new(fast(), fixed);
    world.run(Span::from_secs(5));
    // The first path is silent. The dialer's datagrams arrive over a second one, whose downlink
    // stalls.
    (world.forged, world.stalled) = (Some(2), Some(2));
    world.run(Span::from_secs(4));
    assert!(!world.delayed.is_empty(), "openings were sent there");
    // The second path is silent as well, and the dialer's datagrams arrive over a third.
    (world.forged, world.address) = (None, 3);
    world.run(Span::from_secs(4));
    world.assert_fresh(Span::from_millis(80), "over the third path");
    // The second path thaws: its datagrams are older than the state that the dialer has.
    let label = |world: &World| world.dialer.receiver().records().next().expect("one").1.session;
    let present = label(&world);
    for late in core::mem::take(&mut world.delayed) {
        let _ = world.dialer.handle_datagram(world.now, PathId::FIRST, &late);
    }
    for _ in 0..20 {
        world.run(Span::from_millis(100));
        world.assert_fresh(Span::from_millis(80), "after the second has thawed");
    }
    assert_eq!(label(&world), present);
}
