//! `holdfast bench`: a load generator with a latency histogram.
//!
//! Each key of `put` belongs to one client, which has one request under way at a time: the order
//! of the writes to a key is known, and with the log index in every acknowledgement `--check` can
//! be exact even where the outcome of a write is unknown.

use super::check::{Ledger, Line};
use super::{DEV_ENDPOINTS, Failure, check, print_line};
use crate::client::{Answer, Client, authority};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use holdfast_consensus::rng::SplitMix64;
use hyper::{Method, StatusCode};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keys that `put` and the reads draw from.
pub(super) const KEYS: u64 = 10_000;
/// Longest latency in the histogram, in microseconds.
const LONGEST: u64 = 600_000_000;
/// Pause once every endpoint has failed in a row.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Op {
    /// Write random keys
    Put,
    /// Create topics
    Create,
    /// Read random keys from the node that is asked
    Read,
    /// Read random keys with leadership confirmed
    Linearizable,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// HTTP/1.1 with keep-alive
    Http,
    /// The pipelined binary protocol
    Binary,
}

#[derive(Args)]
pub(super) struct BenchArgs {
    /// Base URL of a node; repeat it for more [default: the cluster of `holdfast dev`]
    #[arg(long = "endpoint", value_name = "URL")]
    endpoints: Vec<String>,
    /// Clients, each with one request under way
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// How long to run
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// How to talk to the nodes
    #[arg(long, value_enum, default_value = "http")]
    protocol: Protocol,
    /// What to do
    #[arg(long, value_enum, default_value = "put")]
    op: Op,
    /// Size of a value (at least 24)
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(24..=65_536))]
    value_bytes: u32,
    /// Record each acknowledged write, as a JSON line, in this file
    #[arg(long, value_name = "FILE")]
    acked: Option<PathBuf>,
    /// Demand the writes recorded in this file on every endpoint, instead of making load
    #[arg(long, value_name = "FILE", conflicts_with_all = ["acked", "op", "clients", "seconds"])]
    check: Option<PathBuf>,
    /// Print JSON and nothing else
    #[arg(long)]
    pub(super) json: bool,
    /// Give up on one request after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    timeout: f64,
}

/// What all clients share.
struct Shared {
    endpoints: Vec<String>,
    op: Op,
    value_bytes: usize,
    clients: u64,
    /// Names this run in values and topics.
    run: u64,
    begun: Instant,
    until: Instant,
    timeout: Duration,
    /// When the last acknowledgement arrived, in microseconds since `begun`.
    last_ack: AtomicU64,
    longest_gap: AtomicU64,
    errors: AtomicU64,
    /// Somebody asked to end early; what is under way is still waited for.
    stop: AtomicBool,
    ledger: Option<Ledger>,
}

