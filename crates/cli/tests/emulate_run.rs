//! `freshline emulate run` as a user meets it. The commands behind the path are bash's own
//! connections; this process is the host at the other end.

#[path = "emulate_run/super_packets.rs"]
mod super_packets;
#[path = "common/verdict.rs"]
mod verdict;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::Value;
use tempfile::TempDir;
use verdict::Verdict;

const FRESHLINE: &str = env!("CARGO_BIN_EXE_freshline");

/// 20 ms there, 10 ms back.
const SLOW: &str = "[[forward.hop]]\ndelay = \"20ms\"\n[[reverse.hop]]\ndelay = \"10ms\"\n";
const SLOW_RTT: Duration = Duration::from_millis(30);
/// Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether a test can run; prints the reason if not.
fn can_run() -> bool {
    let missing = if !Uid::effective().is_root() {
        "root"
    } else if !Path::new("/dev/net/tun").exists() {
        "/dev/net/tun"
    } else if Command::new("bash").args(["-c", "true"]).status().is_err() {
        "bash"
    } else {
        return true;
    };
    println!("skipped: needs {missing}");
    false
}

/// A folder with a path file in it, and the runs behind that path.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new(path: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("path.toml"), path).unwrap();
        Self { folder }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// A run of a script.
    fn command(&self, options: &[&str], script: &str) -> Command {
        let mut command = Command::new(FRESHLINE);
        command.args(["emulate", "run", &self.file("path.toml"), "--seed", "7"]).args(options);
        command.args(["--", "bash", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn output(&self, options: &[&str], script: &str) -> Output {
        self.command(options, script).output().unwrap()
    }

    /// Runs a script whose end waits until `meanwhile` has seen what it wanted: with the command
    /// everything ends.
    fn output_after<T>(
        &self,
        options: &[&str],
        script: &str,
        meanwhile: impl FnOnce() -> T,
    ) -> (Output, T) {
        let go = self.file("go");
        let script = format!("{script}; until [ -e {go} ]; do sleep 0.01; done");
        let child = self.command(options, &script).spawn().unwrap();
        let seen = meanwhile();
        fs::write(go, "").unwrap();
        (child.wait_with_output().unwrap(), seen)
    }
}

/// A host's socket, which waits for long, and its port.
fn host() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn report_of(done: Output) -> Value {
    serde_json::from_slice(&done.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}\n{}", text(&done.stdout), text(&done.stderr));
    })
}

/// Sends a byte back and forth; the other side echoes it. Returns the minimum round trip.
fn shortest_rtt(mut stream: TcpStream) -> Duration {
    stream.set_nodelay(true).unwrap();
    let mut round = || {
        let sent = Instant::now();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        sent.elapsed()
    };
    (0..5).map(|_| round()).min().unwrap()
}

/// The shortest round trip to an echoing command whose run `command` starts.
fn rtt_of(listener: &TcpListener, mut command: Command) -> (Duration, Output) {
    let child = command.spawn().unwrap();
    let (stream, _) = listener.accept().unwrap();
    let rtt = shortest_rtt(stream);
    (rtt, child.wait_with_output().unwrap())
}

/// A script that connects to this process and echoes the bytes that it receives.
fn echo(listener: &TcpListener, host: &str) -> String {
    let port = listener.local_addr().unwrap().port();
    format!("exec 3<>/dev/tcp/${host}/{port}; cat <&3 >&3")
}

