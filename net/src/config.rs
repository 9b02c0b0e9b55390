//! Configuration of a node: a TOML file, then `HOLDFAST_*` variables, then flags. Everything is
//! checked at start; a complaint names the key and the remedy.

use crate::peer::PeerAddress;
use crate::peer::auth::Token;
use crate::peer::is_loopback;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// A complaint about one key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// The key as it stands in the file.
    pub key: String,
    /// What is wrong and what to do, in one sentence.
    pub problem: String,
}

fn wrong(key: &str, problem: impl Into<String>) -> ConfigError {
    ConfigError { key: key.to_owned(), problem: problem.into() }
}

/// One of `initial_members`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberEntry {
    /// Node name.
    pub name: String,
    /// Host and port of the peer listener.
    pub peer: String,
    /// Base URL of the HTTP API, for status while the member is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
}

impl FromStr for MemberEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, peer) = text.split_once('=').ok_or("write NAME=HOST:PORT")?;
        Ok(Self { name: name.to_owned(), peer: peer.to_owned(), http: None })
    }
}

/// Whether an empty node may take part in forming a cluster.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ClusterState {
    /// An empty node takes part in forming one.
    New,
    /// An empty node waits for a cluster that lists it.
    #[default]
    Existing,
}

/// How log lines look.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Every key, each optional: the same struct is the file, the environment and the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Name of this node; one of the initial members
    #[arg(long, env = "HOLDFAST_NAME")]
    pub name: Option<String>,
    /// Directory of this node's data
    #[arg(long, env = "HOLDFAST_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address of the HTTP API [default: 127.0.0.1:7600]
    #[arg(long, env = "HOLDFAST_HTTP_ADDR")]
    pub http_addr: Option<String>,
    /// Base URL under which others reach the HTTP API [default: made from http_addr]
    #[arg(long, env = "HOLDFAST_HTTP_ADVERTISE")]
    pub http_advertise: Option<String>,
    /// Address of the peer listener [default: this node's entry in initial_members]
    #[arg(long, env = "HOLDFAST_PEER_ADDR")]
    pub peer_addr: Option<String>,
    /// Members as NAME=HOST:PORT, comma separated, the same list in the same order everywhere
    #[arg(long, env = "HOLDFAST_INITIAL_MEMBERS", value_delimiter = ',')]
    pub initial_members: Option<Vec<MemberEntry>>,
    /// `new` lets an empty node form a cluster, `existing` makes it wait for one [default: existing]
    #[arg(long, env = "HOLDFAST_CLUSTER_STATE")]
    pub cluster_state: Option<ClusterState>,
    /// File with the token (32 characters or more) that all peers share
    #[arg(long, env = "HOLDFAST_PEER_TOKEN_FILE")]
    pub peer_token_file: Option<PathBuf>,
    /// Allow a peer listener off loopback without a token
    #[arg(long, env = "HOLDFAST_INSECURE_PEERS", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub insecure_peers: Option<bool>,
    /// Heartbeat interval in milliseconds [default: 50]
    #[arg(long, env = "HOLDFAST_HEARTBEAT_MS")]
    pub heartbeat_ms: Option<u64>,
    /// Shortest election timeout in milliseconds [default: 150]
    #[arg(long, env = "HOLDFAST_ELECTION_MIN_MS")]
    pub election_min_ms: Option<u64>,
    /// Longest election timeout in milliseconds [default: twice the shortest]
    #[arg(long, env = "HOLDFAST_ELECTION_MAX_MS")]
    pub election_max_ms: Option<u64>,
    /// Take a snapshot after this many entries [default: 8192]
    #[arg(long, env = "HOLDFAST_SNAPSHOT_ENTRIES")]
    pub snapshot_entries: Option<u64>,
    /// Keep this many entries behind a snapshot [default: snapshot_entries]
    #[arg(long, env = "HOLDFAST_KEPT_ENTRIES")]
    pub kept_entries: Option<u64>,
    /// Size of a log segment in bytes, a multiple of 4096 [default: 16777216]
    #[arg(long, env = "HOLDFAST_SEGMENT_BYTES")]
    pub segment_bytes: Option<u64>,
    /// How fast sealed segments of the log are verified in the background, in MiB a second, up to
    /// 1024; 0 for never [default: 4]
    #[arg(long, env = "HOLDFAST_SCRUB_MIB_PER_S")]
    pub scrub_mib_per_s: Option<u64>,
    /// How long a write waits for its outcome unless the call says otherwise [default: 10000]
    #[arg(long, env = "HOLDFAST_WRITE_TIMEOUT_MS")]
    pub write_timeout_ms: Option<u64>,
    /// Connections that the HTTP API serves at once, from 8 [default: 512]
    #[arg(long, env = "HOLDFAST_HTTP_CONNECTIONS")]
    pub http_connections: Option<u64>,
    /// Log lines as text or json [default: text]
    #[arg(long, env = "HOLDFAST_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// What is logged, as in RUST_LOG [default: info]
    #[arg(long, env = "HOLDFAST_LOG")]
    pub log: Option<String>,
}

