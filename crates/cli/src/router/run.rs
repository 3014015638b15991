//! `freshline router run`: replaces a device's queue in user space.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use freshline_core::unit::Span;
use freshline_net::clock::Clock;
use freshline_net::router::{
    Order, OrderError, Orders, Router, RouterConfig, RouterError, serve_metrics,
};
use freshline_system::privileges::Privilege;
use miette::IntoDiagnostic;

use super::flags::{Chosen, Flags, say_updates};
use super::{is_in_kernel, table};
use crate::failure::Failure;
use crate::output::{printed, stop_on_signals};
use crate::privileges::Needs;

/// Shape and schedule a device's packets in user space, at a given rate and in the order of
/// --queue.
///
/// The kernel hands over all packets that leave through the device, forwarded or from this host, by
/// a rule that it removes when the router ends, however it ends; from then on packets pass as
/// before. Shape to a little less than the link's capacity; otherwise packets queue behind the
/// router, in a queue that it does not control. Needs root.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

Half of an uplink of 20 Mbit/s for updates of `freshline source` while other traffic is queued:

    freshline router run --dev eth1 --rate 19mbit --queue ifc --aoi-share 0.5

Updates of other programs, by their mark and by their ports; change the share a little later:

    freshline router run --dev eth1 --rate 19mbit \\
        --classify 'update; dscp=EF; udp and dport=5000-5010 and src=10.0.0.0/8'
    freshline router set --dev eth1 --aoi-share 0.3

All of it in a file, with metrics for Prometheus:

    cat > router.toml <<END
    dev = \"eth1\"
    rate = \"19mbit\"
    queue = { discipline = \"ifc\", scheduler = \"tdm\", frame = \"100ms\", aoi_share = 0.5 }
    END
    freshline router run --config router.toml --metrics 127.0.0.1:9091

EXIT CODES

0  ended by --duration or Ctrl-C, with the summary
1  not root, cannot use the kernel's packet filter or bind the address, or another router has the
   device
2  the flags or the file cannot be understood, or there is no such device
130  a second Ctrl-C, when the end hangs")]
pub(super) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Let packets pass without the router if it has not run for this time, because it hangs or is
    /// stopped; from 1s to 1h. They are shaped again as soon as it runs. Packets also pass while a
    /// change of nf_tables, such as a large `nft -f`, takes longer than a third of this time. No
    /// effect on --tun.
    #[arg(long, value_name = "TIME", default_value_t = RouterConfig::FAIL_OPEN)]
    fail_open: Span,
    /// Serve metrics for Prometheus at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// Stop after this time, such as 10s; by default, Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Print the summary as one JSON document on standard output, and no table each second.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let config = args.flags.chosen().and_then(Chosen::with_rate).map_err(Failure::Usage)?;
    let config = RouterConfig { fail_open: args.fail_open, ..config };
    route(config, args.metrics, args.duration, args.json)
}

/// Routes in user space until it is stopped, or for `duration`.
pub(super) fn route(
    config: RouterConfig,
    metrics: Option<SocketAddr>,
    duration: Option<Span>,
    json: bool,
) -> Result<(), Failure> {
    say!("{} at {}, queue {}", config.device, config.rate, config.queue);
    say_updates(&config.queue, "look like streams");
    if is_in_kernel(&config.device) {
        return Err(Failure::Runtime(miette::miette!(
            "the kernel shapes {0} already (`freshline router attach`); `freshline router set --dev \
             {0}` changes that, `freshline router detach --dev {0}` ends it",
            config.device
        )));
    }
    Needs::new(&[Privilege::CAP_NET_ADMIN]).listens(metrics).give_up_others();
    let stop = stop_on_signals()?;
    let router = Router::open(config).map_err(failure)?;
    if let Some(address) = metrics {
        let orders = router.orders();
        let report = move || orders.give(Order::default()).map_err(|error| error.to_string());
        let address = serve_metrics(address, report).into_diagnostic().map_err(Failure::Runtime)?;
        say!("metrics at http://{address}/metrics");
    }
    if !json {
        let orders = router.orders();
        thread::spawn(move || print_each_second(&orders));
    }
    let until = duration.map(|duration| Clock::new().now() + duration);
    let report = router.run(&stop, until).map_err(failure)?;
    table::print(&report, json)
}

pub(super) fn failure(error: RouterError) -> Failure {
    let usage = matches!(
        error,
        RouterError::NoDevice(_)
            | RouterError::Port { .. }
            | RouterError::ZeroRate
            | RouterError::FailOpen(_)
            | RouterError::Queue(_)
    );
    let report = miette::Report::msg(error);
    if usage { Failure::Usage(report) } else { Failure::Runtime(report) }
}

fn print_each_second(orders: &Orders) {
    loop {
        thread::sleep(Duration::from_secs(1));
        let report = match orders.give(Order::default()) {
            Ok(report) => report,
            Err(OrderError::Gone) => return,
            Err(_) => continue,
        };
        if printed(table::write(&mut crate::said::Stderr, &report)).is_err() {
            return;
        }
    }
}
