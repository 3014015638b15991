/* freshline.h: sources and monitors of state, for C and C++ (freshline.hpp wraps it for C++20).

   Generated from the crate freshline-c; do not edit.

   A source sends the newest state of its topics to a monitor; a monitor holds the newest states of many sources.
   Both run on threads of their own. With fl_source_config_receive a source also receives topics that the monitor
   sends.

   Rules that hold for all functions:

   - Result: a function that can fail returns fl_error, FL_OK on success, and stores its result through its last
     arguments, which are NULL, 0 or false after a failure. fl_last_error() has the text of the last failure of the
     calling thread. Errors: lists the codes besides FL_PANIC, which any call may return.
   - Arguments: NULL is an error (FL_NULL), not a crash, where the function does not allow it. Texts end with NUL
     and are UTF-8 (else FL_UTF8). Bytes are a pointer and a length, and may be anything. Any other pointer must be
     valid. Durations are in nanoseconds, timeouts in milliseconds, rates are texts with a unit.
   - Ownership: arguments stay the caller's and are copied where they are needed for longer than the call. The
     caller frees each handle that a function stores, once, with the function that the description of its type
     names. Handles may be freed in any order. Texts and bytes that a function returns belong to the handle that it was given.
   - Threads: "Thread-safe" functions may be called by any number of threads at a time, also for the same handle.
     Freeing or closing a handle is not among them: no other call may use it then or later. No function blocks
     except fl_*_start (name look-up, files), fl_*_close and fl_subscription_free (join a thread), and
     fl_subscription_next (its timeout).
   - After fork(), the child may not use handles of its parent. */

#ifndef FRESHLINE_H
#define FRESHLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// The result of a call. Codes keep their numbers; later versions may add codes.
///
/// `FL_NO_STATE`, `FL_UNKNOWN` and `FL_ENDED` are ordinary outcomes: they leave `fl_last_error()` unchanged.
typedef enum {
  /// Success.
  FL_OK = 0,
  /// An argument is NULL that must not be.
  FL_NULL = 1,
  /// A text is not UTF-8.
  FL_UTF8 = 2,
  /// An argument or setting is outside of its range, or cannot be parsed.
  FL_INVALID = 3,
  /// Certificates, trust or credentials are missing or cannot be used.
  FL_SECURITY = 4,
  /// The system refused: a file, a name look-up, a descriptor or a thread.
  FL_SYSTEM = 5,
  /// The source or monitor cannot start with these settings, or could not go on.
  FL_CANNOT_RUN = 6,
  /// There is no topic of this name.
  FL_UNKNOWN_TOPIC = 7,
  /// The topic is of another kind, which needs another function.
  FL_KIND = 8,
  /// The source or monitor of the topic has ended.
  FL_CLOSED = 9,
  /// The state is longer than the limit.
  FL_TOO_LARGE = 10,
  /// The topic has its maximum number of keys, and no state of them has been sent yet.
  FL_TOO_MANY_KEYS = 11,
  /// Unsent records fill the buffer of the topic; try again later.
  FL_FULL = 12,
  /// The caller's buffer is too small; the length that is needed was stored.
  FL_TOO_SMALL = 13,
  /// No state: none is held, none is pending, or none came within the time.
  FL_NO_STATE = 14,
  /// The value is not known yet.
  FL_UNKNOWN = 15,
  /// The subscription has ended: no more states will arrive.
  FL_ENDED = 16,
  /// The library has panicked, which is a fault of the library. The message is on standard error.
  FL_PANIC = 17,
  /// The monitor did not acknowledge all states and records in time.
  FL_UNDELIVERED = 18,
} fl_error;

/// A monitor that runs: it holds the newest states of its sources, on a thread of its own. Made by
/// `fl_monitor_start`, ended and freed by `fl_monitor_close`.
typedef struct fl_monitor fl_monitor;

/// Settings of a monitor. Made by `fl_monitor_config_new`, used once by `fl_monitor_start`, and freed by
/// `fl_monitor_config_free`, also after a start.
typedef struct fl_monitor_config fl_monitor_config;

/// A source that runs: it keeps a monitor fresh, on a thread of its own. Made by `fl_source_start`, ended and freed
/// by `fl_source_close`.
typedef struct fl_source fl_source;

/// Settings of a source. Made by `fl_source_config_new`, used once by `fl_source_start`, and freed by
/// `fl_source_config_free`, also after a start.
typedef struct fl_source_config fl_source_config;

/// A state or a record, which does not change. Each handle is freed by `fl_state_free`; `fl_state_clone` makes
/// another one to the same state. It may outlive its monitor or source.
///
/// A record counts as received, and its source forgets it, when its last handle is freed.
typedef struct fl_state fl_state;

