//! The hosts and paths on which bonds run, and helpers for the tests of bonds.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::common::{FRESHLINE, assert_succeeded, text};
pub(crate) use super::process::Process;
use super::two_paths::BESIDE;
pub(crate) use super::two_paths::{Net, Rate, SERVER, SERVER_6, can_run};

/// Whether the whole of a test is asked for by `FRESHLINE_WHOLE`, as `scripts/bond-figures` does, and
/// not the sample that is enough on each change.
pub(crate) fn is_whole() -> bool {
    std::env::var_os("FRESHLINE_WHOLE").is_some()
}

/// These tests are of schedulers and of paths that come and go, and their figures of paths that share
/// no bottleneck: each path is controlled on its own.
const CONGESTION: &str = "--congestion cubic";

impl Net {
    /// For a test that may run at the same time as others.
    pub(crate) fn beside(rates: [Rate; 2]) -> Self {
        Self::at(BESIDE.read().unwrap_or_else(PoisonError::into_inner), rates)
    }

    /// `freshline bond …` on a host.
    pub(crate) fn bond(&self, host: &str, arguments: &str) -> Command {
        let mut command = self.command(host, FRESHLINE);
        command.arg("bond").args(arguments.split_whitespace());
        command
    }

    /// The fingerprint of this end.
    pub(crate) fn pin(&self, who: &str) -> String {
        let state = self.state(who);
        let done = self.bond("c", &format!("identity --state-dir {state}")).output().unwrap();
        assert_succeeded(&done);
        text(&done.stdout).trim().to_owned()
    }

    /// A server that takes the client `c`.
    pub(crate) fn server(&self, options: &str) -> Process {
        self.server_at("0.0.0.0:3775", options)
    }

    /// The same at an address.
    pub(crate) fn server_at(&self, listen: &str, options: &str) -> Process {
        Process::start(&mut self.bond("s", &self.server_words(listen, options)), "fingerprint").0
    }

    fn server_words(&self, listen: &str, options: &str) -> String {
        let (state, pin) = (self.state("s"), self.pin("c"));
        format!("server {listen} --state-dir {state} --client-pin {pin} {CONGESTION} {options}")
    }

    /// The same on a host that asks `resolver` for names.
    pub(crate) fn server_with_names(&self, resolver: &str, options: &str) -> Process {
        let file = self.state("resolv.conf");
        fs::write(&file, format!("nameserver {resolver}\noptions timeout:1 attempts:1\n")).unwrap();
        let mut command = self.command("s", "unshare");
        let script = format!(
            "mount --bind {file} /etc/resolv.conf && exec {FRESHLINE} bond {}",
            self.server_words("0.0.0.0:3775", options)
        );
        command.args(["--mount", "sh", "-c", &script]);
        Process::start(&mut command, "fingerprint").0
    }

    /// Command line of a client with the identity `who`.
    pub(crate) fn client_of(&self, who: &str, options: &str) -> Command {
        let words = self.client_words(who, &format!("{options} {SERVER}:3775"));
        self.bond("c", &words)
    }

    fn client_words(&self, who: &str, options: &str) -> String {
        let (state, pin) = (self.state(who), self.pin("s"));
        format!("client --state-dir {state} --pin {pin} {CONGESTION} {options}")
    }

    /// A client with a limit of `files` open files.
    pub(crate) fn client_with_files(&self, files: u32, options: &str) -> Process {
        let words = self.client_words("c", &format!("{options} {SERVER}:3775"));
        let script = format!("ulimit -n {files} && exec {FRESHLINE} bond {words}");
        let mut command = self.command("c", "sh");
        command.args(["-c", &script]);
        Process::start(&mut command, "listening").0
    }

    /// A client of a server at another address than usual.
    pub(crate) fn client_to(&self, server: &str, options: &str) -> Process {
        let words = self.client_words("c", &format!("{options} {server}"));
        Process::start(&mut self.bond("c", &words), "listening").0
    }

    /// A client that forwards its port 8001 to port 8000 of the server's host.
    pub(crate) fn client(&self, options: &str) -> Process {
        self.client_via(&format!("--via v1,v2 {options}"))
    }

