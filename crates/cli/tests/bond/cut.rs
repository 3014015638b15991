//! A path that carries a download stops silently, or its interface goes down, and comes back.

use std::time::Duration;

use super::net::{Download, Net, can_run, download_while, is_whole, made_up};

/// Time after which the rate must be that of the remaining path, or of both again.
const SOON: Duration = Duration::from_secs(3);
/// The same for a path whose cut is silent. `noq-proto` sends acks of all paths over the first one,
/// also when it is dead, so both fall silent. The first ack that arrives counts as a round trip of
/// up to a second, and makes the probe timeout as long; the other path sends the packets in flight
/// on a closed path again only after three of these.
const SILENT: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);

/// The fault of the first path.
#[derive(Debug, Clone, Copy)]
enum Blow {
    Cut,
    Mended,
    Down,
    Up,
}

impl Blow {
    fn strike(self, net: &Net) {
        match self {
            Self::Cut => net.cut(true),
            Self::Mended => net.cut(false),
            Self::Down => net.ip("c", "link set dev v1 down"),
            Self::Up => {
                net.ip("c", "link set dev v1 up");
                net.ip("c", "route add default via 10.79.1.2 metric 1");
            }
        }
    }

    /// Time within which the rate must recover.
    fn limit(self) -> Duration {
        if matches!(self, Self::Cut) { SILENT } else { SOON }
    }

    /// Required goodput of a second afterwards, in Mbit/s: 70 % of the paths' rate in frames.
    fn wanted(self) -> f64 {
        match self {
            Self::Cut | Self::Down => 0.7 * 5.0,
            Self::Mended | Self::Up => 0.7 * 15.0,
        }
    }

    /// Recovery time: the start of the first second in which each quarter carries data, and the sum
    /// is the required goodput.
    fn recovered(self, got: &Download, at: Duration) -> Option<Duration> {
        let quarters = (0..24).map(|quarter| at + SECOND / 4 * quarter);
        let is_well = |from: &Duration| {
            let flows = (0..4).all(|quarter| {
                got.mbps_between(*from + SECOND / 4 * quarter, *from + SECOND / 4 * (quarter + 1))
                    > 0.0
            });
            flows && got.mbps_between(*from, *from + SECOND) > self.wanted()
        };
        quarters.into_iter().find(is_well).map(|from| from - at)
    }
}

/// A download through these blows; whether each was made good in time.
fn is_made_good(blows: &[(u64, Blow)], bytes: u64) -> bool {
    let net = Net::new([10, 5]);
    net.serve(made_up);
    let _server = net.server("--allow 10.79.0.0/16");
    let _client = net.client("");
    let mut struck = Vec::new();
    // Each byte is checked.
    let got = download_while(net.connect(), bytes, |at| {
        if let Some((due, blow)) =
            blows.get(struck.len()).filter(|(due, _)| at > Duration::from_millis(*due))
        {
            blow.strike(&net);
            println!("struck by {blow:?} at {due} ms");
            struck.push(at);
        }
    });
    assert_eq!(struck.len(), blows.len(), "the file came too soon");
    let seconds = got.elapsed.as_secs();
    let rates = (0..seconds)
        .map(|second| got.mbps_between(SECOND * second as u32, SECOND * (second as u32 + 1)));
    let rates: Vec<_> = rates.map(|rate| format!("{rate:.1}")).collect();
    println!("cut | Mbit/s, second by second | {}", rates.join(" "));
    let late = blows.iter().zip(struck).filter(|((_, blow), at)| {
        let after = blow.recovered(&got, *at);
        println!("cut | {blow:?} after {:.1} s | made good after {after:.2?}", at.as_secs_f64());
        after.is_none_or(|after| after > blow.limit())
    });
    late.count() == 0
}

#[test]
#[ignore = "long: measures rates in real time"]
fn a_file_arrives_whole_although_a_path_is_cut_and_comes_back() {
    if !can_run() {
        return;
    }
    let blows = [(2000, Blow::Cut), (6000, Blow::Mended), (10_000, Blow::Down), (13_000, Blow::Up)];
    // A busy machine delays both ends and their measurements.
    assert!((0..3).any(|_| is_made_good(&blows, 30_000_000)));
}

/// From slow start to round trips that have settled, in ms; every other one unless all is asked for
/// ([`is_whole`]).
const CUTS: [u64; 6] = [400, 900, 1500, 2500, 4000, 6000];

#[test]
#[ignore = "long: measures rates in real time"]
fn a_silent_cut_is_made_good_whenever_it_comes() {
    if !can_run() {
        return;
    }
    let mut late = Vec::new();
    let step = if is_whole() { 1 } else { 2 };
    for due in CUTS.into_iter().step_by(step) {
        let blows = [(due, Blow::Cut)];
        let made_good = (0..3).any(|_| is_made_good(&blows, 4_000_000 + 1800 * due));
        late.extend((!made_good).then_some(due));
    }
    assert_eq!(late, [0; 0], "cuts after these times (ms) were not repaired in time");
}
