//! Laws of the receive window, between the lab's TCP and a queue without any other limit.

#[path = "common/tcp_net.rs"]
mod tcp_net;

use std::sync::Arc;

use freshline_core::link::{Hop, LinkParams, Path, Trace};
use freshline_core::receiver::{
    Delta, DrwaParams, Remote, RtacParams, Slope, WindowLawConfig, slope,
};
use freshline_core::router::{Discipline, Limit, QdiscConfig};
use freshline_core::unit::{BitRate, Bytes, Packets, Span};
use freshline_lab::tcp::congestion::Algorithm;
use freshline_lab::tcp::{Receiver, ReceiverParams, SenderParams};
use rand_pcg::Pcg64;
use tcp_net::{Carried, Net, at, law};

type Bottleneck = Net<Discipline<Carried>>;

/// The round trip of an empty path, without a packet's own transmission time.
const BASE: Span = Span::from_millis(20);
const BACK: &str = "delay=10ms";
/// Payload rate of a link of 20 Mbit/s, in Mbit/s.
const GOODPUT_OF_20: f64 = 20.0 * 1448.0 / 1500.0;

/// A base RTT of 20 ms, and a far too large buffer.
fn bloated(rate: &str) -> Bottleneck {
    Net::over(&format!("rate={rate},delay=10ms,queue=2000p"), BACK, 1)
}

fn rtac() -> WindowLawConfig {
    WindowLawConfig::Rtac(RtacParams::default())
}

/// A receiver whose window follows `config`, and which knows `remote`.
fn receiver(config: WindowLawConfig, remote: &Remote) -> Receiver {
    let params = ReceiverParams::default();
    let law = config.build(params.buffer.windows(), remote).expect("settings of a law");
    Receiver::with_law(params, law)
}

/// Adds a stream without end from `remote`.
fn add_from(net: &mut Bottleneck, remote: &Remote, control: Algorithm, config: WindowLawConfig) {
    let id = net.add_towards(receiver(config, remote), law(control), SenderParams::default());
    net.with_sender(id, |sender| sender.set_unlimited());
}

/// Adds a stream without end from a host of its own.
fn add(net: &mut Bottleneck, control: Algorithm, config: WindowLawConfig) {
    add_from(net, &Remote::default(), control, config);
}

/// Goodput of each stream over the next `seconds`, in Mbit/s, and the mean round trip of all.
fn measured(net: &mut Bottleneck, seconds: u64) -> (Vec<f64>, Span) {
    let before: Vec<_> =
        net.streams.iter().map(|s| (s.receiver.delivered(), *s.sender.stats())).collect();
    net.run(net.now + Span::from_secs(seconds));
    let (mut sum, mut samples) = (Span::ZERO, 0);
    let mut rates = Vec::new();
    for (stream, (bytes, stats)) in net.streams.iter().zip(before) {
        let bytes = (stream.receiver.delivered() - bytes).get();
        rates.push(bytes as f64 * 8.0 / 1e6 / seconds as f64);
        sum += stream.sender.stats().rtt_sum - stats.rtt_sum;
        samples += stream.sender.stats().rtt_samples - stats.rtt_samples;
    }
    (rates, sum / samples)
}

#[test]
fn rtac_takes_the_queue_away_and_leaves_the_rate() {
    for (rate, mbit) in [("5mbit", 5.0), ("20mbit", 20.0), ("100mbit", 100.0)] {
        let mut net = bloated(rate);
        add(&mut net, Algorithm::Cubic, rtac());
        net.run(at(2.0));
        let (rates, rtt) = measured(&mut net, 10);
        println!("{rate}: {rates:.2?} Mbit/s, {rtt}");
        let own = Span::from_secs_f64(12_000e-6 / mbit);
        assert!(rtt <= (BASE + own).mul_f64(1.5), "{rate}: {rtt}");
        assert!(rates[0] > 0.97 * mbit * 1448.0 / 1500.0, "{rate}: {rates:?}");
    }
    let mut net = bloated("20mbit");
    add(&mut net, Algorithm::Cubic, WindowLawConfig::Autotune);
    net.run(at(9.0));
    let (_, rtt) = measured(&mut net, 1);
    assert!(rtt > Span::from_millis(400), "without it, {rtt}");
}