impl Shared {
    fn micros(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn acknowledged(&self) {
        let now = self.micros();
        let before = self.last_ack.fetch_max(now, Ordering::Relaxed);
        self.longest_gap.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }
}

pub(super) async fn run(args: BenchArgs) -> Result<(), Failure> {
    let endpoints = if args.endpoints.is_empty() {
        DEV_ENDPOINTS.map(str::to_owned).to_vec()
    } else {
        args.endpoints.clone()
    };
    for endpoint in &endpoints {
        authority(endpoint).map_err(|e| Failure::usage(e.to_string()))?;
    }
    if let Some(file) = &args.check {
        return check::run(file, &endpoints, args.json).await;
    }
    if args.protocol == Protocol::Binary {
        return Err(Failure::usage("--protocol binary is not in this version; use http"));
    }
    let seconds = positive("--seconds", args.seconds)?;
    let timeout = positive("--timeout", args.timeout)?;
    let ledger = args.acked.as_deref().map(Ledger::create).transpose()?;
    let run = crate::clock::random_u64()
        .map_err(|e| Failure::environment(format!("no random numbers: {e}")))?;
    let begun = Instant::now();
    let shared = Arc::new(Shared {
        endpoints,
        op: args.op,
        value_bytes: args.value_bytes as usize,
        clients: u64::from(args.clients),
        run,
        begun,
        until: begun + seconds,
        timeout,
        last_ack: AtomicU64::new(0),
        longest_gap: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        ledger,
    });
    let clients: Vec<_> = (0..u64::from(args.clients))
        .map(|id| tokio::spawn(Worker::new(id, Arc::clone(&shared)).run()))
        .collect();
    let stopping = Arc::clone(&shared);
    // Ctrl-C and SIGTERM end the run early, with its report and a complete ledger.
    let stopper = tokio::spawn(async move {
        super::dev::asked_to_stop().await;
        stopping.stop.store(true, Ordering::Relaxed);
    });
    let mut total = new_histogram()?;
    for client in clients {
        let histogram =
            client.await.map_err(|e| Failure::environment(format!("a client failed: {e}")))??;
        total.add(&histogram).map_err(|e| Failure::environment(e.to_string()))?;
    }
    stopper.abort();
    // The end of the run closes the last gap.
    shared.acknowledged_nothing_since();
    if let Some(ledger) = &shared.ledger {
        ledger.finish()?;
    }
    report(&args, &shared, &total);
    if total.is_empty() {
        return Err(Failure::environment("nothing was acknowledged: is the cluster up?"));
    }
    Ok(())
}

impl Shared {
    fn acknowledged_nothing_since(&self) {
        let end = self.micros();
        let gap = end.saturating_sub(self.last_ack.load(Ordering::Relaxed));
        self.longest_gap.fetch_max(gap, Ordering::Relaxed);
    }
}

fn positive(flag: &str, seconds: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|d| !d.is_zero() && d.as_secs() < 86_400)
        .ok_or_else(|| Failure::usage(format!("{flag} must be above 0 and below 86400 seconds")))
}

fn new_histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, LONGEST, 3).map_err(|e| Failure::environment(e.to_string()))
}

fn report(args: &BenchArgs, shared: &Shared, total: &Histogram<u64>) {
    let seconds = shared.begun.elapsed().as_secs_f64();
    let ms = |micros: u64| micros as f64 / 1000.0;
    let per_second = total.len() as f64 / seconds;
    let gap = ms(shared.longest_gap.load(Ordering::Relaxed));
    let errors = shared.errors.load(Ordering::Relaxed);
    let name = |value: Option<clap::builder::PossibleValue>| {
        value.map(|v| v.get_name().to_owned()).unwrap_or_default()
    };
    let op = name(args.op.to_possible_value());
    let (p50, p99) = (total.value_at_quantile(0.5), total.value_at_quantile(0.99));
    if args.json {
        let body = json!({
            "op": op,
            "protocol": name(args.protocol.to_possible_value()),
            "clients": args.clients,
            "seconds": seconds,
            "ops": total.len(),
            "ops_per_s": per_second,
            "p50_ms": ms(p50),
            "p99_ms": ms(p99),
            "max_ms": ms(total.max()),
            "longest_gap_ms": gap,
            "errors": errors,
        });
        print_line(&body.to_string());
        return;
    }
    print_line(&format!(
        "{op}: {} operations in {seconds:.1} s by {} clients: {per_second:.0} per second",
        total.len(),
        args.clients
    ));
    print_line(&format!(
        "latency p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms",
        ms(p50),
        ms(p99),
        ms(total.max())
    ));
    print_line(&format!("longest gap between acknowledgements {gap:.1} ms, {errors} errors"));
}

/// What became of one request.
enum Fate {
    /// Acknowledged, at this log index if it is a write.
    Acked(Option<u64>),
    /// Certain to have had no effect.
    Refused,
    /// It may or may not have taken effect.
    Unknown,
}

struct Worker {
    id: u64,
    shared: Arc<Shared>,
    endpoint: usize,
    connection: Option<Client>,
    failures: usize,
    rng: SplitMix64,
    sequence: u64,
}

