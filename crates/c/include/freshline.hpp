// freshline.hpp: C++20 over freshline.h, which has the reference. Handles are move-only and free themselves.
// A failure throws freshline::Error with the library's text. Const functions are thread-safe, as in freshline.h.
#ifndef FRESHLINE_HPP
#define FRESHLINE_HPP

#include "freshline.h"

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace freshline {

/// A span of bytes, also made of text.
struct Bytes : std::span<const std::uint8_t> {
    using span::span;
    Bytes(std::span<const std::uint8_t> given) : span(given) {}
    template <std::convertible_to<std::string_view> T> Bytes(const T &given) : Bytes(std::string_view(given)) {}
    Bytes(std::string_view text) : span(reinterpret_cast<const std::uint8_t *>(text.data()), text.size()) {}
};
using Nanos = std::chrono::nanoseconds;

/// The reason of a failed call; `what()` is the library's text.
struct Error : std::runtime_error {
    explicit Error(fl_error failed) : std::runtime_error(fl_last_error()), code(failed) {}
    const char *name() const noexcept { return fl_error_name(code); }
    fl_error code;
};

namespace detail {
/// A handle that frees itself.
template <class T, auto Function> struct Owner {
    explicit Owner(T *owned) : handle_(owned) {}
    T *get() const noexcept { return handle_.get(); }

protected:
    struct Free { void operator()(T *handle) const noexcept { (void)Function(handle); } };
    std::unique_ptr<T, Free> handle_;
};

inline void check(fl_error code) { if (code != FL_OK) throw Error(code); }
/// Empty for NULL, that is for a closed or moved-from handle, or for a missing value.
inline const char *text(const char *given) { return given ? given : ""; }
/// Calls `function(arguments..., &result)`.
template <class T, class... A> T get(fl_error (*function)(A...), auto... arguments) {
    T result{};
    check(function(arguments..., &result));
    return result;
}
/// The same as an R; unset for the ordinary outcomes `none` and FL_ENDED.
template <class R, class T, class... A>
std::optional<R> find(fl_error none, fl_error (*function)(A...), auto... arguments) {
    T result{};
    const fl_error code = function(arguments..., &result);
    if (code == none || code == FL_ENDED) return std::nullopt;
    check(code);
    return R(result);
}
/// Settings: `set(function, arguments...)` calls any function of the header whose first argument they are.
template <class T, auto New, auto Function> struct Settings : Owner<T, Function> {
    explicit Settings(const std::string &text) : Owner<T, Function>(detail::get<T *>(New, text.c_str())) {}
    template <class... A> Settings &set(fl_error (*function)(T *, A...), std::type_identity_t<A>... arguments) {
        check(function(this->get(), arguments...));
        return *this;
    }
};
} // namespace detail

/// By URL: `SourceConfig("udp://127.0.0.1:3774").set(fl_source_config_topic, "pose")`. One thread at a time.
using SourceConfig = detail::Settings<fl_source_config, fl_source_config_new, fl_source_config_free>;
using MonitorConfig = detail::Settings<fl_monitor_config, fl_monitor_config_new, fl_monitor_config_free>;
/// By name: `TopicConfig("tf").set(fl_topic_config_keyed, 64)`. One thread at a time.
using TopicConfig = detail::Settings<fl_topic_config, fl_topic_config_new, fl_topic_config_free>;

/// A state or record. clone() makes another handle to the same one.
struct State : detail::Owner<fl_state, fl_state_free> {
    using Owner::Owner;
    std::string_view source() const { return detail::text(fl_state_source(get())); }
    std::string_view topic() const { return detail::text(fl_state_topic(get())); }
    std::string_view name() const { return detail::text(fl_state_name(get())); }
    Bytes payload() const { return view(fl_state_payload); }
    std::string_view text() const { return {reinterpret_cast<const char *>(payload().data()), payload().size()}; }
    /// Empty if the topic has no keys.
    Bytes key() const { return view(fl_state_key); }
    /// Unset in the first round trips of a session.
    std::optional<Nanos> age() const { return ages()[0]; }
    std::optional<Nanos> age_uncertainty() const { return ages()[1]; }
    std::uint64_t seq() const { return fl_state_seq(get()); }
    bool is_removed() const { return fl_state_is_removed(get()); }
    bool is_record() const { return fl_state_is_record(get()); }
    bool is_usable() const { return fl_state_is_usable(get()); }
    State clone() const { return State(fl_state_clone(get())); }

private:
    Bytes view(const std::uint8_t *(*function)(const fl_state *, std::size_t *)) const {
        std::size_t length = 0;
        const std::uint8_t *start = function(get(), &length);
        return {start, length};
    }
    std::array<std::optional<Nanos>, 2> ages() const {
        std::uint64_t age = 0, uncertainty = 0;
        if (fl_state_age(get(), &age, &uncertainty) != FL_OK) return {};
        return {Nanos(age), Nanos(uncertainty)};
    }
};

/// Sends the states of a topic. No function blocks on the network.
struct Topic : detail::Owner<fl_topic, fl_topic_free> {
    using Owner::Owner;
    void put(Bytes state) const { detail::check(fl_put(get(), state.data(), state.size())); }
    void put_key(Bytes key, Bytes state) const {
        detail::check(fl_put_key(get(), key.data(), key.size(), state.data(), state.size()));
    }
    void remove_key(Bytes key) const { detail::check(fl_remove_key(get(), key.data(), key.size())); }
    void push(Bytes record) const { detail::check(fl_push(get(), record.data(), record.size())); }
    std::uint64_t replaced() const { return detail::get<std::uint64_t>(fl_topic_replaced, get()); }
};

/// States as they arrive. Its destructor waits for the callback of listen().
struct Subscription : detail::Owner<fl_subscription, fl_subscription_free> {
    using Owner::Owner;
    /// The next state; unset after the timeout, and once no more states will arrive (is_over()).
    std::optional<State> next(std::chrono::milliseconds timeout) const {
        return detail::find<State, fl_state *>(FL_NO_STATE, fl_subscription_next, get(), timeout.count());
    }
    std::optional<State> try_next() const {
        return detail::find<State, fl_state *>(FL_NO_STATE, fl_subscription_try_next, get());
    }
    /// Whether no state is pending and no more will arrive: the end of a loop of next().
    bool is_over() const { return detail::get<bool>(fl_subscription_is_over, get()); }
    /// Readable while a state is pending and once is_over(); neither read from it nor close it.
    int fd() const { return detail::get<int>(fl_subscription_fd, get()); }
    /// Calls `on_state` with each state on a thread of the library. An exception in it ends the program.
    void listen(std::function<void(State)> on_state) const {
        using Function = std::function<void(State)>;
        auto kept = std::make_unique<Function>(std::move(on_state));
        const auto call = [](void *user, const fl_state *state) noexcept {
            (*static_cast<Function *>(user))(State(fl_state_clone(state)));
        };
        const auto end = [](void *user) noexcept { delete static_cast<Function *>(user); };
        detail::check(fl_subscription_listen(get(), call, end, kept.get()));
        (void)kept.release();
    }
    void close() const { detail::check(fl_subscription_close(get())); }
};

namespace detail {
/// The common functions of sources and monitors.
template <class T, auto Start, auto Close, auto TopicOf, auto Latest, auto Subscribe> struct Running
    : Owner<T, Close> {
    /// The handle of a topic that it sends.
    Topic topic(const std::string &name) const {
        return Topic(detail::get<fl_topic *>(TopicOf, this->get(), name.c_str()));
    }
    /// The newest state that it has received, by its full name.
    std::optional<State> latest(const std::string &name) const {
        return find<State, fl_state *>(FL_NO_STATE, Latest, this->get(), name.c_str());
    }
    Subscription subscribe(const std::string &pattern) const {
        return Subscription(detail::get<fl_subscription *>(Subscribe, this->get(), pattern.c_str()));
    }
    /// Ends it before its destructor does, and throws if it could not go on.
    void close() { check(Close(this->handle_.release())); }
    explicit Running(auto *config) : Owner<T, Close>(detail::get<T *>(Start, config)) {}
};
} // namespace detail

/// A source that runs until it is closed or destroyed. Uses the settings up.
struct Source : detail::Running<fl_source, fl_source_start, fl_source_close, fl_source_topic, fl_source_latest,
                                      fl_source_subscribe> {
    explicit Source(const SourceConfig &config) : Running(config.get()) {}
    /// Unset until the monitor has acknowledged a state.
    std::optional<Nanos> age() const { return detail::find<Nanos, std::uint64_t>(FL_UNKNOWN, fl_source_age, get()); }
    double rate() const { return detail::get<double>(fl_source_rate, get()); }
    bool is_open() const { return detail::get<bool>(fl_source_is_open, get()); }
};

/// A monitor that runs until it is closed or destroyed. Uses the settings up.
struct Monitor : detail::Running<fl_monitor, fl_monitor_start, fl_monitor_close, fl_monitor_topic,
                                       fl_monitor_latest, fl_monitor_subscribe> {
    explicit Monitor(const MonitorConfig &config) : Running(config.get()) {}
    std::string address() const { return detail::text(fl_monitor_address(get())); }
    std::string url() const { return detail::text(fl_monitor_url(get())); }
    /// Empty on udp://.
    std::string fingerprint() const { return detail::text(fl_monitor_fingerprint(get())); }
};

} // namespace freshline
#endif // FRESHLINE_HPP
