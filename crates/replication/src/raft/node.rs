//! One node of a group: starts consensus, and keeps the commit log's role in step with it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use openraft::{BasicNode, ChangeMembers, LeaderId, ServerState, StoredMembership};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::catch_up;
use super::election::ElectionClock;
use super::error::RaftError;
use super::form::{self, Formed};
use super::peer::{PeerFactory, PeerState, Peers, ask, unexpected};
use super::propose::propose;
use super::server;
use super::settings::{LEASE, Settings};
use super::state_machine::Confirmed;
use super::storage::{NodeStore, blocking};
use super::transport::{BoxedConnection, Transport};
use super::types::{GroupConfig, Membership, NodeId, Vote};
use super::wire::{self, Message, Offer};
use crate::log::ReplicaLog;

/// How often a node looks at its role besides being told of changes. A new leader waits at most that long to begin.
const ROLE_TICK: Duration = Duration::from_millis(20);
/// A leader that no majority has answered for so long lets nobody append until one does.
const QUORUM_PATIENCE: Duration = Duration::from_secs(3);
/// Pause after consensus stopped with an error, such as a full disk.
const RESTART_PAUSE: Duration = Duration::from_secs(3);
/// The index is brought to the device that often, about as often as the log.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// How often entries are forgotten whose part of the log was deleted.
const DELETED_CHECK: Duration = Duration::from_secs(5);
/// How often a leader looks whether a preferred one could take over.
const PREFERENCE_CHECK: Duration = Duration::from_secs(1);
/// Entries that the next leader may lag behind when leadership is handed over.
const TRANSFER_LAG_MAX: u64 = 1000;
/// Voters may have heard of the leader a little after it fell silent.
const TRANSFER_MARGIN: Duration = Duration::from_millis(50);
/// How long each step of handing over leadership may take.
const TRANSFER_STEP: Duration = Duration::from_secs(2);

/// What a node is at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoleState {
    /// Whether the broker may append: this node leads, a majority follows, and everything of earlier terms is committed.
    pub leads: bool,
    /// The newest term that this node knows.
    pub term: u64,
    /// Who leads, if known.
    pub leader: Option<NodeId>,
}

/// A node of a group. Dropping it leaves it running; [`stop`](Self::stop) ends it.
pub struct RaftNode {
    shared: Arc<Shared>,
    roles: watch::Receiver<RoleState>,
}

/// What the tasks of a node share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) peers: Arc<Peers>,
    log: Arc<dyn ReplicaLog>,
    running: RwLock<Option<Running>>,
    /// What we say of ourselves while nothing is running; `None` before the files were read.
    state: RwLock<Option<PeerState>>,
    /// Messages of a leader that openraft is working on. While there are any, the leader is not silent.
    appends: AtomicUsize,
    /// Nobody appends, because leadership is being handed over.
    transferring: AtomicBool,
    election: Arc<Mutex<ElectionClock>>,
    /// Since when this node leads, if it does.
    leads_since: Mutex<Instant>,
    roles: watch::Sender<RoleState>,
    commands: mpsc::Sender<Command>,
}

/// Consensus and its files.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) raft: openraft::Raft<GroupConfig>,
    pub(crate) store: NodeStore,
}

/// What the supervisor is asked for.
pub(crate) enum Command {
    Stop(oneshot::Sender<()>),
    /// Copy the log from the leader at the other end of the connection.
    CatchUp(BoxedConnection, Box<Offer>),
}

/// How a run of consensus ended.
enum Ended {
    Stopped(oneshot::Sender<()>),
    CaughtUp(BoxedConnection),
    /// The copy failed; the leader offers it again.
    Pause,
}

