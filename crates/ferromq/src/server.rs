//! Starting and stopping.

use std::future::Future;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use ferromq_broker::RunningBroker;
use ferromq_broker::config::BrokerConfig;
use ferromq_controller::Controller;
use ferromq_namesrv::Namesrv;
use ferromq_settings::Settings as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{BrokerArgs, ControllerArgs, NamesrvArgs, StandaloneArgs};
use crate::banner::{Banner, absolute};
use crate::failure::Failure;

use crate::settings::NamesrvAndController;
use crate::{logging, settings};

/// Exit status after a second signal.
const STOPPED_AT_ONCE: i32 = 130;
/// A signal so soon after the first one is the same one, sent to the process and to its group (as `timeout` does).
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// `ferromq standalone`.
pub(crate) fn standalone(args: &StandaloneArgs) -> Result<(), Failure> {
    logging::start(&args.log)?;
    let broker_settings = settings::of_standalone_broker(args)?;
    warn(&broker_settings.warnings);
    let mut config = broker_settings.config;
    tell_without_effect(&config);
    let namesrv_config = settings::of_standalone_namesrv(args, &config);
    run(async move {
        let mut signals = Signals::new()?;
        let bind_address = namesrv_config.bind_address.clone();
        let namesrv = Namesrv::start(namesrv_config)?;
        let port = namesrv.address().port();
        let local = format!("127.0.0.1:{port}");
        config.namesrv_addr = Some(match config.namesrv_addr.take() {
            Some(others) if others != local => format!("{local};{others}"),
            _ => local.clone(),
        });
        let broker = RunningBroker::start(config).await?;

        let mut banner = Banner::new("standalone");
        banner.fact("name server", namesrv.address());
        describe_broker(&mut banner, &broker);
        banner.hint(format!("ferromq bench producer -n {local}"));
        banner.hint(format!("mqadmin clusterList -n {local}"));
        banner.hint(format!("your own clients, with the name server address {local}"));
        banner.namesrv_started(&bind_address, port);
        banner.broker_started(&broker.config());
        banner.print();

        signals.first().await;
        signals
            .while_stopping(async {
                broker.shutdown().await;
                namesrv.shutdown().await;
            })
            .await;
        Ok(())
    })
}

/// `ferromq namesrv`.
pub(crate) fn namesrv(args: &NamesrvArgs) -> Result<(), Failure> {
    let settings = settings::of_namesrv(args)?;
    if args.print_config {
        warn_on_stderr(&settings.warnings);
        let NamesrvAndController { namesrv, controller } = &settings.config;
        let mut items = controller.as_ref().map(|controller| controller.items()).unwrap_or_default();
        items.extend(namesrv.items());
        return Ok(print_settings(items)?);
    }
    logging::start(&args.log)?;
    warn(&settings.warnings);
    let NamesrvAndController { namesrv: config, controller } = settings.config;
    tell_loaded(args.config_file.as_deref());
    run(async move {
        let mut signals = Signals::new()?;
        let bind_address = config.bind_address.clone();
        let namesrv = Namesrv::start(config)?;
        let controller = match controller {
            Some(config) => Some(Controller::start(config).await?),
            None => None,
        };
        let port = namesrv.address().port();

        let mut banner = Banner::new("namesrv");
        banner.fact("name server", namesrv.address());
        if let Some(controller) = &controller {
            describe_controller(&mut banner, controller);
        }
        banner.hint(format!("ferromq broker -n 127.0.0.1:{port}"));
        banner.hint(format!("mqadmin clusterList -n 127.0.0.1:{port}"));
        banner.namesrv_started(&bind_address, port);
        if controller.is_some() {
            banner.controller_in_namesrv_started();
        }
        banner.print();

        signals.first().await;
        signals
            .while_stopping(async {
                if let Some(controller) = controller {
                    controller.shutdown().await;
                }
                namesrv.shutdown().await;
            })
            .await;
        Ok(())
    })
}

