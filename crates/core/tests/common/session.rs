//! Drives a source by its contract, in virtual time.

use freshline_core::path::PathId;
use freshline_core::session::{Source, SourceEvent, Transmit};
use freshline_core::unit::Time;

/// Turns without progress before a source counts as stuck in a loop.
const MOST_TURNS: usize = 100;

/// Lets a source do what is due at `now`, with `state` as its newest, until an update leaves or nothing
/// more is due; gives what leaves. Events but for those that are wishes go to `seen`.
pub(crate) fn turn(
    source: &mut Source,
    now: Time,
    state: &[u8],
    mut seen: impl FnMut(SourceEvent),
) -> Vec<(Transmit, Vec<u8>)> {
    let (mut left, mut out) = (Vec::new(), Vec::new());
    for _ in 0..MOST_TURNS {
        source.handle_timeout(now);
        while let Some(event) = source.poll_event() {
            match event {
                SourceEvent::StateWanted(_) => source.put(now, now, state).expect("it fits"),
                SourceEvent::RenewTransports { .. } => {}
                event => seen(event),
            }
        }
        while let Some(transmit) = source.poll_transmit(now, &mut out) {
            left.push((transmit, out[..transmit.len].to_vec()));
        }
        if !left.is_empty() || source.poll_timeout().is_none_or(|at| at > now) {
            return left;
        }
    }
    panic!("it spins: {:?} at {now:?}", source.poll_timeout());
}

/// Lets time pass until a source sends something; gives when, and what leaves.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn next_update(
    source: &mut Source,
    now: Time,
    state: &[u8],
) -> (Time, Vec<(Transmit, Vec<u8>)>) {
    let mut now = now;
    loop {
        let left = turn(source, now, state, |_| ());
        if !left.is_empty() {
            return (now, left);
        }
        now = source.poll_timeout().expect("it goes on").max(now);
    }
}

/// What a source with one path makes of a datagram.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn hear(source: &mut Source, now: Time, datagram: &[u8]) -> Option<SourceEvent> {
    source.handle_datagram(now, PathId::FIRST, datagram).ok()?;
    source.poll_event()
}
