//! Any bytes as the head of a bond's stream, split in any way.
#![no_main]

use freshline_net::bond::head::{LONGEST, Parsed, parse, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let read = parse(bytes);
    match &read {
        Parsed::Whole(target, len) => {
            assert!(*len <= bytes.len().min(LONGEST));
            assert!(target.to_string().is_ascii());
            let head = write(target);
            assert_eq!(parse(&head), Parsed::Whole(target.clone(), head.len()));
        }
        Parsed::Partial => assert!(bytes.len() < LONGEST),
        Parsed::Bad => {}
    }
    // Once a prefix is parsed as whole or bad, more bytes do not change the result.
    for len in 0..bytes.len().min(LONGEST) {
        match parse(&bytes[..len]) {
            Parsed::Partial => {}
            known => return assert_eq!(known, read),
        }
    }
});
