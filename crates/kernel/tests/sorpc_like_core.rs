//! The integer arithmetic of the kernel's SORPC compared with the core's floating point: both see
//! the same send buffers, and must choose the same bands, to the byte. Only exactly at a threshold
//! that binary fractions do not have, such as 0.672, the core's product may be rounded to either
//! side.

mod common;

use std::fmt::Write as _;

use common::on_host;
use freshline_core::host::{Band, Outgoing, SendBuffer, SorpcParams};
use freshline_core::unit::Bytes;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// The largest that a send buffer's numbers become in the kernel, which has them in `int`s.
const LARGEST: u64 = i32::MAX as u64;

#[test]
fn bands_follow_from_send_buffers_as_in_the_core() {
    let mut rng = Pcg32::seed_from_u64(5);
    let mut buffers = vec![(500, 0, 0), (1, 0, LARGEST), (1000, LARGEST, LARGEST)];
    for _ in 0..5000 {
        let threshold = if rng.random() { 500 } else { rng.random_range(1..=1000) };
        // From 2 kB on, evenly by magnitude, and filled as it comes, or just about to the threshold.
        let size = (2e3 * 1e6_f64.powf(rng.random())) as u64;
        let about = size * threshold / 1000;
        buffers.push((threshold, rng.random_range(0..=size), size));
        buffers.extend((about.saturating_sub(1)..=about + 1).map(|at| (threshold, at, size)));
    }
    let mut lines = String::new();
    let mut expected = Vec::new();
    for (threshold, queued, size) in &buffers {
        writeln!(lines, "{threshold} {queued} {size}").unwrap();
        let law = SorpcParams { threshold: *threshold as f64 / 1e3 }.build().unwrap();
        let buffer = SendBuffer { queued: Bytes::new(*queued), size: Bytes::new(*size) };
        expected.push(law.band(Outgoing::Data(buffer)));
    }
    let bands = on_host("sorpc_on_host", &lines);
    assert_eq!(bands.len(), expected.len());
    for ((buffer, kernel), core) in buffers.iter().zip(bands).zip(&expected) {
        let (threshold, queued, size) = *buffer;
        if queued * 1000 == threshold * size && threshold != 500 {
            continue;
        }
        assert_eq!(kernel == [1], *core == Band::Bulk, "{buffer:?}: {kernel:?}, the core {core:?}");
    }
    for band in [Band::Urgent, Band::Bulk] {
        assert!(expected.iter().filter(|one| **one == band).count() > 1000);
    }
}
