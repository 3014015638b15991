//! Reading and writing fields in order; reading never goes beyond the input.

use super::{HEADER_LEN, MAGIC, ParseError, SessionId, VERSION};

pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], ParseError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(ParseError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// All that is left.
    #[cfg(feature = "wlan")]
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(ParseError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8, ParseError> {
        self.array().map(u8::from_be_bytes)
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Fills a buffer from the front. The callers size the buffer first, so that it cannot end early.
pub(super) struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Begins a message of type `kind` with its common header.
    pub(super) fn message(buffer: &'a mut [u8], kind: u8, session: SessionId) -> Self {
        let mut writer = Self { buffer, at: 0 };
        writer.put(&MAGIC).put(&[VERSION, kind]).put(&session.0.to_be_bytes());
        debug_assert_eq!(writer.at, HEADER_LEN);
        writer
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    /// Zeroes from here up to `len`.
    pub(super) fn pad_to(&mut self, len: usize) {
        self.buffer[self.at..len].fill(0);
        self.at = len;
    }
}
