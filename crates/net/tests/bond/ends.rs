//! Both ends of a bond over loopback, each on a thread of its own, and programs that use it.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freshline_net::bond::{
    BondError, Client, ClientConfig, ListenConfig, Sending, Server, ServerConfig, Target, Watcher,
};
use freshline_net::dial::Remote;
use freshline_net::quic::{Clients, Fingerprint, Identity, Trust};
use freshline_net::stop::Stop;
use freshline_net::via::ViaPath;

/// A party with a certificate of its own.
pub(crate) struct Who(tempfile::TempDir);

impl Who {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn identity(&self) -> Identity {
        Identity::from_state_dir(&self.0.path().join("state")).unwrap()
    }

    pub(crate) fn pin(&self) -> Fingerprint {
        self.identity().fingerprint()
    }
}

/// Something that runs on a thread until it is dropped.
pub(crate) struct Running {
    pub(crate) at: Vec<SocketAddr>,
    pub(crate) watcher: Watcher,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), BondError>>>,
}

impl Running {
    fn start(
        at: Vec<SocketAddr>,
        watcher: Watcher,
        run: impl FnOnce(&Stop) -> Result<(), BondError> + Send + 'static,
    ) -> Self {
        let stop = Stop::new();
        let thread = thread::spawn({
            let stop = stop.clone();
            move || run(&stop)
        });
        Self { at, watcher, stop, thread: Some(thread) }
    }

    /// The result, once it has ended by itself.
    pub(crate) fn ended(mut self) -> Result<(), BondError> {
        self.thread.take().unwrap().join().unwrap()
    }

    /// Waits until the condition holds.
    #[track_caller]
    pub(crate) fn wait(&self, wish: impl Fn(&freshline_net::bond::BondReport) -> bool) {
        let tries = (0..300).any(|_| {
            thread::sleep(Duration::from_millis(100));
            wish(&self.watcher.report())
        });
        assert!(tries, "{:?}", self.watcher.report());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join().unwrap();
            assert!(ended.is_ok() || thread::panicking(), "{ended:?}");
        }
    }
}

pub(crate) fn server(who: &Who, clients: &[&Who], sending: Sending, allow: &[&str]) -> Running {
    server_at((Ipv4Addr::LOCALHOST, 0).into(), who, clients, sending, allow)
}

/// The same at an address.
pub(crate) fn server_at(
    listen: SocketAddr,
    who: &Who,
    clients: &[&Who],
    sending: Sending,
    allow: &[&str],
) -> Running {
    let mut server = Server::bind(ServerConfig {
        listen,
        identity: who.identity(),
        clients: Clients::Pinned(clients.iter().map(|client| client.pin()).collect()),
        sending,
        allow: allow.iter().map(|allow| allow.parse().unwrap()).collect(),
    })
    .unwrap();
    let (at, watcher) = (vec![server.local_addr().unwrap()], server.watcher());
    Running::start(at, watcher, move |stop| server.run(stop, None))
}

/// Listens for programs that name their destination, and in addition forwards a port to each of
/// these.
pub(crate) fn client(
    who: &Who,
    pin: Fingerprint,
    server: impl Into<Remote>,
    sending: Sending,
    forward: &[SocketAddr],
) -> Running {
    client_by(who, pin, server, sending, forward, Vec::new())
}

/// The same by these interfaces or addresses.
pub(crate) fn client_by(
    who: &Who,
    pin: Fingerprint,
    server: impl Into<Remote>,
    sending: Sending,
    forward: &[SocketAddr],
    vias: Vec<ViaPath>,
) -> Running {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let named_by_program = ListenConfig { address, target: None };
    let forward =
        forward.iter().map(|to| ListenConfig { address, target: Some(Target::Address(*to)) });
    let mut client = Client::bind(ClientConfig {
        server: server.into(),
        server_name: "localhost".into(),
        trust: Trust::Pinned(pin),
        identity: who.identity(),
        vias,
        sending,
        listen: std::iter::once(named_by_program).chain(forward).collect(),
    })
    .unwrap();
    let (at, watcher) = (client.local_addrs().unwrap(), client.watcher());
    Running::start(at, watcher, move |stop| client.run(stop, None))
}

/// Both ends, which know each other.
pub(crate) struct Bond {
    pub(crate) client: Running,
    pub(crate) server: Running,
}

impl Bond {
    pub(crate) fn new(sending: Sending, allow: &[&str], forward: &[SocketAddr]) -> Self {
        let (ours, theirs) = (Who::new(), Who::new());
        let server = server(&theirs, &[&ours], sending, allow);
        let client = client(&ours, theirs.pin(), server.at[0], sending, forward);
        Self { client, server }
    }

    /// A program that names its destination.
    pub(crate) fn program(&self) -> TcpStream {
        connect(self.client.at[0])
    }

    /// A program at a port that is forwarded.
    pub(crate) fn forwarded(&self, index: usize) -> TcpStream {
        connect(self.client.at[1 + index])
    }

    /// The answer to a CONNECT request: the status, and the connection.
    pub(crate) fn http(&self, request: &str) -> (u16, TcpStream) {
        let mut program = self.program();
        program.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            program.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {head:?}"));
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), program)
    }

    /// The answer to a CONNECT request for `target`.
    pub(crate) fn connect(&self, target: &str) -> (u16, TcpStream) {
        self.http(&format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"))
    }

    /// The answer of SOCKS5: the reply, and the connection.
    pub(crate) fn socks(&self, to: SocketAddr) -> (u8, TcpStream) {
        let mut program = self.program();
        program.write_all(&[5, 1, 0]).unwrap();
        let mut greeted = [0; 2];
        program.read_exact(&mut greeted).unwrap();
        assert_eq!(greeted, [5, 0]);
        let (kind, address) = match to.ip() {
            IpAddr::V4(ip) => (1, ip.octets().to_vec()),
            IpAddr::V6(ip) => (4, ip.octets().to_vec()),
        };
        let port = to.port().to_be_bytes();
        program.write_all(&[&[5, 1, 0, kind][..], &address, &port].concat()).unwrap();
        let mut answer = [0; 10];
        program.read_exact(&mut answer).unwrap();
        (answer[1], program)
    }
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Answers everybody who connects, on a thread of each; where.
pub(crate) fn serve(at: IpAddr, answer: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((at, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = answer.clone();
            thread::spawn(move || answer(stream.unwrap()));
        }
    });
    address
}

/// Sends back the bytes that it receives.
pub(crate) fn echo(mut stream: TcpStream) {
    let mut piece = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut piece) {
        if stream.write_all(&piece[..len]).is_err() {
            return;
        }
    }
}

/// An address at which no process listens.
pub(crate) fn nobody() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const LOCALHOST_6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Data that is sent comes back.
#[track_caller]
pub(crate) fn assert_echoes(mut stream: TcpStream) {
    stream.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
}
