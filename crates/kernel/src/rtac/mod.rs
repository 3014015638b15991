//! RTAC on every TCP socket of a cgroup: `main.bpf.c`, its settings, and what holds it in place.
//!
//! ```text
//!  attach ──► Held ──► pin ──► stays until detach
//!               └─ dropped: the program is gone, and windows are as without it
//! ```
//!
//! If the process that holds a program is killed, the program is gone as well. Connections that
//! are open at that moment keep their last window at least until the kernel grows their buffer;
//! nothing else is left.

mod status;

use std::fs;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use freshline_core::unit::Span;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, PrintLevel, set_print};

use crate::cgroup::Cgroup;
use crate::error::{KernelError, require_root};
use crate::pin;
pub use status::{Attachment, Counters, Peer, attachments};

mod skeleton {
    #![allow(missing_docs, unreachable_pub, unsafe_code, clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/rtac.skel.rs"));
}

/// Folders of pins are called so, with the number of their cgroup.
const PIN_PREFIX: &str = "receiver-";
/// The program on the cgroup.
const CONTROL: &str = "control";
/// The iterator that gives connections their windows back.
const RELEASE: &str = "release";

/// Settings of the law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// θ: where the round trip settles, in multiples of the shortest one; above 1. 1.38, as in the
    /// thesis.
    pub theta: f64,
    /// Δ: added to the shortest round trip seen, where the path is now and then longer without
    /// any queue, as of LTE (18 ms in the thesis) and Wi-Fi (8 ms). None unless said: on a wired
    /// path it would be a queue.
    pub delta: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self { theta: 1.38, delta: Span::ZERO }
    }
}

/// The program on a cgroup, for as long as this is held.
#[derive(Debug)]
pub struct Held {
    cgroup: Cgroup,
    control: Link,
    adopt: Link,
    release: Link,
}

/// Attaches the program to the cgroup at `path`. Connections that are made from now on are under
/// control.
///
/// # Errors
///
/// Where the kernel or the rights do not suffice, and where sockets of that cgroup are under
/// control already.
pub fn attach(path: &Path, settings: &Settings) -> Result<Held, KernelError> {
    require_root("attach a program to a cgroup")?;
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(KernelError::Missing {
            feature: "BTF, the description of the kernel's types",
            remedy: "take one that is built with CONFIG_DEBUG_INFO_BTF, as distributions' are",
        });
    }
    let (cgroup, file) = Cgroup::open(path)?;
    remove_deserted()?;
    let taken = attachments()?.into_iter().find_map(|other| {
        let other = other.known_cgroup()?;
        cgroup.overlaps(&other).then_some(other.path)
    });
    if let Some(cgroup) = taken {
        return Err(KernelError::Controlled { cgroup });
    }

    set_print(Some((PrintLevel::Debug, |_, line| tracing::debug!("{}", line.trim_end()))));
    let mut place = MaybeUninit::uninit();
    let builder = skeleton::MainSkelBuilder::default();
    let mut program = builder.open(&mut place).map_err(KernelError::bpf("open the program"))?;
    let constants = program.maps.rodata_data.as_deref_mut().expect("the program has constants");
    constants.settings.theta_milli = (settings.theta * 1e3).round() as u64;
    constants.settings.delta_ns = settings.delta.as_nanos();
    constants.cgroup_id = cgroup.id;
    let program = program.load().map_err(KernelError::Refused)?;
    let iterators = KernelError::bpf("attach an iterator");
    let iterator = || -> libbpf_rs::Result<_> {
        Ok((program.progs.adopt.attach()?, program.progs.release.attach()?))
    };
    let (adopt, release) = iterator().map_err(iterators)?;
    let control = program
        .progs
        .freshline_rtac
        .attach_cgroup(file.as_raw_fd())
        .map_err(KernelError::bpf("attach a program to the cgroup"))?;
    Ok(Held { cgroup, control, adopt, release })
}

