//! Decodes, shrinks and encodes a picture, all in memory.

use std::fmt;
use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder, ImageError, ImageReader, Limits};

/// The most memory that a decoded picture may take, because a file of some kilobytes can declare
/// gigabytes of pixels. The limit allows photos of 178 million pixels, more than cameras take.
const DECODED_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The quality of JPEG thumbnails. Higher values make larger files without a visible difference.
const JPEG_QUALITY: u8 = 85;

/// An encoded thumbnail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Thumbnail {
    pub(crate) bytes: Vec<u8>,
    /// `jpg`, or `png` if the picture has transparent pixels.
    pub(crate) extension: &'static str,
}

/// Why a picture has no thumbnail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ImageError> for Unreadable {
    fn from(error: ImageError) -> Self {
        Self(error.to_string())
    }
}

impl Thumbnail {
    /// Makes a thumbnail of at most `size` × `size` pixels. Smaller pictures keep their size. Of an
    /// animation only the first frame is used. The result is deterministic.
    pub(crate) fn of(picture: &[u8], size: u32) -> Result<Self, Unreadable> {
        let small = shrink(decode(picture)?, size);
        let opaque = small.to_rgba8().pixels().all(|pixel| pixel.0[3] == u8::MAX);
        let mut bytes = Vec::new();
        let extension = if opaque {
            small.to_rgb8().write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY))?;
            "jpg"
        } else {
            small.to_rgba8().write_with_encoder(PngEncoder::new(&mut bytes))?;
            "png"
        };
        Ok(Self { bytes, extension })
    }
}

