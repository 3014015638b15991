//! `freshline emulate`: a network path on this machine.

mod path_file;
mod run;
mod table;
mod udp;
mod wlan;

use clap::Subcommand;

use crate::Failure;

/// Emulate a network path: rate, delay, jitter, loss and queues, hop by hop, and Wi-Fi.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Udp(Box<udp::Args>),
    Run(run::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Udp(args) => udp::run(*args),
        What::Run(args) => run::run(args),
    }
}

/// Wi-Fi in the help of both.
macro_rules! wlan_help {
    () => {
        "\
Wi-Fi, in a file a table [wlan], makes the clients stations of one cell: what they send goes over
the air before the forward hops, what is for them after the return hops. It has: standard (802.11a,
802.11g, 802.11n or 802.11ac), rate (12mbit in a and g, mcs7 in n and ac, or minstrel), width
(20MHz, 40MHz or 80MHz), guard (long or short), streams (1 to 4), max_mpdus (MPDUs a frame, 1 to
64), max_msdus (packets an MPDU, 1 to 32), queue (500p: how many packets wait for one station),
lifetime (500ms: how long at most), access (dcf or edca), in a file also propagation with side_m or
places, and rules."
    };
}
use wlan_help;

/// The seed that was asked for, or a new one: 32 bits are enough, and every reader of JSON takes
/// them for what they are.
fn seed_or_drawn(asked: Option<u64>) -> u64 {
    asked.unwrap_or_else(|| rand::random::<u32>().into())
}
