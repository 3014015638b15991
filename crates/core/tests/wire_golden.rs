//! Every message of the protocol, byte by byte, as `docs/protocol.md` lays it out. The bytes
//! are written by hand: code that writes and reads the same mistake does not pass.

use std::num::NonZeroU16;

use freshline_core::dscp::Dscp;
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wire::{
    Ack, AckMark, Challenge, Close, CloseReason, Cookie, Join, Marks, Message, Opening, Packet,
    Report, SessionId, Update,
};
use freshline_core::wlan;

const SESSION: SessionId = SessionId(0x0123_4567_89ab_cdef);

/// Bytes from lines of hexadecimal digits, in which spaces do not count.
fn bytes(lines: &[&str]) -> Vec<u8> {
    let digits: Vec<u32> = lines.concat().chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn assert_update(update: Update<'_>, lines: &[&str]) {
    let expected = bytes(lines);
    let mut written = [0xEE; 200];
    let len = update.write(&mut written).expect("it fits");
    assert_eq!(written[..len], expected);
    assert_eq!(Message::parse(&expected), Ok(Message::Update(update)));
}

fn assert_answer(message: Message<'_>, written: &[u8], lines: &[&str]) {
    let expected = bytes(lines);
    assert_eq!(written, expected);
    assert_eq!(Message::parse(&expected), Ok(message));
}

#[test]
fn an_update_with_a_clock_offset_and_a_long_payload() {
    let update = Update {
        session: SESSION,
        seq: 258,
        generated_at: Time::from_nanos(1_000_000_000),
        clock_offset: Some(-2),
        wants_ack: true,
        ack_mark: None,
        opening: None,
        payload: b"seventeen bytes !",
    };
    assert_update(
        update,
        &[
            "46 4c",                                              // magic: FL
            "01",                                                 // version 1
            "01",                                                 // type 1: update
            "01 23 45 67 89 ab cd ef",                            // session
            "02",                                                 // flags: clock offset
            "00",                                                 // mark of the ack: not asked for
            "00 11",                                              // payload length: 17
            "00 00 00 00 00 00 01 02",                            // sequence number: 258
            "00 00 00 00 3b 9a ca 00",                            // generated at: 1 s in ns
            "ff ff ff ff ff ff ff fe",                            // clock offset: −2 ns
            "73 65 76 65 6e 74 65 65 6e 20 62 79 74 65 73 20 21", // payload, 57 bytes in all
        ],
    );
}

#[test]
fn a_short_update_is_padded_to_the_length_of_an_ack() {
    let update = Update {
        session: SESSION,
        seq: 0,
        generated_at: Time::ZERO,
        clock_offset: None,
        wants_ack: true,
        ack_mark: Some(AckMark::Echo),
        opening: None,
        payload: b"hi",
    };
    assert_update(
        update,
        &[
            "46 4c 01 01",
            "01 23 45 67 89 ab cd ef",
            "00",                                        // flags: none
            "80",                                        // mark of the ack: as this one's
            "00 02",                                     // payload length: 2
            "00 00 00 00 00 00 00 00",                   // sequence number
            "00 00 00 00 00 00 00 00",                   // generated at
            "00 00 00 00 00 00 00 00",                   // clock offset: none, as the flags say
            "68 69",                                     // payload: hi
            "00 00 00 00 00 00 00 00 00 00 00 00 00 00", // padding up to 56 bytes
        ],
    );
}

#[test]
fn an_update_that_asks_for_no_ack() {
    let update = Update {
        session: SESSION,
        seq: 3,
        generated_at: Time::from_nanos(4),
        clock_offset: Some(5),
        wants_ack: false,
        ack_mark: None,
        opening: None,
        payload: b"seventeen bytes !",
    };
    assert_update(
        update,
        &[
            "46 4c 01 01",
            "01 23 45 67 89 ab cd ef",
            "06",                                                 // flags: clock offset, no ack
            "00",                                                 // mark of the ack
            "00 11",                                              // payload length: 17
            "00 00 00 00 00 00 00 03",                            // sequence number: 3
            "00 00 00 00 00 00 00 04",                            // generated at: 4 ns
            "00 00 00 00 00 00 00 05",                            // clock offset: 5 ns
            "73 65 76 65 6e 74 65 65 6e 20 62 79 74 65 73 20 21", // payload, 57 bytes in all
        ],
    );
}

#[test]
fn an_opening_carries_cookie_name_and_token() {
    let cookie = Cookie([
        0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xce,
        0xcf,
    ]);
    let update = Update {
        session: SESSION,
        seq: 1,
        generated_at: Time::from_nanos(2),
        clock_offset: None,
        wants_ack: true,
        ack_mark: Dscp::new(46).map(AckMark::Set),
        opening: Some(Opening { cookie, name: "rö7", token: &[0xfe, 0x00] }),
        payload: b"on",
    };
    assert_update(
        update,
        &[
            "46 4c 01 01",
            "01 23 45 67 89 ab cd ef",
            "01",                                              // flags: opening
            "6e",                                              // mark of the ack: code point 46
            "00 02",                                           // payload length: 2
            "00 00 00 00 00 00 00 01",                         // sequence number: 1
            "00 00 00 00 00 00 00 02",                         // generated at: 2 ns
            "00 00 00 00 00 00 00 00",                         // clock offset: none
            "c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 ca cb cc cd ce cf", // cookie
            "04",                                              // name length: 4
            "72 c3 b6 37",                                     // name in UTF-8: rö7
            "02",                                              // token length: 2
            "fe 00",                                           // token
            "6f 6e",                                           // payload: on
        ],
    );
}

#[test]
fn an_ack() {
    let ack = Ack {
        session: SESSION,
        seq: 258,
        generated_at: Time::from_nanos(1_000_000_000),
        received_at: Time::from_nanos(0x1122_3344_5566_7788),
        hold: Span::from_micros(150),
        was_fresh: true,
        fresh: 200,
        stale: 3,
        missing: 0x0a0b_0c0d,
        marks: Marks { seen: Dscp::new(46), sent: Dscp::new(0) },
    };
    assert_answer(
        Message::Ack(ack),
        &ack.bytes(),
        &[
            "46 4c 01 02",             // magic, version, type 2: ack
            "01 23 45 67 89 ab cd ef", // session
            "01",                      // flags: it was fresh
            "6e",                      // the update came with code point 46
            "40",                      // the ack leaves with 0
            "00",                      // reserved
            "00 00 00 00 00 00 01 02", // sequence number: 258
            "00 00 00 00 3b 9a ca 00", // generated at: 1 s
            "11 22 33 44 55 66 77 88", // received at, on the monitor's clock
            "00 00 00 96",             // hold: 150 µs
            "00 00 00 c8",             // fresh: 200
            "00 00 00 03",             // stale: 3
            "0a 0b 0c 0d",             // missing
        ],
    );
}

#[test]
fn a_challenge() {
    let challenge = Challenge { session: SESSION, cookie: Cookie(*b"sixteen bytes ok") };
    assert_answer(
        Message::Challenge(challenge),
        &challenge.bytes(),
        &[
            "46 4c 01 03",                                     // type 3: challenge
            "01 23 45 67 89 ab cd ef",                         // session
            "73 69 78 74 65 65 6e 20 62 79 74 65 73 20 6f 6b", // cookie
        ],
    );
}

#[test]
fn a_close_with_each_reason() {
    for (reason, code) in [
        (CloseReason::Done, "00"),
        (CloseReason::ShuttingDown, "01"),
        (CloseReason::Full, "02"),
        (CloseReason::BadToken, "03"),
        (CloseReason::Version, "04"),
        (CloseReason::TooLarge, "05"),
        (CloseReason::NameTaken, "06"),
        (CloseReason::BadName, "07"),
        (CloseReason::NotPermitted, "08"),
    ] {
        let close = Close { session: SESSION, reason };
        assert_answer(
            Message::Close(close),
            &close.bytes(),
            &[
                "46 4c 01 04",             // type 4: close
                "01 23 45 67 89 ab cd ef", // session
                code,                      // reason
                "00 00 00",                // reserved
            ],
        );
    }
}

#[test]
fn a_short_join_is_padded_to_the_length_of_an_ack() {
    let opening = Opening { cookie: Cookie([0xc0; 16]), name: "tv", token: &[0xfe] };
    let join = Join { session: SESSION, opening };
    let mut written = [0xEE; 100];
    let len = join.write(&mut written).expect("it fits");
    assert_answer(
        Message::Join(join),
        &written[..len],
        &[
            "46 4c 01",
            "05", // type 5: join
            "01 23 45 67 89 ab cd ef",
            "c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0 c0", // cookie
            "02",                                              // name length: 2
            "74 76",                                           // name: tv
            "01",                                              // token length: 1
            "fe",                                              // token
            "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
        ],
    );
}

#[test]
fn a_packet_ends_with_its_payload() {
    let packet = Packet {
        session: SESSION,
        seq: 258,
        sent_at: Time::from_nanos(1_000_000_000),
        clock_offset: Some(-2),
        interval: Span::from_millis(500),
        ack_mark: Dscp::new(8).map(AckMark::Set),
        payload: b"frame",
    };
    let mut written = [0xEE; 100];
    let len = packet.write(&mut written).expect("it fits");
    assert_answer(
        Message::Packet(packet),
        &written[..len],
        &[
            "46 4c 01",
            "06", // type 6: packet
            "01 23 45 67 89 ab cd ef",
            "01",                      // flags: clock offset
            "48",                      // mark of reports: code point 8
            "01 f4",                   // interval: 500 ms
            "00 00 00 00 00 00 01 02", // sequence number: 258
            "00 00 00 00 3b 9a ca 00", // sent at: 1 s in ns
            "ff ff ff ff ff ff ff fe", // clock offset: −2 ns
            "66 72 61 6d 65",          // payload: frame
        ],
    );
}

#[test]
fn a_report_of_frames() {
    let seen = wlan::Report {
        level: 32.5,
        deviation: 2.0,
        frames: 400,
        rate: BitRate::from_mbps(390),
        loss: 0.25,
    };
    let report = Report {
        session: SESSION,
        number: 3,
        newest_seq: 258,
        newest_sent_at: Time::from_nanos(5),
        newest_received_at: Time::from_nanos(6),
        hold: Span::from_micros(7),
        received: 250,
        seen: Some(seen),
        marks: Marks { seen: None, sent: Dscp::new(8) },
        delivered: Some(wlan::Delivered {
            bytes: 258_000,
            rate: BitRate::from_mbps(100),
            excess: Span::from_micros(9),
            gap: Span::from_millis(1),
        }),
        max_packets: NonZeroU16::new(128),
    };
    assert_answer(
        Message::Report(report),
        &report.bytes(),
        &[
            "46 4c 01",
            "07", // type 7: report
            "01 23 45 67 89 ab cd ef",
            "00 00 00 03",             // number: 3
            "00 00 00 00 00 00 01 02", // newest packet: 258
            "00 00 00 00 00 00 00 05", // sent at
            "00 00 00 00 00 00 00 06", // received at
            "00 00 00 07",             // hold: 7 µs
            "00 00 00 fa",             // received: 250 packets
            "00 00 01 90",             // frames: 400
            "42 02 00 00",             // level: 32.5
            "40 00 00 00",             // deviation: 2
            "3e 80 00 00",             // loss: 0.25
            "00 00 00 00 17 3e ed 80", // rate: 390 Mbit/s
            "00",                      // the code point of the packet: unknown
            "48",                      // the report leaves with 8
            "01 00",                   // arrivals follow; reserved
            "00 00 00 00 00 03 ef d0", // bytes that have come: 258,000
            "00 01 86 a0",             // lately at 100,000 kbit/s
            "00 00 00 09",             // excess of the delay: 9 µs
            "00 00 03 e8",             // longest gap: 1000 µs
            "00 80 00 00",             // at most 128 packets in a frame; reserved
        ],
    );
}
