//! Freshline's sessions in a capture.

use freshline_core::state::Layout;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{
    Ack, Cookie, Frame, Frames, Message, OffsetEstimate, Opening, Part, PartsAck, SessionId,
    StateId, Update,
};
use freshline_lab::capture::{LinkType, Report};

use crate::world::{Captured, at, cut, pcap, report, udp};

const SOURCE: &str = "192.0.2.1:5000";
const MONITOR: &str = "192.0.2.2:3774";

/// Where the packets of a session were captured.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Source,
    Monitor,
}

/// An update every 10 ms, 12 ms to the monitor, held there for 1 ms, and 8 ms back. Both clocks
/// start anywhere; the source knows their distance.
fn session(place: Place, payload: &[u8]) -> Vec<Captured> {
    session_of(place, |_| (Frames::fresh(payload), None))
}

/// The same with other frames, and acks that report received parts.
fn session_of<'a>(
    place: Place,
    content: impl Fn(u64) -> (Frames<'a>, Option<PartsAck>),
) -> Vec<Captured> {
    let source_clock = |micros: u64| Time::ZERO + Span::from_micros(7_000_000 + micros);
    let monitor_clock = |micros: u64| Time::ZERO + Span::from_micros(90_000_000 + micros);
    let mut packets = Vec::new();
    for seq in 0..100 {
        let (sent_at, (frames, parts)) = (10_000 * seq, content(seq));
        let opening = Opening { cookie: Cookie::default(), name: "robot-7", token: b"" };
        let update = Update {
            session: SessionId(0xAB),
            seq,
            sent_at: source_clock(sent_at),
            clock_offset: Some(OffsetEstimate::new(83_000_000_000, Span::ZERO)),
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening: (seq == 0).then_some(opening),
            frames,
        };
        let ack = Ack {
            session: SessionId(0xAB),
            seq,
            sent_at: update.sent_at,
            received_at: monitor_clock(sent_at + 12_000),
            hold: Span::from_millis(1),
            was_fresh: true,
            fresh: seq as u32 + 1,
            stale: 0,
            missing: 0,
            marks: Default::default(),
            parts,
        };
        let mut bytes = [0; 2000];
        let len = update.write(&mut bytes).unwrap();
        let (out, back) = match place {
            Place::Source => (0, 21_000),
            Place::Monitor => (12_000, 13_000),
        };
        packets.push(udp(sent_at + out, SOURCE, MONITOR, &bytes[..len]));
        packets.push(udp(sent_at + back, MONITOR, SOURCE, &ack.bytes()));
    }
    packets.sort_by_key(|packet| packet.at);
    packets
}

/// Each state takes four updates. It is complete with the fourth one, 42 ms after it was sampled.
#[test]
fn a_state_in_parts_is_as_old_as_its_first_part() {
    let content = |seq: u64| {
        let behind = seq % 4;
        let id = StateId { topic: 0, behind, age: Span::from_millis(10 * behind) };
        let layout = Layout::new(400, 100, 0).unwrap();
        let part = Part { id, layout, index: behind as u32, bytes: &[0; 100] };
        let complete = (seq + 1) / 4;
        let newest = complete.checked_sub(1).map(|state| state * 4);
        (
            Frames::one(Frame::Part(part)),
            Some(PartsAck { recent: u64::MAX, newest, ..PartsAck::default() }),
        )
    };
    for place in [Place::Source, Place::Monitor] {
        let report = report(&pcap(LinkType::Raw, &session_of(place, content)));
        let (rtt, source, monitor) = means(&report);
        // The ack comes 21 ms after the last part has left the source, or 1 ms after it came.
        let expected = if place == Place::Source { 51.0 + 20.0 } else { 31.0 + 20.0 };
        assert!((source - expected).abs() < 1.0, "{source} {rtt}");
        assert!((monitor - 62.0).abs() < 1.0, "{monitor}");
    }
}

/// The acks of topics are longer than others, and report parts although a whole state has arrived.
#[test]
fn a_session_with_a_topic_is_as_old_as_one_without() {
    let content = |_| {
        let id = StateId { topic: 1, behind: 0, age: Span::ZERO };
        let frames = Frames::one(Frame::State { id, bytes: &[1; 90] });
        (frames, Some(PartsAck { recent: u64::MAX, ..PartsAck::default() }))
    };
    for place in [Place::Source, Place::Monitor] {
        let with = report(&pcap(LinkType::Raw, &session_of(place, content)));
        let without = report(&pcap(LinkType::Raw, &session(place, &[1; 90])));
        assert_eq!(means(&with), means(&without));
        assert_eq!((with.packets.unread_messages, with.packets.session), (0, 200));
    }
}

