//! States and records arrive, by calls, by a descriptor and by callbacks, in both directions; handles may be freed in
//! any order.
//!
//! Unsafe: payloads are read, and buffers passed, as C does.

#![allow(unsafe_code, reason = "the interface of C consists of pointers")]

mod handles;

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use freshline_c::fl_error::*;
use freshline_c::*;

use handles::{bytes, get, handle, last, text};

const PATIENCE_MS: i64 = 30_000;

const PATIENCE: Duration = Duration::from_secs(30);

/// A monitor with the topic `cmd`, and a source with topics of each kind that receives it.
struct Pair {
    monitor: Box<fl_monitor>,
    source: Box<fl_source>,
}

impl Pair {
    fn new() -> Self {
        let url = Text::new(c"udp://127.0.0.1:0");
        let mut config = handle(|it| fl_monitor_config_new(url, it)).unwrap();
        assert_eq!(fl_monitor_config_topic(Some(&mut config), Text::new(c"cmd")), FL_OK);
        let monitor = handle(|it| fl_monitor_start(Some(&mut config), it)).unwrap();
        fl_monitor_config_free(Some(config));
        let url = std::ffi::CString::new(text(fl_monitor_url(Some(&monitor)))).unwrap();
        let mut config = handle(|it| fl_source_config_new(Text::new(&url), it)).unwrap();
        assert_eq!(fl_source_config_name(Some(&mut config), Text::new(c"robot")), FL_OK);
        assert_eq!(fl_source_config_receive(Some(&mut config)), FL_OK);
        assert_eq!(fl_source_config_max_state(Some(&mut config), 2000), FL_OK);
        let mut keyed = handle(|it| fl_topic_config_new(Text::new(c"tf"), it)).unwrap();
        assert_eq!(fl_topic_config_keyed(Some(&mut keyed), 2), FL_OK);
        let mut every = handle(|it| fl_topic_config_new(Text::new(c"log"), it)).unwrap();
        assert_eq!(fl_topic_config_every(Some(&mut every), 1024), FL_OK);
        assert_eq!(fl_source_config_topic(Some(&mut config), Text::new(c"pose")), FL_OK);
        for topic in [keyed, every] {
            assert_eq!(fl_source_config_add_topic(Some(&mut config), Some(&topic)), FL_OK);
            fl_topic_config_free(Some(topic));
        }
        let source = handle(|it| fl_source_start(Some(&mut config), it)).unwrap();
        fl_source_config_free(Some(config));
        Self { monitor, source }
    }

    fn topic(&self, name: &CStr) -> Box<fl_topic> {
        handle(|it| fl_source_topic(Some(&self.source), Text::new(name), it)).unwrap()
    }

    fn subscribe(&self, pattern: &CStr) -> Box<fl_subscription> {
        handle(|it| fl_monitor_subscribe(Some(&self.monitor), Text::new(pattern), it)).unwrap()
    }

    fn put(&self, state: &[u8]) {
        assert_eq!(fl_put(Some(&self.topic(c"pose")), bytes(state), state.len()), FL_OK);
    }
}

fn next(subscription: &fl_subscription) -> Box<fl_state> {
    handle(|it| fl_subscription_next(Some(subscription), PATIENCE_MS, it)).unwrap()
}

fn payload(state: &fl_state) -> Vec<u8> {
    let mut len = MaybeUninit::new(0);
    let start = fl_state_payload(Some(state), Some(&mut len));
    // SAFETY: `len` was initialised, and `len` bytes follow while the state lives.
    unsafe { std::slice::from_raw_parts(start, len.assume_init()) }.to_vec()
}

