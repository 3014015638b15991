//! Bounds of what is read.

/// How many messages are read for one answer. A list of all queueing disciplines of a large host has some
/// thousands.
pub(super) const MAX_MESSAGES: usize = 1 << 16;

/// How often a list is read that changes meanwhile.
pub(super) const MAX_DUMPS: usize = 8;
