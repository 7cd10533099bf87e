//! Which store, and the settings that it was written with.

use std::path::PathBuf;

use ferromq_broker::batch_topics;
use ferromq_broker::config::{BrokerConfig, store_options};
use ferromq_store::StoreOptions;
use ferromq_store::offline::Layout;

use super::StoreToolError;

/// Where the store is.
#[derive(Debug, clap::Args)]
pub(super) struct Place {
    /// Directory of the store (storePathRootDir)
    #[arg(value_name = "DIR")]
    root: PathBuf,
    /// Settings of its broker, a broker.conf [default: file sizes are taken from the files themselves]
    #[arg(short = 'c', long = "configFile", value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Directory of the log [default: storePathCommitLog of the file, or DIR/commitlog]
    #[arg(long, value_name = "DIR")]
    commit_log: Option<PathBuf>,
}

impl Place {
    /// The options with which the store can be opened.
    pub(super) fn options(&self) -> Result<StoreOptions, StoreToolError> {
        let mut options = match &self.config_file {
            Some(file) => {
                let mut config = BrokerConfig::default();
                for warning in config.read(file)? {
                    eprintln!("warning: {warning}");
                }
                let options = store_options(&config);
                StoreOptions { root: self.root.clone(), ..options }
            }
            None => StoreOptions::new(&self.root),
        };
        options.batch_topics = batch_topics(&self.root.join("config"));
        if self.commit_log.is_some() {
            options.commit_log_directory.clone_from(&self.commit_log);
        }
        let log = options.commit_log_directory();
        if !log.is_dir() {
            return Err(StoreToolError::NoStore(self.root.clone()));
        }
        if self.config_file.is_none() {
            Layout::of(&self.root, &log)?.apply(&mut options);
        }
        Ok(options)
    }
}
