//! Settings of a source before its start.
//!
//! Unsafe: exports functions under fixed names for C.

use std::mem::MaybeUninit;
use std::time::Duration;

use freshline::{LawConfig, SourceBuilder};

use crate::config::{Unstarted, fl_topic_config, law, topic_named};
use crate::error::{Failure, call, fl_error};
use crate::raw::{Bytes, Text, needed, place};

/// Settings of a source. Made by `fl_source_config_new`, used once by `fl_source_start`, and freed by
/// `fl_source_config_free`, also after a start.
pub struct fl_source_config {
    pub(crate) builder: Unstarted<SourceBuilder>,
}

/// Changes a setting of a source.
fn change<T>(
    config: Option<&mut fl_source_config>,
    read: impl FnOnce() -> Result<T, Failure>,
    set: impl FnOnce(SourceBuilder, T) -> SourceBuilder,
) -> fl_error {
    call(|| needed(config, "config")?.builder.change(read, set))
}

/// Make settings for a source that sends to the monitor at `url`, such as `quic://monitor.example` or
/// `udp://127.0.0.1:3774`.
///
/// The caller frees `*config` with `fl_source_config_free`; `url` is copied. Errors: `FL_NULL`, `FL_UTF8`,
/// `FL_INVALID` for a text that is not such a URL. Thread-safe; the settings themselves may be used by one thread
/// at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_new(
    url: Text<'_>,
    config: Option<&mut MaybeUninit<Option<Box<fl_source_config>>>>,
) -> fl_error {
    call(|| {
        let config = place(config, "config")?;
        let builder = SourceBuilder::new(Ok(url.parse("url")?));
        *config = Some(Box::new(fl_source_config { builder: Unstarted::new(builder) }));
        Ok(())
    })
}

/// Set the name by which the monitor knows the source: at most 63 bytes, empty by default.
///
/// Errors: `FL_NULL`, `FL_UTF8`; a name that is too long fails at the start. Not thread-safe: one call per `config`
/// at a time. `name` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_name(
    config: Option<&mut fl_source_config>,
    name: Text<'_>,
) -> fl_error {
    change(config, || name.get("name"), SourceBuilder::name)
}

/// Add a topic of kind latest with weight 1 and no limits. Without topics the source has one state without a name.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID` for a name that cannot be used. Not thread-safe: one call per
/// `config` at a time. `name` is copied: 1 to 63 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_topic(
    config: Option<&mut fl_source_config>,
    name: Text<'_>,
) -> fl_error {
    change(config, || topic_named(name), SourceBuilder::topic)
}

/// Add a topic with these settings. All topics of a source share its session and its rate.
///
/// `topic` is copied; the caller still frees it. Errors: `FL_NULL`, `FL_INVALID`. Not thread-safe: one call per
/// `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_add_topic(
    config: Option<&mut fl_source_config>,
    topic: Option<&fl_topic_config>,
) -> fl_error {
    change(config, || Ok(needed(topic, "topic")?.params()), SourceBuilder::topic)
}

/// Set the law that decides when to send: `acp+d` (the default), `acp+`, `acp`, `tenth` or `lazy`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `name` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_law(
    config: Option<&mut fl_source_config>,
    name: Text<'_>,
) -> fl_error {
    change(config, || law(name), SourceBuilder::law)
}

/// Send at a constant rate, such as `50/s`, in place of an adaptive law.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `rate` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_fixed_rate(
    config: Option<&mut fl_source_config>,
    rate: Text<'_>,
) -> fl_error {
    change(config, || Ok(LawConfig::Fixed { rate: rate.parse("rate")? }), SourceBuilder::law)
}

/// Limit the average bandwidth, with all headers from IP on; `rate` is a text such as `500kbit` or `2Mbit`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `rate` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_max_bandwidth(
    config: Option<&mut fl_source_config>,
    rate: Text<'_>,
) -> fl_error {
    change(config, || rate.parse("rate"), SourceBuilder::max_bandwidth)
}

/// Limit the number of states per second; `rate` is a text such as `100/s`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `rate` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_max_rate(
    config: Option<&mut fl_source_config>,
    rate: Text<'_>,
) -> fl_error {
    change(config, || rate.parse("rate"), SourceBuilder::max_rate)
}

