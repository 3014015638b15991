use super::outbox::MAX_ANSWERS;
use super::*;
use crate::session::Admission;
use crate::session::downlink::PutError;
use crate::unit::Span;
use crate::wire::{Cookie, Join, Opening, Packet, Report};
use crate::wlan::Fixed;

/// Ten packets of 1250 bytes with headers, per second.
fn server(params: ServerParams) -> Server<u32> {
    let law = Box::new(Fixed::new(BitRate::from_bps(100_000)));
    Server::new(params, law, Secret::new([7; 16]))
}

/// As over QUIC, where a peer is a connection.
fn proven() -> ServerParams {
    ServerParams { admission: Admission::Proven, ..ServerParams::default() }
}

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

fn join(server: &mut Server<u32>, now: Time, peer: u32, session: u64, token: &[u8]) {
    let opening = Opening { cookie: Cookie::default(), name: "", token };
    let mut datagram = [0; 400];
    let len = Join { session: SessionId(session), opening }.write(&mut datagram).unwrap();
    server.handle_datagram(now, peer, &datagram[..len]).unwrap();
}

/// A server with one client, whose packet is wanted.
fn joined() -> (Server<u32>, ClientKey) {
    let mut server = server(proven());
    join(&mut server, at(0), 1, 9, b"");
    server.handle_timeout(at(0));
    let Some(ServerEvent::Joined { client, is_new: true }) = server.poll_event() else { panic!() };
    assert_eq!(wanted(&mut server), Some(client));
    (server, client)
}

/// The client for which the driver is asked.
fn wanted(server: &mut Server<u32>) -> Option<ClientKey> {
    match server.poll_event()? {
        ServerEvent::PacketWanted(client) => Some(client),
        other => panic!("{other:?}"),
    }
}

