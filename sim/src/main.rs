//! `holdfast-sim`: campaigns and replays of the simulated world.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the command line reads the wall clock and writes files; none of it reaches a world"
)]

mod cli;

/// Half of what a run does is many small blocks that live for one event: a quick allocator is worth
/// a sixth of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use clap::Parser;
use holdfast_sim::campaign;
use std::process::ExitCode;

/// The simulated world of Holdfast: campaigns over seeds, and replays of one.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

/// Each command with its arguments; the module of its name carries it out.
#[derive(clap::Subcommand)]
enum Verb {
    /// Run many seeds; exit 1 if a property did not hold in any of them.
    Run(cli::run::Run),
    /// Run one seed or tape again and say what happened.
    Replay(cli::replay::Replay),
    /// Find a small tape on which a failing seed or tape still fails.
    Shrink(cli::shrink::Shrink),
    /// Visit every state of a small cluster within bounds; exit 1 if a property did not hold.
    Explore(cli::explore::Explore),
    /// Cut the power at every moment of short histories of a log, in every way, and recover from
    /// each; exit 1 if anything acknowledged was lost or anything unknown found.
    CrashExplore(cli::crash_explore::CrashExplore),
    /// Damage a data directory on purpose, to watch what its member makes of it.
    Damage(cli::damage::Damage),
    /// Flip a bit at every byte of one member's log, one at a time; exit 1 if anything acknowledged
    /// was lost or anything wrong served.
    FlipEveryByte(cli::flip_every_byte::FlipEveryByte),
    /// List or run scenarios: the four data losses, with the guard off and on, and others.
    Scenario(cli::scenario::ScenarioCommand),
    /// Plant known bugs one at a time; exit 1 if the simulator does not see one of them.
    Mutants(cli::mutants::Mutants),
    /// Say whether a history of operations on registers is linearizable; exit 1 if not.
    CheckHistory(cli::check_history::CheckHistory),
}

fn main() -> ExitCode {
    campaign::catch_panics();
    match Arguments::parse().command {
        Verb::Run(command) => command.execute(),
        Verb::Replay(command) => command.execute(),
        Verb::Shrink(command) => command.execute(),
        Verb::Explore(command) => command.execute(),
        Verb::CrashExplore(command) => command.execute(),
        Verb::Damage(command) => command.execute(),
        Verb::FlipEveryByte(command) => command.execute(),
        Verb::Scenario(command) => command.execute(),
        Verb::Mutants(command) => command.execute(),
        Verb::CheckHistory(command) => command.execute(),
    }
}
