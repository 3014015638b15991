//! The shares that the nodes of a chain get of the path to the border router.

use std::thread;
use std::time::{Duration, Instant};

use freshline_core::age::jain_index;
use serde_json::Value;

use super::chain::{Chain, Kind, SENDERS};
use super::common::{assert_succeeded, can_run_with};
use super::lateness::Sleeper;
use super::streams::Streams;
use super::verdict::{TRIES, Verdict};
use super::{Alone, NAME, mesh, status};

const WARM_UP: Duration = Duration::from_secs(8);
const WINDOW: Duration = Duration::from_secs(24);

/// One run: a chain, and the streams of its senders.
struct Run {
    chain: Chain,
    streams: Streams,
}

impl Run {
    fn start(kind: Kind, congestion: &str) -> Self {
        let chain = Chain::new(kind);
        let streams = Streams::start(SENDERS.map(|hops| chain.connection(hops, congestion)));
        Self { chain, streams }
    }

    /// The `status` of each sender's connection.
    fn told(&self) -> [Value; 3] {
        SENDERS.map(|hops| {
            let told = status(self.chain.freshline(hops)).unwrap();
            let connections = told["connections"].as_array().unwrap();
            assert_eq!(connections.len(), 1, "{told}");
            connections[0].clone()
        })
    }
}

/// The results of the senders.
struct Outcome {
    /// In kbit/s.
    goodputs: Vec<f64>,
    jain: f64,
}

impl Outcome {
    fn new(goodputs: Vec<f64>) -> Self {
        let jain = jain_index(goodputs.iter().copied()).unwrap();
        Self { goodputs: goodputs.iter().map(|goodput| goodput * 1e3).collect(), jain }
    }

    fn sum(&self) -> f64 {
        self.goodputs.iter().sum()
    }

    fn row(&self) -> String {
        let each: Vec<_> = self.goodputs.iter().map(|goodput| format!("{goodput:>6.1}")).collect();
        format!("{} kbit/s, in all {:>6.1}, Jain {:.3}", each.join(" "), self.sum(), self.jain)
    }
}

/// While a connection waits its window stays below Reno's peak, √(8/(3p)), and one segment more. A
/// loss may have come since the window was held.
fn assert_is_held(connection: &Value) {
    let number = |key: &str| connection[key].as_f64().unwrap();
    let losses = number("timeouts") + number("fast_retransmits") - 1.0;
    if number("period_ms") > 0.0 && losses > 0.0 {
        let peak = (8.0 * number("segments") / (3.0 * losses)).sqrt();
        assert!(number("window") <= peak + 1.0, "{connection}");
    }
}

fn segments(told: &[Value; 3]) -> [f64; 3] {
    told.each_ref().map(|one| one["segments"].as_f64().unwrap())
}

/// The results of chains that ran at the same time.
struct Measured {
    reno: Outcome,
    dtpa: Outcome,
    /// Segments a second that each sender of DTPA's has sent.
    sent: [f64; 3],
    /// How long programs were kept waiting.
    late_ms: f64,
}

fn measured(name: &str, kind: Kind) -> Measured {
    let sleeper = Sleeper::start();
    let runs = ["reno", NAME].map(|congestion| Run::start(kind, congestion));
    thread::sleep(WARM_UP);
    let [reno, dtpa] = &runs;
    let (began, before) = (Instant::now(), segments(&dtpa.told()));
    let mut of_dtpa = Vec::new();
    let of_reno = reno.streams.goodputs(|| {
        of_dtpa = dtpa.streams.goodputs(|| thread::sleep(WINDOW));
    });
    let told = dtpa.told();
    let span = began.elapsed().as_secs_f64();
    for (hops, connection) in SENDERS.iter().zip(&told) {
        println!("  {hops} hops: {connection}");
        assert_is_held(connection);
    }
    let after = segments(&told);
    let sent = [0, 1, 2].map(|sender| (after[sender] - before[sender]) / span);
    let [reno, dtpa] = [of_reno, of_dtpa].map(Outcome::new);
    let late_ms = sleeper.end().p99_ms;
    println!("{name}, at 1, 3 and 6 hops\n  reno {}\n  dtpa {}", reno.row(), dtpa.row());
    println!("  dtpa has sent {sent:.1?} segments/s; {late_ms:.1} ms late");
    Measured { reno, dtpa, sent, late_ms }
}

