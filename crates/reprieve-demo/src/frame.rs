//! The pictures: frames of a zoom into the Mandelbrot set, computed band by band and encoded as
//! PNG.
//!
//! Only sums, products, quotients and bits of `f64`, which are the same on every machine; `powf`
//! and `ln` are not. So a frame that was interrupted, resumed elsewhere and finished can be
//! compared byte for byte with one that was not.

use std::ops::Range;

/// A frame's size in pixels.
pub(crate) const WIDTH: u32 = 480;
pub(crate) const HEIGHT: u32 = 320;

/// A step renders one band of rows.
pub(crate) const BANDS: u32 = 40;
const BAND_ROWS: u32 = HEIGHT / BANDS;
const _: () = assert!(HEIGHT.is_multiple_of(BANDS), "every row is in a band");

/// How many bytes a band has: a pixel is an index into the palette.
pub(crate) const BAND_BYTES: usize = (WIDTH * BAND_ROWS) as usize;

/// Where the zoom goes: spirals in the valley of the seahorses.
const CENTRE: (f64, f64) = (-0.743_643_887_037_151, 0.131_825_904_205_33);

/// How wide the first frame is, and how often that is halved until the last: as far as it looks
/// good with the iterations there are.
const FIRST_WIDTH: f64 = 3.2;
const HALVINGS: f64 = 13.0;

/// When a point is taken to be inside.
const ITERATIONS: u32 = 600;

/// The square of the distance at which a point has surely left; far out, so that the shades are
/// smooth.
const ESCAPED: f64 = 65_536.0;

/// Computes band `band` of frame `frame` of `frames`: its pixels, row by row.
pub(crate) fn band(frame: u32, frames: u32, band: u32) -> Vec<u8> {
    let width = width(frame, frames);
    let pixel = width / f64::from(WIDTH);
    let rows: Range<u32> = band * BAND_ROWS..(band + 1) * BAND_ROWS;
    let mut pixels = Vec::with_capacity(BAND_BYTES);
    for row in rows {
        let y = CENTRE.1 + (f64::from(HEIGHT) / 2.0 - f64::from(row)) * pixel;
        for column in 0..WIDTH {
            let x = CENTRE.0 + (f64::from(column) - f64::from(WIDTH) / 2.0) * pixel;
            pixels.push(shade(x, y));
        }
    }
    pixels
}

/// A whole frame at once, as PNG: what an uninterrupted render makes.
pub(crate) fn render(frame: u32, frames: u32) -> Result<Vec<u8>, png::EncodingError> {
    let pixels: Vec<u8> = (0..BANDS).flat_map(|number| band(frame, frames, number)).collect();
    encode(&pixels)
}

/// A frame's pixels as PNG.
pub(crate) fn encode(pixels: &[u8]) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette());
    encoder.set_compression(png::Compression::Balanced);
    // Neighbouring indices mean nothing to each other.
    encoder.set_filter(png::Filter::NoFilter);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(file)
}

/// How wide frame `frame` of `frames` is in the plane: halved evenly, and in between along a
/// straight line.
fn width(frame: u32, frames: u32) -> f64 {
    let mut left = HALVINGS * f64::from(frame) / f64::from(frames.saturating_sub(1).max(1));
    let mut width = FIRST_WIDTH;
    while left >= 1.0 {
        width /= 2.0;
        left -= 1.0;
    }
    width * (1.0 - left / 2.0)
}

/// The colour of a point, as an index into the palette: 0 inside the set, else by how soon it
/// escapes.
fn shade(x: f64, y: f64) -> u8 {
    if surely_inside(x, y) {
        return 0;
    }
    let (mut a, mut b) = (0.0, 0.0);
    for iteration in 0..ITERATIONS {
        let (aa, bb) = (a * a, b * b);
        if aa + bb > ESCAPED {
            // Smooth between two counts of iterations.
            let escape = f64::from(iteration) + 1.0 - log2(log2(aa + bb) / 2.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 254")]
            return 1 + (escape.max(0.0) * 3.0 % 255.0) as u8;
        }
        b = 2.0 * a * b + y;
        a = aa - bb + x;
    }
    0
}

/// Returns whether a point is in one of the set's two largest parts, whose outlines are known.
fn surely_inside(x: f64, y: f64) -> bool {
    let q = (x - 0.25) * (x - 0.25) + y * y;
    q * (q + (x - 0.25)) <= 0.25 * y * y || (x + 1.0) * (x + 1.0) + y * y <= 0.0625
}

/// Returns the binary logarithm of a positive number, to about two digits: enough for a shade.
fn log2(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = f64::from((bits >> 52) as u32) - 1023.0;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | (1023 << 52)) - 1.0;
    exponent + mantissa * (1.346_555 - 0.346_555 * mantissa)
}

/// Black for the inside, and 255 colours that go round from night blue over white and gold.
fn palette() -> Vec<u8> {
    const STOPS: [(u32, [u8; 3]); 6] = [
        (0, [0, 7, 100]),
        (41, [32, 107, 203]),
        (107, [237, 255, 255]),
        (164, [255, 170, 0]),
        (219, [60, 10, 30]),
        (255, [0, 7, 100]),
    ];
    let colour = |at: u32| {
        let next = STOPS.iter().position(|stop| stop.0 > at).unwrap_or(STOPS.len() - 1);
        let ((from, a), (to, b)) = (STOPS[next - 1], STOPS[next]);
        let mix = |a: u8, b: u8| (u32::from(a) * (to - at) + u32::from(b) * (at - from)) / (to - from);
        [0, 1, 2].map(|part| u8::try_from(mix(a[part], b[part])).unwrap_or(u8::MAX))
    };
    std::iter::once([0, 0, 0]).chain((0..255).map(colour)).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_make_up_the_whole_frame() {
        let bands: Vec<_> = (0..BANDS).flat_map(|number| band(3, 12, number)).collect();
        assert_eq!(bands.len(), BANDS as usize * BAND_BYTES);
        assert_eq!(encode(&bands).unwrap(), render(3, 12).unwrap());
    }

    #[test]
    fn a_frame_decodes_to_what_was_drawn() {
        let pixels: Vec<_> = (0..BANDS).flat_map(|number| band(0, 1, number)).collect();
        let file = encode(&pixels).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        assert_eq!((reader.info().width, reader.info().height), (WIDTH, HEIGHT));
        let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut decoded).unwrap();
        assert!(decoded == pixels, "other pixels");
    }

    #[test]
    fn the_zoom_goes_in_evenly_and_its_frames_differ() {
        let widths: Vec<_> = (0..200).map(|frame| width(frame, 200)).collect();
        assert!(widths.windows(2).all(|two| two[1] < two[0] && two[1] > two[0] * 0.9), "{widths:?}");
        assert!(band(4, 12, 20) != band(5, 12, 20));
    }

    #[test]
    fn one_frame_is_a_zoom_too() {
        assert!((width(0, 1) - FIRST_WIDTH).abs() < f64::EPSILON);
    }

    #[test]
    fn shades_are_smooth_and_the_inside_is_black() {
        for n in 1..1_000 {
            let x = f64::from(n) * 7.3;
            assert!((log2(x) - x.log2()).abs() < 0.01, "{x}");
        }
        assert_eq!((shade(0.0, 0.0), shade(-1.0, 0.0), shade(-0.1, 0.7)), (0, 0, 0));
        assert_ne!(shade(2.0, 2.0), 0);
    }
}