#[test]
fn rtac_does_so_whatever_the_sender_runs() {
    for control in [Algorithm::Reno, Algorithm::Bbr, Algorithm::HTcp, Algorithm::Westwood] {
        let mut net = bloated("20mbit");
        add(&mut net, control, rtac());
        net.run(at(2.0));
        let (rates, rtt) = measured(&mut net, 20);
        println!("{control}: {rates:.2?} Mbit/s, {rtt}");
        assert!(rtt <= BASE.mul_f64(1.5) && rates[0] > 0.97 * GOODPUT_OF_20, "{control}");
    }
}

/// K for 20 Mbit/s and 20 ms: in flight is then θ times the BDP, as (2.11) has it.
#[test]
fn algorithm_1_as_printed_settles_where_its_k_says() {
    let bdp = 20e6 * BASE.as_secs_f64() / 8.0 / 1500.0;
    let slope = Slope::Fixed(slope(bdp, RtacParams::default().theta));
    let pure = RtacParams { slope, pure: true, ..RtacParams::default() };
    let mut net = bloated("20mbit");
    add(&mut net, Algorithm::Cubic, WindowLawConfig::Rtac(pure));
    net.run(at(5.0));
    let (rates, rtt) = measured(&mut net, 10);
    println!("{rates:.2?} Mbit/s, {rtt}");
    assert!(rates[0] > 0.97 * GOODPUT_OF_20, "{rates:?}");
    assert!(rtt > BASE.mul_f64(1.25) && rtt < BASE.mul_f64(1.5), "{rtt}");
}

#[test]
fn flows_of_one_host_share_the_path_and_its_short_queue() {
    for seed_of_starts in 0..3 {
        let mut net = bloated("20mbit");
        let remote = Remote::default();
        for flow in 0..4 {
            add_from(&mut net, &remote, Algorithm::Cubic, rtac());
            net.run(at(f64::from(flow * seed_of_starts) * 0.7));
        }
        net.run(at(10.0));
        let (rates, rtt) = measured(&mut net, 20);
        println!("{rates:.2?} Mbit/s, {rtt}");
        assert!(rtt <= BASE.mul_f64(1.6), "{rtt}");
        let sum: f64 = rates.iter().sum();
        let jain = sum * sum / 4.0 / rates.iter().map(|rate| rate * rate).sum::<f64>();
        assert!(sum > 0.97 * GOODPUT_OF_20 && jain > 0.85, "{rates:?}");
    }
}

#[test]
fn a_link_that_becomes_slower_and_faster_is_followed_within_two_seconds() {
    let mut net = stepping(Span::ZERO);
    add(&mut net, Algorithm::Cubic, rtac());
    for (from, until, mbit) in [(2.0, 10.0, 20.0), (12.0, 20.0, 5.0), (22.0, 30.0, 20.0)] {
        net.run(at(from));
        let (rates, rtt) = measured(&mut net, (until - from) as u64);
        println!("{mbit} Mbit/s: {rates:.2?} Mbit/s, {rtt}");
        assert!(rates[0] > 0.97 * mbit * 1448.0 / 1500.0, "{rates:?}");
        assert!(rtt < Span::from_millis(35), "{rtt}");
    }
}

/// When the capacity drops to a fourth, the data in flight takes four times as long. The window
/// must not add to that: an earlier version let it grow with the round trip while the rate was
/// still the old one.
#[test]
fn a_drop_of_the_capacity_costs_no_more_than_the_queue_that_it_finds() {
    let before = BASE + BitRate::from_mbps(20).time_to_send(Bytes::new(1500));
    let unavoidable = before.mul_f64(RtacParams::default().theta) * 4;
    // Buckets of the rate end every 200 ms: the drop meets them at different times.
    let mut worst = Span::ZERO;
    for phase in 0..16 {
        let phase = Span::from_millis(25) * phase;
        let mut net = stepping(phase);
        add(&mut net, Algorithm::Cubic, rtac());
        net.run(at(10.0) + phase);
        let mut longest = Span::ZERO;
        for _ in 0..100 {
            let before = *net.streams[0].sender.stats();
            net.run(net.now + Span::from_millis(20));
            let after = *net.streams[0].sender.stats();
            let samples = (after.rtt_samples - before.rtt_samples).max(1);
            longest = longest.max((after.rtt_sum - before.rtt_sum) / samples);
        }
        println!("{phase} later: at most {longest}, of which {unavoidable} cannot be avoided");
        worst = worst.max(longest);
    }
    assert!(worst <= unavoidable.mul_f64(1.35), "{worst}");
}

