//! An application that has few states to send, over paths with far more capacity: the application,
//! and not the law, limits the rate. Tenth must not attribute the gaps between its states to the
//! path, and send less.

#[path = "common/session.rs"]
mod driven;
#[path = "common/wire.rs"]
mod wire;

use freshline_core::path::PathId;
use freshline_core::session::{Monitor, MonitorEvent, MonitorParams, Secret, Source, SourceParams};
use freshline_core::source::{Tenth, TenthParams};
use freshline_core::unit::{Span, Time};
use wire::{Wire, arrived, next_at};

/// In each direction.
const DELAY: Span = Span::from_millis(20);

/// An update takes the path this time.
const SERVICE: Span = Span::from_millis(1);

/// How long each run takes, and how much of it does not count.
const LENGTH: Span = Span::from_secs(90);
const WARM_UP: Span = Span::from_secs(30);

/// Interval between the pauses of a path that pauses; afterwards it delivers the packets that
/// arrived meanwhile.
const PAUSES_EVERY: u64 = 2_300;

/// Durations of the pauses, in turn, in ms.
const PAUSES: [u64; 6] = [60, 150, 40, 450, 90, 250];

#[derive(Debug, Clone, Copy)]
enum Path {
    Steady,
    /// One update in 64 is lost.
    Lossy,
    Pausing,
}

impl Path {
    /// When an update can enter the path that came at `now`.
    fn entry(self, now: Time) -> Time {
        let millis = now.as_nanos() / 1_000_000;
        let (number, position) = (millis / PAUSES_EVERY, millis % PAUSES_EVERY);
        let length = PAUSES[number as usize % PAUSES.len()];
        match self {
            Self::Pausing if position < length => {
                Time::ZERO + Span::from_millis(number * PAUSES_EVERY + length)
            }
            _ => now,
        }
    }
}

/// States at a rate, 1/s, and for one second of each two only if it is in bursts.
#[derive(Debug, Clone, Copy)]
struct App {
    rate: u64,
    in_bursts: bool,
}

impl App {
    /// When its next state after `now` is generated.
    fn next(self, now: Time) -> Time {
        let next = now + Span::from_secs(1) / self.rate;
        let second = next.as_nanos() / 1_000_000_000;
        match self.in_bursts && second % 2 == 1 {
            true => Time::ZERO + Span::from_secs(second + 1),
            false => next,
        }
    }
}

/// Numbers of generated and of delivered states.
fn run(path: Path, app: App) -> (u64, u64) {
    let law = Box::new(Tenth::new(TenthParams::default()));
    let params = SourceParams::default();
    let mut source = Source::new(params, Secret::new([7; 16]), law, Time::ZERO).expect("no name");
    let mut monitor: Monitor<u8> = Monitor::new(MonitorParams::default(), Secret::new([1; 16]));
    let (mut forward, mut reverse, mut out) = (Wire::new(), Wire::new(), Vec::new());
    let (mut now, mut free_at, mut state_at) = (Time::ZERO, Time::ZERO, Time::ZERO);
    let (mut generated, mut delivered, mut count) = (0u64, 0u64, 0u64);
    while now < Time::ZERO + LENGTH {
        while let Some((_, _, datagram)) = arrived(&mut forward, now) {
            let told = driven::tell(&mut monitor, now, 1, &datagram);
            let is_new = |event: &MonitorEvent<u8>| {
                matches!(event, MonitorEvent::Fresh { is_repeat: false, .. })
            };
            delivered += u64::from(told.events.iter().any(is_new) && now >= Time::ZERO + WARM_UP);
            if !told.reply.is_empty() {
                reverse.push_back((now + DELAY, PathId::FIRST, told.reply));
            }
        }
        while let Some((_, _, datagram)) = arrived(&mut reverse, now) {
            driven::hear(&mut source, now, &datagram);
        }
        if state_at <= now {
            source.put(now, now, &state_at.as_nanos().to_le_bytes()).expect("it fits");
            generated += u64::from(now >= Time::ZERO + WARM_UP);
            state_at = app.next(state_at);
        }
        source.handle_timeout(now);
        while source.poll_event().is_some() {}
        while let Some(transmit) = source.poll_transmit(now, &mut out) {
            count += 1;
            if matches!(path, Path::Lossy) && count % 64 == 0 {
                continue;
            }
            free_at = path.entry(now).max(free_at) + SERVICE;
            let datagram = out[..transmit.len].to_vec();
            forward.push_back((free_at + DELAY, PathId::FIRST, datagram));
        }
        let next = next_at(&source, [&forward, &reverse]).map_or(state_at, |at| at.min(state_at));
        // The requested state may not be there yet.
        now = next.max(now + Span::from_micros(100));
    }
    (generated, delivered)
}

#[test]
fn an_application_with_little_to_send_sends_its_states_over_paths_that_carry_far_more() {
    let of = |rate, in_bursts| App { rate, in_bursts };
    let apps = [of(5, false), of(20, false), of(50, false), of(50, true)];
    for path in [Path::Steady, Path::Lossy, Path::Pausing] {
        for app in apps {
            let (generated, delivered) = run(path, app);
            let share = delivered as f64 / generated as f64;
            println!("{path:?} {app:?}: {delivered} of {generated} states, {share:.2}");
            assert!(share > 0.7, "{path:?} {app:?}: {delivered} of {generated} states");
        }
    }
}