impl RaftNode {
    /// Starts a node over `log`, which follows from now on. It listens when this returns; it leads or follows later.
    ///
    /// # Errors
    /// [`RaftError::Settings`] and [`RaftError::Listen`]. Whatever fails later is logged and tried again.
    pub async fn start(
        settings: Settings,
        log: Arc<dyn ReplicaLog>,
        transport: Arc<dyn Transport>,
    ) -> Result<RaftNode, RaftError> {
        settings.validate()?;
        settings.openraft()?;
        log.follow();
        let address = settings.address().to_owned();
        let listener = transport.listen(&address).await;
        let listener = listener.map_err(|source| RaftError::Listen { address, source })?;
        let (roles, watched) = watch::channel(RoleState::default());
        let (commands, receiver) = mpsc::channel(1);
        let mut election = ElectionClock::new(settings.rank());
        election.not_before(Instant::now() + settings.others_first);
        let election = Arc::new(Mutex::new(election));
        let peers = Peers {
            group: settings.group.clone(),
            me: settings.me,
            transport,
            election: Arc::clone(&election),
        };
        let shared = Arc::new(Shared {
            settings,
            peers: Arc::new(peers),
            state: RwLock::default(),
            log,
            running: RwLock::new(None),
            appends: AtomicUsize::new(0),
            transferring: AtomicBool::new(false),
            election,
            leads_since: Mutex::new(Instant::now()),
            roles,
            commands,
        });
        tokio::spawn(supervise(Arc::clone(&shared), listener, receiver));
        Ok(RaftNode { shared, roles: watched })
    }

    /// What this node is, and when that changes.
    pub fn roles(&self) -> watch::Receiver<RoleState> {
        self.roles.clone()
    }

    /// Who belongs to the group, with addresses, as far as this node knows; voters only.
    pub fn members(&self) -> BTreeMap<NodeId, String> {
        self.shared.running().map(|running| voters(&running.raft)).unwrap_or_default()
    }

    /// Makes `members` the group: new ones get a copy of the log first, those left out go, addresses change.
    ///
    /// # Errors
    /// [`RaftError::NotLeader`]; [`RaftError::Refused`] if the group can't agree on it, for example because another change is under
    /// way.
    pub async fn change_members(&self, members: BTreeMap<NodeId, String>) -> Result<(), RaftError> {
        let shared = &self.shared;
        let raft = shared.leading_raft()?;
        let refused = |error: &dyn std::fmt::Display| shared.refused(error.to_string());
        if members.is_empty() {
            return Err(refused(&"a group needs a member"));
        }
        let known: BTreeMap<NodeId, String> = {
            let metrics = raft.metrics();
            let metrics = metrics.borrow();
            metrics.membership_config.nodes().map(|(id, node)| (*id, node.addr.clone())).collect()
        };
        for (id, address) in members.iter().filter(|(id, _)| !known.contains_key(id)) {
            tracing::info!(node = id, address, "adding a node to the Raft group: it copies the log first");
            raft.add_learner(*id, BasicNode::new(address), true).await.map_err(|error| refused(&error))?;
        }
        let moved: BTreeMap<NodeId, BasicNode> = members
            .iter()
            .filter(|(id, address)| known.get(id).is_some_and(|known| known != *address))
            .map(|(id, address)| (*id, BasicNode::new(address)))
            .collect();
        if !moved.is_empty() {
            let change = ChangeMembers::SetNodes(moved);
            raft.change_membership(change, true).await.map_err(|error| refused(&error))?;
        }
        let voters: BTreeSet<NodeId> = members.keys().copied().collect();
        raft.change_membership(voters, false).await.map_err(|error| refused(&error))?;
        tracing::info!(?members, "the Raft group has changed");
        Ok(())
    }

    /// Hands leadership over to another node of the group.
    ///
    /// # Errors
    /// [`RaftError::NotLeader`]; [`RaftError::Refused`] if that node lags or does not take over, in which case this one goes on.
    pub async fn transfer_leadership(&self, to: NodeId) -> Result<(), RaftError> {
        self.shared.transfer_leadership(to).await
    }

    /// Ends this node: leadership handed over if possible, no more appends, consensus stopped, files closed.
    pub async fn stop(&self) {
        if let Some(next) = self.shared.nearest_follower() {
            match self.shared.transfer_leadership(next).await {
                Ok(()) => {}
                Err(error) => tracing::info!(%error, "stopping without a successor"),
            }
        }
        let (stopped, answer) = oneshot::channel();
        // Fails when it has ended already.
        if self.shared.commands.send(Command::Stop(stopped)).await.is_ok() {
            drop(answer.await);
        }
    }
}

impl Shared {
    pub(crate) fn running(&self) -> Option<Running> {
        self.running.read().clone()
    }

    /// What we say of ourselves; `None` if we don't know yet.
    pub(crate) fn peer_state(&self) -> Option<PeerState> {
        match &*self.running.read() {
            Some(running) => {
                Some(PeerState { history: running.store.has_history(), end: self.log.bounds().end })
            }
            None => *self.state.read(),
        }
    }

