//! A link's treatment of packets: exact times, correct counts, and no dependence on the driver.

use freshline_core::link::{
    Delivered, Hop, HopChange, HopConfig, HopStats, LinkParams, Path, PathConfig, TraceConfig,
    TraceFile,
};
use freshline_core::router::{
    Backlog, Dequeued, Discipline, Drop, DropReason, Drops, Fifo, Limit, Packet, Qdisc,
};
use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use proptest::prelude::*;
use rand::RngExt;
use rand_pcg::Pcg64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Update {
    id: u64,
    size: u64,
}

impl Packet for Update {
    fn size(&self) -> Bytes {
        Bytes::new(self.size)
    }
}

type TestPath = Path<Discipline<Update>, Update, Pcg64>;

const SEED: u128 = 7;

fn path(hops: &[&str]) -> TestPath {
    let hop = hops.iter().map(|text| text.parse().unwrap()).collect();
    PathConfig { hop }.build(|hop| Pcg64::new(SEED, hop as u128)).unwrap()
}

fn kilobyte(id: u64) -> Update {
    Update { id, size: 1000 }
}

fn at_ms(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

fn no_drop(drop: Drop<Update>) {
    panic!("unexpected {drop:?}");
}

/// Everything that comes out until nothing is left, as a punctual driver sees it.
fn drain(path: &mut TestPath) -> Vec<Delivered<Update>> {
    let mut out = Vec::new();
    while let Some(now) = path.poll_timeout() {
        while let Some(delivered) = path.poll(now, &mut |_| ()) {
            assert_eq!(delivered.at, now, "a punctual driver gets each packet when it arrives");
            out.push(delivered);
        }
    }
    out
}

fn arrivals(delivered: &[Delivered<Update>]) -> Vec<(u64, Time)> {
    delivered.iter().map(|delivered| (delivered.packet.id, delivered.at)).collect()
}

#[test]
fn one_packet_takes_its_serialisations_and_delays() {
    // 1000 bytes: 8 ms at 1 Mbit/s, 1 ms at 8 Mbit/s.
    let mut path = path(&["rate=1mbit,delay=5ms", "delay=3ms", "rate=8mbit,delay=10ms"]);
    path.enqueue(at_ms(100), kilobyte(1), &mut no_drop);
    assert_eq!(arrivals(&drain(&mut path)), [(1, at_ms(100 + 8 + 5 + 3 + 1 + 10))]);
}

#[test]
fn a_new_rate_counts_at_once_and_prolongs_nothing_that_is_under_way() {
    let config: HopConfig = "rate=1mbit".parse().unwrap();
    let mut hop = config.build(Pcg64::new(SEED, 0)).unwrap();
    for id in 0..3 {
        hop.enqueue(at_ms(0), kilobyte(id), &mut no_drop);
    }
    // Packet 0 is in transmission for 8 ms; at 8 Mbit/s it has 1 ms left at most.
    hop.set_rate(at_ms(2), BitRate::from_mbps(8));
    let mut sent: Vec<_> = std::iter::from_fn(|| hop.poll(at_ms(3), &mut no_drop)).collect();
    // Packet 1 goes on to its end, at 4 ms.
    hop.set_rate(at_ms(3), BitRate::from_mbps(1));
    sent.extend(std::iter::from_fn(|| hop.poll(at_ms(100), &mut no_drop)));
    assert_eq!(arrivals(&sent), [(0, at_ms(3)), (1, at_ms(4)), (2, at_ms(12))]);
}

#[cfg(feature = "serde")]
#[test]
fn a_hop_changes_its_rate_and_delay_when_it_is_told_to() {
    let config: HopConfig = toml::from_str(
        r#"
        rate = "1mbit"
        delay = "10ms"
        change = [
            { at = "2ms", rate = "8mbit" },
            { at = "3ms", rate = "1mbit", delay = "30ms" },
            { at = "20ms", delay = "1ms" },
        ]
        "#,
    )
    .unwrap();
    // The times are those of the changes also for a driver that looks late.
    for looks in [vec![100], vec![2, 3, 4, 12, 20, 100]] {
        let mut hop = config.build(Pcg64::new(SEED, 0)).unwrap();
        for id in 0..3 {
            hop.enqueue(at_ms(0), kilobyte(id), &mut no_drop);
        }
        let mut found = Vec::new();
        for look in looks {
            found.extend(std::iter::from_fn(|| hop.poll(at_ms(look), &mut no_drop)));
        }
        hop.enqueue(at_ms(100), kilobyte(3), &mut no_drop);
        found.extend(std::iter::from_fn(|| hop.poll(at_ms(200), &mut no_drop)));
        // Sent until 3, 4, 12 and 108 ms.
        let expected = [(0, at_ms(13)), (1, at_ms(34)), (2, at_ms(42)), (3, at_ms(109))];
        assert_eq!(arrivals(&found), expected);
    }
    let mut hop = config.build(Pcg64::new(SEED, 0)).unwrap();
    assert_eq!(hop.poll_timeout(), None, "nothing to do for an idle hop");
    hop.enqueue(at_ms(0), kilobyte(0), &mut no_drop);
    assert_eq!(hop.poll_timeout(), Some(at_ms(2)), "the end comes sooner from then on");

    for (changes, remedy) in [
        ("{ at = '2s', delay = '1ms' }, { at = '1s', delay = '2ms' }", "behind a later one; sort"),
        ("{ at = '2s' }", "neither `rate` nor `delay`"),
        ("{ at = '2s', rate = '0mbit' }", "`rate` is zero"),
    ] {
        let config: HopConfig = toml::from_str(&format!("change = [{changes}]")).unwrap();
        let error = config.build::<Update, _>(Pcg64::new(SEED, 0)).unwrap_err().to_string();
        assert!(error.contains(remedy), "{error}");
    }
}

#[test]
fn a_burst_leaves_at_the_rate_of_the_slowest_hop() {
    let mut path = path(&["rate=8mbit,delay=5ms", "rate=1mbit,delay=5ms", "rate=8mbit,delay=5ms"]);
    for id in 0..4 {
        path.enqueue(Time::ZERO, kilobyte(id), &mut no_drop);
    }
    let expected = [25, 33, 41, 49].map(at_ms);
    let delivered = drain(&mut path);
    assert_eq!(delivered.iter().map(|delivered| delivered.at).collect::<Vec<_>>(), expected);
    let [first, second, third] = path.hops() else { panic!("three hops") };
    // In the first queue they wait 0, 1, 2, 3 ms; in the second 0, 7, 14, 21; in the third not.
    assert_eq!(first.stats().sojourn.max(), Span::from_millis(3));
    assert_eq!(second.stats().sojourn.mean(), Span::from_micros(10_500));
    assert_eq!(third.stats().sojourn.max(), Span::ZERO);
    assert_eq!(second.busy(at_ms(100)), Span::from_millis(32));
}

#[test]
fn busy_time_counts_the_transmission_that_goes_on() {
    let mut path = path(&["rate=1mbit"]);
    path.enqueue(at_ms(10), kilobyte(1), &mut no_drop);
    assert_eq!(path.hops()[0].busy(at_ms(13)), Span::from_millis(3));
    assert_eq!(path.hops()[0].busy(at_ms(99)), Span::from_millis(8));
}

#[test]
fn a_full_queue_drops_the_arrival_and_the_departure_comes_first() {
    let mut path = path(&["rate=1mbit,queue=1p"]);
    let mut dropped = Vec::new();
    // One in transmission until 8 ms, one waiting, one too many.
    for id in 0..3 {
        path.enqueue(Time::ZERO, kilobyte(id), &mut |drop| dropped.push(drop));
    }
    assert_eq!(dropped, [Drop { packet: kilobyte(2), reason: DropReason::QueueFull }]);
    // At the very end of the transmission there is room again.
    path.enqueue(at_ms(8), kilobyte(3), &mut no_drop);
    assert_eq!(arrivals(&drain(&mut path)), [(0, at_ms(8)), (1, at_ms(16)), (3, at_ms(24))]);
}

#[test]
fn loss_takes_the_configured_fraction_and_uses_the_link() {
    let mut path = path(&["rate=1gbit,loss=0.05,queue=20000p"]);
    let offered = 20_000;
    for id in 0..offered {
        path.enqueue(Time::ZERO, kilobyte(id), &mut no_drop);
    }
    let delivered = drain(&mut path).len() as u64;
    let stats = path.hops()[0].stats();
    let lost = stats.drops.of(DropReason::Loss).get();
    assert_eq!(lost + delivered, offered);
    // Five standard deviations of a binomial of 20,000 × 0.05.
    assert!(lost.abs_diff(1_000) < 155, "{lost} of {offered}");
    assert_eq!(stats.busy, Span::from_micros(8) * offered);
}

#[test]
fn a_line_that_is_full_says_so() {
    let mut path = path(&["delay=1h,queue=1p"]);
    let mut dropped = 0;
    let excess = 10;
    let held = Hop::<Fifo<Update>, Update, Pcg64>::LINE_PACKETS as u64;
    for id in 0..held + excess {
        path.enqueue(Time::ZERO, kilobyte(id), &mut |drop| {
            assert_eq!(drop.reason, DropReason::LineFull);
            dropped += 1;
        });
    }
    assert_eq!(path.poll(Time::ZERO, &mut |_| dropped += 1), None);
    assert_eq!((path.inside(), dropped), (Packets::new(held), excess));
}

#[test]
fn a_driver_that_only_needs_what_leaves_comes_less_often_and_in_time() {
    let change = |ms, rate: Option<&str>, delay: Option<&str>| HopChange {
        at: Span::from_millis(ms),
        rate: rate.map(|rate| rate.parse().unwrap()),
        delay: delay.map(|delay| delay.parse().unwrap()),
    };
    let mut changing: HopConfig = "rate=1mbit,delay=30ms".parse().unwrap();
    changing.changes =
        vec![change(20, Some("10mbit"), None), change(41, Some("1mbit"), Some("1ms"))];
    let kept: HopConfig = "rate=2mbit,delay=3ms,jitter=2ms".parse().unwrap();
    let free: HopConfig = "rate=5mbit,delay=3ms,jitter=3ms,order=free".parse().unwrap();
    for hop in [vec![changing.clone()], vec![changing, kept.clone()], vec![kept, free]] {
        let config = PathConfig { hop };
        let offered = || {
            let mut path: TestPath = config.build(|hop| Pcg64::new(SEED, hop as u128)).unwrap();
            (0..50).for_each(|id| path.enqueue(at_ms(id / 5), kilobyte(id), &mut no_drop));
            path
        };
        let (mut path, mut out, mut polls) = (offered(), Vec::new(), 0);
        while let Some(now) = path.next_delivery() {
            polls += 1;
            while let Some(delivered) = path.poll(now, &mut no_drop) {
                assert_eq!(delivered.at, now);
                out.push(delivered);
            }
        }
        let mut every_event = offered();
        assert_eq!(arrivals(&out), arrivals(&drain(&mut every_event)));
        let mut events = 0;
        let mut path = offered();
        while let Some(now) = path.poll_timeout() {
            events += 1;
            while path.poll(now, &mut no_drop).is_some() {}
        }
        assert!(polls <= events, "{polls} instead of {events} polls");
    }
}

#[test]
fn a_super_packet_counts_as_its_packets() {
    #[derive(Debug, PartialEq)]
    struct Segments(u64);

    impl Packet for Segments {
        fn size(&self) -> Bytes {
            Bytes::new(1500) * self.0
        }

        fn packets(&self) -> Packets {
            Packets::new(self.0)
        }
    }

    let config: HopConfig = "delay=1ms".parse().unwrap();
    assert!(config.keeps_together());
    let mut hop = config.build(Pcg64::new(SEED, 0)).unwrap();
    let full = Hop::<Fifo<Segments>, Segments, Pcg64>::LINE_BYTES.get() / (40 * 1500);
    let mut dropped = 0;
    for _ in 0..=full {
        hop.enqueue(Time::ZERO, Segments(40), &mut |_| dropped += 1);
    }
    // The last one fails at the line as soon as the hop is driven.
    assert_eq!(hop.poll(Time::ZERO, &mut |_| dropped += 1), None);
    assert_eq!((hop.inside(), dropped), (Packets::new(40 * full), 1));
    assert_eq!(hop.stats().drops.of(DropReason::LineFull), Packets::new(40));
    let never = &mut |drop: Drop<Segments>| panic!("{drop:?}");
    assert_eq!(hop.poll(at_ms(1), never).map(|one| one.packet), Some(Segments(40)));
    assert_eq!(hop.inside(), Packets::new(40 * (full - 1)));
    let HopStats { arrived, delivered, .. } = hop.stats();
    assert_eq!(arrived.packets, Packets::new(40 * (full + 1)));
    assert_eq!((delivered.packets, delivered.bytes), (Packets::new(40), Bytes::new(60_000)));
}

fn jittered(order: &str) -> Vec<Delivered<Update>> {
    let mut path = path(&[&format!("delay=10ms,jitter=5ms,order={order}")]);
    for id in 0..1_000 {
        let now = at_ms(id);
        path.enqueue(now, kilobyte(id), &mut no_drop);
    }
    // The driver comes when all is over.
    std::iter::from_fn(|| path.poll(at_ms(10_000), &mut no_drop)).collect()
}

#[test]
fn jitter_reorders_only_when_asked() {
    let kept = jittered("kept");
    assert!(kept.is_sorted_by_key(|delivered| delivered.packet.id));
    assert!(kept.is_sorted_by_key(|delivered| delivered.at));

    let free = jittered("free");
    assert!(!free.is_sorted_by_key(|delivered| delivered.packet.id));
    assert!(free.is_sorted_by_key(|delivered| delivered.at));
    let delays = free.iter().map(|delivered| delivered.at.since(at_ms(delivered.packet.id)));
    assert!(
        delays
            .clone()
            .all(|delay| { (Span::from_millis(5)..=Span::from_millis(15)).contains(&delay) })
    );
    // Uniform ± 5 ms: the mean of 1,000 has a standard error of 0.09 ms.
    let mean = delays.map(Span::as_millis_f64).sum::<f64>() / 1e3;
    assert!((mean - 10.0).abs() < 0.4, "{mean} ms");
}

#[test]
fn poisson_arrivals_wait_as_long_as_queueing_theory_says() {
    // M/D/1: mean wait ρ / (2 (1 − ρ)) services (Pollaczek-Khinchine); ρ = 0.6, service 1 ms.
    let mut path = path(&["rate=8mbit,queue=10000p"]);
    let mut rng = Pcg64::new(SEED, 99);
    let mut now = Time::ZERO;
    for id in 0..200_000 {
        let gap = -(1.0 - rng.random::<f64>()).ln() / 600.0;
        now += Span::from_secs_f64(gap);
        path.enqueue(now, kilobyte(id), &mut no_drop);
        while path.poll(now, &mut no_drop).is_some() {}
    }
    let wait = path.hops()[0].stats().sojourn.mean().as_millis_f64();
    assert!((wait / 0.75 - 1.0).abs() < 0.03, "{wait} ms, theory 0.75 ms");
    let utilisation = path.hops()[0].busy(now).as_secs_f64() / now.since(Time::ZERO).as_secs_f64();
    assert!((utilisation - 0.6).abs() < 0.01, "{utilisation}");
}

/// Lets one packet go every 10 ms: not work-conserving.
struct Gate {
    waiting: Fifo<Update>,
    opens: Time,
}

impl Qdisc<Update> for Gate {
    fn enqueue(&mut self, now: Time, packet: Update, drops: &mut Drops<'_, Update>) {
        self.waiting.enqueue(now, packet, drops);
    }

    fn dequeue(&mut self, now: Time, drops: &mut Drops<'_, Update>) -> Option<Dequeued<Update>> {
        if now < self.opens {
            return None;
        }
        let next = self.waiting.dequeue(now, drops)?;
        self.opens = now + Span::from_millis(10);
        Some(next)
    }

    fn poll_timeout(&self) -> Option<Time> {
        (self.backlog() != Backlog::default()).then_some(self.opens)
    }

    fn backlog(&self) -> Backlog {
        self.waiting.backlog()
    }
}

#[test]
fn a_queue_may_make_the_link_wait() {
    let gate = Gate { waiting: Fifo::new(Limit::default()), opens: at_ms(5) };
    let mut hop = Hop::new(LinkParams::default(), gate, Pcg64::new(SEED, 0));
    for id in 0..3 {
        hop.enqueue(Time::ZERO, kilobyte(id), &mut no_drop);
    }
    assert_eq!(hop.poll_timeout(), Some(at_ms(5)));
    let late = at_ms(1_000);
    let out: Vec<_> = std::iter::from_fn(|| hop.poll(late, &mut no_drop)).collect();
    assert_eq!(arrivals(&out), [(0, at_ms(5)), (1, at_ms(15)), (2, at_ms(25))]);
}

/// A hop that follows a trace.
fn traced(trace: &str, rest: &str) -> HopConfig {
    let mut hop: HopConfig = rest.parse().unwrap();
    hop.trace = Some(TraceConfig::File(TraceFile::new("test")));
    hop.read_trace(|_| Ok::<_, std::io::Error>(trace.to_owned())).unwrap();
    hop
}

fn traced_path(trace: &str, rest: &str) -> TestPath {
    let hop = vec![traced(trace, rest)];
    PathConfig { hop }.build(|hop| Pcg64::new(SEED, hop as u128)).unwrap()
}

#[test]
fn a_trace_delivers_1500_bytes_an_opportunity() {
    let mut path = traced_path("5\n10\n", "delay=1ms");
    let sizes = [500, 1000, 1000, 1000, 2500];
    for (id, size) in (0..).zip(sizes) {
        path.enqueue(Time::ZERO, Update { id, size }, &mut no_drop);
    }
    // 5 ms: packets 0 and 1. 10 ms: 2 and the half of 3. 15 ms: the rest of 3 and 1000 bytes of
    // 4; 20 ms: the rest of it.
    let expected = [(0, 6), (1, 6), (2, 11), (3, 16), (4, 21)];
    assert_eq!(arrivals(&drain(&mut path)), expected.map(|(id, at)| (id, at_ms(at))));
    let hop = &path.hops()[0];
    assert_eq!(hop.stats().sojourn.max(), Span::from_millis(15));
    assert_eq!(hop.utilisation(Time::ZERO, at_ms(20)), 1.0);
    assert_eq!(hop.utilisation(Time::ZERO, at_ms(40)), 0.5);
}

#[test]
fn an_opportunity_that_nothing_waits_for_is_gone() {
    let mut path = traced_path("5\n5\n8\n", "queue=1p");
    // It comes with the opportunities of 5 ms, and so too late for them.
    path.enqueue(at_ms(5), kilobyte(0), &mut no_drop);
    // While it waits for its opportunity, it waits in the queue.
    let mut dropped = Vec::new();
    path.enqueue(at_ms(6), kilobyte(1), &mut |drop| dropped.push(drop.packet.id));
    assert_eq!(dropped, [1]);
    assert_eq!(path.poll_timeout(), Some(at_ms(8)));
    // Hours later, the rest of 8 ms is gone as well.
    path.enqueue(at_ms(8_000_000), kilobyte(2), &mut no_drop);
    let late = at_ms(9_000_000);
    let out: Vec<_> = std::iter::from_fn(|| path.poll(late, &mut no_drop)).collect();
    assert_eq!(arrivals(&out), [(0, at_ms(8)), (2, at_ms(8_000_005))]);
}

#[test]
fn what_is_larger_than_the_mtu_is_dropped_in_front_of_the_queue() {
    let mut path = path(&["mtu=1000B,rate=8mbit"]);
    let mut dropped = Vec::new();
    path.enqueue(Time::ZERO, kilobyte(0), &mut no_drop);
    path.enqueue(Time::ZERO, Update { id: 1, size: 1001 }, &mut |drop| dropped.push(drop.reason));
    assert_eq!(dropped, [DropReason::TooBig]);
    assert_eq!(path.hops()[0].stats().drops.of(DropReason::TooBig), Packets::new(1));
    assert_eq!(arrivals(&drain(&mut path)), [(0, at_ms(1))]);
}

#[test]
fn packets_can_be_watched_as_they_pass_from_hop_to_hop() {
    let mut path = path(&["delay=2ms", "delay=3ms", "delay=4ms"]);
    let mut seen = Vec::new();
    path.enqueue(Time::ZERO, kilobyte(0), &mut no_drop);
    path.advance(at_ms(20), &mut no_drop, &mut |hop, delivered| seen.push((hop, delivered.at)));
    assert_eq!(seen, [(0, at_ms(2)), (1, at_ms(5))]);
    assert_eq!(arrivals(&drain(&mut path)), [(0, at_ms(9))]);
}

/// A path of one to four arbitrary hops.
fn any_path() -> impl Strategy<Value = Vec<HopConfig>> {
    let hop = (0u64..20_000, 0u64..30, any::<bool>(), 0u64..5, 1u64..6).prop_map(
        |(kbit, delay, free, loss, queue)| {
            let order = if free { "free" } else { "kept" };
            let jitter = delay / 2;
            let rest = format!("delay={delay}ms,jitter={jitter}ms,order={order}");
            let rest = format!("{rest},loss=0.{loss},queue={queue}p");
            match kbit {
                0..1_000 => rest.parse().unwrap(),
                1_000..5_000 => traced("0 delay=7ms\n3\n3\n4\n6 delay=2ms\n9\n", &rest),
                5_000..6_000 => format!("{rest},mtu=2000B,to_bad=0.1,to_good=0.4").parse().unwrap(),
                _ => format!("rate={kbit}kbit,{rest}").parse().unwrap(),
            }
        },
    );
    prop::collection::vec(hop, 1..5)
}

/// Gaps between packets (µs), their sizes, and whether the driver polls in between.
fn any_traffic() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
    prop::collection::vec((0u64..20_000, 1u64..3_000, any::<bool>()), 1..80)
}

