//! The mesh by itself: which frames arrive, and where and why others are lost.

use freshline_core::router::Packet;
use freshline_core::unit::{Bytes, Span, Time};
use freshline_lab::mesh::{Drop, DropReason, Mesh, MeshConfig, Observer};
use proptest::prelude::*;
use rand_pcg::Pcg64;

/// A packet with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbered {
    number: usize,
    size: u64,
}

impl Packet for Numbered {
    fn size(&self) -> Bytes {
        Bytes::new(self.size)
    }
}

#[derive(Default)]
struct Watch {
    drops: Vec<Drop<Numbered>>,
    heard: Vec<(u32, u32, usize)>,
}

impl Observer<Numbered> for Watch {
    fn dropped(&mut self, drop: Drop<Numbered>) {
        self.drops.push(drop);
    }

    fn heard(&mut self, node: u32, from: u32, _number: u64, packet: &Numbered) {
        self.heard.push((node, from, packet.number));
    }
}

/// A mesh with everything that has come out of it.
struct Run {
    mesh: Mesh<Numbered>,
    watch: Watch,
    delivered: Vec<(Time, usize)>,
}

/// 3 – 2 – 1 – 0, each in reach of its neighbours only.
const CHAIN: &str = "at = [[0.0, 0.0], [10.0, 0.0], [20.0, 0.0], [30.0, 0.0]]\nrange = 12.0\n";
/// 1 and 2 hear 0, and not each other.
const HIDDEN: &str = "at = [[0.0, 0.0], [10.0, 0.0], [-10.0, 0.0]]\nrange = 12.0\n";
/// The same, and they hear each other.
const OPEN: &str = "at = [[0.0, 0.0], [10.0, 0.0], [-10.0, 0.0]]\nrange = 30.0\n";

impl Run {
    fn new(config: &str, seed: u64) -> Self {
        let config: MeshConfig = toml::from_str(&format!("name = \"mesh\"\n{config}")).unwrap();
        let mesh = config.build(Pcg64::new(seed.into(), 1)).unwrap();
        Self { mesh, watch: Watch::default(), delivered: Vec::new() }
    }

    /// Runs all events up to `until`, or to the last one.
    fn run(&mut self, until: Time) {
        while let Some(now) = self.mesh.poll_timeout().filter(|now| *now <= until) {
            while let Some(delivered) = self.mesh.poll(now, &mut self.watch) {
                self.delivered.push((delivered.at, delivered.packet.number));
            }
        }
    }

    fn send(&mut self, micros: u64, ends: [u32; 2], packet: Numbered) {
        let now = Time::ZERO + Span::from_micros(micros);
        self.run(now);
        self.mesh.enqueue(now, ends, packet, &mut self.watch);
    }

    fn frames(&self) -> u64 {
        self.mesh.stats().map(|(_, radio)| radio.sent).sum()
    }

    fn collisions(&self) -> u64 {
        self.mesh.stats().map(|(_, radio)| radio.collisions).sum()
    }

    fn dropped(&self, reason: DropReason) -> usize {
        self.watch.drops.iter().filter(|drop| drop.reason == reason).count()
    }
}

fn packet(number: usize) -> Numbered {
    Numbered { number, size: 114 }
}

#[test]
fn a_packet_goes_hop_by_hop_and_children_overhear_it() {
    let mut run = Run::new(CHAIN, 1);
    (1..4).for_each(|node| run.mesh.listen(node));
    run.send(0, [0, 3], packet(0));
    run.run(Time::MAX);
    assert_eq!((run.delivered.len(), run.frames()), (1, 3));
    assert_eq!(run.watch.heard, [(1, 0, 0), (2, 1, 0), (3, 2, 0)]);
    // Per hop up to 7 backoff periods, and 320 + 4256 µs; two acks and pauses between.
    let micros = run.delivered[0].0.since(Time::ZERO).as_micros();
    assert!((3 * 4576..3 * (4576 + 2240) + 2 * 1200).contains(&micros), "{micros}");
}

