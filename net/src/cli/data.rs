//! `holdfast topic` and `holdfast kv`.

use super::ask::{Ask, ask, expect_success};
use super::show::table;
use super::{ClientArgs, Failure, print_bytes, print_line};
use crate::client::{Answer, escape};
use crate::http::MODIFIED;
use bytes::Bytes;
use clap::Subcommand;
use hyper::Method;
use serde_json::{Value, json};

#[derive(Subcommand)]
pub(super) enum TopicCommand {
    /// Create a topic
    Create {
        /// Its name
        name: String,
        /// Number of partitions
        #[arg(long, default_value_t = 1)]
        partitions: u32,
        /// Keep records this many milliseconds [default: for ever]
        #[arg(long)]
        retention_ms: Option<u64>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// List all topics
    List {
        #[command(flatten)]
        client: ClientArgs,
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Show one topic
    Describe {
        /// Its name
        name: String,
        #[command(flatten)]
        client: ClientArgs,
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Delete a topic
    Delete {
        /// Its name
        name: String,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Ask a leader that proves itself whether an incarnation was deleted: exit 0 if it is gone,
    /// 1 if it lives, 3 if that is unknown
    ConfirmGone {
        /// The topic's name
        name: String,
        /// The incarnation, as `create` and `describe` show it
        #[arg(long)]
        incarnation: u64,
        #[command(flatten)]
        client: ClientArgs,
    },
}

impl TopicCommand {
    pub(super) fn client(&self) -> &ClientArgs {
        match self {
            Self::Create { client, .. }
            | Self::List { client, .. }
            | Self::Describe { client, .. }
            | Self::Delete { client, .. }
            | Self::ConfirmGone { client, .. } => client,
        }
    }
}

impl KvCommand {
    pub(super) fn client(&self) -> &ClientArgs {
        match self {
            Self::Get { client, .. }
            | Self::Put { client, .. }
            | Self::Cas { client, .. }
            | Self::Delete { client, .. } => client,
        }
    }
}

#[derive(clap::Args)]
pub(super) struct ReadArgs {
    /// Confirm leadership first: see everything that was committed before the call
    #[arg(long)]
    linearizable: bool,
}

#[derive(Subcommand)]
pub(super) enum KvCommand {
    /// Print the value of a key
    Get {
        /// The key
        key: String,
        #[command(flatten)]
        client: ClientArgs,
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Store a value
    Put {
        /// The key
        key: String,
        /// The value
        value: String,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Store a value if the key holds the expected one
    Cas {
        /// The key
        key: String,
        /// The new value
        value: String,
        /// What the key must hold; without it the key must be absent
        #[arg(long)]
        expected: Option<String>,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Delete a key
    Delete {
        /// The key
        key: String,
        #[command(flatten)]
        client: ClientArgs,
    },
}

fn level(read: &ReadArgs, joint: char) -> String {
    if read.linearizable { format!("{joint}level=linearizable") } else { String::new() }
}

/// Prints the answer's JSON, or `text` for people.
fn done(client: &ClientArgs, answer: &Answer, text: &str) {
    if client.json {
        print_line(&String::from_utf8_lossy(&answer.body));
    } else {
        print_line(text);
    }
}

pub(super) async fn topic(command: TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Create { name, partitions, retention_ms, client } => {
            let mut body = json!({ "name": name, "partitions": partitions });
            if let Some(ms) = retention_ms {
                body["retention_ms"] = ms.into();
            }
            let request = Ask {
                method: Method::POST,
                path: "/v1/topics?owners_within_ms=1500",
                body: Bytes::from(body.to_string()),
            };
            let answer = expect_success(ask(&client, request).await?)?;
            let text = format!("created topic {name}{}", owners_text(&answer.json()));
            done(&client, &answer, &text);
        }
        TopicCommand::List { client, read } => list_topics(&client, &read).await?,
        TopicCommand::Describe { name, client, read } => {
            let path = format!("/v1/topics/{}{}", escape(&name), level(&read, '?'));
            let answer = expect_success(ask(&client, Ask::get(&path)).await?)?;
            let topic = answer.json();
            let text =
                format!("{}{}", topic_table(std::slice::from_ref(&topic)), owners_table(&topic));
            done(&client, &answer, &text);
        }
        TopicCommand::Delete { name, client } => {
            let path = format!("/v1/topics/{}", escape(&name));
            let request = Ask { method: Method::DELETE, path: &path, body: Bytes::new() };
            let answer = expect_success(ask(&client, request).await?)?;
            done(&client, &answer, &format!("deleted topic {name}"));
        }
        TopicCommand::ConfirmGone { name, incarnation, client } => {
            confirm_gone(&client, &name, incarnation).await?;
        }
    }
    Ok(())
}

async fn confirm_gone(client: &ClientArgs, name: &str, incarnation: u64) -> Result<(), Failure> {
    let body = json!({ "kind": "topic", "name": name, "incarnation": incarnation }).to_string();
    let request = Ask { method: Method::POST, path: "/v1/confirm", body: Bytes::from(body) };
    let answer = expect_success(ask(client, request).await?)?;
    let said = answer.json();
    let text = match said["verdict"].as_str() {
        Some("gone") => format!("gone: deleted by entry {}", said["deleted_at"]),
        Some("live") => "it lives".to_owned(),
        _ => return Err(Failure::environment(format!("no verdict in {said}"))),
    };
    let text = format!(
        "topic {name} incarnation {incarnation}: {text} (leader {} of term {} at {})",
        said["leader"].as_str().unwrap_or("?"),
        said["term"],
        said["index"]
    );
    done(client, &answer, &text);
    if said["verdict"] == "live" {
        return Err(Failure::check(format!("topic {name} incarnation {incarnation} is not gone")));
    }
    Ok(())
}

async fn list_topics(client: &ClientArgs, read: &ReadArgs) -> Result<(), Failure> {
    let mut topics = Vec::new();
    let mut after: Option<String> = None;
    let applied = loop {
        let from = after.map(|a| format!("&after={}", escape(&a))).unwrap_or_default();
        let path = format!("/v1/topics?limit=1000{from}{}", level(read, '&'));
        let page = expect_success(ask(client, Ask::get(&path)).await?)?.json();
        topics.extend(page["topics"].as_array().cloned().unwrap_or_default());
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break page["applied"].clone();
        }
    };
    if client.json {
        print_line(&json!({ "topics": topics, "applied": applied }).to_string());
    } else if topics.is_empty() {
        print_line("no topics");
    } else {
        print_line(&topic_table(&topics));
    }
    Ok(())
}

/// The owners in a few words, behind a new topic's name.
fn owners_text(topic: &Value) -> String {
    let owners = topic["owners"].as_array().cloned().unwrap_or_default();
    if owners.is_empty() {
        return "; no partition has an owner yet".to_owned();
    }
    let mut nodes: Vec<_> = owners.iter().filter_map(|owner| owner["node"].as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    format!("; {} of {} partitions on {}", owners.len(), topic["partitions"], nodes.join(", "))
}

/// The owners, one a line.
fn owners_table(topic: &Value) -> String {
    let owners = topic["owners"].as_array().cloned().unwrap_or_default();
    if owners.is_empty() {
        return "\n\nno partition has an owner yet".to_owned();
    }
    let mut rows = vec![["PARTITION", "OWNER", "VOLUME", "MOVING TO"].map(str::to_owned).to_vec()];
    for owner in &owners {
        rows.push(vec![
            owner["partition"].to_string(),
            owner["node"].as_str().unwrap_or_default().to_owned(),
            owner["volume"].as_str().unwrap_or_default().to_owned(),
            owner["moving_to"].as_str().unwrap_or("-").to_owned(),
        ]);
    }
    format!("\n\n{}", table(&rows))
}

fn topic_table(topics: &[Value]) -> String {
    let mut rows =
        vec![["NAME", "PARTITIONS", "RETENTION", "INCARNATION"].map(str::to_owned).to_vec()];
    for topic in topics {
        rows.push(vec![
            topic["name"].as_str().unwrap_or_default().to_owned(),
            topic["partitions"].to_string(),
            topic["retention_ms"].as_u64().map_or("for ever".to_owned(), |ms| format!("{ms} ms")),
            topic["incarnation"].to_string(),
        ]);
    }
    table(&rows)
}

pub(super) async fn kv(command: KvCommand) -> Result<(), Failure> {
    match command {
        KvCommand::Get { key, client, read } => get(&key, &client, &read).await,
        KvCommand::Put { key, value, client } => {
            let path = format!("/v1/kv/{}", escape(&key));
            put(&client, &path, &key, value).await
        }
        KvCommand::Cas { key, value, expected, client } => {
            let condition = expected
                .map_or("absent=true".to_owned(), |text| format!("expected={}", escape(&text)));
            let path = format!("/v1/kv/{}?{condition}", escape(&key));
            put(&client, &path, &key, value).await
        }
        KvCommand::Delete { key, client } => {
            let path = format!("/v1/kv/{}", escape(&key));
            let request = Ask { method: Method::DELETE, path: &path, body: Bytes::new() };
            let answer = expect_success(ask(&client, request).await?)?;
            done(&client, &answer, &format!("deleted key {key}"));
            Ok(())
        }
    }
}

async fn put(client: &ClientArgs, path: &str, key: &str, value: String) -> Result<(), Failure> {
    let request = Ask { method: Method::PUT, path, body: Bytes::from(value) };
    let answer = expect_success(ask(client, request).await?)?;
    done(client, &answer, &format!("stored key {key}"));
    Ok(())
}

async fn get(key: &str, client: &ClientArgs, read: &ReadArgs) -> Result<(), Failure> {
    let path = format!("/v1/kv/{}{}", escape(key), level(read, '?'));
    let answer = expect_success(ask(client, Ask::get(&path)).await?)?;
    if client.json {
        let text = std::str::from_utf8(&answer.body).ok();
        let hex: String = answer.body.iter().map(|b| format!("{b:02x}")).collect();
        let body = json!({
            "key": key,
            "value": text,
            "value_hex": hex,
            "modified": answer.number(MODIFIED),
            "applied": answer.number(crate::http::APPLIED),
        });
        print_line(&body.to_string());
        return Ok(());
    }
    print_bytes(&answer.body);
    Ok(())
}
