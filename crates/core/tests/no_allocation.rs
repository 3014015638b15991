//! Once their queues have grown, conditions with Wi-Fi and both ends of a downlink allocate nothing;
//! estimators of frames never do.
#![cfg(feature = "serde")]

#[path = "common/counting.rs"]
mod counting;

use counting::allocations;
use freshline_core::link::{Airborne, Conditions, ConditionsConfig, Direction};
use freshline_core::router::Packet;
use freshline_core::session::downlink::{
    Client, ClientEvent, ClientParams, REMEMBERED, Server, ServerEvent, ServerParams,
};
use freshline_core::session::{Admission, Secret};
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use freshline_core::wire::SessionId;
use freshline_core::wlan::estimator::{FRAMES, KernelCounterParams, LEVELS};
use freshline_core::wlan::{Aggregation, AggregationParams, Arrival, Fixed, LevelCounter};

/// A datagram of one of two clients.
struct Datagram(u32);

impl Packet for Datagram {
    fn size(&self) -> Bytes {
        Bytes::new(1028)
    }
}

impl Airborne for Datagram {
    fn station(&self) -> u32 {
        self.0
    }
}

/// For a while, a packet for each client every 200 µs and one from each, which is more than the air
/// takes; how many arrived.
fn overload(conditions: &mut Conditions<Datagram>, from: Time, length: Span) -> u64 {
    let (mut now, mut arrived) = (from, 0);
    while now < from + length {
        for station in [1, 2] {
            for way in Direction::ALL {
                conditions.enqueue(now, way, Datagram(station), &mut |_| ());
            }
        }
        now += Span::from_micros(200);
        for way in Direction::ALL {
            while conditions.poll(now, way, &mut |_| ()).is_some() {
                arrived += 1;
            }
        }
    }
    arrived
}

#[test]
fn conditions_with_wifi_allocate_nothing() {
    let file = "
        [[forward.hop]]
        delay = '1ms'
        [[reverse.hop]]
        rate = '80mbit'
        delay = '1ms'
        queue = '100p'
        [wlan]
        standard = '802.11ac'
        rate = 'mcs4'
        width = '40MHz'
        queue = '100p'
    ";
    let config: ConditionsConfig = toml::from_str(file).unwrap();
    let mut conditions = config.build(5, 2).unwrap();
    let warm_up = Span::from_secs(30);
    overload(&mut conditions, Time::ZERO, warm_up);
    let before = allocations();
    let arrived = overload(&mut conditions, Time::ZERO + warm_up, Span::from_secs(10));
    assert!(arrived > 50_000, "{arrived}");
    assert_eq!(allocations() - before, 0);
}

#[test]
fn counters_by_kernel_stamps_allocate_nothing() {
    let (frames, levels) = (toml::from_str(FRAMES).unwrap(), toml::from_str(LEVELS).unwrap());
    let params = KernelCounterParams::default();
    let counters =
        [params.threshold(&frames), params.logistic(&frames), params.svm(&frames, &levels)];
    for counter in counters {
        let mut counter = counter.unwrap();
        let before = allocations();
        let (mut now, mut reports) = (Time::ZERO, 0);
        for seq in 0..200_000 {
            now += Span::from_micros(if seq % 30 == 0 { 200 } else { 6 });
            // Each 100th is lost, and some come late.
            let seq = if seq % 1000 == 7 { seq - 7 } else { seq };
            if seq % 100 != 0 || seq % 1000 == 0 {
                let rate = BitRate::from_mbps(390);
                counter.on_packet(now, Arrival { seq, stamp: now, rate });
            }
            if seq % 40_000 == 1 && counter.report(now).is_some() {
                reports += 1;
            }
        }
        assert!(reports >= 4, "{reports}");
        assert_eq!(allocations() - before, 0);
    }
}

#[test]
fn packets_of_a_downlink_allocate_nothing() {
    let params = ServerParams { admission: Admission::Proven, ..ServerParams::default() };
    let law = Box::new(Fixed::new(BitRate::from_mbps(12)));
    let mut server: Server<u8> = Server::new(params, law, Secret::new([1; 16]));
    let counter = Box::new(Aggregation::new(AggregationParams::default()));
    let session = SessionId(7);
    let mut client = Client::new(ClientParams::default(), session, counter, Time::ZERO).unwrap();
    let (mut out, mut now) = (Vec::new(), Time::ZERO);
    client.handle_timeout(now);
    let join = client.poll_transmit(now, &mut out).unwrap();
    server.handle_datagram(now, 1, &out[..join.len]).unwrap();
    let mut carry = |packets: usize| {
        let mut arrived = 0;
        while arrived < packets {
            now = server.poll_timeout().unwrap().max(now);
            server.handle_timeout(now);
            while let Some(event) = server.poll_event() {
                let ServerEvent::PacketWanted(wanted) = event else { continue };
                server.put(now, wanted, &[7; 1_000]).unwrap();
            }
            while let Some(transmit) = server.poll_transmit(now, &mut out) {
                client.handle_datagram(now, &out[..transmit.len]).unwrap();
            }
            client.handle_timeout(now);
            while let Some(event) = client.poll_event() {
                arrived += usize::from(matches!(event, ClientEvent::Packet(_)));
            }
            while let Some(transmit) = client.poll_transmit(now, &mut out) {
                server.handle_datagram(now, 1, &out[..transmit.len]).unwrap();
            }
        }
    };
    // Until as many packets are remembered as may be.
    carry(REMEMBERED + 1_000);
    let before = allocations();
    carry(5_000);
    assert_eq!(allocations(), before);
}
