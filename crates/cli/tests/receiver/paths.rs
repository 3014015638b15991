//! Receiver-side control keeps queues short without loss of goodput, on the paths of `freshline
//! emulate run`.
//!
//! Each row runs for some seconds of real time; some rows run two at a time. On a machine that is
//! too busy to keep time, round trips are long for reasons other than a queue. The limits therefore
//! allow for the emulator's lateness, and a row that fails is measured again, alone, up to twice.
//! If the emulator was far too late each time, the result is undecided, and the test says so.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io, iter};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{FRESHLINE, text};
use crate::kit::{alone, can_run};
use crate::verdict::{TRIES, Verdict, failed};

/// The path's delay, forward and reverse together.
const DELAY_MS: f64 = 20.0;
/// Delay added by the hosts and the emulator: `ping` with 1500 bytes over the idle path of 20
/// Mbit/s measures 21.0 ms, of which the path accounts for 20.6.
const OWN_MS: f64 = 0.4;
/// When control has settled, and when a queue of 2000 packets without it is full.
const SETTLED: Duration = Duration::from_secs(3);
const FULL: Duration = Duration::from_secs(9);
/// Half of the delay: with a larger lateness, the emulator does not show the intended path.
const TIMELY_MS: f64 = DELAY_MS / 2.0;

/// Control of a row's receivers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Control {
    Nobody,
    /// `run`, in a cgroup.
    Cgroup(&'static str),
    /// `attach --dev` at the receivers' end of the path.
    Device(&'static str),
}

/// Downloads at the same time from one sender.
#[derive(Debug, Clone, Copy)]
struct Downloads {
    control: Control,
    flows: usize,
    sender: &'static str,
}

impl Downloads {
    fn by(control: Control) -> Self {
        Self { control, flows: 1, sender: "cubic" }
    }
}

/// One sample of a download at the sender; samples are 100 ms apart.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Since the path began.
    at: Duration,
    rtt_ms: f64,
    acked: f64,
}

#[derive(Debug)]
struct Outcome {
    /// Of each of the downloads' flows.
    samples: Vec<Vec<Vec<Sample>>>,
    /// 99th percentile of the emulator's lateness, both directions added.
    late_ms: f64,
}

impl Outcome {
    fn within(&self, of: usize, from: Duration, to: Duration) -> Vec<Vec<Sample>> {
        let is_within = |sample: &&Sample| (from..to).contains(&sample.at);
        let flows = self.samples[of].iter();
        flows.map(|flow| flow.iter().filter(is_within).copied().collect()).collect()
    }

