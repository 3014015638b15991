//! A monitor that answers at once, and contradicts its previous answer each time: it sets the pace
//! of a source neither by the copies of an update nor by acks that follow the end of the session.

#[path = "common/session.rs"]
mod driven;

use freshline_core::path::SchedulerConfig;
use freshline_core::session::{Datagram, Paths, Secret, Source, SourceParams};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{Ack, Close, CloseReason, Marks};

/// A source of 5 updates a second over `paths` paths, each of which carries every update.
fn source(paths: usize) -> Source {
    let law = Box::new(Fixed::new(UpdateRate::saturating(5.0)));
    let redundant: SchedulerConfig = "redundant".parse().expect("there is one");
    let params = SourceParams::default();
    let source = Source::new(params, Secret::new([7; 16]), law, Time::ZERO).expect("no name");
    source.over(Paths::new(paths, &redundant).expect("a few paths"))
}

/// How many updates leave in 30 s over `paths` paths, each copy of which is answered by `answers` to its number, as it
/// leaves.
fn updates(paths: usize, answers: impl Fn(&Source, u64, Time) -> Vec<Vec<u8>>) -> u64 {
    let (mut source, mut now, mut count) = (source(paths), Time::ZERO, 0);
    while now < Time::ZERO + Span::from_secs(30) && count < 1_000 {
        let (at, left) = driven::next_update(&mut source, now, b"state");
        now = at;
        for (transmit, _) in left {
            count += u64::from(!transmit.is_copy);
            for answer in answers(&source, transmit.seq.expect("it is an update"), now) {
                // The source may do with it as it likes.
                let _ = source.handle_datagram(now, transmit.path, Datagram::marked(&answer, None));
            }
        }
    }
    count
}

fn ack(source: &Source, seq: u64, now: Time, fresh: u32) -> Vec<u8> {
    let ack = Ack {
        session: source.session(),
        seq,
        sent_at: now,
        received_at: now,
        hold: Span::ZERO,
        was_fresh: true,
        fresh,
        stale: 0,
        missing: 0,
        marks: Marks::default(),
        parts: None,
    };
    ack.bytes().to_vec()
}

#[test]
fn a_count_that_never_grows_opens_the_session_again_with_longer_and_longer_waits() {
    let honest = updates(3, |source, seq, now| vec![ack(source, seq, now, seq as u32 + 1)]);
    assert!((140..=160).contains(&honest), "{honest} updates in 30 s at 5/s");
    let denying = updates(3, |source, seq, now| vec![ack(source, seq, now, u32::MAX)]);
    assert!((10..=60).contains(&denying), "{denying} updates");
}

#[test]
fn acks_after_the_end_of_a_session_do_not_open_it() {
    for reason in CloseReason::ALL {
        let closing = updates(1, |source, seq, now| {
            let close = Close { session: source.session(), reason }.bytes().to_vec();
            vec![close, ack(source, seq, now, seq as u32 + 1)]
        });
        assert!((10..=60).contains(&closing), "{closing} updates, {reason:?}");
    }
}
