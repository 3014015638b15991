//! NULL, invalid texts and impossible settings give an error code and a text, and change nothing.

mod handles;

use std::ffi::CStr;
use std::mem::MaybeUninit;

use freshline_c::fl_error::*;
use freshline_c::*;

use handles::{bytes, get, handle, last, text};

/// Settings for a source whose monitor does not answer.
fn settings() -> Box<fl_source_config> {
    handle(|it| fl_source_config_new(Text::new(c"udp://127.0.0.1:9"), it)).unwrap()
}

fn monitor_settings() -> Box<fl_monitor_config> {
    handle(|it| fl_monitor_config_new(Text::new(c"udp://127.0.0.1:0"), it)).unwrap()
}

const BAD: &CStr = c"\xff\xfe";

#[test]
fn null_handles_are_errors() {
    let (name, none) = (Text::new(c"x"), Bytes::NULL);
    let codes = [
        fl_topic_config_keyed(None, 1),
        fl_topic_config_every(None, 0),
        fl_topic_config_weight(None, 1.0),
        fl_topic_config_deadline(None, 1),
        fl_topic_config_max_rate(None, Text::new(c"1/s")),
        fl_topic_config_min_rate(None, Text::new(c"1/s")),
        fl_topic_config_urgent(None),
        fl_source_config_name(None, name),
        fl_source_config_topic(None, name),
        fl_source_config_add_topic(None, None),
        fl_source_config_law(None, Text::new(c"acp+")),
        fl_source_config_fixed_rate(None, Text::new(c"1/s")),
        fl_source_config_max_bandwidth(None, Text::new(c"1Mbit")),
        fl_source_config_max_rate(None, Text::new(c"1/s")),
        fl_source_config_max_state(None, 1),
        fl_source_config_keep_alive(None, 1),
        fl_source_config_on_change(None, true),
        fl_source_config_pin(None, name),
        fl_source_config_ca_file(None, name),
        fl_source_config_identity_files(None, name, name),
        fl_source_config_token(None, none, 0),
        fl_source_config_receive(None),
        fl_source_config_max_age(None, name, 1),
        fl_monitor_config_identity_files(None, name, name),
        fl_monitor_config_state_dir(None, name),
        fl_monitor_config_client_ca_file(None, name),
        fl_monitor_config_certified_names(None),
        fl_monitor_config_credentials_file(None, name),
        fl_monitor_config_token(None, none, 0),
        fl_monitor_config_insecure(None),
        fl_monitor_config_max_age(None, name, 1),
        fl_monitor_config_max_sources(None, 1),
        fl_monitor_config_max_state(None, 1),
        fl_monitor_config_idle(None, 1),
        fl_monitor_config_topic(None, name),
        fl_monitor_config_add_topic(None, None),
        fl_monitor_config_name(None, name),
        fl_monitor_config_law(None, Text::new(c"acp+")),
        fl_monitor_config_max_bandwidth(None, Text::new(c"1Mbit")),
        fl_put(None, none, 0),
        fl_put_key(None, bytes(b"k"), 1, none, 0),
        fl_remove_key(None, bytes(b"k"), 1),
        fl_push(None, none, 0),
        fl_source_close(None),
        fl_source_finish(None, 1),
        fl_monitor_close(None),
        fl_subscription_listen(None, None, None, User(std::ptr::null_mut())),
        fl_subscription_close(None),
    ];
    for (number, code) in codes.into_iter().enumerate() {
        assert_eq!(code, FL_NULL, "call {number}");
    }
    assert!(last().contains("is NULL"), "{}", last());
}

