//! The downlink's goal: low delay at a high rate over Wi-Fi, alongside TCP.
//!
//! Each row runs for some seconds of real time, over sockets and the kernel's timestamps, through
//! an emulated access point. On a machine that is too busy to keep time, delays are long for
//! reasons other than a queue: a row that fails is measured again, up to twice. If the emulator was
//! far too late each time, the result is undecided, and the test says so.

use std::fmt;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;

use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};
use serde_json::Value;

use crate::kit::{
    Behind, Daemon, FRESHLINE, Length, TIMELY_MS, alone, at_once, can_run, client, late_ms,
};
use crate::verdict::{Verdict, failed};

/// The law settles within 8 slots of half a second.
const LENGTH: Length = Length { warm_up: 5, all: 15 };
/// T̄ for 3 ms: the mean delay is up to one and a half rounds.
const ROUND: &str = "1.5ms";
/// More than the cell carries.
const TOO_MUCH: &str = "150mbit";

/// A flow of its own over the cell.
#[derive(Debug, Clone, Copy)]
enum Flow {
    /// `freshline wlan`, by this scheme, with these settings.
    Downlink(&'static str, &'static [&'static str]),
    /// The kernel's TCP, with this control.
    Tcp(&'static str),
}

/// The figures of a row of the table.
#[derive(Debug, Clone, Copy)]
struct Row {
    goodput_mbps: f64,
    /// Median and 99th percentile of the one-way delay to the client; unknown for TCP.
    delay_ms: Option<[f64; 2]>,
    /// The median round trip of pings in the flow's queue.
    ping_ms: f64,
    /// Packets a frame, as the client counts, and as it was.
    level: Option<[f64; 2]>,
    late_ms: f64,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6.2} Mbit/s", self.goodput_mbps)?;
        match self.delay_ms {
            Some([p50, p99]) => write!(f, " | p50 {p50:>5.2} ms, p99 {p99:>5.2} ms")?,
            None => write!(f, " | {:>24}", "")?,
        }
        write!(f, " | ping {:>6.2} ms", self.ping_ms)?;
        match self.level {
            Some([counted, true_one]) => write!(f, " | level {counted:>5.2}, was {true_one:>5.2}")?,
            None => write!(f, " | {:>22}", "")?,
        }
        write!(f, " | late by {:.2} ms", self.late_ms)
    }
}

impl Flow {
    fn measure(self) -> Row {
        let row = match self {
            Self::Downlink(scheme, settings) => downlink(scheme, settings),
            Self::Tcp(control) => tcp(control),
        };
        println!("{:<38} | {row}", self.to_string());
        row
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Downlink(scheme, settings) => write!(f, "{scheme} {}", settings.join(" ")),
            Self::Tcp(control) => write!(f, "tcp {control}"),
        }
    }
}

/// Pings the host while it is measured.
fn ping() -> String {
    let Length { warm_up, .. } = LENGTH;
    let measured = LENGTH.measured();
    format!("sleep {warm_up}; ping -i 0.05 -w {measured} $FRESHLINE_HOST >FOLDER/ping")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn pinged(behind: &Behind) -> f64 {
    let told = behind.file("ping");
    let times = told.split_whitespace().filter_map(|word| word.strip_prefix("time=")?.parse().ok());
    median(times.collect())
}

fn downlink(scheme: &str, settings: &[&str]) -> Row {
    let server = Daemon::server(scheme, settings);
    let client = client(scheme, "$FRESHLINE_HOST", server.port, &server, LENGTH);
    let behind = Behind::run(&format!("{client} >FOLDER/told & {}; wait", ping()));
    server.end();
    let told: Value = serde_json::from_str(&behind.file("told")).unwrap();
    let number = |key: &str| told[key].as_f64().unwrap_or(f64::NAN);
    let station = &behind.told["wlan"]["stations"][1];
    Row {
        goodput_mbps: number("goodput_bps") * 1e-6,
        delay_ms: Some(["delay_p50_ms", "delay_p99_ms"].map(number)),
        ping_ms: pinged(&behind),
        level: Some([number("level"), station["level_received"].as_f64().unwrap()]),
        late_ms: late_ms(&behind.told),
    }
}

fn tcp(control: &str) -> Row {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    setsockopt(&listener, TcpCongestion, &control.into()).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while stream.write_all(&[0; 1 << 16]).is_ok() {}
    });
    let Length { warm_up, .. } = LENGTH;
    let measured = LENGTH.measured();
    let behind = Behind::run(&format!(
        "exec 3<>/dev/tcp/$FRESHLINE_HOST/{port}; (timeout {warm_up} cat <&3 >/dev/null; timeout \
         {measured} cat <&3 | wc -c >FOLDER/bytes) & {}; wait",
        ping()
    ));
    let bytes: f64 = behind.file("bytes").trim().parse().unwrap();
    Row {
        goodput_mbps: bytes * 8e-6 / f64::from(measured),
        delay_ms: None,
        ping_ms: pinged(&behind),
        level: None,
        late_ms: late_ms(&behind.told),
    }
}

