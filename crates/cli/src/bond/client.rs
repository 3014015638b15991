//! `freshline bond client`: runs on the host with the paths.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use freshline_core::unit::Span;
use freshline_net::bond::{Client, ClientConfig, ListenConfig, Target, ViaPath};
use freshline_net::clock::Clock;
use freshline_net::dial::Remote;
use freshline_net::quic::{Fingerprint, Trust};
use miette::miette;

use super::show::Show;
use super::{CertArgs, How, authorities, failure};
use crate::failure::Failure;
use crate::output::stop_on_signals;
use crate::privileges::LEAVES_BY_INTERFACES;

/// Accept connections of programs, and carry them to the server over all paths.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Connect to this server.
    #[arg(value_name = "HOST:PORT")]
    server: Target,
    /// Send by these interfaces or local addresses; by default, by the routes. For a path on which
    /// the server has another address, give IF@ADDR:PORT.
    #[arg(long, value_name = "IF|ADDR", value_delimiter = ',')]
    via: Vec<ViaPath>,
    /// Listen at this address for programs that use SOCKS5 (TCP and UDP) or an HTTP proxy; the
    /// server resolves names.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Carry connections to LISTEN to HOST:PORT, as resolved by the server.
    #[arg(long, value_name = "LISTEN=HOST:PORT")]
    forward: Vec<Forward>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    cert_args: CertArgs,
    /// Trust the server with this certificate; it prints its fingerprint at start.
    #[arg(long, value_name = "sha256:HEX", conflicts_with = "ca", help_heading = "Security")]
    pin: Option<Fingerprint>,
    /// Trust servers with a certificate signed by one of these authorities.
    #[arg(long, value_name = "PEM", help_heading = "Security")]
    ca: Option<PathBuf>,
    /// Stop after this time, such as 10s; by default, Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    #[command(flatten)]
    show: Show,
}

/// A local port whose connections are carried to a destination.
#[derive(Debug, Clone)]
struct Forward {
    listen: SocketAddr,
    target: Target,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write for example 127.0.0.1:8080=example.org:80";
        let (listen, target) =
            text.split_once('=').ok_or_else(|| format!("`{text}` has no `=`; {example}"))?;
        Ok(Self {
            listen: listen
                .parse()
                .map_err(|_| format!("`{listen}` is not an address to listen at; {example}"))?,
            target: target.parse().map_err(|error| format!("{error}"))?,
        })
    }
}

/// The server by its name, or by its address with the zone of a link-local one.
fn remote(server: &Target) -> Remote {
    match server {
        Target::Address(address) => (*address).into(),
        Target::Name(name, port) => Remote::new(name, *port),
    }
}

/// Rejects duplicate paths: two flags would be one path, reported as two.
fn distinct(vias: &[ViaPath]) -> Result<(), Failure> {
    let same = |(index, path): &(usize, &ViaPath)| {
        vias[..*index].iter().any(|other| (&other.via, other.peer) == (&path.via, path.peer))
    };
    match vias.iter().enumerate().find(same) {
        None => Ok(()),
        Some((_, path)) => Err(Failure::Usage(miette!(
            help = "the same interface can be given again for another address of the server, as \
                    IF@ADDR:PORT",
            "--via {} is given twice",
            path.via
        ))),
    }
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let identity = args.cert_args.identity()?;
    let trust = match (args.pin, &args.ca) {
        (Some(pin), _) => Trust::Pinned(pin),
        (None, Some(file)) => Trust::Authorities(authorities(file)?),
        (None, None) => {
            return Err(Failure::Usage(miette!(
                help = "the server prints its fingerprint at start: pass it on with --pin \
                        sha256:…, or name the authority that signed its certificate with --ca",
                "the client needs a certificate to trust"
            )));
        }
    };
    distinct(&args.via)?;
    if args.forward.is_empty() && args.listen.is_empty() {
        return Err(Failure::Usage(miette!("nothing to carry: give --listen or --forward")));
    }
    let forwards = args
        .forward
        .into_iter()
        .map(|it| ListenConfig { address: it.listen, target: Some(it.target) });
    let listen = args
        .listen
        .into_iter()
        .map(|address| ListenConfig { address, target: None })
        .chain(forwards);
    let mut needs = args.show.needs(LEAVES_BY_INTERFACES);
    for ListenConfig { address, .. } in listen.clone() {
        needs = needs.listens(Some(address));
    }
    needs.confine();
    let mut client = Client::bind(ClientConfig {
        server: remote(&args.server),
        server_name: args.server.host(),
        trust,
        identity,
        vias: args.via,
        sending: args.how.sending()?,
        listen: listen.collect(),
    })
    .map_err(failure)?;
    let stop = stop_on_signals()?;
    let watcher = client.watcher();
    args.show.start(&watcher)?;
    // Printed last, because it reports that everything is ready, including metrics.
    for address in client.local_addrs().map_err(failure)? {
        say!("listening at {address}");
    }
    let until = args.duration.map(|duration| Clock::new().now() + duration);
    client.run(&stop, until).map_err(failure)?;
    args.show.end(&watcher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_via_is_refused_twice() {
        let refused = |vias: &str| {
            let vias: Vec<ViaPath> = vias.split(',').map(|via| via.parse().unwrap()).collect();
            distinct(&vias).is_err()
        };
        assert!(refused("wlan0,wwan0,wlan0"));
        assert!(refused("wlan0@192.0.2.7:3775,wlan0@192.0.2.7:3775"));
        assert!(!refused("wlan0,wwan0,wlan0@192.0.2.7:3775,wlan0@192.0.2.8:3775"));
    }

    #[test]
    fn a_link_local_server_keeps_its_zone() {
        let server: Target = "[fe80::1%3]:3775".parse().unwrap();
        let Some(SocketAddr::V6(address)) = remote(&server).literal() else { panic!("{server}") };
        assert_eq!((address.scope_id(), address.port()), (3, 3775));
    }
}
