//! Limits of reading.

/// The maximum number of messages read for one answer. A list of all queueing disciplines of a
/// large host has some thousands.
/// thousands.
pub(super) const MAX_MESSAGES: usize = 1 << 16;

/// The maximum number of attempts to read a list that changes meanwhile.
pub(super) const MAX_DUMPS: usize = 8;