macro_rules! overlay {
    ($under:ident, $over:ident; $($key:ident)*) => {
        Settings { $($key: $over.$key.or($under.$key)),* }
    };
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`] naming the file, the line and the key.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| wrong("--config", format!("cannot read {}: {e}", path.display())))?;
        toml::from_str(&text)
            .map_err(|e| wrong("--config", format!("{}: {}", path.display(), e.to_string().trim())))
    }

    /// These settings, overridden by those that `over` has.
    #[must_use]
    pub fn overlaid(self, over: Self) -> Self {
        let under = self;
        overlay!(under, over; name data_dir http_addr http_advertise peer_addr initial_members
            cluster_state peer_token_file insecure_peers heartbeat_ms election_min_ms
            election_max_ms snapshot_entries kept_entries segment_bytes scrub_mib_per_s
            write_timeout_ms http_connections log_format log)
    }

    /// Checks everything.
    ///
    /// # Errors
    /// The first [`ConfigError`].
    pub fn validate(self) -> Result<Config, ConfigError> {
        let name = self.name.ok_or_else(|| wrong("name", "is missing; name this node"))?;
        check_name("name", &name)?;
        let data_dir = self
            .data_dir
            .filter(|dir| !dir.as_os_str().is_empty())
            .ok_or_else(|| wrong("data_dir", "is missing; say where this node keeps its data"))?;
        let members = self.initial_members.unwrap_or_default();
        check_members(&name, &members)?;
        let peer_addr = match self.peer_addr {
            Some(addr) => addr,
            None => members
                .iter()
                .find(|m| m.name == name)
                .map(|m| m.peer.clone())
                .ok_or_else(|| wrong("peer_addr", "is missing; give HOST:PORT"))?,
        };
        let peer_addr = resolve("peer_addr", &peer_addr)?;
        let http_addr = self.http_addr.unwrap_or_else(|| "127.0.0.1:7600".to_owned());
        let http_addr = resolve("http_addr", &http_addr)?;
        let token = read_token(self.peer_token_file.as_deref())?;
        if token.is_none() && !self.insecure_peers.unwrap_or(false) && !is_loopback(&peer_addr) {
            return Err(wrong(
                "peer_token_file",
                format!(
                    "is missing, and peer_addr {peer_addr} is not a loopback address: anybody who reaches it could vote; give a file with a token, or pass --insecure-peers"
                ),
            ));
        }
        let timing = Timing::new(self.heartbeat_ms, self.election_min_ms, self.election_max_ms)?;
        let snapshot_entries = at_least("snapshot_entries", self.snapshot_entries, 8192, 1)?;
        let kept_entries = at_least("kept_entries", self.kept_entries, snapshot_entries, 0)?;
        let segment_bytes = segment_bytes(self.segment_bytes)?;
        let scrub_mib_per_s = scrub_mib_per_s(self.scrub_mib_per_s)?;
        let write_timeout = at_least("write_timeout_ms", self.write_timeout_ms, 10_000, 1)?;
        let http_connections = at_least("http_connections", self.http_connections, 512, 8)?;
        let http_advertise = match self.http_advertise {
            Some(url) => {
                check_url("http_advertise", "", &url)?;
                url
            }
            None => format!("http://{http_addr}"),
        };
        Ok(Config {
            http_advertise,
            name,
            data_dir,
            http_addr,
            peer_addr,
            members,
            cluster_state: self.cluster_state.unwrap_or_default(),
            token,
            timing,
            snapshot_entries,
            kept_entries,
            segment_bytes,
            scrub_mib_per_s,
            write_timeout: Duration::from_millis(write_timeout),
            http_connections: usize::try_from(http_connections).unwrap_or(usize::MAX),
            log_format: self.log_format.unwrap_or_default(),
            log: self.log.unwrap_or_else(|| "info".to_owned()),
        })
    }
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of this node.
    pub name: String,
    /// Its data.
    pub data_dir: PathBuf,
    /// Where the HTTP API listens.
    pub http_addr: SocketAddr,
    /// Base URL under which others reach it.
    pub http_advertise: String,
    /// Where the peer listener listens.
    pub peer_addr: SocketAddr,
    /// `initial_members`, in order; may be empty on a node that only waits.
    pub members: Vec<MemberEntry>,
    /// Whether an empty node forms a cluster or waits for one.
    pub cluster_state: ClusterState,
    /// The peers' token.
    pub token: Option<Token>,
    /// Heartbeats and elections.
    pub timing: Timing,
    /// Entries between snapshots.
    pub snapshot_entries: u64,
    /// Entries kept behind a snapshot.
    pub kept_entries: u64,
    /// Size of a log segment.
    pub segment_bytes: u64,
    /// Pace of the log's scrub in MiB a second, at most 1024; zero for none.
    pub scrub_mib_per_s: u64,
    /// Default deadline of a write.
    pub write_timeout: Duration,
    /// Connections of the HTTP API at once.
    pub http_connections: usize,
    /// How log lines look.
    pub log_format: LogFormat,
    /// What is logged.
    pub log: String,
}

impl Config {
    /// Addresses of all members.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerAddress> {
        let at = |m: &MemberEntry| PeerAddress { name: m.name.clone(), address: m.peer.clone() };
        self.members.iter().map(at).collect()
    }

    /// Names of the members that form a cluster; empty unless this node was started with `new`.
    #[must_use]
    pub fn forming(&self) -> Vec<String> {
        match self.cluster_state {
            ClusterState::New => self.members.iter().map(|m| m.name.clone()).collect(),
            ClusterState::Existing => Vec::new(),
        }
    }
}

/// Heartbeats and elections, in milliseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Heartbeat interval.
    pub heartbeat_ms: u64,
    /// Shortest election timeout.
    pub election_min_ms: u64,
    /// Longest election timeout.
    pub election_max_ms: u64,
}

impl Timing {
    fn new(
        heartbeat: Option<u64>,
        min: Option<u64>,
        max: Option<u64>,
    ) -> Result<Self, ConfigError> {
        let heartbeat_ms = at_least("heartbeat_ms", heartbeat, 50, 1)?;
        let election_min_ms = at_least("election_min_ms", min, 150, 1)?;
        if election_min_ms <= heartbeat_ms {
            return Err(wrong(
                "election_min_ms",
                format!(
                    "{election_min_ms} must be above heartbeat_ms {heartbeat_ms}, or every heartbeat is late; three times it is a good value"
                ),
            ));
        }
        let election_max_ms =
            at_least("election_max_ms", max, election_min_ms.saturating_mul(2), 1)?;
        if election_max_ms <= election_min_ms {
            return Err(wrong(
                "election_max_ms",
                format!(
                    "{election_max_ms} must be above election_min_ms {election_min_ms}, or candidates collide; twice it is a good value"
                ),
            ));
        }
        const LONGEST: u64 = 600_000;
        if election_max_ms > LONGEST {
            return Err(wrong(
                "election_max_ms",
                format!("{election_max_ms} is above ten minutes ({LONGEST}); give a smaller value"),
            ));
        }
        Ok(Self { heartbeat_ms, election_min_ms, election_max_ms })
    }
}

fn at_least(key: &str, value: Option<u64>, default: u64, least: u64) -> Result<u64, ConfigError> {
    let value = value.unwrap_or(default);
    if value < least {
        return Err(wrong(key, format!("{value} is too small; give at least {least}")));
    }
    Ok(value)
}

fn segment_bytes(value: Option<u64>) -> Result<u64, ConfigError> {
    const KEY: &str = "segment_bytes";
    let value = at_least(KEY, value, 16 << 20, 64 << 10)?;
    if !value.is_multiple_of(4096) || value > 1 << 30 {
        return Err(wrong(
            KEY,
            format!("{value} is no multiple of 4096 up to 1073741824; 16777216 is a good value"),
        ));
    }
    Ok(value)
}

fn scrub_mib_per_s(value: Option<u64>) -> Result<u64, ConfigError> {
    const MOST: u64 = 1024;
    let value = value.unwrap_or(4);
    if value > MOST {
        let problem = format!("{value} is above {MOST}; 4 is a good value, and 0 turns it off");
        return Err(wrong("scrub_mib_per_s", problem));
    }
    Ok(value)
}

fn check_name(key: &str, name: &str) -> Result<(), ConfigError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
        return Err(wrong(
            key,
            format!("{name:?} is no node name; use 1 to 64 letters, digits, dots, - and _"),
        ));
    }
    Ok(())
}

/// A base URL that other nodes and clients are told.
fn check_url(key: &str, whose: &str, url: &str) -> Result<(), ConfigError> {
    if base_url(url) {
        return Ok(());
    }
    Err(wrong(
        key,
        format!(
            "{whose}{url:?} is no base URL; give http://HOST:PORT or https://HOST:PORT, or leave it out"
        ),
    ))
}

/// True of `http` or `https` with a host and, with `http` always, a port above zero; a path may follow.
fn base_url(url: &str) -> bool {
    let plain = url.chars().all(|c| c.is_ascii_graphic() && !"\"<>\\^`{|}?#@".contains(c));
    let tls = url.strip_prefix("https://");
    let Some(rest) = tls.or_else(|| url.strip_prefix("http://")).filter(|_| plain) else {
        return false;
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let named = match host.strip_prefix('[') {
        Some(inner) => {
            inner.strip_suffix(']').is_some_and(|a| a.parse::<std::net::Ipv6Addr>().is_ok())
        }
        None => !host.is_empty() && !host.contains([':', '[', ']']),
    };
    let reached = match port {
        Some(port) => {
            port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0)
        }
        None => tls.is_some(),
    };
    named && reached
}