/// The radio repeats a frame until its ack arrives: receivers recognise the copy by its number.
#[test]
fn what_the_radio_repeats_is_heard_once() {
    // Node 2 loses no frames of node 1; the border router loses half.
    let lossy = "losses = [{ between = [0, 1], loss = 0.5 }]";
    let mut run = Run::new(&format!("{CHAIN}{lossy}"), 3);
    run.mesh.listen(2);
    let sent = 200;
    for number in 0..sent {
        run.send(200_000 * number as u64, [1, 0], packet(number));
    }
    run.run(Time::MAX);
    assert!(run.frames() > 2 * sent as u64, "{}", run.frames());
    assert!(run.watch.heard.iter().copied().eq((0..sent).map(|number| (2, 1, number))));
}

#[test]
fn nodes_that_do_not_hear_each_other_collide_far_more_often() {
    let collisions = |config| {
        let mut run = Run::new(config, 7);
        for number in 0..2_000 {
            let node = 1 + number as u32 % 2;
            run.send(10_000 * number as u64 / 2, [node, 0], packet(number));
        }
        run.run(Time::MAX);
        run.collisions()
    };
    let (hidden, open) = (collisions(HIDDEN), collisions(OPEN));
    assert!(hidden > 3 * open, "{hidden} and {open}");
}

/// With half of all frames and acks lost, a quarter of tries is acknowledged.
#[test]
fn what_is_not_acknowledged_comes_again_and_is_delivered_once() {
    let mut run = Run::new(&format!("{OPEN}loss = 0.5"), 3);
    let sent = 4_000;
    for number in 0..sent {
        run.send(200_000 * number as u64, [1, 0], packet(number));
    }
    run.run(Time::MAX);
    let mut delivered: Vec<_> = run.delivered.iter().map(|(_, number)| *number).collect();
    delivered.dedup();
    assert_eq!(delivered.len(), run.delivered.len(), "each once");
    // None of four tries comes: 1/16. All else arrives, acknowledged or not.
    let lost = run.dropped(DropReason::NoAck) as f64 / sent as f64;
    assert!((lost - 1.0 / 16.0).abs() < 0.015, "{lost}");
    assert_eq!(run.watch.drops.len() + delivered.len(), sent);
    // 1 + ¾ + ¾² + ¾³ tries.
    let tries = run.frames() as f64 / sent as f64;
    assert!((tries - 2.734).abs() < 0.06, "{tries}");
    assert!(run.mesh.stats().any(|(_, radio)| radio.duplicates > 0));
}

#[test]
fn a_large_packet_takes_several_frames_and_is_lost_as_a_whole() {
    let large = Numbered { number: 0, size: 20 + 32 + 100 };
    let mut run = Run::new(CHAIN, 1);
    run.send(0, [1, 0], large);
    run.run(Time::MAX);
    assert_eq!((run.delivered.len(), run.frames()), (1, 2));
    let mut run = Run::new(&format!("{OPEN}loss = 0.6"), 5);
    for number in 0..500 {
        run.send(200_000 * number as u64, [1, 0], Numbered { number, ..large });
    }
    run.run(Time::MAX);
    // Per frame 0.6⁴ never come, and of the first frame's tries also all acks may get lost.
    let share = run.delivered.len() as f64 / 500.0;
    assert!((0.3..0.6).contains(&share), "{share}");
    assert_eq!(run.delivered.len() + run.watch.drops.len(), 500);
    let huge = Numbered { number: 0, size: 5_000 };
    run.send(1_000_000_000, [1, 0], huge);
    assert_eq!(run.dropped(DropReason::TooBig), 1);
}

#[test]
fn a_full_queue_drops_at_its_node() {
    let mut run = Run::new(&format!("{CHAIN}queue = \"5p\""), 1);
    (0..8).for_each(|number| run.send(0, [2, 0], packet(number)));
    run.run(Time::MAX);
    let full: Vec<_> = run.watch.drops.iter().map(|drop| (drop.node, drop.reason)).collect();
    assert_eq!(full, [(2, DropReason::QueueFull); 3]);
    assert_eq!(run.delivered.len(), 5);
}

/// Nodes 1 and 2 send to the border router all the time.
fn two_senders(config: &str) -> Run {
    let mut run = Run::new(config, 7);
    for number in 0..2_000 {
        run.send(10_000 * number as u64 / 2, [1 + number as u32 % 2, 0], packet(number));
    }
    run.run(Time::MAX);
    run
}