#[test]
fn a_round_trip_takes_both_delays_and_no_less() {
    if !can_run() {
        return;
    }
    for (address, host) in [("0.0.0.0:0", "FRESHLINE_HOST"), ("[::]:0", "FRESHLINE_HOST6")] {
        let listener = TcpListener::bind(address).unwrap();
        let bench = Bench::new(SLOW);
        let (rtt, done) = rtt_of(&listener, bench.command(&["--json"], &echo(&listener, host)));
        let report = report_of(done);
        assert!(rtt >= SLOW_RTT, "{host}: {rtt:?}");
        assert!(rtt < SLOW_RTT * 10, "{host}: {rtt:?}");
        assert_eq!((&report["seed"], &report["exit_code"]), (&Value::from(7), &Value::from(0)));
        assert!(report["forward"]["timing_error"]["p50_ms"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_transfer_arrives_whole_and_in_real_packets() {
    if !can_run() {
        return;
    }
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let bench = Bench::new("[[forward.hop]]\nrate = \"400mbit\"\ndelay = \"5ms\"\nmtu = \"1400B\"");
    let bytes = 8_000_000;
    // With the command everything ends, so it waits until all has arrived.
    let script = format!(
        "exec 3<>/dev/tcp/$FRESHLINE_HOST/{port}; head -c {bytes} /dev/zero >&3; read -N 1 <&3"
    );
    let child = bench.command(&["--json"], &script).spawn().unwrap();
    let mut stream = listener.accept().unwrap().0;
    stream.read_exact(&mut vec![0; bytes]).unwrap();
    stream.write_all(b"x").unwrap();
    let report = report_of(child.wait_with_output().unwrap());
    let hop = &report["forward"]["hops"][0];
    // The interface has the MTU of the hop: nothing is too big for it, and nothing is larger.
    assert_eq!(hop["drops"]["too_big"], 0);
    let (packets, arrived) = (&hop["packets_in"].as_u64().unwrap(), &hop["bytes_in"]);
    assert!(*packets >= bytes as u64 / 1360, "{packets} packets");
    assert!(arrived.as_u64().unwrap() > bytes as u64, "{arrived} bytes");
}

#[test]
fn what_is_lost_is_counted() {
    if !can_run() {
        return;
    }
    let (socket, port) = host();
    let bench = Bench::new("[[forward.hop]]\nloss = 0.5\n");
    let script = format!(
        "exec 3>/dev/udp/$FRESHLINE_HOST/{port}; for i in {{1..400}}; do printf x >&3; done"
    );
    let (done, arrived) = bench.output_after(&["--json"], &script, || {
        let _first = socket.recv(&mut [0; 16]).unwrap();
        // A datagram that does not arrive within this time has been lost.
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        1 + std::iter::from_fn(|| socket.recv(&mut [0; 16]).ok()).count()
    });
    let report = report_of(done);
    let hop = &report["forward"]["hops"][0];
    let count = |value: &Value| value.as_u64().unwrap();
    let (lost, out) = (count(&hop["drops"]["loss"]), count(&hop["packets_out"]));
    // Only the command's packets are on the path.
    assert_eq!((count(&hop["packets_in"]), lost + out), (400, 400));
    // Five standard deviations of a binomial of 400 × 0.5.
    assert!(lost.abs_diff(200) < 50, "{lost} lost");
    assert_eq!(arrived as u64, out);
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    if !can_run() {
        return;
    }
    let bench = Bench::new("");
    let done = bench.output(&[], "echo said; exit 7");
    assert_eq!((done.status.code(), text(&done.stdout).as_str()), (Some(7), "said\n"));
    assert!(text(&done.stderr).contains("exit code 7"));
    assert_eq!(bench.output(&[], "kill -KILL $$").status.code(), Some(128 + 9));

    let missing = Command::new(FRESHLINE)
        .args(["emulate", "run", &bench.file("path.toml"), "--", "/nonexistent/command"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(1));
    let message = text(&missing.stderr);
    assert!(message.contains("cannot start `/nonexistent/command`"), "{message}");
}

#[test]
fn a_run_within_a_run_is_behind_both_paths() {
    if !can_run() {
        return;
    }
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let bench = Bench::new(SLOW);
    let path = bench.file("path.toml");
    // The variable is that of the outer run: the host that is behind both paths.
    let within = echo(&listener, "OUTER");
    let script =
        format!("OUTER=$FRESHLINE_HOST exec {FRESHLINE} emulate run {path} -- bash -c '{within}'");
    let (rtt, done) = rtt_of(&listener, bench.command(&["--json"], &script));
    assert!(rtt >= SLOW_RTT * 2, "{rtt:?}");
    assert_eq!(report_of(done)["exit_code"], 0);
}

/// A run in progress, the host that it printed, and the index of its interface.
struct Ongoing {
    child: Child,
    interface: String,
    index: u32,
    mark: String,
    _stderr: BufReader<ChildStderr>,
}

impl Ongoing {
    /// Starts a command with children that would stay.
    fn start(bench: &Bench) -> Self {
        let mark = format!("FRESHLINE_TEST_MARK={}", bench.file("mark"));
        let mut command =
            bench.command(&["--json"], "sleep 3000 & (setsid sleep 3000 &) ; echo up; wait");
        let (name, value) = mark.split_once('=').unwrap();
        let mut child = command.env(name, value).spawn().unwrap();
        let mut up = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut host = String::new();
        stderr.read_line(&mut host).unwrap();
        let host = host.split_whitespace().nth(3).unwrap().to_owned();
        let interface = getifaddrs()
            .unwrap()
            .find(|interface| {
                let address = interface.address.as_ref();
                address
                    .and_then(|address| address.as_sockaddr_in())
                    .is_some_and(|address| address.ip().to_string() == host)
            })
            .unwrap()
            .interface_name;
        let index = if_nametoindex(interface.as_str()).unwrap();
        Self { child, interface, index, mark, _stderr: stderr }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// How many processes carry the mark of this run.
    fn processes(&self) -> usize {
        let environments = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let alive = fs::read(entry.ok()?.path().join("environ")).ok()?;
            Some(text_lossy(&alive))
        });
        environments.filter(|environment| environment.contains(&self.mark)).count()
    }

    /// Waits until neither the interface nor a process is left.
    fn assert_gone(&self) {
        let is_gone =
            || if_nametoindex(self.interface.as_str()) != Ok(self.index) && self.processes() == 0;
        let (interface, processes) = (&self.interface, || self.processes());
        assert!(soon(is_gone), "{interface} or {} processes are left", processes());
    }
}

/// Whether this holds before long.
fn soon(condition: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !condition() {
        if begin.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn text_lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn nothing_is_left_when_it_is_killed() {
    if !can_run() {
        return;
    }
    let bench = Bench::new(SLOW);
    let mut run = Ongoing::start(&bench);
    // One that is just being started has no environment for a moment.
    assert!(soon(|| run.processes() >= 4), "the emulator, bash and two sleepers");
    run.signal(Signal::SIGKILL);
    run.child.wait().unwrap();
    run.assert_gone();
}

#[test]
fn a_signal_is_for_the_command_and_ends_in_a_report() {
    if !can_run() {
        return;
    }
    let bench = Bench::new(SLOW);
    for signal in [Signal::SIGTERM, Signal::SIGHUP].into_iter().filter(|one| !is_ignored(*one)) {
        let mut run = Ongoing::start(&bench);
        run.signal(signal);
        let mut out = String::new();
        run.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let expected = 128 + signal as i32;
        assert_eq!(run.child.wait().unwrap().code(), Some(expected));
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["exit_code"], expected);
        run.assert_gone();
    }
}

/// Whether this process ignores a signal, as below `nohup`: its children then do so too.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal as i32 - 1) & 1 == 1
}

/// The IP packets of a capture with their times in ns.
fn packets(capture: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20)), (0xa1b2_3c4d, 101), "times in ns, raw IP");
    let mut found = Vec::new();
    let mut at = 24;
    while at < capture.len() {
        let (secs, nanos, len) = (word(at), word(at + 4), word(at + 8) as usize);
        assert_eq!(len, word(at + 12) as usize, "whole packets");
        at += 16 + len;
        found.push((
            u64::from(secs) * 1_000_000_000 + u64::from(nanos),
            capture[at - len..at].to_vec(),
        ));
    }
    found
}

#[test]
fn captures_show_packets_on_both_sides_of_a_hop() {
    if !can_run() {
        return;
    }
    let (socket, port) = host();
    let bench = Bench::new("[[forward.hop]]\ndelay = \"3ms\"\n[[forward.hop]]\ndelay = \"4ms\"\n");
    let files = ["0", "1", "2"].map(|hop| bench.file(hop));
    let [entry, middle, end] = [0, 1, 2].map(|hop| format!("--pcap=forward.{hop}={}", files[hop]));
    let script = format!("echo captured > /dev/udp/$FRESHLINE_HOST/{port}");
    let arrives = || socket.recv(&mut [0; 16]).unwrap();
    let (done, _) = bench.output_after(&[&entry, &middle, &end], &script, arrives);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let seen = files.map(|file| packets(&fs::read(file).unwrap()));
    let [(sent, packet)] = &seen[0][..] else { panic!("one packet: {seen:?}") };
    assert!(packet.ends_with(b"captured\n"));
    assert_eq!(seen[1], [(sent + 3_000_000, packet.clone())]);
    assert_eq!(seen[2], [(sent + 7_000_000, packet.clone())]);
}

#[test]
fn a_trace_is_replayed_from_beside_the_path_file() {
    if !can_run() {
        return;
    }
    let (socket, port) = host();
    let bench = Bench::new("[[forward.hop]]\ntrace = \"slow.trace\"\n");
    fs::write(bench.file("slow.trace"), "50\n").unwrap();
    let script = format!("echo x > /dev/udp/$FRESHLINE_HOST/{port}");
    let (done, _) = bench.output_after(&["--json"], &script, || socket.recv(&mut [0; 16]).unwrap());
    let report = report_of(done);
    let hop = &report["forward"]["hops"][0];
    assert_eq!((&hop["packets_in"], &hop["packets_out"]), (&Value::from(1), &Value::from(1)));
    assert!(hop["sojourn_max_ms"].as_f64().unwrap() <= 50.0);

    fs::write(bench.file("slow.trace"), "50\nfast\n").unwrap();
    let done = bench.output(&[], "true");
    let message = text(&done.stderr);
    assert_eq!(done.status.code(), Some(2));
    assert!(message.contains("slow.trace") && message.contains("line 2"), "{message}");
}

/// The present round trip of a byte.
fn rtt(stream: &mut TcpStream) -> Duration {
    let sent = Instant::now();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    sent.elapsed()
}

#[test]
fn a_download_over_wifi_fills_the_queue_of_the_access_point() {
    /// Half of the intended delay without the download, for both directions: with a larger
    /// lateness, the emulator does not show the intended cell.
    const TIMELY_MS: f64 = 1.0;
    if !can_run() {
        return;
    }
    let fills = || {
        let (grew, report) = download_over_wifi();
        let command = &report["wlan"]["stations"][1];
        let level = command["level_received"].as_f64().unwrap();
        let late = ["forward", "reverse"].map(|way| report[way]["timing_error"]["p99_ms"].as_f64());
        let late = late.into_iter().flatten().fold(0.0, f64::max);
        println!("round trips {grew:.1} times as long, level {level:.1}, late by {late:.1} ms");
        // Packets to the command are aggregated.
        Verdict::of(grew >= 10.0 && level > 2.0, late, TIMELY_MS)
    };
    assert!(fills().or_again(fills));
}

/// The factor by which a concurrent download lengthens round trips, and the emulator's report.
fn download_over_wifi() -> (f64, Value) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let bench = Bench::new("[wlan]\nstandard = \"802.11n\"\nrate = \"mcs3\"\n");
    let frames = bench.file("frames.csv");
    let peer = format!("/dev/tcp/$FRESHLINE_HOST/{}", listener.local_addr().unwrap().port());
    let script = format!("exec 3<>{peer} 4<>{peer}; cat <&4 >/dev/null & cat <&3 >&3");
    let child = bench.command(&["--json", "--frames", &frames], &script).spawn().unwrap();
    let mut echo = listener.accept().unwrap().0;
    let bulk = listener.accept().unwrap().0;
    echo.set_nodelay(true).unwrap();
    let idle = (0..5).map(|_| rtt(&mut echo)).min().unwrap();

    let mut writer = bulk.try_clone().unwrap();
    let download = std::thread::spawn(move || while writer.write_all(&[0; 1 << 16]).is_ok() {});
    // Only on a machine that is too busy does it wait for long.
    let start = Instant::now();
    let mut loaded = Duration::ZERO;
    while loaded < 10 * idle && start.elapsed() < PATIENCE / 4 {
        loaded = (0..3).map(|_| rtt(&mut echo)).min().unwrap();
    }
    bulk.shutdown(std::net::Shutdown::Both).unwrap();
    download.join().unwrap();
    drop(echo);

    let report = report_of(child.wait_with_output().unwrap());
    let [access_point, command] = &report["wlan"]["stations"].as_array().unwrap()[..] else {
        panic!("{report}");
    };
    let count = |value: &Value| value.as_u64().unwrap();
    // The command's acknowledgements contend with the packets to it.
    assert!(count(&access_point["frames_received"]) > 0, "{access_point}");
    assert!(count(&command["frames_received"]) > 0, "{command}");
    let logged: u64 = fs::read_to_string(frames).unwrap().lines().skip(1).map(packets_down).sum();
    assert_eq!(logged, count(&access_point["packets_out"]));
    (loaded.as_secs_f64() / idle.as_secs_f64(), report)
}

/// The packets to the command in a line of the log of frames.
fn packets_down(line: &str) -> u64 {
    let [_, _, _, to, _, packets, _] = line.split(',').collect::<Vec<_>>()[..] else {
        panic!("{line}");
    };
    if to == "1" { packets.parse().unwrap() } else { 0 }
}

#[test]
fn a_mistake_in_a_file_is_shown_at_its_place() {
    for (file, place) in [
        ("[[forward.hop]]\nrate = \"6mbit\"\nlos = 0.1\n", "unknown field `los`"),
        ("[[reverse.hop]]\ndelay = \"1ms\"\nmtu = \"big\"\n", "big"),
        ("[wlan]\nrate = \"12mbit\"\nspeed = 3\n", "unknown field `speed`"),
    ] {
        let done = Bench::new(file).output(&[], "true");
        let message = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2));
        assert!(message.contains("path.toml:3") && message.contains(place), "{message}");
    }
    let done = Bench::new("[[reverse.hop]]\nto_bad = 0.1\n").output(&[], "true");
    assert_eq!(done.status.code(), Some(2));
    let message = text(&done.stderr);
    assert!(message.contains("reverse path, hop 1: `to_bad` needs a `to_good`"), "{message}");
}
