//! Topics that a monitor sends to its sources.

use freshline_core::session::{TopicKind, TopicParams};
use freshline_net::monitor::ReturnTopic;
use freshline_net::source::sampler::Shared;

use super::{Limits, Topic};
use crate::clock::Clock;

impl Topic {
    /// A topic of a monitor that the application runs itself: its handle, and the part for
    /// [`ReturnConfig`](freshline_net::monitor::ReturnConfig). States have at most `max_state`
    /// bytes.
    pub fn returned(params: TopicParams, max_state: usize) -> (Self, ReturnTopic) {
        Self::returned_within(params, Limits { max_state, clock: Clock::real() })
    }

    pub(crate) fn returned_within(params: TopicParams, limits: Limits) -> (Self, ReturnTopic) {
        let topic = Self::new(&params.name, &TopicKind::Latest, params.is_urgent, limits);
        let states = Shared::new(topic.sampler());
        (topic, ReturnTopic { params, states })
    }
}