/// Set the maximum length of a state in bytes; 8 MiB (8388608) by default.
///
/// Errors: `FL_NULL`; a length beyond the limit of the transport fails at the start. Not thread-safe: one call per
/// `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_max_state(
    config: Option<&mut fl_source_config>,
    bytes: usize,
) -> fl_error {
    change(config, || Ok(bytes), SourceBuilder::max_state)
}

/// Send an update at least every `interval_ns` nanoseconds also if no new state is put; 20 s by default.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_keep_alive(
    config: Option<&mut fl_source_config>,
    interval_ns: u64,
) -> fl_error {
    change(config, || Ok(Duration::from_nanos(interval_ns)), SourceBuilder::keep_alive)
}

/// Do not send a state that is equal to the one that the monitor has; off by default.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_on_change(
    config: Option<&mut fl_source_config>,
    is_on: bool,
) -> fl_error {
    change(config, || Ok(is_on), SourceBuilder::on_change)
}

/// Trust the monitor whose certificate has this fingerprint (`quic://` only): `sha256:` and 64 hexadecimal digits,
/// as `fl_monitor_fingerprint` returns it and the command `freshline monitor` prints it. Call it again to trust
/// further ones.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `fingerprint` is
/// copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_pin(
    config: Option<&mut fl_source_config>,
    fingerprint: Text<'_>,
) -> fl_error {
    change(config, || fingerprint.parse("fingerprint"), SourceBuilder::pin)
}

/// Trust monitors whose certificate was signed by an authority of this PEM file (`quic://` only).
///
/// Errors: `FL_NULL`, `FL_UTF8`; the file is read at the start. Not thread-safe: one call per `config` at a time.
/// `path` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_ca_file(
    config: Option<&mut fl_source_config>,
    path: Text<'_>,
) -> fl_error {
    change(config, || path.get("path"), SourceBuilder::ca_file)
}

/// Present this certificate to the monitor (`quic://` only); PEM files of the certificate and of its key.
///
/// Errors: `FL_NULL`, `FL_UTF8`; the files are read at the start. Not thread-safe: one call per `config` at a time.
/// The paths are copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_identity_files(
    config: Option<&mut fl_source_config>,
    cert: Text<'_>,
    key: Text<'_>,
) -> fl_error {
    let read = || Ok((cert.get("cert")?, key.get("key")?));
    change(config, read, |builder, (cert, key)| builder.identity_files(cert, key))
}

/// Present this token to the monitor (`quic://` only).
///
/// `token` points to `len` bytes, which are copied. Errors: `FL_NULL`. Not thread-safe: one call per `config` at a
/// time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_token(
    config: Option<&mut fl_source_config>,
    token: Bytes<'_>,
    len: usize,
) -> fl_error {
    change(config, || token.get(len, "token"), SourceBuilder::token)
}

/// Also receive the topics that the monitor sends: `fl_source_latest` and `fl_source_subscribe`.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_receive(config: Option<&mut fl_source_config>) -> fl_error {
    change(config, || Ok(()), |builder, ()| builder.receive())
}

/// Hand out received states only while they are younger than `max_age_ns` nanoseconds, for topics whose full names
/// match `pattern`, such as `monitor/cmd`; `*` stands for any characters. Implies `fl_source_config_receive`. The
/// first pattern that matches counts.
///
/// Errors: `FL_NULL`, `FL_UTF8`; a pattern or age that cannot be used fails at the start. Not thread-safe: one call
/// per `config` at a time. `pattern` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_max_age(
    config: Option<&mut fl_source_config>,
    pattern: Text<'_>,
    max_age_ns: u64,
) -> fl_error {
    let max_age = Duration::from_nanos(max_age_ns);
    let set = |builder: SourceBuilder, pattern: &str| builder.max_age(pattern, max_age);
    change(config, || pattern.get("pattern"), set)
}

/// Free the settings of a source; NULL is allowed. A source that was started with them is not affected.
///
/// Not thread-safe: no other call may use `config`.
#[unsafe(no_mangle)]
pub extern "C" fn fl_source_config_free(config: Option<Box<fl_source_config>>) {
    call(|| {
        drop(config);
        Ok(())
    });
}