/// `ferromq controller`.
pub(crate) fn controller(args: &ControllerArgs) -> Result<(), Failure> {
    let settings = settings::of_controller(args)?;
    if args.print_config {
        warn_on_stderr(&settings.warnings);
        return Ok(print_settings(settings.config.items())?);
    }
    logging::start(&args.log)?;
    warn(&settings.warnings);
    tell_loaded(args.config_file.as_deref());
    run(async move {
        let mut signals = Signals::new()?;
        let controller = Controller::start(settings.config).await?;

        let mut banner = Banner::new("controller");
        describe_controller(&mut banner, &controller);
        let addresses = controller.controller_addr();
        let port = controller.address().port();
        banner.hint(format!("mqadmin getControllerMetaData -a 127.0.0.1:{port}"));
        banner.hint(format!("a broker with enableControllerMode=true and controllerAddr={addresses}"));
        banner.controller_started();
        banner.print();

        signals.first().await;
        signals.while_stopping(controller.shutdown()).await;
        Ok(())
    })
}

fn describe_controller(banner: &mut Banner, controller: &Controller) {
    let (group, id) = controller.identity();
    banner.fact("controller", format!("{} as {id}", controller.address()));
    if let Some(group) = group {
        banner.fact("group", group);
    }
    banner.fact("controllers", controller.controller_addr());
    banner.fact("state", absolute(&controller.store_path().display().to_string()));
}

fn tell_loaded(file: Option<&Path>) {
    if let Some(file) = file {
        println!("load config properties file OK, {}", file.display());
    }
}

/// `ferromq broker`.
pub(crate) fn broker(args: &BrokerArgs) -> Result<(), Failure> {
    let settings = settings::of_broker(args)?;
    if args.print_config || args.print_important_config {
        warn_on_stderr(&settings.warnings);
        let config = &settings.config;
        let entries = if args.print_config { config.entries() } else { config.important_entries() };
        return Ok(print_settings(entries)?);
    }
    logging::start(&args.log)?;
    warn(&settings.warnings);
    let config = settings.config;
    tell_without_effect(&config);
    if config.namesrv_addr.is_none() {
        tracing::warn!(
            "no name server is set (-n, namesrvAddr, NAMESRV_ADDR): clients can't find this broker"
        );
    }
    run(async move {
        let mut signals = Signals::new()?;
        let broker = RunningBroker::start(config).await?;

        let mut banner = Banner::new("broker");
        describe_broker(&mut banner, &broker);
        let config = broker.config();
        match config.namesrv_addr.as_deref().and_then(|list| list.split(';').next()) {
            Some(name_server) => banner.hint(format!("mqadmin clusterList -n {name_server}")),
            None => banner.hint("ferromq namesrv, and start this broker with -n 127.0.0.1:9876"),
        }
        banner.hint(format!("ferromq bench producer --addr 127.0.0.1:{}", broker.address().port()));
        banner.broker_started(&config);
        banner.print();

        signals.first().await;
        signals.while_stopping(broker.shutdown()).await;
        Ok(())
    })
}

fn describe_broker(banner: &mut Banner, broker: &RunningBroker) {
    let config = broker.config();
    banner.fact("broker", format!("{} as {}", broker.address(), config.broker_address()));
    banner.fact("fast port", broker.fast_address().port());
    banner.fact("cluster", format!("{} in {}", config.broker_name, config.broker_cluster_name));
    if let Some(name_servers) = &config.namesrv_addr {
        banner.fact("registers at", name_servers);
    }
    banner.fact("store", absolute(&config.store_path_root_dir));
}

fn run(server: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(server)
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

fn tell_without_effect(config: &BrokerConfig) {
    let keys = config.without_effect();
    if !keys.is_empty() {
        tracing::info!(keys = keys.join(", "), "settings that have no effect in this version");
    }
}

fn warn_on_stderr(warnings: &[String]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}

fn print_settings<'a>(entries: impl IntoIterator<Item = (&'a str, String)>) -> io::Result<()> {
    use io::Write;
    let mut out = io::stdout().lock();
    let printed = entries.into_iter().try_for_each(|(key, value)| writeln!(out, "{key}={value}"));
    match printed {
        // Whoever reads has seen enough, as in `ferromq broker -p | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// SIGTERM and SIGINT. The first one stops a server in an orderly way, the second one at once.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    async fn first(&mut self) {
        self.next().await;
        tracing::info!("stopping; another signal stops at once");
    }

    async fn second(&mut self) {
        let first = Instant::now();
        loop {
            self.next().await;
            if first.elapsed() >= SAME_SIGNAL {
                return;
            }
        }
    }

    async fn while_stopping(&mut self, stop: impl Future<Output = ()>) {
        tokio::select! {
            () = stop => {}
            () = self.second() => {
                tracing::warn!("stopped at once; the next start recovers");
                std::process::exit(STOPPED_AT_ONCE);
            }
        }
    }
}
