//! Any bytes as the start of a frame and of an IP packet: no panic, and a congestion mark changes no
//! parsed field other than the mark.
#![no_main]

use freshline_core::router::{Ecn, Header, mark_congestion};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Header::of_ethernet(bytes);
    let mut packet = bytes.to_vec();
    let before = Header::of_ip(&packet);
    let is_marked = mark_congestion(&mut packet);
    assert_eq!(packet.len(), bytes.len());
    if let Some(before) = before {
        assert_eq!(is_marked, before.ecn != Ecn::NotCapable);
        let ecn = if is_marked { Ecn::Marked } else { before.ecn };
        assert_eq!(Header::of_ip(&packet), Some(Header { ecn, ..before }));
    }
});
