//! Our own sessions in a capture.

use freshline_core::unit::{Span, Time};
use freshline_core::wire::{Ack, Cookie, Opening, SessionId, Update};
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
    let source_clock = |micros: u64| Time::ZERO + Span::from_micros(7_000_000 + micros);
    let monitor_clock = |micros: u64| Time::ZERO + Span::from_micros(90_000_000 + micros);
    let mut packets = Vec::new();
    for seq in 0..100 {
        let sent_at = 10_000 * seq;
        let opening = Opening { cookie: Cookie::default(), name: "robot-7", token: b"" };
        let update = Update {
            session: SessionId(0xAB),
            seq,
            generated_at: source_clock(sent_at),
            clock_offset: Some(83_000_000_000),
            wants_ack: true,
            opening: (seq == 0).then_some(opening),
            payload,
        };
        let ack = Ack {
            session: SessionId(0xAB),
            seq,
            generated_at: update.generated_at,
            received_at: monitor_clock(sent_at + 12_000),
            hold: Span::from_millis(1),
            was_fresh: true,
            fresh: seq as u32 + 1,
            stale: 0,
            missing: 0,
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
    // Of the way to the source and back this capture knows nothing.
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
    assert_eq!((report.packets.cut, report.packets.session), (200, 0));
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

#[test]
fn other_datagrams_are_none_of_ours() {
    let packets = [udp(0, SOURCE, MONITOR, b"FLAMINGO"), udp(1, SOURCE, MONITOR, b"")];
    let report = report(&pcap(LinkType::Raw, &packets));
    assert_eq!((report.packets.other, report.sessions.len()), (2, 0));
    assert!(report.duration_s > 0.0 && packets[0].at == at(0));
}
