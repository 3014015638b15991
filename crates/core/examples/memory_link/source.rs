//! A complete source, whose states are increasing numbers.

use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use freshline_core::path::PathId;
use freshline_core::session::{Secret, Source, SourceEvent, SourceParams};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};

use super::{LENGTH, now};

pub(crate) fn run(start: Instant, to_monitor: &Sender<Vec<u8>>, from_monitor: &Receiver<Vec<u8>>) {
    let law = Box::new(Fixed::new(UpdateRate::saturating(50.0)));
    let params = SourceParams { name: "robot/count".into(), ..SourceParams::default() };
    let mut source =
        Source::new(params, Secret::new([7; 16]), law, now(start)).expect("a short name");
    let (mut count, mut out) = (0u32, Vec::new());

    while now(start) < Time::ZERO + LENGTH {
        // 1. Datagrams that arrived, and the time.
        let wake = source.poll_timeout().unwrap_or(Time::ZERO + LENGTH);
        let wait = wake.min(Time::ZERO + LENGTH).since(now(start));
        if let Ok(datagram) = from_monitor.recv_timeout(wait.into()) {
            // The session counts rejected datagrams.
            let _ = source.handle_datagram(now(start), PathId::FIRST, &datagram);
        }
        source.handle_timeout(now(start));
        // 2. Events: requests for states, and changes of the session.
        while let Some(event) = source.poll_event() {
            match event {
                SourceEvent::StateWanted(_) => {
                    count += 1;
                    let (at, state) = (now(start), count.to_string());
                    source.put(at, at, state.as_bytes()).expect("it is short");
                }
                SourceEvent::Opened => println!("source: session {} is open", source.label()),
                _ => {}
            }
        }
        // 3. Datagrams to send.
        while let Some(transmit) = source.poll_transmit(now(start), &mut out) {
            let _ = to_monitor.send(out[..transmit.len].to_vec());
        }
    }

    source.close();
    while let Some(transmit) = source.poll_transmit(now(start), &mut out) {
        let _ = to_monitor.send(out[..transmit.len].to_vec());
    }
    let rtt = source.counters().rtt_mean().unwrap_or(Span::ZERO);
    println!("source: {} updates sent, mean round trip {rtt}", source.counters().sent);
}