/// 20 Mbit/s, 5 from 10 to 20 s, and 20 again; each change `later`.
fn stepping(later: Span) -> Bottleneck {
    let later = later.as_micros();
    let packets = move |micros: u64, from: u64, until: u64| {
        let from = if from > 0 { from * 1_000_000 + later } else { 0 };
        let until = until * 1_000_000 + later;
        (from.div_ceil(micros)..until.div_ceil(micros)).map(move |n| n * micros / 1000)
    };
    let times = packets(600, 0, 10).chain(packets(2400, 10, 20)).chain(packets(600, 20, 40));
    let text: String = times.map(|ms| format!("{ms}\n")).collect();
    let trace = Arc::new(Trace::parse(&text).expect("a trace"));
    let link =
        LinkParams { trace: Some(trace), delay: Span::from_millis(10), ..LinkParams::default() };
    let queue = QdiscConfig::Fifo { limit: Limit::Packets(Packets::new(2000)) };
    let mut rng = Pcg64::new(1, 1);
    let queue = queue.build(&mut rng).expect("a queue");
    Net::new(Path::new(Hop::new(link, queue, rng)), BACK, 1)
}

/// Goodput of a stream with `config` over a minute, relative to a stream with auto-tuning in the
/// same buffer of `queue` packets; it begins `later` seconds after that stream, or before it.
fn share(config: WindowLawConfig, queue: u32, later: f64) -> f64 {
    let mut net = Net::over(&format!("rate=20mbit,delay=10ms,queue={queue}p"), BACK, 1);
    let mut order = [(0, WindowLawConfig::Autotune), (1, config)];
    if later < 0.0 {
        order.reverse();
    }
    add(&mut net, Algorithm::Cubic, order[0].1);
    net.run(at(later.abs()));
    add(&mut net, Algorithm::Cubic, order[1].1);
    let (rates, _) = measured(&mut net, 60);
    let rate_of = |which| rates[order.iter().position(|(id, _)| *id == which).expect("both")];
    rate_of(1) / rate_of(0)
}

/// The mean of [`share`] over starts that are slightly apart: it is a matter of chance which of two
/// streams has a loss.
fn mean_share(config: WindowLawConfig, queue: u32, later: f64) -> f64 {
    let starts = [-0.08, -0.05, -0.02, 0.02, 0.05, 0.08];
    let shares = starts.map(|apart| share(config, queue, later + apart));
    shares.iter().sum::<f64>() / shares.len() as f64
}

/// Jitter looks like a queue that no window shortens; to take it for others' would let one stand.
#[test]
fn alone_on_a_path_with_jitter_rtac_keeps_its_queue_short() {
    let rtts = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].map(|seed| {
        let back = "delay=9ms,jitter=4ms";
        let mut net = Net::over("rate=20mbit,delay=5ms,queue=640p", back, seed);
        add(&mut net, Algorithm::Cubic, rtac());
        net.run(at(3.0));
        measured(&mut net, 60).1
    });
    println!("{rtts:?}");
    assert!(rtts.iter().all(|rtt| *rtt < Span::from_millis(40)), "{rtts:?}");
}

