//! A source and a monitor in two threads; channels between them replace the network.
//!
//! `cargo run -p freshline-core --example memory_link`

mod monitor;
mod source;

use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use freshline_core::unit::{Span, Time};

/// The duration of the run.
const LENGTH: Span = Span::from_millis(500);

/// The time since `start`. Both ends read one clock here; separate clocks would do as well.
fn now(start: Instant) -> Time {
    Time::ZERO + Span::from(start.elapsed())
}

pub(crate) fn main() {
    let start = Instant::now();
    let [(to_monitor, at_monitor), (to_source, at_source)] = [channel(), channel()];
    thread::scope(|scope| {
        scope.spawn(move || source::run(start, &to_monitor, &at_source));
        monitor::run(start, &at_monitor, &to_source);
    });
}
