//! `freshline mesh attach`: registers a congestion control that outlives the command.

use freshline_kernel::dtpa::{self, Held, NAME};

use super::{Law, failure, say};
use crate::failure::Failure;
use crate::hold::{Term, keep};
use crate::privileges::DETACHES_MESH;

/// Register the congestion control freshline_dtpa with the kernel. Needs root.
///
/// It stays when this command ends, until `freshline mesh detach` or the next boot, and changes no
/// connection by itself: a network namespace, a route or a program chooses it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

A node of a mesh of 30, whose border router carries 60 segments per second:

    freshline mesh attach --share 2
    sysctl -w net.ipv4.tcp_congestion_control=freshline_dtpa
    freshline mesh status

Only for what leaves through the mesh:

    ip route change default via fe80::1 dev wpan0 congctl freshline_dtpa

A program chooses it by setsockopt, TCP_CONGESTION. To end it:

    sysctl -w net.ipv4.tcp_congestion_control=cubic
    freshline mesh detach

EXIT CODES

0  registered, or, with --foreground, ended by Ctrl-C
1  no root, the kernel lacks something, or it is registered already
2  the flags cannot be understood")]
pub(super) struct Args {
    #[command(flatten)]
    law: Law,
    #[command(flatten)]
    term: Term,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let ended = args.term.end()?;
    let held = dtpa::attach(&args.law.settings()).map_err(failure)?;
    let said = format!(
        "TCP has {NAME} now; choose it for this network namespace by `sysctl -w \
         net.ipv4.tcp_congestion_control={NAME}`"
    );
    let release = |held: Held| held.release().map(say);
    keep(held, ended, &said, Held::pin, release, DETACHES_MESH).map_err(failure)
}
