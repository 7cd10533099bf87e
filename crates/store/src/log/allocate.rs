//! Files with real blocks, so that writing to their mapping can't fail for want of space.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::disk;

/// Gives `file` blocks for `from..to` and at least that length. What was there stays; what was not reads as zeros.
pub(crate) fn reserve_blocks(file: &File, from: u64, to: u64) -> io::Result<()> {
    if from >= to {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), from, to - from) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros_into_holes(file, from, to),
        Err(error) => Err(error.into()),
    }
}

/// For file systems without `fallocate`: rewrites every block with what it holds.
fn write_zeros_into_holes(file: &File, from: u64, to: u64) -> io::Result<()> {
    const BLOCK: usize = 64 << 10;
    if file.metadata()?.len() < to {
        disk::set_len(file, to)?;
    }
    let mut block = vec![0u8; BLOCK];
    let mut at = from;
    while at < to {
        let len = BLOCK.min((to - at) as usize);
        file.read_exact_at(&mut block[..len], at)?;
        disk::write_all_at(file, &block[..len], at)?;
        at += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_real_and_content_stays() {
        use std::os::unix::fs::MetadataExt;
        for with_fallocate in [true, false] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(b"content", 100_000).unwrap();
            if with_fallocate {
                reserve_blocks(&file, 0, 1 << 20).unwrap();
            } else {
                write_zeros_into_holes(&file, 0, 1 << 20).unwrap();
            }
            file.sync_all().unwrap();
            let metadata = file.metadata().unwrap();
            assert_eq!(metadata.len(), 1 << 20);
            assert!(metadata.blocks() * 512 >= 1 << 20);
            let mut content = [0; 8];
            file.read_exact_at(&mut content, 100_000).unwrap();
            assert_eq!(&content, b"content\0");
        }
    }
}
