//! Arguments as C passes them. All unsafe reads and writes of the crate are here.
//!
//! Unsafe: C passes pointers; their validity is the caller's promise, which the header states.
//!
//! Handles are `Option<&T>`, `Option<&mut T>` and `Option<Box<T>>`, which are nullable pointers to C, so that the
//! functions themselves need no unsafe code. The types here are the pointers that no such type describes.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::str::FromStr;

use crate::error::Failure;
use crate::error::fl_error::{FL_NULL, FL_UTF8};

/// A text that ends with NUL, or NULL: `const char *`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text<'a>(*const c_char, PhantomData<&'a c_char>);

/// The start of bytes, or NULL: `const uint8_t *`. Their number is another argument.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Bytes<'a>(*const u8, PhantomData<&'a u8>);

/// The start of a buffer to write to, or NULL: `uint8_t *`. Its capacity is another argument.
#[repr(transparent)]
pub struct Buffer<'a>(*mut u8, PhantomData<&'a mut u8>);

/// A pointer of the caller's, passed back to its callbacks and never read: `void *`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct User(pub *mut c_void);

// SAFETY: the library only passes the pointer on; the header says that callbacks run on another thread.
unsafe impl Send for User {}

impl<'a> Text<'a> {
    /// NULL.
    pub const NULL: Self = Self(std::ptr::null(), PhantomData);

    /// This text.
    pub fn new(text: &'a CStr) -> Self {
        Self(text.as_ptr(), PhantomData)
    }

    /// The text of the argument `name`.
    pub(crate) fn get(self, name: &str) -> Result<&'a str, Failure> {
        if self.0.is_null() {
            return Err(null(name));
        }
        // SAFETY: not NULL, so it ends with NUL and lives as long as the call: by `new`, or as the header says.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|error| Failure::new(FL_UTF8, format!("`{name}`: {error}")))
    }

    /// The text of the argument `name`, parsed.
    pub(crate) fn parse<T: FromStr<Err: std::fmt::Display>>(
        self,
        name: &str,
    ) -> Result<T, Failure> {
        self.get(name)?.parse().map_err(|error| Failure::invalid(format!("`{name}`: {error}")))
    }
}

impl<'a> Bytes<'a> {
    /// NULL.
    pub const NULL: Self = Self(std::ptr::null(), PhantomData);

    /// The first of some bytes.
    ///
    /// # Safety
    /// No call gets it together with a length above that of `bytes`.
    pub unsafe fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.as_ptr(), PhantomData)
    }

    /// The bytes of the argument `name`; NULL is allowed for no bytes.
    pub(crate) fn get(self, len: usize, name: &str) -> Result<&'a [u8], Failure> {
        match (self.0.is_null(), len) {
            (_, 0) => Ok(&[]),
            (true, _) => Err(null(name)),
            (false, _) => {
                check_len(len, name)?;
                // SAFETY: not NULL, so `len` bytes follow for as long as the call lasts: by `new`, or as the
                // header says. `len` is at most isize::MAX.
                Ok(unsafe { std::slice::from_raw_parts(self.0, len) })
            }
        }
    }

    /// The same for a key.
    pub(crate) fn key(self, len: usize, name: &str) -> Result<&'a [u8], Failure> {
        match len {
            1..=64 => self.get(len, name),
            _ => Err(Failure::invalid(format!("`{name}` has {len} bytes; keys have 1 to 64"))),
        }
    }
}

impl<'a> Buffer<'a> {
    /// NULL.
    pub const NULL: Self = Self(std::ptr::null_mut(), PhantomData);

    /// The start of a buffer.
    ///
    /// # Safety
    /// No call gets it together with a capacity above the length of `buffer`.
    pub unsafe fn new(buffer: &'a mut [u8]) -> Self {
        Self(buffer.as_mut_ptr(), PhantomData)
    }

    /// Writes `bytes`, of which there are at most as many as its capacity.
    pub(crate) fn write(self, capacity: usize, bytes: &[u8], name: &str) -> Result<(), Failure> {
        assert!(bytes.len() <= capacity, "the caller compares them");
        if bytes.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(null(name));
        }
        // SAFETY: not NULL, so `capacity` bytes may be written: by `new`, or as the header says. The buffer is the
        // caller's, so it does not overlap with memory of the library.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
        Ok(())
    }
}

/// A handle that must be there.
pub(crate) fn needed<T>(argument: Option<T>, name: &str) -> Result<T, Failure> {
    argument.ok_or_else(|| null(name))
}

/// The place for a result: NULL or 0 until there is one.
pub(crate) fn place<'a, T: Default>(
    argument: Option<&'a mut MaybeUninit<T>>,
    name: &str,
) -> Result<&'a mut T, Failure> {
    Ok(needed(argument, name)?.write(T::default()))
}

fn null(name: &str) -> Failure {
    Failure::new(FL_NULL, format!("`{name}` is NULL"))
}

fn check_len(len: usize, name: &str) -> Result<(), Failure> {
    match isize::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => {
            Err(Failure::invalid(format!("`{name}`: its length of {len} bytes is impossible")))
        }
    }
}
