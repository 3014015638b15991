#![doc = include_str!("guide.md")]

mod clock;
#[cfg(feature = "source")]
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
mod queue;
#[cfg(feature = "monitor")]
mod receiving;
#[cfg(feature = "monitor")]
mod relay;
#[cfg(feature = "source")]
mod running;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "source")]
mod source;
mod state;
#[cfg(feature = "monitor")]
mod store;
mod subscription;
mod topic;
mod url;

#[cfg(feature = "source")]
pub use dialling::{Dialling, read_tokens};
pub use error::{Error, UnknownTopic};
pub use events::{Events, SourceEvent};
#[cfg(feature = "monitor")]
pub use events::{MonitorEvent, Why};
#[cfg(feature = "monitor")]
pub use listening::{Listening, Quic, state_dir};
#[cfg(feature = "monitor")]
pub use monitor::{Monitor, MonitorBuilder};
#[cfg(feature = "monitor")]
pub use relay::{Relay, RelayBuilder};
#[cfg(feature = "source")]
pub use source::{Source, SourceBuilder};
pub use state::State;
pub use subscription::Subscription;
pub use topic::{PutError, Topic};
pub use url::{BadUrl, Scheme, Url};

pub use freshline_core::dscp::Dscp;
pub use freshline_core::path::SchedulerConfig;
pub use freshline_core::session::{TopicKind, TopicParams};
pub use freshline_core::source::{LawConfig, LawName, Limits};
pub use freshline_core::unit;
pub use freshline_core::wire::AckMark;
pub use freshline_net::quic::Fingerprint;
pub use freshline_net::via::ViaPath;