#[test]
fn null_handles_have_no_values() {
    let name = Text::new(c"x");
    assert_eq!(handle(|it| fl_source_start(None, it)).err(), Some(FL_NULL));
    assert_eq!(handle(|it| fl_source_topic(None, name, it)).err(), Some(FL_NULL));
    assert_eq!(get(|it| fl_source_age(None, it)), Err(FL_NULL));
    assert_eq!(get(|it| fl_source_rate(None, it)), Err(FL_NULL));
    assert_eq!(get(|it| fl_source_is_open(None, it)), Err(FL_NULL));
    assert_eq!(get(|it| fl_source_has_ended(None, it)), Err(FL_NULL));
    assert_eq!(handle(|it| fl_source_latest(None, name, it)).err(), Some(FL_NULL));
    assert_eq!(handle(|it| fl_source_subscribe(None, name, it)).err(), Some(FL_NULL));
    let copied = |it: Option<&mut _>| fl_source_copy_latest(None, name, Buffer::NULL, 0, it, None);
    assert_eq!(get(copied), Err(FL_NULL));
    assert_eq!(handle(|it| fl_monitor_start(None, it)).err(), Some(FL_NULL));
    assert_eq!(get(|it| fl_monitor_has_ended(None, it)), Err(FL_NULL));
    assert_eq!(handle(|it| fl_monitor_latest(None, name, it)).err(), Some(FL_NULL));
    let of_key = handle(|it| fl_monitor_latest_key(None, name, bytes(b"k"), 1, it));
    assert_eq!(of_key.err(), Some(FL_NULL));
    let copied = |it: Option<&mut _>| fl_monitor_copy_latest(None, name, Buffer::NULL, 0, it, None);
    assert_eq!(get(copied), Err(FL_NULL));
    assert_eq!(handle(|it| fl_monitor_subscribe(None, name, it)).err(), Some(FL_NULL));
    assert_eq!(handle(|it| fl_monitor_topic(None, name, it)).err(), Some(FL_NULL));
    assert_eq!(get(|it| fl_topic_replaced(None, it)), Err(FL_NULL));
    assert_eq!(handle(|it| fl_subscription_next(None, -1, it)).err(), Some(FL_NULL));
    assert_eq!(handle(|it| fl_subscription_try_next(None, it)).err(), Some(FL_NULL));
    assert_eq!(get(|it| fl_subscription_fd(None, it)), Err(FL_NULL));
    assert_eq!(get(|it| fl_subscription_replaced(None, it)), Err(FL_NULL));
    assert_eq!(get(|it| fl_subscription_is_over(None, it)), Err(FL_NULL));
    assert_eq!(get(|it| fl_state_age(None, it, None)), Err(FL_NULL));
    let texts = [fl_state_source, fl_state_topic, fl_state_name];
    assert!(texts.into_iter().all(|of| of(None).is_null()));
    let texts = [fl_monitor_address, fl_monitor_url, fl_monitor_fingerprint];
    assert!(texts.into_iter().all(|of| of(None).is_null()));
    let mut len = MaybeUninit::new(1);
    assert!(fl_state_key(None, Some(&mut len)).is_null());
    assert!(fl_state_payload(None, None).is_null() && fl_state_clone(None).is_none());
    assert_eq!(fl_state_seq(None), 0);
    let facts = [fl_state_is_removed, fl_state_is_record, fl_state_is_usable];
    assert!(facts.into_iter().all(|of| !of(None)));
    fl_topic_config_free(None);
    fl_source_config_free(None);
    fl_monitor_config_free(None);
    fl_topic_free(None);
    fl_state_free(None);
    fl_subscription_free(None);
}

#[test]
fn null_results_and_texts_are_errors() {
    assert_eq!(fl_source_config_new(Text::new(c"udp://127.0.0.1:9"), None), FL_NULL);
    assert_eq!(last(), "`config` is NULL");
    assert_eq!(handle(|it| fl_source_config_new(Text::NULL, it)).err(), Some(FL_NULL));
    assert_eq!(last(), "`url` is NULL");
    assert_eq!(handle(|it| fl_monitor_config_new(Text::NULL, it)).err(), Some(FL_NULL));
    assert_eq!(handle(|it| fl_topic_config_new(Text::NULL, it)).err(), Some(FL_NULL));
    let mut config = settings();
    assert_eq!(fl_source_config_name(Some(&mut config), Text::NULL), FL_NULL);
    assert_eq!(fl_source_config_add_topic(Some(&mut config), None), FL_NULL);
    assert_eq!(fl_source_config_token(Some(&mut config), Bytes::NULL, 5), FL_NULL);
    assert_eq!(last(), "`token` is NULL");
    assert_eq!(fl_source_start(Some(&mut config), None), FL_NULL);
    // The settings are not used up.
    let source = handle(|it| fl_source_start(Some(&mut config), it)).unwrap();
    assert_eq!(fl_source_age(Some(&source), None), FL_NULL);
    assert_eq!(get(|it| fl_source_age(Some(&source), it)), Err(FL_UNKNOWN));
    let topic = handle(|it| fl_source_topic(Some(&source), Text::new(c""), it)).unwrap();
    assert_eq!(fl_put(Some(&topic), Bytes::NULL, 3), FL_NULL);
    assert_eq!(fl_put(Some(&topic), Bytes::NULL, 0), FL_OK);
    assert_eq!(fl_put(Some(&topic), bytes(b"x"), usize::MAX), FL_INVALID);
    assert_eq!(fl_source_close(Some(source)), FL_OK);
    assert_eq!(fl_put(Some(&topic), bytes(b"x"), 1), FL_CLOSED);
}