/// The fate of each packet, by a driver that polls when `polls` is true and otherwise late.
fn fate(
    hops: &[HopConfig],
    traffic: &[(u64, u64, bool)],
    polls: impl Fn(bool) -> bool,
) -> (Vec<Delivered<Update>>, Vec<Drop<Update>>) {
    let config = PathConfig { hop: hops.to_vec() };
    let mut path: TestPath = config.build(|hop| Pcg64::new(SEED, hop as u128)).unwrap();
    let (mut out, mut dropped) = (Vec::new(), Vec::new());
    let mut now = Time::ZERO;
    for (id, (gap, size, poll)) in traffic.iter().enumerate() {
        now += Span::from_micros(*gap);
        let update = Update { id: id as u64, size: *size };
        path.enqueue(now, update, &mut |drop| dropped.push(drop));
        while let Some(delivered) =
            polls(*poll).then(|| path.poll(now, &mut |drop| dropped.push(drop))).flatten()
        {
            out.push(delivered);
        }
        let counted = out.len() as u64 + dropped.len() as u64 + path.inside().get();
        assert_eq!(counted, id as u64 + 1, "in = out + dropped + inside");
    }
    let end = now + Span::from_secs(3_600);
    out.extend(std::iter::from_fn(|| path.poll(end, &mut |drop| dropped.push(drop))));
    assert_eq!(path.inside(), Packets::ZERO);

    let counted: u64 = path.hops().iter().map(|hop| hop.stats().drops.total().get()).sum();
    assert_eq!(counted, dropped.len() as u64);
    for pair in path.hops().windows(2) {
        assert_eq!(pair[0].stats().delivered, pair[1].stats().arrived);
    }
    dropped.sort_by_key(|drop| drop.packet.id);
    (out, dropped)
}

