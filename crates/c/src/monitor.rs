//! A monitor that runs.
//!
//! Unsafe: exports functions under fixed names for C.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use freshline::Monitor;

use crate::error::fl_error::FL_NO_STATE;
use crate::error::{Failure, c_text, call, call_or, fl_error};
use crate::monitor_config::fl_monitor_config;
use crate::raw::{Buffer, Bytes, Text, needed, place};
use crate::state::{copy_out, fl_state, hand_out};
use crate::subscription::fl_subscription;
use crate::topic::fl_topic;

/// A monitor that runs: it holds the newest states of its sources, on a thread of its own. Made by
/// `fl_monitor_start`, ended and freed by `fl_monitor_close`.
pub struct fl_monitor {
    monitor: Monitor,
    address: CString,
    url: CString,
    fingerprint: Option<CString>,
}

impl fl_monitor {
    fn new(monitor: Monitor) -> Self {
        Self {
            address: c_text(&monitor.address().to_string()),
            url: c_text(&monitor.url()),
            fingerprint: monitor.fingerprint().map(|it| c_text(&it.to_string())),
            monitor,
        }
    }
}

/// Start a monitor with these settings.
///
/// The caller ends and frees `*monitor` with `fl_monitor_close`; it is NULL unless the call returns `FL_OK`. The
/// settings are used up, also by a start that fails; the caller still frees them. Errors: `FL_NULL`, `FL_INVALID`,
/// `FL_SECURITY`, `FL_SYSTEM`, `FL_CANNOT_RUN`, for example if the address is in use. Not thread-safe: one call per
/// `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_start(
    config: Option<&mut fl_monitor_config>,
    monitor: Option<&mut MaybeUninit<Option<Box<fl_monitor>>>>,
) -> fl_error {
    call(|| {
        let monitor = place(monitor, "monitor")?;
        let started = needed(config, "config")?.take()?.spawn()?;
        *monitor = Some(Box::new(fl_monitor::new(started)));
        Ok(())
    })
}

/// The address at which a monitor listens, such as `127.0.0.1:3774`, with the port that was chosen for port 0.
///
/// The text belongs to the monitor and is valid until that is closed. NULL if `monitor` is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_address(monitor: Option<&fl_monitor>) -> *const c_char {
    call_or(std::ptr::null(), || Ok(needed(monitor, "monitor")?.address.as_ptr()))
}

/// The URL of a monitor for a source on this host, such as `udp://127.0.0.1:3774`.
///
/// The text belongs to the monitor and is valid until that is closed. NULL if `monitor` is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_url(monitor: Option<&fl_monitor>) -> *const c_char {
    call_or(std::ptr::null(), || Ok(needed(monitor, "monitor")?.url.as_ptr()))
}

/// The fingerprint of a monitor's certificate, for `fl_source_config_pin`.
///
/// The text belongs to the monitor and is valid until that is closed. NULL on `udp://`, which has no certificate,
/// and if `monitor` is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_fingerprint(monitor: Option<&fl_monitor>) -> *const c_char {
    call_or(std::ptr::null(), || {
        let fingerprint = needed(monitor, "monitor")?.fingerprint.as_ref();
        Ok(fingerprint.ok_or_else(|| Failure::outcome(FL_NO_STATE))?.as_ptr())
    })
}

/// Store whether the monitor has ended by itself, which it does only if it cannot go on; `fl_monitor_close` returns
/// why.
///
/// Errors: `FL_NULL`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_has_ended(
    monitor: Option<&fl_monitor>,
    has_ended: Option<&mut MaybeUninit<bool>>,
) -> fl_error {
    call(|| {
        *place(has_ended, "has_ended")? = needed(monitor, "monitor")?.monitor.has_ended();
        Ok(())
    })
}

/// Store the newest state of a topic by its full name: `source/topic`, or the source alone if it has no topics. For
/// a topic with keys it is the state of the key that changed last.
///
/// The caller frees `*state` with `fl_state_free`; it is NULL unless the call returns `FL_OK`. Errors: `FL_NULL`,
/// `FL_UTF8`; `FL_NO_STATE` without a state within the maximum age. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_latest(
    monitor: Option<&fl_monitor>,
    name: Text<'_>,
    state: Option<&mut MaybeUninit<Option<Box<fl_state>>>>,
) -> fl_error {
    call(|| {
        let state = place(state, "state")?;
        hand_out(needed(monitor, "monitor")?.monitor.latest(name.get("name")?), state)
    })
}