/// An update that only repeats that the previous state is still the newest makes nothing fresher.
#[test]
fn a_state_that_is_repeated_by_its_number_is_as_old_as_it_was() {
    let content = |seq: u64| {
        let behind = seq % 2;
        let id = StateId { topic: 0, behind, age: Span::from_millis(10 * behind) };
        let frame = match behind {
            0 => Frame::State { id, bytes: &[1; 90] },
            _ => Frame::Again(id),
        };
        (Frames::one(frame), None)
    };
    let report = report(&pcap(LinkType::Raw, &session_of(Place::Source, content)));
    // 12 ms to the monitor and half of 20 ms; 21 ms until the ack.
    assert_eq!(means(&report), (20.0, 31.0, 22.0));
}

/// Mean round trip and mean ages at the source and at the monitor, in ms.
fn means(report: &Report) -> (f64, f64, f64) {
    assert_eq!(report.sessions.len(), 1, "{report:?}");
    let session = &report.sessions[0];
    let (rtt, source) = (session.rtt.unwrap(), session.age_at_source.unwrap());
    (rtt.mean_ms, source.mean_ms, session.age_at_monitor.unwrap().mean_ms)
}

#[test]
fn a_session_has_its_age_at_the_source_and_at_the_monitor() {
    let report = report(&pcap(LinkType::Raw, &session(Place::Source, &[1; 900])));
    // 21 ms until the ack, 12 ms to the monitor, and half of 10 ms each.
    assert_eq!(means(&report), (20.0, 26.0, 17.0));
    let session = &report.sessions[0];
    assert_eq!((session.session.as_str(), session.name.as_str()), ("00000000000000ab", "robot-7"));
    assert_eq!(
        (session.source, session.monitor),
        (SOURCE.parse().unwrap(), MONITOR.parse().unwrap())
    );
    assert_eq!(
        (session.updates, session.acks, session.late_acks, session.copies),
        (100, 100, 0, 0)
    );
    assert_eq!(session.age_at_monitor.unwrap().max_ms, 22.0);
    assert_eq!(report.packets.session, 200);
    assert!(report.flows.is_empty());
}

#[test]
fn the_age_at_the_monitor_is_the_same_wherever_the_capture_was_made() {
    let report = report(&pcap(LinkType::Raw, &session(Place::Monitor, &[1; 900])));
    // This capture does not show the path to the source and back.
    assert_eq!(means(&report), (0.0, 6.0, 17.0));
}

#[test]
fn the_state_need_not_have_been_captured() {
    let packets = session(Place::Source, &[1; 900]);
    // All but the first, whose opening carries the name.
    let report = report(&pcap(LinkType::Raw, &cut(&packets[1..], 96)));
    assert_eq!(means(&report), (20.0, 26.0, 17.0));
    assert_eq!(report.sessions[0].name, "");
}

#[test]
fn too_little_of_a_message_is_counted_as_such() {
    let packets = cut(&session(Place::Source, &[1; 900]), 60);
    let report = report(&pcap(LinkType::Raw, &packets));
    assert_eq!((report.packets.truncated, report.packets.session), (200, 0));
}

#[test]
fn lost_updates_late_acks_and_copies_do_not_make_anything_fresher() {
    let mut packets = session(Place::Source, b"state");
    let clean = report(&pcap(LinkType::Raw, &packets)).sessions.remove(0);
    // The copy of every packet, 5 ms later.
    let copies = packets.clone().into_iter().map(|mut packet| {
        packet.at += Span::from_millis(5);
        packet
    });
    packets.extend(copies);
    packets.sort_by_key(|packet| packet.at);
    let copied = report(&pcap(LinkType::Raw, &packets)).sessions.remove(0);
    assert_eq!((copied.copies, copied.late_acks), (100, 100));
    assert_eq!((copied.rtt, copied.age_at_source), (clean.rtt, clean.age_at_source));
    assert_eq!(copied.age_at_monitor, clean.age_at_monitor);
}

/// Updates that leave together, and their acks as a network card puts them together.
fn trains(packets: &[Captured], at_once: usize) -> Vec<Captured> {
    let (updates, acks): (Vec<_>, Vec<_>) =
        packets.iter().partition(|packet| packet.payload().len() > Ack::LEN);
    let together = |packets: &[&Captured], from, to| {
        let bytes: Vec<_> = packets.iter().flat_map(|packet| packet.payload()).copied().collect();
        let mut train = udp(0, from, to, &bytes);
        train.at = packets[packets.len() - 1].at;
        train
    };
    let updates = updates.chunks(at_once).map(|some| together(some, SOURCE, MONITOR));
    let acks = acks.chunks(at_once).map(|some| together(some, MONITOR, SOURCE));
    let mut trains: Vec<_> = updates.chain(acks).collect();
    trains.sort_by_key(|packet| packet.at);
    trains
}

