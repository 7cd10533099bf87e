//! Where settings come from: the command line before the file before the environment before the defaults.

use std::path::{Path, PathBuf};

use ferromq_broker::config::{BrokerConfig, ConfigWarning};
use ferromq_controller::ControllerConfig;
use ferromq_namesrv::NamesrvConfig;
use ferromq_protocol::frame::HeaderEncoding;
use ferromq_protocol::java_properties;
use ferromq_settings::{SetError, Settings as Table};

use crate::args::{BrokerArgs, ControllerArgs, NamesrvArgs, StandaloneArgs};
use crate::failure::Failure;

/// Directory of `ferromq standalone`.
const STANDALONE_STORE: &str = "./ferromq-data";

/// Settings with what their owner should know of them.
#[derive(Debug)]
pub(crate) struct Settings<C> {
    pub(crate) config: C,
    pub(crate) warnings: Vec<String>,
}

/// Settings of `ferromq broker`.
pub(crate) fn of_broker(args: &BrokerArgs) -> Result<Settings<BrokerConfig>, Failure> {
    let mut settings = broker(args.config_file.as_deref(), |_| {})?;
    let config = &mut settings.config;
    if let Some(list) =
        args.namesrv_addr.clone().or_else(|| config.namesrv_addr.take()).or_else(|| variable("NAMESRV_ADDR"))
    {
        config.namesrv_addr = Some(list);
    }
    config.resolve()?;
    Ok(settings)
}

/// Settings of the broker of `ferromq standalone`, which registers at the name server on `namesrv_port`.
pub(crate) fn of_standalone_broker(args: &StandaloneArgs) -> Result<Settings<BrokerConfig>, Failure> {
    let store = args.store.as_ref().map(|store| store.display().to_string());
    let mut settings = broker(args.config_file.as_deref(), |config| {
        config.store_path_root_dir = store.clone().unwrap_or_else(|| STANDALONE_STORE.to_owned());
    })?;
    let config = &mut settings.config;
    if let Some(store) = store {
        config.store_path_root_dir = store;
    }
    if let Some(port) = args.broker_port {
        config.listen_port = port.into();
    }
    config.resolve()?;
    Ok(settings)
}

/// Settings of the name server of `ferromq standalone`, which keeps its files in the broker's store.
pub(crate) fn of_standalone_namesrv(args: &StandaloneArgs, broker: &BrokerConfig) -> NamesrvConfig {
    let file =
        |name: &str| Path::new(&broker.store_path_root_dir).join("namesrv").join(name).display().to_string();
    NamesrvConfig {
        listen_port: args.namesrv_port,
        bind_address: broker.bind_address.clone(),
        kv_config_path: file("kvConfig.json"),
        config_store_path: file("namesrv.properties"),
        ..NamesrvConfig::default()
    }
}

/// Defaults changed by `adapt`, then the file. Without a file, what clients have changed is read from the store.
fn broker(file: Option<&Path>, adapt: impl Fn(&mut BrokerConfig)) -> Result<Settings<BrokerConfig>, Failure> {
    let mut config = BrokerConfig {
        rocketmq_home: variable("ROCKETMQ_HOME"),
        header_encoding: header_encoding()?,
        ..BrokerConfig::default()
    };
    adapt(&mut config);
    let changes = config.changes_file();
    let warnings = match file {
        Some(file) => {
            config.broker_config_path = Some(file.display().to_string());
            config.read(file)?
        }
        None if changes.exists() => config.read(&changes)?,
        None => Vec::new(),
    };
    Ok(Settings { config, warnings: warnings.iter().map(ConfigWarning::to_string).collect() })
}

/// Settings of a name server, and of the controller in the same process if there is one.
#[derive(Debug, Default)]
pub(crate) struct NamesrvAndController {
    pub(crate) namesrv: NamesrvConfig,
    pub(crate) controller: Option<ControllerConfig>,
}

/// Settings of `ferromq namesrv`.
pub(crate) fn of_namesrv(args: &NamesrvArgs) -> Result<Settings<NamesrvAndController>, Failure> {
    let mut namesrv = NamesrvConfig::default();
    let mut controller = ControllerConfig::default();
    let mut warnings = Vec::new();
    if let Some(file) = &args.config_file {
        let unknown = read_table(&mut namesrv, file)?;
        namesrv.config_store_path = file.display().to_string();
        let unknown_to_controller = if namesrv.enable_controller_in_namesrv {
            read_table(&mut controller, file)?
        } else {
            Vec::new()
        };
        controller.config_store_path.clone_from(&namesrv.config_store_path);
        let is_unknown = |warning: &String| {
            !namesrv.enable_controller_in_namesrv || unknown_to_controller.contains(warning)
        };
        warnings = unknown.into_iter().filter(is_unknown).collect();
    }
    let controller = namesrv.enable_controller_in_namesrv.then_some(controller);
    Ok(Settings { config: NamesrvAndController { namesrv, controller }, warnings })
}

/// Settings of `ferromq controller`.
pub(crate) fn of_controller(args: &ControllerArgs) -> Result<Settings<ControllerConfig>, Failure> {
    let mut config = ControllerConfig::default();
    let mut warnings = Vec::new();
    if let Some(file) = &args.config_file {
        warnings = read_table(&mut config, file)?;
        config.config_store_path = file.display().to_string();
    }
    Ok(Settings { config, warnings })
}

/// Reads a configuration file into a table; returns warnings of keys that it does not have.
fn read_table(table: &mut impl Table, file: &PathBuf) -> Result<Vec<String>, Failure> {
    let text = std::fs::read(file).map_err(|source| Failure::ReadFile { file: file.clone(), source })?;
    let malformed = |reason: String| Failure::File { file: file.clone(), reason };
    let mut warnings = Vec::new();
    for property in java_properties::parse(&text).map_err(|error| malformed(error.to_string()))? {
        let (key, line) = (property.key, property.line);
        match table.set(&key, &property.value) {
            Ok(()) => {}
            Err(SetError::UnknownKey) => {
                warnings.push(format!("{}:{line}: unknown key `{key}`, it has no effect", file.display()));
                table.unknown_mut().insert(key, property.value.trim_end().to_owned());
            }
            Err(error) => {
                let file = PathBuf::from(format!("{}:{line}", file.display()));
                return Err(Failure::File { file, reason: format!("{key}: {error}") });
            }
        }
    }
    Ok(warnings)
}

fn header_encoding() -> Result<HeaderEncoding, Failure> {
    match variable("ROCKETMQ_SERIALIZE_TYPE").as_deref() {
        None | Some("JSON") => Ok(HeaderEncoding::Json),
        Some("ROCKETMQ") => Ok(HeaderEncoding::Binary),
        Some(other) => Err(Failure::SerializeType(other.to_owned())),
    }
}

/// An environment variable that says something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}
