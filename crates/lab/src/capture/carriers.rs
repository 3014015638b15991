//! Captures of the packets that leave the wired hops and cells of the lab.

use std::io::{self, Write};

use super::frames::Frames;
use super::{LinkType, PcapWriter};
use crate::scenario::{Built, Scenario};
use crate::world::{Carrier, Left};

/// Writes the packets that leave selected hops and cells of a world into captures.
pub struct Captures<W> {
    /// For each hop, the indices of its captures.
    of_hop: Vec<Vec<usize>>,
    /// For each cell, the indices of its captures.
    of_cell: Vec<Vec<usize>>,
    writers: Vec<PcapWriter<W>>,
    frames: Frames,
    /// The first write error, after which nothing more is written.
    failed: Option<io::Error>,
}

/// There is no carrier with that name to capture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchCarrier {
    /// There is no link, cell or mesh with the name.
    #[error(
        "there is no wired hop or cell `{name}`; give CELL, LINK, or LINK/reverse for the other \
         direction, where LINK or CELL is one of: {known}"
    )]
    Unknown {
        /// The name given.
        name: String,
        /// The known links and cells.
        known: String,
    },
    /// It is the name of a mesh.
    #[error(
        "`{name}` is a mesh, of which there are no captures; give a CELL or LINK behind it, one of: \
         {known}"
    )]
    Mesh {
        /// The name given.
        name: String,
        /// The known links and cells.
        known: String,
    },
}

impl<W: Write> Captures<W> {
    /// No captures yet.
    pub fn new(built: &Built) -> Self {
        Self {
            of_hop: vec![Vec::new(); built.world.hops().len()],
            of_cell: vec![Vec::new(); built.world.cells().len()],
            writers: Vec::new(),
            frames: Frames::new(),
            failed: None,
        }
    }

    /// Begins a capture of the packets that leave each of `carriers`, as found by
    /// [`carrier_called`].
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

    /// A packet has left its carrier.
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

/// The cell with the name CELL, or the hop with the name LINK or LINK/reverse: for links in series,
/// the first hop in that direction.
///
/// # Errors
/// [`NoSuchCarrier`] lists the known links and cells.
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