    /// The same with an explicit choice of paths.
    pub(crate) fn client_via(&self, options: &str) -> Process {
        let forward = format!("--forward 127.0.0.1:8001={SERVER}:8000");
        Process::start(&mut self.client_of("c", &format!("{forward} {options}")), "listening").0
    }

    /// Answers everybody who connects to port 8000 of the server's host.
    pub(crate) fn serve(&self, answer: fn(TcpStream)) {
        self.serve_at("s", &format!("{SERVER}:8000"), answer);
    }

    /// Answers everybody who connects to this address of a host.
    pub(crate) fn serve_at(&self, host: &str, address: &str, answer: fn(TcpStream)) {
        let listener = self.within(host, || TcpListener::bind(address).unwrap());
        // It ends with this process; its namespace lives as long, without a name.
        thread::spawn(move || {
            for connection in listener.incoming() {
                thread::spawn(move || answer(connection.unwrap()));
            }
        });
    }

    /// A connection over both paths by the kernel's MPTCP, to a server that answers with `answer`;
    /// `None` if the kernel lacks MPTCP.
    pub(crate) fn mptcp(&self, answer: fn(TcpStream)) -> Option<TcpStream> {
        const MPTCP: i32 = 262;
        let new = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(MPTCP))).ok();
        let configure = |host: &str, words: &str| {
            let done = self.command(host, "ip").args(words.split(' ')).output().unwrap();
            done.status.success().then_some(())
        };
        configure("c", "mptcp limits set subflow 2 add_addr_accepted 2")?;
        configure("s", "mptcp limits set subflow 2 add_addr_accepted 2")?;
        configure("c", "mptcp endpoint add 10.79.2.1 dev v2 subflow")?;
        // A second subflow leaves by its own device.
        self.ip("c", "rule add from 10.79.2.1 table 2");
        self.ip("c", "route add default via 10.79.2.2 table 2");
        let address: SocketAddr = (SERVER.parse::<Ipv4Addr>().unwrap(), 8002).into();
        let listener = self.within("s", || {
            let socket = new()?;
            socket.bind(&address.into()).ok()?;
            socket.listen(8).ok()?;
            Some(TcpListener::from(socket))
        })?;
        thread::spawn(move || answer(listener.accept().unwrap().0));
        let socket = self.within("c", || {
            let socket = new()?;
            socket.connect(&address.into()).ok()?;
            Some(socket)
        })?;
        Some(TcpStream::from(socket))
    }

    /// Sends 20 Mbit/s of UDP from the client's host; no process receives it.
    pub(crate) fn flood(&self, to: &str, span: Duration) {
        self.within("c", || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            let began_at = Instant::now();
            let mut sent = 0;
            while began_at.elapsed() < span {
                let due = (began_at.elapsed().as_secs_f64() * 20e6 / 8.0) as usize;
                while sent < due {
                    // The flood is meant to overflow the queue: errors do not matter.
                    let _ = socket.send_to(&[0; 1400], to);
                    sent += 1400;
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
    }

    /// The client's metrics, served at port 9099.
    pub(crate) fn metrics(&self) -> String {
        let mut stream = self.connect_to("127.0.0.1:9099");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Connects to the client's forwarded port.
    pub(crate) fn connect(&self) -> TcpStream {
        self.connect_to("127.0.0.1:8001")
    }

    /// Requests `bytes` bytes of generated data.
    pub(crate) fn ask(&self, bytes: u64) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(&bytes.to_be_bytes()).unwrap();
        stream
    }

    /// Connects to a port of the client's.
    pub(crate) fn connect_to(&self, address: &str) -> TcpStream {
        let address: SocketAddr = address.parse().unwrap();
        let stream = self.within("c", || TcpStream::connect(address).unwrap());
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }
}

/// USER_HZ: the unit of CPU time in proc(5), a second's.
const TICKS: f64 = 100.0;

impl Process {
    /// Resources used so far: CPU time and peak memory.
    pub(crate) fn cost(&self) -> String {
        let status = self.proc("status");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = peak.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        let (worked, megabytes) = (self.worked().as_secs_f64(), kilobytes.unwrap() / 1e3);
        format!("{worked:.2} s of CPU, {megabytes:.0} MB")
    }

    /// The time for which it has had a processor.
    pub(crate) fn worked(&self) -> Duration {
        let stat = self.proc("stat");
        // After the name, which may be anything: from the third field on (proc(5)).
        let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_secs_f64(ticks as f64 / TICKS)
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap()
    }
}

/// A file of made-up bytes, as an answer: the request is its length.
pub(crate) fn made_up(mut stream: TcpStream) {
    let mut request = [0; 8];
    if stream.read_exact(&mut request).is_err() {
        return;
    }
    let mut left = u64::from_be_bytes(request);
    let mut sum = Sum::default();
    let mut piece = vec![0; 16 * 1024];
    while left > 0 {
        let len = piece.len().min(usize::try_from(left).unwrap());
        sum.fill(&mut piece[..len]);
        if stream.write_all(&piece[..len]).is_err() {
            return;
        }
        left -= len as u64;
    }
}

/// Bytes that cannot be mixed up: those of a counter, scrambled.
#[derive(Default)]
pub(crate) struct Sum {
    at: u64,
}

impl Sum {
    fn byte(&self) -> u8 {
        (self.at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    fn fill(&mut self, piece: &mut [u8]) {
        for byte in piece {
            *byte = self.byte();
            self.at += 1;
        }
    }

    /// Whether these are the next bytes.
    fn check(&mut self, piece: &[u8]) {
        for byte in piece {
            assert_eq!(*byte, self.byte(), "byte {} is wrong", self.at);
            self.at += 1;
        }
    }
}

/// The result of a download.
pub(crate) struct Download {
    pub(crate) elapsed: Duration,
    /// When how many bytes had come.
    pub(crate) curve: Vec<(Duration, u64)>,
}

impl Download {
    /// Of the whole, in Mbit/s.
    pub(crate) fn mbps(&self) -> f64 {
        let bytes = self.curve.last().map_or(0, |(_, bytes)| *bytes);
        bytes as f64 * 8e-6 / self.elapsed.as_secs_f64()
    }

    /// Between two moments, in Mbit/s.
    pub(crate) fn mbps_between(&self, from: Duration, to: Duration) -> f64 {
        let by = |at: Duration| {
            self.curve.iter().rev().find(|(when, _)| *when <= at).map_or(0, |(_, bytes)| *bytes)
        };
        (by(to) - by(from)) as f64 * 8e-6 / (to - from).as_secs_f64()
    }
}

/// Downloads `bytes` bytes and checks each of them.
pub(crate) fn download(stream: TcpStream, bytes: u64) -> Download {
    download_while(stream, bytes, |_| {})
}

/// And does something every now and then meanwhile.
pub(crate) fn download_while(
    mut stream: TcpStream,
    bytes: u64,
    mut meanwhile: impl FnMut(Duration),
) -> Download {
    stream.write_all(&bytes.to_be_bytes()).unwrap();
    let began_at = Instant::now();
    let (mut piece, mut sum, mut curve) = (vec![0; 64 * 1024], Sum::default(), Vec::new());
    loop {
        let len = stream.read(&mut piece).unwrap();
        sum.check(&piece[..len]);
        curve.push((began_at.elapsed(), sum.at));
        if len == 0 {
            break;
        }
        meanwhile(began_at.elapsed());
    }
    assert_eq!(sum.at, bytes, "the file is not whole");
    Download { elapsed: began_at.elapsed(), curve }
}

/// Reads generated bytes, each of which is checked, until `is_done` returns true.
pub(crate) fn download_until(mut stream: TcpStream, mut is_done: impl FnMut(Duration) -> bool) {
    stream.write_all(&u64::MAX.to_be_bytes()).unwrap();
    let (began_at, mut sum, mut piece) = (Instant::now(), Sum::default(), vec![0; 64 * 1024]);
    while !is_done(began_at.elapsed()) {
        let len = stream.read(&mut piece).unwrap();
        assert!(len > 0, "it has ended after {} bytes", sum.at);
        sum.check(&piece[..len]);
    }
}

/// Runs a command to its end, which must come soon.
pub(crate) fn ended(mut command: Command) -> Output {
    command.output().unwrap()
}
