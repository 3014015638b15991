//! A TCP stream of the kernel and a stream of Freshline's updates, from A to B.

use std::fs;
use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::common::FRESHLINE;
use super::net::{Net, Running};

/// A TCP stream that sends without end; it ends with this.
pub(crate) struct Bulk {
    receiver: TcpStream,
    received: Arc<AtomicU64>,
    counting: Option<JoinHandle<()>>,
    _sender: Running,
}

impl Bulk {
    /// The port at B.
    pub(crate) const PORT: u16 = 5001;

    /// From A to B, with cubic.
    pub(crate) fn start(net: &Net) -> Self {
        let (host, port) = (net.far(), Self::PORT);
        let listener = net.within("b", || TcpListener::bind((host, port)).unwrap());
        let script = format!(
            "set -e
            ip route replace {host} $(ip -4 route show default | cut -d ' ' -f 2-) congctl cubic
            exec 3<>/dev/tcp/{host}/{port}
            exec cat /dev/zero >&3"
        );
        let sender = Running(net.sender(&["bash", "-c", &script]).spawn().unwrap());
        let receiver = accepted(&listener);
        let received = Arc::new(AtomicU64::new(0));
        let (count, mut reading) = (Arc::clone(&received), receiver.try_clone().unwrap());
        let counting = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 18];
            while let Ok(len @ 1..) = reading.read(&mut buffer) {
                count.fetch_add(len as u64, Ordering::Relaxed);
            }
        });
        Self { receiver, received, counting: Some(counting), _sender: sender }
    }

    /// The goodput while `for_so_long` passes, in bit/s.
    pub(crate) fn goodput(&self, for_so_long: Duration) -> f64 {
        let (start, before) = (Instant::now(), self.received.load(Ordering::Relaxed));
        thread::sleep(for_so_long);
        let received = self.received.load(Ordering::Relaxed) - before;
        received as f64 * 8.0 / start.elapsed().as_secs_f64()
    }
}

/// The first connection; fails after a while if the sender could not start.
fn accepted(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    for _ in 0..500 {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            return stream;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the sender does not connect");
}

impl Drop for Bulk {
    fn drop(&mut self) {
        let _ = self.receiver.shutdown(Shutdown::Both);
        let _ = self.counting.take().map(JoinHandle::join);
    }
}

/// Updates of 1024 bytes each 5 ms from A to B.
pub(crate) struct Updates {
    monitor: Option<Running>,
    _source: Running,
}

impl Updates {
    pub(crate) const PAYLOAD: &str = "1024B";
    pub(crate) const RATE: &str = "200/s";

    /// The port at B.
    pub(crate) const PORT: u16 = 3774;

    pub(crate) fn start(net: &Net) -> Self {
        Self::with(net, Self::RATE, Self::PAYLOAD)
    }

    /// Updates of this size at this rate instead.
    pub(crate) fn with(net: &Net, rate: &str, size: &str) -> Self {
        let url = format!("udp://{}", SocketAddr::new(net.far(), Self::PORT));
        let start = |mut command: Command| Running(command.spawn().unwrap());
        let monitor = start(net.freshline("b", &["monitor", &url, "--insecure", "--out", "-"]));
        let law = ["--law", "fixed", "--rate", rate, "--size", size];
        let source = start(net.sender(&[&[FRESHLINE, "source", &url][..], &law].concat()));
        Self { monitor: Some(monitor), _source: source }
    }

    /// Ends them: the mean age over the last `window`, in ms.
    pub(crate) fn age_ms(self, window: Duration) -> f64 {
        self.resets().age_ms(f64::INFINITY, window)
    }

    /// Ends them.
    pub(crate) fn resets(mut self) -> Resets {
        let mut monitor = self.monitor.take().unwrap();
        monitor.signal(nix::sys::signal::Signal::SIGTERM);
        let mut lines = String::new();
        monitor.0.stdout.take().unwrap().read_to_string(&mut lines).unwrap();
        Resets(lines.lines().filter_map(reset).collect())
    }
}

/// When updates arrived, in ms of UNIX time, and how old they were then, in ms.
pub(crate) struct Resets(Vec<(f64, f64)>);

impl Resets {
    /// The mean age over the last `window` up to this time, in ms; no end of it if nothing arrived.
    pub(crate) fn age_ms(&self, until: f64, window: Duration) -> f64 {
        let Some((last, _)) = self.0.iter().rev().find(|(time, _)| *time <= until) else {
            return f64::INFINITY;
        };
        let within = last - window.as_millis() as f64..=*last;
        let counted =
            self.0.windows(2).filter(|pair| pair.iter().all(|(time, _)| within.contains(time)));
        // From one reset to the next the age grows as time does.
        let (area, time) = counted.fold((0.0, 0.0), |(area, time), pair| {
            let [(from, age), (to, _)] = [pair[0], pair[1]];
            let gap = to - from;
            (area + gap * (age + gap / 2.0), time + gap)
        });
        if time > 0.0 { area / time } else { f64::INFINITY }
    }
}

fn reset(line: &str) -> Option<(f64, f64)> {
    let line: Value = serde_json::from_str(line).unwrap();
    Some((line["unix_ms"].as_f64()?, line["age_ms"].as_f64()?))
}

/// Sends a datagram of `len` bytes from A to each of these ports at B.
pub(crate) fn send(net: &Net, len: usize, ports: impl Iterator<Item = u16> + Send) {
    send_from(net, "0.0.0.0", len, ports);
}

/// The same, from this address of A.
pub(crate) fn send_from(
    net: &Net,
    source: &str,
    len: usize,
    ports: impl Iterator<Item = u16> + Send,
) {
    net.within("a", || {
        let socket = UdpSocket::bind((source, 0)).unwrap();
        for port in ports {
            // The kernel reports a closed port, once; the next one is another.
            while socket.send_to(&vec![0; len], (net.far(), port)).is_err() {}
        }
    });
}

/// Datagrams over IPv4 that reached closed ports of B.
pub(crate) fn arrived_for_nobody(net: &Net) -> u64 {
    let table = net.within("b", || fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let numbers = table.lines().filter(|line| line.starts_with("Udp: ")).nth(1).unwrap();
    numbers.split(' ').nth(2).unwrap().parse().unwrap()
}
