//! `freshline bond`: carries TCP connections of any program over all paths of a host at once.

mod client;
mod server;
mod show;

use std::path::{Path, PathBuf};

use freshline_core::path::{CoupledLaw, SchedulerConfig, Tuning};
use freshline_core::unit::{Bytes, Span};
use freshline_net::bond::{BondError, Congestion, Sending};
use freshline_net::quic::{Authorities, Identity};
use miette::{IntoDiagnostic, miette};

use crate::failure::Failure;
use crate::privileges::raise_descriptor_limit;
use crate::scheduler::{EstimatorName, scheduler};

/// Carry TCP connections of any program over several paths at once: the client on the host with
/// these paths, the server where they meet.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

The server accepts one client by its fingerprint, which `freshline bond identity` prints there:

    freshline bond server 0.0.0.0:3775 --client-pin sha256:…

The client sends by two interfaces; programs reach it by SOCKS5, as an HTTP proxy, or by a local
port:

    freshline bond client --via wlan0,wwan0 --pin sha256:… \\
        --listen 127.0.0.1:1080 --forward 127.0.0.1:8080=example.org:80 server.example:3775
    curl --proxy http://127.0.0.1:1080 https://example.org/

EXIT CODES

0  ended by --duration or Ctrl-C
1  cannot bind an address, or the other end refused the first connection
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
    cert_args: CertArgs,
}

/// The identity of this end.
#[derive(Debug, clap::Args)]
struct CertArgs {
    /// Show this certificate; without it, one is made and kept in --state-dir.
    #[arg(long, value_name = "PEM", requires = "key", help_heading = "Security")]
    cert: Option<PathBuf>,
    /// Use the private key of --cert.
    #[arg(long, value_name = "PEM", requires = "cert", help_heading = "Security")]
    key: Option<PathBuf>,
    /// Keep the generated certificate in this directory. Default: in the user's state directory.
    #[arg(long, value_name = "DIR", conflicts_with = "cert", help_heading = "Security")]
    state_dir: Option<PathBuf>,
}

impl CertArgs {
    fn identity(&self) -> Result<Identity, Failure> {
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Identity::from_pem_files(cert, key),
            _ => Identity::from_state_dir(&freshline::state_dir(self.state_dir.as_deref())?),
        };
        identity.into_diagnostic().map_err(Failure::Usage)
    }
}