/// The states of the topics that match a pattern, as they arrive. Made by `fl_monitor_subscribe` and
/// `fl_source_subscribe`, freed by `fl_subscription_free`. It may outlive its monitor or source: it has ended then.
///
/// A slow reader receives the newest state of each topic and key, in turn; it delays neither the network nor other
/// readers. Records are never replaced. If several threads read, each state goes to one of them.
typedef struct fl_subscription fl_subscription;

/// A topic of a source, or of the return direction of a monitor. Made by `fl_source_topic` and `fl_monitor_topic`,
/// freed by `fl_topic_free`. It may outlive its source or monitor: calls return `FL_CLOSED` then.
typedef struct fl_topic fl_topic;

/// Settings of a topic: a name, a kind, a weight and limits. Made by `fl_topic_config_new`, freed by
/// `fl_topic_config_free`.
typedef struct fl_topic_config fl_topic_config;

/// Receives a state. It runs on a thread of the library. `state` is valid during the call: use `fl_state_clone` to
/// keep it. It must not throw, nor leave by `longjmp`.
typedef void (*fl_on_state)(void *user, const fl_state *state);

/// Called once, after the last state, on the same thread: the place to free `user`. If a callback has freed its own
/// subscription, `on_end` is the last use of `user`, and the only place to free it.
typedef void (*fl_on_end)(void *user);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/// The text of the last failed call of this thread, in English; empty if none has failed.
///
/// The text belongs to the library. It is valid until the next call of this thread that fails, or until the
/// thread ends. Never NULL. Thread-safe.
const char *fl_last_error(void);

/// The name of a code, such as `FL_NULL`; `FL_?` for a number that is not a code.
///
/// The text is constant. Never NULL. Thread-safe.
const char *fl_error_name(unsigned int code);

/// The version of the library, such as `0.1.0`.
///
/// The text is constant. Never NULL. Thread-safe.
const char *fl_version(void);

/// Make settings of a topic of kind latest: only the newest state counts (`fl_put`).
///
/// `name` has 1 to 63 bytes. The weight is 1, and there are no limits. The caller frees `*topic` with
/// `fl_topic_config_free`. Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID` for a name that cannot be used.
/// Thread-safe; the settings themselves may be used by one thread at a time.
fl_error fl_topic_config_new(const char *name,
                             fl_topic_config **topic);

/// Make the topic one of kind keyed: the newest state of each key counts (`fl_put_key`).
///
/// `max_keys` is the maximum number of keys at a time, 1 to 65535. Errors: `FL_NULL`, `FL_INVALID`.
/// Not thread-safe: one call per `topic` at a time. Ownership does not change.
fl_error fl_topic_config_keyed(fl_topic_config *topic, uint16_t max_keys);

/// Make the topic one of kind every: each record arrives once and in order (`fl_push`).
///
/// `max_bytes` bounds the memory for records that the application at the monitor has not received yet. The
/// minimum is 1024 bytes; 0 means 1 MiB. Errors: `FL_NULL`, `FL_INVALID`. Not thread-safe: one call per `topic` at a time.
/// Ownership does not change.
fl_error fl_topic_config_every(fl_topic_config *topic,
                               uint32_t max_bytes);

/// Set how much the age of this topic counts compared with other topics: above 0 and at most 1e9; 1 by default.
///
/// Errors: `FL_NULL`, `FL_INVALID`. Not thread-safe: one call per `topic` at a time. Ownership does not change.
fl_error fl_topic_config_weight(fl_topic_config *topic,
                                double weight);

/// Drop unsent states that are older than `deadline_ns` nanoseconds. By default there is no deadline.
///
/// Errors: `FL_NULL`, `FL_INVALID` for a topic of kind every. Not thread-safe: one call per `topic` at a time.
/// Ownership does not change.
fl_error fl_topic_config_deadline(fl_topic_config *topic,
                                  uint64_t deadline_ns);

/// Send states of this topic no faster than `rate`, such as `10/s`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `topic` at a time. `rate` is copied.
fl_error fl_topic_config_max_rate(fl_topic_config *topic,
                                  const char *rate);

/// Send a new state of this topic before those of other topics if none was sent for a period of `rate`, such as
/// `1/s`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`, also for a topic of kind every. Not thread-safe: one call per
/// `topic` at a time. `rate` is copied.
fl_error fl_topic_config_min_rate(fl_topic_config *topic,
                                  const char *rate);

/// Make the topic urgent: its states are sent before all others and ahead of the law's pace within a small burst,
/// and are repeated until they are acknowledged.
///
/// Errors: `FL_NULL`, `FL_INVALID`. Not thread-safe: one call per `topic` at a time. Ownership does not change.
fl_error fl_topic_config_urgent(fl_topic_config *topic);

/// Free the settings of a topic; NULL is allowed.
///
/// A source or monitor that has them has its own copy. Not thread-safe: no other call may use `topic`.
void fl_topic_config_free(fl_topic_config *topic);

