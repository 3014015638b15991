//! Programs in their places, found by their names; whoever holds them.

use libbpf_rs::query::{LinkInfo, LinkInfoIter, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, MapHandle};

/// A program in its place, with its maps, which stay now though it may end.
pub(crate) struct Attached {
    pub(crate) link: LinkInfo,
    pub(crate) program: ProgramInfo,
    pub(crate) maps: Vec<MapHandle>,
}

/// All with one of these names; those that end while they are asked are left out.
pub(crate) fn attached(names: &[&str]) -> Vec<Attached> {
    let with_maps = ProgInfoQueryOptions::default().include_map_ids(true);
    let programs: Vec<_> = ProgInfoIter::with_query_opts(with_maps)
        .filter(|program| names.iter().any(|name| program.name == *name))
        .collect();
    let of_link = |link: LinkInfo| {
        let program = programs.iter().find(|program| program.id == link.prog_id)?.clone();
        let maps = program.map_ids.iter().map(|id| MapHandle::from_map_id(*id));
        let maps = maps.collect::<Result<_, _>>().ok()?;
        Some(Attached { link, program, maps })
    };
    LinkInfoIter::default().filter_map(of_link).collect()
}

impl Attached {
    /// The map whose name ends so.
    pub(crate) fn map(&self, name: &str) -> Option<&MapHandle> {
        self.maps.iter().find(|map| map.name().to_string_lossy().ends_with(name))
    }
}
