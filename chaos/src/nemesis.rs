//! Does to a cluster what the plan says.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::history::History;
use crate::load::{Load, TOPIC};
use crate::plan::{Fault, Plan};
use crate::run::Failure;

/// Plays all rounds. Everything works again at the end.
pub(crate) async fn torment(
    cluster: &mut Cluster,
    plan: &Plan,
    load: &Load,
    history: &History,
    patience: Duration,
) -> Result<(), Failure> {
    for (number, round) in plan.rounds.iter().enumerate() {
        tokio::time::sleep(round.quiet).await;
        let loses_store = round.strikes.iter().any(|strike| strike.fault == Fault::LoseStore);
        // What only the victim has beside the master may be lost with it if the master changes now. So nothing is.
        let held = match loses_store {
            true => {
                let held = load.hold().await;
                cluster.caught_up(TOPIC, patience).await.map_err(Failure::Stuck)?;
                Some(held)
            }
            false => None,
        };
        let mut victims = Vec::new();
        for strike in &round.strikes {
            victims.push((*strike, cluster.victim(strike.victim).await));
        }
        for (strike, node) in victims {
            let is_possible = cluster.strike(strike, node)?;
            let skipped = if is_possible { "" } else { " (not possible here)" };
            history.deed(format!("round {number}: {strike}, node {node}{skipped}"));
        }
        drop(held);
        tokio::time::sleep(round.lasts).await;
        mend(cluster, history)?;
        if loses_store {
            let _held = load.hold().await;
            cluster.caught_up(TOPIC, patience).await.map_err(Failure::Stuck)?;
        }
    }
    Ok(())
}

/// Repairs everything, after a look at who ended on its own.
pub(crate) fn mend(cluster: &mut Cluster, history: &History) -> Result<(), Failure> {
    let deaths = cluster.deaths()?;
    if !deaths.is_empty() {
        return Err(Failure::Died(deaths.join("\n")));
    }
    cluster.mend()?;
    history.deed("everything is mended");
    Ok(())
}