/// Make settings for a source that sends to the monitor at `url`, such as `quic://monitor.example` or
/// `udp://127.0.0.1:3774`.
///
/// The caller frees `*config` with `fl_source_config_free`; `url` is copied. Errors: `FL_NULL`, `FL_UTF8`,
/// `FL_INVALID` for a text that is not such a URL. Thread-safe; the settings themselves may be used by one thread
/// at a time.
fl_error fl_source_config_new(const char *url,
                              fl_source_config **config);

/// Set the name by which the monitor knows the source: at most 63 bytes, empty by default.
///
/// Errors: `FL_NULL`, `FL_UTF8`; a name that is too long fails at the start. Not thread-safe: one call per `config`
/// at a time. `name` is copied.
fl_error fl_source_config_name(fl_source_config *config,
                               const char *name);

/// Add a topic of kind latest with weight 1 and no limits. Without topics the source has one state without a name.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID` for a name that cannot be used. Not thread-safe: one call per
/// `config` at a time. `name` is copied: 1 to 63 bytes.
fl_error fl_source_config_topic(fl_source_config *config,
                                const char *name);

/// Add a topic with these settings. All topics of a source share its session and its rate.
///
/// `topic` is copied; the caller still frees it. Errors: `FL_NULL`, `FL_INVALID`. Not thread-safe: one call per
/// `config` at a time.
fl_error fl_source_config_add_topic(fl_source_config *config,
                                    const fl_topic_config *topic);

/// Set the law that decides when to send: `acp+d` (the default), `acp+`, `acp`, `tenth` or `lazy`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `name` is copied.
fl_error fl_source_config_law(fl_source_config *config,
                              const char *name);

/// Send at a constant rate, such as `50/s`, in place of an adaptive law.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `rate` is copied.
fl_error fl_source_config_fixed_rate(fl_source_config *config,
                                     const char *rate);

/// Limit the average bandwidth, with all headers from IP on; `rate` is a text such as `500kbit` or `2Mbit`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `rate` is copied.
fl_error fl_source_config_max_bandwidth(fl_source_config *config,
                                        const char *rate);

/// Limit the number of states per second; `rate` is a text such as `100/s`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `rate` is copied.
fl_error fl_source_config_max_rate(fl_source_config *config,
                                   const char *rate);

/// Set the maximum length of a state in bytes; 8 MiB (8388608) by default.
///
/// Errors: `FL_NULL`; a length beyond the limit of the transport fails at the start. Not thread-safe: one call per
/// `config` at a time.
fl_error fl_source_config_max_state(fl_source_config *config,
                                    size_t bytes);

/// Send an update at least every `interval_ns` nanoseconds also if no new state is put; 20 s by default.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
fl_error fl_source_config_keep_alive(fl_source_config *config,
                                     uint64_t interval_ns);

/// Do not send a state that is equal to the one that the monitor has; off by default.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
fl_error fl_source_config_on_change(fl_source_config *config, bool is_on);

/// Trust the monitor whose certificate has this fingerprint (`quic://` only): `sha256:` and 64 hexadecimal digits,
/// as `fl_monitor_fingerprint` returns it and the command `freshline monitor` prints it. Call it again to trust
/// further ones.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `fingerprint` is
/// copied.
fl_error fl_source_config_pin(fl_source_config *config,
                              const char *fingerprint);

/// Trust monitors whose certificate was signed by an authority of this PEM file (`quic://` only).
///
/// Errors: `FL_NULL`, `FL_UTF8`; the file is read at the start. Not thread-safe: one call per `config` at a time.
/// `path` is copied.
fl_error fl_source_config_ca_file(fl_source_config *config,
                                  const char *path);

/// Present this certificate to the monitor (`quic://` only); PEM files of the certificate and of its key.
///
/// Errors: `FL_NULL`, `FL_UTF8`; the files are read at the start. Not thread-safe: one call per `config` at a time.
/// The paths are copied.
fl_error fl_source_config_identity_files(fl_source_config *config,
                                         const char *cert,
                                         const char *key);

/// Present this token to the monitor (`quic://` only).
///
/// `token` points to `len` bytes, which are copied. Errors: `FL_NULL`. Not thread-safe: one call per `config` at a
/// time.
fl_error fl_source_config_token(fl_source_config *config,
                                const uint8_t *token,
                                size_t len);

/// Also receive the topics that the monitor sends: `fl_source_latest` and `fl_source_subscribe`.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
fl_error fl_source_config_receive(fl_source_config *config);

/// Hand out received states only while they are younger than `max_age_ns` nanoseconds, for topics whose full names
/// match `pattern`, such as `monitor/cmd`; `*` stands for any characters. Implies `fl_source_config_receive`. The
/// first pattern that matches counts.
///
/// Errors: `FL_NULL`, `FL_UTF8`; a pattern or age that cannot be used fails at the start. Not thread-safe: one call
/// per `config` at a time. `pattern` is copied.
fl_error fl_source_config_max_age(fl_source_config *config,
                                  const char *pattern,
                                  uint64_t max_age_ns);

