//! Any text, parsed as each unit: no panic, and a parsed value that is printed parses to the same value.
#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use freshline_core::unit::{BitRate, Bytes, Packets, ParseUnitError, Span, UpdateRate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    survives_printing::<Span>(text);
    survives_printing::<BitRate>(text);
    survives_printing::<UpdateRate>(text);
    survives_printing::<Bytes>(text);
    survives_printing::<Packets>(text);
});

fn survives_printing<T>(text: &str)
where
    T: FromStr<Err = ParseUnitError> + Display + Debug + PartialEq,
{
    match text.parse::<T>() {
        Ok(value) => assert_eq!(value.to_string().parse(), Ok(value)),
        Err(error) => assert!(error.to_string().len() < 400, "an error quotes little: {error}"),
    }
}
