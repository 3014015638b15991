//! An outage during which the path queues updates and delivers them afterwards, as a cellular link does:
//! the source opens its session again, and its law measures the path as it is then.

#[path = "common/session.rs"]
mod driven;
#[path = "common/wire.rs"]
mod wire;

use freshline_core::path::PathId;
use freshline_core::session::{Monitor, MonitorParams, Reach, Secret, Source, SourceParams};
use freshline_core::source::{
    Acp, AcpParams, AcpPlus, AcpPlusParams, Lazy, LazyParams, Limits, RateLaw, Tenth, TenthParams,
};
use freshline_core::unit::{Span, Time, UpdateRate};
use wire::{Wire, arrived, next_at};

/// In each direction.
const DELAY: Span = Span::from_millis(10);

/// The path delivers nothing between these times.
const OUTAGE: [Time; 2] = [Time::from_nanos(10_000_000_000), Time::from_nanos(13_000_000_000)];

/// The number of updates that leave between `from` and `until`.
fn updates(law: Box<dyn RateLaw>, from: Time, until: Time) -> usize {
    let limits = Limits { max_rate: Some(UpdateRate::saturating(100.0)), ..Limits::NONE };
    let params = SourceParams { limits, ..SourceParams::default() };
    let mut source = Source::new(params, Secret::new([7; 16]), law, Time::ZERO).expect("no name");
    let mut monitor: Monitor<u8> = Monitor::new(MonitorParams::default(), Secret::new([1; 16]));
    let (mut forward, mut reverse, mut sent) = (Wire::new(), Wire::new(), 0);
    let mut now = Time::ZERO;
    let mut was_silent = false;
    while now < until {
        while let Some((_, _, datagram)) = arrived(&mut forward, now) {
            let reply = driven::tell(&mut monitor, now, 1, &datagram).reply;
            if !reply.is_empty() {
                reverse.push_back((now + DELAY, PathId::FIRST, reply));
            }
        }
        while let Some((_, _, datagram)) = arrived(&mut reverse, now) {
            driven::hear(&mut source, now, &datagram);
        }
        for (_, datagram) in driven::turn(&mut source, now, b"state", |_| ()) {
            let is_held = OUTAGE[0] <= now && now < OUTAGE[1];
            let leaves_at = if is_held { OUTAGE[1] } else { now };
            forward.push_back((leaves_at + DELAY, PathId::FIRST, datagram));
            sent += usize::from(now >= from);
        }
        was_silent |= OUTAGE[0] < now && source.reach() != Reach::Open;
        now = next_at(&source, [&forward, &reverse]).expect("it goes on").max(now);
    }
    assert!(was_silent, "the session is opened again");
    sent
}

#[test]
fn updates_that_were_queued_for_an_outage_do_not_slow_the_law_that_begins_after_it() {
    let laws: [(&str, Box<dyn RateLaw>); 5] = [
        ("acp+", Box::new(AcpPlus::new(AcpPlusParams::default()))),
        ("acp+d", Box::new(AcpPlus::new(AcpPlusParams::departure()))),
        ("acp", Box::new(Acp::new(AcpParams::default()))),
        ("tenth", Box::new(Tenth::new(TenthParams::default()))),
        ("lazy", Box::new(Lazy::new(LazyParams::default()))),
    ];
    for (name, law) in laws {
        // One update per round trip, 50/s, is the initial or constant rate of each law.
        let from = OUTAGE[1] + Span::from_secs(1);
        let sent = updates(law, from, from + Span::from_secs(1));
        assert!(sent >= 40, "{name}: {sent} updates in a second");
    }
}
