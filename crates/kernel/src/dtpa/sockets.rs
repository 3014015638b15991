//! Programs that iterate over the sockets of this network namespace; they are loaded only for that.

use std::io::Read;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link};

use super::skeleton::{MainProgs, MainSkelBuilder};
use crate::error::KernelError;

/// A `struct row` of `intf.h` for each connection that has chosen it.
pub(super) fn list() -> Result<Vec<u8>, KernelError> {
    walk(|programs| programs.list.attach())
}

/// Switches listening sockets that have chosen it to Reno, and returns their number.
pub(super) fn leave() -> Result<usize, KernelError> {
    Ok(walk(|programs| programs.leave.attach())?.len())
}

/// The output of a program.
fn walk(attach: fn(&MainProgs<'_>) -> libbpf_rs::Result<Link>) -> Result<Vec<u8>, KernelError> {
    let mut place = MaybeUninit::uninit();
    let builder = MainSkelBuilder::default();
    let mut program = builder.open(&mut place).map_err(KernelError::bpf("open the program"))?;
    program
        .maps
        .freshline_dtpa
        .set_autocreate(false)
        .map_err(KernelError::bpf("leave out the congestion control"))?;
    let program = program.load().map_err(KernelError::refused)?;
    let mut written = Vec::new();
    let iterator = attach(&program.progs).map_err(KernelError::bpf("attach the program"))?;
    Iter::new(&iterator)
        .map_err(KernelError::bpf("list the sockets"))?
        .read_to_end(&mut written)
        .map_err(KernelError::file("read", "the sockets"))?;
    Ok(written)
}
