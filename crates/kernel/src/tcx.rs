//! Programs in the way of what enters or leaves a network device.
//!
//! Unsafe: libbpf attaches them, and libbpf-rs has no call for it.
#![allow(unsafe_code)]

use std::ptr;

use libbpf_rs::libbpf_sys::{bpf_program__attach_tcx, libbpf_get_error};
use libbpf_rs::{AsRawLibbpf, Error, Link, ProgramMut, Result};

/// Attaches a program, in the direction that its section names, after those that are there.
pub(crate) fn attach(program: &ProgramMut<'_>, device: u32) -> Result<Link> {
    let program = program.as_libbpf_object().as_ptr();
    // SAFETY: the program is loaded and borrowed, and no options are given.
    let link = unsafe { bpf_program__attach_tcx(program, device.cast_signed(), ptr::null()) };
    // SAFETY: it takes any pointer, and the error is that of the call above.
    let error = unsafe { libbpf_get_error(link.cast()) };
    match ptr::NonNull::new(link) {
        // SAFETY: libbpf has made the link, and nobody else has it.
        Some(link) if error == 0 => Ok(unsafe { Link::from_ptr(link) }),
        _ => Err(Error::from_raw_os_error(-(error as i32))),
    }
}
