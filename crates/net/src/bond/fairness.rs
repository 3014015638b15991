//! Two connections through one bottleneck, in virtual time: a bond with two paths, and a single
//! flow.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use freshline_core::path::CoupledLaw;
use noq_proto::{Dir, StreamId};

use super::Sending;
use super::tests::{CLIENT, World};

/// Bits per second, and the maximum queue, of 60 ms.
const RATE: f64 = 8e6;
const QUEUE: Duration = Duration::from_millis(60);

/// Steps of 2 ms: 24 s, of which the last three quarters count.
const STEPS: usize = 12_000;

/// A link that both connections share. Above half of its maximum queue it drops packets at random,
/// so that flows do not synchronise (as RED; Floyd and Jacobson, 1993).
#[derive(Debug)]
pub(super) struct Bottleneck {
    free_at: Option<Instant>,
    random: u64,
}

impl Bottleneck {
    /// When a packet has passed; `None` if it is dropped.
    pub(super) fn pass(&mut self, now: Instant, size: usize) -> Option<Instant> {
        let free_at = self.free_at.unwrap_or(now).max(now);
        let queue = (free_at - now).as_secs_f64() / QUEUE.as_secs_f64();
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let draw = (self.random >> 33) as f64 / (1u64 << 31) as f64;
        if draw < (queue - 0.5) * 0.04 || queue >= 1.0 {
            return None;
        }
        let end = free_at + Duration::from_secs_f64(size as f64 * 8.0 / RATE);
        self.free_at = Some(end);
        Some(end)
    }
}

/// A connection that always has data.
struct BulkConnection {
    world: World,
    stream: StreamId,
    got: usize,
}

impl BulkConnection {
    fn new(paths: usize, sending: Sending, bottleneck: &Rc<RefCell<Bottleneck>>) -> Self {
        let scheduler = || sending.scheduler.build().unwrap();
        let mut world = World::paths(paths, scheduler(), scheduler(), sending);
        world.delays = [Duration::from_millis(20); 2];
        world.bottleneck = Some(Rc::clone(bottleneck));
        let stream = world.link(CLIENT).connection.streams().open(Dir::Bi).unwrap();
        Self { world, stream, got: 0 }
    }

    fn step(&mut self) {
        let link = self.world.link(CLIENT);
        let taken = link.connection.send_stream(self.stream).write(&[7; 20_000]).unwrap_or(0);
        link.paths.on_written(taken as u64);
        self.world.run(Duration::from_millis(2));
        self.got += self.world.drain(self.stream);
    }
}

/// The bond's mean share of the bytes that both have received. The keys of a connection are new in
/// each run, and one run has a standard deviation of 0.04 to 0.05.
fn mean_share_of_a_bond(coupling: Option<CoupledLaw>) -> f64 {
    (1..=3).map(|random| share_of_a_bond(coupling, random)).sum::<f64>() / 3.0
}

fn share_of_a_bond(coupling: Option<CoupledLaw>, random: u64) -> f64 {
    let sending = Sending { coupling, ..Sending::default() };
    let bottleneck = Rc::new(RefCell::new(Bottleneck { free_at: None, random }));
    // The competitor is an ordinary flow: Reno, which is LIA with one path.
    let single = Sending { coupling: Some(CoupledLaw::Lia), ..Sending::default() };
    let mut flows =
        [(2, sending), (1, single)].map(|(paths, it)| BulkConnection::new(paths, it, &bottleneck));
    // They were connected at different moments.
    let start = flows.iter().map(|flow| flow.world.now).max().unwrap();
    flows.iter_mut().for_each(|flow| flow.world.run(start - flow.world.now));
    let mut before = [0; 2];
    for step in 0..STEPS {
        flows.iter_mut().for_each(BulkConnection::step);
        if step == STEPS / 4 {
            before = flows.each_ref().map(|flow| flow.got);
        }
    }
    let [bond, single] = [0, 1].map(|at| (flows[at].got - before[at]) as f64);
    assert!(
        (bond + single) * 8.0 / (STEPS as f64 * 0.0015) > 0.8 * RATE,
        "the link is not used: {bond} {single}"
    );
    bond / (bond + single)
}

#[test]
fn a_bond_over_one_bottleneck_takes_about_as_much_as_one_flow() {
    for law in [CoupledLaw::Lia, CoupledLaw::Olia] {
        let share = mean_share_of_a_bond(Some(law));
        println!("{law:?}: {share:.3}");
        assert!((0.35..0.62).contains(&share), "{law:?}: {share:.3}");
    }
}

#[test]
fn without_coupling_a_bond_takes_as_much_as_it_has_paths() {
    let share = mean_share_of_a_bond(None);
    println!("none: {share:.3}");
    assert!(share > 0.62, "{share:.3}");
}
