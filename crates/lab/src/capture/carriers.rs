//! Captures of what leaves the wired hops and cells of the lab.

use std::io::{self, Write};

use super::frames::Frames;
use super::{LinkType, PcapWriter};
use crate::scenario::{Built, Scenario};
use crate::world::{Carrier, Left};

/// Writes what leaves some hops and cells of a world into captures.
pub struct Captures<W> {
    /// For each hop, the captures that it goes to.
    of_hop: Vec<Vec<usize>>,
    /// The same for each cell.
    of_cell: Vec<Vec<usize>>,
    writers: Vec<PcapWriter<W>>,
    frames: Frames,
    /// The first write that failed; after it, nothing is written.
    failed: Option<io::Error>,
}

/// Nothing that carries packets has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchCarrier {
    /// Nothing has it that a capture could be of.
    #[error(
        "there is no wired hop or cell `{name}`; give CELL, LINK, or LINK/reverse for the other \
         direction, where LINK or CELL is one of: {known}"
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// The links and cells that there are.
        known: String,
    },
    /// It is a mesh's.
    #[error(
        "`{name}` is a mesh, of which there are no captures; give a CELL or LINK behind it, one of: \
         {known}"
    )]
    Mesh {
        /// What was asked for.
        name: String,
        /// The links and cells that there are.
        known: String,
    },
}

impl<W: Write> Captures<W> {
    /// No capture yet.
    pub fn new(built: &Built) -> Self {
        Self {
            of_hop: vec![Vec::new(); built.world.hops().len()],
            of_cell: vec![Vec::new(); built.world.cells().len()],
            writers: Vec::new(),
            frames: Frames::new(),
            failed: None,
        }
    }

    /// Begins a capture of what leaves each of `carriers`, as [`carrier_called`] knows them.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn add(&mut self, carriers: &[Carrier], out: W) -> io::Result<()> {
        for carrier in carriers {
            let captures = match *carrier {
                Carrier::Hop(hop) => &mut self.of_hop[hop],
                Carrier::Cell(cell) => &mut self.of_cell[cell],
            };
            captures.push(self.writers.len());
        }
        self.writers.push(PcapWriter::new(out, LinkType::Raw)?);
        Ok(())
    }

    /// A packet has left what carried it.
    pub fn on_left(&mut self, left: Left<'_>) {
        let captures = match left.carrier {
            Carrier::Hop(hop) => &self.of_hop[hop],
            Carrier::Cell(cell) => &self.of_cell[cell],
        };
        if captures.is_empty() || self.failed.is_some() {
            return;
        }
        let frame = self.frames.frame(left);
        let size = left.parcel.load.size;
        let mut write = |capture: &usize| self.writers[*capture].write(left.at, frame, size);
        self.failed = captures.iter().try_for_each(&mut write).err();
    }

    /// Ends all captures and hands their outputs back, in the order in which they were added.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn finish(self) -> io::Result<Vec<W>> {
        match self.failed {
            Some(error) => Err(error),
            None => self.writers.into_iter().map(PcapWriter::into_inner).collect(),
        }
    }
}

/// The cell called CELL, or the hop called LINK or LINK/reverse: of links in series the first that a
/// packet meets in that direction.
///
/// # Errors
/// [`NoSuchCarrier`] names the links and cells that there are.
pub fn carrier_called(
    name: &str,
    scenario: &Scenario,
    built: &Built,
) -> Result<Carrier, NoSuchCarrier> {
    let link = |name: &str| scenario.links.iter().position(|link| link.name == name);
    let forward = || built.links[link(name)?].forward.first();
    let reverse = || built.links[link(name.strip_suffix("/reverse")?)?].reverse.first();
    let hop = forward().or_else(reverse).map(|hop| Carrier::Hop(*hop));
    let cell = || scenario.cells.iter().position(|cell| cell.name == name).map(Carrier::Cell);
    hop.or_else(cell).ok_or_else(|| {
        let known: Vec<_> = scenario.links_and_cells().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let is_mesh = scenario.meshes.iter().any(|mesh| mesh.name == name);
        let name = name.to_owned();
        if is_mesh {
            NoSuchCarrier::Mesh { name, known }
        } else {
            NoSuchCarrier::Unknown { name, known }
        }
    })
}
