//! `freshline receiver attach`: starts control that outlives the command.

use std::path::PathBuf;

use freshline_kernel::cgroup;
use freshline_kernel::receiver::{Held, Target, attach};

use super::{LawArgs, failure};
use crate::failure::Failure;
use crate::hold::{Term, keep};
use crate::privileges::DETACHES;

/// Start to control the TCP connections of this host, of one cgroup, or those through a network
/// device. Needs root.
///
/// The control stays in the kernel when this command ends, until `freshline receiver detach` or the
/// next boot. It covers new connections; with --adopt-existing also existing ones. It slows down
/// only traffic to this host, and only traffic that would otherwise wait in queues: the round trip
/// settles at --theta times the minimum RTT.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

The whole host:

    freshline receiver attach
    freshline receiver status
    freshline receiver detach

Only the downloads of a service, over Wi-Fi:

    freshline receiver attach --cgroup /sys/fs/cgroup/system.slice/backup.service --delta 8ms

All hosts behind a gateway, on its device towards the internet:

    freshline receiver attach --dev wan0

EXIT CODES

0  attached, or, with --foreground, ended by Ctrl-C
1  no root, the kernel lacks something, or these connections are under control already
2  the flags cannot be understood, or name no cgroup or device")]
pub(super) struct Args {
    /// Control this cgroup (version 2) and all cgroups below it; default: the whole host.
    #[arg(long, value_name = "PATH", conflicts_with = "dev")]
    cgroup: Option<PathBuf>,
    /// Control all connections through this network device, which faces the senders, of any host;
    /// only connections whose handshake it sees.
    #[arg(long, value_name = "DEV", conflicts_with = "adopt_existing")]
    dev: Option<String>,
    #[command(flatten)]
    law: LawArgs,
    /// Also control connections of this network namespace that are established already.
    #[arg(long)]
    adopt_existing: bool,
    #[command(flatten)]
    term: Term,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let law = args.law.law()?;
    let target = match (args.dev, args.cgroup) {
        (Some(name), _) => Target::Device(name),
        (None, Some(path)) => Target::Cgroup(path),
        (None, None) => Target::Cgroup(cgroup::root().map_err(failure)?),
    };
    let ended = args.term.end()?;
    let held = attach(&target, &law).map_err(failure)?;
    if args.adopt_existing {
        held.adopt().map_err(failure)?;
    }
    let said = format!("controlling the TCP connections of {target}");
    keep(held, ended, &said, Held::pin, Held::release, DETACHES).map_err(failure)
}
