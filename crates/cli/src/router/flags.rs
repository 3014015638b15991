//! The flags of `freshline router run` and `freshline router attach`: device, rate and queue.

use std::path::{Path, PathBuf};

use freshline_core::link::Framing;
use freshline_core::router::{
    AoiShare, Classifier, Credit, IfcConfig, Isolation, QdiscConfig, SchedulerParams, SdmParams,
    TdmParams,
};
use freshline_core::unit::{BitRate, Bytes, Span};
use freshline_net::router::{RouterConfig, Via};
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Deserialize;

/// The device, its rate and its queue.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// Control the packets that leave through this device.
    #[arg(long, value_name = "DEV")]
    dev: Option<String>,
    /// Create a TUN device with this name instead: packets routed into it come out of it again,
    /// shaped.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["dev", "queue_number"])]
    tun: Option<String>,
    /// Shape to this rate, such as 20mbit: a little less than the capacity of the link behind the
    /// device. `attach` works without it, at the device's own rate.
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Count the link's overhead per packet: a keyword of `tc-cake` such as ethernet, docsis,
    /// pppoe-ptm or pppoe-vcmux, or words such as 'overhead 44 mpu 84 atm'. Default: none.
    #[arg(long, value_name = "FRAMING", help_heading = "Link layer")]
    framing: Option<Framing>,
    /// Count this many bytes of the link layer for each packet, such as 38; overrides --framing's.
    #[arg(long, value_name = "BYTES", help_heading = "Link layer", value_parser = few_bytes)]
    overhead: Option<Bytes>,
    /// Count each packet, with its overhead, as at least this many bytes (minimum packet unit), such
    /// as 84; overrides --framing's.
    #[arg(long, value_name = "BYTES", help_heading = "Link layer", value_parser = few_bytes)]
    mpu: Option<Bytes>,
    /// Use this queue: ifc (freshness control), ifil, fifo, lifo, red, codel, drr, fq_codel, or the
    /// limit of a drop-tail queue such as 100p or 64kB. Default: ifc.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QdiscConfig>,
    /// Give updates this share of the link while other traffic is queued, too: 0 to 1 (ifc).
    /// Default: 0.5.
    #[arg(long, value_name = "SHARE", help_heading = "Freshness control")]
    aoi_share: Option<AoiShare>,
    /// Keep the share by this scheduler: sdm counts bytes, tdm divides time (ifc). Default: sdm.
    #[arg(long, value_name = "SCHEDULER", help_heading = "Freshness control")]
    scheduler: Option<SchedulerName>,
    /// Set the frame of tdm, such as 100ms.
    #[arg(long, value_name = "TIME", help_heading = "Freshness control")]
    frame: Option<Span>,
    /// Let a class send up to this many bytes ahead of its share after it was idle (sdm), or
    /// `unlimited`, as in the paper. Default: 65536B.
    #[arg(long, value_name = "BYTES", help_heading = "Freshness control")]
    credit: Option<Credit>,
    /// Choose the units that take turns among updates (ifc, ifil): `host`, source addresses (of
    /// IPv6 the first 64 bits), so that a host gains nothing from many ports; or `flow`, each
    /// 5-tuple, as in the paper. Default: host.
    #[arg(long, value_name = "WHAT", help_heading = "Freshness control")]
    isolate: Option<IsolationName>,
    /// Choose which packets are updates (ifc); default: `update`, this project's own protocol.
    ///
    /// Rules such as `dscp=EF`, `udp and dport=5000-5010 and src=10.0.0.0/8` or
    /// `port=53 as drop_averse`, separated by `;`. The first rule that matches decides; all other
    /// packets are queued and not replaced. Flows that look like streams are not replaced either,
    /// unless the rule ends with `force`. Fields: dscp, proto, port, sport, dport, host, src, dst;
    /// also any, udp, tcp, update, not, and, or, parentheses.
    #[arg(long, value_name = "RULES", help_heading = "Freshness control")]
    classify: Option<Classifier>,
    /// Use this kernel queue (NFQUEUE number); routers of several devices need different ones.
    #[arg(long, value_name = "N")]
    queue_number: Option<u16>,
    /// Read settings from this TOML file; flags override them.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The keys of the file of --config.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    dev: Option<String>,
    tun: Option<String>,
    rate: Option<BitRate>,
    framing: Option<Framing>,
    queue: Option<QdiscConfig>,
    queue_number: Option<u16>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum SchedulerName {
    Sdm,
    Tdm,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum IsolationName {
    Host,
    Flow,
}

/// The settings of file and flags together: a [`RouterConfig`] whose rate may be unset, which means
/// the device's own.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) device: String,
    pub(super) via: Via,
    pub(super) rate: Option<BitRate>,
    pub(super) framing: Framing,
    pub(super) queue: QdiscConfig,
}