#[test]
fn every_message_of_a_train_counts() {
    let packets = session(Place::Source, &[1; 100]);
    let trains = trains(&packets, 7);
    let whole = report(&pcap(LinkType::Raw, &trains));
    let session = &whole.sessions[0];
    assert_eq!((session.updates, session.acks + session.late_acks), (100, 100));
    assert_eq!((whole.packets.session, whole.packets.unread_messages), (30, 0));

    // Of each train the first message was captured.
    let short = report(&pcap(LinkType::Raw, &cut(&trains, 96)));
    let read = short.sessions[0].updates + short.sessions[0].acks + short.sessions[0].late_acks;
    assert_eq!(read + short.packets.unread_messages, 200, "{short:?}");
}

#[test]
fn a_monitor_that_is_replaced_has_a_clock_of_its_own() {
    let mut packets = session(Place::Source, b"state");
    let before = means(&report(&pcap(LinkType::Raw, &packets)));
    // From update 50 on another monitor answers, whose clock is 80 s behind that of the first. The
    // source opens the session there, and knows the distance from update 53 on.
    const BEHIND: u64 = 80_000_000_000;
    let mut rewrite = |packet: &mut Captured| {
        let bytes = packet.payload().to_vec();
        let changed = match Message::parse(&bytes).unwrap() {
            Message::Update(update) if update.seq >= 50 => {
                let opening = Opening { cookie: Cookie::default(), name: "robot-7", token: b"" };
                let mut bytes = [0; 2000];
                let changed = Update {
                    opening: (update.seq < 53).then_some(opening),
                    clock_offset: (update.seq >= 53)
                        .then_some(OffsetEstimate::new(3_000_000_000, Span::ZERO)),
                    ..update
                };
                let len = changed.write(&mut bytes).unwrap();
                bytes[..len].to_vec()
            }
            Message::Ack(ack) if ack.seq >= 50 => {
                let received_at = Time::from_nanos(ack.received_at.as_nanos() - BEHIND);
                Ack { received_at, ..ack }.bytes().to_vec()
            }
            _ => return,
        };
        let (from, to) = if bytes[3] == 1 { (SOURCE, MONITOR) } else { (MONITOR, SOURCE) };
        let at = packet.at;
        *packet = udp(0, from, to, &changed);
        packet.at = at;
    };
    packets.iter_mut().for_each(&mut rewrite);
    let report = report(&pcap(LinkType::Raw, &packets));
    let after = means(&report);
    assert_eq!((after.0, after.1), (before.0, before.1));
    // Some acks around the change are of no use; the age grows meanwhile.
    let ages = report.sessions[0].age_at_monitor.unwrap();
    assert!((after.2 - before.2).abs() < 2.0 && ages.max_ms < 100.0, "{ages:?}");
}

#[test]
fn a_damaged_number_does_not_lose_the_session() {
    for damaged in [0, 40] {
        let mut packets = session(Place::Source, b"state");
        let place = packets.iter().position(|packet| {
            matches!(Message::parse(packet.payload()), Ok(Message::Update(update)) if update.seq == damaged)
        });
        let packet = &mut packets[place.unwrap()];
        let mut bytes = packet.payload().to_vec();
        // The first byte of the number.
        bytes[16] ^= 0x80;
        let at = packet.at;
        *packet = udp(0, SOURCE, MONITOR, &bytes);
        packet.at = at;
        let session = report(&pcap(LinkType::Raw, &packets)).sessions.remove(0);
        assert_eq!((session.strays, session.copies), (1, 0), "{session:?}");
        assert!(session.updates >= 98 && session.acks >= 97, "{session:?}");
    }
}

#[test]
fn frames_out_of_order_are_put_in_order_and_no_round_trip_is_negative() {
    let mut packets = session(Place::Source, b"state");
    let clean = report(&pcap(LinkType::Raw, &packets)).sessions.remove(0);
    for pair in packets.chunks_mut(8) {
        pair.reverse();
    }
    let mixed = report(&pcap(LinkType::Raw, &packets));
    assert_eq!(mixed.sessions, [clean]);
    assert_eq!(mixed.packets.out_of_order, 0);

    // Captured with a clock that was set back between an update and its ack.
    for packet in &mut packets {
        if matches!(Message::parse(packet.payload()), Ok(Message::Ack(_))) {
            packet.at = packet.at - Span::from_micros(21_500);
        }
    }
    let early = report(&pcap(LinkType::Raw, &packets)).sessions.remove(0);
    assert!(early.rtt.is_none_or(|rtt| rtt.min_ms > 0.0), "{early:?}");
}

#[test]
fn other_datagrams_are_none_of_ours() {
    let packets = [udp(0, SOURCE, MONITOR, b"FLAMINGO"), udp(1, SOURCE, MONITOR, b"")];
    let report = report(&pcap(LinkType::Raw, &packets));
    assert_eq!((report.packets.other, report.sessions.len()), (2, 0));
    assert!(report.duration_s > 0.0 && packets[0].at == at(0));
}
