//! The attached programs and their places.

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::{Law, Place, Settings};
use crate::maps::numbers;
use crate::programs::{Attached, attached};

/// The places of attached programs.
pub(super) fn places() -> Vec<Place> {
    in_place(&attached(PROGRAMS)).map(|(_, _, place)| place).collect()
}

/// The attached programs with their laws and places, without the second program on a device.
pub(super) fn in_place(all: &[Attached]) -> impl Iterator<Item = (&Attached, Setup, Place)> {
    all.iter().filter(|one| one.program.name != OTHER).filter_map(|one| {
        let setup = setup(one.map(".rodata.setup")?)?;
        let place = Place::of_link(&one.link.info, setup.within)?;
        Some((one, setup, place))
    })
}

/// The content of `struct settings` of `intf.h`: the law, RTAC's constants, and the ID of the
/// cgroup or of the network namespace.
pub(super) struct Setup {
    pub(super) law: &'static str,
    pub(super) settings: Option<Settings>,
    pub(super) within: u64,
}

fn setup(map: &MapHandle) -> Option<Setup> {
    let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    let [law, ref constants @ .., within] = numbers(&value)[..] else { return None };
    Some(Setup { law: Law::name(law), settings: Law::settings(law, constants), within })
}

/// The programs' names, by which they are found.
pub(super) const PROGRAMS: &[&str] = &["freshline_sock", "freshline_in", OTHER];

/// The second program on a device.
const OTHER: &str = "freshline_out";
