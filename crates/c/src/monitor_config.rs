//! Settings of a monitor before its start.
//!
//! Unsafe: exports functions under fixed names for C.

use std::mem::MaybeUninit;
use std::time::Duration;

use freshline::{Limits, MonitorBuilder};

use crate::config::{Unstarted, fl_topic_config, law, topic_named};
use crate::error::{Failure, call, fl_error};
use crate::raw::{Bytes, Text, needed, place};

/// Settings of a monitor. Made by `fl_monitor_config_new`, used once by `fl_monitor_start`, and freed by
/// `fl_monitor_config_free`, also after a start.
pub struct fl_monitor_config(Unstarted<MonitorBuilder>);

impl fl_monitor_config {
    /// The builder, for the start.
    pub(crate) fn take(&mut self) -> Result<MonitorBuilder, Failure> {
        self.0.take()
    }
}

/// Changes a setting of a monitor.
fn change<T>(
    config: Option<&mut fl_monitor_config>,
    read: impl FnOnce() -> Result<T, Failure>,
    set: impl FnOnce(MonitorBuilder, T) -> MonitorBuilder,
) -> fl_error {
    call(|| needed(config, "config")?.0.change(read, set))
}

/// Make settings for a monitor that listens at `url`, such as `quic://0.0.0.0:3774`, or `udp://127.0.0.1:0` for a
/// free port.
///
/// The caller frees `*config` with `fl_monitor_config_free`; `url` is copied. Errors: `FL_NULL`, `FL_UTF8`,
/// `FL_INVALID` for a text that is not such a URL. Thread-safe; the settings themselves may be used by one thread
/// at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_new(
    url: Text<'_>,
    config: Option<&mut MaybeUninit<Option<Box<fl_monitor_config>>>>,
) -> fl_error {
    call(|| {
        let config = place(config, "config")?;
        let builder = Unstarted::new(MonitorBuilder::new(Ok(url.parse("url")?)));
        *config = Some(Box::new(fl_monitor_config(builder)));
        Ok(())
    })
}

/// Present this certificate to sources (`quic://` only); PEM files of the certificate and of its key. By default a
/// certificate is made and kept, see `fl_monitor_config_state_dir`.
///
/// Errors: `FL_NULL`, `FL_UTF8`; the files are read at the start. Not thread-safe: one call per `config` at a time.
/// The paths are copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_identity_files(
    config: Option<&mut fl_monitor_config>,
    cert: Text<'_>,
    key: Text<'_>,
) -> fl_error {
    let read = || Ok((cert.get("cert")?, key.get("key")?));
    change(config, read, |builder, (cert, key)| builder.identity_files(cert, key))
}

/// Set the folder in which a certificate that the monitor makes is kept (`quic://` only); by default the user's
/// state directory (`$XDG_STATE_HOME/freshline` or `~/.local/state/freshline`).
///
/// Errors: `FL_NULL`, `FL_UTF8`. Not thread-safe: one call per `config` at a time. `path` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_state_dir(
    config: Option<&mut fl_monitor_config>,
    path: Text<'_>,
) -> fl_error {
    change(config, || path.get("path"), MonitorBuilder::state_dir)
}

/// Accept only sources whose certificate was signed by an authority of this PEM file (`quic://` only).
///
/// Errors: `FL_NULL`, `FL_UTF8`; the file is read at the start. Not thread-safe: one call per `config` at a time.
/// `path` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_client_ca_file(
    config: Option<&mut fl_monitor_config>,
    path: Text<'_>,
) -> fl_error {
    change(config, || path.get("path"), MonitorBuilder::client_ca_file)
}

/// Accept a source only under names that its certificate lists.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_certified_names(
    config: Option<&mut fl_monitor_config>,
) -> fl_error {
    change(config, || Ok(()), |builder, ()| builder.certified_names())
}

/// Accept only sources with a token that this file permits, under the names that it permits (`quic://` only).
///
/// Errors: `FL_NULL`, `FL_UTF8`; the file is read at the start. Not thread-safe: one call per `config` at a time.
/// `path` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_credentials_file(
    config: Option<&mut fl_monitor_config>,
    path: Text<'_>,
) -> fl_error {
    change(config, || path.get("path"), MonitorBuilder::credentials_file)
}

/// Accept only sources with this token, under any name (`quic://` only); call it again for further tokens. A
/// credentials file has precedence.
///
/// `token` points to `len` bytes, which are copied. Errors: `FL_NULL`. Not thread-safe: one call per `config` at a
/// time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_token(
    config: Option<&mut fl_monitor_config>,
    token: Bytes<'_>,
    len: usize,
) -> fl_error {
    change(config, || token.get(len, "token"), MonitorBuilder::token)
}