#[test]
#[ignore = "long: measures delays in real time"]
fn delay_is_low_at_a_high_rate_and_a_tenth_of_that_of_tcp() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let full =
        Flow::Downlink("udp", &["--no-guard", "--law", "fixed", "--rate", TOO_MUCH]).measure();
    let cubic = thread::scope(|scope| {
        let cubic = scope.spawn(|| Flow::Tcp("cubic").measure());
        if at_once(2) == 1 {
            let cubic = cubic.join().unwrap();
            Flow::Tcp("bbr").measure();
            return cubic;
        }
        Flow::Tcp("bbr").measure();
        cubic.join().unwrap()
    });
    let wanted = |(flow, least): &(Flow, f64)| {
        let row = flow.measure();
        let [p50, _] = row.delay_ms.unwrap();
        let is_as_wanted = p50 <= 3.0
            && row.goodput_mbps >= *least * full.goodput_mbps
            && cubic.ping_ms >= 10.0 * p50.max(row.ping_ms);
        Verdict::of(is_as_wanted, row.late_ms, TIMELY_MS)
    };
    // QUIC's headers and acknowledgements take part of the rate.
    let flows = [("udp", 0.75), ("quic", 0.72)]
        .map(|(scheme, least)| (Flow::Downlink(scheme, &["--delay", ROUND]), least));
    let failed = failed(&flows, at_once(2), wanted);
    assert!(failed.is_empty(), "{failed:?}");
}

/// Jain's index.
fn fairness(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

#[test]
#[ignore = "long: measures delays in real time"]
fn clients_of_one_access_point_have_equal_shares() {
    let _alone = alone();
    let shared = |clients: &usize| {
        let server = Daemon::server("udp", &["--delay", "3ms"]);
        let access_point = Daemon::access_point(server.port);
        let words = client("udp", "127.0.0.1", access_point.port, &server, LENGTH);
        let (program, arguments) = words.split_once(' ').unwrap();
        assert_eq!(program, FRESHLINE);
        let children: Vec<_> = (0..*clients)
            .map(|_| {
                let mut command = Command::new(FRESHLINE);
                command.args(arguments.split_whitespace()).stderr(Stdio::null());
                command.stdout(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        let told: Vec<Value> = children
            .into_iter()
            .map(|child| {
                let done = child.wait_with_output().unwrap();
                serde_json::from_slice(&done.stdout).unwrap()
            })
            .collect();
        let of = |key: &str| -> Vec<f64> {
            told.iter().map(|one| one[key].as_f64().unwrap_or(f64::NAN)).collect()
        };
        let late = late_ms(&access_point.end());
        server.end();
        let goodputs: Vec<_> = of("goodput_bps").iter().map(|bps| bps * 1e-6).collect();
        let fairness = fairness(&goodputs);
        println!(
            "{clients} clients, --delay 3ms | {goodputs:.1?} Mbit/s, Jain {fairness:.4} | p50 \
             {:.2?} ms | level {:.1?} | late by {late:.2} ms",
            of("delay_p50_ms"),
            of("level"),
        );
        Verdict::of(fairness >= 0.99, late, TIMELY_MS)
    };
    // The row of one client is measured for its figure.
    let failed = failed(&[1, 2, 3], at_once(2), shared);
    assert!(failed.is_empty(), "the row fails with these numbers of clients: {failed:?}");
}