fn check_members(name: &str, members: &[MemberEntry]) -> Result<(), ConfigError> {
    const KEY: &str = "initial_members";
    for (i, member) in members.iter().enumerate() {
        check_name(KEY, &member.name)?;
        if member.peer.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            return Err(wrong(KEY, format!("{}: {:?} is no HOST:PORT", member.name, member.peer)));
        }
        if let Some(url) = &member.http {
            check_url(KEY, &format!("{}: http ", member.name), url)?;
        }
        if members[..i].iter().any(|m| m.name == member.name || m.peer == member.peer) {
            return Err(wrong(
                KEY,
                format!("{} or its address {} is listed twice", member.name, member.peer),
            ));
        }
    }
    if !members.is_empty() && !members.iter().any(|m| m.name == name) {
        return Err(wrong(
            KEY,
            format!("does not list this node's own name {name}; add it, or correct `name`"),
        ));
    }
    Ok(())
}

fn resolve(key: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    let first = text.to_socket_addrs().map(|mut addrs| addrs.next());
    match first {
        Ok(Some(addr)) => Ok(addr),
        Ok(None) => Err(wrong(key, format!("{text} resolves to no address"))),
        Err(e) => Err(wrong(key, format!("{text:?} is no usable HOST:PORT: {e}"))),
    }
}

