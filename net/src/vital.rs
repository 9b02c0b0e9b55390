//! Tasks that a node cannot go on without.

use crate::stderr::say;
use std::future::Future;
use tokio::task::JoinHandle;

/// Runs a task whose panic ends the process, as that of a thread of the node does: a node that no
/// longer hears a peer, or takes no request, would be taken for a healthy one.
pub(crate) fn vital(
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let task = tokio::spawn(task);
    tokio::spawn(async move {
        if let Err(end) = task.await
            && end.is_panic()
        {
            say(format_args!("a panic in the {name} stops this node; nothing false was told"));
            std::process::abort();
        }
    })
}
