//! A state or record as the application receives it.
//!
//! Unsafe: exports functions under fixed names for C.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::sync::Arc;

use freshline::State;

use crate::error::fl_error::{FL_NO_STATE, FL_TOO_SMALL, FL_UNKNOWN};
use crate::error::{Failure, c_text, call, call_or, fl_error};
use crate::raw::{Buffer, needed, place};

/// A state or a record, which does not change. Each handle is freed by `fl_state_free`; `fl_state_clone` makes
/// another one to the same state. It may outlive its monitor or source.
///
/// A record counts as received, and its source forgets it, when its last handle is freed.
pub struct fl_state(Arc<Inner>);

struct Inner {
    state: State,
    source: CString,
    topic: CString,
    name: CString,
}

impl fl_state {
    pub(crate) fn new(state: State) -> Self {
        let (source, topic) = (c_text(state.source()), c_text(state.topic()));
        let name = c_text(&state.name());
        Self(Arc::new(Inner { state, source, topic, name }))
    }
}

/// Stores a handle to the state, if there is one.
pub(crate) fn hand_out(
    state: Option<State>,
    into: &mut Option<Box<fl_state>>,
) -> Result<(), Failure> {
    let state = state.ok_or_else(|| Failure::outcome(FL_NO_STATE))?;
    *into = Some(Box::new(fl_state::new(state)));
    Ok(())
}

/// Copies the payload of a state, if there is one, to a buffer.
pub(crate) fn copy_out(
    state: Option<State>,
    (buffer, capacity): (Buffer<'_>, usize),
    len: &mut usize,
    age_ns: Option<&mut MaybeUninit<u64>>,
) -> Result<(), Failure> {
    let state = state.ok_or_else(|| Failure::outcome(FL_NO_STATE))?;
    let payload = state.payload();
    *len = payload.len();
    if let Some(age_ns) = age_ns {
        age_ns.write(state.age().map_or(u64::MAX, nanos));
    }
    if payload.len() > capacity {
        let text = format!("the state has {} bytes, the buffer {capacity}", payload.len());
        return Err(Failure::new(FL_TOO_SMALL, text));
    }
    buffer.write(capacity, payload, "buffer")
}

/// A duration in nanoseconds.
pub(crate) fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The name of the source of a state, or a label of its session if the source has no name.
///
/// The text belongs to the state and is valid until this handle is freed. NULL if `state` is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_source(state: Option<&fl_state>) -> *const c_char {
    call_or(std::ptr::null(), || Ok(needed(state, "state")?.0.source.as_ptr()))
}

/// The name of the topic of a state; empty for a source without topics.
///
/// The text belongs to the state and is valid until this handle is freed. NULL if `state` is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_topic(state: Option<&fl_state>) -> *const c_char {
    call_or(std::ptr::null(), || Ok(needed(state, "state")?.0.topic.as_ptr()))
}

/// The full name of a state: `source/topic`, or the source alone if there is no topic.
///
/// The text belongs to the state and is valid until this handle is freed. NULL if `state` is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_name(state: Option<&fl_state>) -> *const c_char {
    call_or(std::ptr::null(), || Ok(needed(state, "state")?.0.name.as_ptr()))
}

/// The key of a state, and its length in bytes in `*len`; NULL and 0 if its topic has no keys.
///
/// The bytes belong to the state and are valid until this handle is freed. They do not end with NUL. NULL also if
/// an argument is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_key(
    state: Option<&fl_state>,
    len: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    call_or(std::ptr::null(), || {
        let len = place(len, "len")?;
        let Some(key) = needed(state, "state")?.0.state.key() else { return Ok(std::ptr::null()) };
        *len = key.len();
        Ok(key.as_ptr())
    })
}

/// The payload of a state, and its length in bytes in `*len`. Do not read from the pointer if the length is 0.
///
/// The bytes belong to the state and are valid until this handle is freed. They do not end with NUL. NULL if an
/// argument is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_payload(
    state: Option<&fl_state>,
    len: Option<&mut MaybeUninit<usize>>,
) -> *const u8 {
    call_or(std::ptr::null(), || {
        let len = place(len, "len")?;
        let payload = needed(state, "state")?.0.state.payload();
        *len = payload.len();
        Ok(payload.as_ptr())
    })
}

/// Store the age of a state now, since it was generated, and by how much the age may be wrong to either side; both
/// in nanoseconds.
///
/// `uncertainty_ns` may be NULL. Errors: `FL_NULL`; `FL_UNKNOWN` in the first round trips of a session. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_age(
    state: Option<&fl_state>,
    age_ns: Option<&mut MaybeUninit<u64>>,
    uncertainty_ns: Option<&mut MaybeUninit<u64>>,
) -> fl_error {
    call(|| {
        let age_ns = place(age_ns, "age_ns")?;
        let state = &needed(state, "state")?.0.state;
        let unknown = || Failure::outcome(FL_UNKNOWN);
        *age_ns = state.age().map(nanos).ok_or_else(unknown)?;
        if let Some(uncertainty_ns) = uncertainty_ns {
            uncertainty_ns.write(state.age_uncertainty().map(nanos).ok_or_else(unknown)?);
        }
        Ok(())
    })
}

/// The number of the newest update of the session when the state arrived; 0 if `state` is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_seq(state: Option<&fl_state>) -> u64 {
    call_or(0, || Ok(needed(state, "state")?.0.state.seq()))
}

/// Whether this reports that its key was removed; false if `state` is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_is_removed(state: Option<&fl_state>) -> bool {
    call_or(false, || Ok(needed(state, "state")?.0.state.is_removed()))
}

/// Whether this is a record of a topic of kind every; false if `state` is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_is_record(state: Option<&fl_state>) -> bool {
    call_or(false, || Ok(needed(state, "state")?.0.state.is_record()))
}

/// Whether the state is still within the maximum age of its topic; true if the topic has no maximum age, and
/// false if `state` is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_is_usable(state: Option<&fl_state>) -> bool {
    call_or(false, || Ok(needed(state, "state")?.0.state.is_usable()))
}

/// Make another handle to the same state, without a copy of its payload. The caller frees it with `fl_state_free`.
///
/// NULL if `state` is NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_clone(state: Option<&fl_state>) -> Option<Box<fl_state>> {
    call_or(None, || Ok(Some(Box::new(fl_state(Arc::clone(&needed(state, "state")?.0))))))
}

/// Free a handle; NULL is allowed. Other handles to the same state stay valid.
///
/// Not thread-safe: no other call may use this handle.
#[unsafe(no_mangle)]
pub extern "C" fn fl_state_free(state: Option<Box<fl_state>>) {
    call(|| {
        drop(state);
        Ok(())
    });
}
