//! One and several connections of programs through a bond of two unequal paths, with each
//! scheduler, in virtual time.
//!
//! ```text
//!   1 or 4 writers ─► client ─► device 0, 6 Mbit/s ─► 10 ms each way, loss 0 or 0.1 %
//!                          └──► device 1, 3 Mbit/s ─► 40 ms each way, loss 0 or 0.1 %
//! ```

use std::time::Duration;

use freshline_core::path::SchedulerConfig;
use noq_proto::{Dir, StreamId};

use super::Sending;
use super::flooded::Devices;
use super::tests::{CLIENT, World};

/// Of the two paths, in Mbit/s.
const RATES: [f64; 2] = [6.0, 3.0];

/// The paths ramp up, and both queues have been full.
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(2);

const STEP: Duration = Duration::from_millis(5);

/// Bytes per write.
const PIECE: usize = 10_000;

/// After this many bytes a connection's data repeat: a prime number, which no packet's size divides.
const PERIOD: usize = 65_537;

/// The data of all connections; each connection starts at another place in them.
fn data() -> Vec<u8> {
    let period = (0..PERIOD).map(|at| ((at ^ (at >> 8)) as u8).wrapping_mul(31));
    let period: Vec<_> = period.collect();
    [&period[..], &period].concat()
}

/// A connection of a program that always has data.
struct Connection {
    number: usize,
    stream: StreamId,
    written: usize,
    got: usize,
}

impl Connection {
    /// Where in the data the byte with this offset is.
    fn place(number: usize, offset: usize) -> usize {
        (number * 1000 + offset) % PERIOD
    }

    fn write(&mut self, world: &mut World, data: &[u8]) {
        let at = Self::place(self.number, self.written);
        let link = world.link(CLIENT);
        let mut stream = link.connection.send_stream(self.stream);
        let taken = stream.write(&data[at..at + PIECE]).unwrap_or(0);
        link.paths.on_written(taken as u64);
        self.written += taken;
    }

    fn read(&mut self, world: &mut World, data: &[u8]) {
        let (number, got) = (self.number, &mut self.got);
        world.read(self.stream, |mut bytes| {
            while !bytes.is_empty() {
                let at = Self::place(number, *got);
                let (head, tail) = bytes.split_at(bytes.len().min(PERIOD));
                assert!(head == &data[at..at + head.len()], "connection {number} from byte {got}");
                *got += head.len();
                bytes = tail;
            }
        });
    }
}

/// The rate of each of `count` connections in steady state, in Mbit/s, once all bytes have arrived
/// in order and unchanged.
fn rates(scheduler: SchedulerConfig, count: usize, loss: f64) -> Vec<f64> {
    // With one stream, its window exceeds the capacity of both paths, in bytes. With several, each
    // window is smaller: a scheduler that takes it for the connection's window leaves capacity
    // unused.
    let stream_window = if count == 1 { 500_000 } else { 200_000 };
    let sending = Sending { scheduler, stream_window, ..Sending::default() };
    let build = || sending.scheduler.build().unwrap();
    let mut world = World::paths(2, build(), build(), sending);
    world.delays = [10, 40].map(Duration::from_millis);
    let mut devices = Devices::new(RATES, true, world.now);
    devices.loss = loss;
    world.devices = Some(devices);
    let data = data();
    let mut all: Vec<_> = (0..count)
        .map(|number| {
            let stream = world.link(CLIENT).connection.streams().open(Dir::Bi).unwrap();
            Connection { number, stream, written: 0, got: 0 }
        })
        .collect();
    let began_at = world.now;
    let mut before = None;
    while world.now - began_at < WARM_UP + MEASURED {
        if before.is_none() && world.now - began_at >= WARM_UP {
            before = Some(all.iter().map(|it| it.got).collect::<Vec<_>>());
        }
        all.iter_mut().for_each(|it| it.write(&mut world, &data));
        world.run(STEP);
        all.iter_mut().for_each(|it| it.read(&mut world, &data));
    }
    let got: Vec<_> = all.iter().map(|it| it.got).collect();
    let end = world.now + Duration::from_secs(10);
    while world.now < end && all.iter().any(|it| it.got < it.written) {
        world.run(STEP);
        all.iter_mut().for_each(|it| it.read(&mut world, &data));
    }
    for it in &all {
        assert_eq!(it.got, it.written);
    }
    let rate = |(after, before)| (after - before) as f64 * 8e-6 / MEASURED.as_secs_f64();
    got.into_iter().zip(before.unwrap()).map(rate).collect()
}

/// Whether a scheduler fills both paths. DAPS keeps to a plan made before the windows grew: data
/// that it queues on one path, up to the receive window, does not go to the other path.
fn aggregates(scheduler: SchedulerConfig) -> bool {
    scheduler != SchedulerConfig::Daps
}

/// Checks that several connections use at least the fraction `part` of the capacity of both paths.
fn check(loss: f64, part: f64) {
    let [fast, slow] = RATES;
    // A bond refuses `redundant`.
    let schedulers = SchedulerConfig::ALL.into_iter();
    for scheduler in schedulers.filter(|it| *it != SchedulerConfig::Redundant) {
        // A single connection waits at times for a lost packet.
        for (count, part) in [(1, 0.65), (4, part)] {
            let least = if aggregates(scheduler) { part * (fast + slow) } else { 0.6 * fast };
            let rates = rates(scheduler, count, loss);
            let name = scheduler.name();
            println!("{name}, loss {loss}: {rates:.2?} Mbit/s");
            assert!(rates.iter().sum::<f64>() >= least, "{name}: {rates:?}, not {least}");
            let max = rates.iter().copied().fold(0.0, f64::max);
            assert!(rates.iter().all(|rate| *rate >= 0.7 * max), "{name}: {rates:?}");
        }
    }
}

#[test]
fn connections_fill_both_paths_and_share_them_with_each_scheduler() {
    check(0.0, 0.88);
}

#[test]
fn connections_fill_both_paths_and_share_them_with_each_scheduler_where_paths_lose() {
    check(0.001, 0.75);
}