/// Without Δ, a lucky RTTm makes the window too small for paths whose delay varies: the figures of
/// docs/receiver.md, and the goodput that a Δ by hand restores.
#[test]
fn delta_gives_back_what_varying_delay_costs() {
    for (name, rate, hop, back, delta) in [
        ("LTE", 57.0, "rate=57mbit,delay=14700us,queue=5000p", "delay=25ms,jitter=10ms", 18),
        ("Wi-Fi", 19.6, "rate=19600kbit,delay=5ms,queue=640p", "delay=9ms,jitter=4ms", 8),
    ] {
        let parts = |delta| {
            let delta = Delta::Fixed(delta);
            let config = WindowLawConfig::Rtac(RtacParams { delta, ..RtacParams::default() });
            [1, 2, 3, 4, 5, 6, 7, 8].map(|seed| {
                let mut net = Net::over(hop, back, seed);
                add(&mut net, Algorithm::Cubic, config);
                net.run(at(3.0));
                let (rates, _) = measured(&mut net, 7);
                rates[0] / (rate * 1448.0 / 1500.0)
            })
        };
        let (without, with) = (parts(Span::ZERO), parts(Span::from_millis(delta)));
        let mean = |parts: &[f64]| parts.iter().sum::<f64>() / parts.len() as f64;
        println!(
            "{name}: {:.2} of {without:.2?}; {:.2} of {with:.2?}",
            mean(&without),
            mean(&with)
        );
        assert!(with.iter().all(|part| *part > 0.95), "{name}: {with:?}");
    }
}

#[test]
fn beside_a_flow_that_fills_the_queue_rtac_gets_its_share_and_drwa_starves() {
    let queues = [100, 200, 500, 1000, 2000];
    let shares = queues.map(|queue| mean_share(rtac(), queue, 0.0));
    println!("{queues:?} packets: {shares:.2?}");
    // Six starts leave each of them uncertain by 0.06.
    assert!(shares.iter().all(|share| (0.75..1.2).contains(share)), "{shares:?}");
    assert!(shares.iter().sum::<f64>() / 5.0 >= 0.85, "{shares:?}");
    let drwa = share(WindowLawConfig::Drwa(DrwaParams::default()), 200, 0.0);
    assert!(drwa < 0.1, "{drwa}");
}

#[test]
fn rtac_that_comes_late_gets_what_auto_tuning_would_that_comes_late() {
    for later in [1.0, 2.0] {
        let rtac = mean_share(rtac(), 500, later);
        let tuned = mean_share(WindowLawConfig::Autotune, 500, later);
        println!("{later} s late: {rtac:.2}, auto-tuning {tuned:.2}");
        assert!(rtac > 0.85 * tuned, "{later} s late: {rtac}, auto-tuning {tuned}");
    }
}

#[test]
fn when_the_others_have_gone_the_queue_goes_too() {
    let mut net = Net::over("rate=20mbit,delay=10ms,queue=500p", BACK, 1);
    add(&mut net, Algorithm::Cubic, rtac());
    let id = net.add_towards(
        receiver(WindowLawConfig::Autotune, &Remote::default()),
        law(Algorithm::Cubic),
        SenderParams::default(),
    );
    while net.now < at(10.0) {
        net.with_sender(id, |sender| sender.write(Bytes::new(1 << 20)));
        net.run(net.now + Span::from_millis(100));
    }
    net.run(at(32.0));
    let before = *net.streams[0].sender.stats();
    net.run(at(36.0));
    let after = net.streams[0].sender.stats();
    let rtt = (after.rtt_sum - before.rtt_sum) / (after.rtt_samples - before.rtt_samples);
    assert!(rtt < BASE.mul_f64(1.6), "{rtt}");
}

#[test]
fn short_transfers_take_as_long_as_without() {
    for path in ["rate=20mbit,delay=10ms,queue=2000p", "rate=100mbit,delay=50ms,queue=2000p"] {
        for size in [200_000, 1_000_000] {
            let mut took = Vec::new();
            for config in [WindowLawConfig::Autotune, rtac()] {
                let mut net = Net::over(path, BACK, 1);
                let to = receiver(config, &Remote::default());
                let id = net.add_towards(to, law(Algorithm::Cubic), SenderParams::default());
                let mut left = size;
                while !net.streams[id].receiver.is_finished() {
                    left -= net.with_sender(id, |sender| sender.write(Bytes::new(left))).get();
                    if left == 0 {
                        net.with_sender(id, |sender| sender.close());
                    }
                    net.run(net.now + Span::from_millis(1));
                }
                took.push(net.now.as_nanos() as f64 / 1e6);
            }
            println!("{size} bytes over {path}: {took:?} ms");
            assert!(took[1] <= took[0] * 1.05, "{size} bytes over {path}: {took:?}");
        }
    }
}