proptest! {
    #[test]
    fn nothing_vanishes_and_a_late_driver_changes_nothing(
        hops in any_path(),
        traffic in any_traffic(),
    ) {
        let punctual = fate(&hops, &traffic, |_| true);
        prop_assert_eq!(&fate(&hops, &traffic, |poll| poll), &punctual);
        prop_assert_eq!(&fate(&hops, &traffic, |_| false), &punctual);
    }
}

#[test]
fn small_packets_take_the_time_of_their_frames() {
    let sent_after = |hop: &str, size: u64| {
        let mut path = path(&[hop]);
        for id in 0..100 {
            path.enqueue(Time::ZERO, Update { id, size }, &mut no_drop);
        }
        drain(&mut path).last().unwrap().at.since(Time::ZERO)
    };
    let mbit = BitRate::from_mbps(1);
    for (framing, size, wire) in
        [("raw", 40, 40), ("ethernet", 40, 84), ("pppoe-vcmux", 40, 106), ("pppoe-ptm", 40, 72)]
    {
        let hop = format!("rate=1mbit,framing={framing}");
        assert_eq!(sent_after(&hop, size), mbit.time_to_send(Bytes::new(100 * wire)), "{framing}");
    }
}

#[test]
fn a_transmitter_that_stood_still_sends_no_burst_when_told_to_forgo() {
    let config: HopConfig = "rate=1mbit".parse().unwrap();
    let mut hop = config.build(Pcg64::new(SEED, 0)).unwrap();
    for id in 0..200 {
        hop.enqueue(at_ms(0), kilobyte(id), &mut no_drop);
    }
    // A packet takes 8 ms. Its driver slept from 20 to 1020 ms.
    let mut sent_by = |ms: u64| {
        hop.forgo_until(at_ms(ms) - Span::from_millis(5));
        std::iter::from_fn(|| hop.poll(at_ms(ms), &mut no_drop)).count()
    };
    assert_eq!((sent_by(8), sent_by(20)), (1, 1));
    assert_eq!(sent_by(1020), 1, "not 125 at once");
    assert_eq!(sent_by(1022), 0);
    assert_eq!(sent_by(1023), 1, "and goes on at the rate");
}