    /// The median of the smoothed round trips; no number if the flows had not begun.
    fn rtt_ms(&self, of: usize, from: Duration, to: Duration) -> f64 {
        let mut rtts: Vec<_> =
            self.within(of, from, to).iter().flatten().map(|sample| sample.rtt_ms).collect();
        rtts.sort_by(f64::total_cmp);
        rtts.get(rtts.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The acknowledged payload, of all flows together.
    fn goodput_mbps(&self, of: usize, from: Duration, to: Duration) -> f64 {
        let rate = |flow: &Vec<Sample>| {
            let (Some(first), Some(last)) = (flow.first(), flow.last()) else { return 0.0 };
            (last.acked - first.acked) * 8e-6 / (last.at - first.at).as_secs_f64().max(0.1)
        };
        self.within(of, from, to).iter().map(rate).sum()
    }
}

/// 20 ms, and this hop towards the receivers.
fn path(hop: &str) -> String {
    format!(
        "[[forward.hop]]\ndelay = \"10ms\"\n[[reverse.hop]]\n{hop}\ndelay = \"10ms\"\n\
         queue = \"2000p\"\n"
    )
}

fn mbit(rate: f64) -> String {
    path(&format!("rate = \"{rate}mbit\""))
}

/// Payload rate of a full bottleneck: headers take 52 bytes of 1500.
fn payload_mbps(mbps: f64) -> f64 {
    mbps * 1448.0 / 1500.0
}

/// Runs `script` behind a path; its files are in the folder, which lives as long as the command.
fn behind(path: &str, script: &str) -> (Child, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("path.toml");
    fs::write(&file, path).unwrap();
    let script = script.replace("FOLDER", folder.path().to_str().unwrap());
    let child = Command::new(FRESHLINE)
        .args(["emulate", "run"])
        .arg(file)
        .args(["--json", "--", "bash", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    (child, folder)
}

/// A shell script that runs `command` under `control`.
fn controlled(control: Control, command: &str) -> String {
    match control {
        Control::Nobody => format!("bash -c '{command}'"),
        Control::Cgroup(law) => {
            format!("{FRESHLINE} receiver run --law {law} -- bash -c '{command}'")
        }
        Control::Device(law) => format!(
            "{FRESHLINE} receiver attach --dev freshline --law {law} --foreground 2>FOLDER/said & \
             until grep -q controlling FOLDER/said; do \
             kill -0 $! || {{ cat FOLDER/said >&2; exit 1; }}; sleep 0.05; done; \
             bash -c '{command}'"
        ),
    }
}

/// Runs the downloads over the path at the same time, for `seconds`, all in one buffer.
fn measured(path: &str, all: &[Downloads], seconds: u64) -> Outcome {
    let began = Instant::now();
    let listeners: Vec<_> = all
        .iter()
        .map(|downloads| {
            let listener = TcpListener::bind("0.0.0.0:0").unwrap();
            setsockopt(&listener, TcpCongestion, &downloads.sender.into()).unwrap();
            listener
        })
        .collect();
    let ports: Vec<_> =
        listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    let scripts = all.iter().zip(&ports).map(|(Downloads { control, flows, .. }, port)| {
        let one = format!("exec 3<>/dev/tcp/$FRESHLINE_HOST/{port}; timeout {seconds} cat <&3");
        // Loading the programs takes a moment: each download waits until all are ready.
        let ready = format!(
            "mkdir -p FOLDER/ready; touch FOLDER/ready/{port}; \
             until [ $(ls FOLDER/ready | wc -l) = {all} ]; do sleep 0.01; done",
            all = ports.len()
        );
        let command =
            format!("{ready}; for i in $(seq {flows}); do ({one}) >/dev/null & done; wait");
        format!("({}) &", controlled(*control, &command))
    });
    // The shell would also wait for the process that holds a device's control; it ends with the
    // command.
    let script: String =
        scripts.chain([format!("sleep {seconds}.5")]).collect::<Vec<_>>().join(" ");
    let (child, _folder) = behind(path, &script);
    for (listener, Downloads { flows, .. }) in listeners.into_iter().zip(all) {
        let flows = *flows;
        thread::spawn(move || {
            for _ in 0..flows {
                let (mut stream, _) = listener.accept().unwrap();
                thread::spawn(move || while stream.write_all(&[0; 1 << 16]).is_ok() {});
            }
        });
    }
    let looks = iter::repeat_with(|| {
        thread::sleep(Duration::from_millis(100));
        (began.elapsed(), ports.iter().map(|port| look(*port)).collect::<Vec<_>>())
    });
    let mut samples = vec![Vec::new(); all.len()];
    for (at, seen) in looks.take_while(|(at, _)| at.as_secs() < seconds) {
        for (flows, seen) in samples.iter_mut().zip(seen) {
            keep(flows, at, seen);
        }
    }
    Outcome { samples, late_ms: late_ms(child) }
}

/// 99th percentile of the emulator's lateness, from its final report; both directions added.
fn late_ms(emulator: Child) -> f64 {
    let done = emulator.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&done.stderr)));
    let late = |direction: &str| report[direction]["timing_error"]["p99_ms"].as_f64().unwrap();
    late("forward") + late("reverse")
}

/// Receivers' ports, round trips and acknowledged bytes of a sender's port, from `ss`.
fn look(port: u16) -> Vec<(u16, f64, f64)> {
    let filter = format!("sport = :{port}");
    let seen = Command::new("ss").args(["-tinHO", "state", "established", &filter]).output();
    let seen = text(&seen.unwrap().stdout);
    let told = seen.lines().filter_map(|line| {
        let said = |what: &str| -> Option<f64> {
            let value = line.split_whitespace().find_map(|word| word.strip_prefix(what))?;
            value.split('/').next()?.parse().ok()
        };
        let peer = line.split_whitespace().nth(3)?.rsplit(':').next()?.parse().ok()?;
        Some((peer, said("rtt:")?, said("bytes_acked:")?))
    });
    told.collect()
}

/// Appends one observation to each flow's samples, in the order of the receivers' ports.
fn keep(flows: &mut Vec<Vec<Sample>>, at: Duration, mut seen: Vec<(u16, f64, f64)>) {
    seen.sort_by_key(|(peer, ..)| *peer);
    flows.resize_with(flows.len().max(seen.len()), Vec::new);
    // All begin together; until they have, there is nothing to compare.
    if seen.len() < flows.len() {
        return;
    }
    for (flow, (_, rtt_ms, acked)) in flows.iter_mut().zip(seen) {
        flow.push(Sample { at, rtt_ms, acked });
    }
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    mbps: f64,
    downloads: Downloads,
}

impl Row {
    const fn new(mbps: f64, control: Control, flows: usize, sender: &'static str) -> Self {
        Self { mbps, downloads: Downloads { control, flows, sender } }
    }

