//! What a broker is told before it destroys something, by real processes.

mod common;

use common::{Dev, eventually, http, kill, stderr, stdout};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Asks one node; the status and the answer.
fn confirm(port: u16, name: &str, incarnation: u64, within_ms: u32) -> (u16, Value) {
    let body = json!({ "kind": "topic", "name": name, "incarnation": incarnation }).to_string();
    let path = format!("/v1/confirm?timeout_ms={within_ms}");
    let (status, text) = http(port, "POST", &path, body.as_bytes());
    (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
}

/// The definite answer, once there is one: a node that has just started walks its store first.
fn definite(port: u16, name: &str, incarnation: u64) -> Value {
    eventually("a definite answer", || {
        let (status, said) = confirm(port, name, incarnation, 2000);
        (status == 200).then_some(said)
    })
}

/// Creates a topic and returns its incarnation.
fn create(dev: &Dev, name: &str) -> u64 {
    dev.json(&["topic", "create", name, "--json"])["incarnation"].as_u64().expect("an incarnation")
}

#[test]
fn every_node_tells_what_the_leader_proved_and_nothing_without_a_quorum() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 3, &[]);
    let first = create(&dev, "orders");
    for node in 0..3 {
        let said = definite(dev.http + node, "orders", first);
        assert_eq!(said["verdict"], "live", "{said}");
    }
    dev.json(&["topic", "delete", "orders", "--json"]);
    let second = create(&dev, "orders");
    assert!(second > first);
    let leader = dev.leader().0;
    for node in 0..3 {
        let port = dev.http + node;
        let gone = definite(port, "orders", first);
        assert_eq!((&gone["verdict"], &gone["leader"]), (&"gone".into(), &leader.clone().into()));
        let deleted_at = gone["deleted_at"].as_u64().expect("an index");
        assert!(first < deleted_at && deleted_at < second, "{gone}");
        // The name lives on, in another incarnation: that says nothing about the first.
        assert_eq!(definite(port, "orders", second)["verdict"], "live");
        // Nobody has ever heard of this one: an absence proves nothing.
        let (status, never) = confirm(port, "orders", second + 1000, 2000);
        assert_eq!((status, &never["verdict"]), (503, &"unknown".into()), "{never}");
        let (status, never) = confirm(port, "nothing", 1, 2000);
        assert_eq!((status, &never["verdict"]), (503, &"unknown".into()), "{never}");
    }
    let incarnation = first.to_string();
    let gone = dev.run(&["topic", "confirm-gone", "orders", "--incarnation", &incarnation]);
    assert_eq!(gone.status.code(), Some(0), "{}{}", stdout(&gone), stderr(&gone));
    assert!(stdout(&gone).contains("gone: deleted by entry"), "{}", stdout(&gone));
    let incarnation = second.to_string();
    let args = ["topic", "confirm-gone", "orders", "--incarnation", &incarnation, "--json"];
    let live = dev.run(&args);
    assert_eq!(live.status.code(), Some(1), "{}{}", stdout(&live), stderr(&live));
    let said: Value = serde_json::from_slice(&live.stdout).expect("JSON");
    assert_eq!(said["verdict"], "live", "{said}");

    let survivor = u16::try_from(0).expect("small");
    for member in &dev.status()["members"].as_array().expect("members")[1..] {
        kill(member["pid"].as_u64().expect("a process id"), Signal::KILL);
    }
    let (status, said) = confirm(dev.http + survivor, "orders", first, 500);
    assert_eq!((status, &said["verdict"]), (503, &"unknown".into()), "{said}");
    let args = ["topic", "confirm-gone", "orders", "--incarnation", &incarnation, "--timeout", "1"];
    let alone = dev.run(&args);
    assert_eq!(alone.status.code(), Some(3), "{}{}", stdout(&alone), stderr(&alone));
    dev.stop();
}

#[test]
fn a_bad_question_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(dir.path(), 1, &[]);
    let long = format!(r#"{{"kind":"topic","name":"{}","incarnation":1}}"#, "x".repeat(5000));
    for (body, word) in [
        (r#"{"kind":"topic"}"#, "incarnation"),
        (r#"{"kind":"river","name":"a","incarnation":1}"#, "river"),
        (r#"{"kind":"topic","name":"a","incarnation":1,"epoch":"xyz"}"#, "epoch"),
        (r#"{"kind":"topic","name":"a","incarnation":1,"more":1}"#, "more"),
        (long.as_str(), "bytes"),
    ] {
        let (status, text) = http(dev.http, "POST", "/v1/confirm", body.as_bytes());
        assert!(status == 400 && text.contains(word), "{body}: {status} {text}");
    }
    // A stamp of another cluster or epoch is never gone here, whatever was deleted.
    let incarnation = create(&dev, "orders");
    dev.json(&["topic", "delete", "orders", "--json"]);
    assert_eq!(definite(dev.http, "orders", incarnation)["verdict"], "gone");
    for key in ["cluster", "epoch"] {
        let mut body = json!({ "kind": "topic", "name": "orders", "incarnation": incarnation });
        body[key] = "abc".into();
        let (status, text) = http(dev.http, "POST", "/v1/confirm", body.to_string().as_bytes());
        assert_eq!(status, 503, "{text}");
        assert!(text.contains("\"verdict\":\"unknown\""), "{text}");
    }
    dev.stop();
}
