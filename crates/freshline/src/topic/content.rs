//! The states of a topic until the network takes them.

use std::collections::{BTreeMap, VecDeque};

use freshline_core::session::Need;
use freshline_core::unit::Time;
use freshline_core::wire::RecordChunk;
use freshline_net::source::sampler::Take;

/// The kinds of a topic's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Latest,
    Keyed { max_keys: usize },
    Every { max_bytes: usize },
}

/// States, keys or records, by the topic's kind.
#[derive(Default)]
pub(super) struct Content {
    /// The newest state, and whether it was taken.
    pub(super) newest: Option<(Time, Vec<u8>)>,
    pub(super) is_taken: bool,
    /// By key: the newest state that was not taken; `None`: the key is removed.
    pub(super) keys: BTreeMap<Vec<u8>, (Time, Option<Vec<u8>>)>,
    pub(super) records: VecDeque<(Time, Vec<u8>)>,
    /// The bytes of `records`.
    pub(super) bytes: usize,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Keyed { .. } => "keyed",
            Self::Every { .. } => "every",
        }
    }

    /// The method of [`Topic`](super::Topic) for it.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Latest => "put",
            Self::Keyed { .. } => "put_key",
            Self::Every { .. } => "push",
        }
    }
}

impl Content {
    /// Takes the next state that the network needs, into a buffer.
    pub(super) fn take(&mut self, kind: Kind, need: Need, into: &mut Vec<u8>) -> Take {
        let Self { newest, is_taken, keys, records, bytes } = self;
        match kind {
            Kind::Latest => match newest {
                Some((generated_at, state)) if !*is_taken || need == Need::Newest => {
                    *is_taken = true;
                    into.extend_from_slice(state);
                    Take::Sample { generated_at: *generated_at }
                }
                _ => Take::NotYet,
            },
            Kind::Keyed { .. } => match keys.pop_first() {
                Some((key, (generated_at, state))) => {
                    into.extend_from_slice(state.as_deref().unwrap_or_default());
                    Take::Key { generated_at, key, is_removed: state.is_none() }
                }
                None => Take::NotYet,
            },
            Kind::Every { .. } => match records.pop_front() {
                Some((generated_at, record)) => {
                    *bytes -= RecordChunk::cost_of_record(record.len());
                    into.extend_from_slice(&record);
                    Take::Record { generated_at }
                }
                None => Take::NotYet,
            },
        }
    }
}
