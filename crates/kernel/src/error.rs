//! What can go wrong between a loader and the kernel.

use std::cell::RefCell;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fs, io, iter};

use freshline_core::host::BandLawError;
use freshline_core::mesh::DtpaParamsError;
use freshline_core::receiver::WindowLawError;
use freshline_core::router::QdiscError;
use freshline_core::unit::{BitRate, Span};
use libbpf_rs::{PrintLevel, set_print};
use nix::unistd::Uid;

/// Why something of this crate did not work.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Settings of the law that make no sense.
    #[error(transparent)]
    Settings(#[from] WindowLawError),
    /// Δ is no path's.
    #[error("a path is never {delta} longer without a queue; give at most {longest}")]
    LongDelta {
        /// What was asked for.
        delta: Span,
        /// The most that may be.
        longest: Span,
    },
    /// Settings of the law of bands that make no sense.
    #[error(transparent)]
    BandSettings(#[from] BandLawError),
    /// Settings of a mesh's period that make no sense.
    #[error(transparent)]
    PeriodSettings(#[from] DtpaParamsError),
    /// Too slow to shape to.
    #[error("a rate of {rate} is too slow to shape to; give at least {least}")]
    SlowRate {
        /// What was asked for.
        rate: BitRate,
        /// The least that may be.
        least: BitRate,
    },
    /// Not root, or root without its rights.
    #[error(
        "needs root, with CAP_SYS_ADMIN, to {0}: run it with `sudo`, or give a container that \
         capability"
    )]
    Privileges(&'static str),
    /// The kernel was built or set up without something.
    #[error("needs {feature}, which this kernel does not offer: {remedy}")]
    Missing {
        /// What there is not.
        feature: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The kernel does not take the program.
    #[error(
        "the kernel refuses the program, which needs CAP_SYS_ADMIN and CAP_NET_ADMIN (as root in a \
         container), and Linux 6.12 or later with CONFIG_CGROUP_BPF, CONFIG_NET_XGRESS and \
         CONFIG_BPF_JIT: {why}; RUST_LOG=debug shows all that the kernel says"
    )]
    Refused {
        /// What the kernel said of the program that it refused, and its name.
        why: String,
        /// What it answered.
        source: libbpf_rs::Error,
    },
    /// The kernel does not take the queueing discipline.
    #[error(
        "the kernel refuses the queueing discipline, which needs CAP_SYS_ADMIN and CAP_NET_ADMIN (as \
         root in a container), and Linux 6.16 or later with CONFIG_NET_SCH_BPF and CONFIG_BPF_JIT: \
         {why}; RUST_LOG=debug shows all that the kernel says"
    )]
    RefusedQdisc {
        /// What the kernel said of it.
        why: String,
        /// What it answered.
        source: libbpf_rs::Error,
    },
    /// A discipline that the kernel cannot be given.
    #[error(
        "the kernel's queueing discipline has no {0}; `freshline router run` has, in user space"
    )]
    NotInKernel(String),
    /// A queue that makes no sense.
    #[error("queue: {0}")]
    Queue(#[from] QdiscError),
    /// A cgroup that does not exist, or is none.
    #[error("{path} is no cgroup of version 2: name a folder below {mount}")]
    NoCgroup {
        /// What was asked for.
        path: PathBuf,
        /// Where cgroups are.
        mount: PathBuf,
    },
    /// A network device that does not exist here.
    #[error("there is no network device {0} in this network namespace: `ip link` lists them")]
    NoDevice(String),
    /// There is a program at this place already.
    #[error(
        "{place} is under control already: `freshline {command} detach` ends it; if a process \
         holds it (`attach --foreground` or `run`), end that"
    )]
    Controlled {
        /// What the other program is attached to.
        place: String,
        /// Which command attaches such programs.
        command: &'static str,
    },
    /// Pins can neither be seen nor made here.
    #[error(
        "the BPF file system, where control is pinned, is hidden here, as by `ip netns exec`: \
         enter the network namespace by `nsenter --net=/run/netns/NAME` instead"
    )]
    HiddenPins,
    /// Pins cannot be made here, because their file system is not mounted.
    #[error(
        "cannot mount the BPF file system at {at}, where control is pinned: mount it first \
         (`mount -t bpf bpf {at}`), or share the host's with this container"
    )]
    NoPins {
        /// The directory for it.
        at: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Its queueing discipline could not be put back.
    #[error(
        "the queueing discipline of {device}, {kind}, could not be restored afterwards; remove it \
         first (`tc qdisc del dev {device} root`), or attach without --rate, which leaves it as it \
         is and works where it has bands, such as pfifo_fast's"
    )]
    Irreplaceable {
        /// The device.
        device: String,
        /// What is at its root.
        kind: String,
    },
    /// Something that was asked of a network device.
    #[error("cannot {what} {device}")]
    Device {
        /// What was tried.
        what: &'static str,
        /// With what.
        device: String,
        /// Why not.
        source: io::Error,
    },
    /// Its program is another version's.
    #[error(
        "what is attached is of another version of freshline: end it with that one, or remove \
         its folder below /sys/fs/bpf/freshline and, if it shaped, its queueing discipline \
         (`tc qdisc del dev DEV root`)"
    )]
    OtherVersion,
    /// There is nothing to end.
    #[error("nothing is attached{}", .0.as_ref().map(|place| format!(" to {place}")).unwrap_or_default())]
    NotAttached(Option<String>),
    /// Some attachments resisted; the others are ended.
    #[error("some could not be ended as they should: {}", .0.iter().map(chain).collect::<Vec<_>>().join("; "))]
    NotEnded(Vec<KernelError>),
    /// A file of the cgroups or of the BPF file system.
    #[error("cannot {what} {path}")]
    File {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Something else that the kernel was asked.
    #[error("cannot {what}")]
    Bpf {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: libbpf_rs::Error,
    },
}

