//! Drives sources and monitors by their contract, in virtual time.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::hash::Hash;

use freshline_core::dscp::Dscp;
use freshline_core::path::PathId;
use freshline_core::session::{
    Access, Datagram, Monitor, MonitorEvent, MonitorIgnored, Source, SourceEvent, Transmit,
};
use freshline_core::unit::Time;

/// Turns without progress before a source counts as stuck in a loop.
const MOST_TURNS: usize = 100;

/// Runs a source at `now`, with `state` as its newest state, until an update leaves or nothing more
/// is due; returns the update. Events other than requests for a state go to `seen`.
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

/// Advances time until a source sends something; returns the time and the update.
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

/// The event that a source with one path emits for a datagram.
pub(crate) fn hear(source: &mut Source, now: Time, datagram: &[u8]) -> Option<SourceEvent> {
    source.handle_datagram(now, PathId::FIRST, datagram).ok()?;
    source.poll_event()
}

/// A monitor's reaction to a datagram.
#[derive(Debug)]
pub(crate) struct Heard<P> {
    /// Whether it was of use.
    pub(crate) result: Result<(), MonitorIgnored>,
    /// The events that it emitted.
    pub(crate) events: Vec<MonitorEvent<P>>,
    /// The answer; empty if it has none.
    pub(crate) reply: Vec<u8>,
    /// The code point of the answer.
    pub(crate) dscp: Dscp,
}

impl<P> Heard<P> {
    /// The last event's name and what is known of it, for tests that compare words.
    pub(crate) fn event(&self) -> Option<&MonitorEvent<P>> {
        self.events.last()
    }
}

/// Hands a datagram to a monitor, which answers at once.
pub(crate) fn tell<'a, P: Copy + Hash>(
    monitor: &mut Monitor<P>,
    now: Time,
    peer: P,
    datagram: impl Into<Datagram<'a>>,
) -> Heard<P> {
    tell_checked(monitor, now, (peer, None), datagram)
}

/// The same, from a peer whose openings are checked.
pub(crate) fn tell_checked<'a, P: Copy + Hash>(
    monitor: &mut Monitor<P>,
    now: Time,
    (peer, access): (P, Option<&dyn Access>),
    datagram: impl Into<Datagram<'a>>,
) -> Heard<P> {
    let result = monitor.handle_checked_datagram(now, peer, access, datagram);
    let events = std::iter::from_fn(|| monitor.poll_event()).collect();
    let (mut out, mut dscp) = (Vec::new(), Dscp::DEFAULT);
    let transmit = monitor.poll_transmit(now, &mut out);
    let len = transmit.map_or(0, |transmit| {
        dscp = transmit.dscp;
        transmit.len
    });
    assert!(monitor.poll_transmit(now, &mut Vec::new()).is_none(), "one answer at most");
    Heard { result, events, reply: out[..len].to_vec(), dscp }
}
