//! `freshline emulate`: emulates a network path on this machine.

mod page;
mod path_file;
mod run;
mod table;
mod udp;
mod wlan;

use clap::Subcommand;

use crate::failure::Failure;

/// Emulate a network path: rate, delay, jitter, loss and queues, hop by hop, and Wi-Fi.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Udp(Box<udp::Args>),
    Run(Box<run::Args>),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Udp(args) => udp::run(*args),
        What::Run(args) => run::run(*args),
    }
}

/// The description of hops in the help of both commands.
macro_rules! hop_help {
    () => {
        "\
A hop has: rate (6mbit), framing (ethernet), mtu (1500B), delay (10ms), jitter (1ms: uniform in
delay ± jitter), order (kept or free: whether jitter may reorder; default kept), loss (0 to 1),
queue (a drop-tail queue's limit, 100p or 64kB, or a discipline: lifo, red, codel, drr, fq_codel,
ifil, ifc, in a file also a table with its parameters; default 1000p). For loss in bursts add to_bad
and to_good, the probabilities with which a packet turns the hop bad and good again, and bad_loss,
the loss while it is bad (default 1).

A file may name a trace instead of a rate: trace = \"lte.trace\", a path relative to the file, in
mahimahi's format, with lines such as 15000 delay=31ms for another delay from 15 s on. A model
generates one: trace = { model = \"leo\" }, with the options of freshline lab trace as keys. And a
file may change the rate or the delay of a hop while the emulator runs, at
times since its start, in ascending order:

    [[forward.hop]]
    rate = \"20mbit\"
    delay = \"20ms\"
    change = [
        { at = \"15s\", delay = \"45ms\" },
        { at = \"30s\", delay = \"20ms\", rate = \"5mbit\" },
    ]"
    };
}
use hop_help;

/// The description of Wi-Fi in the help of both commands.
macro_rules! wlan_help {
    () => {
        "\
Wi-Fi, in a file a table [wlan], makes the clients stations of one cell: their packets go over the
air before the forward hops, and packets to them after the reverse hops. It has: standard (802.11a,
802.11g, 802.11n or 802.11ac), rate (12mbit in a and g, mcs7 in n and ac, or minstrel), width
(20MHz, 40MHz or 80MHz), guard (long or short), streams (1 to 4), max_mpdus (MPDUs per frame, 1
to 64), max_msdus (packets per MPDU, 1 to 32), queue (500p: the limit of packets per station),
lifetime (500ms: the limit of queueing), access (dcf or edca), in a file also propagation with
side_m or places, protection (RTS/CTS or CTS-to-self), and rules."
    };
}
use wlan_help;

/// The given seed, or a random one: 32 bits are enough, and every JSON parser represents them
/// exactly.
fn seed_or_drawn(asked: Option<u64>) -> u64 {
    asked.unwrap_or_else(|| rand::random::<u32>().into())
}