    /// Whether somebody who says to be that node may talk to us.
    pub(crate) fn knows(&self, node: NodeId) -> bool {
        if self.settings.peers.contains_key(&node) {
            return true;
        }
        self.running().is_some_and(|running| {
            running.raft.metrics().borrow().membership_config.nodes().any(|(id, _)| *id == node)
        })
    }

    /// Notes that openraft works on a leader's message until the guard is dropped.
    pub(crate) fn hearing_leader(&self) -> HearingLeader<'_> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        HearingLeader(self)
    }

    /// A leader was heard, or voted for.
    pub(crate) fn heard_leader(&self) {
        self.election.lock().heard();
    }

    /// Leaves the next election to another node.
    pub(crate) fn stand_back(&self) {
        self.election.lock().not_before(Instant::now() + TRANSFER_STEP);
    }

    /// Stands for election if it is time to, and if this node remembers everything.
    async fn stand_if_due(&self, running: &Running, state: ServerState) {
        let may = self.appends.load(Ordering::SeqCst) == 0 && !running.store.is_amnesiac();
        if state == ServerState::Leader || !may {
            self.heard_leader();
        } else if self.election.lock().is_due() {
            // Fails only when consensus has stopped, which is seen elsewhere.
            drop(running.raft.trigger().elect().await);
        }
    }

    pub(crate) async fn command(&self, command: Command) {
        drop(self.commands.send(command).await);
    }

    fn publish(&self, role: RoleState) {
        self.roles.send_if_modified(|current| {
            let changed = *current != role;
            *current = role;
            changed
        });
    }

    fn refused(&self, reason: String) -> RaftError {
        RaftError::Refused { group: self.settings.group.clone(), reason }
    }

    fn leading_raft(&self) -> Result<openraft::Raft<GroupConfig>, RaftError> {
        let role = *self.roles.borrow();
        match self.running() {
            Some(Running { raft, .. }) if role.leads => Ok(raft),
            _ => Err(RaftError::NotLeader {
                me: self.settings.me,
                group: self.settings.group.clone(),
                leader: role.leader,
            }),
        }
    }

    /// Of a leader, the voter that lacks the fewest entries.
    fn nearest_follower(&self) -> Option<NodeId> {
        let raft = self.leading_raft().ok()?;
        let others = voters(&raft).into_keys().filter(|id| *id != self.settings.me);
        others.filter_map(|id| Some((lag_of(&raft, id)?, id))).min().map(|(_, id)| id)
    }

    /// Sends one request to a node that must agree.
    async fn tell(&self, id: NodeId, address: &str, message: &Message) -> io::Result<()> {
        let (mut connection, _) = self.peers.connect(id, address).await?;
        match timeout(TRANSFER_STEP, ask(&mut connection, message)).await?? {
            Message::Agreed => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    async fn transfer_leadership(&self, to: NodeId) -> Result<(), RaftError> {
        let raft = self.leading_raft()?;
        let vote = raft.metrics().borrow().vote;
        let mut others = voters(&raft);
        others.remove(&self.settings.me);
        let Some(address) = others.remove(&to) else {
            return Err(self.refused(format!("it has no other node n{to}")));
        };
        if lag_of(&raft, to).is_none_or(|lag| lag > TRANSFER_LAG_MAX) {
            return Err(self.refused(format!("n{to} is not up to date")));
        }
        // A node that was elected a moment ago keeps to that itself.
        let elected_long_ago = *self.leads_since.lock() + LEASE + TRANSFER_MARGIN;
        sleep_until(elected_long_ago).await;
        if self.transferring.swap(true, Ordering::SeqCst) {
            return Err(self.refused("leadership is being handed over already".into()));
        }
        let _transfer = Transfer { shared: self, raft: &raft };
        tracing::info!(to, "handing over leadership of the Raft group");
        let caught_up = async {
            let mut roles = self.roles.subscribe();
            // Nobody appends any more once the role has gone; what was appended goes to the next leader first.
            drop(roles.wait_for(|role| !role.leads).await);
            while lag_of(&raft, to) != Some(0) {
                sleep(ROLE_TICK).await;
            }
        };
        if timeout(TRANSFER_STEP, caught_up).await.is_err() {
            return Err(self.refused(format!("n{to} does not catch up")));
        }
        // Of three voters, the next leader and we make a majority. Others vote only once they have not heard of us for a while; until
        // then they must not stand themselves.
        if others.len() > 1 {
            raft.runtime_config().heartbeat(false);
            let stand_back = Message::StandBack(vote);
            for (id, address) in others.iter().chain([(&to, &address)]) {
                if let Err(error) = self.tell(*id, address, &stand_back).await {
                    tracing::debug!(node = id, %error, "a node may stand for election beside the next leader");
                }
            }
            sleep(LEASE + TRANSFER_MARGIN).await;
        }
        self.stand_back();
        let standing = self.tell(to, &address, &Message::Stand(vote)).await;
        standing.map_err(|error| self.refused(format!("n{to} does not take over: {error}")))?;
        let mut metrics = raft.metrics();
        let elected = metrics.wait_for(|metrics| metrics.current_leader == Some(to));
        match timeout(TRANSFER_STEP, elected).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(self.refused(format!("n{to} was not elected"))),
        }
    }
}

