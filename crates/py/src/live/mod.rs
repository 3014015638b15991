//! Sources and monitors of the crate `freshline`.
//!
//! Nothing here holds the interpreter's lock while it waits for a thread of the network, and no such thread needs that
//! lock, but for functions that [`Topic`] calls for samples.

mod event;
mod events;
mod monitor;
mod open;
mod reactor;
mod source;
mod state;
mod subscription;
mod topic;
mod topic_params;
mod waiting;

pub(crate) use event::Event;
pub(crate) use events::Events;
pub(crate) use monitor::Monitor;
pub(crate) use open::close_all;
pub(crate) use reactor::{Reactor, Waiter};
pub(crate) use source::Source;
pub(crate) use state::State;
pub(crate) use subscription::Subscription;
pub(crate) use topic::Topic;
pub(crate) use topic_params::TopicParams;
