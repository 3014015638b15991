//! A flow over several paths, as described by a scenario.

use std::borrow::Cow;

use freshline_core::path::SchedulerConfig;
use freshline_core::receiver::{Remote, WindowLawConfig};
use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use rand_pcg::Pcg64;
use serde::Deserialize;

use crate::engine::Streams;
use crate::tcp::apps::{Cbr, Page, Pages, Video, VideoParams};
use crate::tcp::congestion::{
    Algorithm, CongestionControl, Coupled, Coupling, ParseAlgorithmError,
};
use crate::tcp::multipath::{MultipathParams, MultipathReceiver, MultipathSender};
use crate::tcp::{BufferParams, ReceiverParams, Sender, SenderParams, SmallQueue};
use crate::world::{Flow, Multipath, MultipathSource, Period};

/// A stream over several paths with its application; default: an endless bulk transfer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MultipathConfig {
    /// The links of each path, as in a flow's `path`; from 1 to [`MultipathConfig::MAX_PATHS`] paths.
    pub paths: Vec<Vec<String>>,
    /// The scheduler that selects the path of the next segment: a name, or a table with settings.
    pub scheduler: SchedulerConfig,
    /// The congestion control: a law for TCP streams, for each subflow independently, or `lia` or
    /// `olia`, which couple all subflows.
    pub control: MultipathControl,
    /// Opportunistic retransmission with penalties, and reinjection after timeouts.
    #[serde(default = "yes")]
    pub handler: bool,
    /// The payload of a full segment; default: 1428 bytes, which makes packets of 1500.
    pub segment: Option<Bytes>,
    /// The minimum of a retransmission timeout above the round trip; default: 200 ms.
    pub min_rto_margin: Option<Span>,
    /// The minimum of a retransmission timeout (`MinRto` of ns-3); no minimum by default.
    pub min_rto: Option<Span>,
    /// TCP small queues: a subflow stops while its packets in its device hold more memory than max(2
    /// packets, pacing rate / 2 to the power of this); no limit by default.
    pub pacing_shift: Option<u8>,
    /// Segments of each subflow's initial window; 10 by default.
    pub initial_window: Option<Packets>,
    /// The law of the one receive window; default: that of TCP in Linux.
    #[serde(default = "super::autotune")]
    pub receiver: WindowLawConfig,
    /// The initial and the maximum receive buffer over all paths; default: those of Linux.
    pub receive_buffer: Option<[Bytes; 2]>,
    /// The initial and the maximum send buffer over all paths; default: those of Linux.
    pub send_buffer: Option<[Bytes; 2]>,
    /// Writes blocks of `block` bytes at this rate, instead of a bulk transfer.
    pub rate: Option<BitRate>,
    /// With `rate`: drops a block that does not fit into the send buffer as a whole, instead of
    /// queueing it.
    #[serde(default)]
    pub drop: bool,
    /// Paths carry independent TCP streams, each with its own send buffer and receive window; the
    /// scheduler assigns each block of a `rate` with `drop` to one of them.
    #[serde(default)]
    pub independent: bool,
    /// With `rate` or `pages`: the size of a block; default: a full segment.
    pub block: Option<Bytes>,
    /// Sends a file of this size and closes, instead of a bulk transfer.
    pub file: Option<Bytes>,
    /// Loads these pages one after the other and closes, instead of a bulk transfer.
    #[serde(default)]
    pub pages: Vec<PageConfig>,
    /// With `pages`: the bounds of each object's rate, uniformly distributed.
    pub rates: Option<[BitRate; 2]>,
    /// Fetches and plays this video and closes, instead of a bulk transfer.
    pub video: Option<VideoConfig>,
}

/// The congestion control of subflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum MultipathControl {
    /// Each subflow independently.
    Alone(Algorithm),
    /// [`Coupled::lia`].
    Lia,
    /// [`Coupled::olia`].
    Olia,
}

impl TryFrom<String> for MultipathControl {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "lia" => Ok(Self::Lia),
            "olia" => Ok(Self::Olia),
            other => other.parse().map(Self::Alone).map_err(|error: ParseAlgorithmError| {
                format!("{error}; or lia or olia, which couple the paths")
            }),
        }
    }
}