/// An error with its reasons.
fn chain(error: &KernelError) -> String {
    iter::successors(Some(error as &dyn Error), |&error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

impl KernelError {
    /// Whether it is what was asked for that makes no sense, and not the kernel that does not do it.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Settings(_)
                | Self::LongDelta { .. }
                | Self::BandSettings(_)
                | Self::PeriodSettings(_)
                | Self::SlowRate { .. }
                | Self::Queue(_)
                | Self::NotInKernel(_)
                | Self::NoCgroup { .. }
                | Self::NoDevice(_)
        )
    }

    /// Whether it is the kernel, or this build, that lacks what was asked for, which makes sense.
    #[must_use]
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::NotInKernel(_))
    }

    /// Of attachments that were ended one by one, whatever became of the others.
    pub(crate) fn of_all(ended: impl IntoIterator<Item = Result<(), Self>>) -> Result<(), Self> {
        let failed: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
        if failed.is_empty() { Ok(()) } else { Err(Self::NotEnded(failed)) }
    }

    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }

    pub(crate) fn device<E: Into<io::Error>>(
        what: &'static str,
        device: &str,
    ) -> impl FnOnce(E) -> Self + use<E> {
        let device = device.to_owned();
        move |source| Self::Device { what, device, source: source.into() }
    }

    pub(crate) fn refused(source: libbpf_rs::Error) -> Self {
        Self::Refused { why: reasons(&WARNINGS.take()), source }
    }

    pub(crate) fn refused_qdisc(source: libbpf_rs::Error) -> Self {
        Self::RefusedQdisc { why: reasons(&WARNINGS.take()), source }
    }

    pub(crate) fn bpf(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |source| Self::Bpf { what, source }
    }
}

/// The right to list programs and links (Linux's `CAP_SYS_ADMIN`), as a bit of `CapEff`.
const CAP_SYS_ADMIN: u32 = 21;

/// Comes before all that only root may do. Without its rights the kernel says little: it tells of no programs,
/// as if there were none.
pub(crate) fn require_root(what: &'static str) -> Result<(), KernelError> {
    if !Uid::effective().is_root() || !may_administer() {
        return Err(KernelError::Privileges(what));
    }
    // What libbpf tells goes where our own messages go, and not to standard error.
    set_print(Some((PrintLevel::Debug, |level, text| {
        tracing::debug!("{}", text.trim_end());
        if level == PrintLevel::Warn {
            WARNINGS.with_borrow_mut(|kept| keep(kept, &text));
        }
    })));
    Ok(())
}

thread_local! {
    /// The last of what libbpf has warned of in this thread.
    static WARNINGS: RefCell<String> = const { RefCell::new(String::new()) };
}
/// How much of that is kept, in bytes: the verifier's log can be long, and its reason is at the end.
const KEPT: usize = 4096;

fn keep(kept: &mut String, text: &str) {
    kept.push_str(text);
    let excess = kept.len().saturating_sub(KEPT);
    let from = (excess..kept.len()).find(|&at| kept.is_char_boundary(at)).unwrap_or(0);
    kept.drain(..from);
}

/// Those lines of libbpf's warnings that name what failed, or that the verifier ended with.
fn reasons(warnings: &str) -> String {
    let is_known = |line: &&str| {
        !line.is_empty()
            && !["LOG --", "processed ", "failed to load object", "BPF skeleton"]
                .iter()
                .any(|text| line.contains(text))
    };
    let lines: Vec<_> = warnings
        .lines()
        .map(|line| line.trim().trim_start_matches("libbpf: "))
        .filter(is_known)
        .collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

fn may_administer() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|rights| u64::from_str_radix(rights.trim(), 16).ok())
        .is_some_and(|rights| rights >> CAP_SYS_ADMIN & 1 == 1)
}

/// Without it libbpf cannot fit a program to the kernel.
pub(crate) fn require_btf() -> Result<(), KernelError> {
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Ok(());
    }
    Err(KernelError::Missing {
        feature: "BTF, the description of the kernel's types",
        remedy: "take one that is built with CONFIG_DEBUG_INFO_BTF, as distributions' are",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_program_and_the_reason() {
        let older = "libbpf: prog 'other': an older warning\n";
        for log in ["", "0: R1=ctx() R10=fp0\n", &"a line of a long log\n".repeat(1000)] {
            let mut kept = String::new();
            for text in [
                older,
                "libbpf: prog 'list': BPF program load failed: -EACCES\n",
                &format!(
                    "libbpf: prog 'list': -- BEGIN PROG LOAD LOG --\n{log}\
                     invalid mem access 'scalar'\nprocessed 1 insns (limit 1000000)\n\
                     -- END PROG LOAD LOG --\n"
                ),
                "libbpf: prog 'list': failed to load: -EACCES\n",
                "libbpf: failed to load object 'main_bpf'\n",
                "libbpf: failed to load BPF skeleton 'main_bpf': -EACCES\n",
            ] {
                keep(&mut kept, text);
            }
            assert!(kept.len() <= KEPT);
            let why = reasons(&kept);
            let end = "invalid mem access 'scalar'; prog 'list': failed to load: -EACCES";
            assert!(why.ends_with(end) && !why.contains("other"), "{why}");
        }
        assert_eq!(reasons(""), "");
    }
}
