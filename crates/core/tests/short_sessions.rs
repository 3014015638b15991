//! A session that ends soon after its opening is opened again soon, however long the opening took
//! before.

#[path = "common/session.rs"]
mod driven;

use freshline_core::session::{Monitor, MonitorParams, Secret, Source, SourceEvent, SourceParams};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};

/// Sends the next update that is due, and hands the answer of `monitor` to the source.
fn next_update(
    source: &mut Source,
    at_time: &mut Time,
    monitor: Option<&mut Monitor<u8>>,
) -> (Time, Option<SourceEvent>) {
    let (now, left) = driven::next_update(source, *at_time, b"state");
    let [(_, datagram)] = &left[..] else { panic!("{} datagrams", left.len()) };
    *at_time = now;
    let Some(monitor) = monitor else { return (now, None) };
    let reply = driven::tell(monitor, now, 1, datagram).reply;
    (now, driven::hear(source, now, &reply))
}

#[test]
fn an_outage_before_the_opening_does_not_lengthen_the_wait_after_it() {
    let law = Box::new(Fixed::new(UpdateRate::saturating(2.0)));
    let mut source = Source::new(SourceParams::default(), Secret::new([1; 16]), law, Time::ZERO)
        .expect("short names");
    let mut time = Time::ZERO;
    for _ in 0..10 {
        next_update(&mut source, &mut time, None);
    }
    let monitor = |secret| Monitor::new(MonitorParams::default(), Secret::new([secret; 16]));
    let (mut first, mut second) = (monitor(1), monitor(2));
    assert_eq!(
        next_update(&mut source, &mut time, Some(&mut first)).1,
        Some(SourceEvent::Challenged)
    );
    assert_eq!(next_update(&mut source, &mut time, Some(&mut first)).1, Some(SourceEvent::Opened));

    // Each time another monitor answers at once, the interval grows, as between two of one name.
    let (mut met, mut other) = (&mut second, &mut first);
    for longest_ms in [250, 500, 1_000, 2_000, 2_500] {
        let (now, event) = next_update(&mut source, &mut time, Some(met));
        assert_eq!(event, Some(SourceEvent::Challenged));
        let wait = source.poll_timeout().expect("it keeps trying").since(now);
        assert!(wait <= Span::from_millis(longest_ms), "{wait}");
        assert!(wait >= Span::from_millis(longest_ms * 4 / 5), "{wait}");
        assert_eq!(next_update(&mut source, &mut time, Some(met)).1, Some(SourceEvent::Opened));
        *other = monitor(longest_ms as u8);
        (met, other) = (other, met);
    }
}
