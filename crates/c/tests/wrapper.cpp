// The properties of freshline.hpp that freshline.h does not have: move-only handles, bytes of each kind, exceptions, ends.
#include <freshline.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <vector>

using namespace freshline;
using namespace std::chrono_literals;

template <class T> constexpr bool is_move_only =
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> && std::is_nothrow_move_constructible_v<T> &&
    std::is_nothrow_move_assignable_v<T>;
static_assert(is_move_only<State> && is_move_only<Topic> && is_move_only<Subscription>);
static_assert(is_move_only<Source> && is_move_only<Monitor>);
static_assert(is_move_only<SourceConfig> && is_move_only<MonitorConfig> && is_move_only<TopicConfig>);

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                               \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (false)

/// The code of the error that `call` throws; FL_OK if it does not throw.
template <class F> static fl_error thrown(F call) {
    try {
        call();
        return FL_OK;
    } catch (const Error &error) {
        REQUIRE(error.what()[0] != '\0' && std::string_view(error.name()).starts_with("FL_"));
        return error.code;
    }
}

static State next(const Subscription &states) {
    auto state = states.next(30s);
    REQUIRE(state);
    return std::move(*state);
}

static void bytes_of_each_kind() {
    const Monitor monitor{MonitorConfig("udp://127.0.0.1:0")};
    const Source source(SourceConfig(monitor.url()).set(fl_source_config_name, "robot"));
    const Subscription states = monitor.subscribe("*");
    const Topic topic = source.topic("");
    const auto arrives = [&](Bytes given, std::string_view wanted) {
        topic.put(given);
        // A state may be replaced by a newer one, but each here is awaited.
        return next(states).text() == wanted;
    };
    std::vector<std::uint8_t> list{'v', 'e', 'c'};
    const std::array<std::uint8_t, 3> array{'a', 'r', 'r'};
    const std::uint8_t plain[2] = {'c', '!'};
    const std::string text = "text";
    const char *pointer = "pointer";
    REQUIRE(arrives(list, "vec"));
    REQUIRE(arrives(array, "arr"));
    REQUIRE(arrives(plain, "c!"));
    REQUIRE(arrives(std::span(list), "vec"));
    REQUIRE(arrives(std::span<const std::uint8_t>(list), "vec"));
    REQUIRE(arrives(text, "text"));
    REQUIRE(arrives(std::string_view(text), "text"));
    REQUIRE(arrives(pointer, "pointer"));
    REQUIRE(arrives("literal", "literal"));
    auto state = monitor.latest("robot");
    REQUIRE(state && state->name() == "robot" && state->topic().empty() && state->key().empty());
    const State kept = state->clone();
    state.reset();
    State moved = kept.clone();
    const State taken = std::move(moved);
    REQUIRE(moved.source().empty() && moved.topic().empty() && moved.name().empty() && moved.text().empty());
    REQUIRE(moved.key().empty() && !moved.age() && !moved.is_usable() && taken.source() == "robot");
    REQUIRE(kept.text() == "literal" && kept.is_usable() && !kept.is_record() && !kept.is_removed());
    REQUIRE(!monitor.latest("robot/speed") && monitor.fingerprint().empty());
    REQUIRE(thrown([&] { topic.push("x"); }) == FL_KIND);
    REQUIRE(thrown([&] { topic.put_key("key", "x"); }) == FL_KIND);
    REQUIRE(thrown([&] { (void)source.topic("speed"); }) == FL_UNKNOWN_TOPIC);
}

static void ends() {
    REQUIRE(thrown([] { SourceConfig("http://host"); }) == FL_INVALID);
    REQUIRE(thrown([] { Source{SourceConfig("quic://127.0.0.1")}; }) == FL_SECURITY);
    Monitor monitor{MonitorConfig("udp://127.0.0.1:0")};
    Source first{SourceConfig(monitor.url())};
    Source source = std::move(first);
    REQUIRE(source.rate() >= 0.0 && !source.latest("monitor/cmd"));
    const Subscription states = monitor.subscribe("*"), called = monitor.subscribe("*");
    std::promise<void> arrived;
    called.listen([&arrived, count = 0](const State &) mutable {
        if (count++ == 0) arrived.set_value();
    });
    source.topic("").put("x");
    REQUIRE(arrived.get_future().wait_for(30s) == std::future_status::ready);
    REQUIRE(states.fd() >= 0 && next(states).text() == "x" && !states.try_next() && !states.next(1ms));
    REQUIRE(!states.is_over());
    monitor.close();
    // A loop of a reader ends.
    while (!states.is_over()) (void)states.next(1ms);
    REQUIRE(!states.next(-1ms));
    source.close();
    REQUIRE(monitor.address().empty() && monitor.url().empty() && monitor.fingerprint().empty());
    REQUIRE(thrown([&] { (void)source.rate(); }) == FL_NULL && thrown([&] { monitor.close(); }) == FL_NULL);
}

int main() {
    bytes_of_each_kind();
    ends();
}
