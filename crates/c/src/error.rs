//! Error codes, the text of the last failure, and the barrier that panics do not cross.
//!
//! Unsafe: exports functions under fixed names for C.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_uint};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use freshline::{Error, PutError, UnknownTopic};

/// The result of a call. Codes keep their numbers; later versions may add codes.
///
/// `FL_NO_STATE`, `FL_UNKNOWN` and `FL_ENDED` are ordinary outcomes: they leave `fl_last_error()` unchanged.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum fl_error {
    /// Success.
    FL_OK = 0,
    /// An argument is NULL that must not be.
    FL_NULL = 1,
    /// A text is not UTF-8.
    FL_UTF8 = 2,
    /// An argument or setting is outside of its range, or cannot be parsed.
    FL_INVALID = 3,
    /// Certificates, trust or credentials are missing or cannot be used.
    FL_SECURITY = 4,
    /// The system refused: a file, a name look-up, a descriptor or a thread.
    FL_SYSTEM = 5,
    /// The source or monitor cannot start with these settings, or could not go on.
    FL_CANNOT_RUN = 6,
    /// There is no topic of this name.
    FL_UNKNOWN_TOPIC = 7,
    /// The topic is of another kind, which needs another function.
    FL_KIND = 8,
    /// The source or monitor of the topic has ended.
    FL_CLOSED = 9,
    /// The state is longer than the limit.
    FL_TOO_LARGE = 10,
    /// The topic has its maximum number of keys, and no state of them has been sent yet.
    FL_TOO_MANY_KEYS = 11,
    /// Unsent records fill the buffer of the topic; try again later.
    FL_FULL = 12,
    /// The caller's buffer is too small; the length that is needed was stored.
    FL_TOO_SMALL = 13,
    /// No state: none is held, none is pending, or none came within the time.
    FL_NO_STATE = 14,
    /// The value is not known yet.
    FL_UNKNOWN = 15,
    /// The subscription has ended: no more states will arrive.
    FL_ENDED = 16,
    /// The library has panicked, which is a fault of the library. The message is on standard error.
    FL_PANIC = 17,
    /// The monitor did not acknowledge all states and records in time.
    FL_UNDELIVERED = 18,
}

use fl_error::*;

/// A code with its text.
#[derive(Debug)]
pub(crate) struct Failure {
    code: fl_error,
    /// `None` for ordinary outcomes, which leave the last text unchanged.
    text: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: fl_error, text: impl Display) -> Self {
        Self { code, text: Some(text.to_string()) }
    }

    pub(crate) fn invalid(text: impl Display) -> Self {
        Self::new(FL_INVALID, text)
    }

    /// An ordinary outcome.
    pub(crate) fn outcome(code: fl_error) -> Self {
        Self { code, text: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Url(_) | Error::NeedsQuic { .. } | Error::Setting { .. } => FL_INVALID,
            Error::MaxAge(_) | Error::MaxState { .. } => FL_INVALID,
            Error::NoTrust { .. } | Error::Reachable { .. } | Error::Trust(_) => FL_SECURITY,
            Error::Identity(_) | Error::NoStateDir => FL_SECURITY,
            Error::Credentials(_) | Error::TokenFile { .. } => FL_SECURITY,
            Error::Resolve { .. } | Error::Random(_) | Error::Thread(_) => FL_SYSTEM,
            Error::Undelivered => FL_UNDELIVERED,
            Error::Panicked => FL_PANIC,
            _ => FL_CANNOT_RUN,
        };
        Self::new(code, error)
    }
}

impl From<PutError> for Failure {
    fn from(error: PutError) -> Self {
        let code = match &error {
            PutError::Closed(_) => FL_CLOSED,
            PutError::TooLarge { .. } => FL_TOO_LARGE,
            PutError::TooManyKeys { .. } => FL_TOO_MANY_KEYS,
            PutError::Full { .. } => FL_FULL,
            PutError::Kind { .. } => FL_KIND,
            // Such as a key of a wrong length.
            _ => FL_INVALID,
        };
        Self::new(code, error)
    }
}

