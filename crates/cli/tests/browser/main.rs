//! Freshline in browsers: the library for JavaScript, the page in Chromium and Firefox, and ages over a bad link. The
//! programs that drive the browsers are in `web/test`, and their screenshots in `target/web`.

#[path = "../common/pages.rs"]
mod pages;
#[path = "../common/process.rs"]
mod process;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::unistd::Uid;
use pages::{chromium, has, web};
use process::Process;
use serde_json::Value;

const FRESHLINE: &str = env!("CARGO_BIN_EXE_freshline");

/// Runs a program of `web`, and prints its output.
fn node(arguments: &[&str]) -> Output {
    let done = pages::program(arguments).output().expect("node runs");
    println!("{}{}", text(&done.stdout), text(&done.stderr));
    done
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A free port, for both TCP and UDP as far as that can be known.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it is bound").port()
}

/// Starts the command, and returns the first line of standard error with `wanted`.
fn start(arguments: &[&str], wanted: &str) -> (Process, String) {
    let child = Command::new(FRESHLINE)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut process = Process(child);
    let found = line_with(&mut process.0, wanted);
    (process, found.unwrap_or_else(|| panic!("{arguments:?} says nothing of {wanted}")))
}

/// The first line of standard error with `wanted`; later lines are read and dropped.
fn line_with(child: &mut Child, wanted: &str) -> Option<String> {
    let mut lines = BufReader::new(child.stderr.take()?).lines().map_while(Result::ok);
    let found = lines.by_ref().find(|line| line.contains(wanted));
    std::thread::spawn(move || lines.for_each(drop));
    found
}

#[test]
fn the_library_for_javascript_passes_its_tests() {
    if has(&[]) {
        assert!(node(&["--test", "client/test/", "monitor/test/"]).status.success());
        // Types, and their declarations as generated.
        let check = Command::new("npm").args(["run", "check"]).current_dir(web()).output();
        let check = check.expect("npm runs");
        assert!(check.status.success(), "{}{}", text(&check.stdout), text(&check.stderr));
    }
}

#[test]
fn the_page_works_in_chromium() {
    if has(&[chromium()]) {
        assert!(node(&["test/browser.mjs"]).status.success());
    }
}

#[test]
fn the_page_shows_a_monitor_by_both_transports_and_over_its_restart() {
    if has(&[chromium()]) {
        assert!(node(&["test/gateway.mjs"]).status.success());
    }
}

#[test]
fn the_page_works_in_firefox() {
    if !has(&[("firefox-esr", Path::new("/usr/bin/firefox-esr").exists())]) {
        return;
    }
    let listen = format!("udp://127.0.0.1:{}", free_port());
    let (_monitor, page) = start(&["monitor", &listen, "--web", "127.0.0.1:0"], "page at");
    let sources = Sources::start(&listen, 50);
    let url = page.split_whitespace().last().expect("a URL");
    assert!(node(&["test/firefox.mjs", url, "50"]).status.success());
    drop(sources);
}

/// Sources that put a number 20 times a second, until it is dropped.
struct Sources(Arc<AtomicBool>);

impl Sources {
    fn start(monitor: &str, count: usize) -> Self {
        let open = |number| {
            let name = format!("robot-{number:02}");
            freshline::Source::builder(monitor).name(name).topic("count").spawn()
        };
        let sources: Vec<_> = (0..count).map(|number| open(number).expect("a source")).collect();
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        std::thread::spawn(move || {
            for number in 0_u64.. {
                if until.load(Ordering::Relaxed) {
                    break;
                }
                for source in &sources {
                    let topic = source.topic("count").expect("it has the topic");
                    topic.put(number.to_string()).expect("it is put");
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Self(ends)
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The link of the test of ages.
const LINK: &str = "[[forward.hop]]\nrate = \"2mbit\"\ndelay = \"25ms\"\nloss = 0.02\nqueue = \"100p\"\n\
    [[reverse.hop]]\nrate = \"2mbit\"\ndelay = \"25ms\"\nloss = 0.02\nqueue = \"100p\"\n";

/// Percentiles are of a few losses, and of a machine that may stand still.
const TRIES: usize = 3;

#[test]
fn ages_in_a_browser_over_a_bad_link_are_as_those_of_a_monitor() {
    let has_tun = Path::new("/dev/net/tun").exists();
    if !has(&[chromium(), ("root", Uid::effective().is_root()), ("/dev/net/tun", has_tun)]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("link.toml");
    std::fs::write(&link, LINK).expect("it can be written");
    let link = link.to_str().expect("text");
    let mut last = (f64::NAN, f64::NAN);
    for _ in 0..TRIES {
        let native = native_p95(link);
        let browser = browser_p95(link);
        println!("p95 of the native monitor: {native:.1} ms");
        if browser <= 1.5 * native {
            return;
        }
        last = (browser, native);
    }
    panic!("p95 in the browser {} ms, of the native monitor {} ms", last.0, last.1);
}

/// The 95th percentile of the age at a monitor, whose source is behind the link, ms.
fn native_p95(link: &str) -> f64 {
    let port = free_port();
    let listen = format!("udp://0.0.0.0:{port}");
    let words = ["monitor", &listen, "--insecure", "--json", "--duration", "22s"];
    let monitor = Command::new(FRESHLINE)
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let source = format!(
        "exec {FRESHLINE} source udp://$FRESHLINE_HOST:{port} --name robot --read /proc/loadavg \
         --duration 19s"
    );
    let done = Command::new(FRESHLINE)
        .args(["emulate", "run", link, "--", "sh", "-c", &source])
        .output()
        .expect("it runs");
    assert!(done.status.success(), "{}", text(&done.stderr));
    let report = monitor.wait_with_output().expect("it ends");
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let robot = report["ended"].get(0).unwrap_or(&report["sources"][0]);
    robot["age_p95_ms"].as_f64().unwrap_or_else(|| panic!("{report}"))
}

/// The same in a browser behind the link, over WebTransport; the other transports are printed.
fn browser_p95(link: &str) -> f64 {
    let listen = format!("udp://127.0.0.1:{}", free_port());
    let words = ["monitor", &listen, "--web", "0.0.0.0:0", "--web-insecure"];
    let (_monitor, page) = start(&words, "page at");
    let words = ["source", &listen, "--name", "robot", "--read", "/proc/loadavg"];
    let (_source, _) = start(&words, "open");
    let (address, token) = page.split_once("/#token=").expect("a URL");
    let port = address.rsplit(':').next().expect("a port");
    let plain = free_port().to_string();
    let server = pages::program(&["test/plain.mjs", &plain]).stdout(Stdio::null()).spawn();
    let _server = Process(server.expect("node runs"));
    let script = format!("exec node test/ages.mjs $FRESHLINE_HOST {port} {token} {plain}");
    let done = Command::new(FRESHLINE)
        .args(["emulate", "run", link, "--", "sh", "-c", &script])
        .current_dir(web())
        .output()
        .expect("it runs");
    println!("{}", text(&done.stdout));
    assert!(done.status.success(), "{}", text(&done.stderr));
    let first: Value =
        serde_json::from_slice(done.stdout.split(|byte| *byte == b'\n').next().unwrap())
            .expect("a line of JSON");
    assert_eq!(first["transport"], "webtransport");
    first["p95_ms"].as_f64().expect("a number")
}
