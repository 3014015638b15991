//! Helpers of the tests, to call the library as C does.
//!
//! Unsafe: bytes are passed as C passes them, by a pointer and a length; texts are read as C reads them.

#![allow(unsafe_code, reason = "the interface of C consists of pointers")]

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use freshline_c::fl_error::FL_OK;
use freshline_c::{Bytes, fl_error, fl_last_error};

/// The text of the last error.
pub(crate) fn last() -> String {
    text(fl_last_error())
}

pub(crate) fn text(pointer: *const c_char) -> String {
    assert!(!pointer.is_null());
    // SAFETY: the library's texts end with NUL, and nothing frees them before this returns.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap().to_owned()
}

/// Bytes that are passed with at most their own length.
pub(crate) fn bytes(given: &[u8]) -> Bytes<'_> {
    // SAFETY: each call here gives their own length, or one that is refused before the bytes are read.
    unsafe { Bytes::new(given) }
}

/// The value that a call stores.
pub(crate) fn get<T>(
    call: impl FnOnce(Option<&mut MaybeUninit<T>>) -> fl_error,
) -> Result<T, fl_error> {
    let mut place = MaybeUninit::uninit();
    match call(Some(&mut place)) {
        // SAFETY: a call that succeeds has stored its result.
        FL_OK => Ok(unsafe { place.assume_init() }),
        code => Err(code),
    }
}

/// The same for a handle, which is NULL after a failure.
pub(crate) fn handle<T>(
    call: impl FnOnce(Option<&mut MaybeUninit<Option<Box<T>>>>) -> fl_error,
) -> Result<Box<T>, fl_error> {
    let mut place = MaybeUninit::new(None);
    let code = call(Some(&mut place));
    // SAFETY: it was initialised before the call.
    let stored = unsafe { place.assume_init() };
    assert_eq!(stored.is_some(), code == FL_OK, "{code:?}");
    stored.ok_or(code)
}