impl From<UnknownTopic> for Failure {
    fn from(error: UnknownTopic) -> Self {
        Self::new(FL_UNKNOWN_TOPIC, error)
    }
}

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// A text for C; it ends before the first NUL, if it has one.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// Runs the body of a call: a failure becomes its code, and a panic `FL_PANIC`.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Failure>) -> fl_error {
    match value(body) {
        Ok(()) => FL_OK,
        Err(code) => code,
    }
}

/// The same for a call that returns a value, and `instead` when it fails.
pub(crate) fn call_or<T>(instead: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    value(body).unwrap_or(instead)
}

fn value<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, fl_error> {
    let panicked = |_| Err(Failure::new(FL_PANIC, "the library has panicked; this is its fault"));
    // The state that a panic interrupts is behind the locks of the library, which ignore poisoning.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(panicked).map_err(|failure| {
        if let Some(text) = failure.text {
            // At the end of a thread there is no place left for it.
            let _ = LAST.try_with(|last| last.replace(Some(c_text(&text))));
        }
        failure.code
    })
}

/// The text of the last failed call of this thread, in English; empty if none has failed.
///
/// The text belongs to the library. It is valid until the next call of this thread that fails, or until the
/// thread ends. Never NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_last_error() -> *const c_char {
    // The text is not freed when the borrow ends, but when another one replaces it.
    let pointer =
        |last: &RefCell<Option<CString>>| last.borrow().as_ref().map(|text| text.as_ptr());
    LAST.try_with(pointer).ok().flatten().unwrap_or(c"".as_ptr())
}

/// The name of a code, such as `FL_NULL`; `FL_?` for a number that is not a code.
///
/// The text is constant. Never NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_error_name(code: c_uint) -> *const c_char {
    let found = NAMES.iter().find(|(known, _)| *known as c_uint == code);
    found.map_or(c"FL_?", |(_, name)| name).as_ptr()
}

/// The version of the library, such as `0.1.0`.
///
/// The text is constant. Never NULL. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn fl_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

const NAMES: [(fl_error, &std::ffi::CStr); 19] = [
    (FL_OK, c"FL_OK"),
    (FL_NULL, c"FL_NULL"),
    (FL_UTF8, c"FL_UTF8"),
    (FL_INVALID, c"FL_INVALID"),
    (FL_SECURITY, c"FL_SECURITY"),
    (FL_SYSTEM, c"FL_SYSTEM"),
    (FL_CANNOT_RUN, c"FL_CANNOT_RUN"),
    (FL_UNKNOWN_TOPIC, c"FL_UNKNOWN_TOPIC"),
    (FL_KIND, c"FL_KIND"),
    (FL_CLOSED, c"FL_CLOSED"),
    (FL_TOO_LARGE, c"FL_TOO_LARGE"),
    (FL_TOO_MANY_KEYS, c"FL_TOO_MANY_KEYS"),
    (FL_FULL, c"FL_FULL"),
    (FL_TOO_SMALL, c"FL_TOO_SMALL"),
    (FL_NO_STATE, c"FL_NO_STATE"),
    (FL_UNKNOWN, c"FL_UNKNOWN"),
    (FL_ENDED, c"FL_ENDED"),
    (FL_PANIC, c"FL_PANIC"),
    (FL_UNDELIVERED, c"FL_UNDELIVERED"),
];

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    /// The last text, read as C reads it.
    fn last() -> String {
        // SAFETY: the text ends with NUL and is copied before the next call.
        unsafe { CStr::from_ptr(fl_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_code_and_outcomes_keep_the_text() {
        assert_eq!(call(|| Err(Failure::invalid("no\0t shown"))), FL_INVALID);
        assert_eq!(last(), "no");
        assert_eq!(call(|| Err(Failure::outcome(FL_NO_STATE))), FL_NO_STATE);
        assert_eq!((call(|| Ok(())), last().as_str()), (FL_OK, "no"));
        assert_eq!(call(|| panic!("a test of the barrier")), FL_PANIC);
        assert!(last().contains("panicked"));
        assert_eq!(call_or(7, || panic!("a test of the barrier")), 7);
        assert_eq!(std::thread::spawn(last).join().unwrap(), "", "each thread has its own");
    }
}