/// For every discipline, however long and often its driver sleeps: in any 50 ms a link sends at
/// most the bytes that the rate carries in this time and in the 5 ms that it makes up for, and the
/// packet in transmission at either end.
#[test]
fn no_window_is_above_rate_and_burst_whatever_the_discipline_and_the_pauses() {
    const RATE: BitRate = BitRate::from_mbps(4);
    const WINDOW: Span = Span::from_millis(50);
    const ARREARS: Span = Span::from_millis(5);
    const SIZE: u64 = 1000;
    for queue in ["1000p", "lifo", "red", "codel", "drr", "fq_codel", "ifil", "ifc"] {
        let config: HopConfig = format!("rate=4mbit,queue={queue}").parse().unwrap();
        let mut hop = config.build(Pcg64::new(SEED, 0)).unwrap();
        let mut rng = Pcg64::new(SEED, 1);
        let (mut now, mut sent) = (Time::ZERO, Vec::new());
        for id in 0..2000 {
            hop.enqueue(now, Update { id, size: SIZE }, &mut |_| ());
            hop.enqueue(now, Update { id: id + 10_000, size: SIZE }, &mut |_| ());
            // Awake in time, late by a little, or stopped.
            now += match rng.random_range(0..100) {
                0 => Span::from_millis(300),
                1..10 => Span::from_micros(rng.random_range(0..20_000)),
                _ => Span::from_micros(rng.random_range(0..3_000)),
            };
            hop.forgo_until(Time::from_nanos(now.as_nanos().saturating_sub(ARREARS.as_nanos())));
            sent.extend(std::iter::from_fn(|| hop.poll(now, &mut |_| ())).map(|_| now));
        }
        assert!(sent.len() > 100, "{queue}: {}", sent.len());
        let most =
            (RATE.as_bps() / 8 * (WINDOW + ARREARS).as_millis_f64() as u64) / 1000 + 2 * SIZE;
        for (first, from) in sent.iter().enumerate() {
            let within =
                sent[first..].iter().take_while(|at| at.since(*from) <= WINDOW).count() as u64;
            assert!(within * SIZE <= most, "{queue}: {within} packets from {from:?}");
        }
    }
}
