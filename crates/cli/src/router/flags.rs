//! What `freshline router run` and `freshline router attach` are told: a device, a rate and a queue.

use std::path::{Path, PathBuf};

use freshline_core::router::{
    AoiShare, Classifier, IfcConfig, QdiscConfig, SchedulerParams, SdmParams, TdmParams,
};
use freshline_core::unit::{BitRate, Span};
use freshline_net::router::{RouterConfig, Via};
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Deserialize;

/// What is shaped, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
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

impl Flags {
    /// What the file and the flags say together.
    pub(super) fn config(&self) -> miette::Result<RouterConfig> {
        config(self)
    }
}

fn config(args: &Flags) -> miette::Result<RouterConfig> {
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
fn adjust(ifc: &mut IfcConfig, args: &Flags) -> miette::Result<()> {
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