#[test]
fn states_of_each_kind_arrive() {
    let pair = Pair::new();
    let states = pair.subscribe(c"robot/pose");
    pair.put(b"x=1");
    let state = next(&states);
    assert_eq!(
        (payload(&state), text(fl_state_name(Some(&state)))),
        (b"x=1".to_vec(), "robot/pose".into())
    );
    assert_eq!(text(fl_state_source(Some(&state))), "robot");
    assert_eq!(text(fl_state_topic(Some(&state))), "pose");
    let mut len = MaybeUninit::new(1);
    assert!(fl_state_key(Some(&state), Some(&mut len)).is_null());
    assert!(fl_state_is_usable(Some(&state)) && !fl_state_is_record(Some(&state)));
    let clone = fl_state_clone(Some(&state)).unwrap();
    fl_state_free(Some(state));
    assert_eq!(payload(&clone), b"x=1");

    let (tf, keys) = (pair.topic(c"tf"), pair.subscribe(c"robot/tf"));
    assert_eq!(fl_put_key(Some(&tf), bytes(b"base"), 4, bytes(b"1"), 1), FL_OK);
    assert_eq!(payload(&next(&keys)), b"1");
    let name = Text::new(c"robot/tf");
    let of = |key: &[u8]| {
        handle(|it| fl_monitor_latest_key(Some(&pair.monitor), name, bytes(key), key.len(), it))
    };
    assert_eq!(payload(&of(b"base").unwrap()), b"1");
    assert_eq!(of(b"arm").err(), Some(FL_NO_STATE));
    assert_eq!(fl_remove_key(Some(&tf), bytes(b"base"), 4), FL_OK);
    assert!(fl_state_is_removed(Some(&next(&keys))));

    let (log, records) = (pair.topic(c"log"), pair.subscribe(c"robot/log"));
    for record in [b"1", b"2", b"3"] {
        assert_eq!(fl_push(Some(&log), bytes(record), 1), FL_OK);
    }
    for record in [b"1", b"2", b"3"] {
        let arrived = next(&records);
        assert!(fl_state_is_record(Some(&arrived)));
        assert_eq!(payload(&arrived), record);
    }
    assert_eq!(fl_put(Some(&log), bytes(b"x"), 1), FL_KIND);
    let long = [0; 2001];
    assert_eq!(fl_put(Some(&pair.topic(c"pose")), bytes(&long), long.len()), FL_TOO_LARGE);
    assert!(last().contains("2001 bytes"), "{}", last());
}

#[test]
fn a_full_buffer_and_too_many_keys_are_errors() {
    let url = Text::new(c"udp://127.0.0.1:9");
    let mut config = handle(|it| fl_source_config_new(url, it)).unwrap();
    let mut every = handle(|it| fl_topic_config_new(Text::new(c"log"), it)).unwrap();
    assert_eq!(fl_topic_config_every(Some(&mut every), 1024), FL_OK);
    let mut keyed = handle(|it| fl_topic_config_new(Text::new(c"tf"), it)).unwrap();
    assert_eq!(fl_topic_config_keyed(Some(&mut keyed), 1), FL_OK);
    assert_eq!(fl_source_config_add_topic(Some(&mut config), Some(&every)), FL_OK);
    assert_eq!(fl_source_config_add_topic(Some(&mut config), Some(&keyed)), FL_OK);
    let source = handle(|it| fl_source_start(Some(&mut config), it)).unwrap();
    let log = handle(|it| fl_source_topic(Some(&source), Text::new(c"log"), it)).unwrap();
    let record = [0; 800];
    let push = || fl_push(Some(&log), bytes(&record), record.len());
    assert!((0..100).any(|_| push() == FL_FULL), "the monitor does not answer");
    let long = vec![0; 65_537];
    assert_eq!(fl_push(Some(&log), bytes(&long), long.len()), FL_TOO_LARGE);
    assert!(last().contains("65537"), "{}", last());
    let tf = handle(|it| fl_source_topic(Some(&source), Text::new(c"tf"), it)).unwrap();
    let put = |key: u8| fl_put_key(Some(&tf), bytes(&[key]), 1, bytes(b"x"), 1);
    assert!((0..100).map(put).any(|code| code == FL_TOO_MANY_KEYS));
}

