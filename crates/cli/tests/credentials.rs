//! The right to open sessions: credentials, their reload and revocation, and the names of
//! certificates.

#[path = "common/lines.rs"]
mod lines;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use lines::lines;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Much longer than the maximum interval between openings (2.5 s): a loaded machine is not a
/// failure.
const PATIENCE: Duration = Duration::from_secs(30);

fn freshline(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command
}

fn ended(words: &str) -> Output {
    freshline(words).output().expect("it runs")
}

/// Text without the lines that it was broken into.
fn on_one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

/// A command that runs; killed when it is dropped, also by a test that fails.
struct Running {
    child: Child,
    /// Lines of standard output, and of standard error.
    out: Receiver<String>,
    err: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(words: &str) -> Self {
        let mut command = freshline(words);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let out = lines(child.stdout.take().expect("piped"));
        let err = lines(child.stderr.take().expect("piped"));
        Self { child, out, err }
    }

    /// The next line of standard error with this in it.
    #[track_caller]
    fn says(&self, what: &str) -> String {
        wait_for(&self.err, what)
    }

    /// Makes it read its credentials again.
    fn reload(&self) {
        self.signal(Signal::SIGHUP);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("it runs");
    }

    /// Ends it; returns the last line of standard error with this text in it.
    #[track_caller]
    fn end(self, what: &str) -> String {
        self.signal(Signal::SIGTERM);
        self.says(what)
    }
}

#[track_caller]
fn wait_for(lines: &Receiver<String>, what: &str) -> String {
    let (mut before, end) = (Vec::new(), Instant::now() + PATIENCE);
    loop {
        let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) else {
            panic!("no line with `{what}` after {before:#?}");
        };
        if line.contains(what) {
            return line;
        }
        before.push(line);
    }
}

/// A folder with tokens and a credentials file.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn credentials(&self) -> PathBuf {
        self.path("credentials")
    }

    /// Makes a token; returns the line that permits it to use these names.
    fn token(&self, file: &str, names: &str, right: &str) -> String {
        let path = self.path(file);
        let done = ended(&format!("token new {} --name {names} --right {right}", path.display()));
        assert!(done.status.success(), "{}", on_one_line(&done.stderr));
        String::from_utf8(done.stdout).expect("text")
    }

    fn permit(&self, lines: &[&str]) {
        fs::write(self.credentials(), lines.concat()).expect("it can be written");
    }
}

/// A server that listens, and how its peers name it.
struct Far {
    running: Running,
    url: String,
}

/// A monitor with these flags that prints states, or the server of a downlink.
fn far(folder: &Folder, command: &str, flags: &str) -> Far {
    let state = folder.path("state");
    let words = format!("{command} quic://127.0.0.1:0 --state-dir {} {flags}", state.display());
    let running = Running::start(&words);
    let address = running.says("listening at").replace("listening at ", "");
    let pin = running.says("fingerprint").replace("fingerprint ", "");
    Far { running, url: format!("{address} --pin {pin}") }
}

fn monitor(folder: &Folder) -> Far {
    let flags = format!("--credentials {} --out -", folder.credentials().display());
    far(folder, "monitor", &flags)
}

fn source(folder: &Folder, far: &Far, name: &str, token: &str) -> Running {
    let token = folder.path(token);
    Running::start(&format!(
        "source {} --size 32B --law fixed --rate 20/s --name {name} --token-file {}",
        far.url,
        token.display(),
    ))
}

#[test]
fn a_token_opens_the_names_of_its_line_and_no_other_name() {
    let folder = Folder::new();
    let line = folder.token("robots", "robot-*", "publish");
    folder.token("stranger", "*", "publish");
    let reader = folder.token("reader", "*", "subscribe");
    folder.permit(&["# the fleet\n\n", &line, &reader]);
    let far = monitor(&folder);
    let _robot = source(&folder, &far, "robot-7", "robots");
    wait_for(&far.running.out, "robot-7");

    let lidar = source(&folder, &far, "lidar-3", "robots");
    let said = lidar.says("does not permit");
    assert!(said.contains("this source's is `lidar-3`"), "{said}");
    let reader = source(&folder, &far, "robot-8", "reader");
    reader.says("does not permit");
    // A stranger learns nothing of names.
    for name in ["robot-8", "lidar-3"] {
        let stranger = source(&folder, &far, name, "stranger");
        stranger.says("does not accept the token");
    }
    let summary = far.running.end("sources opened");
    assert!(summary.contains("1 sources opened"), "{summary}");
}