#[test]
fn nodes_that_sense_each_other_wait_though_they_receive_nothing() {
    let hidden = two_senders(HIDDEN).collisions();
    let sensed = two_senders(&format!("{HIDDEN}carrier_sense_range = 20.0\n"));
    let parents = sensed.mesh.tree();
    assert_eq!([1, 2].map(|node| parents.parent(node)), [0, 0]);
    assert!(hidden > 3 * sensed.collisions(), "{hidden} and {}", sensed.collisions());
}

/// 2 is 11 m from 0, and 1, 10 m away, is hidden from it.
#[test]
fn with_capture_the_nearer_sender_is_received() {
    let near = "at = [[0.0, 0.0], [5.0, 0.0], [-11.0, 0.0]]\nrange = 12.0\n";
    let collisions = |config: &str| {
        let run = two_senders(config);
        [1, 2].map(|node| run.mesh.stats().nth(node).unwrap().1.collisions)
    };
    let [one, two] = collisions(near);
    assert!(one > 50 && two > 50, "{one} and {two}");
    let [one, two] = collisions(&format!("{near}capture = 2.0\n"));
    // Only frames that begin while one of 2 is being received are still lost.
    assert!(two > 50, "11 m against 5: {two}");
    let [far, _] = collisions(&format!("{near}capture = 2.5\n"));
    assert!(far > one, "11 m are no 2.5 times 5: {far} and {one}");
}

/// 152 bytes take two frames, 114 one.
#[test]
fn a_pool_of_frames_holds_fewer_large_packets() {
    let dropped = |pool: &str, size| {
        let mut run = Run::new(&format!("{CHAIN}{pool}"), 1);
        (0..8).for_each(|number| run.send(0, [1, 0], Numbered { number, size }));
        run.run(Time::MAX);
        assert_eq!(run.delivered.len() + run.dropped(DropReason::QueueFull), 8);
        run.dropped(DropReason::QueueFull)
    };
    assert_eq!(dropped("queue_frames = 8", 114), 0);
    assert_eq!([dropped("queue_frames = 8", 152), dropped("queue_frames = 7", 152)], [4, 5]);
    assert_eq!(dropped("queue_frames = 8\nqueue = \"3p\"", 152), 5);
}

#[test]
fn radios_that_make_no_sense_are_named() {
    let refused = |line: &str| {
        let config: MeshConfig =
            toml::from_str(&format!("name = \"mesh\"\n{CHAIN}{line}")).unwrap();
        config.build::<Numbered>(Pcg64::new(1, 1)).unwrap_err().to_string()
    };
    assert!(
        refused("carrier_sense_range = 5.0").contains("`carrier_sense_range` is below `range`")
    );
    assert!(refused("capture = 1.0").contains("`capture` is 1"));
    assert!(refused("queue_frames = 0").contains("`queue_frames` is 0"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Each packet is delivered, dropped with a reason, or still held; and all that again with the
    /// same seed.
    #[test]
    fn no_packet_is_forgotten_and_runs_repeat(
        seed in any::<u64>(),
        loss in 0.0f64..0.6,
        packets in prop::collection::vec((0u64..30_000, 1u32..4, any::<bool>(), 40u64..400), 1..200),
    ) {
        let outcome = || {
            let mut run = Run::new(&format!("{CHAIN}loss = {loss:.3}\nqueue = \"4p\""), seed);
            let mut at = 0;
            for (number, (gap, node, is_up, size)) in packets.iter().enumerate() {
                at += gap;
                let ends = if *is_up { [*node, 0] } else { [0, *node] };
                run.send(at, ends, Numbered { number, size: *size });
            }
            let held: usize = (0..4).map(|node| run.mesh.held(node)).sum();
            assert_eq!(run.delivered.len() + run.watch.drops.len() + held, packets.len());
            run.run(Time::MAX);
            assert_eq!(run.delivered.len() + run.watch.drops.len(), packets.len());
            let mut all: Vec<_> = run.delivered.iter().map(|(_, number)| *number).collect();
            all.extend(run.watch.drops.iter().map(|drop| drop.packet.number));
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..packets.len()));
            (run.delivered, run.watch.drops)
        };
        prop_assert_eq!(outcome(), outcome());
    }
}
