//! RTAC with a learnt Δ: paths whose delay varies, paths whose delay does not, and competing flows.

#[path = "common/tcp_net.rs"]
mod tcp_net;

use freshline_core::receiver::{Delta, Remote, RtacParams, WindowLawConfig};
use freshline_core::router::Discipline;
use freshline_core::unit::Span;
use freshline_lab::tcp::congestion::Algorithm;
use freshline_lab::tcp::{Receiver, ReceiverParams, SenderParams};
use tcp_net::{Carried, Net, at, law};

type Bottleneck = Net<Discipline<Carried>>;

const NONE: Delta = Delta::Fixed(Span::ZERO);

/// A path: its name, its rate in Mbit/s, its hops, and Δ as one would set it by hand, ms.
type Path = (&'static str, f64, &'static str, &'static str, u64);

/// Those of the thesis (scenarios `rtac/lte` and `rtac/wifi`).
const LTE: Path =
    ("LTE", 57.0, "rate=57mbit,delay=14700us,queue=5000p", "delay=25ms,jitter=10ms", 18);
const WIFI: Path =
    ("Wi-Fi", 19.6, "rate=19600kbit,delay=5ms,queue=640p", "delay=9ms,jitter=4ms", 8);
const WIRED: Path = ("wired", 20.0, "rate=20mbit,delay=10ms,queue=2000p", "delay=10ms", 0);

fn rtac(delta: Delta) -> WindowLawConfig {
    WindowLawConfig::Rtac(RtacParams { delta, ..RtacParams::default() })
}

/// Adds a stream without end from `remote`.
fn add(net: &mut Bottleneck, remote: &Remote, config: WindowLawConfig) {
    let params = ReceiverParams::default();
    let window = config.build(params.buffer.windows(), remote).expect("settings of a law");
    let to = Receiver::with_law(params, window);
    let id = net.add_towards(to, law(Algorithm::Cubic), SenderParams::default());
    net.with_sender(id, |sender| sender.set_unlimited());
}

/// Goodput of each stream over the next `seconds`, in Mbit/s, and the mean round trip, in ms.
fn measured(net: &mut Bottleneck, seconds: u64) -> (Vec<f64>, f64) {
    let before: Vec<_> =
        net.streams.iter().map(|s| (s.receiver.delivered(), *s.sender.stats())).collect();
    net.run(net.now + Span::from_secs(seconds));
    let (mut sum, mut samples, mut rates) = (Span::ZERO, 0, Vec::new());
    for (stream, (bytes, stats)) in net.streams.iter().zip(before) {
        let bytes = (stream.receiver.delivered() - bytes).get();
        rates.push(bytes as f64 * 8.0 / 1e6 / seconds as f64);
        sum += stream.sender.stats().rtt_sum - stats.rtt_sum;
        samples += stream.sender.stats().rtt_samples - stats.rtt_samples;
    }
    (rates, (sum / samples.max(1)).as_millis_f64())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// A stream without competing flows.
#[derive(Debug)]
struct Alone {
    /// Goodput of each seed, as a fraction of the rate.
    parts: Vec<f64>,
    rtt_ms: f64,
    delta_ms: f64,
}

impl Alone {
    fn least(&self) -> f64 {
        self.parts.iter().copied().fold(f64::MAX, f64::min)
    }
}

fn alone((name, mbit, hop, back, _): Path, delta: Delta, seeds: std::ops::Range<u64>) -> Alone {
    let (mut parts, mut rtts, mut deltas) = (Vec::new(), Vec::new(), Vec::new());
    for seed in seeds {
        let mut net = Net::over(hop, back, seed);
        let remote = Remote::default();
        add(&mut net, &remote, rtac(delta));
        let (rates, rtt) = measured(&mut net, 30);
        parts.push(rates[0] / (mbit * 1448.0 / 1500.0));
        rtts.push(rtt);
        deltas.push(remote.delta().as_millis_f64());
    }
    let alone = Alone { parts, rtt_ms: mean(&rtts), delta_ms: mean(&deltas) };
    println!(
        "{name:<13} Δ {:<6} goodput {:.3}, worst {:.3}; round trip {:>5.1} ms; learnt {:.1} ms",
        delta.to_string(),
        mean(&alone.parts),
        alone.least(),
        alone.rtt_ms,
        alone.delta_ms
    );
    alone
}

#[test]
fn a_learnt_delta_gives_back_what_varying_delay_costs() {
    for path in [LTE, WIFI] {
        let [without, learnt, by_hand] =
            [NONE, Delta::Learn, Delta::Fixed(Span::from_millis(path.4))]
                .map(|delta| alone(path, delta, 101..107));
        assert!(mean(&learnt.parts) > mean(&without.parts) + 0.05, "{without:?} {learnt:?}");
        assert!(mean(&learnt.parts) > 0.93, "{learnt:?}");
        assert!(learnt.rtt_ms < by_hand.rtt_ms, "{learnt:?} {by_hand:?}");
    }
}

#[test]
fn where_delay_does_not_vary_no_delta_is_learnt() {
    let long = ("wired, 100 ms", 100.0, "rate=100mbit,delay=50ms,queue=2000p", "delay=50ms", 0);
    for path in [WIRED, long] {
        let (without, learnt) = (alone(path, NONE, 1..2), alone(path, Delta::Learn, 1..2));
        assert_eq!(learnt.delta_ms, 0.0);
        assert!(learnt.rtt_ms < 1.03 * without.rtt_ms, "{without:?} {learnt:?}");
        assert!(mean(&learnt.parts) > mean(&without.parts) - 0.002, "{without:?} {learnt:?}");
    }
}

/// The goodput of a stream with RTAC over that of one with auto-tuning in one buffer, in a minute,
/// over starts that are a little apart.
fn share((name, mbit, hop, back, _): Path, delta: Delta, queue: u32) -> f64 {
    let hop = format!("{},queue={queue}p", hop.rsplit_once(",queue").expect("a queue").0);
    let starts = [-0.08, -0.05, -0.02, 0.02, 0.05, 0.08];
    let shares = starts.map(|apart: f64| {
        let mut net = Net::over(&hop, back, 1 + (apart.abs() * 100.0) as u64);
        let mut order = [WindowLawConfig::Autotune, rtac(delta)];
        if apart < 0.0 {
            order.reverse();
        }
        add(&mut net, &Remote::default(), order[0]);
        net.run(at(apart.abs()));
        add(&mut net, &Remote::default(), order[1]);
        let (rates, _) = measured(&mut net, 60);
        if apart < 0.0 { rates[0] / rates[1] } else { rates[1] / rates[0] }
    });
    let least = shares.iter().copied().fold(f64::MAX, f64::min);
    println!(
        "{name}, {mbit} Mbit/s, {queue} packets, Δ {delta}: {:.2}, worst {least:.2}",
        mean(&shares)
    );
    mean(&shares)
}

#[test]
fn a_learnt_delta_costs_no_share_alongside_a_plain_receiver() {
    for (path, queues) in [(WIRED, [40, 200, 500]), (WIFI, [40, 200, 500])] {
        for queue in queues {
            let (without, learnt) = (share(path, NONE, queue), share(path, Delta::Learn, queue));
            // Six starts leave each of them uncertain by 0.06.
            assert!(learnt > without - 0.12 && learnt > 0.6, "{queue}: {without} {learnt}");
        }
    }
}

/// Streams from one host, or from one each: the mean round trip in ms, and the largest of any seed.
fn together((name, _, hop, back, _): Path, delta: Delta, count: usize, hosts: usize) -> (f64, f64) {
    let (mut rtts, mut sums, mut jains) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 1..5_u32 {
        let mut net = Net::over(hop, back, seed.into());
        let remotes: Vec<_> = (0..hosts).map(|_| Remote::default()).collect();
        for flow in 0..count {
            add(&mut net, &remotes[flow % hosts], rtac(delta));
            net.run(at(flow as f64 * 0.1 * f64::from(seed)));
        }
        net.run(at(10.0));
        let (rates, rtt) = measured(&mut net, 20);
        let sum: f64 = rates.iter().sum();
        jains.push(sum * sum / count as f64 / rates.iter().map(|rate| rate * rate).sum::<f64>());
        sums.push(sum);
        rtts.push(rtt);
    }
    let most = rtts.iter().copied().fold(0.0, f64::max);
    println!(
        "{name}, {count} streams of {hosts} hosts, Δ {delta}: {:.2} Mbit/s, Jain {:.2}, \
         round trip {:.1} ms, at most {most:.1}",
        mean(&sums),
        mean(&jains),
        mean(&rtts)
    );
    (mean(&rtts), most)
}

/// A limit of a learnt Δ: queues that several hosts share. Without it they are no shorter for three
/// hosts and more.
#[test]
fn streams_of_one_host_share_a_short_queue_with_a_learnt_delta() {
    for path in [WIRED, WIFI, LTE] {
        for delta in [NONE, Delta::Learn] {
            let (_, of_one_host) = together(path, delta, 2, 1);
            together(path, delta, 2, 2);
            together(path, delta, 4, 4);
            let base = match path.0 {
                "wired" => 20.6,
                "Wi-Fi" => 18.0,
                _ => 49.7,
            };
            assert!(of_one_host < 1.6 * base, "{}: {of_one_host} ms", path.0);
        }
    }
}