/// A packet takes 8 ms over a link, and a round trip several times as long: a machine that keeps
/// programs waiting for this long may keep packets, too.
const TIMELY_MS: f64 = 50.0;

/// With DTPA, goodputs are much closer to each other, and their sum is not much less. The result of
/// a run is partly chance: one of three runs must show it. The link carries 125 segments a second,
/// of which a third is 41.7.
fn compare(name: &str, kind: Kind, settings: &str) {
    let _alone = Alone::new();
    assert_succeeded(&mesh(&format!("attach {settings}")));
    let once = || {
        let Measured { reno, dtpa, late_ms, .. } = measured(name, kind);
        let is_shown = dtpa.jain >= reno.jain + 0.08 && dtpa.sum() >= 0.75 * reno.sum();
        Verdict::of(is_shown, late_ms, TIMELY_MS)
    };
    assert!(once().or_again(once), "{name}");
}

/// Timeouts keep a sender with losses well below its share, so the share is set larger than all
/// senders could have at once.
#[test]
#[ignore = "long: measures rates in real time"]
fn nodes_have_alike_shares_where_links_lose_packets() {
    if can_run_with(&[]) {
        let kind = Kind { lost_of_1000: 20, has_hosts: true };
        compare("hosts behind nodes, 2 % lost a hop", kind, "--share 50");
    }
}

/// c in kbit/s of payload: 42 segments a second of 448 bytes.
const SHARE: f64 = 42.0 * 448.0 * 8.0 / 1e3;

/// TCP sees the queue of its own host's device, and limits its own packets in it to a few: without
/// DTPA the near node has the smallest share.
///
/// A connection has no period before its first loss. Three windows of 8 segments fit into the
/// queues of a chain, so that by chance none may be lost in the whole run, and the lucky connection
/// sends 70 segments a second. Windows of 16 do not fit: both far senders lose segments as they
/// begin.
#[test]
#[ignore = "long: measures rates in real time"]
fn nodes_that_send_themselves_have_alike_shares() {
    if !can_run_with(&[]) {
        return;
    }
    let _alone = Alone::new();
    assert_succeeded(&mesh("attach --share 42 --max-window 16"));
    let kind = Kind { lost_of_1000: 0, has_hosts: false };
    let name = "nodes themselves, no losses but in queues";
    for _ in 0..TRIES {
        let Measured { reno, dtpa, late_ms, .. } = measured(name, kind);
        let has_share = |goodput: &f64| (0.8..=1.1).contains(&(goodput / SHARE));
        let have_all = dtpa.goodputs.iter().all(has_share);
        let is_shown = have_all && dtpa.jain >= reno.jain + 0.08 && dtpa.sum() >= 0.75 * reno.sum();
        match Verdict::of(is_shown, late_ms, TIMELY_MS) {
            Verdict::AsWanted => return,
            Verdict::Otherwise => panic!("{name}: for {SHARE:.1} each, {}", dtpa.row()),
            Verdict::Unknown => {}
        }
    }
    println!("skipped: needs a machine that keeps its time, as this one did in no try");
}

/// Only the law's bound limits the window. A busy machine sends less, and not more; and wherever
/// packets are lost, no sender stays idle for the whole run.
#[test]
#[ignore = "long: measures rates in real time"]
fn windows_without_a_limit_neither_flood_a_link_nor_stop() {
    if !can_run_with(&[]) {
        return;
    }
    let _alone = Alone::new();
    assert_succeeded(&mesh("attach --share 50 --max-window 1000000"));
    let kind = Kind { lost_of_1000: 20, has_hosts: true };
    let name = "hosts behind nodes, 2 % lost a hop, windows without a limit";
    let Measured { sent, .. } = measured(name, kind);
    assert!(sent.iter().all(|rate| (1.0..=2.0 * 50.0).contains(rate)), "{sent:?}");
}