#[test]
fn a_source_receives_states_only_with_the_right_to() {
    let folder = Folder::new();
    let fleet = folder.token("fleet", "robot-*", "publish");
    let may_receive = fleet.replacen("publish", "receive", 1);
    let lidar = folder.token("lidar", "lidar-*", "publish");
    folder.permit(&[&fleet, &may_receive, &lidar]);
    let flags = "--out - --topic cmd,size=16 --law fixed --rate 20/s --credentials";
    let far = far(&folder, "monitor", &format!("{flags} {}", folder.credentials().display()));
    let open = |name: &str, token: &str| {
        let token = folder.path(token).display().to_string();
        let words = "--size 32B --law fixed --rate 20/s --receive";
        Running::start(&format!("source {} {words} --name {name} --token-file {token}", far.url))
    };
    let lidar = open("lidar-1", "lidar");
    wait_for(&far.running.out, "lidar-1");
    let said = far.running.says("has no right `receive`");
    assert!(said.contains("lidar-1"), "{said}");
    let robot = open("robot-7", "fleet");
    wait_for(&far.running.out, "robot-7");
    for _ in 0..10 {
        wait_for(&robot.out, "\"topic\":\"cmd\"");
    }
    assert!(lidar.out.try_recv().is_err(), "it has no right to states");

    folder.permit(&[&fleet]);
    far.running.reload();
    far.running.says("sessions ended: 1");
    let is_silent = || robot.out.recv_timeout(Duration::from_millis(500)).is_err();
    assert!((0..1_000).any(|_| is_silent()), "it receives states without the right");
    while far.running.out.try_recv().is_ok() {}
    wait_for(&far.running.out, "robot-7");
}

#[test]
fn a_revoked_token_ends_its_sessions_at_once_on_all_paths_and_its_names_are_free() {
    let folder = Folder::new();
    let former = folder.token("former", "robot-*", "publish");
    let next = folder.token("next", "robot-*", "publish");
    folder.permit(&[&former]);
    let far = monitor(&folder);
    let both = "--via lo,127.0.0.1 --scheduler redundant";
    let token = folder.path("former");
    let robot = Running::start(&format!(
        "source {} {both} --size 32B --law fixed --rate 20/s --name robot-7 --every 200ms \
         --token-file {}",
        far.url,
        token.display()
    ));
    // Each path has opened with the token: updates that carry no opening are acknowledged on it.
    for path in ["lo", "127.0.0.1"] {
        robot.says(&format!("  {path:<10} live"));
    }
    wait_for(&far.running.out, "robot-7");

    folder.permit(&[&next]);
    far.running.reload();
    far.running.says("sessions ended: 1");
    robot.says("has revoked the token");
    robot.says("does not accept the token");
    while far.running.out.try_recv().is_ok() {}
    assert!(far.running.out.recv_timeout(Duration::from_millis(300)).is_err(), "it still sends");
    let _another = source(&folder, &far, "robot-7", "next");
    wait_for(&far.running.out, "robot-7");
}

#[test]
fn a_name_that_is_no_longer_permitted_ends_its_session_and_no_other() {
    let folder = Folder::new();
    let all = folder.token("fleet", "*", "publish");
    folder.permit(&[&all]);
    let far = monitor(&folder);
    let robot = source(&folder, &far, "robot-1", "fleet");
    let lidar = source(&folder, &far, "lidar-1", "fleet");
    for (running, name) in [(&robot, "robot-1"), (&lidar, "lidar-1")] {
        running.says("is open");
        wait_for(&far.running.out, name);
    }
    folder.permit(&[&all.replacen('*', "robot-*", 1)]);
    far.running.reload();
    far.running.says("sessions ended: 1");
    lidar.says("does not permit");
    wait_for(&far.running.out, "robot-1");
    assert!(robot.err.try_recv().is_err(), "nothing has happened to its session");
}

#[test]
fn a_broken_file_leaves_the_credentials_in_force_and_is_named() {
    let folder = Folder::new();
    let line = folder.token("robots", "robot-*", "publish");
    folder.permit(&[&line]);
    let far = monitor(&folder);
    let _robot = source(&folder, &far, "robot-7", "robots");
    wait_for(&far.running.out, "robot-7");
    for (broken, why) in [
        (&[&line, "robot-8 publish\n"][..], "credentials, line 2: a line has three fields"),
        (&[""], "has no `publish` line"),
    ] {
        folder.permit(broken);
        far.running.reload();
        let said = far.running.says("stay in force");
        assert!(said.contains(why), "{said}");
    }
    fs::remove_file(folder.credentials()).expect("it is there");
    far.running.reload();
    far.running.says("cannot read the credentials file");
    while far.running.out.try_recv().is_ok() {}
    wait_for(&far.running.out, "robot-7");
    let _other = source(&folder, &far, "robot-8", "robots");
    wait_for(&far.running.out, "robot-8");

    let path = folder.credentials();
    fs::write(&path, "robot-8 write 00\n").expect("it can be written");
    let words = format!("monitor quic://127.0.0.1:0 --credentials {}", path.display());
    let done = ended(&words);
    assert_eq!(done.status.code(), Some(2));
    let said = on_one_line(&done.stderr);
    assert!(said.contains("line 1: `write` is not a right"), "{said}");
}

