//! A source that runs.
//!
//! Unsafe: exports functions under fixed names for C.

use std::mem::MaybeUninit;
use std::time::Duration;

use freshline::Source;

use crate::error::fl_error::FL_UNKNOWN;
use crate::error::{Failure, call, fl_error};
use crate::raw::{Buffer, Text, needed, place};
use crate::source_config::fl_source_config;
use crate::state::{copy_out, fl_state, hand_out, nanos};
use crate::subscription::fl_subscription;
use crate::topic::fl_topic;

/// A source that runs: it keeps a monitor fresh, on a thread of its own. Made by `fl_source_start`, ended and freed
/// by `fl_source_close`.
pub struct fl_source(Source);

/// Start a source with these settings. That the monitor cannot be reached yet is not an error: the source tries
/// again.
///
/// The caller ends and frees `*source` with `fl_source_close`; it is NULL unless the call returns `FL_OK`. The
/// settings are used up, also by a start that fails; the caller still frees them. Errors: `FL_NULL`, `FL_INVALID`,
/// `FL_SECURITY`, `FL_SYSTEM`, `FL_CANNOT_RUN`. Not thread-safe: one call per `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_start(
    config: Option<&mut fl_source_config>,
    source: Option<&mut MaybeUninit<Option<Box<fl_source>>>>,
) -> fl_error {
    call(|| {
        let source = place(source, "source")?;
        let builder = needed(config, "config")?.builder.take()?;
        *source = Some(Box::new(fl_source(builder.spawn()?)));
        Ok(())
    })
}

/// Make a handle of a topic by its name; the empty name for a source without topics.
///
/// The caller frees `*topic` with `fl_topic_free`. Errors: `FL_NULL`, `FL_UTF8`, `FL_UNKNOWN_TOPIC`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_topic(
    source: Option<&fl_source>,
    name: Text<'_>,
    topic: Option<&mut MaybeUninit<Option<Box<fl_topic>>>>,
) -> fl_error {
    call(|| {
        let topic = place(topic, "topic")?;
        let found = needed(source, "source")?.0.topic(name.get("name")?)?;
        *topic = Some(Box::new(fl_topic::new(found)));
        Ok(())
    })
}

/// Store the age of the newest acknowledged state in nanoseconds: an upper bound of the age at the monitor. With
/// several topics it is that of the topic that was acknowledged last.
///
/// Errors: `FL_NULL`; `FL_UNKNOWN` while the monitor has not acknowledged any. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_age(
    source: Option<&fl_source>,
    age_ns: Option<&mut MaybeUninit<u64>>,
) -> fl_error {
    call(|| {
        let age_ns = place(age_ns, "age_ns")?;
        let age = needed(source, "source")?.0.age();
        *age_ns = age.map(nanos).ok_or_else(|| Failure::outcome(FL_UNKNOWN))?;
        Ok(())
    })
}

/// Store the rate at which the law sends now, in updates per second.
///
/// Errors: `FL_NULL`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_rate(
    source: Option<&fl_source>,
    updates_per_s: Option<&mut MaybeUninit<f64>>,
) -> fl_error {
    call(|| {
        *place(updates_per_s, "updates_per_s")? = needed(source, "source")?.0.rate();
        Ok(())
    })
}

/// Store whether the session with the monitor is open.
///
/// Errors: `FL_NULL`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_is_open(
    source: Option<&fl_source>,
    is_open: Option<&mut MaybeUninit<bool>>,
) -> fl_error {
    call(|| {
        *place(is_open, "is_open")? = needed(source, "source")?.0.is_open();
        Ok(())
    })
}

/// Store whether the source has ended by itself, which it does only if it cannot go on; `fl_source_close` returns
/// why.
///
/// Errors: `FL_NULL`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_has_ended(
    source: Option<&fl_source>,
    has_ended: Option<&mut MaybeUninit<bool>>,
) -> fl_error {
    call(|| {
        *place(has_ended, "has_ended")? = needed(source, "source")?.0.has_ended();
        Ok(())
    })
}

/// Store the newest state of a topic that the monitor sends, by its full name, such as `monitor/cmd`.
///
/// The caller frees `*state` with `fl_state_free`; it is NULL unless the call returns `FL_OK`. Errors: `FL_NULL`,
/// `FL_UTF8`; `FL_NO_STATE`, also without `fl_source_config_receive`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_latest(
    source: Option<&fl_source>,
    name: Text<'_>,
    state: Option<&mut MaybeUninit<Option<Box<fl_state>>>>,
) -> fl_error {
    call(|| {
        let state = place(state, "state")?;
        hand_out(needed(source, "source")?.0.latest(name.get("name")?), state)
    })
}

/// Copy the payload of the newest state of a topic that the monitor sends to a buffer of `capacity` bytes, and store
/// its length in bytes and its age in nanoseconds (UINT64_MAX while it is unknown).
///
/// `age_ns` may be NULL, and `buffer` if `capacity` is 0. Errors: `FL_NULL`, `FL_UTF8`; `FL_NO_STATE`, also without
/// `fl_source_config_receive`; `FL_TOO_SMALL`: nothing is copied, `*len` is the length that is needed. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_copy_latest(
    source: Option<&fl_source>,
    name: Text<'_>,
    buffer: Buffer<'_>,
    capacity: usize,
    len: Option<&mut MaybeUninit<usize>>,
    age_ns: Option<&mut MaybeUninit<u64>>,
) -> fl_error {
    call(|| {
        let len = place(len, "len")?;
        let state = needed(source, "source")?.0.latest(name.get("name")?);
        copy_out(state, (buffer, capacity), len, age_ns)
    })
}

/// Subscribe to the topics of the monitor whose full names match `pattern`, such as `monitor/cmd`; `*` stands for
/// any characters. It begins with the states that are held. Without `fl_source_config_receive` it ends at once.
///
/// The caller frees `*subscription` with `fl_subscription_free`. Errors: `FL_NULL`, `FL_UTF8`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_subscribe(
    source: Option<&fl_source>,
    pattern: Text<'_>,
    subscription: Option<&mut MaybeUninit<Option<Box<fl_subscription>>>>,
) -> fl_error {
    call(|| {
        let subscription = place(subscription, "subscription")?;
        let states = needed(source, "source")?.0.subscribe(pattern.get("pattern")?);
        *subscription = Some(Box::new(fl_subscription::new(states)));
        Ok(())
    })
}

/// Wait until the monitor has the newest state of each topic and all records, for `timeout_ms` milliseconds at most, then
/// close the session, end the source and free it. Topics accept no further states.
///
/// Errors: as `fl_source_close`, and `FL_UNDELIVERED` after the time. Not thread-safe: no other call may use `source`.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_finish(source: Option<Box<fl_source>>, timeout_ms: u64) -> fl_error {
    call(|| {
        needed(source, "source")?.0.finish(Duration::from_millis(timeout_ms))?;
        Ok(())
    })
}

/// Close the session with the monitor, end the source and free it. Waits for its thread, and not for states: see
/// `fl_source_finish`.
///
/// Topics, subscriptions and states of it stay valid until they are freed. Errors: `FL_NULL`, and the error with
/// which the source ended by itself, if it did (`FL_CANNOT_RUN`, `FL_PANIC`); it is freed in any case. Not
/// thread-safe: no other call may use `source`.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_close(source: Option<Box<fl_source>>) -> fl_error {
    call(|| {
        needed(source, "source")?.0.close()?;
        Ok(())
    })
}
