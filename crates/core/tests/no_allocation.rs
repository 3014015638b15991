//! Once their queues have grown, conditions with Wi-Fi allocate nothing; estimators of frames never do.
#![cfg(feature = "serde")]

#[path = "common/counting.rs"]
mod counting;

use counting::allocations;
use freshline_core::link::{Airborne, Conditions, ConditionsConfig, Direction};
use freshline_core::router::Packet;
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use freshline_core::wlan::estimator::{FRAMES, KernelCounterParams, LEVELS};
use freshline_core::wlan::{Arrival, LevelCounter};

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
