//! `freshline advise`: finds where this host's network loses time, and which command fixes it.

mod collect;
mod diagnose;
mod finding;
mod gain;
mod observation;
mod prober;
mod remedy;
mod report;
mod root;
mod words;

use std::net::{IpAddr, ToSocketAddrs};

use freshline_core::unit::Span;
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::failure::Failure;
use crate::output::{print_json, printed, stop_on_signals};
use crate::run_length::run_length;
use collect::collect;
use diagnose::diagnose;
use prober::Prober;
use report::Report;
use words::printable;

/// Find out where the network of this host loses time, and which command fixes it.
///
/// Observes interfaces, queueing disciplines, TCP and UDP sockets and routes for --duration. It
/// sends nothing and changes nothing, so run it while the network is slow. Names the place where
/// time is lost: source, host, path, link, router, wlan or receiver; or reports that there is no
/// fault. Each recommended command was tried in the lab, on the bottleneck as it was measured;
/// commands that make it worse in the lab are not recommended.
///
/// With --target it also sends up to ten small packets per second, to find out in which direction a
/// queue is. It needs no privilege, except for --target without a port.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

While a video call stutters or an upload runs:

    freshline advise

Faster, for another program:

    freshline advise --duration 5s --json

With probes that separate both directions (ICMP timestamps, IPv4, needs root), or by TCP handshakes:

    freshline advise --target 192.0.2.1
    freshline advise --target example.net:443

EXIT CODES

0  done, with or without a fault, or ended early by Ctrl-C, with a shorter observation
1  the kernel does not report its sockets or interfaces, or probes cannot be sent
2  the flags cannot be understood, or the target has no address")]
pub(crate) struct Args {
    /// Observe for this long.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = run_length)]
    duration: Span,
    /// Probe this host, too: by ICMP timestamps (IPv4 only, needs root), or by TCP handshakes if a
    /// port is given.
    #[arg(long, value_name = "HOST[:PORT]")]
    target: Option<String>,
    /// Treat this interface as Wi-Fi although the kernel does not report it as such: behind an
    /// adapter or a bridge, or an emulated cell.
    #[arg(long, value_name = "DEV")]
    wlan: Vec<String>,
    /// Print one JSON document on standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let prober = args.target.as_deref().map(prober).transpose()?;
    let stop = stop_on_signals()?;
    if !args.json {
        say!("observing this host for {}; Ctrl-C ends it early", args.duration);
    }
    let seen = collect(args.duration, &args.wlan, prober, &stop)
        .into_diagnostic()
        .wrap_err("cannot observe this host")
        .map_err(Failure::Runtime)?;
    let report = Report::new(&seen, &diagnose(&seen));
    if args.json { print_json(&report) } else { printed(report.print()) }
}

fn prober(target: &str) -> Result<Prober, Failure> {
    let (host, port) = resolved(target).map_err(Failure::Usage)?;
    Prober::open(host, port)
        .into_diagnostic()
        .wrap_err(format!(
            "cannot probe {}; give a port to probe by TCP handshakes",
            printable(target)
        ))
        .map_err(Failure::Runtime)
}

/// The address of HOST or HOST:PORT. IPv4 is preferred, as IPv4 hosts answer with their clocks.
fn resolved(target: &str) -> miette::Result<(IpAddr, Option<u16>)> {
    if let Ok(host) = target.parse() {
        return Ok((host, None));
    }
    let port = target.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port == Some(0) {
        return Err(miette!("port 0 cannot be probed; give HOST or HOST:PORT"));
    }
    let address = if port.is_some() { target.to_owned() } else { format!("{target}:0") };
    let mut found: Vec<_> = address
        .to_socket_addrs()
        .into_diagnostic()
        .wrap_err(format!("{} has no address; give HOST or HOST:PORT", printable(target)))?
        .collect();
    found.sort_by_key(|address| !address.is_ipv4());
    let first = found.first().ok_or_else(|| miette!("{} has no address", printable(target)))?;
    Ok((first.ip(), port))
}

#[cfg(test)]
mod tests {
    use super::resolved;

    #[test]
    fn a_target_has_a_port_or_not() {
        let v4 = "192.0.2.1".parse().unwrap();
        assert_eq!(resolved("192.0.2.1").unwrap(), (v4, None));
        assert_eq!(resolved("192.0.2.1:443").unwrap(), (v4, Some(443)));
        assert_eq!(resolved("[2001:db8::1]:443").unwrap().1, Some(443));
        assert_eq!(resolved("2001:db8::1").unwrap().1, None);
        assert!(resolved("not a host:443").is_err());
        assert!(resolved("192.0.2.1:0").is_err());
    }
}
