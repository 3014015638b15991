//! Every message of the protocol, byte by byte, as `docs/protocol.md` defines it. The bytes are
//! written by hand: code that writes and reads with the same mistake does not pass.

use std::num::NonZeroU16;

use freshline_core::dscp::Dscp;
use freshline_core::state::Layout;
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wire::{
    Ack, AckMark, Challenge, Close, CloseReason, Cookie, Frame, Frames, Join, Marks, Message,
    OffsetEstimate, Opening, Packet, Part, PartsAck, RecordChunk, Report, SessionId, StateId,
    StreamId, TopicKey, TopicName, TopicStream, Update,
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
        sent_at: Time::from_nanos(1_000_000_000),
        clock_offset: Some(OffsetEstimate::new(-512, Span::from_millis(5))),
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening: None,
        frames: Frames::fresh(b"seventeen bytes !"),
    };
    assert_update(
        update,
        &[
            "46 4c",                                              // magic: FL
            "02",                                                 // version 2
            "01",                                                 // type 1: update
            "01 23 45 67 89 ab cd ef",                            // session
            "0a",                      // flags: clock offset, fresh state
            "00",                      // mark of the ack: not asked for
            "00 11",                   // length of the state: 17
            "00 00 00 00 00 00 01 02", // sequence number: 258
            "00 00 00 00 3b 9a ca 00", // sent at: 1 s in ns
            "ff ff ff ff ff ff fe",    // clock offset: −512 ns, in 256 ns
            "6a",                      // its error: ((8 + 2) << 13) − 8 in 64 ns, 5.2 ms for 5 ms
            "73 65 76 65 6e 74 65 65 6e 20 62 79 74 65 73 20 21", // the state, 57 bytes in all
        ],
    );
}

#[test]
fn a_short_update_is_padded_to_the_length_of_an_ack() {
    let update = Update {
        session: SESSION,
        seq: 0,
        sent_at: Time::ZERO,
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: Some(AckMark::Echo),
        opening: None,
        frames: Frames::fresh(b"hi"),
    };
    assert_update(
        update,
        &[
            "46 4c 02 01",
            "01 23 45 67 89 ab cd ef",
            "08",                                        // flags: fresh state
            "80",                                        // mark of the ack: as this one's
            "00 02",                                     // length of the state: 2
            "00 00 00 00 00 00 00 00",                   // sequence number
            "00 00 00 00 00 00 00 00",                   // sent at
            "00 00 00 00 00 00 00 00",                   // clock offset: none, as the flags say
            "68 69",                                     // the state: hi
            "00 00 00 00 00 00 00 00 00 00 00 00 00 00", // padding up to 56 bytes
        ],
    );
}

