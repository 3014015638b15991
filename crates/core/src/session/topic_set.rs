//! Which topics of a source an update is about.

/// Some of the topics of a source, the first one included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Topics {
    /// Those of which a fresh state has come.
    pub(super) fresh: TopicSet,
    /// Those of which the state that was held has come again.
    pub(super) repeated: TopicSet,
}

impl Topics {
    pub(super) fn all(self) -> impl Iterator<Item = u8> {
        let both = core::array::from_fn(|at| self.fresh.0[at] | self.repeated.0[at]);
        TopicSet(both).iter()
    }
}

/// Some of the topics of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TopicSet([u64; 4]);

impl TopicSet {
    pub(super) fn contains(self, topic: u8) -> bool {
        self.0[usize::from(topic / 64)] & (1 << (topic % 64)) != 0
    }

    pub(super) fn insert(&mut self, topic: u8) {
        self.0[usize::from(topic / 64)] |= 1 << (topic % 64);
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u8> {
        let is_in = move |topic: &u8| self.contains(*topic);
        (0..=u8::MAX).filter(is_in).take(if self == Self::default() { 0 } else { usize::MAX })
    }
}
