//! CPU time of the protocol per update at the monitor, without sockets.
//!
//! `cargo bench -p freshline-core`. With many sources, fetching their records from memory takes most
//! of the time.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use freshline_core::session::{Admission, Monitor, MonitorEvent, MonitorParams, Secret};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{Cookie, Frames, Message, OffsetEstimate, Opening, SessionId, Update};

/// An update of 64 bytes as it arrives.
struct Arrival {
    at: Time,
    peer: SocketAddr,
    datagram: Vec<u8>,
}

impl Arrival {
    /// The update with number `seq` of a source, sent and received at `seq` µs.
    fn new(source: u64, seq: u64, opening: Option<Opening<'_>>) -> Self {
        let now = Time::ZERO + Span::from_micros(seq);
        let update = Update {
            session: SessionId(source),
            seq,
            sent_at: now,
            clock_offset: Some(OffsetEstimate::new(0, Span::from_millis(1))),
            wants_ack: true,
            wants_return: false,
            ack_mark: None,
            opening,
            frames: Frames::fresh(&[0xA5; 64]),
        };
        let mut datagram = vec![0; update.len()];
        update.write(&mut datagram).expect("it fits");
        let peer = SocketAddr::from((Ipv4Addr::from_bits(source as u32), 4000));
        Self { at: now, peer, datagram }
    }

    fn take_in(&self, monitor: &mut Monitor<SocketAddr>, out: &mut Vec<u8>) {
        monitor.handle_datagram(self.at, self.peer, &self.datagram).expect("an update");
        let event = monitor.poll_event();
        assert!(matches!(event, Some(MonitorEvent::Fresh { .. })));
        assert!(monitor.poll_transmit(self.at, out).is_some());
        black_box(out);
    }
}

fn monitor_of(sources: u64) -> Monitor<SocketAddr> {
    let max_sources = usize::try_from(sources).expect("a number of sources");
    let params =
        MonitorParams { admission: Admission::Proven, max_sources, ..MonitorParams::default() };
    let mut monitor = Monitor::new(params, Secret::new([7; 16]));
    let opening = Opening { cookie: Cookie::default(), name: "", token: b"" };
    for source in 0..sources {
        Arrival::new(source, 0, Some(opening)).take_in(&mut monitor, &mut Vec::new());
    }
    monitor
}

fn benches(c: &mut Criterion) {
    let update = Arrival::new(1, 1, None).datagram;
    c.bench_function("parse an update", |b| {
        b.iter(|| Message::parse(black_box(&update)).is_ok());
    });
    for sources in [1, 1_000, 100_000] {
        let mut monitor = monitor_of(sources);
        let (mut seq, mut out) = (0, Vec::new());
        // A prime, so that every source gets its turn and no record is near the previous one.
        let mut next = || {
            seq += 1;
            Arrival::new(seq * 7_919 % sources, seq, None)
        };
        c.bench_function(&format!("take in and answer an update, {sources} sources"), |b| {
            b.iter_batched_ref(
                &mut next,
                |arrival| arrival.take_in(&mut monitor, &mut out),
                BatchSize::SmallInput,
            );
        });
    }
}

criterion_group!(all, benches);
criterion_main!(all);