#[test]
fn a_buffer_that_is_too_small_is_left_alone() {
    let pair = Pair::new();
    let states = pair.subscribe(c"*");
    pair.put(b"x=1 y=2");
    next(&states);
    let mut buffer = [0xAA; 8];
    let mut copy = |capacity| {
        let (mut len, mut age) = (MaybeUninit::new(0), MaybeUninit::new(0));
        // SAFETY: no capacity here is above its length.
        let start = unsafe { Buffer::new(&mut buffer) };
        let name = Text::new(c"robot/pose");
        let code = fl_monitor_copy_latest(
            Some(&pair.monitor),
            name,
            start,
            capacity,
            Some(&mut len),
            Some(&mut age),
        );
        // SAFETY: both were initialised.
        (code, unsafe { len.assume_init() }, unsafe { age.assume_init() } > 0, buffer)
    };
    assert_eq!(copy(6), (FL_TOO_SMALL, 7, true, [0xAA; 8]));
    assert_eq!(copy(0), (FL_TOO_SMALL, 7, true, [0xAA; 8]));
    assert_eq!(copy(7), (FL_OK, 7, true, *b"x=1 y=2\xAA"));
    let length = |it: Option<&mut _>| {
        let name = Text::new(c"robot/pose");
        fl_monitor_copy_latest(Some(&pair.monitor), name, Buffer::NULL, 8, it, None)
    };
    assert_eq!(get(length), Err(FL_NULL));
}

#[test]
fn the_monitor_sends_to_its_sources() {
    let pair = Pair::new();
    let pattern = Text::new(c"monitor/*");
    let states = handle(|it| fl_source_subscribe(Some(&pair.source), pattern, it)).unwrap();
    let name = Text::new(c"cmd");
    let command = handle(|it| fl_monitor_topic(Some(&pair.monitor), name, it)).unwrap();
    assert_eq!(fl_put(Some(&command), bytes(b"stop"), 4), FL_OK);
    assert_eq!(payload(&next(&states)), b"stop");
    let name = Text::new(c"monitor/cmd");
    let latest = handle(|it| fl_source_latest(Some(&pair.source), name, it)).unwrap();
    assert_eq!(payload(&latest), b"stop");
    assert_eq!(get(|it| fl_source_is_open(Some(&pair.source), it)), Ok(true));
    assert_eq!(get(|it| fl_topic_replaced(Some(&command), it)), Ok(0));
}

/// The reports of callbacks to the test: a payload, or the end.
type Reports = Mutex<Sender<Option<Vec<u8>>>>;

extern "C" fn report_state(user: User, state: &fl_state) {
    reports(user).lock().unwrap().send(Some(payload(state))).unwrap();
}

extern "C" fn report_end(user: User) {
    reports(user).lock().unwrap().send(None).unwrap();
}

fn reports(user: User) -> &'static Reports {
    // SAFETY: `listen` passes such a pointer, which is never freed.
    unsafe { &*user.0.cast::<Reports>() }
}

/// Where a subscription's callbacks report.
fn listen(subscription: &fl_subscription) -> Receiver<Option<Vec<u8>>> {
    let (sender, receiver) = channel();
    let kept: &'static Reports = Box::leak(Box::new(Mutex::new(sender)));
    let user = User(std::ptr::from_ref(kept).cast_mut().cast());
    let (on_state, on_end) = (Some(report_state as _), Some(report_end as _));
    assert_eq!(fl_subscription_listen(Some(subscription), on_state, on_end, user), FL_OK);
    let again = fl_subscription_listen(Some(subscription), on_state, on_end, user);
    assert_eq!(again, FL_INVALID);
    receiver
}

#[test]
fn callbacks_get_states_and_one_end() {
    let pair = Pair::new();
    let states = pair.subscribe(c"robot/pose");
    let reported = listen(&states);
    pair.put(b"x=1");
    assert_eq!(reported.recv_timeout(PATIENCE), Ok(Some(b"x=1".to_vec())));
    pair.put(b"x=2");
    assert_eq!(reported.recv_timeout(PATIENCE), Ok(Some(b"x=2".to_vec())));
    fl_subscription_free(Some(states));
    assert_eq!(reported.try_recv(), Ok(None), "freeing joins the thread");
    pair.put(b"x=3");
    assert!(reported.try_recv().is_err(), "no state arrives after the end");

    let states = pair.subscribe(c"robot/pose");
    let reported = listen(&states);
    assert!(reported.recv_timeout(PATIENCE).unwrap().is_some(), "the state that is held");
    assert_eq!(fl_monitor_close(Some(pair.monitor)), FL_OK);
    while reported.recv_timeout(PATIENCE).unwrap().is_some() {}
    fl_subscription_free(Some(states));
    assert_eq!(fl_source_close(Some(pair.source)), FL_OK);
}