    /// Prints the table's line.
    fn measure(&self) -> Verdict {
        let end = Duration::from_secs(8);
        let outcome = measured(&mbit(self.mbps), &[self.downloads], end.as_secs());
        let (rtt, goodput) =
            (outcome.rtt_ms(0, SETTLED, end), outcome.goodput_mbps(0, SETTLED, end));
        // A download without control fills the bottleneck.
        let least = 0.97 * payload_mbps(self.mbps);
        let most = 1.5 * self.empty_ms() + outcome.late_ms;
        let is_as_wanted = rtt <= most && goodput >= least;
        let Downloads { control, flows, sender } = self.downloads;
        println!(
            "{:>4} Mbit/s | {flows} x {sender:<5} | {:<14} | {rtt:>6.1} ms | {goodput:>6.2} Mbit/s \
             | late by {:.1} ms{}",
            self.mbps,
            format!("{control:?}"),
            outcome.late_ms,
            if is_as_wanted { "" } else { " | not as wanted" }
        );
        Verdict::of(is_as_wanted, outcome.late_ms, TIMELY_MS)
    }

    /// The round trip of a full packet over the idle path.
    fn empty_ms(&self) -> f64 {
        DELAY_MS + 1500.0 * 8.0 / (self.mbps * 1e3) + OWN_MS
    }
}

const CGROUP: Control = Control::Cgroup("rtac");
const DEVICE: Control = Control::Device("rtac");

/// Those in a line run at once.
const ROWS: &[&[Row]] = &[
    &[Row::new(20.0, CGROUP, 1, "cubic"), Row::new(5.0, CGROUP, 1, "cubic")],
    &[Row::new(20.0, DEVICE, 1, "cubic"), Row::new(5.0, DEVICE, 1, "cubic")],
    &[Row::new(20.0, CGROUP, 1, "reno"), Row::new(20.0, CGROUP, 1, "bbr")],
    &[Row::new(20.0, DEVICE, 1, "reno"), Row::new(20.0, DEVICE, 1, "bbr")],
    &[Row::new(20.0, CGROUP, 4, "cubic"), Row::new(20.0, DEVICE, 4, "cubic")],
    &[Row::new(100.0, CGROUP, 1, "cubic")],
    &[Row::new(100.0, DEVICE, 1, "cubic")],
];

#[test]
#[ignore = "long: measures delays in real time"]
fn paths_of_every_rate_keep_short_queues_and_all_of_their_goodput() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let failed: Vec<_> =
        ROWS.iter().flat_map(|rows| failed(rows, rows.len(), Row::measure)).collect();
    assert!(failed.is_empty(), "in {TRIES} tries not once as wanted: {failed:?}");
}

