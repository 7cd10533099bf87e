//! A small value that is written over and over and must survive any crash in between.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of one value.
pub(crate) const VALUE_LEN: usize = 40;
/// The two places of a value lie in different sectors, so that a torn write damages one of them only.
const SLOT_STRIDE: u64 = 4096;
/// Number of the write, the value, CRC-32 of both.
const SLOT_LEN: usize = 8 + VALUE_LEN + 4;

/// A file with two places that are written in turn. The newest whole one counts.
#[derive(Debug)]
pub(crate) struct SlotFile {
    file: File,
    writes: u64,
}

impl SlotFile {
    /// Opens or creates the file and reads its value, `None` if it never had one.
    ///
    /// # Errors
    /// `InvalidData` if there is something in the file but no whole value.
    pub(crate) fn open(path: &Path) -> io::Result<(SlotFile, Option<[u8; VALUE_LEN]>)> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut newest: Option<(u64, [u8; VALUE_LEN])> = None;
        let mut written = false;
        for slot in 0..2 {
            let mut bytes = [0; SLOT_LEN];
            let len = read_up_to(&file, &mut bytes, slot * SLOT_STRIDE)?;
            written |= bytes.iter().any(|byte| *byte != 0);
            if len == SLOT_LEN
                && let Some(found) = decode(&bytes)
                && newest.is_none_or(|(writes, _)| writes < found.0)
            {
                newest = Some(found);
            }
        }
        if newest.is_none() && written {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "both copies are damaged"));
        }
        let writes = newest.map_or(0, |(writes, _)| writes);
        Ok((SlotFile { file, writes }, newest.map(|(_, value)| value)))
    }

    /// Replaces the value; if `sync`, it is on the device when this returns.
    pub(crate) fn write(&mut self, value: &[u8; VALUE_LEN], sync: bool) -> io::Result<()> {
        let writes = self.writes + 1;
        let mut bytes = [0; SLOT_LEN];
        bytes[..8].copy_from_slice(&writes.to_be_bytes());
        bytes[8..8 + VALUE_LEN].copy_from_slice(value);
        let crc = crc32fast::hash(&bytes[..SLOT_LEN - 4]);
        bytes[SLOT_LEN - 4..].copy_from_slice(&crc.to_be_bytes());
        self.file.write_all_at(&bytes, writes % 2 * SLOT_STRIDE)?;
        if sync {
            self.file.sync_data()?;
        }
        self.writes = writes;
        Ok(())
    }
}

fn decode(bytes: &[u8; SLOT_LEN]) -> Option<(u64, [u8; VALUE_LEN])> {
    let (value, crc) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(value) != u32::from_be_bytes(*crc) {
        return None;
    }
    let (writes, value) = value.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*writes), value.try_into().ok()?))
}

fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], at + len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(n: u8) -> [u8; VALUE_LEN] {
        [n; VALUE_LEN]
    }

    #[test]
    fn the_newest_whole_value_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vote");
        let (mut file, none) = SlotFile::open(&path).unwrap();
        assert_eq!(none, None);
        for n in 1..=5 {
            file.write(&value(n), true).unwrap();
            assert_eq!(SlotFile::open(&path).unwrap().1, Some(value(n)));
        }
        // The sixth is torn: the fifth is still there.
        file.write(&value(6), true).unwrap();
        file.file.write_all_at(&[0xff; 7], 20).unwrap();
        let (mut file, found) = SlotFile::open(&path).unwrap();
        assert_eq!(found, Some(value(5)));
        file.write(&value(7), true).unwrap();
        assert_eq!(SlotFile::open(&path).unwrap().1, Some(value(7)));
    }

    #[test]
    fn two_damaged_copies_are_an_error_and_not_an_empty_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vote");
        let (mut file, _) = SlotFile::open(&path).unwrap();
        file.write(&value(1), true).unwrap();
        file.write(&value(2), true).unwrap();
        file.file.write_all_at(&[0xff; 7], 20).unwrap();
        file.file.write_all_at(&[0xff; 7], SLOT_STRIDE + 20).unwrap();
        assert_eq!(SlotFile::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