/// Free the settings of a source; NULL is allowed. A source that was started with them is not affected.
///
/// Not thread-safe: no other call may use `config`.
void fl_source_config_free(fl_source_config *config);

/// Start a source with these settings. That the monitor cannot be reached yet is not an error: the source tries
/// again.
///
/// The caller ends and frees `*source` with `fl_source_close`; it is NULL unless the call returns `FL_OK`. The
/// settings are used up, also by a start that fails; the caller still frees them. Errors: `FL_NULL`, `FL_INVALID`,
/// `FL_SECURITY`, `FL_SYSTEM`, `FL_CANNOT_RUN`. Not thread-safe: one call per `config` at a time.
fl_error fl_source_start(fl_source_config *config,
                         fl_source **source);

/// Make a handle of a topic by its name; the empty name for a source without topics.
///
/// The caller frees `*topic` with `fl_topic_free`. Errors: `FL_NULL`, `FL_UTF8`, `FL_UNKNOWN_TOPIC`. Thread-safe.
fl_error fl_source_topic(const fl_source *source,
                         const char *name,
                         fl_topic **topic);

/// Store the age of the newest acknowledged state in nanoseconds: an upper bound of the age at the monitor. With
/// several topics it is that of the topic that was acknowledged last.
///
/// Errors: `FL_NULL`; `FL_UNKNOWN` while the monitor has not acknowledged any. Thread-safe.
fl_error fl_source_age(const fl_source *source,
                       uint64_t *age_ns);

/// Store the rate at which the law sends now, in updates per second.
///
/// Errors: `FL_NULL`. Thread-safe.
fl_error fl_source_rate(const fl_source *source, double *updates_per_s);

/// Store whether the session with the monitor is open.
///
/// Errors: `FL_NULL`. Thread-safe.
fl_error fl_source_is_open(const fl_source *source, bool *is_open);

/// Store whether the source has ended by itself, which it does only if it cannot go on; `fl_source_close` returns
/// why.
///
/// Errors: `FL_NULL`. Thread-safe.
fl_error fl_source_has_ended(const fl_source *source,
                             bool *has_ended);

/// Store the newest state of a topic that the monitor sends, by its full name, such as `monitor/cmd`.
///
/// The caller frees `*state` with `fl_state_free`; it is NULL unless the call returns `FL_OK`. Errors: `FL_NULL`,
/// `FL_UTF8`; `FL_NO_STATE`, also without `fl_source_config_receive`. Thread-safe.
fl_error fl_source_latest(const fl_source *source,
                          const char *name,
                          fl_state **state);

/// Copy the payload of the newest state of a topic that the monitor sends to a buffer of `capacity` bytes, and store
/// its length in bytes and its age in nanoseconds (UINT64_MAX while it is unknown).
///
/// `age_ns` may be NULL, and `buffer` if `capacity` is 0. Errors: `FL_NULL`, `FL_UTF8`; `FL_NO_STATE`, also without
/// `fl_source_config_receive`; `FL_TOO_SMALL`: nothing is copied, `*len` is the length that is needed. Thread-safe.
fl_error fl_source_copy_latest(const fl_source *source,
                               const char *name,
                               uint8_t *buffer,
                               size_t capacity,
                               size_t *len,
                               uint64_t *age_ns);

/// Subscribe to the topics of the monitor whose full names match `pattern`, such as `monitor/cmd`; `*` stands for
/// any characters. It begins with the states that are held. Without `fl_source_config_receive` it ends at once.
///
/// The caller frees `*subscription` with `fl_subscription_free`. Errors: `FL_NULL`, `FL_UTF8`. Thread-safe.
fl_error fl_source_subscribe(const fl_source *source,
                             const char *pattern,
                             fl_subscription **subscription);

/// Wait until the monitor has the newest state of each topic and all records, for `timeout_ms` milliseconds at most, then
/// close the session, end the source and free it. Topics accept no further states.
///
/// Errors: as `fl_source_close`, and `FL_UNDELIVERED` after the time. Not thread-safe: no other call may use `source`.
fl_error fl_source_finish(fl_source *source,
                          uint64_t timeout_ms);

/// Close the session with the monitor, end the source and free it. Waits for its thread, and not for states: see
/// `fl_source_finish`.
///
/// Topics, subscriptions and states of it stay valid until they are freed. Errors: `FL_NULL`, and the error with
/// which the source ended by itself, if it did (`FL_CANNOT_RUN`, `FL_PANIC`); it is freed in any case. Not
/// thread-safe: no other call may use `source`.
fl_error fl_source_close(fl_source *source);

