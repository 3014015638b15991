//! The handle through which an application sends states and records.
//!
//! Unsafe: exports functions under fixed names for C.

use std::mem::MaybeUninit;

use freshline::Topic;

use crate::error::fl_error::FL_TOO_LARGE;
use crate::error::{Failure, call, fl_error};
use crate::raw::{Bytes, needed, place};

/// A topic of a source, or of the return direction of a monitor. Made by `fl_source_topic` and `fl_monitor_topic`,
/// freed by `fl_topic_free`. It may outlive its source or monitor: calls return `FL_CLOSED` then.
pub struct fl_topic(Topic);

impl fl_topic {
    pub(crate) fn new(topic: Topic) -> Self {
        Self(topic)
    }
}

/// The maximum length of a record in bytes.
const MAX_RECORD: usize = 64 << 10;

/// Send a state, which replaces the one before that was not sent yet. Never blocks on the network.
///
/// `data` points to `len` bytes, which are copied; NULL is allowed if `len` is 0. The state counts as generated
/// now. Errors: `FL_NULL`, `FL_KIND` if the topic is not of kind latest, `FL_TOO_LARGE`, `FL_CLOSED`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_put(topic: Option<&fl_topic>, data: Bytes<'_>, len: usize) -> fl_error {
    call(|| {
        needed(topic, "topic")?.0.put(data.get(len, "data")?)?;
        Ok(())
    })
}

/// Send the state of a key, which replaces the one before that was not sent yet. Never blocks on the network.
///
/// `key` points to `key_len` bytes, 1 to 64, and `data` to `len` bytes; both are copied. `data` may be NULL if
/// `len` is 0. Errors: `FL_NULL`, `FL_INVALID` for the length of the key, `FL_KIND` if the topic is not of kind
/// keyed, `FL_TOO_LARGE`, `FL_TOO_MANY_KEYS`, `FL_CLOSED`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_put_key(
    topic: Option<&fl_topic>,
    key: Bytes<'_>,
    key_len: usize,
    data: Bytes<'_>,
    len: usize,
) -> fl_error {
    call(|| {
        let key = key.key(key_len, "key")?;
        needed(topic, "topic")?.0.put_key(key, data.get(len, "data")?)?;
        Ok(())
    })
}

/// Remove a key: monitors forget its state. Never blocks on the network.
///
/// `key` points to `key_len` bytes, 1 to 64, which are copied. Errors: `FL_NULL`, `FL_INVALID` for the length of
/// the key, `FL_KIND` if the topic is not of kind keyed, `FL_TOO_MANY_KEYS`, `FL_CLOSED`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_remove_key(
    topic: Option<&fl_topic>,
    key: Bytes<'_>,
    key_len: usize,
) -> fl_error {
    call(|| {
        needed(topic, "topic")?.0.remove_key(key.key(key_len, "key")?)?;
        Ok(())
    })
}

/// Send a record, which arrives once and in order. Never blocks on the network.
///
/// `data` points to `len` bytes, at most 64 KiB (65536), which are copied; NULL is allowed if `len` is 0. A record
/// must also fit into the topic's buffer (`fl_topic_config_every`). It is kept in the memory of this process until
/// the monitor's application has received it. Errors: `FL_NULL`, `FL_KIND` if the topic is not of kind every,
/// `FL_FULL` while earlier records fill the buffer (try again later), `FL_TOO_LARGE`, `FL_CLOSED`. Thread-safe;
/// records of several threads are in the order of their calls.
#[unsafe(no_mangle)]
pub extern "C" fn fl_push(topic: Option<&fl_topic>, data: Bytes<'_>, len: usize) -> fl_error {
    call(|| {
        let (topic, record) = (needed(topic, "topic")?, data.get(len, "data")?);
        if record.len() > MAX_RECORD {
            let text = format!("a record of {len} bytes: the maximum is {MAX_RECORD}; use several");
            return Err(Failure::new(FL_TOO_LARGE, text));
        }
        topic.0.push(record)?;
        Ok(())
    })
}

/// Store the number of states that a newer one replaced before they were sent.
///
/// Errors: `FL_NULL`. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_topic_replaced(
    topic: Option<&fl_topic>,
    count: Option<&mut MaybeUninit<u64>>,
) -> fl_error {
    call(|| {
        *place(count, "count")? = needed(topic, "topic")?.0.replaced();
        Ok(())
    })
}

/// Free the handle; NULL is allowed. The topic itself lives as long as its source or monitor.
///
/// Not thread-safe: no other call may use `topic`.
#[unsafe(no_mangle)]
pub extern "C" fn fl_topic_free(topic: Option<Box<fl_topic>>) {
    call(|| {
        drop(topic);
        Ok(())
    });
}
