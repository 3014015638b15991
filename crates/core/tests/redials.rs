//! A source that cannot connect: the times at which it asks for another connection.

use freshline_core::path::PathId;
use freshline_core::session::{Secret, Source, SourceEvent, SourceParams, TransportState};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};

/// From one request to make transports again to the next, and from the failure before that, if each dial
/// fails after `dial`; the first one from the failure of the dial with which the source began.
fn gaps(dial: Span) -> Vec<(Span, Span)> {
    let law = Box::new(Fixed::new(UpdateRate::saturating(10.0)));
    let mut source =
        Source::new(SourceParams::default(), Secret::new([7; 16]), law, Time::ZERO).unwrap();
    source.handle_transport(Time::ZERO, PathId::FIRST, TransportState::Connecting);
    assert_eq!(source.poll_timeout(), None, "it waits for the handshake");
    let (mut now, mut asked_at) = (Time::ZERO, Time::ZERO);
    let mut gap = || {
        now += dial;
        source.handle_transport(now, PathId::FIRST, TransportState::Down);
        let failed_at = now;
        for _ in 0..3 {
            now = source.poll_timeout().expect("it goes on").max(now);
            source.handle_timeout(now);
            if source.poll_event() == Some(SourceEvent::RenewTransports { all: false }) {
                break;
            }
        }
        let gap = (now.since(asked_at), now.since(failed_at));
        assert!(source.poll_transmit(now, &mut Vec::new()).is_none());
        source.handle_transport(now, PathId::FIRST, TransportState::Connecting);
        asked_at = now;
        gap
    };
    (0..3).map(|_| gap()).collect()
}

#[test]
fn the_first_redial_is_immediate_and_repeated_failures_back_off() {
    let gaps = gaps(Span::from_millis(1));
    assert_eq!(gaps[0].1, Span::ZERO);
    for ((gap, _), expected) in gaps[1..].iter().zip([200, 400].map(Span::from_millis)) {
        assert!(*gap >= expected && *gap <= expected * 5 / 4, "{gap}, not {expected}");
    }
}

#[test]
fn a_dial_that_took_longer_than_the_backoff_is_repeated_at_once() {
    for (_, since_failure) in gaps(Span::from_secs(3)) {
        assert_eq!(since_failure, Span::ZERO);
    }
}
