//! Captures of what leaves wired hops of the lab.

use std::io::{self, Write};

use super::frames::Frames;
use super::{LinkType, PcapWriter};
use crate::scenario::{Built, Scenario};
use crate::world::Left;

/// Writes what leaves some hops of a world into captures.
pub struct HopCaptures<W> {
    /// For each hop, the captures that it goes to.
    of_hop: Vec<Vec<usize>>,
    writers: Vec<PcapWriter<W>>,
    frames: Frames,
    /// The first write that failed; after it, nothing is written.
    failed: Option<io::Error>,
}

/// No hop has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no wired hop `{name}`; give LINK, or LINK/back for the other direction, where LINK \
     is one of: {known}"
)]
pub struct NoSuchHop {
    /// What was asked for.
    pub name: String,
    /// The links that there are.
    pub known: String,
}

impl<W: Write> HopCaptures<W> {
    /// No capture yet.
    pub fn new(built: &Built) -> Self {
        Self {
            of_hop: vec![Vec::new(); built.world.hops().len()],
            writers: Vec::new(),
            frames: Frames::new(),
            failed: None,
        }
    }

    /// Begins a capture of what leaves each of `hops`, as [`hop_called`] knows them.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn add(&mut self, hops: &[usize], out: W) -> io::Result<()> {
        for &hop in hops {
            self.of_hop[hop].push(self.writers.len());
        }
        self.writers.push(PcapWriter::new(out, LinkType::Raw)?);
        Ok(())
    }

    /// A packet has left a hop.
    pub fn on_left(&mut self, left: Left<'_>) {
        let captures = &self.of_hop[left.hop];
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

/// The hop called LINK, or LINK/back: of links in series the first that a packet meets in that
/// direction.
///
/// # Errors
/// [`NoSuchHop`] names the links that there are.
pub fn hop_called(name: &str, scenario: &Scenario, built: &Built) -> Result<usize, NoSuchHop> {
    let link = |name: &str| scenario.links.iter().position(|link| link.name == name);
    let there = || built.links[link(name)?].there.first();
    let back = || built.links[link(name.strip_suffix("/back")?)?].back.first();
    there().or_else(back).copied().ok_or_else(|| {
        let known: Vec<_> = scenario.links.iter().map(|link| link.name.as_str()).collect();
        NoSuchHop { name: name.to_owned(), known: known.join(", ") }
    })
}
