//! `freshline router run`: a device's queue, in our hands.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use freshline_core::router::{
    AoiShare, Classifier, IfcConfig, QdiscConfig, SchedulerParams, SdmParams, TdmParams,
};
use freshline_core::unit::{BitRate, Span};
use freshline_net::clock::Clock;
use freshline_net::router::{Order, Orders, Router, RouterConfig, RouterError, Via, serve_metrics};
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Deserialize;

use super::table;
use crate::Failure;
use crate::output::{printed, stop_on_signals};

/// Hold what leaves through a device, and let it go at a rate and in an order of our own.
///
/// The kernel hands over all that leaves through the device, forwarded or from this machine, by a
/// rule that it removes when the router ends, however it ends; from then on packets pass as before.
/// Shape to a little less than the link gives, or packets wait behind the router, where nobody
/// looks after them. Needs root.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

Half of an uplink of 20 Mbit/s for updates, which UDP is taken for, as long as other traffic waits:

    freshline router run --dev eth1 --rate 19mbit --queue ifc --aoi-share 0.5

Updates are what is marked so (DSCP 46), but for DNS; change the share a little later:

    freshline router run --dev eth1 --rate 19mbit --classify 'port:53=drop_averse dscp:46'
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
1  root, the kernel's packet filter or an address is not to be had, or another router has the device
2  the flags or the file cannot be understood, or there is no such device
130  a second Ctrl-C, when the end hangs")]
pub(super) struct Args {
    /// The device through which the packets leave.
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,
    /// Make a TUN device of this name instead: what is routed into it comes out of it again, shaped.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["dev", "queue_number"])]
    tun: Option<String>,
    /// The rate to shape to, such as 20mbit: a little less than the link behind the device gives.
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// The queue: ifc (freshness control) unless said, ifil, fifo, lifo, red, codel, drr, fq_codel,
    /// or the limit of a drop-tail queue such as 100p or 64kB.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QdiscConfig>,
    /// The share of the link that updates have while other traffic waits, too: 0 to 1; 0.5 unless
    /// said (ifc).
    #[arg(long, value_name = "SHARE", help_heading = "Freshness control")]
    aoi_share: Option<AoiShare>,
    /// How the share is kept: sdm counts bytes, tdm divides time; sdm unless said (ifc).
    #[arg(long, value_name = "SCHEDULER", help_heading = "Freshness control")]
    scheduler: Option<SchedulerName>,
    /// The frame of tdm, such as 100ms.
    #[arg(long, value_name = "TIME", help_heading = "Freshness control")]
    frame: Option<Span>,
    /// What updates are: udp, update (our own protocol over UDP), dscp:46,34 or port:5000-5010, or
    /// several such rules in a row; udp unless said (ifc).
    #[arg(long, value_name = "RULES", help_heading = "Freshness control")]
    classify: Option<Classifier>,
    /// The number of the kernel's queue; routers of several devices need several.
    #[arg(long, value_name = "N")]
    queue_number: Option<u16>,
    /// Read what is not given by flags from this file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://ADDR/metrics.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// Stop after this time, such as 10s; else Ctrl-C stops it.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Print the summary as one JSON document on standard output, and no table each second.
    #[arg(long)]
    json: bool,
}

/// What may stand in the file of --config.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    dev: Option<String>,
    tun: Option<String>,
    rate: Option<BitRate>,
    queue: Option<QdiscConfig>,
    queue_number: Option<u16>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum SchedulerName {
    Sdm,
    Tdm,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let config = config(&args).map_err(Failure::Usage)?;
    eprintln!("{} at {}, queue {}", config.device, config.rate, config.queue);
    let stop = stop_on_signals()?;
    let router = Router::open(config).map_err(failure)?;
    if let Some(address) = args.metrics {
        let orders = router.orders();
        let report = move || orders.give(Order::default()).map_err(|error| error.to_string());
        let address = serve_metrics(address, report).into_diagnostic().map_err(Failure::Runtime)?;
        eprintln!("metrics at http://{address}/metrics");
    }
    if !args.json {
        let orders = router.orders();
        thread::spawn(move || tell_each_second(&orders));
    }
    let until = args.duration.map(|duration| Clock::new().now() + duration);
    let report = router.run(&stop, until).map_err(failure)?;
    table::print(&report, args.json)
}

