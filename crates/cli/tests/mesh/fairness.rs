//! What nodes of a chain get of the way to the border router that all of them share.

use std::thread;
use std::time::Duration;

use freshline_core::age::jain_index;

use super::chain::{Chain, Kind, SENDERS};
use super::common::{assert_succeeded, can_run_with};
use super::streams::Streams;
use super::{Alone, NAME, mesh, status};

const WARM_UP: Duration = Duration::from_secs(8);
const WINDOW: Duration = Duration::from_secs(24);

/// One run: a chain, and what its senders came to.
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
}

/// Goodputs in kbit/s.
struct Outcome {
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

/// Reno's and DTPA's, of chains that run at the same time.
fn measured(kind: Kind) -> [Outcome; 2] {
    let runs = ["reno", NAME].map(|congestion| Run::start(kind, congestion));
    thread::sleep(WARM_UP);
    let [reno, dtpa] = &runs;
    let mut of_dtpa = Vec::new();
    let of_reno = reno.streams.goodputs(|| {
        of_dtpa = dtpa.streams.goodputs(|| thread::sleep(WINDOW));
    });
    for hops in SENDERS {
        let told = status(dtpa.chain.freshline(hops)).unwrap();
        let connections = told["connections"].as_array().unwrap();
        assert_eq!(connections.len(), 1, "{told}");
        println!("  {hops} hops: {}", connections[0]);
    }
    [of_reno, of_dtpa].map(Outcome::new)
}

/// With DTPA goodputs are much more alike, and not much less in all. What a run comes to is chance in
/// part: of three, one must show it. Of the link's 125 segments a second, a third is 41.7.
fn compare(name: &str, kind: Kind, settings: &str) {
    let alone = Alone::new();
    assert_succeeded(&mesh(&format!("attach {settings}")));
    let is_shown = (0..3).any(|_| {
        let [reno, dtpa] = measured(kind);
        println!("{name}, at 1, 3 and 6 hops\n  reno {}\n  dtpa {}", reno.row(), dtpa.row());
        dtpa.jain >= reno.jain + 0.08 && dtpa.sum() >= 0.75 * reno.sum()
    });
    drop(alone);
    assert!(is_shown, "{name}");
}

/// Timeouts keep who loses much below the share, so that it is larger than what all can have.
#[test]
fn nodes_have_alike_shares_where_links_lose_packets() {
    if can_run_with(&[]) {
        let kind = Kind { lost_of_1000: 20, has_hosts: true };
        compare("hosts behind nodes, 2 % lost a hop", kind, "--share 50");
    }
}

/// TCP sees the queue of the device through which it sends, and keeps its own packets in it to a few:
/// without DTPA it is the near node that has least.
#[test]
fn nodes_that_send_themselves_have_alike_shares() {
    if can_run_with(&[]) {
        let kind = Kind { lost_of_1000: 0, has_hosts: false };
        compare("nodes themselves, no losses but in queues", kind, "--share 42");
    }
}