#[test]
fn a_token_file_is_read_again_too() {
    let folder = Folder::new();
    folder.token("former", "*", "publish");
    folder.token("next", "*", "publish");
    let tokens = folder.path("tokens");
    let accept = |token: &str| fs::copy(folder.path(token), &tokens).expect("it can be written");
    accept("former");
    let far = far(&folder, "monitor", &format!("--token-file {} --out -", tokens.display()));
    let robot = source(&folder, &far, "robot", "former");
    wait_for(&far.running.out, "robot");
    accept("next");
    far.running.reload();
    far.running.says("sessions ended: 1");
    robot.says("does not accept the token");
}

#[test]
fn a_certificate_opens_its_own_names_if_that_is_asked_for() {
    let folder = Folder::new();
    let identity = folder.path("client");
    let done = ended(&format!("bond identity --state-dir {}", identity.display()));
    assert!(done.status.success(), "{}", on_one_line(&done.stderr));
    // A certificate that is its own authority, and lists `localhost`.
    let pem = identity.join("identity.pem").display().to_string();
    let open = |far: &Far, name: &str| {
        Running::start(&format!(
            "source {} --size 32B --name {name} --cert {pem} --key {pem}",
            far.url
        ))
    };
    let far = far(&folder, "monitor", &format!("--client-ca {pem} --certified-names --out -"));
    open(&far, "robot").says("does not permit");
    let _named = open(&far, "localhost");
    wait_for(&far.running.out, "localhost");
    let done = ended("monitor quic://127.0.0.1:0 --certified-names");
    assert_eq!(done.status.code(), Some(2), "without certificates it has no meaning");
}

#[test]
fn an_authority_that_is_taken_out_ends_its_connections_and_no_others() {
    let folder = Folder::new();
    let identity = |who: &str| {
        let state = folder.path(who);
        let done = ended(&format!("bond identity --state-dir {}", state.display()));
        assert!(done.status.success(), "{}", on_one_line(&done.stderr));
        state.join("identity.pem")
    };
    // Each certificate is its own authority.
    let [former, kept] = ["former", "kept"].map(identity);
    let authorities = folder.path("authorities");
    let trust = |those: &[&Path]| {
        let text = those.iter().map(|path| fs::read_to_string(path).expect("text"));
        fs::write(&authorities, text.collect::<String>()).expect("it can be written");
    };
    trust(&[&former, &kept]);
    let far = far(&folder, "monitor", &format!("--client-ca {} --out -", authorities.display()));
    let open = |name: &str, pem: &Path| {
        let pem = pem.display();
        Running::start(&format!(
            "source {} --size 32B --law fixed --rate 20/s --name {name} --cert {pem} --key {pem}",
            far.url
        ))
    };
    let revoked = open("robot-1", &former);
    let other = open("robot-2", &kept);
    for (running, name) in [(&revoked, "robot-1"), (&other, "robot-2")] {
        running.says("is open");
        wait_for(&far.running.out, name);
    }

    fs::write(&authorities, "no certificate").expect("it can be written");
    far.running.reload();
    let said = far.running.says("stay in force");
    assert!(said.contains("holds no certificate"), "{said}");

    trust(&[&kept]);
    far.running.reload();
    far.running.says("sessions ended: 1");
    revoked.says("has revoked the token");
    while far.running.out.try_recv().is_ok() {}
    wait_for(&far.running.out, "robot-2");
    let another = open("robot-3", &former);
    another.says("refused");
    let end = Instant::now() + Duration::from_millis(500);
    while let Ok(line) = far.running.out.recv_timeout(end.saturating_duration_since(Instant::now()))
    {
        assert!(line.contains("robot-2"), "{line}");
    }
    assert!(other.err.try_recv().is_err(), "nothing has happened to its session");
}

/// The page of metrics of a monitor.
fn metrics(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("text");
    page
}