/// Make settings for a monitor that listens at `url`, such as `quic://0.0.0.0:3774`, or `udp://127.0.0.1:0` for a
/// free port.
///
/// The caller frees `*config` with `fl_monitor_config_free`; `url` is copied. Errors: `FL_NULL`, `FL_UTF8`,
/// `FL_INVALID` for a text that is not such a URL. Thread-safe; the settings themselves may be used by one thread
/// at a time.
fl_error fl_monitor_config_new(const char *url,
                               fl_monitor_config **config);

/// Present this certificate to sources (`quic://` only); PEM files of the certificate and of its key. By default a
/// certificate is made and kept, see `fl_monitor_config_state_dir`.
///
/// Errors: `FL_NULL`, `FL_UTF8`; the files are read at the start. Not thread-safe: one call per `config` at a time.
/// The paths are copied.
fl_error fl_monitor_config_identity_files(fl_monitor_config *config,
                                          const char *cert,
                                          const char *key);

/// Set the folder in which a certificate that the monitor makes is kept (`quic://` only); by default the user's
/// state directory (`$XDG_STATE_HOME/freshline` or `~/.local/state/freshline`).
///
/// Errors: `FL_NULL`, `FL_UTF8`. Not thread-safe: one call per `config` at a time. `path` is copied.
fl_error fl_monitor_config_state_dir(fl_monitor_config *config,
                                     const char *path);

/// Accept only sources whose certificate was signed by an authority of this PEM file (`quic://` only).
///
/// Errors: `FL_NULL`, `FL_UTF8`; the file is read at the start. Not thread-safe: one call per `config` at a time.
/// `path` is copied.
fl_error fl_monitor_config_client_ca_file(fl_monitor_config *config,
                                          const char *path);

/// Accept a source only under names that its certificate lists.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
fl_error fl_monitor_config_certified_names(fl_monitor_config *config);

/// Accept only sources with a token that this file permits, under the names that it permits (`quic://` only).
///
/// Errors: `FL_NULL`, `FL_UTF8`; the file is read at the start. Not thread-safe: one call per `config` at a time.
/// `path` is copied.
fl_error fl_monitor_config_credentials_file(fl_monitor_config *config,
                                            const char *path);

/// Accept only sources with this token, under any name (`quic://` only); call it again for further tokens. A
/// credentials file has precedence.
///
/// `token` points to `len` bytes, which are copied. Errors: `FL_NULL`. Not thread-safe: one call per `config` at a
/// time.
fl_error fl_monitor_config_token(fl_monitor_config *config,
                                 const uint8_t *token,
                                 size_t len);

/// Allow `udp://`, which is neither encrypted nor authenticated, at an address that other hosts can reach. For
/// trusted networks only.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
fl_error fl_monitor_config_insecure(fl_monitor_config *config);

/// Hand out states only while they are younger than `max_age_ns` nanoseconds, for topics whose full names match
/// `pattern`, such as `robot/cmd` or `*/cmd`; `*` stands for any characters. The first pattern that matches counts.
///
/// Errors: `FL_NULL`, `FL_UTF8`; a pattern or age that cannot be used fails at the start. Not thread-safe: one call
/// per `config` at a time. `pattern` is copied.
fl_error fl_monitor_config_max_age(fl_monitor_config *config,
                                   const char *pattern,
                                   uint64_t max_age_ns);

/// Set the maximum number of sources; 10,000 by default.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
fl_error fl_monitor_config_max_sources(fl_monitor_config *config, uint32_t sources);

/// Set the maximum length of a state in bytes; 8 MiB (8388608) by default.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
fl_error fl_monitor_config_max_state(fl_monitor_config *config, size_t bytes);

/// End the session of a source from which nothing was received for `idle_ns` nanoseconds; 60 s by default.
///
/// Errors: `FL_NULL`. Not thread-safe: one call per `config` at a time.
fl_error fl_monitor_config_idle(fl_monitor_config *config,
                                uint64_t idle_ns);

/// Send the states of this topic to each source that receives (`fl_source_config_receive`). Its kind is latest, its
/// weight 1.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID` for a name that cannot be used. Not thread-safe: one call per
/// `config` at a time. `name` is copied: 1 to 63 bytes.
fl_error fl_monitor_config_topic(fl_monitor_config *config,
                                 const char *name);

/// Send the states of a topic with these settings to each source that receives. Its kind must be latest.
///
/// `topic` is copied; the caller still frees it. Errors: `FL_NULL`; another kind fails at the start. Not
/// thread-safe: one call per `config` at a time.
fl_error fl_monitor_config_add_topic(fl_monitor_config *config,
                                     const fl_topic_config *topic);

/// Set the name under which sources know the topics that the monitor sends; `monitor` by default.
///
/// Errors: `FL_NULL`, `FL_UTF8`; a name that is too long fails at the start. Not thread-safe: one call per `config`
/// at a time. `name` is copied.
fl_error fl_monitor_config_name(fl_monitor_config *config,
                                const char *name);

