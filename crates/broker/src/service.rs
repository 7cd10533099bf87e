//! Which request goes to which handler, and on which thread.

use std::pin::Pin;
use std::sync::Arc;

use ferromq_protocol::command::RemotingCommand;
use ferromq_remoting::Connection;

use crate::answer::Answer;
use crate::broker::Broker;

/// How a request that is neither a send nor a pull is handled.
pub(crate) enum Handler {
    /// Works in memory only: runs at once, on the connection's task.
    Inline(fn(&Arc<Broker>, &Arc<Connection>, &RemotingCommand) -> Answer),
    /// May wait for a disk or take long: runs on a thread that may block.
    Blocking(fn(&Arc<Broker>, &Arc<Connection>, &RemotingCommand) -> Answer),
    /// Asks others and waits for them.
    Async(fn(Arc<Broker>, Arc<Connection>, RemotingCommand) -> Pin<Box<dyn Future<Output = Answer> + Send>>),
}
