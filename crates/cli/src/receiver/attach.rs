//! `freshline receiver attach`: control that stays.

use std::path::PathBuf;

use freshline_kernel::{cgroup, rtac};

use super::{Law, failure};
use crate::Failure;
use crate::hold::ended;

/// Begin to control the TCP connections of this host, or of one cgroup. Needs root.
///
/// The control stays in the kernel when this command ends, until `freshline receiver detach` or
/// the next start of the host. New connections are controlled; those that exist too with
/// --adopt-existing. Only what others send to this host is slowed down, and only as far as it
/// would wait in queues: the round trip settles at --theta times the shortest one.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

The whole host:

    freshline receiver attach
    freshline receiver status
    freshline receiver detach

Only what a service downloads, on Wi-Fi:

    freshline receiver attach --cgroup /sys/fs/cgroup/system.slice/backup.service --delta 8ms

EXIT CODES

0  attached, or, with --foreground, ended by Ctrl-C
1  no root, the kernel lacks something, or these connections are under control already
2  the flags cannot be understood, or name no cgroup")]
pub(super) struct Args {
    /// The cgroup (version 2), with all below it; the whole host unless said.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    #[command(flatten)]
    law: Law,
    /// Also control connections that are established already, in this network namespace.
    #[arg(long)]
    adopt_existing: bool,
    /// Control until Ctrl-C, and no longer than this process lives.
    #[arg(long)]
    foreground: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let cgroup = match args.cgroup {
        Some(path) => path,
        None => cgroup::root().map_err(failure)?,
    };
    let ended = if args.foreground { Some(ended()?) } else { None };
    let held = rtac::attach(&cgroup, &args.law.settings()).map_err(failure)?;
    if args.adopt_existing {
        held.adopt().map_err(failure)?;
    }
    eprintln!("controlling the TCP connections of {}", cgroup.display());
    match ended {
        None => held.pin().map_err(failure),
        Some(ended) => {
            // The sender lives as long as this process.
            let _ = ended.recv();
            held.release().map_err(failure)
        }
    }
}