#[test]
fn an_update_that_asks_for_no_ack() {
    let update = Update {
        session: SESSION,
        seq: 3,
        sent_at: Time::from_nanos(4),
        clock_offset: Some(OffsetEstimate::new(261, Span::ZERO)),
        wants_ack: false,
        wants_return: false,
        ack_mark: None,
        opening: None,
        frames: Frames::fresh(b"seventeen bytes !"),
    };
    assert_update(
        update,
        &[
            "46 4c 02 01",
            "01 23 45 67 89 ab cd ef",
            "0e",                      // flags: clock offset, no ack, fresh state
            "00",                      // mark of the ack
            "00 11",                   // length of the state: 17
            "00 00 00 00 00 00 00 03", // sequence number: 3
            "00 00 00 00 00 00 00 04", // sent at: 4 ns
            "00 00 00 00 00 00 01",    // clock offset: 261 ns, rounded down to 256
            "00",                      // its error: none
            "73 65 76 65 6e 74 65 65 6e 20 62 79 74 65 73 20 21", // the state
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
        sent_at: Time::from_nanos(2),
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: Dscp::new(46).map(AckMark::Set),
        opening: Some(Opening { cookie, name: "rö7", token: &[0xfe, 0x00] }),
        frames: Frames::fresh(b"on"),
    };
    assert_update(
        update,
        &[
            "46 4c 02 01",
            "01 23 45 67 89 ab cd ef",
            "09",                                              // flags: opening, fresh state
            "6e",                                              // mark of the ack: code point 46
            "00 02",                                           // length of the state: 2
            "00 00 00 00 00 00 00 01",                         // sequence number: 1
            "00 00 00 00 00 00 00 02",                         // sent at: 2 ns
            "00 00 00 00 00 00 00 00",                         // clock offset: none
            "c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 ca cb cc cd ce cf", // cookie
            "04",                                              // name length: 4
            "72 c3 b6 37",                                     // name in UTF-8: rö7
            "02",                                              // token length: 2
            "fe 00",                                           // token
            "6f 6e",                                           // the state: on
        ],
    );
}

#[test]
fn an_ack() {
    let ack = Ack {
        session: SESSION,
        seq: 258,
        sent_at: Time::from_nanos(1_000_000_000),
        received_at: Time::from_nanos(0x1122_3344_5566_7788),
        hold: Span::from_micros(150),
        was_fresh: true,
        fresh: 200,
        stale: 3,
        missing: 0x0a0b_0c0d,
        marks: Marks { seen: Dscp::new(46), sent: Dscp::new(0) },
        parts: None,
    };
    assert_answer(
        Message::Ack(ack),
        &ack.bytes(),
        &[
            "46 4c 02 02",             // magic, version, type 2: ack
            "01 23 45 67 89 ab cd ef", // session
            "01",                      // flags: it was fresh
            "6e",                      // the update came with code point 46
            "40",                      // the ack leaves with 0
            "00",                      // reserved
            "00 00 00 00 00 00 01 02", // sequence number: 258
            "00 00 00 00 3b 9a ca 00", // sent at: 1 s
            "11 22 33 44 55 66 77 88", // received at, on the monitor's clock
            "00 00 00 96",             // hold: 150 µs
            "00 00 00 c8",             // fresh: 200
            "00 00 00 03",             // stale: 3
            "0a 0b 0c 0d",             // missing
        ],
    );
}

#[test]
fn a_part_of_a_state_and_its_ack() {
    let id = StateId { topic: 3, behind: 70, age: Span::from_nanos(20_000) };
    let layout = Layout::new(100_000, 1_100, 5).expect("a layout");
    let part = Part { id, layout, index: 91, bytes: b"end" };
    let update = Update {
        session: SESSION,
        seq: 258,
        sent_at: Time::from_nanos(4),
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening: None,
        frames: Frames::one(Frame::Part(part)),
    };
    assert_update(
        update,
        &[
            "46 4c 02 01",
            "01 23 45 67 89 ab cd ef",
            "00 00 00 15",
            "00 00 00 00 00 00 01 02",          // sequence number: 258
            "00 00 00 00 00 00 00 04",          // sent at: 4 ns
            "00 00 00 00 00 00 00 00",          // clock offset: none
            "02 13",                            // frame: a part, 19 bytes follow
            "03",                               // topic 3
            "40 46",                            // the state is 70 updates behind: number 188
            "80 00 4e 20",                      // 20 µs old
            "80 01 86 a0",                      // the state has 100,000 bytes
            "44 4c",                            // a symbol has 1100
            "05",                               // 5 symbols of repair
            "40 5b",                            // symbol 91 of 91 + 5: the first of repair
            "65 6e 64",                         // the symbol
            "00 00 00 00 00 00 00 00 00 00 00", // padding up to 72 bytes
        ],
    );
    let ack = Ack {
        session: SESSION,
        seq: 258,
        sent_at: Time::from_nanos(4),
        received_at: Time::from_nanos(5),
        hold: Span::ZERO,
        was_fresh: false,
        fresh: 6,
        stale: 7,
        missing: 8,
        marks: Marks::default(),
        parts: Some(PartsAck {
            recent: 0x8000_0000_0000_0005,
            newest: Some(180),
            ..PartsAck::default()
        }),
    };
    assert_answer(
        Message::Ack(ack),
        &ack.bytes(),
        &[
            "46 4c 02 02",
            "01 23 45 67 89 ab cd ef",
            "02 00 00 00",             // flags: what has come of parts
            "00 00 00 00 00 00 01 02", // sequence number: 258
            "00 00 00 00 00 00 00 04", // sent at
            "00 00 00 00 00 00 00 05", // received at
            "00 00 00 00 00 00 00 06 00 00 00 07 00 00 00 08",
            "80 00 00 00 00 00 00 05", // updates 257, 255 and 194 have come
            "00 00 00 00 00 00 00 b5", // the newest whole state: 180 + 1
        ],
    );
}

#[test]
fn a_state_named_again() {
    let id = StateId { topic: 0, behind: 2, age: Span::ZERO };
    let update = Update {
        session: SESSION,
        seq: 9,
        sent_at: Time::ZERO,
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening: None,
        frames: Frames::one(Frame::Again(id)),
    };
    assert_update(
        update,
        &[
            "46 4c 02 01",
            "01 23 45 67 89 ab cd ef",
            "00 00 00 05",
            "00 00 00 00 00 00 00 09",
            "00 00 00 00 00 00 00 00",
            "00 00 00 00 00 00 00 00",
            "03 03 00 02 00",  // frame: state 7 again
            &"00 ".repeat(27), // padding up to 72 bytes
        ],
    );
}

#[test]
fn a_state_that_was_sampled_before_it_left() {
    let id = StateId { topic: 0, behind: 0, age: Span::from_nanos(64) };
    let update = Update {
        session: SESSION,
        seq: 9,
        sent_at: Time::from_nanos(100),
        clock_offset: None,
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening: None,
        frames: Frames::one(Frame::State { id, bytes: b"on" }),
    };
    assert_update(
        update,
        &[
            "46 4c 02 01",
            "01 23 45 67 89 ab cd ef",
            "00 00 00 08",
            "00 00 00 00 00 00 00 09",
            "00 00 00 00 00 00 00 64",
            "00 00 00 00 00 00 00 00",
            "01 06 00 00 40 40 6f 6e", // frame: a state of topic 0, number 9, 64 ns old: on
            "00 00 00 00 00 00 00 00", // padding up to 56 bytes
        ],
    );
}

#[test]
fn an_update_with_a_name_and_states_of_two_topics() {
    let bytes = bytes(&[
        "46 4c 02 01 01 23 45 67 89 ab cd ef", // header of an update
        "00 00 00 16",                         // no flags, 22 bytes of frames
        "00 00 00 00 00 00 00 09",             // sequence number: 9
        "00 00 00 00 00 00 03 e8",             // sent at: 1000 ns
        "00 00 00 00 00 00 00 00",             // no clock offset
        "04 06 01 04 70 6f 73 65",             // a name: topic 1, 4 bytes, \"pose\"
        "01 05 01 00 0a 6f 6b",                // a state: topic 1, 0 behind, 10 ns old, \"ok\"
        "01 05 02 03 0a 6e 6f",                // a state: topic 2, 3 behind, 10 ns old, \"no\"
        "00 00 00 00 00 00 00 00 00 00",       // zeroes up to 72 bytes
    ]);
    let Ok(Message::Update(update)) = Message::parse(&bytes) else { panic!("an update") };
    let id = |topic, behind| StateId { topic, behind, age: Span::from_nanos(10) };
    let expected = [
        Frame::Name(TopicName { topic: 1, name: "pose", key: None, stream: None }),
        Frame::State { id: id(1, 0), bytes: b"ok" },
        Frame::State { id: id(2, 3), bytes: b"no" },
    ];
    assert_eq!(update.frames.iter().collect::<Vec<_>>(), expected);
    assert_eq!((update.frames.lead().map(|it| it.topic()), update.is_of_parts()), (Some(1), true));
    let mut again = vec![0; update.len()];
    assert_eq!((update.write(&mut again), again), (Some(bytes.len()), bytes.clone()));
    let mut bad = bytes;
    bad[44] = 0x1b; // an escape in the name
    assert!(Message::parse(&bad).is_err());
}

#[test]
fn an_update_with_keys_of_a_topic() {
    let bytes = bytes(&[
        "46 4c 02 01 01 23 45 67 89 ab cd ef", // header of an update
        "00 00 00 1b",                         // no flags, 27 bytes of frames
        "00 00 00 00 00 00 00 09",             // sequence number: 9
        "00 00 00 00 00 00 03 e8",             // sent at: 1000 ns
        "00 00 00 00 00 00 00 00",             // no clock offset
        "04 09 40 40 02 74 66 01 02 61 ff",    // a name: number 64, \"tf\", a key, 2 behind: 61 ff
        "01 06 40 40 00 0a 6f 6b",             // a state: number 64, 0 behind, 10 ns old, \"ok\"
        "05 06 40 41 03 40 40 00",             // removed: number 65, 3 behind, 64 ns old; ignored
        "00 00 00 00 00",                      // zeroes up to 72 bytes
    ]);
    let Ok(Message::Update(update)) = Message::parse(&bytes) else { panic!("an update") };
    let key = TopicKey { behind: 2, bytes: &[0x61, 0xff] };
    let id = |topic, behind, age| StateId { topic, behind, age: Span::from_nanos(age) };
    let expected = [
        Frame::Name(TopicName { topic: 64, name: "tf", key: Some(key), stream: None }),
        Frame::State { id: id(64, 0, 10), bytes: b"ok" },
        Frame::Removed(id(65, 3, 64)),
    ];
    assert_eq!(update.frames.iter().collect::<Vec<_>>(), expected);
    assert_eq!((update.frames.lead().map(|it| it.topic()), update.is_of_parts()), (Some(64), true));
    let one = Update { frames: Frames::one(expected[0]), ..update };
    let mut again = vec![0; one.len()];
    assert_eq!((one.write(&mut again), &again[40..51]), (Some(72), &bytes[40..51]));
}

#[test]
fn an_update_with_records_of_a_topic() {
    let bytes = bytes(&[
        "46 4c 02 01 01 23 45 67 89 ab cd ef", // header of an update
        "00 00 00 27",                         // no flags, 39 bytes of frames
        "00 00 00 00 00 00 00 09",             // sequence number: 9
        "00 00 00 00 00 00 03 e8",             // sent at: 1000 ns
        "00 00 00 00 00 00 00 00",             // no clock offset
        "04 10 03 03 6c 6f 67 02 00 00 00 00 00 00 5e ed", // a name: topic 3, \"log\", stream 5eed,
        "40 40",                               // of which the source has 64 and more
        "06 07 03 40 40 00 0a 68 65",          // a chunk: topic 3, number 64, 10 ns old, \"he\"
        "06 07 03 40 41 01 0a 6c 6c",          // the last one of the record, 65: \"ll\"
        "07 01 03",                            // the cursor of topic 3 is asked for
    ]);
    let Ok(Message::Update(update)) = Message::parse(&bytes) else { panic!("an update") };
    let stream = Some(TopicStream { id: StreamId(0x5eed), first: 64 });
    let chunk = |number, is_last, bytes| {
        Frame::Record(RecordChunk { topic: 3, number, is_last, age: Span::from_nanos(10), bytes })
    };
    let expected = [
        Frame::Name(TopicName { topic: 3, name: "log", key: None, stream }),
        chunk(64, false, b"he"),
        chunk(65, true, b"ll"),
        Frame::Cursor(3),
    ];
    assert_eq!(update.frames.iter().collect::<Vec<_>>(), expected);
    assert_eq!((update.frames.lead(), update.is_of_parts()), (Some(expected[1]), true));
    let mut again = vec![0; update.len()];
    assert_eq!((update.write(&mut again), again), (Some(bytes.len()), bytes));
}

#[test]
fn frames_of_kinds_that_are_not_known_are_skipped() {
    let mut message = bytes(&["46 4c 02 01 01 23 45 67 89 ab cd ef 00 00 00 0b"]);
    message.extend([0; 24]);
    message.extend(bytes(&["3f 02 aa bb", "01 05 00 00 00 6f 6e", "01 02 03 04 05"]));
    let Ok(Message::Update(update)) = Message::parse(&message) else { panic!("no update") };
    assert_eq!(update.frames, Frames::fresh(b"on"));
}

#[test]
fn a_challenge() {
    let challenge = Challenge { session: SESSION, cookie: Cookie(*b"sixteen bytes ok") };
    assert_answer(
        Message::Challenge(challenge),
        &challenge.bytes(),
        &[
            "46 4c 02 03",                                     // type 3: challenge
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
                "46 4c 02 04",             // type 4: close
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
            "46 4c 02",
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
            "46 4c 02",
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
            "46 4c 02",
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
