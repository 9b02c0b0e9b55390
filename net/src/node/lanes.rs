//! The threads that run jobs. The replica has at most one job per lane out, so the channels are
//! never longer than that; everything of consequence was decided before a job got here.

use super::{Input, RealLog, RealStore};
use crate::clock;
use crate::metrics::Metrics;
use holdfast_consensus::job::{ApplyJob, Done, Job, Lane, LogJob, SideJob};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Threads for the side lanes: one slow disk read must not hold up the next segment.
const SIDE_THREADS: usize = 3;

type SideWork = (Lane, SideJob<RealLog, RealStore>);

/// The lanes of a node.
pub(super) struct Lanes {
    log: Sender<LogJob<RealLog>>,
    apply: Sender<ApplyJob<RealLog, RealStore>>,
    side: Sender<SideWork>,
    log_thread: JoinHandle<RealLog>,
    apply_thread: JoinHandle<RealStore>,
    side_threads: Vec<JoinHandle<()>>,
}

fn post(inbox: &Sender<Input>, done: Done<RealLog, RealStore>) {
    if inbox.send(Input::Done(Box::new(done))).is_err() {
        // The core loop has ended; what the job made durable is found at the next start.
        tracing::debug!("a job ended after the core loop");
    }
}

impl Lanes {
    /// Starts the threads.
    pub(super) fn start(
        mut log: RealLog,
        mut machine: RealStore,
        inbox: &Sender<Input>,
        metrics: &Arc<Metrics>,
    ) -> io::Result<Self> {
        let (log_jobs, jobs) = channel::<LogJob<RealLog>>();
        let (out, meter) = (inbox.clone(), Arc::clone(metrics));
        let log_thread = Builder::new().name("holdfast-log".into()).spawn(move || {
            for job in jobs {
                let kind = job.kind();
                let begun = clock::now();
                let done = job.run(&mut log);
                meter.job(kind, clock::now().saturating_sub(begun));
                post(&out, Done::Log(done));
            }
            log
        })?;
        let (apply, jobs) = channel::<ApplyJob<RealLog, RealStore>>();
        let (out, meter) = (inbox.clone(), Arc::clone(metrics));
        let apply_thread = Builder::new().name("holdfast-apply".into()).spawn(move || {
            for job in jobs {
                let kind = job.kind();
                let begun = clock::now();
                let done = job.run(&mut machine);
                meter.job(kind, clock::now().saturating_sub(begun));
                post(&out, Done::Apply(done));
            }
            machine
        })?;
        let (side, jobs) = channel::<SideWork>();
        let jobs = Arc::new(Mutex::new(jobs));
        let mut side_threads = Vec::new();
        for i in 0..SIDE_THREADS {
            let (jobs, out, meter) = (Arc::clone(&jobs), inbox.clone(), Arc::clone(metrics));
            let thread = Builder::new().name(format!("holdfast-side-{i}"));
            side_threads.push(thread.spawn(move || side_loop(&jobs, &out, &meter))?);
        }
        Ok(Self { log: log_jobs, apply, side, log_thread, apply_thread, side_threads })
    }

    /// Hands out a job.
    pub(super) fn run(&self, job: Job<RealLog, RealStore>) {
        let handed = match job {
            Job::Log(job) => self.log.send(job).is_ok(),
            Job::Apply(job) => self.apply.send(job).is_ok(),
            Job::Side(lane, job) => self.side.send((lane, job)).is_ok(),
        };
        assert!(handed, "a lane ends only after the core loop");
    }

    /// Waits for the jobs that are out and returns what the lanes owned.
    pub(super) fn join(self) -> Option<(RealLog, RealStore)> {
        drop((self.log, self.apply, self.side));
        let log = self.log_thread.join();
        let machine = self.apply_thread.join();
        let sides = self.side_threads.into_iter().all(|thread| thread.join().is_ok());
        match (log, machine, sides) {
            (Ok(log), Ok(machine), true) => Some((log, machine)),
            // A panic in a lane has ended the process through the panic hook of `serve`.
            _ => None,
        }
    }
}

fn side_loop(jobs: &Mutex<Receiver<SideWork>>, inbox: &Sender<Input>, metrics: &Metrics) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((lane, job)) = next else { return };
        let kind = job.kind();
        let begun = clock::now();
        let done = job.run();
        metrics.job(kind, clock::now().saturating_sub(begun));
        post(inbox, Done::Side(lane, done));
    }
}
