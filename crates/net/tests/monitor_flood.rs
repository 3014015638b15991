//! A monitor on a real socket serves its source while strangers flood it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freshline_core::session::{MonitorCounters, MonitorParams, SourceParams};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{
    Ack, Close, CloseReason, Cookie, Frames, Message, OffsetEstimate, Opening, SessionId, Update,
};
use freshline_net::clock::Clock;
use freshline_net::credentials::{Right, Rules};
use freshline_net::monitor::{Asker, Monitor, MonitorConfig, MonitorReport, SourceStatus};
use freshline_net::source::sampler::Synthetic;
use freshline_net::source::{Source, SourceConfig, SourcePaths, States, Transport};
use freshline_net::stop::Stop;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Long enough for any machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
/// No age may reach it while the flood goes on; hundreds of periods of the source.
const STALE_MS: f64 = 5_000.0;
const MAX_SOURCES: usize = 2;
const JUNK: usize = 50_000;

/// A monitor and one honest source, each on its thread.
struct World {
    address: SocketAddr,
    asker: Asker,
    stop: Stop,
    monitor: JoinHandle<MonitorReport>,
    source: JoinHandle<()>,
}

impl World {
    fn start() -> Self {
        let mut monitor = Monitor::bind(MonitorConfig {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            quic: None,
            params: MonitorParams { max_sources: MAX_SOURCES, ..MonitorParams::default() },
            rules: Rules::none(Right::Publish),
            detailed: MAX_SOURCES,
            forget: MonitorConfig::FORGET,
        })
        .unwrap();
        let (address, asker) = (monitor.local_addr().unwrap(), monitor.asker());
        let mut source = Source::new(SourceConfig {
            monitor: address.into(),
            transport: Transport::Udp,
            paths: SourcePaths::default(),
            params: SourceParams { name: "honest".to_owned(), ..SourceParams::default() },
            law: Box::new(Fixed::new(UpdateRate::from_period(Span::from_millis(5)))),
            states: States::Of(Box::new(Synthetic::new(64))),
        })
        .unwrap();
        let stop = Stop::new();
        let (monitor_stop, source_stop) = (stop.clone(), stop.clone());
        let world = Self {
            address,
            asker,
            stop,
            monitor: thread::spawn(move || {
                monitor.run(&monitor_stop, None, &mut ()).unwrap();
                monitor.report(&())
            }),
            source: thread::spawn(move || source.run(&source_stop, None, &mut ()).unwrap()),
        };
        world.served_after(None);
        world
    }