#[test]
#[ignore = "long: measures delays in real time"]
fn without_control_a_download_fills_the_queue() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let end = FULL + Duration::from_secs(2);
    let outcome = measured(&mbit(20.0), &[Downloads::by(Control::Nobody)], end.as_secs());
    let (rtt, goodput) = (outcome.rtt_ms(0, FULL, end), outcome.goodput_mbps(0, SETTLED, end));
    println!("  20 Mbit/s | 1 x cubic | no control       | {rtt:>6.1} ms | {goodput:>6.2} Mbit/s");
    assert!(rtt > 400.0, "{rtt} ms");
}

/// When the link of the steps becomes slow, and fast again.
const SLOW: Duration = Duration::from_secs(5);
const FAST: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(15);

/// The opportunities of a link of 20, 5 and 20 Mbit/s, one of 1500 bytes a line.
fn steps() -> String {
    let mut trace = String::new();
    let mut at_us = 0;
    while at_us < 2 * END.as_micros() {
        let is_slow = (SLOW.as_micros()..FAST.as_micros()).contains(&at_us);
        at_us += if is_slow { 2400 } else { 600 };
        writeln!(trace, "{}", at_us / 1000).unwrap();
    }
    trace
}

#[test]
#[ignore = "long: measures delays in real time"]
fn a_link_that_becomes_slower_and_faster_again_is_followed_within_two_seconds() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.trace");
    fs::write(&trace, steps()).unwrap();
    let path = path(&format!("trace = {trace:?}"));
    let followed = |control| {
        let outcome = measured(&path, &[Downloads::by(control)], END.as_secs());
        let settled = Duration::from_secs(2);
        // Opportunities are in whole ms, and so up to one late.
        let most = |mbps| 1.5 * (DELAY_MS + 12.0 / mbps + 1.0) + outcome.late_ms;
        let slow = outcome.rtt_ms(0, SLOW + settled, FAST);
        let fast = outcome.rtt_ms(0, FAST + settled, END);
        let goodput = outcome.goodput_mbps(0, FAST + settled, END);
        println!(
            "20, 5, 20 Mbit/s | {control:?} | {slow:.1} ms at 5, {fast:.1} ms and {goodput:.2} \
             Mbit/s at 20 again (late by {:.1} ms)",
            outcome.late_ms
        );
        let is_followed = slow <= most(5.0) && fast <= most(20.0);
        let is_used = goodput >= 0.97 * payload_mbps(20.0);
        Verdict::of(is_followed && is_used, outcome.late_ms, TIMELY_MS)
    };
    let (cgroup, device) = thread::scope(|scope| {
        let cgroup = scope.spawn(|| followed(CGROUP));
        (followed(DEVICE), cgroup.join().unwrap())
    });
    for (first, control) in [(cgroup, CGROUP), (device, DEVICE)] {
        assert!(first.or_again(|| followed(control)), "{control:?}");
    }
}

