//! Replaces the code in a build without it.

use alloc::vec::Vec;

use crate::state::Layout;

pub(super) const AVAILABLE: bool = false;

/// Not available.
pub(super) enum Encoder {}
/// Not available.
pub(super) enum Decoder {}

pub(super) fn prepare() {}

pub(super) fn working_space(_: &Layout) -> usize {
    0
}

pub(super) fn encode<'a>(
    _: &mut Option<Encoder>,
    _: &Layout,
    _: impl Iterator<Item = &'a [u8]>,
    _: &mut Vec<u8>,
    _: &mut Vec<u8>,
) {
}

pub(super) fn decode<'a>(
    _: &mut Option<Decoder>,
    _: &Layout,
    _: impl Iterator<Item = (u32, &'a [u8])>,
    _: &mut Vec<u8>,
    _: impl FnMut(u32, &[u8]),
) -> bool {
    false
}
