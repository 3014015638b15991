//! Large states received by one thread, from a source that follows the protocol: lost parts are repaired. For
//! comparison, the same bytes over a TCP stream.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use freshline_core::path::PathId;
use freshline_core::session::{Secret, Source, SourceEvent, SourceKey, SourceParams};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_net::clock::Clock;
use freshline_net::monitor::{Monitor, Record, Watch};
use freshline_net::stop::Stop;

use crate::throughput::{Cpu, Meter, config};
use crate::traffic::BatchSocket;

/// The length of a state.
const STATE: usize = 100_000;

/// The maximum length of the source's datagrams.
const DATAGRAM: usize = 1_200;

/// Datagrams per system call (GSO).
const TRAIN: usize = 32;

/// A source that is further behind the clock than this skips to the present.
const BEHIND: Span = Span::from_millis(2);

const RUNS: usize = 3;
const WARM_UP: Span = Span::from_millis(300);
const MEASURED: Span = Span::from_secs(2);

pub(crate) fn report() {
    println!(
        "large states: {STATE} bytes in datagrams of {DATAGRAM}, one source, {RUNS} runs of {MEASURED}"
    );
    println!(
        "{:28} {:>32} {:>14} {:>9} {:>9}",
        "datagrams/s offered",
        "Gbit/s of states: min, med, max",
        "busy, monitor",
        "complete",
        "repeated"
    );
    let mut best = 0.0f64;
    for datagrams in [100_000.0, 200_000.0, 400_000.0, 800_000.0] {
        best = best.max(measure(&datagrams.to_string(), || run(datagrams)));
    }
    let tcp = measure("a TCP stream, bare", run_tcp);
    println!("the monitor's best / TCP: {:.2}", best / tcp);
}

/// Prints a line; returns the median in Gbit/s.
fn measure(name: &str, run: impl Fn() -> Run) -> f64 {
    let mut runs: Vec<Run> = (0..RUNS).map(|_| run()).collect();
    runs.sort_by(|a, b| a.gbps().total_cmp(&b.gbps()));
    let median = &runs[RUNS / 2];
    println!(
        "{name:28} {:>10.2} {:>10.2} {:>10.2} {:>13.0}% {:>8.0}% {:>9}",
        runs[0].gbps(),
        median.gbps(),
        runs[RUNS - 1].gbps(),
        100.0 * median.busy,
        100.0 * median.complete,
        median.repeated,
    );
    median.gbps()
}

struct Run {
    states: u64,
    /// The share of a core that the receiving thread used.
    busy: f64,
    /// The share of the begun states that were complete at the monitor.
    complete: f64,
    /// Parts that carried repair symbols.
    repeated: u64,
}

impl Run {
    fn gbps(&self) -> f64 {
        self.states as f64 * STATE as f64 * 8.0 / MEASURED.as_secs_f64() / 1e9
    }
}

/// Counts states of the full length.
struct Whole(Meter);

impl Watch for Whole {
    fn fresh(&mut self, now: Time, _source: SourceKey, record: &Record) {
        if record.payload().is_some_and(|state| state.len() == STATE) {
            self.0.take(now, 1);
        }
    }
}

fn run(datagrams: f64) -> Run {
    let from = Clock::new().now() + WARM_UP;
    let until = from + MEASURED;
    let mut monitor = Monitor::bind(config()).unwrap();
    let address = monitor.local_addr().unwrap();
    let taking = thread::spawn(move || {
        let mut whole = Whole(Meter::between(from, until));
        monitor.run(&Stop::new(), Some(until), &mut whole).unwrap();
        whole.0.finish()
    });
    let source = send(address, datagrams, until);
    let (states, Cpu { user, system }) = taking.join().unwrap();
    let counters = source.counters();
    let begun = (counters.large_states + counters.abandoned_states).max(1);
    Run {
        states,
        busy: (user + system).as_secs_f64() / MEASURED.as_secs_f64(),
        complete: counters.large_states as f64 / begun as f64,
        repeated: counters.repair_parts,
    }
}

/// The same bytes over one stream; the receiver only reads.
fn run_tcp() -> Run {
    let from = Clock::new().now() + WARM_UP;
    let until = from + MEASURED;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let taking = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (clock, mut meter) = (Clock::new(), Meter::between(from, until));
        let mut state = vec![0; STATE];
        while clock.now() < until {
            stream.read_exact(&mut state).unwrap();
            meter.take(clock.now(), 1);
        }
        meter.finish()
    });
    let mut stream = TcpStream::connect(address).unwrap();
    let state = vec![0xA5; STATE];
    // Until the receiver closes it.
    while stream.write_all(&state).is_ok() {}
    let (states, Cpu { user, system }) = taking.join().unwrap();
    let busy = (user + system).as_secs_f64() / MEASURED.as_secs_f64();
    Run { states, busy, complete: 1.0, repeated: 0 }
}

/// Sends states one after the other until `end`. The source's time advances from timer to timer up to the clock, and
/// the datagrams that are due leave in trains.
fn send(monitor: SocketAddr, datagrams: f64, end: Time) -> Source {
    let clock = Clock::new();
    let mut train = Train { socket: BatchSocket::bind(), monitor, bytes: Vec::new(), segment: 0 };
    train.socket.udp.set_nonblocking(true).unwrap();
    let params = SourceParams { max_datagram: DATAGRAM, ..SourceParams::default() };
    let law = Box::new(Fixed::new(UpdateRate::saturating(datagrams)));
    let mut now = clock.now();
    let mut source = Source::new(params, Secret::new([7; 16]), law, now).unwrap();
    let (mut state, mut ack, mut out) = (vec![0xA5; STATE], [0; 512], Vec::new());
    loop {
        let real = clock.now();
        if real >= end {
            return source;
        }
        let mut acks = 0;
        while acks < TRAIN
            && let Ok(len) = train.socket.udp.recv(&mut ack)
        {
            // The source's counters show the outcome.
            let _ = source.handle_datagram(real, PathId::FIRST, &ack[..len]);
            acks += 1;
        }
        now = if real.since(now) < BEHIND { now } else { real };
        for _ in 0..TRAIN {
            now = source.poll_timeout().unwrap_or(real).max(now);
            if now > real {
                break;
            }
            source.handle_timeout(now);
            while let Some(event) = source.poll_event() {
                if let SourceEvent::StateWanted(_) = event {
                    state[..8].copy_from_slice(&now.as_nanos().to_be_bytes());
                    source.put(now, now, &state).unwrap();
                }
            }
            while let Some(transmit) = source.poll_transmit(now, &mut out) {
                train.push(&out[..transmit.len]);
            }
        }
        now = now.min(real);
        train.flush();
    }
}

/// Datagrams of one length, of which the last may be shorter, that leave in one system call.
struct Train {
    socket: BatchSocket,
    monitor: SocketAddr,
    bytes: Vec<u8>,
    segment: usize,
}

impl Train {
    fn push(&mut self, datagram: &[u8]) {
        if datagram.len() > self.segment || self.bytes.len() >= TRAIN * DATAGRAM {
            self.flush();
        }
        if self.bytes.is_empty() {
            self.segment = datagram.len();
        }
        self.bytes.extend_from_slice(datagram);
        if datagram.len() < self.segment {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if !self.bytes.is_empty() {
            // Datagrams that the kernel refuses are lost, as on a path.
            self.socket.send(self.monitor, &self.bytes, self.segment);
            self.bytes.clear();
        }
    }
}
