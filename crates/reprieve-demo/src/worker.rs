//! The job: renders one frame, a band of rows per step, and the worker process that runs it.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reprieve::{Error, ErrorKind, Job, JobContext, JobError, Result, Step, async_trait};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use crate::frame::{self, BAND_BYTES, BANDS};
use crate::journal::{Journal, StepEvent};

/// The length of a step. A band is computed faster, but then no eviction would interrupt anything.
const PACE: Duration = Duration::from_millis(230);

/// The arguments of a worker process, which only the demo starts.
#[derive(Debug, clap::Args)]
pub struct VmArgs {
    /// The journal's path
    #[arg(long, value_name = "PATH")]
    journal: PathBuf,

    /// The name of the VM
    #[arg(long, value_name = "NAME")]
    vm: String,

    #[command(flatten)]
    worker: reprieve::WorkerArgs,
}

/// One frame to render.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Frame {
    pub(crate) number: u32,
    /// The number of frames.
    pub(crate) of: u32,
}

/// The pixels so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Canvas {
    #[serde(with = "as_base64")]
    pixels: Vec<u8>,
}

/// Renders frames.
#[derive(Debug)]
pub(crate) struct Render {
    journal: Journal,
}

impl Frame {
    /// The file's name. It has as many digits as the last one needs, so that names sort.
    pub(crate) fn file_name(self) -> String {
        let digits = self.of.saturating_sub(1).to_string().len().max(2);
        format!("{:0digits$}.png", self.number)
    }

    /// The name of the blob it becomes.
    pub(crate) fn blob(self) -> String {
        format!("frames/{}", self.file_name())
    }
}

#[async_trait]
impl Job for Render {
    const KIND: &'static str = "frame";
    type Args = Frame;
    type Checkpoint = Canvas;
    /// The name of the picture.
    type Output = String;

    fn begin(&self, _: &Frame) -> Canvas {
        Canvas::default()
    }

    async fn step(
        &self,
        cx: &JobContext,
        frame: &Frame,
        mut at: Canvas,
    ) -> Result<Step<Canvas, String>, JobError> {
        let until = Instant::now() + PACE;
        let band = at.bands()?;
        let note = |what| {
            self.journal.note(frame.number as usize, cx.delivery(), band, what).map_err(JobError::retry)
        };
        note(StepEvent::Began)?;
        cx.progress(band.into(), BANDS.into());
        at.pixels.extend(frame::band(frame.number, frame.of, band));
        tokio::select! {
            () = sleep_until(until) => {}
            // The band is done; nothing is gained by waiting.
            () = cx.interrupted() => {}
        }
        let step = if band + 1 < BANDS {
            Step::Continue(at)
        } else {
            let png = frame::encode(&at.pixels).map_err(JobError::fatal)?;
            cx.put_output(&format!("/{}", frame.blob()), png).await?;
            Step::Done(frame.blob())
        };
        note(StepEvent::Done)?;
        Ok(step)
    }
}

impl Canvas {
    /// The number of done bands. A checkpoint must hold whole bands, and fewer than all.
    fn bands(&self) -> Result<u32, JobError> {
        let bands = u32::try_from(self.pixels.len() / BAND_BYTES).ok().filter(|&bands| bands < BANDS);
        bands.filter(|_| self.pixels.len().is_multiple_of(BAND_BYTES)).ok_or_else(|| {
            JobError::fatal(format!("the checkpoint has {} pixels, which are no bands", self.pixels.len()))
        })
    }
}

/// Works until the process is killed or the demo ends. Must be called outside any runtime.
pub fn work(args: VmArgs) -> ExitCode {
    end_with_stdin();
    let journal = match Journal::open(&args.journal, args.vm) {
        Ok(journal) => journal,
        Err(error) => {
            let message = format!("{} can't be opened", args.journal.display());
            return reprieve::fail(
                &Error::new(ErrorKind::Invalid, "open the journal", message).with_source(error),
            );
        }
    };
    reprieve::work(args.worker, |worker| worker.job(Render { journal }))
}

/// Ends the process when its standard input ends: that is a pipe which only the demo holds, so no
/// worker is left behind however the demo ends. Nothing is released, as at a kill; after the last
/// job there is nothing to release.
fn end_with_stdin() {
    std::thread::spawn(|| {
        let mut nothing = [0; 64];
        loop {
            match io::stdin().read(&mut nothing) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => std::process::exit(0),
            }
        }
    });
}

/// Bytes in JSON: a list of numbers would take three times the room.
mod as_base64 {
    use serde::de::Error as _;
    use serde::{Deserializer, Serializer};

    use super::{BASE64_STANDARD, Deserialize, Engine};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        BASE64_STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_frames_sort_as_their_numbers_do() {
        for of in [1, 12, 100, 101, 200] {
            let names: Vec<_> = (0..of).map(|number| Frame { number, of }.file_name()).collect();
            assert!(names.is_sorted(), "{names:?}");
        }
        assert_eq!(Frame { number: 3, of: 12 }.blob(), "frames/03.png");
    }

    #[test]
    fn a_canvas_comes_back_as_it_was_saved() {
        let canvas = Canvas { pixels: frame::band(0, 1, 20) };
        let saved = serde_json::to_string(&canvas).unwrap();
        assert!(saved.len() < BAND_BYTES * 3 / 2);
        let loaded: Canvas = serde_json::from_str(&saved).unwrap();
        assert_eq!((loaded.bands().unwrap(), &loaded.pixels), (1, &canvas.pixels));
    }

    #[test]
    fn a_checkpoint_that_is_no_bands_is_refused() {
        for pixels in [1, BAND_BYTES - 1, BAND_BYTES + 1, BAND_BYTES * BANDS as usize] {
            let error = Canvas { pixels: vec![0; pixels] }.bands().unwrap_err();
            assert!(!error.is_retry(), "{error}");
        }
    }
}