impl Worker {
    fn new(id: u64, shared: Arc<Shared>) -> Self {
        let endpoint = usize::try_from(id).unwrap_or(0) % shared.endpoints.len();
        let rng = SplitMix64::new(shared.run ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { id, shared, endpoint, connection: None, failures: 0, rng, sequence: 0 }
    }

    async fn run(mut self) -> Result<Histogram<u64>, Failure> {
        let mut histogram = new_histogram()?;
        while Instant::now() < self.shared.until && !self.shared.stop.load(Ordering::Relaxed) {
            self.sequence += 1;
            let (method, path, body, line) = self.next_request();
            let begun = Instant::now();
            let fate = self.attempt(method, &path, body).await;
            if let Fate::Acked(_) = fate {
                let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(LONGEST);
                histogram.saturating_record(micros.clamp(1, LONGEST));
                self.shared.acknowledged();
                self.failures = 0;
            } else {
                self.shared.errors.fetch_add(1, Ordering::Relaxed);
                self.move_on().await;
            }
            if let (Some(ledger), Some(line)) = (&self.shared.ledger, line) {
                match fate {
                    Fate::Acked(index) => ledger.write(&Line { index, ..line })?,
                    Fate::Unknown => ledger.write(&line)?,
                    Fate::Refused => {}
                }
            }
        }
        Ok(histogram)
    }

    fn next_request(&mut self) -> (Method, String, Bytes, Option<Line>) {
        match self.shared.op {
            Op::Put => {
                let key = self.own_key();
                let value = self.value();
                let path = format!("/v1/kv/{key}");
                let line = Line { op: "put".into(), key, value: Some(value.clone()), index: None };
                (Method::PUT, path, Bytes::from(value), Some(line))
            }
            Op::Create => {
                let name = format!("bench-{:016x}-{}-{}", self.shared.run, self.id, self.sequence);
                let body = json!({ "name": name, "partitions": 1 }).to_string();
                let line = Line { op: "create".into(), key: name, value: None, index: None };
                (Method::POST, "/v1/topics".to_owned(), Bytes::from(body), Some(line))
            }
            Op::Read | Op::Linearizable => {
                let level = if self.shared.op == Op::Read { "local" } else { "linearizable" };
                let key = self.rng.between(0, KEYS);
                let path = format!("/v1/kv/bench-{key:05}?level={level}");
                (Method::GET, path, Bytes::new(), None)
            }
        }
    }

    /// A random key among those that belong to this client.
    fn own_key(&mut self) -> String {
        let clients = self.shared.clients;
        let own = (KEYS / clients).max(1);
        let key = self.rng.between(0, own) * clients + self.id;
        format!("bench-{key:05}")
    }

    /// A value that no other write of any run has.
    fn value(&mut self) -> String {
        let mut value = format!("{:016x}.{}.{}.", self.shared.run, self.id, self.sequence);
        while value.len() < self.shared.value_bytes {
            value.push_str(&format!("{:016x}", self.rng.next_u64()));
        }
        // Cut only into the filling: run, client and sequence come first.
        let head = value.rfind('.').map_or(0, |at| at + 1);
        value.truncate(self.shared.value_bytes.max(head));
        value
    }

    async fn attempt(&mut self, method: Method, path: &str, body: Bytes) -> Fate {
        let endpoint = &self.shared.endpoints[self.endpoint];
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match Client::connect(endpoint).await {
                Ok(connection) => connection,
                Err(_) => return Fate::Refused,
            },
        };
        let answer = connection.request(method, path, body, self.shared.timeout).await;
        let Ok(answer) = answer else { return Fate::Unknown };
        self.connection = Some(connection);
        self.judge(&answer)
    }

    fn judge(&self, answer: &Answer) -> Fate {
        let reads = matches!(self.shared.op, Op::Read | Op::Linearizable);
        // An absent key is an answer to a read as good as any.
        if answer.status.is_success() || (reads && answer.status == StatusCode::NOT_FOUND) {
            let index = if reads { None } else { answer.json()["index"].as_u64() };
            return Fate::Acked(index);
        }
        if answer.json()["may_commit"] == true { Fate::Unknown } else { Fate::Refused }
    }

    /// A client whose endpoint fails moves on at once; it pauses only once all have failed.
    async fn move_on(&mut self) {
        self.connection = None;
        self.endpoint = (self.endpoint + 1) % self.shared.endpoints.len();
        self.failures += 1;
        if self.failures.is_multiple_of(self.shared.endpoints.len()) {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
