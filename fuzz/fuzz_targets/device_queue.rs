//! Any bytes as the kernel's report on a device's queueing discipline, or on the queues of its Wi-Fi
//! stations; and a valid report on the former, with any bytes before and after the counters.
#![no_main]

use freshline_net::via::{QueueCounters, parse_discipline, parse_station_queues};
use libfuzzer_sys::fuzz_target;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let _ = parse_discipline(bytes);
    let _ = parse_station_queues(bytes);
    let Some((numbers, other)) = bytes.split_first_chunk::<8>() else { return };
    let (queued, left) = numbers.split_at(4);
    let basic = attribute(1, &[&[0; 8], left, &[0; 4]].concat());
    let queue = attribute(3, &[queued, &[0; 16]].concat());
    let stranger = attribute(99, &other[..other.len().min(1000)]);
    let stats = attribute(7, &[stranger.clone(), basic, queue, stranger.clone()].concat());
    let answer = [&[0; 20], &stranger[..], &attribute(1, b"noqueue\0"), &stats, other].concat();
    let number = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("four of them"));
    let counters = QueueCounters {
        queued: number(queued).into(),
        queued_bytes: 0,
        left: number(left),
        left_bytes: 0,
        is_noqueue: true,
    };
    assert_eq!(parse_discipline(&answer), Some(counters));
});
