//! The age of commands on arrival at a robot that opens the connection and sends large states at the path's
//! capacity: real sockets and the path emulator, all within this process, so that ages are exact.
//!
//! ```text
//!   robot ──50 kB states──► emulator, 8 Mbit/s and 20 ms each way ──► base
//!         ◄──── commands ──                                       ◄──
//! ```
//!
//! `cargo run --release -p freshline-net --example commands_beside_video [SECONDS]`; the same in virtual time is
//! `cargo test -p freshline-core --test both_directions -- --nocapture`. The emulator's own lateness, which a
//! busy machine adds to the ages, is printed next to the limit.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use freshline_core::link::{ConditionsConfig, PathConfig};
use freshline_core::session::{MonitorParams, SourceKey, SourceParams, TopicParams};
use freshline_core::source::{LawConfig, LawName};
use freshline_core::unit::{BitRate, Bytes, Span, Time, UpdateRate};
use freshline_core::wire::Ack;
use freshline_net::clock::Clock;
use freshline_net::credentials::{Right, Rules};
use freshline_net::emulate::{Emulator, EmulatorConfig};
use freshline_net::monitor::{
    Incoming, Monitor, MonitorConfig, Record, ReturnConfig, ReturnTopic, Watch,
};
use freshline_net::source::sampler::{Shared, Synthetic};
use freshline_net::source::{Source, SourceConfig, SourcePaths, States, Transport};
use freshline_net::stop::Stop;

const RATE: BitRate = BitRate::from_mbps(8);
const DELAY: Span = Span::from_millis(20);
/// The length of a datagram, in bytes.
const DATAGRAM: usize = 1_200;
/// The headers of UDP and IPv4, in bytes.
const HEADERS: u64 = 28;
const VIDEO: usize = 50_000;
const COMMAND: usize = 100;
/// The time at the beginning that is not measured.
const WARM_UP: Span = Span::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(30), |text| text.parse())?;
    let default = LawConfig::with_defaults(LawName::AcpPlusD)?;
    let full = LawConfig::Fixed { rate: UpdateRate::saturating(790.0) };
    let steady = LawConfig::Fixed { rate: UpdateRate::saturating(50.0) };
    let cases = [
        ("acp+d", "acp+d", default, default),
        ("790/s", "acp+d", full, default),
        ("790/s", "50/s", full, steady),
    ];
    println!("video  commands  states/s  p50 ms  p99 ms  limit ms  emulator late, p99 ms");
    for (video, commands, robot, base) in cases {
        let ran = run(robot, base, Span::from_secs(seconds))?;
        let mut ages = ran.ages;
        ages.sort_unstable();
        let age = |share: usize| {
            ages.get(ages.len() * share / 100).map_or(f64::NAN, |age| age.as_millis_f64())
        };
        let rate = ages.len() as f64 / seconds as f64;
        println!(
            "{video:<6} {commands:<8} {rate:>9.1} {:>7.2} {:>7.2} {:>9.2} {:>9.2}",
            age(50),
            age(99),
            limit().as_millis_f64(),
            ran.late_ms
        );
    }
    Ok(())
}

/// The bound on the age: the path's delay, two transmission times of a video datagram, and one of an ack.
fn limit() -> Span {
    let transmission = |bytes: usize| RATE.time_to_send(Bytes::new(bytes as u64 + HEADERS));
    DELAY + transmission(DATAGRAM) * 2 + transmission(Ack::LEN_OF_PARTS)
}

fn params(name: &str) -> SourceParams {
    SourceParams { name: name.into(), max_datagram: DATAGRAM, ..SourceParams::default() }
}

struct Ran {
    ages: Vec<Span>,
    late_ms: f64,
}

fn run(robot: LawConfig, base: LawConfig, duration: Span) -> Result<Ran, Box<dyn Error>> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut monitor = Monitor::bind(MonitorConfig {
        listen: loopback,
        quic: None,
        params: MonitorParams::default(),
        rules: Rules::none(Right::Publish),
        detailed: 0,
        forget: MonitorConfig::FORGET,
    })?
    .returning(ReturnConfig {
        params: params("base"),
        law: base,
        topics: vec![ReturnTopic {
            params: TopicParams::new("cmd"),
            states: Shared::new(Box::new(Synthetic::new(COMMAND))),
        }],
    })?;
    let hop = format!("rate={}bit,delay={}ms,queue=1000p", RATE.as_bps(), DELAY.as_millis_f64());
    let path =
        || -> Result<PathConfig, Box<dyn Error>> { Ok(PathConfig { hop: vec![hop.parse()?] }) };
    let conditions = ConditionsConfig { forward: path()?, reverse: path()?, wlan: None };
    let config = EmulatorConfig { conditions, ..EmulatorConfig::default() };
    let mut emulator = Emulator::bind(loopback, monitor.local_addr()?, config, 1)?;

    let now = Clock::new().now();
    let (from, until) = (now + WARM_UP, now + WARM_UP + duration);
    let (heard, ages) = std::sync::mpsc::channel();
    let source = Source::new(SourceConfig {
        monitor: emulator.local_addr().into(),
        transport: Transport::Udp,
        paths: SourcePaths::default(),
        params: params("robot"),
        law: robot.build(),
        states: States::Of(Box::new(Synthetic::new(VIDEO))),
    })?;
    let commands = Commands { from, until, heard };
    let mut source = source.receiving(Box::new(Incoming::new(MonitorParams::default(), commands)?));

    let (stop, handle) = (Stop::new(), emulator.handle());
    let report = thread::scope(|scope| {
        let monitor = scope.spawn(|| monitor.run(&stop, Some(until), &mut ()).map_err(drop));
        let emulator = scope.spawn(|| emulator.run(None));
        let ran = source.run(&stop, Some(until), &mut ());
        handle.stop();
        let _ended = monitor.join();
        let report = emulator.join().map_err(|_| "the emulator has failed")??;
        ran?;
        Ok::<_, Box<dyn Error>>(report)
    })?;
    let late = [report.forward, report.reverse].map(|direction| direction.timing_error.p99_ms);
    drop(source);
    Ok(Ran { ages: ages.into_iter().collect(), late_ms: late[0].max(late[1]) })
}

/// Records the age of each command that arrives during the measurement.
struct Commands {
    from: Time,
    until: Time,
    heard: std::sync::mpsc::Sender<Span>,
}

impl Watch for Commands {
    fn fresh(&mut self, now: Time, _source: SourceKey, record: &Record) {
        if (self.from..self.until).contains(&now) {
            // Both ends share the clock of this process: the age is exact.
            let _ = self.heard.send(now.since(record.generated_at));
        }
    }
}