/// Set the law that decides when the monitor's own topics are sent, for each source by itself: `acp+d` (the
/// default), `acp+`, `acp`, `tenth` or `lazy`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `name` is copied.
fl_error fl_monitor_config_law(fl_monitor_config *config,
                               const char *name);

/// Limit the average bandwidth of the monitor's own topics to each source, with all headers from IP on; `rate` is a
/// text such as `500kbit` or `2Mbit`.
///
/// Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID`. Not thread-safe: one call per `config` at a time. `rate` is copied.
fl_error fl_monitor_config_max_bandwidth(fl_monitor_config *config,
                                         const char *rate);

/// Free the settings of a monitor; NULL is allowed. A monitor that was started with them is not affected.
///
/// Not thread-safe: no other call may use `config`.
void fl_monitor_config_free(fl_monitor_config *config);

/// Start a monitor with these settings.
///
/// The caller ends and frees `*monitor` with `fl_monitor_close`; it is NULL unless the call returns `FL_OK`. The
/// settings are used up, also by a start that fails; the caller still frees them. Errors: `FL_NULL`, `FL_INVALID`,
/// `FL_SECURITY`, `FL_SYSTEM`, `FL_CANNOT_RUN`, for example if the address is in use. Not thread-safe: one call per
/// `config` at a time.
fl_error fl_monitor_start(fl_monitor_config *config,
                          fl_monitor **monitor);

/// The address at which a monitor listens, such as `127.0.0.1:3774`, with the port that was chosen for port 0.
///
/// The text belongs to the monitor and is valid until that is closed. NULL if `monitor` is NULL. Thread-safe.
const char *fl_monitor_address(const fl_monitor *monitor);

/// The URL of a monitor for a source on this host, such as `udp://127.0.0.1:3774`.
///
/// The text belongs to the monitor and is valid until that is closed. NULL if `monitor` is NULL. Thread-safe.
const char *fl_monitor_url(const fl_monitor *monitor);

/// The fingerprint of a monitor's certificate, for `fl_source_config_pin`.
///
/// The text belongs to the monitor and is valid until that is closed. NULL on `udp://`, which has no certificate,
/// and if `monitor` is NULL. Thread-safe.
const char *fl_monitor_fingerprint(const fl_monitor *monitor);

/// Store whether the monitor has ended by itself, which it does only if it cannot go on; `fl_monitor_close` returns
/// why.
///
/// Errors: `FL_NULL`. Thread-safe.
fl_error fl_monitor_has_ended(const fl_monitor *monitor,
                              bool *has_ended);

/// Store the newest state of a topic by its full name: `source/topic`, or the source alone if it has no topics. For
/// a topic with keys it is the state of the key that changed last.
///
/// The caller frees `*state` with `fl_state_free`; it is NULL unless the call returns `FL_OK`. Errors: `FL_NULL`,
/// `FL_UTF8`; `FL_NO_STATE` without a state within the maximum age. Thread-safe.
fl_error fl_monitor_latest(const fl_monitor *monitor,
                           const char *name,
                           fl_state **state);

/// Store the newest state of a key of a topic.
///
/// `key` points to `key_len` bytes, 1 to 64. The caller frees `*state` with `fl_state_free`; it is NULL unless the
/// call returns `FL_OK`. Errors: `FL_NULL`, `FL_UTF8`, `FL_INVALID` for the length of the key; `FL_NO_STATE`
/// without a state within the maximum age. Thread-safe.
fl_error fl_monitor_latest_key(const fl_monitor *monitor,
                               const char *name,
                               const uint8_t *key,
                               size_t key_len,
                               fl_state **state);

/// Copy the payload of the newest state of a topic to a buffer of `capacity` bytes, and store its length in bytes
/// and its age in nanoseconds (UINT64_MAX while it is unknown).
///
/// `age_ns` may be NULL, and `buffer` if `capacity` is 0. Errors: `FL_NULL`, `FL_UTF8`; `FL_NO_STATE`;
/// `FL_TOO_SMALL`: nothing is copied, `*len` is the length that is needed. Thread-safe.
fl_error fl_monitor_copy_latest(const fl_monitor *monitor,
                                const char *name,
                                uint8_t *buffer,
                                size_t capacity,
                                size_t *len,
                                uint64_t *age_ns);

/// Subscribe to the topics whose full names (`source/topic`) match `pattern`, such as `robot-7/*`; `*` stands for any
/// characters. It begins with the states that are held.
///
/// The caller frees `*subscription` with `fl_subscription_free`. Errors: `FL_NULL`, `FL_UTF8`. Thread-safe.
fl_error fl_monitor_subscribe(const fl_monitor *monitor,
                              const char *pattern,
                              fl_subscription **subscription);

