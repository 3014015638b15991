#![doc = include_str!("guide.md")]

mod checks;
mod clock;
mod dialling;
pub mod driver;
mod error;
mod events;
#[cfg(feature = "monitor")]
mod listening;
#[cfg(feature = "monitor")]
mod max_ages;
#[cfg(feature = "monitor")]
mod monitor;
#[cfg(feature = "monitor")]
mod monitor_event;
// Subscriptions use all of it, and events a part.
mod polled;
mod put_error;
#[cfg_attr(not(feature = "monitor"), allow(dead_code))]
mod queue;
#[cfg(feature = "monitor")]
mod readers;
#[cfg(feature = "monitor")]
mod received;
#[cfg(feature = "monitor")]
mod receiving;
#[cfg(feature = "monitor")]
mod records;
#[cfg(feature = "monitor")]
mod relay;
mod running;
#[cfg(feature = "sim")]
pub mod sim;
mod source;
#[cfg(feature = "monitor")]
mod state;
#[cfg(feature = "monitor")]
mod store;
#[cfg(feature = "monitor")]
mod subscription;
mod topic;
mod url;

pub use dialling::{Dialling, read_tokens};
pub use error::{Error, UnknownTopic};
pub use events::{Events, SourceEvent};
#[cfg(feature = "monitor")]
pub use listening::{Listening, Quic, state_dir};
#[cfg(feature = "monitor")]
pub use monitor::{Monitor, MonitorBuilder};
#[cfg(feature = "monitor")]
pub use monitor_event::{MonitorEvent, Why};
pub use polled::PolledSource;
pub use put_error::PutError;
#[cfg(feature = "monitor")]
pub use readers::Readers;
#[cfg(feature = "monitor")]
pub use relay::{Relay, RelayBuilder};
pub use source::{Source, SourceBuilder};
#[cfg(feature = "monitor")]
pub use state::State;
#[cfg(feature = "monitor")]
pub use subscription::Subscription;
pub use topic::Topic;
pub use url::{BadUrl, Scheme, Url};

pub use freshline_core::dscp::Dscp;
pub use freshline_core::path::SchedulerConfig;
#[cfg(feature = "monitor")]
pub use freshline_core::session::{MaxAge, MonitorParams};
pub use freshline_core::session::{TopicError, TopicKind, TopicParams};
pub use freshline_core::source::{LawConfig, LawName, Limits};
pub use freshline_core::unit;
pub use freshline_core::wire::{AckMark, CloseReason, StreamId};
#[cfg(feature = "monitor")]
pub use freshline_net::monitor::{MonitorReport, SourceStatus};
pub use freshline_net::quic::Fingerprint;
#[cfg(feature = "monitor")]
pub use freshline_net::relay::RelayReport;
pub use freshline_net::source::{SourcePaths, SourceReport};
pub use freshline_net::via::ViaPath;

/// The programs of the tutorial compile and run; those of the other pages compile.
#[cfg(all(doctest, feature = "sim"))]
mod pages {
    #[doc = include_str!("../../../docs/ten-minutes.md")]
    struct Tutorial;
    #[doc = include_str!("../../../docs/how-to/ci.md")]
    struct Ci;
    #[doc = include_str!("../../../README.md")]
    struct Repository;
    #[doc = include_str!("../README.md")]
    struct Crate;
}
