//! The latency of an update from the source's sampling to the monitor's record.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;

use freshline_core::session::{MonitorParams, SourceKey, SourceParams};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_net::clock::Clock;
use freshline_net::credentials::{Right, Rules};
use freshline_net::monitor::{self, Monitor, MonitorConfig, Record};
use freshline_net::source::sampler::Synthetic;
use freshline_net::source::{Source, SourceConfig, SourcePaths, States, Transport};
use freshline_net::stop::Stop;

use crate::traffic::PAYLOAD;

const PERIOD: Span = Span::from_millis(1);
const MEASURED: Span = Span::from_secs(5);

pub(crate) fn report() {
    println!(
        "\none-way latency: updates of {} bytes, one each {PERIOD}, {MEASURED}",
        PAYLOAD.len()
    );
    println!("{:28} {:>8} {:>8} {:>8} {:>8}", "µs", "p50", "p99", "max", "updates");
    print("source to monitor", through_the_endpoints());
    print("bare send and recv", through_bare_sockets());
}

fn print(name: &str, mut delays: Vec<Span>) {
    delays.sort_unstable();
    let us = |span: Span| span.as_nanos() as f64 / 1e3;
    let quantile = |percent: usize| us(delays[(delays.len() - 1) * percent / 100]);
    println!(
        "{name:28} {:>8.1} {:>8.1} {:>8.1} {:>8}",
        quantile(50),
        quantile(99),
        quantile(100),
        delays.len()
    );
}

/// The real source and monitor, each on its own thread of one process, so that they share a clock.
fn through_the_endpoints() -> Vec<Span> {
    let end = Clock::new().now() + MEASURED;
    let mut monitor = Monitor::bind(MonitorConfig {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        quic: None,
        params: MonitorParams::default(),
        rules: Rules::none(Right::Publish),
        detailed: 100,
        forget: MonitorConfig::FORGET,
    })
    .unwrap();
    let address = monitor.local_addr().unwrap();
    let receiving = thread::spawn(move || {
        let mut delays = Delays(Vec::new());
        monitor.run(&Stop::new(), Some(end), &mut delays).unwrap();
        delays.0
    });
    let mut source = Source::new(SourceConfig {
        monitor: address.into(),
        transport: Transport::Udp,
        paths: SourcePaths::default(),
        params: SourceParams::default(),
        law: Box::new(Fixed::new(UpdateRate::from_period(PERIOD))),
        states: States::Of(Box::new(Synthetic::new(PAYLOAD.len()))),
    })
    .unwrap();
    source.run(&Stop::new(), Some(end), &mut ()).unwrap();
    receiving.join().unwrap()
}

/// From the sampling until the state is in the monitor's record.
struct Delays(Vec<Span>);

impl monitor::Watch for Delays {
    fn fresh(&mut self, _received_at: Time, _source: SourceKey, record: &Record) {
        self.0.push(Clock::new().now().since(record.generated_at));
    }
}

/// The baseline: a blocking send and a blocking receive.
fn through_bare_sockets() -> Vec<Span> {
    let clock = Clock::new();
    let end = clock.now() + MEASURED;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    let receiving = thread::spawn(move || {
        let (mut delays, mut payload) = (Vec::new(), PAYLOAD);
        while socket.recv(&mut payload).unwrap() > 0 {
            let sent_at = u64::from_be_bytes(*payload.first_chunk().unwrap());
            delays.push(clock.now().since(Time::from_nanos(sent_at)));
        }
        delays
    });
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut payload = PAYLOAD;
    let mut due = clock.now();
    while due < end {
        thread::sleep(due.since(clock.now()).into());
        payload[..8].copy_from_slice(&clock.now().as_nanos().to_be_bytes());
        socket.send_to(&payload, address).unwrap();
        due += PERIOD;
    }
    socket.send_to(&[], address).unwrap(); // the end
    receiving.join().unwrap()
}
