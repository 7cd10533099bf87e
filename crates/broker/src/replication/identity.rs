//! Who this replica is, for ever: its id in the set, in two small files (`docs/spec/05-ha.md` 8.2).

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::config::BrokerConfig;

/// What the controller gave this replica, or is about to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: i64,
    /// With it the id can be asked for again. Only in the file of an id that is not confirmed.
    pub(super) check_code: Option<String>,
}

/// Why the files are of no use.
#[derive(Debug, Error)]
pub(super) enum IdentityError {
    #[error("{}: {source}", file.display())]
    Io { file: PathBuf, source: io::Error },
    #[error(
        "{} is of {cluster}#{name}, this broker is {ours}: brokerClusterName and brokerName can't change once a controller has given an id",
        file.display()
    )]
    OfAnother { file: PathBuf, cluster: String, name: String, ours: String },
}

/// The two files.
#[derive(Debug)]
pub(super) struct IdentityFiles {
    cluster: String,
    name: String,
    file: PathBuf,
    unconfirmed: PathBuf,
}

impl IdentityFiles {
    pub(super) fn of(config: &BrokerConfig) -> Self {
        let file = match &config.store_path_broker_identity {
            Some(path) => PathBuf::from(path),
            None => Path::new(&config.store_path_root_dir).join("brokerIdentity"),
        };
        let mut unconfirmed = file.clone().into_os_string();
        unconfirmed.push("-temp");
        Self {
            cluster: config.broker_cluster_name.clone(),
            name: config.broker_name.clone(),
            file,
            unconfirmed: unconfirmed.into(),
        }
    }

    /// The id that the controller has confirmed.
    pub(super) fn confirmed(&self) -> Result<Option<Identity>, IdentityError> {
        self.read(&self.file, 3)
    }

    /// An id that was asked for; the answer is not known.
    pub(super) fn unconfirmed(&self) -> Result<Option<Identity>, IdentityError> {
        self.read(&self.unconfirmed, 4)
    }

    /// Notes an id that is about to be asked for.
    pub(super) fn ask(&self, id: i64, check_code: &str) -> Result<(), IdentityError> {
        self.write(&self.unconfirmed, format!("{}#{}#{id}#{check_code}", self.cluster, self.name))
    }

    /// Notes that the controller has given the id.
    pub(super) fn confirm(&self, id: i64) -> Result<(), IdentityError> {
        self.write(&self.file, format!("{}#{}#{id}", self.cluster, self.name))?;
        self.refuse()
    }

    /// Forgets the id that was asked for.
    pub(super) fn refuse(&self) -> Result<(), IdentityError> {
        match std::fs::remove_file(&self.unconfirmed) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(IdentityError::Io { file: self.unconfirmed.clone(), source })
            }
            _ => Ok(()),
        }
    }

    /// A file that is not there, or was not written to its end, says nothing.
    fn read(&self, file: &Path, parts: usize) -> Result<Option<Identity>, IdentityError> {
        let text = match std::fs::read_to_string(file) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|source| IdentityError::Io { file: file.to_owned(), source })?,
        };
        let fields: Vec<&str> = text.trim_end().splitn(parts, '#').collect();
        let (cluster, name, id, check_code) = match (parts, &fields[..]) {
            (3, [cluster, name, id]) => (*cluster, *name, *id, None),
            (4, [cluster, name, id, check_code]) => (*cluster, *name, *id, Some((*check_code).to_owned())),
            _ => return Ok(None),
        };
        let Some(id) = id.parse().ok().filter(|id| *id > 0) else { return Ok(None) };
        if (cluster, name) != (&*self.cluster, &*self.name) {
            let ours = format!("{}#{}", self.cluster, self.name);
            let (cluster, name) = (cluster.to_owned(), name.to_owned());
            return Err(IdentityError::OfAnother { file: file.to_owned(), cluster, name, ours });
        }
        Ok(Some(Identity { id, check_code }))
    }

    fn write(&self, file: &Path, text: String) -> Result<(), IdentityError> {
        ferromq_settings::replace(file, text.as_bytes())
            .map_err(|source| IdentityError::Io { file: file.to_owned(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(root: &Path) -> IdentityFiles {
        let config = BrokerConfig {
            broker_name: "broker-a".to_owned(),
            store_path_root_dir: root.display().to_string(),
            ..BrokerConfig::default()
        };
        IdentityFiles::of(&config)
    }

    /// `docs/spec/05-ha.md` 15.5.
    #[test]
    fn the_files_of_the_reference() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        assert_eq!((files.confirmed().unwrap(), files.unconfirmed().unwrap()), (None, None));
        files.ask(2, "10.0.0.2:10911;1700000000000").unwrap();
        let text = std::fs::read_to_string(root.path().join("brokerIdentity-temp")).unwrap();
        assert_eq!(text, "DefaultCluster#broker-a#2#10.0.0.2:10911;1700000000000");
        let asked = Identity { id: 2, check_code: Some("10.0.0.2:10911;1700000000000".to_owned()) };
        assert_eq!(files.unconfirmed().unwrap(), Some(asked));
        files.confirm(2).unwrap();
        let text = std::fs::read_to_string(root.path().join("brokerIdentity")).unwrap();
        assert_eq!(text, "DefaultCluster#broker-a#2");
        assert_eq!(files.confirmed().unwrap(), Some(Identity { id: 2, check_code: None }));
        assert_eq!(files.unconfirmed().unwrap(), None);
    }

    #[test]
    fn half_a_file_says_nothing_and_that_of_another_broker_stops() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        for half in ["", "DefaultCluster", "DefaultCluster#broker-a#", "DefaultCluster#broker-a#x"] {
            std::fs::write(root.path().join("brokerIdentity"), half).unwrap();
            assert_eq!(files.confirmed().unwrap(), None, "{half}");
        }
        std::fs::write(root.path().join("brokerIdentity"), "DefaultCluster#broker-b#1").unwrap();
        let error = files.confirmed().unwrap_err().to_string();
        assert!(
            error.contains("is of DefaultCluster#broker-b, this broker is DefaultCluster#broker-a"),
            "{error}"
        );
    }
}
