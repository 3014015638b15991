//! The cost of `put`, and the time until a state is received, compared with a plain channel and `send_to`.
//!
//! ```text
//! cargo bench -p freshline --bench put
//! ```

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use freshline::driver::clock::Clock;
use freshline::driver::session::{Monitor, MonitorParams, Secret};
use freshline::unit::Time;
use freshline::{LawConfig, Source, Topic};

/// States whose time from put to receipt is measured.
const STATES: usize = 2_000;

/// The pause between two states; the network thread sleeps by then.
const PAUSE: Duration = Duration::from_millis(1);

/// Higher than the rate of puts, so that the law sends each state at once.
const RATE: &str = "10000/s";

fn main() {
    // As `cargo test --benches` runs it.
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (states, length) = if is_test { (20, 20) } else { (STATES, 2_000) };
    costs(if is_test { 1_000 } else { 2_000_000 });
    under_load(Duration::from_millis(length));
    let (bare, ours) = (bare(states), ours(states));
    println!("\nfrom put to receipt over loopback, in us       p50      p99");
    for (name, [p50, p99]) in [("channel and send_to", bare), ("freshline", ours)] {
        println!("{name:<42} {p50:>8.1} {p99:>8.1}");
    }
    println!("{:<42} {:>8.2} {:>8.2}", "ratio", ours[0] / bare[0], ours[1] / bare[1]);
    #[cfg(feature = "monitor")]
    {
        let [p50, p99] = subscribed(states);
        println!("{:<42} {p50:>8.1} {p99:>8.1}", "freshline, by a monitor's subscription");
    }
}

/// Microseconds from put to a thread that reads a monitor's subscription, median and 99th percentile.
#[cfg(feature = "monitor")]
fn subscribed(states: usize) -> [f64; 2] {
    let monitor = freshline::Monitor::builder("udp://127.0.0.1:0").spawn().expect("loopback");
    let law = LawConfig::Fixed { rate: RATE.parse().expect("a rate") };
    let source = Source::builder(&monitor.url()).name("robot").law(law).spawn().expect("loopback");
    let mut states_of_robot = monitor.subscribe("robot");
    let (arrived_at, arrived) = mpsc::channel();
    thread::spawn(move || {
        for state in &mut states_of_robot {
            let at = Clock::new().now();
            let number = state.payload().try_into().map(u64::from_be_bytes);
            if arrived_at.send((at, number.unwrap_or_default())).is_err() {
                return;
            }
        }
    });
    source.put(0_u64.to_be_bytes()).expect("it is short");
    arrived.recv().expect("the monitor runs");
    thread::sleep(PAUSE * 50);
    quantiles(states, |number| {
        let began = Clock::new().now();
        source.put(number.to_be_bytes()).expect("it is short");
        let came = arrived.iter().find(|(_, which)| *which == number).expect("the monitor runs");
        came.0.since(began).into()
    })
}

/// A source at this rate, and a peer that answers it and records the arrival times of states.
fn source(rate: &str, arrived: mpsc::Sender<(Time, u64)>) -> (Source, Topic) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let url = format!("udp://{}", socket.local_addr().expect("it is bound"));
    thread::spawn(move || answer(&socket, &arrived));
    let law = LawConfig::Fixed { rate: rate.parse().expect("a rate") };
    let source = Source::builder(&url).law(law).spawn().expect("loopback");
    let topic = source.topic("").expect("the one without a name");
    topic.put(0_u64.to_be_bytes()).expect("it is short");
    while !source.is_open() {
        thread::sleep(PAUSE);
    }
    (source, topic)
}

/// A monitor without outputs: reports the arrival time of each update, and the number that it carries.
fn answer(socket: &UdpSocket, arrived: &mpsc::Sender<(Time, u64)>) {
    let mut monitor = Monitor::new(MonitorParams::default(), Secret::new([1; 16]));
    let (mut datagram, mut out, clock) = ([0; 2048], Vec::new(), Clock::new());
    while let Ok((len, peer)) = socket.recv_from(&mut datagram) {
        let at = clock.now();
        let _ = monitor.handle_datagram(at, peer, &datagram[..len]);
        while monitor.poll_event().is_some() {}
        let state = monitor.records().next().and_then(|(_, record)| record.payload());
        let number = state.and_then(|state| state.try_into().ok()).map(u64::from_be_bytes);
        while let Some(transmit) = monitor.poll_transmit(clock.now(), &mut out) {
            let _ = socket.send_to(&out[..transmit.len], peer);
        }
        if arrived.send((at, number.unwrap_or_default())).is_err() {
            return;
        }
    }
}