fn read_token(path: Option<&Path>) -> Result<Option<Token>, ConfigError> {
    const KEY: &str = "peer_token_file";
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read_to_string(path)
        .map_err(|e| wrong(KEY, format!("cannot read {}: {e}", path.display())))?;
    let token = Token::parse(&text).map_err(|e| wrong(KEY, format!("{}: {e}", path.display())))?;
    Ok(Some(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Settings {
        let member = |i: u16| MemberEntry {
            name: format!("n{i}"),
            peer: format!("127.0.0.1:{}", 7700 + i),
            http: None,
        };
        Settings {
            name: Some("n1".into()),
            data_dir: Some("d".into()),
            initial_members: Some((1..=3).map(member).collect()),
            ..Settings::default()
        }
    }

    fn complaint(change: impl FnOnce(&mut Settings)) -> ConfigError {
        let mut settings = three();
        change(&mut settings);
        settings.validate().expect_err("must be refused")
    }

    #[test]
    fn a_minimal_configuration_gets_safe_defaults() {
        let config = three().validate().expect("valid");
        assert_eq!(config.cluster_state, ClusterState::Existing);
        assert_eq!(config.peer_addr.to_string(), "127.0.0.1:7701");
        assert_eq!(config.kept_entries, config.snapshot_entries);
        assert_eq!(config.http_advertise, "http://127.0.0.1:7600");
        assert!(config.forming().is_empty());
        assert_eq!(config.scrub_mib_per_s, 4);
        let off = Settings { scrub_mib_per_s: Some(0), ..three() };
        assert_eq!(off.validate().expect("valid").scrub_mib_per_s, 0, "zero turns it off");
    }

    #[test]
    fn each_bad_key_is_named() {
        assert_eq!(complaint(|s| s.name = None).key, "name");
        assert_eq!(complaint(|s| s.name = Some("a b".into())).key, "name");
        assert_eq!(complaint(|s| s.data_dir = None).key, "data_dir");
        assert_eq!(complaint(|s| s.data_dir = Some("".into())).key, "data_dir");
        assert_eq!(complaint(|s| s.name = Some("n9".into())).key, "initial_members");
        assert_eq!(complaint(|s| s.heartbeat_ms = Some(150)).key, "election_min_ms");
        assert_eq!(complaint(|s| s.heartbeat_ms = Some(0)).key, "heartbeat_ms");
        assert_eq!(complaint(|s| s.election_max_ms = Some(150)).key, "election_max_ms");
        assert_eq!(complaint(|s| s.snapshot_entries = Some(0)).key, "snapshot_entries");
        assert_eq!(complaint(|s| s.segment_bytes = Some(100_000)).key, "segment_bytes");
        assert_eq!(complaint(|s| s.scrub_mib_per_s = Some(1025)).key, "scrub_mib_per_s");
        assert_eq!(complaint(|s| s.http_addr = Some("nonsense".into())).key, "http_addr");
        assert_eq!(
            complaint(|s| s.peer_token_file = Some("/no/such/file".into())).key,
            "peer_token_file"
        );
    }

    #[test]
    fn what_others_are_told_must_be_a_base_url() {
        let bad = [
            "",
            "garbage",
            "ftp://x:1",
            "http://x",
            "http://x:99999",
            "http://x:0",
            "http://:1",
            "http://x:1\n",
            "http://x: 1",
            "http://[::1:7600",
            "http://a:b:1",
            "http://x:+1",
        ];
        for url in bad {
            let error = complaint(|s| s.http_advertise = Some(url.into()));
            assert_eq!(error.key, "http_advertise", "{url:?}");
            assert!(error.problem.contains("HOST:PORT"), "{error}");
            let error = complaint(|s| {
                let members = s.initial_members.as_mut().expect("three");
                members[1].http = Some(url.into());
            });
            assert_eq!(error.key, "initial_members", "{url:?}");
            assert!(error.problem.starts_with("n2: http "), "{error}");
        }
        for url in
            ["http://a.b:1", "http://[::1]:7600/", "https://proxy/node1", "http://10.0.0.1:65535"]
        {
            let mut settings = three();
            settings.http_advertise = Some(url.into());
            settings.initial_members.as_mut().expect("three")[0].http = Some(url.into());
            let config = settings.validate().unwrap_or_else(|e| panic!("{url}: {e}"));
            assert_eq!(config.http_advertise, url);
        }
    }

    #[test]
    fn a_peer_listener_off_loopback_needs_a_token_or_the_flag() {
        let open = |s: &mut Settings| s.peer_addr = Some("0.0.0.0:7700".into());
        let error = complaint(open);
        assert_eq!(error.key, "peer_token_file");
        assert!(error.problem.contains("--insecure-peers"), "{error}");
        let mut settings = three();
        open(&mut settings);
        settings.insecure_peers = Some(true);
        assert!(settings.validate().is_ok());
    }

    #[test]
    fn flags_override_the_file() {
        let file: Settings = toml::from_str(
            "name = 'n1'\ndata_dir = 'x'\nheartbeat_ms = 20\n[[initial_members]]\nname = 'n1'\npeer = '127.0.0.1:1'\n",
        )
        .expect("valid TOML");
        let flags = Settings { heartbeat_ms: Some(30), ..Settings::default() };
        let config = file.overlaid(flags).validate().expect("valid");
        assert_eq!(config.timing.heartbeat_ms, 30);
        assert_eq!(config.members.len(), 1);
    }

    #[test]
    fn an_unknown_key_in_the_file_is_named() {
        let error = toml::from_str::<Settings>("heartbeat = 3").expect_err("unknown key");
        assert!(error.to_string().contains("heartbeat"), "{error}");
    }
}