/// The payload of the packet that is sent now, or the close's reason.
fn sent(server: &mut Server<u32>, now: Time) -> Option<Result<Vec<u8>, CloseReason>> {
    let mut out = Vec::new();
    let transmit = server.poll_transmit(now, &mut out)?;
    match Message::parse(&out[..transmit.len]).unwrap() {
        Message::Packet(packet) => Some(Ok(packet.payload.to_vec())),
        Message::Close(close) => Some(Err(close.reason)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_session_is_led_elsewhere_by_its_own_token_alone() {
    let tokens = [b"one".to_vec(), b"two".to_vec()].into();
    let mut server = server(ServerParams { tokens, ..proven() });
    let mut join = |connection: u32, token: &[u8]| {
        join(&mut server, at(0), connection, 9, token);
        let led_to = server.clients().next().map(|(_, record)| record.peer);
        (matches!(server.poll_event(), Some(ServerEvent::Joined { .. })), led_to)
    };
    assert_eq!(join(1, b"one"), (true, Some(1)));
    assert_eq!(join(2, b"two"), (false, Some(1)), "it knows the session, but is another");
    assert_eq!(join(3, b"one"), (true, Some(3)));
}

#[test]
fn a_report_whose_number_was_damaged_does_not_outdate_those_that_follow() {
    let (mut server, client) = joined();
    let mut out = Vec::new();
    let mut reported = |second: u64, seq: u64, number: u32| {
        let sent_at = |seq: u64| Time::ZERO + Span::from_secs(seq);
        while server.client(client).unwrap().packets <= seq {
            let now = sent_at(server.client(client).unwrap().packets);
            server.put(now, client, b"").unwrap();
            server.poll_transmit(now, &mut out).unwrap();
        }
        let report = Report {
            session: SessionId(9),
            number,
            newest_seq: seq,
            newest_sent_at: sent_at(seq),
            newest_received_at: sent_at(seq),
            hold: Span::ZERO,
            received: 1,
            seen: None,
            marks: Default::default(),
            delivered: None,
            max_packets: None,
        };
        let now = Time::ZERO + Span::from_secs(second);
        server.handle_datagram(now, 1, &report.bytes()).is_ok()
    };
    assert!(reported(1, 0, 1 << 30), "this one was damaged");
    assert!(!reported(2, 0, 1), "it reports the same packet");
    assert!(reported(3, 2, 2) && reported(4, 2, 3));
    assert!(!reported(5, 2, 3) && !reported(6, 0, 4), "copies and stragglers");
}

#[test]
fn of_a_client_one_payload_is_held_and_of_answers_no_more_than_1024() {
    let (mut server, client) = joined();
    let max = server.params.max_payload;
    let too_large = server.put(at(0), client, &alloc::vec![0; max + 1]);
    assert_eq!(too_large, Err(PutError::TooLarge { given: max + 1, max }));
    server.put(at(0), client, b"one").unwrap();
    assert_eq!(server.put(at(0), client, b"two"), Err(PutError::Occupied));
    assert_eq!(sent(&mut server, at(0)), Some(Ok(b"one".to_vec())));
    assert_eq!(server.put(at(1), ClientKey(5), b""), Err(PutError::Gone));
    // The driver does not poll, and addresses without a cookie join again and again.
    server.params.admission = Admission::Cookie;
    for session in 0..5_000 {
        join(&mut server, at(2), 2, 100 + session, b"");
    }
    assert_eq!(server.outbox.len(), MAX_ANSWERS);
    assert!(server.events.len() <= 1024 + server.records.capacity(), "{}", server.events.len());
}

#[test]
fn clients_that_come_and_go_unpolled_leave_no_more_than_their_last_records() {
    let mut server = server(proven());
    for session in 0..5_000 {
        join(&mut server, at(0), 1, session, b"");
        let close = Close { session: SessionId(session), reason: CloseReason::Done };
        server.handle_datagram(at(0), 1, &close.bytes()).unwrap();
    }
    assert_eq!(server.events.len(), 1024 + server.records.capacity());
    assert!(server.records.is_empty() && server.records.capacity() < 10);
}

#[test]
fn a_payload_put_unasked_leaves_when_the_law_allows_it() {
    let (mut server, client) = joined();
    // With its headers it occupies the path for 100 ms.
    let payload = [1; 1250 - 28 - Packet::HEADER_LEN];
    server.put(at(0), client, &payload).unwrap();
    assert_eq!(sent(&mut server, at(0)), Some(Ok(payload.to_vec())));
    server.put(at(1), client, b"next").unwrap();
    assert_eq!((sent(&mut server, at(99)), server.poll_timeout()), (None, Some(at(100))));
    assert_eq!(sent(&mut server, at(100)), Some(Ok(b"next".to_vec())));
}

#[test]
fn a_driver_that_does_not_answer_is_asked_again_and_the_client_gets_keep_alives() {
    let (mut server, client) = joined();
    server.put(at(0), client, b"x").unwrap();
    assert_eq!(sent(&mut server, at(0)), Some(Ok(b"x".to_vec())));
    server.handle_timeout(at(50));
    assert_eq!(wanted(&mut server), Some(client));
    assert_eq!((wanted(&mut server), sent(&mut server, at(60))), (None, None), "it is asked once");
    assert_eq!(server.poll_timeout(), Some(at(500)));
    server.handle_timeout(at(500));
    assert_eq!(sent(&mut server, at(500)), Some(Ok(Vec::new())));
    server.handle_timeout(at(510));
    assert_eq!(wanted(&mut server), Some(client));
    server.put(at(511), client, b"late").unwrap();
    assert_eq!(sent(&mut server, at(520)), Some(Ok(b"late".to_vec())));
}

#[test]
fn a_client_for_which_there_is_nothing_more_is_sent_a_close_per_interval() {
    let (mut server, client) = joined();
    server.finish(at(0), client);
    assert_eq!(sent(&mut server, at(0)), Some(Err(CloseReason::Done)));
    for now in [500, 1000].map(at) {
        assert_eq!(server.poll_timeout(), Some(now));
        server.handle_timeout(now);
        assert_eq!(wanted(&mut server), Some(client));
        // Once without an answer of the driver: the next timeout detects this.
        if now == at(500) {
            server.finish(now, client);
        } else {
            server.handle_timeout(now);
        }
        assert_eq!(sent(&mut server, now), Some(Err(CloseReason::Done)));
    }
    assert_eq!(server.counters().packets, 0, "a close is not a packet");
    server.resume(at(1001), client);
    server.handle_timeout(at(1001));
    assert_eq!(wanted(&mut server), Some(client));
}

#[test]
fn a_server_that_closes_writes_a_close_per_client_and_nothing_after_them() {
    let (mut server, client) = joined();
    join(&mut server, at(1), 2, 10, b"");
    server.put(at(1), client, b"too late").unwrap();
    server.close();
    for _ in 0..2 {
        assert_eq!(sent(&mut server, at(2)), Some(Err(CloseReason::ShuttingDown)));
    }
    assert_eq!((sent(&mut server, at(900)), server.poll_timeout()), (None, None));
}