#[test]
fn texts_that_are_not_utf_8_are_errors() {
    assert_eq!(handle(|it| fl_source_config_new(Text::new(BAD), it)).err(), Some(FL_UTF8));
    assert!(last().contains("`url`: invalid utf-8"), "{}", last());
    assert_eq!(handle(|it| fl_topic_config_new(Text::new(BAD), it)).err(), Some(FL_UTF8));
    let mut config = monitor_settings();
    assert_eq!(fl_monitor_config_name(Some(&mut config), Text::new(BAD)), FL_UTF8);
    assert_eq!(fl_monitor_config_topic(Some(&mut config), Text::new(BAD)), FL_UTF8);
    let monitor = handle(|it| fl_monitor_start(Some(&mut config), it)).unwrap();
    let bad = Text::new(BAD);
    assert_eq!(handle(|it| fl_monitor_latest(Some(&monitor), bad, it)).err(), Some(FL_UTF8));
    assert_eq!(handle(|it| fl_monitor_subscribe(Some(&monitor), bad, it)).err(), Some(FL_UTF8));
    let none = handle(|it| fl_monitor_latest(Some(&monitor), Text::new(c"a/b"), it));
    assert_eq!(none.err(), Some(FL_NO_STATE));
    assert!(last().contains("`pattern`"), "an ordinary outcome keeps the text: {}", last());
    assert!(text(fl_monitor_address(Some(&monitor))).starts_with("127.0.0.1:"));
    assert!(fl_monitor_fingerprint(Some(&monitor)).is_null());
    assert_eq!(fl_monitor_close(Some(monitor)), FL_OK);
}

#[test]
fn impossible_settings_are_errors_and_change_nothing() {
    assert_eq!(
        handle(|it| fl_source_config_new(Text::new(c"http://host"), it)).err(),
        Some(FL_INVALID)
    );
    assert!(last().contains("neither udp nor quic"), "{}", last());
    let mut topic = handle(|it| fl_topic_config_new(Text::new(c"pose"), it)).unwrap();
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(fl_topic_config_weight(Some(&mut topic), weight), FL_INVALID, "{weight}");
    }
    assert_eq!(fl_topic_config_keyed(Some(&mut topic), 0), FL_INVALID);
    assert_eq!(fl_topic_config_every(Some(&mut topic), 1), FL_INVALID);
    assert_eq!(fl_topic_config_max_rate(Some(&mut topic), Text::new(c"fast")), FL_INVALID);
    assert!(last().contains("`rate`"), "{}", last());
    let mut config = settings();
    let mut config = Some(&mut *config);
    for law in [c"cubic", c"fixed", c""] {
        assert_eq!(fl_source_config_law(config.as_deref_mut(), Text::new(law)), FL_INVALID);
    }
    let rate = Text::new(c"fast");
    assert_eq!(fl_source_config_fixed_rate(config.as_deref_mut(), rate), FL_INVALID);
    assert_eq!(fl_source_config_max_bandwidth(config.as_deref_mut(), rate), FL_INVALID);
    assert_eq!(fl_source_config_pin(config.as_deref_mut(), Text::new(c"sha256:12")), FL_INVALID);
    assert_eq!(fl_source_config_topic(config.as_deref_mut(), Text::new(c"")), FL_INVALID);
    assert_eq!(fl_source_config_add_topic(config.as_deref_mut(), Some(&topic)), FL_OK);
    let source = handle(|it| fl_source_start(config.as_deref_mut(), it)).unwrap();
    assert_eq!(fl_source_config_receive(config.as_deref_mut()), FL_INVALID);
    assert_eq!(handle(|it| fl_source_start(config, it)).err(), Some(FL_INVALID));
    assert!(last().contains("make new ones"), "{}", last());
    let unknown = handle(|it| fl_source_topic(Some(&source), Text::new(c"speed"), it));
    assert_eq!(unknown.err(), Some(FL_UNKNOWN_TOPIC));
    let pose = handle(|it| fl_source_topic(Some(&source), Text::new(c"pose"), it)).unwrap();
    assert_eq!(fl_push(Some(&pose), bytes(b"x"), 1), FL_KIND);
    assert_eq!(fl_put_key(Some(&pose), bytes(b"k"), 1, bytes(b"x"), 1), FL_KIND);
    assert_eq!(fl_put_key(Some(&pose), bytes(b""), 0, bytes(b"x"), 1), FL_INVALID);
    assert_eq!(fl_remove_key(Some(&pose), bytes(&[b'k'; 65]), 65), FL_INVALID);
}

