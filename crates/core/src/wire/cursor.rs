//! Reads and writes fields in order; reading never goes beyond the input.

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

    /// The rest of the input.
    #[inline]
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

    /// A number of 1, 2, 4 or 8 bytes (RFC 9000 section 16). Any of its lengths is taken.
    pub(super) fn varint(&mut self) -> Result<u64, ParseError> {
        let first = self.rest.first().ok_or(ParseError::Truncated)?;
        match first >> 6 {
            0 => self.u8().map(u64::from),
            1 => self.u16().map(|number| u64::from(number & 0x3fff)),
            2 => self.u32().map(|number| u64::from(number & 0x3fff_ffff)),
            _ => self.u64().map(|number| number & MAX_VARINT),
        }
    }

    /// Whether everything has been read.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// The maximum number that a [`Writer::varint`] carries.
pub(super) const MAX_VARINT: u64 = (1 << 62) - 1;

/// Bytes that a number takes; those above [`MAX_VARINT`] are written as that.
pub(super) fn varint_len(number: u64) -> usize {
    match number {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Fills a buffer from the front. The callers size the buffer first, so that it cannot end early.
pub(super) struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, at: 0 }
    }

    /// Begins a message of type `kind` with its common header.
    #[inline]
    pub(super) fn message(buffer: &'a mut [u8], kind: u8, session: SessionId) -> Self {
        let mut writer = Self::new(buffer);
        writer.put(&MAGIC).put(&[VERSION, kind]).put(&session.0.to_be_bytes());
        debug_assert_eq!(writer.at, HEADER_LEN);
        writer
    }

    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    /// A number in as few bytes as it takes (RFC 9000 section 16).
    pub(super) fn varint(&mut self, number: u64) -> &mut Self {
        match varint_len(number) {
            1 => self.put(&[number as u8]),
            2 => self.put(&(0x4000 | number as u16).to_be_bytes()),
            4 => self.put(&(0x8000_0000 | number as u32).to_be_bytes()),
            _ => self.put(&(0b11 << 62 | number.min(MAX_VARINT)).to_be_bytes()),
        }
    }

    /// Zeroes from here up to `len`.
    pub(super) fn pad_to(&mut self, len: usize) {
        self.buffer[self.at..len].fill(0);
        self.at = len;
    }
}