/// Ratio of the goodputs of a controlled and an uncontrolled download that share a buffer of
/// `buffer` packets. Both must move data and together nearly fill the link; otherwise the ratio
/// would mean nothing.
fn share(law: &'static str, buffer: u32, seconds: u64) -> f64 {
    let path = mbit(20.0).replace("2000p", &format!("{buffer}p"));
    let both = [Downloads::by(Control::Cgroup(law)), Downloads::by(Control::Nobody)];
    let outcome = measured(&path, &both, seconds);
    let goodput = |of| outcome.goodput_mbps(of, SETTLED, Duration::from_secs(seconds));
    let share = goodput(0) / goodput(1);
    println!(
        "alongside no control | {law} | {buffer} packets | {:.2} of {:.2} Mbit/s: {share:.2} \
         (late by {:.1} ms)",
        goodput(0),
        goodput(1),
        outcome.late_ms
    );
    assert!(goodput(0) > 0.0 && goodput(1) > 0.0, "one of the two moves nothing");
    assert!(goodput(0) + goodput(1) > 0.9 * payload_mbps(20.0), "the link is not filled");
    share
}

#[test]
#[ignore = "long: measures delays in real time"]
fn drwa_starves_beside_a_plain_receiver() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let share = share("drwa", 500, 14);
    assert!(share < 0.3, "{share}");
}

/// Which of two leaves slow start with the larger window is chance, and CUBIC keeps their ratio for
/// long: hence a mean, and room below the 0.85 that the law is for.
#[test]
#[ignore = "long: measures delays in real time"]
fn rtac_keeps_its_share_beside_a_plain_receiver() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let mean = mean_share("rtac");
    assert!(mean > 0.5, "{mean}");
}

/// The mean of three runs at once.
fn mean_share(law: &'static str) -> f64 {
    let shares = thread::scope(|scope| {
        let runs = [200, 500, 500].map(|buffer| scope.spawn(move || share(law, buffer, 25)));
        runs.map(|run| run.join().unwrap())
    });
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    println!("alongside a plain receiver | {law} | mean {mean:.2}");
    mean
}

#[test]
#[ignore = "long: measures delays in real time"]
fn rtac_that_learns_delta_keeps_its_share_alongside_a_plain_receiver() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let mean = mean_share("rtac --delta learn");
    assert!(mean > 0.5, "{mean}");
}

/// Minimum duration of several consecutive transfers of `bytes`, in ms, and the emulator's
/// lateness.
fn transfer(control: Control, bytes: usize) -> (f64, f64) {
    const TRANSFERS: usize = 6;
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let one = format!("cat </dev/tcp/$FRESHLINE_HOST/{port} >/dev/null");
    let command = format!("for i in $(seq {TRANSFERS}); do {one}; done");
    let (mut child, _folder) = behind(&mbit(20.0), &controlled(control, &command));
    let taken = (0..TRANSFERS).map(|_| {
        let mut stream = accepted(&listener, &mut child);
        let began = Instant::now();
        stream.write_all(&vec![0; bytes]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // The other side closes when it has read all.
        let _ = stream.read(&mut [0]);
        began.elapsed().as_secs_f64() * 1e3
    });
    let least = taken.fold(f64::MAX, f64::min);
    (least, late_ms(child))
}

/// The listener's next connection, which the child is to make before long.
fn accepted(listener: &TcpListener, child: &mut Child) -> TcpStream {
    const PATIENCE: Duration = Duration::from_secs(60);
    listener.set_nonblocking(true).unwrap();
    let began = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => return stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        let ended = child.try_wait().unwrap();
        if ended.is_some() || began.elapsed() > PATIENCE {
            if ended.is_none() {
                let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
            }
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("no connection, {ended:?}: {said}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "long: measures delays in real time"]
fn short_transfers_take_no_longer() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    for bytes in [200_000, 1_000_000] {
        for control in [CGROUP, DEVICE] {
            let compared = || {
                let (without, late_without) = transfer(Control::Nobody, bytes);
                let (with, late_with) = transfer(control, bytes);
                println!("{} kB | {control:?} | {with:.0} ms, without {without:.0}", bytes / 1000);
                Verdict::of(with <= without * 1.05, late_without.max(late_with), TIMELY_MS)
            };
            assert!(compared().or_again(compared), "{bytes} bytes, {control:?}");
        }
    }
}