/// The cost of a call of `put` for the caller.
fn costs(count: u32) {
    let (sender, _arrived) = mpsc::channel();
    let (_source, topic) = source("100/s", sender);
    for threads in [1_u32, 8] {
        let began = Clock::new().now();
        thread::scope(|scope| {
            for _ in 0..threads {
                let topic = topic.clone();
                scope.spawn(move || {
                    for _ in 0..count / threads {
                        topic.put([7; 64]).expect("it is short");
                    }
                });
            }
        });
        let each = Clock::new().now().since(began).as_nanos() as f64 / f64::from(count);
        println!("put of 64 bytes by {threads} threads: {each:.0} ns each, {:.1} M/s", 1e3 / each);
    }
}

/// Whether puts slow the network thread down: updates at 1000/s with one put for each, and while 8 threads put about a
/// million states a second.
fn under_load(length: Duration) {
    for (threads, batch) in [(1_u32, 1), (8, 150)] {
        let (sender, arrived) = mpsc::channel();
        let (_source, topic) = source("1000/s", sender);
        let (is_over, puts) = (AtomicBool::new(false), AtomicU64::new(0));
        let count = thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        (0..batch).for_each(|_| _ = topic.put([7; 8]));
                        puts.fetch_add(batch, Ordering::Relaxed);
                        thread::sleep(PAUSE);
                    }
                });
            }
            while arrived.try_recv().is_ok() {}
            thread::sleep(length);
            is_over.store(true, Ordering::Relaxed);
            arrived.try_iter().count()
        });
        let each = |count: f64| count / length.as_secs_f64();
        let (updates, puts) = (each(count as f64), each(puts.into_inner() as f64));
        println!("updates at 1000/s with {puts:.0} puts/s by {threads} threads: {updates:.0}/s");
    }
}

/// Microseconds from put to receipt, median and 99th percentile.
fn ours(states: usize) -> [f64; 2] {
    let (sender, arrived) = mpsc::channel();
    let (_source, topic) = source(RATE, sender);
    thread::sleep(PAUSE * 50);
    quantiles(states, |number| {
        while arrived.try_recv().is_ok() {}
        let began = Clock::new().now();
        topic.put(number.to_be_bytes()).expect("it is short");
        let came = arrived.iter().find(|(_, which)| *which == number).expect("it answers");
        came.0.since(began).into()
    })
}

/// The same for a thread that sends states from a channel.
fn bare(states: usize) -> [f64; 2] {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let to = receiver.local_addr().expect("it is bound");
    let (sender, given) = mpsc::channel::<[u8; 8]>();
    thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        given.iter().for_each(|state| _ = socket.send_to(&state, to));
    });
    let (arrived_at, arrived) = mpsc::channel();
    thread::spawn(move || {
        let mut datagram = [0; 64];
        while receiver.recv_from(&mut datagram).is_ok() {
            if arrived_at.send(Clock::new().now()).is_err() {
                return;
            }
        }
    });
    quantiles(states, |number| {
        let began = Clock::new().now();
        sender.send(number.to_be_bytes()).expect("its thread lives");
        arrived.recv().expect("its thread lives").since(began).into()
    })
}

fn quantiles(states: usize, mut measure: impl FnMut(u64) -> Duration) -> [f64; 2] {
    let mut all: Vec<_> = (1..=states as u64)
        .map(|number| {
            thread::sleep(PAUSE);
            measure(number).as_nanos() as f64 / 1e3
        })
        .collect();
    all.sort_by(f64::total_cmp);
    [all[all.len() / 2], all[all.len() * 99 / 100]]
}
