//! Errors between a loader and the kernel.

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

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Settings of the law are invalid.
    #[error(transparent)]
    Settings(#[from] WindowLawError),
    /// Δ is larger than that of any path.
    #[error("a path is never {delta} longer without a queue; give at most {longest}")]
    LongDelta {
        /// The requested Δ.
        delta: Span,
        /// The maximum Δ.
        longest: Span,
    },
    /// Settings of the law of bands are invalid.
    #[error(transparent)]
    BandSettings(#[from] BandLawError),
    /// Settings of a mesh's period are invalid.
    #[error(transparent)]
    PeriodSettings(#[from] DtpaParamsError),
    /// The rate is too low to shape to.
    #[error("a rate of {rate} is too slow to shape to; give at least {least}")]
    SlowRate {
        /// The requested rate.
        rate: BitRate,
        /// The minimum rate.
        least: BitRate,
    },
    /// The process is not root, or is root without the capabilities.
    #[error(
        "needs root, with CAP_SYS_ADMIN, to {0}: run it with `sudo`, or give a container that \
         capability"
    )]
    Privileges(&'static str),
    /// The kernel was built or set up without a feature.
    #[error("needs {feature}, which this kernel does not offer: {remedy}")]
    Missing {
        /// The missing feature.
        feature: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// The kernel rejects the program.
    #[error(
        "the kernel refuses the program, which needs CAP_SYS_ADMIN and CAP_NET_ADMIN (as root in a \
         container), and Linux 6.12 or later with CONFIG_CGROUP_BPF, CONFIG_NET_XGRESS and \
         CONFIG_BPF_JIT: {why}; RUST_LOG=debug shows all that the kernel says"
    )]
    Refused {
        /// The kernel's reason, and the name of the rejected program.
        why: String,
        /// The error that it returned.
        source: libbpf_rs::Error,
    },
    /// The kernel rejects the queueing discipline.
    #[error(
        "the kernel refuses the queueing discipline, which needs CAP_SYS_ADMIN and CAP_NET_ADMIN (as \
         root in a container), and Linux 6.16 or later with CONFIG_NET_SCH_BPF and CONFIG_BPF_JIT: \
         {why}; RUST_LOG=debug shows all that the kernel says"
    )]
    RefusedQdisc {
        /// The kernel's reason.
        why: String,
        /// The error that it returned.
        source: libbpf_rs::Error,
    },
    /// A discipline that does not exist in the kernel.
    #[error(
        "the kernel's queueing discipline has no {0}; `freshline router run` has, in user space"
    )]
    NotInKernel(String),
    /// An invalid queue.
    #[error("queue: {0}")]
    Queue(#[from] QdiscError),
    /// A cgroup that does not exist, or a path that is not a cgroup.
    #[error("{path} is not a cgroup of version 2: name a folder below {mount}")]
    NoCgroup {
        /// The requested path.
        path: PathBuf,
        /// The mount point of cgroups.
        mount: PathBuf,
    },
    /// A network device that does not exist here.
    #[error("there is no network device {0} in this network namespace: `ip link` lists them")]
    NoDevice(String),
    /// A program is attached at this place already.
    #[error(
        "{place} is under control already: `freshline {command} detach` ends it; if a process \
         holds it (`attach --foreground` or `run`), end that"
    )]
    Controlled {
        /// The place of the other program.
        place: String,
        /// The command that attaches such programs.
        command: &'static str,
    },
    /// Pins can neither be seen nor created here.
    #[error(
        "the BPF file system, where control is pinned, is hidden here, as by `ip netns exec`: \
         enter the network namespace by `nsenter --net=/run/netns/NAME` instead"
    )]
    HiddenPins,
    /// Pins cannot be created here, because their file system is not mounted.
    #[error(
        "cannot mount the BPF file system at {at}, where control is pinned: mount it first \
         (`mount -t bpf bpf {at}`), or share the host's with this container"
    )]
    NoPins {
        /// The directory of the mount point.
        at: &'static str,
        /// Why the mount failed.
        source: io::Error,
    },
    /// The queueing discipline of a device could not be restored.
    #[error(
        "the queueing discipline of {device}, {kind}, could not be restored afterwards; remove it \
         first (`tc qdisc del dev {device} root`), or attach without --rate, which leaves it as it \
         is and works where it has bands, such as pfifo_fast's"
    )]
    Irreplaceable {
        /// The device.
        device: String,
        /// The kind of its root.
        kind: String,
    },
    /// An operation on a network device failed.
    #[error("cannot {what} {device}")]
    Device {
        /// The operation.
        what: &'static str,
        /// The device.
        device: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The attached program belongs to another version.
    #[error(
        "the attached program is of another version of freshline: end it with that one, or remove \
         its folder below /sys/fs/bpf/freshline and, if it shaped, its queueing discipline \
         (`tc qdisc del dev DEV root`)"
    )]
    OtherVersion,
    /// There is nothing to detach.
    #[error("nothing is attached{}", .0.as_ref().map(|place| format!(" to {place}")).unwrap_or_default())]
    NotAttached(Option<String>),
    /// Some attachments could not be ended; the others are ended.
    #[error("some attachments could not be ended: {}", .0.iter().map(chain).collect::<Vec<_>>().join("; "))]
    NotEnded(Vec<KernelError>),
    /// An operation on a file of the cgroups or of the BPF file system failed.
    #[error("cannot {what} {path}")]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another request to the kernel failed.
    #[error("cannot {what}")]
    Bpf {
        /// The operation.
        what: &'static str,
        /// Why it failed.
        source: libbpf_rs::Error,
    },
}

/// An error with its causes.
fn chain(error: &KernelError) -> String {
    iter::successors(Some(error as &dyn Error), |&error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

impl KernelError {
    /// Whether the request is invalid, as opposed to a failure of the kernel.
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

    /// Whether the request is valid, but the kernel or this build lacks a feature for it.
    #[must_use]
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::NotInKernel(_))
    }

    /// The result of attachments that were ended one by one, each regardless of the others.
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

/// The capability to list programs and links (Linux's `CAP_SYS_ADMIN`), as a bit of `CapEff`.
const CAP_SYS_ADMIN: u32 = 21;

/// Call this before all operations that need root. Without its capabilities the kernel reports no
/// programs, as if there were no programs.
pub(crate) fn require_root(what: &'static str) -> Result<(), KernelError> {
    if !Uid::effective().is_root() || !may_administer() {
        return Err(KernelError::Privileges(what));
    }
    // Messages of libbpf go to this crate's log, not to standard error.
    set_print(Some((PrintLevel::Debug, |level, text| {
        tracing::debug!("{}", text.trim_end());
        if level == PrintLevel::Warn {
            WARNINGS.with_borrow_mut(|kept| keep(kept, &text));
        }
    })));
    Ok(())
}

thread_local! {
    /// The end of libbpf's warnings in this thread.
    static WARNINGS: RefCell<String> = const { RefCell::new(String::new()) };
}
/// The maximum length of that in bytes: the verifier's log can be long, and its reason is at the
/// end.
const KEPT: usize = 4096;

fn keep(kept: &mut String, text: &str) {
    kept.push_str(text);
    let excess = kept.len().saturating_sub(KEPT);
    let from = (excess..kept.len()).find(|&at| kept.is_char_boundary(at)).unwrap_or(0);
    kept.drain(..from);
}

/// The lines of libbpf's warnings that name the failure, or with which the verifier ended.
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

/// Without BTF, libbpf cannot adapt a program to the kernel.
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
