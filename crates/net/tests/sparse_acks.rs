//! A source, a narrow reverse path and a monitor over real sockets on loopback: with fewer acks the
//! monitor is as fresh, and the source learns it as early.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use freshline_core::link::{ConditionsConfig, PathConfig};
use freshline_core::session::{MonitorParams, SourceParams};
use freshline_core::source::{Acks, RateBounds, Tenth, TenthParams};
use freshline_core::unit::{Span, UpdateRate};
use freshline_net::clock::Clock;
use freshline_net::credentials::{Right, Rules};
use freshline_net::emulate::{Emulator, EmulatorConfig, HopReport};
use freshline_net::monitor::{Monitor, MonitorConfig, SourceStatus};
use freshline_net::source::sampler::Synthetic;
use freshline_net::source::{Source, SourceConfig, SourcePaths, SourceReport, States, Transport};
use freshline_net::stop::Stop;

const LENGTH: Span = Span::from_secs(4);

/// The results of source, monitor and reverse path.
struct Seen {
    source: SourceReport,
    monitor: SourceStatus,
    reverse: HopReport,
}

/// A source that may send 1000 updates a second, and acks that come back by 100 kbit/s: 149 a second.
fn run(acks: Acks) -> Seen {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let path = |hop: &str| PathConfig { hop: vec![hop.parse().expect("a hop")] };
    let config = MonitorConfig {
        listen: loopback,
        quic: None,
        params: MonitorParams::default(),
        rules: Rules::none(Right::Publish),
        detailed: 1,
        forget: MonitorConfig::FORGET,
    };
    let mut monitor = Monitor::bind(config).expect("a monitor");
    let (forward, reverse) = (path("delay=10ms"), path("rate=100kbit,delay=10ms,queue=1000p"));
    let conditions = ConditionsConfig { forward, reverse, wlan: None };
    let config = EmulatorConfig { conditions, ..EmulatorConfig::default() };
    let address = monitor.local_addr().expect("its address");
    let mut emulator = Emulator::bind(loopback, address, config, 1).expect("a path");
    let (address, handle, stop) = (emulator.local_addr(), emulator.handle(), Stop::new());
    thread::scope(|scope| {
        let monitored = scope.spawn(|| {
            monitor.run(&stop, None, &mut ()).expect("it runs");
            monitor.report(&())
        });
        let emulated = scope.spawn(|| emulator.run(None).expect("it runs"));
        let rate = UpdateRate::saturating(1_000.0);
        let bounds = RateBounds { floor: rate, ceiling: rate };
        // At 1000 updates/s, delays that vary by some ms, as on a busy machine, are that many updates that
        // seem to wait: with its target of a tenth the law would go below its floor, and ask for each ack.
        let law = TenthParams { acks, bounds, target_queue: 5.0, ..Default::default() };
        let law = Tenth::new(law);
        let config = SourceConfig {
            monitor: address.into(),
            transport: Transport::Udp,
            paths: SourcePaths::default(),
            params: SourceParams::default(),
            law: Box::new(law),
            states: States::Of(Box::new(Synthetic::new(100))),
        };
        let mut source = Source::new(config).expect("a source");
        let end = Clock::new().now() + LENGTH;
        source.run(&Stop::new(), Some(end), &mut ()).expect("it runs");
        stop.stop();
        handle.stop();
        let mut monitor = monitored.join().expect("it ends");
        let mut emulated = emulated.join().expect("it ends");
        Seen {
            source: source.report(),
            monitor: monitor.sources.pop().or(monitor.ended.pop()).expect("it was there"),
            reverse: emulated.reverse.hops.remove(0),
        }
    })
}

#[test]
fn fewer_acks_come_back_and_the_monitor_is_as_fresh() {
    let [every, sparse] = [Acks::Every, Acks::Sparse].map(run);
    assert_eq!(every.source.ack_requests, every.source.sent);
    assert!(sparse.source.ack_requests * 4 < sparse.source.sent * 3, "{:?}", sparse.source);
    assert_eq!((every.source.opened, sparse.source.opened), (1, 1));
    // Except for acks in flight at the end; and a challenge, and perhaps a goodbye.
    let answers = |seen: &Seen| seen.reverse.packets_in;
    assert!(answers(&every) * 2 > every.monitor.fresh, "{:?}", every.reverse);
    assert!(answers(&sparse) <= sparse.source.ack_requests + 2, "{:?}", sparse.reverse);
    // Where each update asks, no more are in transit than acks allow, so that none queue for seconds.
    let known = |seen: &Seen| seen.source.age_mean_ms.expect("acks arrived");
    assert!(known(&sparse) < 1.1 * known(&every), "{} {}", known(&sparse), known(&every));
    let age = |seen: &Seen| seen.monitor.age_mean_ms.expect("the offset is known");
    assert!(age(&sparse) < 1.1 * age(&every), "{} {}", age(&sparse), age(&every));
}