/// The nodes whose agreement counts, and where they are.
fn voters(raft: &openraft::Raft<GroupConfig>) -> BTreeMap<NodeId, String> {
    let metrics = raft.metrics();
    let metrics = metrics.borrow();
    let membership = metrics.membership_config.membership();
    let address = |id| membership.get_node(&id).map(|node| (id, node.addr.clone()));
    membership.voter_ids().filter_map(address).collect()
}

/// Ends the handing over of leadership, however it went.
struct Transfer<'a> {
    shared: &'a Shared,
    raft: &'a openraft::Raft<GroupConfig>,
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        self.raft.runtime_config().heartbeat(true);
        self.shared.transferring.store(false, Ordering::SeqCst);
    }
}

/// How many entries a follower lacks; `None` if it is unknown.
fn lag_of(raft: &openraft::Raft<GroupConfig>, node: NodeId) -> Option<u64> {
    let metrics = raft.metrics();
    let metrics = metrics.borrow();
    let matching = metrics.replication.as_ref()?.get(&node)?.as_ref()?.index;
    Some(metrics.last_log_index?.saturating_sub(matching))
}

/// See [`Shared::hearing_leader`].
pub(crate) struct HearingLeader<'a>(&'a Shared);

impl Drop for HearingLeader<'_> {
    fn drop(&mut self) {
        self.0.appends.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs consensus, again after each end of it, until the node is stopped.
async fn supervise(
    shared: Arc<Shared>,
    listener: Box<dyn super::transport::Listener>,
    mut commands: mpsc::Receiver<Command>,
) {
    let server = AbortOnDrop(tokio::spawn(server::serve(Arc::clone(&shared), listener)));
    let mut caught_up = None;
    let stopped = loop {
        let ended = run(&shared, &mut commands, caught_up.take()).await;
        shared.running.write().take();
        let term = shared.roles.borrow().term;
        shared.publish(RoleState { leads: false, leader: None, term });
        match ended {
            Ok(Ended::Stopped(answer)) => break answer,
            Ok(Ended::CaughtUp(connection)) => {
                caught_up = Some(connection);
                continue;
            }
            Ok(Ended::Pause) => {}
            Err(error) => {
                tracing::error!(group = shared.settings.group, %error, "the Raft node starts again")
            }
        }
        // Requests to catch up that came meanwhile would be old ones.
        let pause = sleep(RESTART_PAUSE);
        tokio::pin!(pause);
        let stop = loop {
            tokio::select! {
                () = &mut pause => break None,
                command = commands.recv() => match command {
                    Some(Command::Stop(answer)) => break Some(answer),
                    Some(Command::CatchUp(..)) => {}
                    None => return,
                },
            }
        };
        if let Some(answer) = stop {
            break answer;
        }
    };
    drop(server);
    let _nobody_waits = stopped.send(());
}

async fn run(
    shared: &Arc<Shared>,
    commands: &mut mpsc::Receiver<Command>,
    caught_up: Option<BoxedConnection>,
) -> Result<Ended, RaftError> {
    let settings = &shared.settings;
    let store = blocking(|| {
        NodeStore::open(&settings.dir, Arc::clone(&shared.log), settings.me, settings.durability)
    })?;
    *shared.state.write() = Some(PeerState { history: store.has_history(), end: shared.log.bounds().end });
    if store.knows_nothing() {
        let formed = tokio::select! {
            formed = form::form(settings, &shared.peers, &*shared.log, store.is_amnesiac()) => formed,
            stop = stop_asked(commands) => return Ok(Ended::Stopped(stop)),
        };
        match formed {
            Formed::Begin { elections_from } => {
                shared.election.lock().not_before(elections_from);
                blocking(|| store.begin_group(configured_members(settings)))?;
                blocking(|| store.set_amnesiac(false))?;
            }
            Formed::Join => blocking(|| store.set_amnesiac(true))?,
        }
    }
    let factory = PeerFactory { peers: Arc::clone(&shared.peers), store: store.clone() };
    let machine = Confirmed::new(store.clone());
    let config = Arc::new(settings.openraft()?);
    let raft = openraft::Raft::new(settings.me, config, factory, store.clone(), machine).await;
    let raft = raft.map_err(|error| stopped(settings, &error))?;
    let running = Running { raft: raft.clone(), store: store.clone() };
    *shared.running.write() = Some(running.clone());
    if let Some(mut connection) = caught_up {
        let vote = store.vote().unwrap_or_default();
        if let Err(error) = wire::write(&mut connection, &Message::Caught(vote)).await {
            tracing::warn!(%error, "can't tell the leader that its log is copied");
        }
    }
    let _flusher = AbortOnDrop(tokio::spawn(flush_index(store.clone())));
    let _forgetting = AbortOnDrop(tokio::spawn(forget_deleted(running.clone())));
    let ended = tokio::select! {
        error = follow_role(shared, &running) => Err(error),
        command = next_command(commands) => Ok(command),
    };
    shared.running.write().take();
    drop(raft.shutdown().await);
    blocking(|| store.follow())?;
    match ended? {
        Command::Stop(answer) => Ok(Ended::Stopped(answer)),
        Command::CatchUp(mut connection, offer) => {
            *shared.state.write() = Some(PeerState { history: true, end: shared.log.bounds().end });
            match catch_up::receive(&mut connection, &offer, &store).await {
                Ok(()) => Ok(Ended::CaughtUp(connection)),
                Err(error) => {
                    tracing::error!(group = settings.group, %error, "can't copy the leader's log");
                    drop(wire::write(&mut connection, &Message::Refused(error.to_string())).await);
                    Ok(Ended::Pause)
                }
            }
        }
    }
}

async fn next_command(commands: &mut mpsc::Receiver<Command>) -> Command {
    match commands.recv().await {
        Some(command) => command,
        // `Shared` holds a sender.
        None => std::future::pending().await,
    }
}

async fn stop_asked(commands: &mut mpsc::Receiver<Command>) -> oneshot::Sender<()> {
    loop {
        if let Command::Stop(answer) = next_command(commands).await {
            return answer;
        }
    }
}

fn stopped(settings: &Settings, error: &dyn std::fmt::Display) -> RaftError {
    RaftError::Stopped { group: settings.group.clone(), reason: error.to_string() }
}

fn configured_members(settings: &Settings) -> StoredMembership<NodeId, BasicNode> {
    let ids: BTreeSet<NodeId> = settings.peers.keys().copied().collect();
    let nodes: BTreeMap<NodeId, BasicNode> =
        settings.peers.iter().map(|(id, address)| (*id, BasicNode::new(address))).collect();
    StoredMembership::new(None, Membership::new(vec![ids], nodes))
}

/// Flushes the index whenever something was added to it.
async fn flush_index(store: NodeStore) {
    let mut flushed = None;
    loop {
        sleep(FLUSH_INTERVAL).await;
        let last = store.last_id();
        if last != flushed {
            match blocking(|| store.flush_index()) {
                Ok(()) => flushed = last,
                Err(error) => tracing::error!(%error, "the Raft index is not flushed"),
            }
        }
    }
}

/// Forgets entries whose part of the log retention has deleted: a follower that lacks them must copy the log.
async fn forget_deleted(running: Running) {
    let Running { raft, store } = running;
    loop {
        sleep(DELETED_CHECK).await;
        if let Some(index) = store.last_deleted() {
            // Only what a snapshot covers is forgotten; if the present one does not, the next round will do.
            let forgotten = async {
                raft.trigger().snapshot().await?;
                raft.trigger().purge_log(index).await
            };
            if forgotten.await.is_err() {
                return;
            }
        }
    }
}

/// Lets the broker append while this node leads, and proposes what it appends. Ends when consensus does.
async fn follow_role(shared: &Arc<Shared>, running: &Running) -> RaftError {
    let Running { raft, store } = running;
    let metrics = raft.metrics();
    let mut changes = raft.server_metrics();
    let mut tick = interval(ROLE_TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut leading: Option<(u64, AbortOnDrop)> = None;
    let mut next_preference_check = Instant::now() + PREFERENCE_CHECK;
    loop {
        tokio::select! {
            changed = changes.changed() => if changed.is_err() {
                return stopped(&shared.settings, &"it is gone");
            },
            _ = tick.tick() => {}
        }
        let view = View::of(&metrics.borrow());
        if let Some(error) = view.error {
            return stopped(&shared.settings, &error);
        }
        shared.stand_if_due(running, view.state).await;
        let leads = view.leads && !shared.transferring.load(Ordering::SeqCst);
        let term = view.vote.leader_id.term;
        if leading.as_ref().is_some_and(|(led, _)| !leads || *led != term) {
            leading = None;
            if let Err(error) = blocking(|| store.follow()) {
                return error;
            }
            tracing::info!(group = shared.settings.group, term, leader = ?view.leader, "this node no longer leads its Raft group");
        }
        if leads && leading.is_none() {
            match blocking(|| store.lead(LeaderId::new(term, shared.settings.me))) {
                Ok(Some(begin)) => {
                    let proposer = propose(raft.clone(), Arc::clone(store.log()), term, begin);
                    leading = Some((term, AbortOnDrop(tokio::spawn(proposer))));
                    *shared.leads_since.lock() = Instant::now();
                    tracing::info!(
                        group = shared.settings.group,
                        term,
                        begin,
                        "this node leads its Raft group"
                    );
                }
                // Another one was elected meanwhile.
                Ok(None) => {}
                Err(error) => return error,
            }
        }
        let leads = leading.is_some();
        shared.publish(RoleState { leads, term, leader: view.leader });
        if leads && Instant::now() >= next_preference_check {
            next_preference_check = Instant::now() + PREFERENCE_CHECK;
            hand_over_to_preferred(shared, raft);
        }
    }
}

/// Starts handing over leadership if a preferred node is up to date.
fn hand_over_to_preferred(shared: &Arc<Shared>, raft: &openraft::Raft<GroupConfig>) {
    let preferred = &shared.settings.preferred;
    if preferred.contains(&shared.settings.me) || shared.transferring.load(Ordering::SeqCst) {
        return;
    }
    let lags = preferred.iter().filter_map(|id| Some((lag_of(raft, *id)?, *id)));
    if let Some((_, to)) = lags.filter(|(lag, _)| *lag <= TRANSFER_LAG_MAX).min() {
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            if let Err(error) = shared.transfer_leadership(to).await {
                tracing::warn!(to, %error, "the preferred leader does not take over");
            }
        });
    }
}

/// What matters of openraft's metrics.
struct View {
    vote: Vote,
    leader: Option<NodeId>,
    state: ServerState,
    /// It is the leader, what came before it is applied, and it is in touch with a majority.
    leads: bool,
    error: Option<String>,
}

impl View {
    fn of(metrics: &openraft::RaftMetrics<NodeId, BasicNode>) -> View {
        let vote = metrics.vote;
        let own_term_applied =
            metrics.last_applied.is_some_and(|applied| applied.leader_id == vote.leader_id);
        let silent = Duration::from_millis(metrics.millis_since_quorum_ack.unwrap_or(0));
        let alone = metrics.membership_config.membership().voter_ids().count() == 1;
        let leads = metrics.state == ServerState::Leader
            && vote.leader_id.node_id == metrics.id
            && vote.committed
            && own_term_applied
            && (alone || silent < QUORUM_PATIENCE);
        let error = metrics.running_state.as_ref().err().map(ToString::to_string);
        View { vote, leader: metrics.current_leader, state: metrics.state, leads, error }
    }
}

/// Ends a task with its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