impl MultipathControl {
    /// The law of an additional subflow.
    fn build(
        self,
        initial: Packets,
        coupling: &Coupling,
        segment: Bytes,
        rng: Pcg64,
    ) -> Box<dyn CongestionControl> {
        match self {
            Self::Alone(algorithm) => algorithm.build(initial, segment, rng),
            Self::Lia => Box::new(Coupled::lia(initial, coupling)),
            Self::Olia => Box::new(Coupled::olia(initial, coupling)),
        }
    }
}

/// A web page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageConfig {
    /// The number of objects.
    pub objects: u64,
    /// The size of all objects together.
    pub size: Bytes,
}

/// A video, fetched in segments whose bitrate BOLA chooses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VideoConfig {
    /// The available bitrates in ascending order.
    pub rates: Vec<BitRate>,
    /// The playing time, a multiple of `segment`.
    pub length: Span,
    /// The length of a segment.
    pub segment: Span,
    /// The playback buffer, longer than a segment.
    pub buffer: Span,
    /// The delay of a request to the server; default: zero.
    #[serde(default)]
    pub request: Span,
}

impl VideoConfig {
    fn build(&self, starts_at: Time) -> Result<Video, &'static str> {
        let rises = self.rates.is_sorted_by(|low, high| low < high);
        if !rises || self.rates.first().is_none_or(|least| *least == BitRate::from_bps(0)) {
            return Err("`video.rates` needs bitrates above zero, rising");
        }
        let segments = self.length.as_nanos().checked_div(self.segment.as_nanos());
        let Some(segments @ 1..) = segments else {
            return Err("`video.length` is shorter than a `segment`, or that is zero");
        };
        if self.buffer <= self.segment {
            return Err("`video.buffer` is not longer than a `segment`");
        }
        let Self { rates, segment, buffer, request, .. } = self.clone();
        Ok(Video::new(starts_at, VideoParams { rates, segment, segments, buffer, request }))
    }
}

/// MPTCP's option takes 20 bytes of a packet of 1500.
const SEGMENT: Bytes = Bytes::new(1428);
/// The initial window of a subflow (RFC 6928).
const INITIAL_WINDOW: Packets = Packets::new(10);

fn yes() -> bool {
    true
}

impl MultipathConfig {
    /// The maximum number of paths of a flow.
    pub const MAX_PATHS: usize = 8;

