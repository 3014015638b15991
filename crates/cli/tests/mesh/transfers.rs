//! Transfers over lossy paths, both emulated ones and cables between namespaces: they complete, and
//! no sender holds an empty segment, which a receiver would never acknowledge.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use super::chain::{batch, lossy};
use super::common::{FRESHLINE, assert_succeeded, can_run_with, text};
use super::hosts::Hosts;
use super::{Alone, NAME, mesh};

/// Of each variant over each kind of path: 56 in all.
const CONNECTIONS: usize = 4;
/// How long a transfer is watched.
const SECONDS: u64 = 20;
/// Then the share becomes a tenth, so that a segment is put off for longer than a timeout.
const SLOWER_AFTER: Duration = Duration::from_secs(8);
/// Longer than any pause of TCP: a timeout is 0.2 s at first, and doubles.
const SILENCE: Duration = Duration::from_secs(10);

/// Deviations from Linux's defaults.
#[derive(Debug, Clone, Copy, Default)]
struct Variant {
    name: &'static str,
    /// Of the sender's namespace, below net.ipv4.
    sysctls: &'static [&'static str],
    /// The receiver's buffer in bytes, for a window of about as much; the kernel's choice if 0.
    receive_buffer: usize,
    /// The receiver reads nothing for a while, so that the window closes.
    pauses: bool,
    /// Commands of the sender's shell, run each second.
    each_second: &'static str,
}

const PLAIN: Variant =
    Variant { name: "plain", sysctls: &[], receive_buffer: 0, pauses: false, each_second: ":" };

const VARIANTS: [Variant; 7] = [
    PLAIN,
    Variant { name: "no SACK", sysctls: &["tcp_sack=0"], ..PLAIN },
    Variant { name: "no timestamps", sysctls: &["tcp_timestamps=0"], ..PLAIN },
    Variant { name: "ECN", sysctls: &["tcp_ecn=1"], ..PLAIN },
    Variant { name: "tiny windows", receive_buffer: 4096, ..PLAIN },
    Variant { name: "windows of 0", receive_buffer: 8192, pauses: true, ..PLAIN },
    Variant {
        name: "changes of the MSS",
        each_second: "ip link set dev $DEVICE mtu $((second % 2 ? 700 : 1500))",
        ..PLAIN
    },
];

/// Sends without end, and prints the senders' statistics of `ss` each second.
const SEND: &str = "\
for setting in tcp_congestion_control=freshline_dtpa $SETTINGS; do
    echo ${setting#*=} > /proc/sys/net/ipv4/${setting%%=*}
done
for i in $(seq $CONNECTIONS); do
    (exec 3<>/dev/tcp/$FRESHLINE_HOST/$PORT && exec timeout $((SECONDS_TO_RUN + 5)) cat /dev/zero >&3) &
done
for second in $(seq $SECONDS_TO_RUN); do
    sleep 1
    eval \"$EACH_SECOND\"
    ss -tinHO state established
done
kill $(jobs -p)";

/// Statistics of a receiver.
#[derive(Debug, Clone, Copy)]
struct Received {
    bytes: u64,
    max_silence: Duration,
}

fn receive(mut stream: TcpStream, pauses: bool, end: Instant) -> Received {
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut seen = Received { bytes: 0, max_silence: Duration::ZERO };
    let (mut last, mut chunk) = (Instant::now(), [0; 1 << 14]);
    let pause_at = last + Duration::from_secs(4);
    let mut has_paused = !pauses;
    while Instant::now() < end {
        if !has_paused && Instant::now() > pause_at {
            has_paused = true;
            thread::sleep(Duration::from_secs(2));
            last = Instant::now();
        }
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => {
                seen.bytes += length as u64;
                last = Instant::now();
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
        seen.max_silence = seen.max_silence.max(last.elapsed());
    }
    seen
}

fn listen(variant: Variant) -> TcpListener {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    // A sender that does not start fails the test in place of holding it up.
    setsockopt(&listener, sockopt::ReceiveTimeout, &TimeVal::seconds(15)).unwrap();
    if variant.receive_buffer > 0 {
        setsockopt(&listener, sockopt::RcvBuf, &variant.receive_buffer).unwrap();
    }
    listener
}

/// The number after the colon of a word such as `unacked:1`; 0 if the line has no such word.
fn number(line: &str, key: &str) -> u64 {
    let named = |word: &str| word.strip_prefix(key)?.strip_prefix(':')?.parse().ok();
    line.split_whitespace().find_map(named).unwrap_or(0)
}

/// The lines of `ss` with a segment that waits for its ack, although all sent bytes are
/// acknowledged. The SYN counts as an acknowledged byte.
fn empty_segments(told: &str) -> Vec<&str> {
    let is_empty = |line: &&str| {
        let sent = number(line, "bytes_sent") - number(line, "bytes_retrans");
        number(line, "unacked") > 0 && sent < number(line, "bytes_acked")
    };
    told.lines().filter(is_empty).collect()
}

#[test]
fn an_empty_segment_is_told_from_the_others() {
    let line = |unacked, sent| {
        format!("ESTAB bytes_sent:{sent} bytes_retrans:1448 bytes_acked:43478 unacked:{unacked}")
    };
    assert_eq!(empty_segments(&line(1, 44_925)).len(), 1);
    assert_eq!(empty_segments(&line(0, 44_925)).len(), 0);
    assert_eq!(empty_segments(&line(1, 44_926)).len(), 0);
}

/// Runs the sender by this command, and checks what both ends saw.
fn check(sender: &mut Command, listener: &TcpListener, variant: Variant, path: &str) {
    let port = listener.local_addr().unwrap().port();
    let child = sender
        .env("PORT", port.to_string())
        .env("CONNECTIONS", CONNECTIONS.to_string())
        .env("SECONDS_TO_RUN", SECONDS.to_string())
        .env("SETTINGS", variant.sysctls.join(" "))
        .env("EACH_SECOND", variant.each_second)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let receivers: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let stream = listener.accept().expect("a connection").0;
            let end = Instant::now() + Duration::from_secs(SECONDS);
            thread::spawn(move || receive(stream, variant.pauses, end))
        })
        .collect();
    let all: Vec<_> = receivers.into_iter().map(|one| one.join().unwrap()).collect();
    let done = child.wait_with_output().unwrap();
    let told = text(&done.stdout);
    let (senders, last) = (told.lines().count(), told.lines().last().unwrap_or(""));
    let bytes: u64 = all.iter().map(|one| one.bytes).sum();
    let silence = all.iter().map(|one| one.max_silence).max().unwrap();
    println!("{path}, {}: {bytes} bytes, silent for {silence:.1?}", variant.name);
    assert_eq!(empty_segments(&told), [""; 0], "{path}, {variant:?}");
    assert!(silence < SILENCE, "{path}, {variant:?}: {all:?}; {last}");
    assert!(all.iter().all(|one| one.bytes > 0), "{path}, {variant:?}: {all:?}");
    let are_ours = told.lines().all(|line| line.contains(NAME));
    assert!(are_ours && senders > CONNECTIONS, "{told}\n{}", text(&done.stderr));
}

