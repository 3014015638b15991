//! Finds attached programs by their names, whichever process or pin holds them.

use libbpf_rs::query::{LinkInfo, LinkInfoIter, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, MapHandle};

/// An attached program with its maps, which stay even if the program is detached.
pub(crate) struct Attached {
    pub(crate) link: LinkInfo,
    pub(crate) program: ProgramInfo,
    pub(crate) maps: Vec<MapHandle>,
}

/// All programs with one of these names; programs that are detached during the query are left out.
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
    /// The map whose name ends with `name`.
    pub(crate) fn map(&self, name: &str) -> Option<&MapHandle> {
        self.maps.iter().find(|map| map.name().to_string_lossy().ends_with(name))
    }
}
