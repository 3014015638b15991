//! Single packets from many sources: CPU time of a receiver that never waits for them.
//!
//! Over the loopback, the sender's system call includes the kernel's work on both sides, down to the queue of the
//! socket, so no sender is faster than the receiver. Therefore packets are sent in bursts that fit the queue, while the
//! receiver is paused, and the receiver's time is measured from the first packet of a burst to the last answer. Sender
//! and receiver have a core each, if there are two.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use freshline_core::session::SourceKey;
use freshline_core::unit::{Span, Time};
use freshline_net::monitor::{Monitor, MonitorConfig, Record, Watch};
use freshline_net::stop::Stop;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::bare::{self, Bare};
use crate::crowd::{Crowd, assert_ack};
use crate::throughput::config;

/// Sources, each with a session of its own. No two of their addresses are consecutive.
const SOURCES: usize = 1_000;

/// The maximum number of packets in a burst; fewer if the queue of the socket does not hold them.
const BURST: usize = 2_000;

/// The maximum memory of a packet in the receive buffer, in bytes.
const IN_KERNEL: usize = 2_048;

/// Bursts of each receiver in a round. The receivers take turns in each round.
const BURSTS: usize = 25;
const ROUNDS: usize = 9;

/// The receiver of the packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The real monitor.
    Monitor,
    /// `recvmmsg`, and a counter.
    Bare,
    /// `recvmmsg`, and `sendmmsg` of an answer for each packet, as long as an ack.
    Answering,
}

pub(crate) fn report() {
    println!("\nsingle packets of {SOURCES} sources, to a receiver that never waits for packets");
    println!(
        "{:34} {:>28} {:>10} {:>14}",
        "", "million/CPU s: min, med, max", "CPU ns", "wall ns, med"
    );
    let kinds = [Kind::Monitor, Kind::Bare, Kind::Answering];
    let mut worlds = kinds.map(|kind| World::new(kind, SOURCES));
    let mut costs: [Vec<Cost>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (world, costs) in worlds.iter_mut().zip(&mut costs) {
            costs.push((0..BURSTS).map(|_| world.burst()).sum());
        }
    }
    let names = ["monitor", "bare recvmmsg", "bare recvmmsg and sendmmsg"];
    let [monitor, bare, answering] =
        std::array::from_fn(|index| line(names[index], &mut costs[index]));
    println!("monitor / bare, single packets: {:.2}", monitor / bare);
    println!("monitor / bare with answers, single packets: {:.2}", monitor / answering);
}

/// Prints a line; returns the median number of packets per second of CPU time.
fn line(name: &str, costs: &mut [Cost]) -> f64 {
    costs.sort_by(|a, b| b.cpu_ns().total_cmp(&a.cpu_ns()));
    let [slowest, median, fastest] = [&costs[0], &costs[ROUNDS / 2], &costs[ROUNDS - 1]];
    let rate = |cost: &Cost| 1e3 / cost.cpu_ns();
    let mut walls: Vec<_> = costs.iter().map(Cost::wall_ns).collect();
    walls.sort_by(f64::total_cmp);
    println!(
        "{:34} {:>8.3} {:>9.3} {:>9.3} {:>10.0} {:>14.0}",
        format!("{name}, single packets"),
        rate(slowest),
        rate(median),
        rate(fastest),
        median.cpu_ns(),
        walls[ROUNDS / 2],
    );
    rate(median)
}

/// The time that packets take at a receiver.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    packets: usize,
    cpu: Duration,
    wall: Duration,
}

impl Cost {
    pub(crate) fn cpu_ns(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.packets as f64
    }

    fn wall_ns(&self) -> f64 {
        self.wall.as_nanos() as f64 / self.packets as f64
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), |sum, cost| Self {
            packets: sum.packets + cost.packets,
            cpu: sum.cpu + cost.cpu,
            wall: sum.wall + cost.wall,
        })
    }
}

/// A receiver on a thread of its own, and the sources that send to it.
pub(crate) struct World {
    crowd: Crowd,
    kind: Kind,
    /// Packets of a burst.
    burst: usize,
    go: Option<Sender<usize>>,
    done: Receiver<Cost>,
    stop: Stop,
    receiver: Option<thread::JoinHandle<()>>,
}

impl World {
    /// A monitor with this many sources, which have opened their sessions.
    pub(crate) fn of_monitor(sources: usize) -> Self {
        Self::new(Kind::Monitor, sources)
    }