#[test]
fn a_source_without_a_session_ends_in_reports_with_its_credential() {
    let folder = Folder::new();
    let lines = ["gone", "kept"].map(|token| folder.token(token, "robot-*", "publish"));
    folder.permit(&[&lines[0], &lines[1]]);
    let flags = format!(
        "--credentials {} --idle-timeout 1s --metrics 127.0.0.1:0 --json",
        folder.credentials().display()
    );
    let far = far(&folder, "monitor", &flags);
    let at = far.running.says("metrics at http://");
    let at = at.trim_start_matches("metrics at http://").trim_end_matches("/metrics").to_owned();
    for (name, token) in [("robot-1", "gone"), ("robot-2", "kept")] {
        let source = source(&folder, &far, name, token);
        source.says("is open");
        // Without a goodbye: its session expires, and its growing age stays.
        drop(source);
    }
    let has = |page: &str, name: &str| {
        page.contains(&format!("freshline_silence_seconds{{source=\"{name}\"}}"))
    };
    let until = |is_so: &dyn Fn(&str) -> bool| {
        let end = Instant::now() + PATIENCE;
        loop {
            let page = metrics(&at);
            if is_so(&page) {
                return;
            }
            assert!(Instant::now() < end, "{page}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    until(&|page| {
        page.contains("freshline_sources 0") && has(page, "robot-1") && has(page, "robot-2")
    });

    folder.permit(&[&lines[1]]);
    far.running.reload();
    far.running.says("sessions ended: 0");
    let page = metrics(&at);
    assert!(!has(&page, "robot-1") && has(&page, "robot-2"), "{page}");
}

#[test]
fn a_client_of_a_downlink_needs_a_token_that_may_subscribe() {
    let folder = Folder::new();
    let reader = folder.token("reader", "display", "subscribe");
    let writer = folder.token("writer", "*", "publish");
    folder.permit(&[&reader, &writer]);
    let flags = format!("--credentials {} --size 1kB", folder.credentials().display());
    let far = far(&folder, "wlan serve", &flags);
    let join = |token: &str, name: &str| {
        let token = folder.path(token);
        let token = token.display();
        Running::start(&format!(
            "wlan receive {} --mcs-rate 108mbit --name {name} --token-file {token}",
            far.url
        ))
    };
    join("writer", "display").says("does not permit");
    join("reader", "wall").says("does not permit");
    let client = join("reader", "display");
    client.says("packets come");
    folder.permit(&[&reader.replacen("display", "wall", 1)]);
    far.running.reload();
    far.running.says("sessions ended: 1");
    client.says("does not permit");
}

#[test]
fn a_new_token_is_for_its_owner_alone_and_never_replaces_another() {
    let folder = Folder::new();
    let line = folder.token("robots", "robot-*", "publish");
    let path = folder.path("robots");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    let secret = fs::read_to_string(&path).expect("text");
    assert!(line.starts_with("robot-* publish sha256:") && !line.contains(secret.trim()));

    let done = ended(&format!("token new {} --name robot-*", path.display()));
    assert_eq!(done.status.code(), Some(2));
    assert!(on_one_line(&done.stderr).contains("exists already"));
    assert_eq!(fs::read_to_string(&path).expect("text"), secret);
    let done = ended(&format!("token line {} --name robot-*", path.display()));
    assert_eq!(String::from_utf8_lossy(&done.stdout), line);
    let done = Command::new(env!("CARGO_BIN_EXE_freshline"))
        .args(["token", "line", path.to_str().expect("text"), "--name", "a b"])
        .output()
        .expect("it runs");
    assert_eq!(done.status.code(), Some(2));
    assert!(on_one_line(&done.stderr).contains("without blanks"));
}

#[test]
fn udp_beyond_this_host_must_be_asked_for() {
    for words in ["monitor udp://0.0.0.0:0", "wlan serve udp://[::]:0 --size 1kB"] {
        let done = ended(words);
        assert_eq!(done.status.code(), Some(2), "{words}");
        let said = on_one_line(&done.stderr);
        for what in ["neither encrypted nor authenticated", "quic://", "give --insecure"] {
            assert!(said.contains(what), "{words}: {said}");
        }
        let done = ended(&format!("{words} --insecure --duration 50ms"));
        assert!(done.status.success(), "{}", on_one_line(&done.stderr));
    }
    let done = ended("monitor udp://127.0.0.1:0 --duration 50ms");
    assert!(done.status.success(), "{}", on_one_line(&done.stderr));
    let done = ended("monitor quic://127.0.0.1:0 --insecure");
    assert_eq!(done.status.code(), Some(2));
    assert!(on_one_line(&done.stderr).contains("--insecure belongs to udp://"));
}