/// Allow `udp://`, which is neither encrypted nor authenticated, at an address that other hosts can reach. For
/// trusted networks only.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_insecure(config: Option<&mut fl_monitor_config>) -> fl_error {
    change(config, || Ok(()), |builder, ()| builder.insecure())
}

/// Hand out states only while they are younger than `max_age_ns` nanoseconds, for topics whose full names match
/// `pattern`, such as `robot/cmd` or `*/cmd`; `*` stands for any characters. The first pattern that matches counts.
///
/// Errors: `FL_NULL`, `FL_UTF8`; a pattern or age that cannot be used fails at the start. Not thread-safe: one call
/// per `config` at a time. `pattern` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_max_age(
    config: Option<&mut fl_monitor_config>,
    pattern: Text<'_>,
    max_age_ns: u64,
) -> fl_error {
    let max_age = Duration::from_nanos(max_age_ns);
    let set = |builder: MonitorBuilder, pattern: &str| builder.max_age(pattern, max_age);
    change(config, || pattern.get("pattern"), set)
}

/// Set the maximum number of sources; 10,000 by default.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_max_sources(
    config: Option<&mut fl_monitor_config>,
    sources: u32,
) -> fl_error {
    change(config, || Ok(sources as usize), MonitorBuilder::max_sources)
}

/// Set the maximum length of a state in bytes; 8 MiB (8388608) by default.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_max_state(
    config: Option<&mut fl_monitor_config>,
    bytes: usize,
) -> fl_error {
    change(config, || Ok(bytes), MonitorBuilder::max_state)
}

/// End the session of a source from which nothing was received for `idle_ns` nanoseconds; 60 s by default.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_idle(
    config: Option<&mut fl_monitor_config>,
    idle_ns: u64,
) -> fl_error {
    change(config, || Ok(Duration::from_nanos(idle_ns)), MonitorBuilder::idle)
}

/// Send the states of this topic to each source that receives (`fl_source_config_receive`). Its kind is latest, its
/// weight 1.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID` for a name that cannot be used. Not thread-safe: one call per
/// `config` at a time. `name` is copied: 1 to 63 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_topic(
    config: Option<&mut fl_monitor_config>,
    name: Text<'_>,
) -> fl_error {
    change(config, || topic_named(name), MonitorBuilder::topic)
}

/// Send the states of a topic with these settings to each source that receives. Its kind must be latest.
///
/// `topic` is copied; the caller still frees it. Errors: `FL_NULL`; another kind fails at the start. Not
/// thread-safe: one call per `config` at a time.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_add_topic(
    config: Option<&mut fl_monitor_config>,
    topic: Option<&fl_topic_config>,
) -> fl_error {
    change(config, || Ok(needed(topic, "topic")?.params()), MonitorBuilder::topic)
}

/// Set the name under which sources know the topics that the monitor sends; `monitor` by default.
///
/// Errors: `FL_NULL`, `FL_UTF8`; a name that is too long fails at the start. Not thread-safe: one call per `config`
/// at a time. `name` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_name(
    config: Option<&mut fl_monitor_config>,
    name: Text<'_>,
) -> fl_error {
    change(config, || name.get("name"), MonitorBuilder::name)
}

/// Set the law that decides when the monitor's own topics are sent, for each source by itself: `acp+d` (the
/// default), `acp+`, `acp`, `tenth` or `lazy`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `name` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_law(
    config: Option<&mut fl_monitor_config>,
    name: Text<'_>,
) -> fl_error {
    change(config, || law(name), MonitorBuilder::law)
}

/// Limit the average bandwidth of the monitor's own topics to each source, with all headers from IP on; `rate` is a
/// text such as `500kbit` or `2Mbit`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `rate` is copied.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_max_bandwidth(
    config: Option<&mut fl_monitor_config>,
    rate: Text<'_>,
) -> fl_error {
    let limits = |rate| Limits { max_bandwidth: Some(rate), ..Limits::NONE };
    change(config, || rate.parse("rate"), |builder, rate| builder.limits(limits(rate)))
}

/// Free the settings of a monitor; NULL is allowed. A monitor that was started with them is not affected.
///
/// Not thread-safe: no other call may use `config`.
#[unsafe(no_mangle)]
pub extern "C" fn fl_monitor_config_free(config: Option<Box<fl_monitor_config>>) {
    call(|| {
        drop(config);
        Ok(())
    });
}
