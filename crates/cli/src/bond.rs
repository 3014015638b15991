//! `freshline bond`: TCP connections of any program over all paths of a host at once.

mod client;
mod server;
mod show;

use std::path::{Path, PathBuf};

use freshline_core::path::SchedulerConfig;
use freshline_core::unit::Bytes;
use freshline_net::bond::{BondError, Congestion, Sending};
use freshline_net::quic::{Authorities, Identity};
use miette::{IntoDiagnostic, miette};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::Failure;
use crate::listening::state_dir;

/// Carry TCP connections of any program over several paths at once: the client on the host that has
/// them, the server where they come together.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

The server takes one client, by its fingerprint; `freshline bond identity` prints it there:

    freshline bond server 0.0.0.0:3775 --client-pin sha256:…

The client leaves by two interfaces; programs reach it by SOCKS5 or as an HTTP proxy, or by a port
of their own:

    freshline bond client --via wlan0,wwan0 --pin sha256:… \\
        --listen 127.0.0.1:1080 --forward 127.0.0.1:8080=example.org:80 server.example:3775
    curl --proxy http://127.0.0.1:1080 https://example.org/

EXIT CODES

0  ended by --duration or Ctrl-C
1  an address is not to be had, or the other end has refused the first connection
2  the flags or the files that they name cannot be understood
130  a second Ctrl-C, when the end hangs")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Client(client::Args),
    Server(server::Args),
    Identity(IdentityArgs),
}

/// Print the fingerprint of this host's certificate, for the other end to pin.
#[derive(Debug, clap::Args)]
struct IdentityArgs {
    #[command(flatten)]
    who: Who,
}

/// Who this end is.
#[derive(Debug, clap::Args)]
struct Who {
    /// Show this certificate; else one is made and kept in --state.
    #[arg(long, value_name = "PEM", requires = "key", help_heading = "Security")]
    cert: Option<PathBuf>,
    /// The private key of --cert.
    #[arg(long, value_name = "PEM", requires = "cert", help_heading = "Security")]
    key: Option<PathBuf>,
    /// Where the certificate of one's own making is kept; else the user's state directory.
    #[arg(long, value_name = "DIR", conflicts_with = "cert", help_heading = "Security")]
    state: Option<PathBuf>,
}

impl Who {
    fn identity(&self) -> Result<Identity, Failure> {
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Identity::from_pem_files(cert, key),
            _ => Identity::from_state_dir(&state_dir(self.state.as_deref())?),
        };
        identity.into_diagnostic().map_err(Failure::Usage)
    }
}

/// How data is sent.
#[derive(Debug, clap::Args)]
struct How {
    /// Which path the next packet takes: qaware, earliest, min_srtt, round_robin, ecf, blest,
    /// daps or freshest. Each end chooses for what it sends.
    #[arg(long, value_name = "NAME", default_value = "qaware", help_heading = "Sending")]
    scheduler: String,
    /// What finds out how much may be in flight on each path.
    #[arg(long, value_name = "NAME", default_value = "cubic", help_heading = "Sending")]
    congestion: CongestionName,
    /// What one connection may hold here while its program does not read.
    #[arg(long, value_name = "BYTES", default_value = "1MB", help_heading = "Sending")]
    window: Bytes,
    /// What all connections of a peer may hold here together; when those that take nothing hold
    /// three quarters of it, the ones that have been stuck for longest are ended.
    #[arg(long, value_name = "BYTES", default_value = "32MB", help_heading = "Sending")]
    memory: Bytes,
    /// The most connections of one client.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Sending")]
    streams: u32,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum CongestionName {
    Cubic,
    Bbr,
}

impl How {
    fn sending(&self) -> Result<Sending, Failure> {
        let scheduler = match self.scheduler.parse() {
            Ok(SchedulerConfig::Redundant) => Err(miette!(
                "`redundant` sends copies of packets, and QUIC's streams have none; take another"
            )),
            scheduler => scheduler.into_diagnostic(),
        };
        let range = 64 * 1024..=Sending::WIDEST;
        let window = u32::try_from(self.window.get()).ok().filter(|window| range.contains(window));
        let window =
            window.ok_or_else(|| Failure::Usage(miette!("--window is from 65536B to 2MB: more gaps than that holds end a connection of noq-proto")))?;
        let least = u64::from(window) * u64::from(Sending::LEAST_WINDOWS);
        let memory = Some(self.memory.get()).filter(|memory| *memory >= least);
        let memory =
            memory.and_then(|memory| u32::try_from(memory).ok()).filter(|it| *it < 1 << 30);
        let memory = memory.ok_or_else(|| {
            Failure::Usage(miette!(
                "--memory is from {} times --window to 1 GB",
                Sending::LEAST_WINDOWS
            ))
        })?;
        if !(1..=65_536).contains(&self.streams) {
            return Err(Failure::Usage(miette!("--streams is from 1 to 65536")));
        }
        Ok(Sending {
            scheduler: scheduler.map_err(Failure::Usage)?,
            congestion: match self.congestion {
                CongestionName::Cubic => Congestion::Cubic,
                CongestionName::Bbr => Congestion::Bbr,
            },
            stream_window: window,
            memory,
            streams: self.streams,
        })
    }
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    // Each connection is a descriptor, and what is usual are 1024 of them. Who may not have more has
    // to do with those.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    match args.command {
        Command::Client(args) => client::run(args),
        Command::Server(args) => server::run(args),
        Command::Identity(args) => {
            println!("{}", args.who.identity()?.fingerprint());
            Ok(())
        }
    }
}

fn failure(error: BondError) -> Failure {
    Failure::Runtime(miette::Report::msg(error))
}

fn authorities(file: &Path) -> Result<Authorities, Failure> {
    Authorities::from_pem_file(file).into_diagnostic().map_err(Failure::Usage)
}
