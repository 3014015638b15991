//! Light active probing of `--target`: ten small packets per second at most.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use freshline_core::unit::Span;
use freshline_net::clock::Clock;
use freshline_system::icmp::ClockProbe;

use super::observation::Probe;

/// The intervals between ICMP requests, and between TCP handshakes.
const ICMP_INTERVAL: Span = Span::from_millis(100);
const TCP_INTERVAL: Duration = Duration::from_millis(500);
/// How long a handshake may take.
const TCP_TIMEOUT: Duration = Duration::from_secs(3);

/// Probes one target.
#[derive(Debug)]
pub(super) struct Prober {
    means: Means,
    probes: Vec<Probe>,
    /// Whether it was already reported that probes cannot be sent.
    has_failed: bool,
}

#[derive(Debug)]
enum Means {
    /// ICMP timestamps: the round trip, and the variation of each direction.
    Icmp { probe: ClockProbe, next: Span, sent: u16 },
    /// TCP handshakes: the round trip.
    Tcp(Receiver<Probe>),
}

impl Prober {
    /// Probes by ICMP timestamps to an IPv4 host, which need `CAP_NET_RAW`; with a port, by TCP
    /// handshakes.
    pub(super) fn open(host: IpAddr, port: Option<u16>) -> io::Result<Self> {
        let means = match (host, port) {
            (_, Some(port)) => Means::Tcp(handshakes(SocketAddr::new(host, port))),
            (IpAddr::V4(host), None) => Means::Icmp {
                probe: ClockProbe::open(host, std::process::id() as u16)?,
                next: Span::ZERO,
                sent: 0,
            },
            (IpAddr::V6(_), None) => {
                let why = "ICMP timestamps exist for IPv4 only; give a port";
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
        };
        Ok(Self { means, probes: Vec::new(), has_failed: false })
    }

    /// Sends a probe if one is due, and reads answers; `now` is the time since the observation began.
    pub(super) fn poll(&mut self, now: Span) {
        match &mut self.means {
            Means::Tcp(done) => self.probes.extend(done.try_iter()),
            Means::Icmp { probe, next, sent } => {
                while let Ok(Some(reply)) = probe.receive() {
                    let at = usize::from(reply.seq);
                    let Some(open) = self.probes.get_mut(at).filter(|open| open.rtt.is_none())
                    else {
                        continue;
                    };
                    let (now, target) = (now.as_secs_f64(), f64::from(reply.received_ms) / 1e3);
                    open.rtt = Some(now - open.at);
                    open.up = Some(target - open.at);
                    open.down = Some(now - target);
                }
                if now >= *next && *sent < u16::MAX {
                    // A probe that cannot be sent counts as unanswered.
                    if let Err(error) = probe.send(*sent)
                        && !std::mem::replace(&mut self.has_failed, true)
                    {
                        say!("cannot send a probe: {error}");
                    }
                    self.probes.push(Probe { at: now.as_secs_f64(), ..Probe::default() });
                    *sent += 1;
                    *next = now + ICMP_INTERVAL;
                }
            }
        }
    }

    /// All probes.
    pub(super) fn done(self) -> Vec<Probe> {
        self.probes
    }
}

/// Connects repeatedly, on a separate thread, until the receiver is dropped.
fn handshakes(target: SocketAddr) -> Receiver<Probe> {
    let (report, done) = channel();
    let clock = Clock::new();
    let start = clock.now();
    thread::spawn(move || {
        let mut has_failed = false;
        loop {
            let begun = clock.now();
            let opened = TcpStream::connect_timeout(&target, TCP_TIMEOUT);
            if let Err(error) = &opened
                && !std::mem::replace(&mut has_failed, true)
            {
                say!("a probe failed: {error}");
            }
            let rtt = opened.is_ok().then(|| clock.now().since(begun).as_secs_f64());
            let at = begun.since(start).as_secs_f64();
            if report.send(Probe { at, rtt, up: None, down: None }).is_err() {
                break;
            }
            thread::sleep(TCP_INTERVAL);
        }
    });
    done
}
