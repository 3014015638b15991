// A source and a monitor in one program, over loopback, in both directions; see robot.c.
#include <freshline.hpp>

#include <future>
#include <iostream>
#include <utility>

using namespace std::chrono_literals;

static void print(const freshline::State &state) {
    std::cout << state.name() << ": " << state.text();
    if (const auto age = state.age()) std::cout << " (age " << age->count() / 1000 << " us)";
    std::cout << std::endl;
}

static int run() {
    const freshline::Monitor monitor(
        freshline::MonitorConfig("udp://127.0.0.1:0").set(fl_monitor_config_topic, "cmd"));
    const freshline::TopicConfig tf = std::move(freshline::TopicConfig("tf").set(fl_topic_config_keyed, 64));
    freshline::Source source(freshline::SourceConfig(monitor.url())
                                 .set(fl_source_config_name, "robot-7")
                                 .set(fl_source_config_law, "acp+d")
                                 .set(fl_source_config_topic, "pose")
                                 .set(fl_source_config_add_topic, tf.get())
                                 .set(fl_source_config_receive));

    std::promise<std::string> received;
    const freshline::Subscription commands = source.subscribe("monitor/*");
    commands.listen([&received, is_first = true](const freshline::State &state) mutable {
        if (std::exchange(is_first, false)) received.set_value(std::string(state.text()));
    });

    const freshline::Subscription states = monitor.subscribe("robot-7/*");
    source.topic("pose").put("x=1.0 y=2.0");
    source.topic("tf").put_key("base", "0 0 0");
    for (int arrived = 0; arrived < 2; arrived++) {
        const auto state = states.next(30s);
        if (!state) throw std::runtime_error("nothing arrived within 30 s");
        print(*state);
    }
    const auto pose = monitor.latest("robot-7/pose");
    if (!pose || pose->text() != "x=1.0 y=2.0") throw std::runtime_error("the monitor has another pose");

    monitor.topic("cmd").put("stop");
    auto command = received.get_future();
    if (command.wait_for(30s) != std::future_status::ready) throw std::runtime_error("no command arrived");
    std::cout << "command: " << command.get() << std::endl;

    try {
        source.topic("speed");
        return 1;
    } catch (const freshline::Error &error) {
        std::cout << error.name() << ": " << error.what() << std::endl;
    }
    source.close();
    return 0;
}

int main() {
    try {
        return run();
    } catch (const std::exception &error) {
        std::cerr << "robot: " << error.what() << std::endl;
        return 1;
    }
}
