//! Quantiles of the gamma distribution, by its series and its continued fraction (Abramowitz and Stegun 6.5.29 and
//! 6.5.31).

/// The most terms of either; they end long before for the shapes of a count.
const TERMS_MAX: u32 = 10_000;

/// How often the interval of a quantile is halved.
const HALVINGS: u32 = 200;

/// The value below which a gamma number with this shape and scale 1 is with probability `p`.
pub(super) fn quantile(p: f64, shape: f64) -> f64 {
    if shape <= 0.0 || p <= 0.0 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, shape + 1.0);
    while below(high, shape) < p {
        high *= 2.0;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if below(middle, shape) < p { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// The probability that a gamma number with this shape is below `x`.
fn below(x: f64, shape: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let front = (shape * x.ln() - x - ln_gamma(shape)).exp();
    if x < shape + 1.0 { front * series(x, shape) } else { 1.0 - front * fraction(x, shape) }
}

fn series(x: f64, shape: f64) -> f64 {
    let (mut term, mut sum) = (1.0 / shape, 1.0 / shape);
    for step in 1..TERMS_MAX {
        term *= x / (shape + f64::from(step));
        sum += term;
        if term < sum * 1e-16 {
            break;
        }
    }
    sum
}

/// By Lentz's method: the product of the quotients of two neighbouring approximations.
fn fraction(x: f64, shape: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut part = x + 1.0 - shape;
    let (mut above, mut below) = (1.0 / TINY, 1.0 / part);
    let mut value = below;
    for step in 1..TERMS_MAX {
        let step = f64::from(step);
        let numerator = -step * (step - shape);
        part += 2.0;
        below = 1.0 / not_zero(numerator * below + part, TINY);
        above = not_zero(part + numerator / above, TINY);
        let factor = above * below;
        value *= factor;
        if (factor - 1.0).abs() < 1e-16 {
            break;
        }
    }
    value
}

fn not_zero(value: f64, tiny: f64) -> f64 {
    if value.abs() < tiny { tiny } else { value }
}

/// The logarithm of the gamma function, by Lanczos' approximation with six terms.
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.001_208_650_973_866_179,
        -0.000_005_395_239_384_953,
    ];
    let base = x + 5.5;
    let mut sum = 1.000_000_000_190_015;
    let mut at = x;
    for term in TERMS {
        at += 1.0;
        sum += term / at;
    }
    (x + 0.5) * base.ln() - base + (2.506_628_274_631_000_5 * sum / x).ln()
}

#[cfg(test)]
mod tests {
    use super::{below, quantile};

    #[track_caller]
    fn is_near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= expected.abs() * 1e-4, "{found} for {expected}");
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // Half of the points of chi squared with twice the degrees of freedom.
        for (p, shape, expected) in [
            (0.025, 1.0, 0.050_636 / 2.0),
            (0.975, 1.0, 7.377_759 / 2.0),
            (0.025, 10.0, 9.590_777 / 2.0),
            (0.975, 10.0, 34.169_607 / 2.0),
            (0.5, 0.5, 0.454_936 / 2.0),
            (0.975, 50.0, 129.561_197 / 2.0),
            (0.025, 0.5, 0.000_982_069 / 2.0),
        ] {
            is_near(quantile(p, shape), expected);
        }
        assert_eq!([quantile(0.025, 0.0), quantile(0.0, 3.0)].map(f64::to_bits), [0, 0]);
    }

    #[test]
    fn large_shapes_are_near_the_normal_distribution() {
        // Wilson and Hilferty: k (1 − 1/9k + z/3√k)³.
        let shape: f64 = 100_000.0;
        let expected = shape * (1.0 - 1.0 / (9.0 * shape) + 1.959_964 / (3.0 * shape.sqrt())).powi(3);
        is_near(quantile(0.975, shape), expected);
        // 1/2 + 1/(3√(2πk)).
        is_near(below(shape, shape), 0.500_421);
    }
}
