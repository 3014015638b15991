//! A complete monitor: it prints the states of its sources until the last one has left.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use freshline_core::session::{Monitor, MonitorEvent, MonitorParams, Secret};
use freshline_core::unit::{Span, Time};

use super::{LENGTH, now};

pub(crate) fn run(start: Instant, from_source: &Receiver<Vec<u8>>, to_source: &Sender<Vec<u8>>) {
    // Addresses are numbers here; there is only one.
    let mut monitor = Monitor::<u8>::new(MonitorParams::default(), Secret::new([1; 16]));
    let (mut is_over, mut out) = (false, Vec::new());

    while !is_over {
        // 1. Datagrams that arrived, and the time.
        let wake = monitor.poll_timeout().unwrap_or(Time::ZERO + LENGTH * 2);
        let wait = wake.since(now(start)).min(Span::from_secs(1));
        match from_source.recv_timeout(wait.into()) {
            Ok(datagram) => {
                // The monitor counts rejected datagrams.
                let _ = monitor.handle_datagram(now(start), 1, &datagram);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        monitor.handle_timeout(now(start));
        // 2. Events.
        while let Some(event) = monitor.poll_event() {
            match event {
                MonitorEvent::Fresh { source, is_repeat: false, .. } => {
                    let record = monitor.record(source).expect("its state is fresh");
                    let state = String::from_utf8_lossy(record.payload().unwrap_or_default());
                    let age = record.state_age(now(start)).map(|age| age.to_string());
                    let age = age.unwrap_or("unknown yet".into());
                    println!("monitor: {} is {state}, age {age}", record.name);
                }
                MonitorEvent::Gone { record, .. } => {
                    println!("monitor: {} has left after {} states", record.name, record.fresh());
                    is_over = true;
                }
                _ => {}
            }
        }
        // 3. Datagrams to send.
        while let Some(transmit) = monitor.poll_transmit(now(start), &mut out) {
            let _ = to_source.send(out[..transmit.len].to_vec());
        }
    }
}
