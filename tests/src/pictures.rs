//! Generates pictures, always the same, so that none need to be downloaded or stored.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use image::{DynamicImage, ImageFormat, RgbaImage};

/// A generated picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Its path below the directory.
    pub name: String,
    /// Whether it can be decoded.
    pub readable: bool,
}

/// The number of different drawings, in all formats: encoding is the slowest part of a test.
const DRAWINGS: u32 = 18;

/// The picture with a photo's extension that is no picture.
const NO_PICTURE: u32 = 8;

/// The PNG that lacks its last two thirds: a JPEG would still give a thumbnail.
const CUT_SHORT: u32 = 9;

/// Generates `count` pictures below `directory`: photos, drawings with transparency and some frames
/// of animations, in three directories. Some names differ only in the extension, and two pictures
/// are broken.
///
/// # Panics
/// When the disk fails.
#[must_use]
pub fn pictures(directory: &Path, count: u32) -> Vec<Picture> {
    let drawings = drawings();
    let mut all: Vec<_> = (0..count).map(|number| make(directory, number, &drawings)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Encodes every drawing.
fn drawings() -> Vec<Vec<u8>> {
    let (half, mut drawings) = (DRAWINGS / 2, Vec::new());
    std::thread::scope(|scope| {
        let others = scope.spawn(move || (half..DRAWINGS).map(encoded).collect::<Vec<_>>());
        drawings.extend((0..half).map(encoded));
        drawings.extend(others.join().expect("drawings"));
    });
    drawings
}

fn make(directory: &Path, number: u32, drawings: &[Vec<u8>]) -> Picture {
    let (extension, ..) = kind(number);
    let folder = ["birds", "birds/of prey", "été"][number as usize % 3];
    let name = format!("{folder}/{:03}.{extension}", number / 6);
    let path = directory.join(&name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    let whole = &drawings[(number % DRAWINGS) as usize];
    let bytes = match number {
        NO_PICTURE => b"not a picture at all",
        CUT_SHORT => &whole[..whole.len() / 3],
        _ => &whole[..],
    };
    fs::write(path, bytes).expect("a picture");
    Picture { name, readable: !matches!(number, NO_PICTURE | CUT_SHORT) }
}

/// Returns a picture's extension, format, width and height.
const fn kind(number: u32) -> (&'static str, ImageFormat, u32, u32) {
    match number % 6 {
        0..=2 => ("jpg", ImageFormat::Jpeg, 2400, 1800),
        3 => ("png", ImageFormat::Png, 1600, 1200),
        4 => ("WebP", ImageFormat::WebP, 1200, 900),
        _ => ("gif", ImageFormat::Gif, 320, 200),
    }
}

fn encoded(number: u32) -> Vec<u8> {
    let (_, format, width, height) = kind(number);
    let drawing = draw(number, width, height);
    let drawing = if format == ImageFormat::Jpeg { drawing.to_rgb8().into() } else { drawing };
    let mut bytes = Cursor::new(Vec::new());
    drawing.write_to(&mut bytes, format).expect("an encoded picture");
    bytes.into_inner()
}

/// A slanted grain, different for each number, so that encoders have work to do.
fn draw(number: u32, width: u32, height: u32) -> DynamicImage {
    // Rows are windows on one long row: computing every pixel would be the slowest part of a test.
    let long: Vec<u8> = (0..width * 2).flat_map(|at| grain(number, at, width)).collect();
    let row = width as usize * 4;
    let window = |y: u32| (y * (number % 7 + 1) % width) as usize * 4;
    let rows: Vec<_> = (0..height).map(|y| &long[window(y)..][..row]).collect();
    DynamicImage::from(RgbaImage::from_raw(width, height, rows.concat()).expect("as many pixels"))
}

/// Returns one pixel: a shade with noise that is the same on every machine. Every sixth picture has
/// transparency.
fn grain(number: u32, at: u32, width: u32) -> [u8; 4] {
    let [noise, more, ..] = (at ^ (number << 16)).wrapping_mul(0x9E37_79B9).rotate_left(13).to_be_bytes();
    let [.., shade] = (at * 200 / (width * 2)).to_be_bytes();
    let alpha = if number % 6 == 3 { shade } else { u8::MAX };
    [shade + noise / 8, shade + more / 8, 200 - shade, alpha]
}
