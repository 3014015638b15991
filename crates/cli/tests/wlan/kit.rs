//! Servers, clients and emulated access points.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const FRESHLINE: &str = env!("CARGO_BIN_EXE_freshline");

/// 802.11ac over 40 MHz at 108 Mbit/s, with the emulator's queue of 500 packets a station.
pub(crate) const CELL: [(&str, &str); 3] =
    [("standard", "802.11ac"), ("rate", "mcs5"), ("width", "40MHz")];
pub(crate) const MCS_RATE: &str = "108mbit";

/// Half of the intended delay: with a larger lateness, the emulator does not show the intended
/// cell.
pub(crate) const TIMELY_MS: f64 = 1.5;

/// The cell as `emulate udp --wlan` takes it.
pub(crate) fn cell() -> String {
    let settings: Vec<_> = CELL.iter().map(|(key, value)| format!("{key}={value}")).collect();
    settings.join(",")
}

/// Runs measure: those of one test at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of rows measured at the same time: one if `FRESHLINE_WHOLE` asks for figures, as
/// `scripts/wlan-figures` does.
pub(crate) fn at_once(rows: usize) -> usize {
    if std::env::var_os("FRESHLINE_WHOLE").is_some() { 1 } else { rows }
}

/// Whether commands can run behind an emulated path; prints the reason if not.
pub(crate) fn can_run() -> bool {
    let missing = if !Uid::effective().is_root() {
        "root"
    } else if !Path::new("/dev/net/tun").exists() {
        "/dev/net/tun"
    } else if Command::new("ping").arg("-V").output().is_err() {
        "ping"
    } else {
        return true;
    };
    println!("skipped: needs {missing}");
    false
}

/// The port of the address that stands behind `after`.
pub(crate) fn port_in(line: &str, after: &str) -> Option<u16> {
    let address = line.split_once(after)?.1.split([';', ' ', ',', '/', '\n']).next()?;
    address.rsplit(':').next()?.parse().ok()
}

/// A command that prints the address of its socket to standard error, and a JSON report at its end.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) port: u16,
    /// Its output on standard error up to that line.
    pub(crate) said: String,
    /// Of a server on quic://.
    pub(crate) fingerprint: Option<String>,
    _folder: TempDir,
}

impl Daemon {
    /// `after` is the text in front of the address, on the line that has it.
    pub(crate) fn start(arguments: &[&str], after: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(FRESHLINE)
            .args(arguments)
            .env("XDG_STATE_HOME", folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let (mut port, mut fingerprint, mut lines) = (None, None, String::new());
        let is_quic = arguments.iter().any(|word| word.starts_with("quic://"));
        while port.is_none() || (is_quic && fingerprint.is_none()) {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "it said only {lines}");
            port = port.or_else(|| port_in(&line, after));
            fingerprint =
                fingerprint.or_else(|| Some(line.strip_prefix("fingerprint ")?.trim().to_owned()));
            lines += &line;
        }
        // The rest of its output is read and ignored, so that the pipe does not fill.
        thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Self { child, port: port.unwrap(), said: lines, fingerprint, _folder: folder }
    }

    /// A server of packets, on all addresses.
    pub(crate) fn server(scheme: &str, arguments: &[&str]) -> Self {
        let address = format!("{scheme}://0.0.0.0:0");
        let mut always = vec!["wlan", "serve", &address, "--size", "9000", "--json"];
        if scheme == "udp" {
            always.push("--insecure");
        }
        Self::start(&[&always[..], arguments].concat(), &format!("at {scheme}://"))
    }

    /// An access point between clients and a server, in the relay.
    pub(crate) fn access_point(server: u16) -> Self {
        Self::relay(server, &["--wlan", &cell(), "--max-flows", "8"])
    }

    /// A relay in front of a server; `path` describes what lies between.
    pub(crate) fn relay(server: u16, path: &[&str]) -> Self {
        let to = format!("127.0.0.1:{server}");
        let words = ["emulate", "udp", "--listen", "127.0.0.1:0", "--to", &to, "--json"];
        Self::start(&[&words[..], path].concat(), "")
    }

    /// Ends it and returns its report.
    pub(crate) fn end(mut self) -> Value {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
        let mut told = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long a run is, and how much of it until all has settled, in s.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    pub(crate) warm_up: u32,
    pub(crate) all: u32,
}

impl Length {
    pub(crate) fn measured(self) -> u32 {
        self.all - self.warm_up
    }
}

/// A client on udp:// that counts for `seconds`, with further `words`.
pub(crate) fn receive(port: u16, seconds: u32, words: &[&str]) -> Child {
    Command::new(FRESHLINE)
        .args(["wlan", "receive", &format!("udp://127.0.0.1:{port}"), "--json"])
        .args(["--duration", &format!("{seconds}s")])
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The words that start a client of `server` at `host`.
pub(crate) fn client(
    scheme: &str,
    host: &str,
    port: u16,
    server: &Daemon,
    length: Length,
) -> String {
    let Length { warm_up, all } = length;
    let pin = server.fingerprint.as_ref().map_or(String::new(), |print| format!("--pin {print}"));
    format!(
        "{FRESHLINE} wlan receive {scheme}://{host}:{port} {pin} --mcs-rate {MCS_RATE} --duration \
         {all}s --warm-up {warm_up}s --json"
    )
}

/// The results of a run behind `freshline emulate run`: its files, and the emulator's report.
pub(crate) struct Behind {
    folder: TempDir,
    pub(crate) told: Value,
}

impl Behind {
    /// Runs `script` with Wi-Fi in front of it.
    pub(crate) fn run(script: &str) -> Self {
        Self::run_over("", script)
    }

    /// The same, with further tables of the path file: hops between the host and the Wi-Fi.
    pub(crate) fn run_over(hops: &str, script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("path.toml");
        let cell = CELL.iter().map(|(key, value)| format!("{key} = \"{value}\"\n"));
        fs::write(&file, format!("{hops}\n[wlan]\n{}", cell.collect::<String>())).unwrap();
        let script = script.replace("FOLDER", folder.path().to_str().unwrap());
        let done = Command::new(FRESHLINE)
            .args(["emulate", "run"])
            .arg(file)
            .args(["--json", "--", "bash", "-c", &script])
            .output()
            .unwrap();
        let told = serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&done.stderr)));
        Self { folder, told }
    }

    pub(crate) fn file(&self, name: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// 99th percentile of an emulator's lateness, the larger of both directions.
pub(crate) fn late_ms(told: &Value) -> f64 {
    let late = |direction: &str| told[direction]["timing_error"]["p99_ms"].as_f64().unwrap();
    late("forward").max(late("reverse"))
}
