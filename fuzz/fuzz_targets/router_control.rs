//! Any bytes to a router's control socket, and any bytes as its answer: no panic, an answer to each line
//! that the client can read, and no control character in the client's output.
#![no_main]

use freshline_net::router::{Order, OrderError, answer_to, read_answer};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let mut orders = Vec::new();
    let carry_out = |order: Order| {
        orders.push(order);
        Err(OrderError::System(format!("{order:?}")))
    };
    if let Ok(answer) = answer_to(bytes, carry_out) {
        assert_eq!(answer.last(), Some(&b'\n'));
        let refused = read_answer(&answer[..]).expect("a client reads each answer");
        refused.expect_err("each order is refused here");
    }
    // A parsed order that is written and parsed again is equal.
    for order in orders {
        let text = serde_json::to_string(&order).expect("orders can be written");
        assert_eq!(serde_json::from_str::<Order>(&text).ok(), Some(order));
    }
    match read_answer(bytes) {
        Ok(Ok(report)) => check(&serde_json::to_value(report).expect("reports can be written")),
        Ok(Err(reason)) => check(&Value::String(reason)),
        Err(_) => {}
    }
});

fn check(value: &Value) {
    match value {
        Value::String(text) => assert!(!text.contains(char::is_control), "{text:?}"),
        Value::Array(all) => all.iter().for_each(check),
        Value::Object(all) => all.values().for_each(check),
        _ => {}
    }
}
