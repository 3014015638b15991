//! Any datagrams from anyone at any time to a monitor: no panic, bounded records, and no answer
//! longer than its question; within a session an ack for each update that asks, and none for others.
//! Challenges are taken up, so that sessions do open.
#![no_main]

use arbitrary::Arbitrary;
use freshline_core::dscp::Dscp;
use freshline_core::session::{Admission, Datagram, Monitor, MonitorEvent, MonitorParams, Secret};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{
    Ack, AckMark, Close, CloseReason, Cookie, Message, Opening, SessionId, Update,
};
use libfuzzer_sys::fuzz_target;

const MAX_SOURCES: usize = 3;

#[derive(Debug, Arbitrary)]
struct Story<'a> {
    proven: bool,
    token: bool,
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// Time passes, ns.
    Wait(u64),
    Tick,
    Bytes {
        peer: u8,
        datagram: &'a [u8],
    },
    Update {
        peer: u8,
        session: u8,
        seq: u64,
        clock_offset: Option<i64>,
        wants_ack: bool,
        ack_mark: Option<Option<u8>>,
        dscp: Option<u8>,
        opening: bool,
        name: u8,
    },
    Close {
        peer: u8,
        session: u8,
    },
}

fuzz_target!(|story: Story<'_>| {
    let admission = if story.proven { Admission::Proven } else { Admission::Cookie };
    let tokens = if story.token { vec![b"token".to_vec()] } else { Vec::new() };
    let max_payload = 100;
    let params = MonitorParams {
        admission,
        tokens,
        max_sources: MAX_SOURCES,
        max_payload,
        ..MonitorParams::default()
    };
    let mut monitor = Monitor::new(params, Secret::new([1; 16]));
    let mut cookie = Cookie::default();
    let (mut now, mut out) = (Time::ZERO, Vec::new());
    for step in story.steps {
        let mut buffer = [0; 1500];
        let (peer, dscp, datagram) = match step {
            Step::Wait(nanos) => {
                now += Span::from_nanos(nanos);
                continue;
            }
            Step::Tick => {
                monitor.handle_timeout(now);
                while let Some(event) = monitor.poll_event() {
                    let MonitorEvent::Gone { record, .. } = event else { panic!("{event:?}") };
                    assert!(record.payload.len() <= max_payload);
                }
                continue;
            }
            Step::Bytes { peer, datagram } => (peer, None, datagram),
            Step::Update {
                peer,
                session,
                seq,
                clock_offset,
                wants_ack,
                ack_mark,
                dscp,
                opening,
                name,
            } => {
                let names = ["", "robot", "meter", "game"];
                let opening = opening.then(|| Opening {
                    cookie,
                    name: names[usize::from(name) % names.len()],
                    token: b"token",
                });
                let update = Update {
                    session: SessionId(session.into()),
                    seq,
                    generated_at: now,
                    clock_offset,
                    wants_ack,
                    ack_mark: ack_mark
                        .map(|set| set.and_then(Dscp::new).map_or(AckMark::Echo, AckMark::Set)),
                    opening,
                    payload: &seq.to_be_bytes(),
                };
                let len = update.write(&mut buffer).expect("it is short");
                (peer, dscp.and_then(Dscp::new), &buffer[..len])
            }
            Step::Close { peer, session } => {
                let session = SessionId(session.into());
                let close = Close { session, reason: CloseReason::Done }.bytes();
                buffer[..Close::LEN].copy_from_slice(&close);
                (peer, None, &buffer[..Close::LEN])
            }
        };
        let _ = monitor.handle_datagram(now, peer, Datagram::marked(datagram, dscp));
        let event = std::iter::from_fn(|| monitor.poll_event()).last();
        let reply = monitor.poll_transmit(now, &mut out).map_or(0, |transmit| {
            assert_eq!(transmit.peer, peer, "an answer to another peer");
            transmit.len
        });
        assert!(monitor.poll_transmit(now, &mut Vec::new()).is_none(), "two answers");
        assert!(reply <= datagram.len(), "an answer longer than its question");
        if let Some(MonitorEvent::Fresh { opened: false, .. } | MonitorEvent::Stale { .. }) = event
        {
            let asks = matches!(Message::parse(datagram), Ok(Message::Update(it)) if it.wants_ack);
            assert_eq!(reply, if asks { Ack::LEN } else { 0 });
        }
        assert!(monitor.len() <= MAX_SOURCES, "more records than allowed");
        assert_eq!(monitor.len(), monitor.records().count());
        if reply > 0 {
            let answer = Message::parse(&out[..reply]);
            if let Message::Challenge(challenge) = answer.expect("a monitor answers in messages") {
                cookie = challenge.cookie;
            }
        }
    }
});