impl Chosen {
    /// The settings of a router in user space, which needs a rate.
    pub(super) fn with_rate(self) -> miette::Result<RouterConfig> {
        let Self { device, via, rate, framing, queue } = self;
        let rate = rate.ok_or_else(|| {
            miette!("no rate: give --rate, a little less than the link's capacity, such as 19mbit")
        })?;
        let fail_open = RouterConfig::FAIL_OPEN;
        Ok(RouterConfig { device, via, rate, framing, queue, fail_open })
    }
}

impl Flags {
    /// The settings of file and flags together.
    pub(super) fn chosen(&self) -> miette::Result<Chosen> {
        chosen(self)
    }
}

fn chosen(args: &Flags) -> miette::Result<Chosen> {
    let file = args.config.as_deref().map(read).transpose()?.unwrap_or_default();
    let number = args.queue_number.or(file.queue_number);
    let device = match via(&args.dev, &args.tun, number)? {
        Some(device) => Some(device),
        None => via(&file.dev, &file.tun, number)?,
    };
    let rate = args.rate.or(file.rate);
    let mut framing = args.framing.or(file.framing).unwrap_or_default();
    framing.overhead = args.overhead.unwrap_or(framing.overhead);
    framing.mpu = args.mpu.unwrap_or(framing.mpu);
    let mut queue =
        args.queue.clone().or(file.queue).unwrap_or_else(|| QdiscConfig::Ifc(Box::default()));
    if let Some(name) = args.isolate {
        isolate(&mut queue, name)?;
    }
    match &mut queue {
        QdiscConfig::Ifc(ifc) => adjust(ifc, args)?,
        QdiscConfig::Dual(_) => {
            return Err(miette!(
                "`dual` serves bands, which are known only on the sending host; give \
                 --queue fq_codel, or use `freshline uplink` on that host"
            ));
        }
        other => {
            let given = [
                args.aoi_share.is_some(),
                args.scheduler.is_some(),
                args.frame.is_some(),
                args.credit.is_some(),
                args.classify.is_some(),
            ];
            if given.contains(&true) {
                return Err(miette!(
                    "--aoi-share, --scheduler, --frame, --credit and --classify are for --queue \
                     ifc; `{other}` does not distinguish classes"
                ));
            }
        }
    }
    let (device, via) =
        device.ok_or_else(|| miette!("no device: give --dev, such as --dev eth1"))?;
    if rate.is_none() && framing != Framing::default() {
        return Err(miette!(
            "--framing, --overhead and --mpu need a rate; give --rate, such as 19mbit"
        ));
    }
    Ok(Chosen { device, via, rate, framing, queue })
}

/// Makes updates take turns by hosts or by flows.
fn isolate(queue: &mut QdiscConfig, name: IsolationName) -> miette::Result<()> {
    let isolate = Some(match name {
        IsolationName::Host => Isolation::Host,
        IsolationName::Flow => Isolation::Flow,
    });
    let updates = match queue {
        QdiscConfig::Ifc(ifc) => &mut ifc.aoi,
        other => other,
    };
    match updates {
        QdiscConfig::Ifil(params) => params.isolate = isolate,
        other => {
            return Err(miette!(
                "--isolate is for `ifil`, alone or as the queue of updates in `ifc`; `{other}` does \
                 not replace updates"
            ));
        }
    }
    Ok(())
}

/// A number of bytes for [`Framing`], with or without its unit.
fn few_bytes(text: &str) -> Result<Bytes, String> {
    let framing = format!("overhead {text}").parse::<Framing>();
    framing
        .map(|framing| framing.overhead)
        .map_err(|_| "give 0 to 256 bytes, such as 38".to_owned())
}

/// Prints the packets that a queue treats as updates, and replaces by newer ones. `streams`
/// describes the flows that are excepted.
pub(super) fn say_updates(queue: &QdiscConfig, streams: &str) {
    match queue {
        QdiscConfig::Ifc(ifc) => {
            let streams = if ifc.classifier.rules.iter().all(|rule| rule.force) {
                "even in streams".to_owned()
            } else {
                format!("except in flows that {streams}, unless a rule has `force`")
            };
            say!(
                "updates, of which only the newest of each flow is kept: `{}`, {streams}",
                ifc.classifier
            );
        }
        QdiscConfig::Ifil(_) => say!(
            "all packets are treated as updates: of each flow, TCP included, only the newest is kept"
        ),
        _ => {}
    }
}

/// The device that flags or file name, if any.
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

/// Applies the flags to freshness control.
fn adjust(ifc: &mut IfcConfig, args: &Flags) -> miette::Result<()> {
    if let Some(share) = args.aoi_share {
        ifc.aoi_share = share;
    }
    if let Some(classifier) = &args.classify {
        ifc.classifier = classifier.clone();
    }
    // A scheduler other than that of the file starts from its defaults; that of the file keeps its
    // settings.
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
    if let Some(credit) = args.credit {
        match &mut ifc.scheduler {
            SchedulerParams::Sdm(params) => params.credit = credit,
            SchedulerParams::Tdm(_) => {
                return Err(miette!("--credit is for --scheduler sdm; tdm has no credit"));
            }
        }
    }
    Ok(())
}
