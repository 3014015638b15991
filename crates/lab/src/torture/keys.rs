//! The keys of a source, which its application puts and removes.

use std::collections::BTreeSet;

use freshline_core::session::{KeyError, Source, TopicId, TopicKind, TopicParams};
use freshline_core::unit::Time;
use freshline_core::wire::SessionId;

use super::ledger::{KeyPut, Ledger, mix};

/// The name of the topic.
pub(super) const TOPIC: &str = "frames";

/// The maximum number of keys at a time.
pub(super) const MAX_KEYS: u16 = 4;

/// All keys that are ever put: more than are allowed at a time.
pub(super) const KEYS: [&[u8]; 6] =
    [b"base", b"arm", b"\0\xff\\", b"wheel/left", b"wheel/right", &[b'k'; 64]];

/// The maximum sizes of states of keys, without their text: of short ones, and of large ones, which
/// take several updates.
const MAX_SHORT: usize = 100;
const MAX_LARGE: usize = 18_000;

/// A key is put or removed after this number of states.
const STATES: u64 = 4;

/// The application with its keys, in one process of the source.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Whether some states take several updates.
    large: bool,
    live: BTreeSet<&'static [u8]>,
}

impl Keys {
    pub(super) fn new(large: bool) -> Self {
        Self { large, live: BTreeSet::new() }
    }

    pub(super) fn params() -> TopicParams {
        TopicParams { kind: TopicKind::Keyed { max_keys: MAX_KEYS }, ..TopicParams::new(TOPIC) }
    }

    /// A new process starts without keys.
    pub(super) fn begin(&mut self) {
        self.live.clear();
    }

    /// The source has put its state number `states`: puts or removes a key after every fourth one.
    ///
    /// # Panics
    /// If the source refuses a key for which it has room, or accepts one for which it has no room.
    pub(super) fn follow(
        &mut self,
        (source, topic): (&mut Source, TopicId),
        (process, states): (SessionId, u64),
        (now, local): (Time, Time),
        ledger: &mut Ledger,
    ) {
        if !states.is_multiple_of(STATES) {
            return;
        }
        let draw = mix(states / STATES);
        let key = KEYS[draw % KEYS.len()];
        let put = |len| KeyPut { number: states, len, label: local, at: now };
        if (draw / 8).is_multiple_of(4) {
            let was_there = source.remove_key(local, topic, key);
            assert_eq!(was_there, Ok(self.live.remove(key)), "keys go when they are removed");
            if was_there == Ok(true) {
                ledger.put_key(process, key, put(None));
            }
            return;
        }
        let has_room = self.live.contains(key) || self.live.len() < usize::from(MAX_KEYS);
        let is_large = self.large && (draw / 32).is_multiple_of(4);
        let max_len = if is_large { MAX_LARGE } else { MAX_SHORT };
        let put = put(Some(1 + draw / 128 % max_len));
        let state = put.state(process, key).unwrap_or_default();
        match source.put_keyed(local, topic, key, local, &state) {
            Ok(()) => {
                assert!(has_room, "there are {MAX_KEYS} keys already");
                self.live.insert(key);
                ledger.put_key(process, key, put);
            }
            Err(KeyError::TooMany { .. }) => assert!(!has_room, "{:?} are live", self.live),
            Err(error) => panic!("{error}"),
        }
    }
}
