//! Any bytes as a record of a monitor-mode capture.
#![no_main]

use freshline_core::wlan::air::{DataFrame, Radiotap};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((radio, mpdu)) = Radiotap::parse(bytes) else { return };
    if let Some(rate) = radio.phy.and_then(|phy| phy.rate()) {
        let _ = rate.as_bps();
    }
    if let Ok((_, payload)) = DataFrame::parse(mpdu, radio.is_padded) {
        let held: usize = payload.packets().map(<[u8]>::len).sum();
        assert!(held <= mpdu.len());
    }
    // A parsed header can be written, and parses to the same.
    let mut written = Vec::new();
    radio.write(&mut written);
    let again = Radiotap::parse(&written).expect("it was written whole").0;
    assert_eq!((again.tsft, again.ampdu), (radio.tsft, radio.ampdu));
});