    fn new(kind: Kind, sources: usize) -> Self {
        let ((go, gone), (finish, done)) = (channel(), channel());
        let left = if kind == Kind::Monitor { sources } else { 0 };
        let gate = Gate { go: gone, done: finish, left, began: None };
        let stop = Stop::new();
        let receiver_stop = stop.clone();
        // Its receive buffer is as large as the monitor's.
        let socket = bare::bind();
        let buffer = bare::buffer(&socket);
        let (to, receiver) = match kind {
            Kind::Monitor => {
                let mut monitor = Monitor::bind(of_many(sources)).unwrap();
                let to = monitor.local_addr().unwrap();
                let receiver = on_a_core("monitor", move || {
                    let mut gate = gate;
                    monitor.run(&receiver_stop, None, &mut gate).unwrap();
                });
                (to, receiver)
            }
            Kind::Bare | Kind::Answering => {
                let to = socket.local_addr().unwrap();
                let is_answered = kind == Kind::Answering;
                let receiver = on_a_core("bare", move || {
                    take_in_bare(Bare::new(socket), is_answered, gate, &receiver_stop);
                });
                (to, receiver)
            }
        };
        pin(1);
        let mut crowd = Crowd::new(to, sources);
        if kind == Kind::Monitor {
            crowd.open();
        }
        done.recv().expect("it is ready");
        let (burst, receiver) = (BURST.min(buffer / IN_KERNEL).max(1), Some(receiver));
        Self { crowd, kind, burst, go: Some(go), done, stop, receiver }
    }

    /// Sends one burst; returns the receiver's time for it.
    pub(crate) fn burst(&mut self) -> Cost {
        self.crowd.send(self.burst);
        self.go.as_ref().expect("it runs").send(self.burst).unwrap();
        let cost = self.done.recv_timeout(Duration::from_secs(20)).expect("all packets came");
        let answers =
            self.crowd.answers(if self.kind == Kind::Monitor { assert_ack } else { |_| {} });
        let expected = if self.kind == Kind::Bare { 0 } else { self.burst };
        assert_eq!(answers, expected, "each packet is answered");
        cost
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.stop();
        self.go = None;
        if let Some(receiver) = self.receiver.take() {
            let _ = receiver.join();
        }
    }
}

fn of_many(sources: usize) -> MonitorConfig {
    let mut config = config();
    config.params.max_sources = sources;
    // Opening a million sessions takes longer than the default idle timeout.
    config.params.idle = Span::from_secs(600);
    config
}

/// A receiver's thread, with a name for profiles.
fn on_a_core(name: &str, run: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread
        .spawn(|| {
            pin(0);
            run();
        })
        .unwrap()
}

/// Binds this thread to core `number` of the allowed cores, if there are at least two.
fn pin(number: usize) {
    let this = Pid::from_raw(0);
    // Read by the first caller, whose thread is not yet bound.
    static CORES: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let cores = CORES.get_or_init(|| {
        let all = sched_getaffinity(this).unwrap_or_default();
        (0..CpuSet::count()).filter(|core| all.is_set(*core).unwrap_or(false)).collect()
    });
    if cores.len() > 1 {
        let mut set = CpuSet::new();
        set.set(cores[number]).unwrap();
        sched_setaffinity(this, &set).unwrap();
    }
}

/// Stops a receiver's thread between two bursts, and counts its time.
struct Gate {
    go: Receiver<usize>,
    done: Sender<Cost>,
    /// Packets of the burst that have not arrived.
    left: usize,
    /// The number of packets in the burst, and when it began.
    began: Option<(usize, Duration, Instant)>,
}

impl Gate {
    /// Ends a burst whose packets have all arrived, and waits for the next one; whether there is one.
    fn turn(&mut self) -> bool {
        if self.left > 0 {
            return true;
        }
        let cost = self.began.take().map_or(Cost::default(), |(packets, cpu, wall)| Cost {
            packets,
            cpu: cpu_time() - cpu,
            wall: wall.elapsed(),
        });
        let _ = self.done.send(cost);
        let Ok(packets) = self.go.recv() else { return false };
        self.left = packets;
        self.began = Some((packets, cpu_time(), Instant::now()));
        true
    }
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

impl Watch for Gate {
    fn fresh(&mut self, _now: Time, _source: SourceKey, _record: &Record) {
        self.left -= 1;
    }

    fn turn(&mut self, _now: Time) {
        Gate::turn(self);
    }
}

fn take_in_bare(mut bare: Bare, is_answered: bool, mut gate: Gate, stop: &Stop) {
    while gate.turn() && !stop.is_stopped() {
        let taken = bare.receive(is_answered);
        gate.left -= taken;
        if taken == 0 {
            bare.wait();
        }
    }
}
