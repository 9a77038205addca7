//! Writing a blob in parts: a file takes the parts at their places, and the row that names it publishes
//! them.
//!
//! A file that is not published is removed with the last handle of its write. If its process dies, the
//! sweep removes it, as every file of a dead process that no row refers to.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use reprieve_core::ErrorKind;
use reprieve_core::ports::{PART_BYTES, Upload};

use super::{Applied, Content, How, Present, Write, admit, finish};
use crate::failure::{Failure, Fault, Outcome};
use crate::files;
use crate::shared::Shared;
use crate::writer::Tx;

/// The file of a write in parts; none before the first part.
#[derive(Debug, Default)]
pub(super) struct Parts(Mutex<Option<Arc<PartsFile>>>);

/// The file that takes the parts.
#[derive(Debug)]
pub(super) struct PartsFile {
    name: String,
    path: PathBuf,
    /// The numbers of the parts that are in the file.
    there: Mutex<BTreeSet<u32>>,
    /// A row refers to the file, or did. Set by the writer's thread, in the turn of the commit.
    is_published: AtomicBool,
}

impl Drop for PartsFile {
    fn drop(&mut self) {
        // An operation that is to publish the file holds it until it is answered.
        if !self.is_published.load(Relaxed) {
            files::remove_if_there(&self.path);
        }
    }
}

impl Parts {
    /// The file of `upload`, under a name that is never used again.
    pub(super) fn of(upload: &Upload, shared: &Shared) -> Outcome<Arc<PartsFile>> {
        let parts: &Self = upload.state().map_err(|error| Failure::new(error.kind(), error.message()))?;
        let mut file = parts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let name = shared.session()?.new_file_name();
        let path = shared.files.blobs().join(&name);
        let (there, is_published) = (Mutex::default(), AtomicBool::new(false));
        let made = Arc::new(PartsFile { name, path, there, is_published });
        *file = Some(Arc::clone(&made));
        Ok(made)
    }
}

impl PartsFile {
    fn open(&self) -> io::Result<File> {
        File::options().create(true).truncate(false).write(true).open(&self.path)
    }

    /// Writes a part at its place. It need not reach the disk before the publication.
    pub(super) fn put(&self, number: u32, bytes: &[u8]) -> Outcome<()> {
        let write = || {
            let mut file = self.open()?;
            file.seek(SeekFrom::Start(u64::from(number) * PART_BYTES as u64))?;
            file.write_all(bytes)
        };
        write().map_err(|error| Failure::io(&error, &self.path))?;
        self.there.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
        Ok(())
    }

    /// Waits until all parts of a blob of `length` bytes are on the disk.
    fn complete(&self, length: u64) -> Outcome<()> {
        let parts = Upload::parts(length).map_err(|error| Failure::new(error.kind(), error.message()))?;
        let there = self.there.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let file = self.open().map_err(|error| Failure::io(&error, &self.path))?;
        let bytes = file.metadata().map_err(|error| Failure::io(&error, &self.path))?.len();
        if bytes != length || !there.iter().copied().eq(0..parts) {
            let message =
                format!("{} of {parts} parts are there, and {bytes} of {length} bytes", there.len());
            return Err(Failure::new(ErrorKind::Conflict, message));
        }
        file.sync_all().map_err(|error| Failure::io(&error, &self.path))
    }
}

/// Publishes the file as the blob that `write` names. Blocks.
pub(super) fn publish(write: Write, shared: &Arc<Shared>, file: Arc<PartsFile>, length: u64) -> Outcome<()> {
    if !file.is_published.load(Relaxed) {
        file.complete(length)?;
        let directory = shared.files.blobs();
        files::sync_directory(&directory).map_err(|error| Failure::io(&error, &directory))?;
    }
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    let content = Content::File(file.name.clone(), bytes);
    let (applying, publishing) = (Arc::clone(shared), Arc::clone(shared));
    let of_apply = Arc::clone(&file);
    let apply = move |tx: &Tx<'_>| {
        if of_apply.is_published.load(Relaxed) {
            again(tx, &write)
        } else {
            write.apply(tx, &applying, &content)
        }
    };
    let publish = move |applied| {
        file.is_published.store(true, Relaxed);
        finish(&publishing, applied);
        Ok(())
    };
    shared.writer.call_blocking(apply, publish)
}

/// The same publication once more, whose answer was lost: the file may be gone by now, with a later
/// write.
fn again(tx: &Tx<'_>, write: &Write) -> Result<Applied, Fault> {
    if let How::Put(Some(writer)) = &write.how {
        let present = Present::find(tx, &write.name)?;
        admit(tx, &write.name, present.as_ref(), writer)?;
    }
    Ok(Applied::Written(None))
}