impl Held {
    /// Takes over the established connections of this network namespace, as far as they belong to
    /// the cgroup.
    ///
    /// # Errors
    ///
    /// If the kernel's list of connections cannot be read.
    pub fn adopt(&self) -> Result<(), KernelError> {
        run(&self.adopt)
    }

    /// Lets the program stay when this process ends, until [`detach`].
    ///
    /// # Errors
    ///
    /// If the BPF file system is not to be had. The program is gone then.
    pub fn pin(mut self) -> Result<(), KernelError> {
        let folder = pin_folder(self.cgroup.id)?;
        if folder.exists() {
            // Of one that was ended while it pinned: nobody else is attached here.
            pin::remove(&folder)?;
        }
        fs::create_dir_all(&folder).map_err(KernelError::file("make", &folder))?;
        let pinned = self
            .release
            .pin(folder.join(RELEASE))
            .and_then(|()| self.control.pin(folder.join(CONTROL)))
            .map_err(KernelError::bpf("pin the program"));
        if pinned.is_err() {
            pin::remove(&folder)?;
        }
        pinned
    }

    /// Ends the control: the connections of this network namespace get the windows that they
    /// would have without it.
    ///
    /// # Errors
    ///
    /// If the kernel's list of connections cannot be read. The program is gone all the same.
    pub fn release(self) -> Result<(), KernelError> {
        self.control.detach().map_err(KernelError::bpf("detach the program"))?;
        run(&self.release)
    }
}

/// Ends what is pinned: on one cgroup, or on all. Connections of this network namespace get the
/// windows back that they would have without it.
///
/// # Errors
///
/// [`KernelError::NotAttached`] if nothing is pinned there.
pub fn detach(cgroup: Option<&Path>) -> Result<(), KernelError> {
    require_root("detach programs")?;
    let folders = match cgroup {
        None => pin::folders(PIN_PREFIX),
        Some(path) => {
            let folder = pin_folder(Cgroup::open(path)?.0.id)?;
            if folder.exists() { vec![folder] } else { Vec::new() }
        }
    };
    if folders.is_empty() {
        return Err(KernelError::NotAttached(cgroup.map(Path::to_owned)));
    }
    for folder in folders {
        // The program goes first, so that it takes no window back. To remove its pin would end it
        // as well, but later than that returns.
        let control = folder.join(CONTROL);
        if control.exists() {
            let control =
                Link::open(&control).map_err(KernelError::bpf("open the program's pin"))?;
            control.detach().map_err(KernelError::bpf("detach the program"))?;
        }
        let release = folder.join(RELEASE);
        if release.exists() {
            fs::read(&release).map_err(KernelError::file("read", release))?;
        }
        pin::remove(&folder)?;
    }
    Ok(())
}

/// With its cgroup a program goes as well; only its pin stays.
fn remove_deserted() -> Result<(), KernelError> {
    for folder in pin::folders(PIN_PREFIX) {
        let name = folder.file_name().and_then(|name| name.to_str());
        let id = name.and_then(|name| name.strip_prefix(PIN_PREFIX)?.parse().ok());
        if id.is_some_and(|id| Cgroup::find(id).is_none()) {
            pin::remove(&folder)?;
        }
    }
    Ok(())
}

fn pin_folder(cgroup_id: u64) -> Result<PathBuf, KernelError> {
    Ok(pin::folder()?.join(pin_name(cgroup_id)))
}

fn pin_name(cgroup_id: u64) -> String {
    format!("{PIN_PREFIX}{cgroup_id}")
}

/// Reads an iterator to its end, which is what makes it work.
fn run(iterator: &Link) -> Result<(), KernelError> {
    let mut reader = Iter::new(iterator).map_err(KernelError::bpf("list the connections"))?;
    reader
        .read_to_end(&mut Vec::new())
        .map(drop)
        .map_err(KernelError::file("read", "the connections"))
}
