//! A captured frame.

use freshline_core::unit::Time;

use super::LinkType;

/// One captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// When it was captured, in ns since 1970.
    pub at: Time,
    /// The type of its first header.
    pub link: LinkType,
    /// Its length on the wire in bytes.
    pub wire_len: usize,
    /// The captured bytes, from its beginning on.
    pub bytes: &'a [u8],
}