/// Store the newest state of a key of a topic.
///
/// `key` points to `key_len` bytes, 1 to 64. The caller frees `*state` with `fl_state_free`; it is NULL unless the
/// call returns `FL_OK`. Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID` for the length of the key; `FL_NO_STATE`
/// without a state within the maximum age. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_latest_key(
    monitor: Option<&fl_monitor>,
    name: Text<'_>,
    key: Bytes<'_>,
    key_len: usize,
    state: Option<&mut MaybeUninit<Option<Box<fl_state>>>>,
) -> fl_error {
    call(|| {
        let state = place(state, "state")?;
        let (name, key) = (name.get("name")?, key.key(key_len, "key")?);
        hand_out(needed(monitor, "monitor")?.monitor.latest_key(name, key), state)
    })
}

/// Copy the payload of the newest state of a topic to a buffer of `capacity` bytes, and store its length in bytes
/// and its age in nanoseconds (UINT64_MAX while it is unknown).
///
/// `age_ns` may be NULL, and `buffer` if `capacity` is 0. Errors: `FL_NULL`, `FL_UTF8`; `FL_NO_STATE`;
/// `FL_TOO_SMALL`: nothing is copied, `*len` is the length that is needed. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_copy_latest(
    monitor: Option<&fl_monitor>,
    name: Text<'_>,
    buffer: Buffer<'_>,
    capacity: usize,
    len: Option<&mut MaybeUninit<usize>>,
    age_ns: Option<&mut MaybeUninit<u64>>,
) -> fl_error {
    call(|| {
        let len = place(len, "len")?;
        let state = needed(monitor, "monitor")?.monitor.latest(name.get("name")?);
        copy_out(state, (buffer, capacity), len, age_ns)
    })
}

/// Subscribe to the topics whose full names (`source/topic`) match `pattern`, such as `robot-7/*`; `*` stands for any
/// characters. It begins with the states that are held.
///
/// The caller frees `*subscription` with `fl_subscription_free`. Errors: `FL_NULL`, `FL_UTF8`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_subscribe(
    monitor: Option<&fl_monitor>,
    pattern: Text<'_>,
    subscription: Option<&mut MaybeUninit<Option<Box<fl_subscription>>>>,
) -> fl_error {
    call(|| {
        let subscription = place(subscription, "subscription")?;
        let states = needed(monitor, "monitor")?.monitor.subscribe(pattern.get("pattern")?);
        *subscription = Some(Box::new(fl_subscription::new(states)));
        Ok(())
    })
}

/// Make a handle of a topic that the monitor sends to its sources, by its name (`fl_monitor_config_topic`).
///
/// The caller frees `*topic` with `fl_topic_free`. Errors: `FL_NULL`, `FL_UTF8`, `FL_UNKNOWN_TOPIC`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_topic(
    monitor: Option<&fl_monitor>,
    name: Text<'_>,
    topic: Option<&mut MaybeUninit<Option<Box<fl_topic>>>>,
) -> fl_error {
    call(|| {
        let topic = place(topic, "topic")?;
        let found = needed(monitor, "monitor")?.monitor.topic(name.get("name")?)?;
        *topic = Some(Box::new(fl_topic::new(found)));
        Ok(())
    })
}

/// Close the sessions of all sources, end the monitor and free it. Waits for its thread.
///
/// Topics, subscriptions and states of it stay valid until they are freed. Errors: `FL_NULL`, and the error with
/// which the monitor ended by itself, if it did (`FL_CANNOT_RUN`, `FL_PANIC`); it is freed in any case. Not
/// thread-safe: no other call may use `monitor`.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_close(monitor: Option<Box<fl_monitor>>) -> fl_error {
    call(|| {
        needed(monitor, "monitor")?.monitor.close()?;
        Ok(())
    })
}