/// A subscription that its own callback frees, and where that reports to.
struct Freed {
    subscription: Mutex<Option<Box<fl_subscription>>>,
    ended: Mutex<Sender<&'static str>>,
}

extern "C" fn free_own(user: User, _: &fl_state) {
    // SAFETY: the test passes such a pointer, which is never freed.
    let freed = unsafe { &*user.0.cast::<Freed>() };
    fl_subscription_free(freed.subscription.lock().unwrap().take());
    freed.ended.lock().unwrap().send("freed").unwrap();
}

extern "C" fn end_own(user: User) {
    // SAFETY: as above.
    let freed = unsafe { &*user.0.cast::<Freed>() };
    freed.ended.lock().unwrap().send("ended").unwrap();
}

#[test]
fn a_callback_may_free_its_subscription() {
    let pair = Pair::new();
    let (sender, ended) = channel();
    let freed: &'static Freed = Box::leak(Box::new(Freed {
        subscription: Mutex::new(Some(pair.subscribe(c"*"))),
        ended: Mutex::new(sender),
    }));
    let user = User(std::ptr::from_ref(freed).cast_mut().cast());
    let held = freed.subscription.lock().unwrap();
    let listening = fl_subscription_listen(held.as_deref(), Some(free_own), Some(end_own), user);
    assert_eq!(listening, FL_OK);
    drop(held);
    pair.put(b"x=1");
    assert_eq!(ended.recv_timeout(PATIENCE), Ok("freed"));
    assert_eq!(ended.recv_timeout(PATIENCE), Ok("ended"));
}

#[test]
fn a_closed_subscription_wakes_its_readers_and_stays_closed() {
    let pair = Pair::new();
    let states = pair.subscribe(c"*");
    std::thread::scope(|scope| {
        let states = &*states;
        let reader = scope.spawn(|| handle(|it| fl_subscription_next(Some(states), -1, it)).err());
        assert_eq!(fl_subscription_close(Some(states)), FL_OK);
        assert_eq!(reader.join().unwrap(), Some(FL_ENDED));
    });
    let open = pair.subscribe(c"*");
    pair.put(b"x=1");
    next(&open);
    assert_eq!(handle(|it| fl_subscription_try_next(Some(&states), it)).err(), Some(FL_ENDED));
    let is_over = |states: &fl_subscription| get(|it| fl_subscription_is_over(Some(states), it));
    assert_eq!((is_over(&states), is_over(&open)), (Ok(true), Ok(false)));
    let fd = get(|it| fl_subscription_fd(Some(&states), it)).unwrap();
    assert!(fd >= 0, "readable at the end");
    assert_eq!(handle(|it| fl_subscription_try_next(Some(&open), it)).err(), Some(FL_NO_STATE));
    assert_eq!(handle(|it| fl_subscription_next(Some(&open), 0, it)).err(), Some(FL_NO_STATE));
    assert_eq!(get(|it| fl_subscription_replaced(Some(&open), it)), Ok(0));
}

#[test]
fn handles_outlive_their_monitor_and_source() {
    let pair = Pair::new();
    let (pose, states) = (pair.topic(c"pose"), pair.subscribe(c"*"));
    pair.put(b"x=1");
    let state = next(&states);
    assert_eq!(fl_source_close(Some(pair.source)), FL_OK);
    assert_eq!(fl_monitor_close(Some(pair.monitor)), FL_OK);
    assert_eq!(fl_put(Some(&pose), bytes(b"x=2"), 3), FL_CLOSED);
    assert_eq!(handle(|it| fl_subscription_next(Some(&states), -1, it)).err(), Some(FL_ENDED));
    assert_eq!(payload(&state), b"x=1");
}