    /// The flow with the number `index`, which sends during `period`; equal flows share `remote`.
    pub(super) fn build(
        &self,
        period: Period,
        streams: Streams,
        index: usize,
        remote: &Remote,
    ) -> Result<Flow, Cow<'static, str>> {
        let segment = self.segment.unwrap_or(SEGMENT);
        let buffer = |[default, max]: [Bytes; 2]| BufferParams { default, max };
        let receive = self.receive_buffer.map_or(BufferParams::RECEIVE, buffer);
        let send = self.send_buffer.map_or(BufferParams::SEND, buffer);
        self.check(segment, receive, send)?;
        let scheduler = self.scheduler.build().map_err(|error| format!("`scheduler`: {error}"))?;
        let window = || {
            let window = self.receiver.build(receive.windows(), remote);
            window.map_err(|error| format!("`receiver`: {error}"))
        };
        let source = self.source(period.from, segment, streams.stream("pages", index))?;
        // The buffer over all subflows is the limit, so that of each subflow is as large as it can
        // use.
        let params = SenderParams {
            segment,
            buffer: if self.independent { send } else { UNBOUNDED },
            min_rto_margin: self.min_rto_margin.unwrap_or(SenderParams::default().min_rto_margin),
            min_rto: self.min_rto.unwrap_or(SenderParams::default().min_rto),
            small_queue: self.pacing_shift.map(|pacing_shift| SmallQueue { pacing_shift }),
            ..SenderParams::default()
        };
        let initial = self.initial_window.unwrap_or(INITIAL_WINDOW);
        if initial == Packets::ZERO {
            return Err("`initial_window` is 0p; give at least 1p".into());
        }
        let coupling = Coupling::new();
        let sender = |path: usize| {
            let rng = streams.stream("subflow", index * Self::MAX_PATHS + path);
            Sender::new(params, self.control.build(initial, &coupling, segment, rng))
        };
        let senders = (0..self.paths.len()).map(sender).collect();
        let Self { handler, independent, .. } = *self;
        let params = MultipathParams { segment, buffer: send, handler, independent };
        let sender = MultipathSender::new(params, senders, scheduler);
        let params = ReceiverParams::default();
        let receiver = if independent {
            let windows = self.paths.iter().map(|_| window()).collect::<Result<_, _>>()?;
            MultipathReceiver::independent(params, windows)
        } else {
            MultipathReceiver::new(self.paths.len(), params, window()?)
        };
        Ok(Flow::Multipath(Multipath::new(sender, receiver, source, period)))
    }

    /// Rejects incompatible settings.
    fn check(
        &self,
        segment: Bytes,
        receive: BufferParams,
        send: BufferParams,
    ) -> Result<(), Cow<'static, str>> {
        if !(1..=Self::MAX_PATHS).contains(&self.paths.len()) {
            return Err(format!(
                "`paths` has {}; give from 1 to {}",
                self.paths.len(),
                Self::MAX_PATHS
            )
            .into());
        }
        if !(Bytes::new(1)..=Bytes::new(65_475)).contains(&segment) {
            return Err(format!("`segment` is {segment}; give from 1B to 65475B").into());
        }
        if [receive, send].iter().any(|buffer| buffer.default > buffer.max) {
            return Err("a buffer begins above its maximum; give [at first, at most]".into());
        }
        if receive.windows().initial < segment {
            return Err(format!(
                "`receive_buffer` begins below {}, two full segments",
                segment * 2
            )
            .into());
        }
        if self.drop && self.rate.is_none() {
            return Err("`drop` needs a `rate`".into());
        }
        if self.independent && !self.drop {
            return Err(
                "`independent` needs a `rate` and `drop = true`: each block is assigned when it \
                        is written"
                    .into(),
            );
        }
        Ok(())
    }

    fn source(
        &self,
        starts_at: Time,
        segment: Bytes,
        rng: Pcg64,
    ) -> Result<MultipathSource, &'static str> {
        let [pages, video] = [!self.pages.is_empty(), self.video.is_some()];
        let kinds = [self.rate.is_some(), self.file.is_some(), pages, video];
        if kinds.into_iter().filter(|given| *given).count() > 1 {
            return Err("`rate`, `file`, `pages` and `video` exclude each other");
        }
        if self.rates.is_some() && self.pages.is_empty() {
            return Err("`rates` needs `pages`");
        }
        if self.block.is_some() && self.rate.is_none() && self.pages.is_empty() {
            return Err("`block` needs a `rate` or `pages`");
        }
        let block = self.block.unwrap_or(segment);
        if block == Bytes::ZERO {
            return Err("`block` is zero; give its size");
        }
        if let Some(rate) = self.rate {
            if rate == BitRate::from_bps(0) {
                return Err("`rate` is zero");
            }
            let cbr = Cbr::new(starts_at, block, rate);
            return Ok(MultipathSource::Cbr(if self.drop { cbr.dropping() } else { cbr }));
        }
        if let Some(file) = self.file {
            return Ok(MultipathSource::File(file));
        }
        if let Some(video) = &self.video {
            return video.build(starts_at).map(MultipathSource::Video);
        }
        if self.pages.is_empty() {
            return Ok(MultipathSource::Bulk);
        }
        let is_empty = |page: &PageConfig| page.objects == 0 || page.size.get() < page.objects;
        if self.pages.iter().any(is_empty) {
            return Err("a page needs at least one of `objects`, and a byte of `size` for each");
        }
        let Some(rates @ [least, most]) = self.rates else {
            return Err("`pages` needs `rates`, the minimum and the maximum");
        };
        if least == BitRate::from_bps(0) || least > most {
            return Err("`rates` must be above zero, the minimum first");
        }
        let page = |page: &PageConfig| Page { objects: page.objects, size: page.size };
        let pages = self.pages.iter().map(page).collect();
        Ok(MultipathSource::Pages(Pages::new(starts_at, pages, rates, block, rng)))
    }
}

/// Room for any window.
const UNBOUNDED: BufferParams =
    BufferParams { default: Bytes::new(1 << 40), max: Bytes::new(1 << 40) };
