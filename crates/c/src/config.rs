//! Settings before the start, and the settings of a topic.
//!
//! Unsafe: exports functions under fixed names for C.

use std::mem::MaybeUninit;
use std::time::Duration;

use freshline::{LawConfig, LawName, TopicKind, TopicParams};

use crate::error::{Failure, call, fl_error};
use crate::raw::{Text, needed, place};

/// A builder until it is used.
pub(crate) struct Unstarted<B>(Option<B>);

impl<B> Unstarted<B> {
    pub(crate) fn new(builder: B) -> Self {
        Self(Some(builder))
    }

    /// Sets a setting to the result of `read`; nothing changes if that fails.
    pub(crate) fn change<T>(
        &mut self,
        read: impl FnOnce() -> Result<T, Failure>,
        set: impl FnOnce(B, T) -> B,
    ) -> Result<(), Failure> {
        let value = read()?;
        self.0 = Some(set(self.take()?, value));
        Ok(())
    }

    /// The builder, for the start.
    pub(crate) fn take(&mut self) -> Result<B, Failure> {
        let used = || Failure::invalid("these settings were used for a start; make new ones");
        self.0.take().ok_or_else(used)
    }
}

/// An adaptive law by its name.
pub(crate) fn law(name: Text<'_>) -> Result<LawConfig, Failure> {
    match name.parse::<LawName>("name")? {
        LawName::Fixed => {
            Err(Failure::invalid("`fixed` needs a rate: fl_source_config_fixed_rate"))
        }
        _ => name.parse("name"),
    }
}

/// A topic of kind latest without limits.
pub(crate) fn topic_named(name: Text<'_>) -> Result<TopicParams, Failure> {
    let params = TopicParams::new(name.get("name")?);
    params.check().map_err(Failure::invalid)?;
    Ok(params)
}

/// Settings of a topic: a name, a kind, a weight and limits. Made by `fl_topic_config_new`, freed by
/// `fl_topic_config_free`.
pub struct fl_topic_config(TopicParams);

impl fl_topic_config {
    pub(crate) fn params(&self) -> TopicParams {
        self.0.clone()
    }

    /// Changes a setting, unless the topic would not be valid then.
    fn change(&mut self, change: impl FnOnce(&mut TopicParams)) -> Result<(), Failure> {
        let mut changed = self.0.clone();
        change(&mut changed);
        changed.check().map_err(Failure::invalid)?;
        self.0 = changed;
        Ok(())
    }
}

/// Make settings of a topic of kind latest: only the newest state counts (`fl_put`).
///
/// `name` has 1 to 63 bytes. The weight is 1, and there are no limits. The caller frees `*topic` with
/// `fl_topic_config_free`. Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID` for a name that cannot be used.
/// Thread-safe; the settings themselves may be used by one thread at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_topic_config_new(
    name: Text<'_>,
    topic: Option<&mut MaybeUninit<Option<Box<fl_topic_config>>>>,
) -> fl_error {
    call(|| {
        let topic = place(topic, "topic")?;
        *topic = Some(Box::new(fl_topic_config(topic_named(name)?)));
        Ok(())
    })
}

/// Make the topic one of kind keyed: the newest state of each key counts (`fl_put_key`).
///
/// `max_keys` is the maximum number of keys at a time, 1 to 65535. Errors: `FL_NULL`, `FL_INVALID`.
/// Not thread-safe: one call per `topic` at a time. Ownership does not change.
#[unsafe(no_mangle)]
pub extern "C" fn fl_topic_config_keyed(
    topic: Option<&mut fl_topic_config>,
    max_keys: u16,
) -> fl_error {
    call(|| needed(topic, "topic")?.change(|it| it.kind = TopicKind::Keyed { max_keys }))
}

/// Make the topic one of kind every: each record arrives once and in order (`fl_push`).
///
/// `max_bytes` bounds the memory for records that the application at the monitor has not received yet. The
/// minimum is 1024 bytes; 0 means 1 MiB. Errors: `FL_NULL`, `FL_INVALID`. Not thread-safe: one call per `topic` at a time.
/// Ownership does not change.
#[unsafe(no_mangle)]
pub extern "C" fn fl_topic_config_every(
    topic: Option<&mut fl_topic_config>,
    max_bytes: u32,
) -> fl_error {
    call(|| {
        let max_bytes = if max_bytes == 0 { TopicKind::DEFAULT_BYTES } else { max_bytes };
        // The source draws the stream at its start.
        let kind = TopicKind::Every { stream: Default::default(), first: 0, max_bytes };
        needed(topic, "topic")?.change(|it| it.kind = kind)
    })
}

/// Set how much the age of this topic counts compared with other topics: above 0 and at most 1e9; 1 by default.
///
/// Errors: `FL_NULL`, `FL_INVALID`. Not thread-safe: one call per `topic` at a time. Ownership does not change.
#[unsafe(no_mangle)]
pub extern "C" fn fl_topic_config_weight(
    topic: Option<&mut fl_topic_config>,
    weight: f64,
) -> fl_error {
    call(|| needed(topic, "topic")?.change(|it| it.weight = weight))
}

/// Drop unsent states that are older than `deadline_ns` nanoseconds. By default there is no deadline.
///
/// Errors: `FL_NULL`, `FL_INVALID` for a topic of kind every. Not thread-safe: one call per `topic` at a time.
/// Ownership does not change.
#[unsafe(no_mangle)]
pub extern "C" fn fl_topic_config_deadline(
    topic: Option<&mut fl_topic_config>,
    deadline_ns: u64,
) -> fl_error {
    let deadline = Duration::from_nanos(deadline_ns);
    call(|| needed(topic, "topic")?.change(|it| it.deadline = Some(deadline.into())))
}

/// Send states of this topic no faster than `rate`, such as `10/s`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `topic` at a time. `rate` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_topic_config_max_rate(
    topic: Option<&mut fl_topic_config>,
    rate: Text<'_>,
) -> fl_error {
    call(|| {
        let (topic, rate) = (needed(topic, "topic")?, rate.parse("rate")?);
        topic.change(|it| it.max_rate = Some(rate))
    })
}

/// Send a new state of this topic before those of other topics if none was sent for a period of `rate`, such as
/// `1/s`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`, also for a topic of kind every. Not thread-safe: one call per
/// `topic` at a time. `rate` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_topic_config_min_rate(
    topic: Option<&mut fl_topic_config>,
    rate: Text<'_>,
) -> fl_error {
    call(|| {
        let (topic, rate) = (needed(topic, "topic")?, rate.parse("rate")?);
        topic.change(|it| it.min_rate = Some(rate))
    })
}

/// Make the topic urgent: its states are sent before all others and ahead of the law's pace within a small burst,
/// and are repeated until they are acknowledged.
///
/// Errors: `FL_NULL`, `FL_INVALID`. Not thread-safe: one call per `topic` at a time. Ownership does not change.
#[unsafe(no_mangle)]
pub extern "C" fn fl_topic_config_urgent(topic: Option<&mut fl_topic_config>) -> fl_error {
    call(|| needed(topic, "topic")?.change(|it| it.is_urgent = true))
}

/// Free the settings of a topic; NULL is allowed.
///
/// A source or monitor that has them has its own copy. Not thread-safe: no other call may use `topic`.
#[unsafe(no_mangle)]
pub extern "C" fn fl_topic_config_free(topic: Option<Box<fl_topic_config>>) {
    call(|| {
        drop(topic);
        Ok(())
    });
}