#[test]
fn settings_that_are_used_up_cannot_be_changed() {
    let mut config = monitor_settings();
    let mut config = Some(&mut *config);
    let rate = Text::new(c"1Mbit");
    assert_eq!(fl_monitor_config_max_bandwidth(config.as_deref_mut(), rate), FL_OK);
    let bad = Text::new(c"fast");
    assert_eq!(fl_monitor_config_max_bandwidth(config.as_deref_mut(), bad), FL_INVALID);
    let monitor = handle(|it| fl_monitor_start(config.as_deref_mut(), it)).unwrap();
    assert_eq!(fl_monitor_config_max_sources(config.as_deref_mut(), 1), FL_INVALID);
    assert_eq!(fl_monitor_config_max_bandwidth(config, rate), FL_INVALID);
    assert!(last().contains("make new ones"), "{}", last());
    assert_eq!(fl_monitor_close(Some(monitor)), FL_OK);
}

#[test]
fn a_start_that_fails_has_a_code_and_a_text() {
    let start = |url: &CStr, change: &dyn Fn(&mut fl_source_config)| {
        let mut config = handle(|it| fl_source_config_new(Text::new(url), it)).unwrap();
        change(&mut config);
        handle(|it| fl_source_start(Some(&mut config), it)).err()
    };
    assert_eq!(start(c"quic://127.0.0.1", &|_| ()), Some(FL_SECURITY));
    assert!(last().contains("fingerprint"), "{}", last());
    let no_file = |config: &mut fl_source_config| {
        let path = Text::new(c"/nonexistent/ca.pem");
        assert_eq!(fl_source_config_ca_file(Some(config), path), FL_OK);
    };
    assert_eq!(start(c"quic://127.0.0.1", &no_file), Some(FL_SECURITY));
    assert!(last().contains("/nonexistent/ca.pem"), "{}", last());
    assert_eq!(start(c"udp://127.0.0.1:9", &no_file), Some(FL_INVALID));
    let long = |config: &mut fl_source_config| {
        assert_eq!(fl_source_config_max_state(Some(config), usize::MAX), FL_OK);
    };
    assert_eq!(start(c"udp://127.0.0.1:9", &long), Some(FL_INVALID));
    let name = |config: &mut fl_source_config| {
        let long = std::ffi::CString::new([b'x'; 64]).unwrap();
        assert_eq!(fl_source_config_name(Some(config), Text::new(&long)), FL_OK);
    };
    assert_eq!(start(c"udp://127.0.0.1:9", &name), Some(FL_CANNOT_RUN));
    let url = Text::new(c"udp://0.0.0.0:0");
    let mut config = handle(|it| fl_monitor_config_new(url, it)).unwrap();
    let monitor = handle(|it| fl_monitor_start(Some(&mut config), it));
    assert_eq!(monitor.err(), Some(FL_SECURITY));
}

#[test]
fn every_code_has_its_name() {
    for code in 0..=18 {
        assert_ne!(text(fl_error_name(code)), "FL_?", "{code}");
    }
    assert_eq!(text(fl_error_name(FL_TOO_SMALL as u32)), "FL_TOO_SMALL");
    for code in [19, u32::MAX] {
        assert_eq!(text(fl_error_name(code)), "FL_?");
    }
    assert_eq!(text(fl_version()), env!("CARGO_PKG_VERSION"));
}
