//! Flows of the kernel's TCP and UDP: a server in this process, and a client that is this test program again,
//! in another network namespace.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

/// Inputs of the client: its flows, and the server's address.
pub(crate) const FLOWS: &str = "FRESHLINE_TEST_FLOWS";
pub(crate) const HOST: &str = "FRESHLINE_HOST";

const BLOCK: usize = 1 << 14;

/// A flow of the client.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Flow {
    /// Uploads of bulk data.
    Up(u32),
    /// Downloads of bulk data.
    Down(u32),
    /// A download that the client reads at this number of bytes per second.
    SlowDown(u32),
    /// A download into a receive buffer of this number of bytes.
    SmallDown(u32),
    /// A request of 100 bytes, and an answer as long, per this number of ms.
    Requests(u32),
    /// UDP at this rate in kbit/s.
    Udp(u32),
}

impl Flow {
    fn text(self) -> String {
        match self {
            Self::Up(n) => format!("up={n}"),
            Self::Down(n) => format!("down={n}"),
            Self::SlowDown(n) => format!("slow={n}"),
            Self::SmallDown(n) => format!("small={n}"),
            Self::Requests(n) => format!("requests={n}"),
            Self::Udp(n) => format!("udp={n}"),
        }
    }
}

/// The value of [`FLOWS`] for a server at this port.
pub(crate) fn encoded(port: u16, flows: &[Flow]) -> String {
    let flows: Vec<_> = flows.iter().map(|flow| flow.text()).collect();
    format!("{port},{}", flows.join(","))
}

/// Serves clients until it is dropped. Its sockets are in the namespace of the thread that made it.
pub(crate) struct Server {
    pub(crate) port: u16,
    stop: Arc<AtomicBool>,
    /// Takes UDP, and reads none of it.
    _sink: UdpSocket,
}

impl Server {
    /// With a receive buffer of this number of bytes, if given.
    pub(crate) fn start(receive_buffer: Option<usize>) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        if let Some(bytes) = receive_buffer {
            setsockopt(&listener, sockopt::RcvBuf, &bytes).unwrap();
        }
        setsockopt(&listener, sockopt::TcpCongestion, &OsString::from("cubic")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let sink = UdpSocket::bind(("0.0.0.0", port)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => _ = thread::spawn(move || serve(stream)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        thread::sleep(Duration::from_millis(10));
                    }
                    Err(_) => break,
                }
            }
        });
        Self { port, stop, _sink: sink }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The first byte selects the client's request. Ends with the client, or after a time in which a
/// test ends.
fn serve(mut stream: TcpStream) {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut what = [0];
    if stream.read_exact(&mut what).is_err() {
        return;
    }
    let mut buffer = vec![0; BLOCK];
    match what[0] {
        b'U' => while stream.read(&mut buffer).is_ok_and(|len| len > 0) {},
        b'D' => while stream.write_all(&buffer).is_ok() {},
        _ => {
            while stream.read_exact(&mut buffer[..100]).is_ok()
                && stream.write_all(&buffer[..100]).is_ok()
            {}
        }
    }
}

/// The client, if the variable is set: runs until it is killed.
#[test]
fn client() {
    let Ok(text) = std::env::var(FLOWS) else { return };
    let host = std::env::var(HOST).unwrap();
    let mut parts = text.split(',');
    let port: u16 = parts.next().unwrap().parse().unwrap();
    let server: SocketAddr = format!("{host}:{port}").parse().unwrap();
    let mut flows = Vec::new();
    for part in parts {
        let (kind, number) = part.split_once('=').unwrap();
        let number: u32 = number.parse().unwrap();
        let count = if matches!(kind, "up" | "down") { number } else { 1 };
        for _ in 0..count {
            let kind = kind.to_owned();
            flows.push(thread::spawn(move || flow(&kind, number, server)));
        }
    }
    flows.into_iter().for_each(|flow| _ = flow.join());
}

fn flow(kind: &str, number: u32, server: SocketAddr) {
    let mut buffer = vec![7; BLOCK];
    match kind {
        "up" => {
            let mut stream = connected(server, b'U', None);
            while stream.write_all(&buffer).is_ok() {}
        }
        "down" => {
            let mut stream = connected(server, b'D', None);
            while stream.read(&mut buffer).is_ok_and(|len| len > 0) {}
        }
        "small" => {
            let mut stream = connected(server, b'D', Some(number as usize));
            while stream.read(&mut buffer).is_ok_and(|len| len > 0) {}
        }
        "slow" => {
            let mut stream = connected(server, b'D', None);
            let each = (number / 20) as usize;
            while stream.read(&mut buffer[..each]).is_ok_and(|len| len > 0) {
                thread::sleep(Duration::from_millis(50));
            }
        }
        "requests" => {
            let mut stream = connected(server, b'R', None);
            stream.set_nodelay(true).unwrap();
            while stream.write_all(&buffer[..100]).is_ok()
                && stream.read_exact(&mut buffer[..100]).is_ok()
            {
                thread::sleep(Duration::from_millis(number.into()));
            }
        }
        _ => datagrams(server, number),
    }
}

fn datagrams(server: SocketAddr, kbps: u32) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let gap = Duration::from_secs_f64(8.0 * 1028.0 / f64::from(kbps) / 1e3);
    let start = Instant::now();
    for number in 0.. {
        let due = gap * number;
        thread::sleep(due.saturating_sub(start.elapsed()));
        // A full queue is not an error.
        let _ = socket.send_to(&[0; 1000], server);
    }
}

fn connected(server: SocketAddr, what: u8, receive_buffer: Option<usize>) -> TcpStream {
    let kind = (socket2::Domain::IPV4, socket2::Type::STREAM);
    let socket = socket2::Socket::new(kind.0, kind.1, None).unwrap();
    if let Some(bytes) = receive_buffer {
        socket.set_recv_buffer_size(bytes).unwrap();
    }
    setsockopt(&socket, sockopt::TcpCongestion, &OsString::from("cubic")).unwrap();
    socket.connect(&server.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(&[what]).unwrap();
    stream
}
