//! Any bytes as what comes first on a stream of a bond, in pieces as they come.
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
    // What a beginning is said to be is what the whole is, once it is said.
    for len in 0..bytes.len().min(LONGEST) {
        match parse(&bytes[..len]) {
            Parsed::Partial => {}
            known => return assert_eq!(known, read),
        }
    }
});