/// Decodes a picture and applies its orientation. The format is detected from the content, because
/// extensions can be wrong.
fn decode(picture: &[u8]) -> Result<DynamicImage, Unreadable> {
    let mut reader = ImageReader::new(Cursor::new(picture))
        .with_guessed_format()
        .map_err(|error| Unreadable(error.to_string()))?;
    if reader.format().is_none() {
        return Err(Unreadable("not a JPEG, PNG, WebP or GIF picture".to_owned()));
    }
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    // The decoder applies the limit to its own buffers only, not to the picture.
    if decoder.total_bytes() > DECODED_BYTES_MAX {
        let (width, height) = decoder.dimensions();
        return Err(Unreadable(format!(
            "{width} × {height} pixels take {} MiB; the limit is {} MiB",
            decoder.total_bytes() >> 20,
            DECODED_BYTES_MAX >> 20
        )));
    }
    let orientation = decoder.orientation()?;
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// Shrinks a picture to fit into `size` × `size` pixels: first with a fast filter, to four times
/// that size, then with a good one, which would be slow on a large picture.
fn shrink(image: DynamicImage, size: u32) -> DynamicImage {
    let fits = |within: u32| image.width().max(image.height()) <= within;
    let rough = size.saturating_mul(4);
    match () {
        () if fits(size) => image,
        () if fits(rough) => image.resize(size, size, FilterType::Lanczos3),
        () => image.thumbnail(rough, rough).resize(size, size, FilterType::Lanczos3),
    }
}

#[cfg(test)]
mod tests {
    use image::{ImageFormat, RgbImage, RgbaImage};
    use proptest::prelude::*;

    use super::*;

    /// Returns a picture whose colors encode each pixel's position.
    fn gradient(width: u32, height: u32) -> DynamicImage {
        let shade = |at: u32, of: u32| u8::try_from(at * 255 / of.max(1)).unwrap();
        RgbImage::from_fn(width, height, |x, y| image::Rgb([shade(x, width), shade(y, height), 99])).into()
    }

    fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    fn dimensions(thumbnail: &Thumbnail) -> (u32, u32) {
        let image = image::load_from_memory(&thumbnail.bytes).unwrap();
        (image.width(), image.height())
    }

    #[test]
    fn every_format_shrinks_to_fit_and_keeps_its_proportions() {
        for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP, ImageFormat::Gif] {
            let thumbnail = Thumbnail::of(&encoded(&gradient(600, 300), format), 64).unwrap();
            assert_eq!((dimensions(&thumbnail), thumbnail.extension), ((64, 32), "jpg"), "{format:?}");
        }
        for (from, to) in
            [((64, 64), (64, 64)), ((10, 20), (10, 20)), ((65, 1), (64, 1)), ((5000, 2), (64, 1))]
        {
            let thumbnail = Thumbnail::of(&encoded(&gradient(from.0, from.1), ImageFormat::Png), 64).unwrap();
            assert_eq!(dimensions(&thumbnail), to, "{from:?}");
        }
    }

    #[test]
    fn the_same_picture_gives_the_same_bytes() {
        for size in [(900, 700), (200, 100), (20, 10)] {
            let picture = encoded(&gradient(size.0, size.1), ImageFormat::Jpeg);
            assert_eq!(Thumbnail::of(&picture, 64), Thumbnail::of(&picture, 64), "{size:?}");
        }
    }

    #[test]
    fn a_thumbnail_looks_like_its_picture() {
        let thumbnail = Thumbnail::of(&encoded(&gradient(800, 800), ImageFormat::Png), 32).unwrap();
        let small = image::load_from_memory(&thumbnail.bytes).unwrap().to_rgb8();
        for (x, y) in [(2, 2), (29, 2), (2, 29), (16, 16)] {
            let [red, green, blue] = small.get_pixel(x, y).0.map(i64::from);
            let (want_red, want_green) = (i64::from(x) * 255 / 32, i64::from(y) * 255 / 32);
            let near = |is: i64, want: i64| (is - want).abs() < 16;
            assert!(
                near(red, want_red) && near(green, want_green) && near(blue, 99),
                "{x},{y}: {red} {green} {blue}"
            );
        }
    }

    #[test]
    fn transparency_is_kept_as_png() {
        let glass: DynamicImage = RgbaImage::from_pixel(100, 100, image::Rgba([9, 9, 9, 128])).into();
        let thumbnail = Thumbnail::of(&encoded(&glass, ImageFormat::Png), 10).unwrap();
        assert_eq!(thumbnail.extension, "png");
        assert_eq!(image::load_from_memory(&thumbnail.bytes).unwrap().to_rgba8().get_pixel(5, 5).0[3], 128);
    }

    #[test]
    fn an_undecodable_picture_has_a_reason() {
        let png = encoded(&gradient(90, 90), ImageFormat::Png);
        for (bytes, reason) in [
            (&b""[..], "not a JPEG, PNG, WebP or GIF picture"),
            (b"<svg/>", "not a JPEG, PNG, WebP or GIF picture"),
            (b"\xff\xd8\xff nothing more", "JPEG"),
            (&png[..png.len() / 2], "unexpected end of file"),
        ] {
            let Unreadable(text) = Thumbnail::of(bytes, 64).unwrap_err();
            assert!(text.to_lowercase().contains(&reason.to_lowercase()), "{text}");
        }
    }

    /// A PNG header that claims 60,000 × 60,000 pixels: 10 GiB from 33 bytes.
    #[test]
    fn a_decompression_bomb_is_refused_before_it_takes_memory() {
        let mut bomb = encoded(&gradient(1, 1), ImageFormat::Png);
        bomb[16..24].copy_from_slice(&[0, 0, 0xEA, 0x60, 0, 0, 0xEA, 0x60]);
        let checksum = crc32(&bomb[12..29]);
        bomb[29..33].copy_from_slice(&checksum.to_be_bytes());
        let Unreadable(text) = Thumbnail::of(&bomb, 64).unwrap_err();
        assert!(text.starts_with("60000 × 60000 pixels take 10299 MiB"), "{text}");
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 * (crc & 1)))
        })
    }

    proptest! {
        /// A panic would fail the whole batch instead of one picture.
        #[test]
        fn a_damaged_picture_is_never_a_panic(
            format in prop::sample::select(
                vec![ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP, ImageFormat::Gif]
            ),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            keep in any::<prop::sample::Index>(),
        ) {
            let mut bytes = encoded(&gradient(40, 30), format);
            for (at, with) in damage {
                let at = at.index(bytes.len());
                bytes[at] = with;
            }
            bytes.truncate(keep.index(bytes.len()) + 1);
            if let Ok(thumbnail) = Thumbnail::of(&bytes, 16) {
                let (width, height) = dimensions(&thumbnail);
                prop_assert!(width <= 16 && height <= 16);
            }
        }
    }
}
