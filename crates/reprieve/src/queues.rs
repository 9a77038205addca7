//! Queue lists: one name, several names, or a pattern of names.

use reprieve_core::QueueName;

/// The most queues that one worker reads. A storage account can serve ten queues at their full
/// rate.
const QUEUES_MAX: usize = 256;

/// The advice at the end of a parse error.
const EXAMPLES: &str = "write one name, several with commas between them, or a range such as 'work-{0..7}'";

/// The queues that a worker reads as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Queues {
    /// Their names, in the order given; at least one, without duplicates.
    pub(crate) names: Vec<QueueName>,
    /// The text that was given, for people.
    pub(crate) shown: String,
}

impl Queues {
    /// Parses a name, names separated by commas, and ranges: `work-{0..7}` is `work-0` to `work-7`,
    /// and `work-{00..15}` is `work-00` to `work-15`. A shell splits a range without quotes into
    /// several words.
    ///
    /// # Errors
    /// A sentence that says what to write instead.
    pub(crate) fn parse(given: &str) -> Result<Self, String> {
        let items: Vec<_> = given.split(',').map(str::trim).collect();
        let mut names = Vec::new();
        for item in &items {
            for name in expand(item)? {
                let name = QueueName::parse(name).map_err(|error| error.message().to_owned())?;
                if names.contains(&name) {
                    return Err(format!("the queue {name} is named twice; name each once"));
                }
                names.push(name);
            }
            if names.len() > QUEUES_MAX {
                return Err(too_many());
            }
        }
        if let Some(name) = names.iter().find(|name| names.contains(&name.poison())) {
            return Err(format!("{} is the poison queue of {name}; name one of the two", name.poison()));
        }
        Ok(Self { names, shown: items.join(",") })
    }
}

impl Queues {
    /// Returns those that are poison queues, by their names.
    pub(crate) fn poison(&self) -> impl Iterator<Item = &QueueName> {
        self.names.iter().filter(|name| QueueName::is_poison(name.as_str()))
    }

    /// Returns a queue of `others` that is one of these, or a poison queue of one.
    pub(crate) fn shared_with<'a>(&self, others: &'a Self) -> Option<&'a QueueName> {
        others
            .names
            .iter()
            .find(|other| self.names.iter().any(|own| own == *other || own.poison() == **other))
    }
}

/// Expands one item into queue names.
fn expand(item: &str) -> Result<Vec<String>, String> {
    if item.is_empty() {
        return Err(format!("a name is empty; {EXAMPLES}"));
    }
    if item.contains(char::is_whitespace) {
        return Err(format!(
            "{item:?} has a space in it; put commas between names, and a range in quotes, because the shell \
             expands it"
        ));
    }
    if !item.contains(['{', '}']) {
        return Ok(vec![item.to_owned()]);
    }
    let not_a_range = || format!("{item:?} is not a name with one range of numbers; {EXAMPLES}");
    let (before, rest) = item.split_once('{').ok_or_else(not_a_range)?;
    let (range, after) = rest.split_once('}').ok_or_else(not_a_range)?;
    let (first, last) = range.split_once("..").ok_or_else(not_a_range)?;
    let (Some(from), Some(to)) = (number(first), number(last)) else { return Err(not_a_range()) };
    if after.contains(['{', '}']) {
        return Err(not_a_range());
    }
    if from > to {
        return Err(format!("{item:?} counts down; write {{{last}..{first}}}"));
    }
    if to - from >= QUEUES_MAX {
        return Err(too_many());
    }
    // As in a shell: a leading zero pads all numbers to the widest.
    let padded = [first, last].iter().any(|bound| bound.len() > 1 && bound.starts_with('0'));
    let width = if padded { first.len().max(last.len()) } else { 0 };
    Ok((from..=to).map(|number| format!("{before}{number:0width$}{after}")).collect())
}

/// Parses a bound of a range: at most nine digits.
fn number(digits: &str) -> Option<usize> {
    let plain = digits.len() <= 9 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

fn too_many() -> String {
    format!("more than {QUEUES_MAX} queues are named; start other workers for the rest")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(given: &str) -> Vec<String> {
        Queues::parse(given).unwrap().names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_and_ranges_stand_for_queues_in_their_order() {
        for (given, expected) in [
            ("thumbnails", &["thumbnails"][..]),
            ("orders,bills", &["orders", "bills"]),
            (" orders , bills ", &["orders", "bills"]),
            ("work-{0..2}", &["work-0", "work-1", "work-2"]),
            ("work-{9..11}", &["work-9", "work-10", "work-11"]),
            ("work-{09..11}", &["work-09", "work-10", "work-11"]),
            ("work-{00..1}", &["work-00", "work-01"]),
            ("work-{0..1}-eu", &["work-0-eu", "work-1-eu"]),
            ("{100..101}", &["100", "101"]),
            ("work-{5..5}", &["work-5"]),
            ("a-{1..2},urgent,b-{1..2}", &["a-1", "a-2", "urgent", "b-1", "b-2"]),
        ] {
            assert_eq!(names(given), expected, "{given:?}");
        }
        assert_eq!(names("work-{000..255}").len(), 256);
        assert_eq!(names("work-{000..255}")[7], "work-007");
        assert_eq!(Queues::parse(" work-{0..7} , urgent").unwrap().shown, "work-{0..7},urgent");
    }

    #[test]
    fn text_that_names_no_queues_is_refused_with_advice() {
        for (given, reason) in [
            ("", "a name is empty"),
            ("orders,", "a name is empty"),
            (",orders", "a name is empty"),
            ("work-0 work-1", "a range in quotes, because the shell"),
            ("Orders", "may hold only a-z, 0-9 and hyphens"),
            ("ab", "shorter than 3 characters"),
            ("orders,ab", "shorter than 3 characters"),
            ("orders,bills,orders", "orders is named twice"),
            ("work-{0..3},work-2", "work-2 is named twice"),
            ("orders,orders-poison", "orders-poison is the poison queue of orders"),
            ("work-{7..0}", "counts down; write {0..7}"),
            ("work-{0..256}", "more than 256 queues"),
            ("work-{0..999999999}", "more than 256 queues"),
            ("aa-{0..199},bb-{0..199}", "more than 256 queues"),
            ("work-{0..9999999999}", "is not a name with one range"),
            ("work-{0..}", "is not a name with one range"),
            ("work-{..7}", "is not a name with one range"),
            ("work-{-1..7}", "is not a name with one range"),
            ("work-{+1..7}", "is not a name with one range"),
            ("work-{a..f}", "is not a name with one range"),
            ("work-{0..7..2}", "is not a name with one range"),
            ("work-{0...7}", "is not a name with one range"),
            ("work-{0-7}", "is not a name with one range"),
            ("work-{0,1}", "is not a name with one range"),
            ("work-{}", "is not a name with one range"),
            ("work-{0..7", "is not a name with one range"),
            ("work-0..7}", "is not a name with one range"),
            ("work-{0..1}-{0..1}", "is not a name with one range"),
            ("work-{{0..1}}", "is not a name with one range"),
            ("work--{0..1}", "single hyphens only"),
        ] {
            let refused = Queues::parse(given).unwrap_err();
            assert!(refused.contains(reason), "{given:?} gave {refused:?}");
            assert!(!refused.contains('\n'), "one sentence: {refused:?}");
        }
    }
}