    /// The honest source's state, once a fresher one than `seq` has come.
    fn served_after(&self, seq: Option<u64>) -> SourceStatus {
        let clock = Clock::new();
        let end = clock.now() + PATIENCE.into();
        loop {
            let sources = self.asker.sources(100).unwrap();
            assert!(sources.len() <= MAX_SOURCES, "records grow: {sources:?}");
            let honest = sources.into_iter().find(|source| source.source == "honest");
            match honest {
                Some(honest) if seq.is_none_or(|seq| honest.seq > seq) => return honest,
                honest => assert!(clock.now() < end, "not served: {honest:?}"),
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets `send` send in `rounds`; in each of them the honest source must get through.
    fn flood(&self, rounds: usize, mut send: impl FnMut(&UdpSocket)) {
        let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        stranger.connect(self.address).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        for _ in 0..rounds {
            let before = self.served_after(None).seq;
            send(&stranger);
            let honest = self.served_after(Some(before));
            // It is unknown until the source has reported its clock's offset.
            let oldest = honest.age_max_ms.unwrap_or(0.0);
            assert!(oldest < STALE_MS, "an age of {oldest} ms");
        }
    }

    fn stop(self) -> MonitorReport {
        self.stop.stop();
        self.source.join().unwrap();
        self.monitor.join().unwrap()
    }
}

/// Datagrams such as strangers send.
struct Strangers {
    random: Pcg64,
    bytes: [u8; 300],
}

impl Strangers {
    fn new(seed: u64) -> Self {
        Self { random: Pcg64::seed_from_u64(seed), bytes: [0; 300] }
    }

    fn below(&mut self, end: usize) -> usize {
        (self.random.next_u64() % end as u64) as usize
    }

    fn next(&mut self) -> &[u8] {
        self.random.fill_bytes(&mut self.bytes);
        let session = SessionId(self.random.next_u64());
        let cookie = Cookie(*self.bytes.first_chunk().unwrap());
        let guess = Opening { cookie, name: "honest", token: b"" };
        let len = match self.below(6) {
            // Noise, an update of an unknown session, a guessed cookie, messages that only monitors
            // send, a goodbye.
            0 => self.below(300),
            1 => self.update(session, None),
            2 => self.update(session, Some(guess)),
            3 => self.put(&ack(session).bytes()),
            4 => self.put(&Close { session, reason: CloseReason::Done }.bytes()),
            // An update that is cut short, or of which a bit has turned.
            _ => {
                let len = self.update(session, Some(guess));
                let at = self.below(len);
                self.bytes[at] ^= 1 << self.below(8);
                self.below(len + 1)
            }
        };
        &self.bytes[..len]
    }

    fn update(&mut self, session: SessionId, opening: Option<Opening<'_>>) -> usize {
        update(session, opening).write(&mut self.bytes).unwrap()
    }

    fn put(&mut self, message: &[u8]) -> usize {
        self.bytes[..message.len()].copy_from_slice(message);
        message.len()
    }
}

fn update<'a>(session: SessionId, opening: Option<Opening<'a>>) -> Update<'a> {
    Update {
        session,
        seq: 0,
        sent_at: Time::ZERO,
        clock_offset: Some(OffsetEstimate::new(0, Span::from_millis(1))),
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening,
        frames: Frames::fresh(b"state"),
    }
}

fn ack(session: SessionId) -> Ack {
    Ack {
        session,
        seq: 0,
        sent_at: Time::ZERO,
        received_at: Time::ZERO,
        hold: Span::ZERO,
        was_fresh: true,
        fresh: 1,
        stale: 0,
        missing: 0,
        marks: Default::default(),
        parts: None,
    }
}

#[test]
fn garbage_and_spoofed_openings_make_no_record_and_do_not_stop_service() {
    let world = World::start();
    let mut strangers = Strangers::new(1);
    let rounds = 20;
    world.flood(rounds, |stranger| {
        for _ in 0..JUNK / rounds {
            // A datagram that the kernel does not accept is lost as on any link.
            let _ = stranger.send(strangers.next());
        }
    });
    let report = world.stop();
    assert_eq!(
        (report.counters.opened, report.counters.superseded, report.counters.expired),
        (1, 0, 0)
    );
    assert!(
        report.counters.challenged > 1
            && report.counters.refused > 0
            && report.counters.ignored > 0,
        "{report:?}"
    );
    let MonitorCounters { fresh, stale, duplicates, challenged, refused, ignored, closed, .. } =
        report.counters;
    assert_eq!(
        fresh + stale + duplicates + challenged + refused + ignored + closed,
        report.counters.datagrams,
        "each datagram is counted once"
    );
}

#[test]
fn strangers_with_good_cookies_fill_the_table_and_no_more() {
    let world = World::start();
    let mut session = 0;
    let mut refused = 0;
    world.flood(10, |stranger| {
        for _ in 0..20 {
            session += 1;
            refused += usize::from(open(stranger, SessionId(session)) == Opened::Refused);
        }
    });
    assert_eq!(refused, 200 - (MAX_SOURCES - 1));
    let report = world.stop();
    assert_eq!(report.counters.opened, MAX_SOURCES as u64);
    assert_eq!(report.counters.refused, refused as u64);
}

#[derive(Debug, PartialEq, Eq)]
enum Opened {
    Taken,
    Refused,
}

/// Opens a session as a source does: shows the cookie of the challenge.
fn open(stranger: &UdpSocket, session: SessionId) -> Opened {
    let mut cookie = Cookie::default();
    let mut datagram = [0; 200];
    loop {
        let opening = Opening { cookie, name: "", token: b"" };
        let len = update(session, Some(opening)).write(&mut datagram).unwrap();
        stranger.send(&datagram[..len]).unwrap();
        let len = stranger.recv(&mut datagram).expect("an answer");
        match Message::parse(&datagram[..len]).unwrap() {
            Message::Challenge(challenge) => cookie = challenge.cookie,
            Message::Ack(_) => return Opened::Taken,
            Message::Close(Close { reason: CloseReason::Full, .. }) => return Opened::Refused,
            other => panic!("an answer that makes no sense: {other:?}"),
        }
    }
}