/// Make a handle of a topic that the monitor sends to its sources, by its name (`fl_monitor_config_topic`).
///
/// The caller frees `*topic` with `fl_topic_free`. Errors: `FL_NULL`, `FL_UTF8`, `FL_UNKNOWN_TOPIC`. Thread-safe.
fl_error fl_monitor_topic(const fl_monitor *monitor,
                          const char *name,
                          fl_topic **topic);

/// Close the sessions of all sources, end the monitor and free it. Waits for its thread.
///
/// Topics, subscriptions and states of it stay valid until they are freed. Errors: `FL_NULL`, and the error with
/// which the monitor ended by itself, if it did (`FL_CANNOT_RUN`, `FL_PANIC`); it is freed in any case. Not
/// thread-safe: no other call may use `monitor`.
fl_error fl_monitor_close(fl_monitor *monitor);

/// Send a state, which replaces the one before that was not sent yet. Never blocks on the network.
///
/// `data` points to `len` bytes, which are copied; NULL is allowed if `len` is 0. The state counts as generated
/// now. Errors: `FL_NULL`, `FL_KIND` if the topic is not of kind latest, `FL_TOO_LARGE`, `FL_CLOSED`. Thread-safe.
fl_error fl_put(const fl_topic *topic,
                const uint8_t *data,
                size_t len);

/// Send the state of a key, which replaces the one before that was not sent yet. Never blocks on the network.
///
/// `key` points to `key_len` bytes, 1 to 64, and `data` to `len` bytes; both are copied. `data` may be NULL if
/// `len` is 0. Errors: `FL_NULL`, `FL_INVALID` for the length of the key, `FL_KIND` if the topic is not of kind
/// keyed, `FL_TOO_LARGE`, `FL_TOO_MANY_KEYS`, `FL_CLOSED`. Thread-safe.
fl_error fl_put_key(const fl_topic *topic,
                    const uint8_t *key,
                    size_t key_len,
                    const uint8_t *data,
                    size_t len);

/// Remove a key: monitors forget its state. Never blocks on the network.
///
/// `key` points to `key_len` bytes, 1 to 64, which are copied. Errors: `FL_NULL`, `FL_INVALID` for the length of
/// the key, `FL_KIND` if the topic is not of kind keyed, `FL_TOO_MANY_KEYS`, `FL_CLOSED`. Thread-safe.
fl_error fl_remove_key(const fl_topic *topic,
                       const uint8_t *key,
                       size_t key_len);

/// Send a record, which arrives once and in order. Never blocks on the network.
///
/// `data` points to `len` bytes, at most 64 KiB (65536), which are copied; NULL is allowed if `len` is 0. A record
/// must also fit into the topic's buffer (`fl_topic_config_every`). It is kept in the memory of this process until
/// the monitor's application has received it. Errors: `FL_NULL`, `FL_KIND` if the topic is not of kind every,
/// `FL_FULL` while earlier records fill the buffer (try again later), `FL_TOO_LARGE`, `FL_CLOSED`. Thread-safe;
/// records of several threads are in the order of their calls.
fl_error fl_push(const fl_topic *topic,
                 const uint8_t *data,
                 size_t len);

/// Store the number of states that a newer one replaced before they were sent.
///
/// Errors: `FL_NULL`. Thread-safe.
fl_error fl_topic_replaced(const fl_topic *topic, uint64_t *count);

/// Free the handle; NULL is allowed. The topic itself lives as long as its source or monitor.
///
/// Not thread-safe: no other call may use `topic`.
void fl_topic_free(fl_topic *topic);

/// The name of the source of a state, or a label of its session if the source has no name.
///
/// The text belongs to the state and is valid until this handle is freed. NULL if `state` is NULL. Thread-safe.
const char *fl_state_source(const fl_state *state);

/// The name of the topic of a state; empty for a source without topics.
///
/// The text belongs to the state and is valid until this handle is freed. NULL if `state` is NULL. Thread-safe.
const char *fl_state_topic(const fl_state *state);

/// The full name of a state: `source/topic`, or the source alone if there is no topic.
///
/// The text belongs to the state and is valid until this handle is freed. NULL if `state` is NULL. Thread-safe.
const char *fl_state_name(const fl_state *state);

/// The key of a state, and its length in bytes in `*len`; NULL and 0 if its topic has no keys.
///
/// The bytes belong to the state and are valid until this handle is freed. They do not end with NUL. NULL also if
/// an argument is NULL. Thread-safe.
const uint8_t *fl_state_key(const fl_state *state,
                            size_t *len);

/// The payload of a state, and its length in bytes in `*len`. Do not read from the pointer if the length is 0.
///
/// The bytes belong to the state and are valid until this handle is freed. They do not end with NUL. NULL if an
/// argument is NULL. Thread-safe.
const uint8_t *fl_state_payload(const fl_state *state,
                                size_t *len);