/// Over TUN devices and the emulator's hops.
fn emulated(variant: Variant) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("path.toml");
    let hop = "queue = { discipline = \"codel\", limit = \"15p\", ecn = true }";
    let path = format!(
        "[[forward.hop]]\nrate = \"5mbit\"\ndelay = \"10ms\"\nloss = 0.02\n{hop}\n\
         [[reverse.hop]]\ndelay = \"10ms\"\n"
    );
    fs::write(&file, path).unwrap();
    let mut sender = Command::new(FRESHLINE);
    sender.args(["emulate", "run"]).arg(&file).args(["--", "bash", "-c", SEND]);
    check(sender.env("DEVICE", "freshline"), &listen(variant), variant, "emulated");
}

/// Over a pair of veths, which lose packets, too, and pass 5 Mbit/s.
fn cabled(variant: Variant, number: usize) {
    let hosts = Hosts::new("mesh", &["from", "to"]);
    let [from, to] = ["from", "to"].map(|host| hosts.name(host));
    hosts.ip("from", &format!("link add v netns {from} type veth peer name v netns {to}"));
    for (host, address) in [("from", 1), ("to", 2)] {
        hosts.ip(host, &format!("addr add 10.80.{}.{address}/24 dev v", 30 + number));
        hosts.ip(host, "link set dev v up");
    }
    let limit = [
        "qdisc add dev v root handle 1: tbf rate 5mbit burst 3000 limit 1m".to_owned(),
        "qdisc add dev v parent 1:1 handle 2: pfifo limit 15".to_owned(),
    ];
    batch(&mut hosts.command("from", "tc"), &limit);
    batch(&mut hosts.command("to", "tc"), &lossy("v", 20));
    let listener = hosts.within("to", || listen(variant));
    let mut sender = hosts.command("from", "bash");
    sender.args(["-c", SEND]).env("DEVICE", "v");
    sender.env("FRESHLINE_HOST", format!("10.80.{}.2", 30 + number));
    check(&mut sender, &listener, variant, "cabled");
}

#[test]
#[ignore = "long: takes many seconds of real time"]
fn lossy_transfers_go_on_to_their_end() {
    if !can_run_with(&["/dev/net/tun", "/bin/bash"]) {
        return;
    }
    let _alone = Alone::new();
    assert_succeeded(&mesh("attach --share 50"));
    thread::scope(|scope| {
        for (number, variant) in VARIANTS.into_iter().enumerate() {
            scope.spawn(move || emulated(variant));
            scope.spawn(move || cabled(variant, number));
        }
        thread::sleep(SLOWER_AFTER);
        assert_succeeded(&mesh("set --share 5"));
    });
}
