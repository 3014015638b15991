//! Applications over streams: their data arrives, and age can be measured.

#[path = "common/tcp_net.rs"]
mod tcp_net;

use freshline_core::age::AgeMeter;
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use freshline_lab::tcp::apps::{Cbr, RequestResponse, RequestResponseParams, UpdateSource};
use freshline_lab::tcp::congestion::Algorithm;
use freshline_lab::tcp::{ReceiverParams, SenderParams};
use tcp_net::{Net, at, law};

type WiredNet = Net<freshline_core::router::Discipline<tcp_net::Carried>>;

fn add(net: &mut WiredNet) -> usize {
    net.add(law(Algorithm::Cubic), SenderParams::default(), ReceiverParams::default())
}

/// Age at the far end of a stream with `rate` updates of 1024 bytes a second, from 5 to 65 s.
fn mean_age(hop: &str, rate: f64) -> Span {
    let mut net = Net::over(hop, "delay=10ms", 1);
    let id = add(&mut net);
    let mut source = UpdateSource::new();
    let mut meter = AgeMeter::new();
    let period = Span::from_secs_f64(1.0 / rate);
    let mut next = at(1.0);
    while net.now < at(65.0) {
        net.run_while(next, |net| {
            let delivered = net.streams[id].receiver.delivered();
            while let Some(update) = source.poll_delivered(delivered) {
                if net.now > at(5.0) {
                    meter.on_update(net.now, update.generated_at);
                }
            }
            true
        });
        let now = net.now;
        net.with_sender(id, |sender| source.generate(now, Bytes::new(1024), sender));
        next += period;
    }
    assert_eq!(source.refused(), 0);
    meter.summary(net.now).expect("updates arrived").mean
}

#[test]
fn updates_over_an_idle_path_age_by_the_path_and_half_a_period() {
    // 1024 bytes and 52 of headers at 10 Mbit/s take 0.86 ms; 50 ms between updates.
    let age = mean_age("rate=10mbit,delay=10ms", 20.0);
    let theory = Span::from_micros(10_000 + 861 + 25_000);
    assert!((age.as_millis_f64() / theory.as_millis_f64() - 1.0).abs() < 0.02, "{age}");
}

#[test]
fn loss_makes_later_updates_wait_for_the_lost_one() {
    let whole = mean_age("rate=10mbit,delay=10ms", 100.0);
    let lossy = mean_age("rate=10mbit,delay=10ms,loss=0.03", 100.0);
    println!("{whole} without loss, {lossy} with 3 %");
    assert!(lossy > whole + Span::from_millis(3), "{lossy} against {whole}");
}

#[test]
fn a_constant_rate_arrives_at_that_rate() {
    let mut net = Net::over("rate=10mbit,delay=10ms", "delay=10ms", 1);
    let id = add(&mut net);
    let mut cbr = Cbr::new(at(0.1), Bytes::new(1000), BitRate::from_mbps(2));
    while let Some(next) = cbr.poll_timeout().filter(|next| *next < at(20.0)) {
        net.run(next);
        let now = net.now;
        net.with_sender(id, |sender| cbr.handle_timeout(now, sender));
    }
    net.run(at(21.0));
    // 0.1 to 20 s, 4 ms from block to block.
    assert_eq!(net.streams[id].receiver.delivered(), Bytes::new(4975 * 1000));
}

#[test]
fn an_answer_takes_the_round_trip_and_its_transmission() {
    let params = RequestResponseParams {
        request: Bytes::new(200),
        response: Bytes::new(10_000),
        think: Span::from_millis(100),
    };
    // Both streams go in the same direction over the path, which is equally slow in both
    // directions.
    let mut net = Net::over("rate=10mbit,delay=20ms", "delay=20ms", 1);
    let (requests, responses) = (add(&mut net), add(&mut net));
    let mut app = RequestResponse::new(params, at(1.0));
    let mut times = Vec::new();
    while net.now < at(10.0) {
        let wake = app.poll_timeout().unwrap_or(Time::MAX).min(net.now + Span::from_millis(1));
        net.run(wake);
        let now = net.now;
        let asked = net.streams[requests].receiver.delivered();
        let told = net.streams[responses].receiver.delivered();
        times.extend(app.on_responses(now, told));
        net.with_sender(requests, |sender| app.handle_timeout(now, sender));
        net.with_sender(responses, |sender| app.on_requests(asked, sender));
    }
    assert!(app.responses() > 50, "{}", app.responses());
    // A base RTT of 40 ms, 0.2 ms and 8.4 ms of transmission, seen on a grid of 1 ms.
    for time in times {
        assert!(time >= Span::from_millis(48) && time < Span::from_millis(53), "{time}");
    }
}
