//! The file in which a broadcasting consumer keeps its progress (`docs/spec/07-client.md` 19, 25.9).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferromq_protocol::body::{MessageQueue, ResetOffsetBody};
use ferromq_protocol::json;

use crate::error::Error;

/// `<directory>/<client id>/<group>/offsets.json`, with the content before the last change beside it in `.bak`.
#[derive(Clone, Debug)]
pub(crate) struct LocalOffsets {
    path: PathBuf,
}

/// The file has the shape of that body.
type Content = ResetOffsetBody;

impl LocalOffsets {
    pub(crate) fn new(directory: &Path, client_id: &str, group: &str) -> Self {
        Self { path: directory.join(client_id).join(group).join("offsets.json") }
    }

    /// The directory that Java clients use too: `.rocketmq_offsets` in the user's home.
    pub(crate) fn default_directory() -> PathBuf {
        let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
        home.join(".rocketmq_offsets")
    }

    pub(crate) async fn read(&self) -> Result<BTreeMap<MessageQueue, i64>, Error> {
        self.blocking(|file| file.read_now()).await
    }

    /// Writes these offsets and keeps those of other queues.
    pub(crate) async fn merge(&self, offsets: BTreeMap<MessageQueue, i64>) -> Result<(), Error> {
        self.blocking(move |file| {
            let mut content = Content { offset_table: file.read_now()? };
            content.offset_table.extend(offsets);
            file.write_now(&content)
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let file = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&file)).await;
        let done = done.unwrap_or_else(|stopped| Err(io::Error::other(stopped)));
        done.map_err(|source| Error::OffsetFile { path: self.path.clone(), source: Arc::new(source) })
    }

    fn backup(&self) -> PathBuf {
        self.path.with_extension("json.bak")
    }

    /// The content; that of the backup if the file is empty or damaged; nothing if there is no file.
    fn read_now(&self) -> io::Result<BTreeMap<MessageQueue, i64>> {
        let parse = |path: &Path| -> io::Result<Option<Content>> {
            let bytes = match fs::read(path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            json::from_slice(&bytes).map(Some).map_err(io::Error::other)
        };
        let content = match parse(&self.path) {
            Ok(content) => content,
            Err(reason) => {
                tracing::warn!(path = %self.path.display(), %reason, "the file is damaged, its backup counts");
                parse(&self.backup())?
            }
        };
        Ok(content.unwrap_or_default().offset_table)
    }

    /// Replaces the file as a whole: whoever reads it meanwhile, or after a crash, sees the old or the new content.
    fn write_now(&self, content: &Content) -> io::Result<()> {
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory)?;
        }
        match fs::copy(&self.path, self.backup()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let new = self.path.with_extension("json.tmp");
        fs::write(&new, json::to_string_pretty(content))?;
        fs::rename(new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(list: &[(i32, i64)]) -> BTreeMap<MessageQueue, i64> {
        list.iter().map(|(id, offset)| (MessageQueue::new("TopicTest", "broker-a", *id), *offset)).collect()
    }

    #[tokio::test]
    async fn the_file_of_the_spec_25_9() {
        let directory = tempfile::tempdir().unwrap();
        let file = LocalOffsets::new(directory.path(), "c@DEFAULT", "g");
        file.merge(offsets(&[(1, 7), (0, 42)])).await.unwrap();
        let path = directory.path().join("c@DEFAULT/g/offsets.json");
        let expected = "{\n\t\"offsetTable\":{{\n\t\t\t\"brokerName\":\"broker-a\",\n\t\t\t\"queueId\":0,\n\t\t\t\
            \"topic\":\"TopicTest\"\n\t\t}:42,{\n\t\t\t\"brokerName\":\"broker-a\",\n\t\t\t\"queueId\":1,\n\t\t\t\
            \"topic\":\"TopicTest\"\n\t\t}:7\n\t}\n}";
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(file.read().await.unwrap(), offsets(&[(0, 42), (1, 7)]));
    }

    #[tokio::test]
    async fn a_damaged_file_is_replaced_by_its_backup() {
        let directory = tempfile::tempdir().unwrap();
        let file = LocalOffsets::new(directory.path(), "c", "g");
        assert!(file.read().await.unwrap().is_empty());
        file.merge(offsets(&[(0, 1)])).await.unwrap();
        file.merge(offsets(&[(1, 2)])).await.unwrap();
        fs::write(&file.path, "").unwrap();
        assert_eq!(file.read().await.unwrap(), offsets(&[(0, 1)]));
        fs::write(file.backup(), "{broken").unwrap();
        assert!(matches!(file.read().await, Err(Error::OffsetFile { .. })));
    }
}
