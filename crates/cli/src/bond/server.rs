//! `freshline bond server`: runs where the paths meet.

use std::net::SocketAddr;
use std::path::PathBuf;

use freshline_core::unit::Span;
use freshline_net::bond::{Allow, Server, ServerConfig};
use freshline_net::clock::Clock;
use freshline_net::quic::{Clients, Fingerprint};
use freshline_system::privileges::Privilege;
use miette::miette;

use super::show::Show;
use super::{CertArgs, How, authorities, failure};
use crate::failure::Failure;
use crate::output::stop_on_signals;

/// Accept connections from clients, and connect to their destinations.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Listen at this UDP address. Port 0 takes a free one.
    #[arg(default_value = "0.0.0.0:3775", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    cert_args: CertArgs,
    /// Accept the client with this certificate; may be given several times.
    /// `freshline bond identity` prints the fingerprint on the client.
    #[arg(
        long,
        value_name = "sha256:HEX",
        conflicts_with = "client_ca",
        help_heading = "Security"
    )]
    client_pin: Vec<Fingerprint>,
    /// Accept clients with a certificate signed by one of these authorities.
    #[arg(long, value_name = "PEM", help_heading = "Security")]
    client_ca: Option<PathBuf>,
    /// Permit this network or destination, for TCP and UDP. Default: only public addresses, except
    /// for those of the server's own host and of its interfaces' networks.
    #[arg(long, value_name = "CIDR|HOST:PORT", value_delimiter = ',', help_heading = "Security")]
    allow: Vec<Allow>,
    /// Stop after this time, such as 10s; by default, Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    #[command(flatten)]
    show: Show,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let clients = match &args.client_ca {
        Some(file) => Clients::Authorities(authorities(file)?),
        None if args.client_pin.is_empty() => {
            return Err(Failure::Usage(miette!(
                help = "`freshline bond identity` prints a client's fingerprint: pass it on with \
                        --client-pin sha256:…, or name the authority that signs the clients' \
                        certificates with --client-ca",
                "no client is named: give --client-pin or --client-ca"
            )));
        }
        None => Clients::Pinned(args.client_pin.clone()),
    };
    let identity = args.cert_args.identity()?;
    let fingerprint = identity.fingerprint();
    // The privileges of the socket: for its port, and for buffers beyond the system's limit.
    let needs = args.show.needs(&[Privilege::CAP_NET_ADMIN]);
    needs.listens(Some(args.listen)).confine();
    let mut server = Server::bind(ServerConfig {
        listen: args.listen,
        identity,
        clients,
        sending: args.how.sending()?,
        allow: args.allow.clone(),
    })
    .map_err(failure)?;
    args.show.needs(&[]).give_up_others();
    let stop = stop_on_signals()?;
    let watcher = server.watcher();
    args.show.start(&watcher)?;
    let address = server.local_addr().map_err(failure)?;
    say!("listening at {address}\nfingerprint {fingerprint}");
    let until = args.duration.map(|duration| Clock::new().now() + duration);
    server.run(&stop, until).map_err(failure)?;
    args.show.end(&watcher)
}
