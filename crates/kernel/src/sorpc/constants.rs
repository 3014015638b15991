//! The part of a program's constants that later loaders read: `struct attachment` of `intf.h`.

use std::path::Path;

use freshline_core::unit::BitRate;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::skeleton::types;
use crate::device::Device;
use crate::error::KernelError;
use crate::maps::numbers;
use crate::root::{self, Found};

/// The number of numbers before the bytes of the former root.
const NUMBERS: usize = 13;

/// The place of a program, and the root that it replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Constants {
    pub(super) device: Device,
    /// SORth, in thousandths.
    pub(super) threshold_milli: u64,
    /// Whether only the packets of a cgroup may be bulk.
    pub(super) confined: bool,
    /// The shaping rate, and the former root.
    pub(super) shaped: Option<(BitRate, Found)>,
}

impl Constants {
    /// Writes it into a program that is not loaded yet.
    pub(super) fn write(&self, into: &mut types::attachment) {
        into.threshold_milli = self.threshold_milli;
        into.confined = self.confined.into();
        into.netns = self.device.netns;
        into.device = self.device.index.into();
        into.name[..self.device.name.len()].copy_from_slice(self.device.name.as_bytes());
        if let Some((rate, found)) = &self.shaped {
            let bytes = found.settings();
            into.rate = rate.as_bps();
            into.found_handle = found.handle.into();
            into.found_length = bytes.len() as u64;
            into.found[..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Reads it from the map in which the kernel keeps a program's constants.
    pub(super) fn read(map: &MapHandle) -> Result<Self, KernelError> {
        let value = map
            .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(KernelError::bpf("read the program's constants"))?
            .unwrap_or_default();
        Self::parse(&value).ok_or(KernelError::OtherVersion)
    }

    /// Reads it from the pin of such a map.
    pub(super) fn open(path: &Path) -> Result<Self, KernelError> {
        let map = MapHandle::from_pinned_path(path)
            .map_err(KernelError::bpf("open the program's constants"))?;
        Self::read(&map)
    }

    fn parse(value: &[u8]) -> Option<Self> {
        if value.len() != size_of::<types::attachment>() {
            return None;
        }
        let (row, bytes) = value.split_at_checked(NUMBERS * 8)?;
        let [threshold_milli, _, _, _, _, _, _, confined, netns, index, rate, handle, length] =
            numbers(row)[..]
        else {
            return None;
        };
        let (found, name) = bytes.split_at_checked(root::LONGEST)?;
        let found = Found::from_bytes(handle as u32, found.get(..length as usize)?);
        let name = name.split(|byte| *byte == 0).next()?;
        let name = String::from_utf8_lossy(name).into_owned();
        Some(Self {
            device: Device { name, index: index as u32, netns },
            threshold_milli,
            confined: confined != 0,
            shaped: (rate > 0).then(|| (BitRate::from_bps(rate), found)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_of_another_length_are_another_versions() {
        let own = size_of::<types::attachment>();
        assert!(Constants::parse(&vec![0; own]).is_some());
        for length in [0, 1, NUMBERS * 8, own - 1, own + 8] {
            assert!(Constants::parse(&vec![0; length]).is_none());
        }
    }
}
