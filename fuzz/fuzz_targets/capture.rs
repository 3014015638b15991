//! Any file as a capture: no panic, every frame is counted once, and the number of flows stays within
//! its limit. Some inputs get a valid file header, so that the bytes are often parsed as packets.
#![no_main]

use arbitrary::Arbitrary;
use freshline_core::unit::{Bytes, Time};
use freshline_lab::capture::{Limits, LinkType, Measured, PcapWriter, measure};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { max_flows: 3, max_outstanding: 16 };

#[derive(Debug, Arbitrary)]
enum File<'a> {
    Bytes(&'a [u8]),
    Frames { link: u32, frames: Vec<(u32, u32, &'a [u8])> },
}

fuzz_target!(|file: File<'_>| {
    let bytes = match file {
        File::Bytes(bytes) => bytes.to_vec(),
        File::Frames { link, frames } => {
            let link = LinkType::from_number(link % 300);
            let mut writer = PcapWriter::new(Vec::new(), link).expect("memory takes all");
            for (nanos, wire_len, frame) in frames {
                let (at, wire_len) = (Time::from_nanos(nanos.into()), Bytes::new(wire_len.into()));
                writer.write(at, frame, wire_len).expect("it is short");
            }
            writer.into_inner().expect("memory takes all")
        }
    };
    let Measured { report, .. } = measure(&bytes[..], LIMITS);
    let packets = report.packets;
    let sum = packets.tcp
        + packets.session
        + packets.other
        + packets.fragments
        + packets.truncated
        + packets.unknown_link
        + packets.over_limit;
    assert_eq!(sum, packets.read);
    assert!(report.flows.len() <= LIMITS.max_flows && report.sessions.len() <= LIMITS.max_flows);
    for age in report.flows.iter().filter_map(|flow| flow.age) {
        assert!(age.mean_ms <= age.max_ms && age.peak_mean_ms <= age.max_ms);
    }
});
