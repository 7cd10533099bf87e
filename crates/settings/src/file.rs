//! Replacing a small file so that a crash leaves the old or the new content, never a part.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes `content` to `path`; what was there before is kept as `<path>.bak`, as RocketMQ keeps it. Missing folders
/// are created. Blocks until the content is on the disk.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let new = with_suffix(path, ".tmp");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    match fs::copy(path, with_suffix(path, ".bak")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_previous_content_is_kept_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/kvConfig.json");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read(with_suffix(&path, ".bak")).unwrap(), b"one");
        assert!(!with_suffix(&path, ".tmp").exists());
    }
}
