//! Any state with a stamp (`--stamp unix`): no panic, the state is the rest of the text, and a parsed time that is
//! printed is parsed to the same time.
#![no_main]

use freshline_net::source::sampler::StampFormat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let Ok((time, state)) = StampFormat::Unix.split(text) else { return };
    assert!(text.ends_with(state) && text.len() > state.len());
    let printed =
        [format!("{}.{:09}\t", time.as_secs(), time.subsec_nanos()).as_bytes(), state].concat();
    assert_eq!(StampFormat::Unix.split(&printed), Ok((time, state)));
});
