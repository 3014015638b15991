//! CPU time of the protocol per update and ack at the source, without sockets.
//!
//! `cargo bench -p freshline-core --bench source`. Half of the measured time is the monitor's.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use freshline_core::path::SchedulerConfig;
use freshline_core::session::{
    Admission, Monitor, MonitorParams, Paths, Secret, Source, SourceEvent, SourceParams,
};
use freshline_core::source::Fixed;
use freshline_core::unit::{Time, UpdateRate};

struct World {
    source: Source,
    monitor: Monitor<u8>,
    now: Time,
    out: Vec<u8>,
    reply: Vec<u8>,
}

impl World {
    fn new(paths: usize) -> Self {
        let law = Box::new(Fixed::new(UpdateRate::saturating(10_000.0)));
        let params = SourceParams::default();
        let mut source = Source::new(params, Secret::new([7; 16]), law, Time::ZERO).unwrap();
        if paths > 1 {
            let scheduler: SchedulerConfig = "freshest".parse().unwrap();
            source = source.over(Paths::new(paths, &scheduler).unwrap());
        }
        let monitor = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
        let monitor = Monitor::new(monitor, Secret::new([1; 16]));
        let mut world =
            Self { source, monitor, now: Time::ZERO, out: Vec::new(), reply: Vec::new() };
        (0..1_000).for_each(|_| world.step());
        world
    }

    /// The next update, its copies and their acks.
    fn step(&mut self) {
        self.now = self.source.poll_timeout().expect("it goes on").max(self.now);
        let now = self.now;
        self.source.handle_timeout(now);
        while let Some(event) = self.source.poll_event() {
            if matches!(event, SourceEvent::StateWanted(_)) {
                self.source.put(now, now, &[0xA5; 64]).expect("it fits");
            }
        }
        while let Some(transmit) = self.source.poll_transmit(now, &mut self.out) {
            let update = &self.out[..transmit.len];
            self.monitor.handle_datagram(now, 1, update).expect("an update");
            while self.monitor.poll_event().is_some() {}
            while let Some(reply) = self.monitor.poll_transmit(now, &mut self.reply) {
                let reply = &self.reply[..reply.len];
                let _ = black_box(self.source.handle_datagram(now, transmit.path, reply));
            }
        }
    }
}

fn benches(c: &mut Criterion) {
    for paths in [1, 3] {
        let mut world = World::new(paths);
        c.bench_function(&format!("an update and its ack, {paths} paths"), |b| {
            b.iter(|| world.step());
        });
    }
}

criterion_group!(all, benches);
criterion_main!(all);