/// Store the age of a state now, since it was generated, and by how much the age may be wrong to either side; both
/// in nanoseconds.
///
/// `uncertainty_ns` may be NULL. Errors: `FL_NULL`; `FL_UNKNOWN` in the first round trips of a session. Thread-safe.
fl_error fl_state_age(const fl_state *state,
                      uint64_t *age_ns,
                      uint64_t *uncertainty_ns);

/// The number of the newest update of the session when the state arrived; 0 if `state` is NULL. Thread-safe.
uint64_t fl_state_seq(const fl_state *state);

/// Whether this reports that its key was removed; false if `state` is NULL. Thread-safe.
bool fl_state_is_removed(const fl_state *state);

/// Whether this is a record of a topic of kind every; false if `state` is NULL. Thread-safe.
bool fl_state_is_record(const fl_state *state);

/// Whether the state is still within the maximum age of its topic; true if the topic has no maximum age, and
/// false if `state` is NULL. Thread-safe.
bool fl_state_is_usable(const fl_state *state);

/// Make another handle to the same state, without a copy of its payload. The caller frees it with `fl_state_free`.
///
/// NULL if `state` is NULL. Thread-safe.
fl_state *fl_state_clone(const fl_state *state);

/// Free a handle; NULL is allowed. Other handles to the same state stay valid.
///
/// Not thread-safe: no other call may use this handle.
void fl_state_free(fl_state *state);

/// Wait for the next state, at most `timeout_ms` milliseconds; forever if it is negative.
///
/// The caller frees `*state` with `fl_state_free`; it is NULL unless the call returns `FL_OK`. Errors: `FL_NULL`,
/// `FL_NO_STATE` at the end of the time, `FL_ENDED` once no more states will arrive. Thread-safe.
fl_error fl_subscription_next(const fl_subscription *subscription,
                              int64_t timeout_ms,
                              fl_state **state);

/// Take the next state if one is pending. Never blocks.
///
/// The caller frees `*state` with `fl_state_free`; it is NULL unless the call returns `FL_OK`. Errors: `FL_NULL`,
/// `FL_NO_STATE` if none is pending, `FL_ENDED` once no more states will arrive. Thread-safe.
fl_error fl_subscription_try_next(const fl_subscription *subscription,
                                  fl_state **state);

/// Store a descriptor (an eventfd) that is readable while a state is pending and once the subscription has ended.
/// When `poll` or `epoll` reports it, call `fl_subscription_try_next` until it returns `FL_NO_STATE` or `FL_ENDED`.
///
/// The descriptor belongs to the subscription and is valid until that is freed: neither read from it nor close it.
/// `*fd` is -1 unless the call returns `FL_OK`. Errors: `FL_NULL`, `FL_SYSTEM` if the system has no descriptor
/// left. Thread-safe.
fl_error fl_subscription_fd(const fl_subscription *subscription,
                            int *fd);

/// Call `on_state` with each state, on a new thread of the library, until the subscription is closed or ends; then
/// call `on_end`, unless it is NULL.
///
/// `user` is passed to both; the library does not read it. Callbacks may call any function of the library, also
/// `fl_subscription_close` and `fl_subscription_free` for their own subscription. The library does not use `user`
/// after `fl_subscription_free` has returned, with one exception: called by a callback of the subscription,
/// `fl_subscription_free` returns at once, and `on_end(user)` follows when the callback has returned. Then free
/// `user` in `on_end` and nowhere else. Errors: `FL_NULL`, `FL_INVALID` if the subscription has a
/// callback, `FL_SYSTEM` if the system has no thread left; then neither function is called. Thread-safe.
fl_error fl_subscription_listen(const fl_subscription *subscription,
                                fl_on_state on_state,
                                fl_on_end on_end,
                                void *user);

/// Store whether no state is pending and no more will arrive: `fl_subscription_next` would return `FL_ENDED`.
///
/// Errors: `FL_NULL`. Thread-safe.
fl_error fl_subscription_is_over(const fl_subscription *subscription,
                                 bool *is_over);

/// Store the number of states that a newer one replaced before they were read.
///
/// Errors: `FL_NULL`. Thread-safe.
fl_error fl_subscription_replaced(const fl_subscription *subscription, uint64_t *count);

/// End a subscription: pending states are dropped, and calls that wait return `FL_ENDED`. Does not wait for a
/// callback that runs.
///
/// The caller still frees it. Errors: `FL_NULL`. Thread-safe.
fl_error fl_subscription_close(const fl_subscription *subscription);

/// End a subscription and free it; NULL is allowed. Waits until its callbacks have returned, `on_end` included: so do
/// not hold a lock that a callback takes. Called by one of its callbacks it does not wait, and `on_end` follows.
///
/// States that were received stay valid. Not thread-safe: no other call may use `subscription`; to end one that
/// another thread reads, call `fl_subscription_close` and let that thread return first.
void fl_subscription_free(fl_subscription *subscription);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FRESHLINE_H */