/// What the file and the flags say together.
fn config(args: &Args) -> miette::Result<RouterConfig> {
    let file = args.config.as_deref().map(read).transpose()?.unwrap_or_default();
    let number = args.queue_number.or(file.queue_number);
    let device = match via(&args.dev, &args.tun, number)? {
        Some(device) => Some(device),
        None => via(&file.dev, &file.tun, number)?,
    };
    let rate = args.rate.or(file.rate);
    let mut queue =
        args.queue.clone().or(file.queue).unwrap_or_else(|| QdiscConfig::Ifc(Box::default()));
    match &mut queue {
        QdiscConfig::Ifc(ifc) => adjust(ifc, args)?,
        QdiscConfig::Dual(_) => {
            return Err(miette!(
                "`dual` serves bands, which only the host that a packet leaves can tell; give \
                 --queue fq_codel, or use `freshline uplink` on that host"
            ));
        }
        other => {
            let given = args.aoi_share.is_some() || args.scheduler.is_some();
            if given || args.frame.is_some() || args.classify.is_some() {
                return Err(miette!(
                    "--aoi-share, --scheduler, --frame and --classify are for --queue ifc; `{other}` \
                     does not tell classes apart"
                ));
            }
        }
    }
    let (device, via) =
        device.ok_or_else(|| miette!("which device? give --dev, such as --dev eth1"))?;
    let rate = rate.ok_or_else(|| {
        miette!("at which rate? give --rate, a little less than the link has, such as 19mbit")
    })?;
    Ok(RouterConfig { device, via, rate, queue })
}

/// The device of which flags or file speak, if they do.
fn via(
    dev: &Option<String>,
    tun: &Option<String>,
    queue_number: Option<u16>,
) -> miette::Result<Option<(String, Via)>> {
    match (dev, tun) {
        (None, None) => Ok(None),
        (Some(dev), None) => {
            Ok(Some((dev.clone(), queue_number.map_or_else(Via::default, Via::Nfqueue))))
        }
        (None, Some(tun)) => Ok(Some((tun.clone(), Via::Tun))),
        (Some(_), Some(_)) => Err(miette!("`dev` and `tun` exclude each other; give one of them")),
    }
}

fn read(path: &Path) -> miette::Result<File> {
    let text = std::fs::read_to_string(path)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).into_diagnostic().wrap_err_with(|| format!("{}", path.display()))
}

/// Freshness control as the flags want it.
fn adjust(ifc: &mut IfcConfig, args: &Args) -> miette::Result<()> {
    if let Some(share) = args.aoi_share {
        ifc.aoi_share = share;
    }
    if let Some(classifier) = &args.classify {
        ifc.classifier = classifier.clone();
    }
    // Another scheduler than the file's has its defaults; the file's own keeps its settings.
    match (args.scheduler, ifc.scheduler) {
        (Some(SchedulerName::Sdm), SchedulerParams::Tdm(_)) => {
            ifc.scheduler = SchedulerParams::Sdm(SdmParams::default());
        }
        (Some(SchedulerName::Tdm), SchedulerParams::Sdm(_)) => {
            ifc.scheduler = SchedulerParams::Tdm(TdmParams::default());
        }
        _ => {}
    }
    if let Some(frame) = args.frame {
        match &mut ifc.scheduler {
            SchedulerParams::Tdm(params) => params.frame = frame,
            SchedulerParams::Sdm(_) => {
                return Err(miette!("--frame is for --scheduler tdm; sdm has no frame"));
            }
        }
    }
    Ok(())
}

fn failure(error: RouterError) -> Failure {
    let usage =
        matches!(error, RouterError::NoDevice(_) | RouterError::ZeroRate | RouterError::Queue(_));
    let report = miette::Report::msg(error);
    if usage { Failure::Usage(report) } else { Failure::Runtime(report) }
}

fn tell_each_second(orders: &Orders) {
    loop {
        thread::sleep(Duration::from_secs(1));
        let Ok(report) = orders.give(Order::default()) else { return };
        if printed(table::write(&mut io::stderr().lock(), &report)).is_err() {
            return;
        }
    }
}
