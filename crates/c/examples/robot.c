/* A source and a monitor in one program, over loopback, in both directions.
 *
 *     robot            over udp://, for a first try
 *     robot FOLDER     over quic://, with the monitor's certificate in FOLDER
 *
 * Prints each state that arrives, and exits with 0 if all states arrived.
 */
#include <freshline.h>

#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the library's text if a call failed. */
static void check(fl_error code) {
    if (code == FL_OK) return;
    fprintf(stderr, "robot: %s: %s\n", fl_error_name(code), fl_last_error());
    exit(1);
}

static const uint8_t *bytes(const char *text) { return (const uint8_t *)text; }

static fl_monitor *start_monitor(const char *folder) {
    fl_monitor_config *config;
    check(fl_monitor_config_new(folder ? "quic://127.0.0.1:0" : "udp://127.0.0.1:0", &config));
    if (folder) {
        check(fl_monitor_config_state_dir(config, folder));
        check(fl_monitor_config_token(config, bytes("secret"), 6));
    }
    check(fl_monitor_config_topic(config, "cmd"));
    fl_monitor *monitor;
    check(fl_monitor_start(config, &monitor));
    fl_monitor_config_free(config);
    printf("monitor at %s\n", fl_monitor_url(monitor));
    return monitor;
}

/* A topic whose newest state counts, one with keys, and one of which each record counts. */
static void add_topics(fl_source_config *config) {
    fl_topic_config *topic;
    check(fl_topic_config_new("pose", &topic));
    check(fl_topic_config_weight(topic, 4.0));
    check(fl_topic_config_deadline(topic, UINT64_C(2000000000)));
    check(fl_source_config_add_topic(config, topic));
    fl_topic_config_free(topic);
    check(fl_topic_config_new("tf", &topic));
    check(fl_topic_config_keyed(topic, 64));
    check(fl_source_config_add_topic(config, topic));
    fl_topic_config_free(topic);
    check(fl_topic_config_new("log", &topic));
    check(fl_topic_config_every(topic, 0));
    check(fl_source_config_add_topic(config, topic));
    fl_topic_config_free(topic);
}

static fl_source *start_source(const fl_monitor *monitor) {
    fl_source_config *config;
    check(fl_source_config_new(fl_monitor_url(monitor), &config));
    check(fl_source_config_name(config, "robot-7"));
    check(fl_source_config_law(config, "acp+d"));
    check(fl_source_config_max_bandwidth(config, "10Mbit"));
    check(fl_source_config_receive(config));
    if (fl_monitor_fingerprint(monitor)) {
        check(fl_source_config_pin(config, fl_monitor_fingerprint(monitor)));
        check(fl_source_config_token(config, bytes("secret"), 6));
    }
    add_topics(config);
    fl_source *source;
    check(fl_source_start(config, &source));
    fl_source_config_free(config);
    return source;
}

static void send_states(const fl_source *source) {
    fl_topic *pose, *tf, *events;
    check(fl_source_topic(source, "pose", &pose));
    check(fl_source_topic(source, "tf", &tf));
    check(fl_source_topic(source, "log", &events));
    check(fl_put(pose, bytes("x=1.0 y=2.0"), 11));
    check(fl_put_key(tf, bytes("base"), 4, bytes("0 0 0"), 5));
    check(fl_push(events, bytes("started"), 7));
    check(fl_push(events, bytes("ready"), 5));
    fl_topic_free(pose);
    fl_topic_free(tf);
    fl_topic_free(events);
}

/* Waits for a state by the descriptor of its subscription, as a program with its own loop does. */
static fl_state *next_state(fl_subscription *subscription) {
    struct pollfd readable = {.events = POLLIN};
    check(fl_subscription_fd(subscription, &readable.fd));
    for (;;) {
        fl_state *state;
        fl_error code = fl_subscription_try_next(subscription, &state);
        if (code != FL_NO_STATE) {
            check(code);
            return state;
        }
        if (poll(&readable, 1, 30000) <= 0) {
            fprintf(stderr, "robot: nothing arrived within 30 s\n");
            exit(1);
        }
    }
}

static void print_state(const fl_state *state) {
    size_t key_len, len;
    const uint8_t *key = fl_state_key(state, &key_len);
    const uint8_t *payload = fl_state_payload(state, &len);
    printf("%s %.*s: %.*s", fl_state_name(state), (int)key_len, key ? (const char *)key : "", (int)len,
           (const char *)payload);
    uint64_t age, uncertainty;
    if (fl_state_age(state, &age, &uncertainty) == FL_OK)
        printf(" (age %" PRIu64 " us, uncertain by %" PRIu64 " us)", age / 1000, uncertainty / 1000);
    printf("\n");
}

/* Runs on a thread of the library. */
static void on_command(void *user, const fl_state *state) {
    print_state(state);
    atomic_fetch_add((atomic_int *)user, 1);
}

static void on_end(void *user) { atomic_fetch_add((atomic_int *)user, 100); }

int main(int argc, char **argv) {
    fl_monitor *monitor = start_monitor(argc > 1 ? argv[1] : NULL);
    fl_source *source = start_source(monitor);

    atomic_int commands = 0;
    fl_subscription *received;
    check(fl_source_subscribe(source, "monitor/*", &received));
    check(fl_subscription_listen(received, on_command, on_end, &commands));

    fl_subscription *states;
    check(fl_monitor_subscribe(monitor, "robot-7/*", &states));
    send_states(source);
    for (int arrived = 0; arrived < 4; arrived++) {
        fl_state *state = next_state(states);
        print_state(state);
        fl_state_free(state);
    }

    uint8_t buffer[64];
    size_t len;
    check(fl_monitor_copy_latest(monitor, "robot-7/pose", buffer, sizeof buffer, &len, NULL));
    printf("latest pose: %.*s\n", (int)len, (const char *)buffer);

    fl_topic *command;
    check(fl_monitor_topic(monitor, "cmd", &command));
    check(fl_put(command, bytes("stop"), 4));
    fl_topic_free(command);
    for (int tries = 0; tries < 3000 && atomic_load(&commands) == 0; tries++) poll(NULL, 0, 10);
    fl_subscription_free(received);

    double rate;
    bool is_open;
    check(fl_source_rate(source, &rate));
    check(fl_source_is_open(source, &is_open));
    printf("rate %.1f/s, session %s\n", rate, is_open ? "open" : "not open");

    fl_subscription_free(states);
    check(fl_source_close(source));
    check(fl_monitor_close(monitor));
    return atomic_load(&commands) > 100 ? 0 : 1;
}