/// The settings of the sender.
#[derive(Debug, clap::Args)]
struct How {
    /// Choose the path of the next packet by this scheduler: qaware, earliest, min_srtt,
    /// round_robin, ecf, blest, daps, linger (mainline Linux's default) or freshest. Each end
    /// chooses for its own packets.
    #[arg(long, value_name = "NAME", default_value = "qaware", help_heading = "Sending")]
    scheduler: String,
    /// Weigh the old mean with this, 0 to below 1, in QAware's service time and in Freshest's mean
    /// queueing delay [default: 0.8].
    #[arg(long, value_name = "WEIGHT", help_heading = "Sending")]
    alpha: Option<f64>,
    /// Estimate the service time of a path in this way (qaware) [default: per-packet].
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Sending")]
    estimator: Option<EstimatorName>,
    /// Apply this hysteresis (ecf and earliest), 0 to 10: a larger one makes them wait for the fast
    /// path for longer, once they wait [default: 0.25].
    #[arg(long, value_name = "FACTOR", help_heading = "Sending")]
    beta: Option<f64>,
    /// Scale the forecast of how much the fast path sends by this factor at the start (blest), 1 to
    /// 1.3: a larger one makes blest wait for the fast path more often [default: 1.2].
    #[arg(long, value_name = "FACTOR", help_heading = "Sending")]
    lambda: Option<f64>,
    /// Couple the congestion windows of all paths, so that paths through one bottleneck together
    /// take as much as one flow: lia (RFC 6356) or olia; none: each path on its own. Default: lia,
    /// or none with --congestion.
    #[arg(long, value_name = "NAME", help_heading = "Sending")]
    coupling: Option<CouplingName>,
    /// Control the congestion window of each path on its own: cubic or bbr. Default: cubic.
    #[arg(long, value_name = "NAME", help_heading = "Sending")]
    congestion: Option<CongestionName>,
    /// Limit the receive window of one connection to this many bytes; a slow reader gets a smaller
    /// one.
    #[arg(long, value_name = "BYTES", default_value = "1MB", help_heading = "Sending")]
    max_window: Bytes,
    /// Limit the data of all connections of a peer that this end holds to this many bytes together.
    /// When connections that read nothing hold three quarters of it, those stalled for longest are
    /// closed.
    #[arg(long, value_name = "BYTES", default_value = "32MB", help_heading = "Sending")]
    memory: Bytes,
    /// Keep an idle path open by a packet this often, 1s to 20s; a busy path sends once a second.
    #[arg(long, value_name = "TIME", default_value = "15s", help_heading = "Sending")]
    keep_alive: Span,
    /// Accept at most N connections from one client.
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Sending")]
    max_streams: u32,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum CongestionName {
    Cubic,
    Bbr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum CouplingName {
    None,
    Lia,
    Olia,
}

impl How {
    /// The coupling of windows, and the congestion control if they are not coupled.
    fn congestion(&self) -> Result<(Option<CoupledLaw>, Congestion), Failure> {
        let coupling = match self.coupling {
            Some(CouplingName::None) => None,
            Some(law) if self.congestion.is_some() => {
                return Err(Failure::Usage(miette!(
                    "--coupling {} controls all paths together; --congestion needs --coupling none",
                    if law == CouplingName::Lia { "lia" } else { "olia" }
                )));
            }
            Some(CouplingName::Olia) => Some(CoupledLaw::Olia),
            Some(CouplingName::Lia) => Some(CoupledLaw::Lia),
            None => self.congestion.is_none().then_some(CoupledLaw::Lia),
        };
        let congestion = match self.congestion {
            Some(CongestionName::Bbr) => Congestion::Bbr,
            Some(CongestionName::Cubic) | None => Congestion::Cubic,
        };
        Ok((coupling, congestion))
    }

    fn sending(&self) -> Result<Sending, Failure> {
        let tuning = Tuning {
            alpha: self.alpha,
            estimator: self.estimator.map(Into::into),
            beta: self.beta,
            lambda: self.lambda,
        };
        let scheduler = scheduler(&self.scheduler, tuning)?;
        if scheduler == SchedulerConfig::Redundant {
            return Err(Failure::Usage(miette!(
                "`redundant` sends copies of packets, and QUIC's streams have none; take another"
            )));
        }
        let range = 64 * 1024..=Sending::WIDEST;
        let window =
            u32::try_from(self.max_window.get()).ok().filter(|window| range.contains(window));
        let window =
            window.ok_or_else(|| Failure::Usage(miette!("--max-window is from 65536B to 2MB: more gaps than that holds end a connection of noq-proto")))?;
        let least = u64::from(window) * u64::from(Sending::MIN_WINDOWS);
        let memory = Some(self.memory.get()).filter(|memory| *memory >= least);
        let memory =
            memory.and_then(|memory| u32::try_from(memory).ok()).filter(|it| *it < 1 << 30);
        let memory = memory.ok_or_else(|| {
            Failure::Usage(miette!(
                "--memory is from {} times --max-window to 1 GB",
                Sending::MIN_WINDOWS
            ))
        })?;
        if !(1..=65_536).contains(&self.max_streams) {
            return Err(Failure::Usage(miette!("--max-streams is from 1 to 65536")));
        }
        if !(Span::from_secs(1)..=Sending::MAX_KEEP_ALIVE).contains(&self.keep_alive) {
            return Err(Failure::Usage(miette!("--keep-alive is from 1s to 20s")));
        }
        let (coupling, congestion) = self.congestion()?;
        Ok(Sending {
            scheduler,
            coupling,
            congestion,
            stream_window: window,
            memory,
            streams: self.max_streams,
            keep_alive: self.keep_alive,
        })
    }
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    raise_descriptor_limit();
    match args.command {
        Command::Client(args) => client::run(args),
        Command::Server(args) => server::run(args),
        Command::Identity(args) => {
            println!("{}", args.cert_args.identity()?.fingerprint());
            Ok(())
        }
    }
}

fn failure(error: BondError) -> Failure {
    match error {
        BondError::TooManyVias { .. } => Failure::Usage(miette::Report::msg(error)),
        error => Failure::Runtime(miette::Report::msg(error)),
    }
}

fn authorities(file: &Path) -> Result<Authorities, Failure> {
    Authorities::from_pem_file(file).into_diagnostic().map_err(Failure::Usage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use freshline_core::path::{BlestParams, EcfParams, Estimator, QAwareParams};

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        how: How,
    }

    fn sending(flags: &str) -> Result<SchedulerConfig, String> {
        let words = std::iter::once("bond").chain(flags.split_whitespace());
        let flags = Flags::try_parse_from(words).map_err(|error| error.to_string())?;
        flags.how.sending().map(|sending| sending.scheduler).map_err(|failure| match failure {
            Failure::Usage(report) => report.to_string(),
            _ => panic!("not an error of usage"),
        })
    }

    #[test]
    fn settings_reach_the_scheduler_that_has_them() {
        let estimator = Estimator::Algorithm1;
        let qaware = SchedulerConfig::QAware(QAwareParams { alpha: 0.5, estimator });
        assert_eq!(sending("--alpha 0.5 --estimator algorithm-1"), Ok(qaware));
        let ecf = SchedulerConfig::Ecf(EcfParams { beta: 0.5, ..EcfParams::default() });
        assert_eq!(sending("--scheduler ecf --beta 0.5"), Ok(ecf));
        let blest = BlestParams { lambda: 1.1, ..BlestParams::default() };
        let lambda = "--scheduler blest --lambda 1.1";
        assert_eq!(sending(lambda), Ok(SchedulerConfig::Blest(blest)));
    }

    #[test]
    fn settings_of_others_and_beyond_their_ranges_are_refused() {
        for (flags, reason) in [
            ("--beta 0.5", "`qaware` has no `beta`, which belongs to ecf and earliest"),
            ("--scheduler daps --lambda 1.1", "`daps` has no `lambda`, which belongs to blest"),
            ("--scheduler blest --lambda 2", "`lambda` is 2, which is not within `bounds`"),
            ("--alpha 1", "`alpha` is 1, which is not from 0 to below 1"),
            ("--scheduler ecf --beta 11", "`beta` is 11, which is not from 0 to 10"),
            ("--estimator mean", "algorithm-1"),
            ("--scheduler redundant", "QUIC's streams have none"),
        ] {
            let told = sending(flags).unwrap_err();
            assert!(told.contains(reason), "{flags}: {told}");
        }
    }
}
