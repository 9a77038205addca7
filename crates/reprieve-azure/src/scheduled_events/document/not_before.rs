//! Parses and writes `NotBefore`, the wall-clock time after which an event may begin.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};
use jiff::fmt::strtime;

/// A parsed `NotBefore`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotBefore {
    /// No time: the event has begun.
    Blank,
    /// The event begins no earlier than this.
    At(SystemTime),
    /// Text that is not a time in any known form. The event is real all the same, so it must be
    /// taken to begin at once: dropping a notice costs work, a needless drain costs seconds.
    Unreadable,
}

impl NotBefore {
    /// Parses `text`.
    ///
    /// The documented form is RFC 1123, `Mon, 19 Sep 2016 18:29:47 GMT`. The weekday is not
    /// compared with the date: Microsoft's own sample calls 11 April 2026, a Saturday, a Monday.
    /// RFC 3339 (Microsoft's mock server), RFC 822 with a numeric zone and RFC 850 (accepted by
    /// other clients) are parsed too.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let text = text.trim();
        if text.is_empty() {
            return Self::Blank;
        }
        rfc_1123(text)
            .or_else(|| text.parse().ok())
            .or_else(|| rfc_850(text))
            // Times before the Unix epoch become the epoch, because not every system can represent
            // them.
            .map_or(Self::Unreadable, |at: Timestamp| Self::At(at.max(Timestamp::UNIX_EPOCH).into()))
    }

    /// Formats `at` in the documented form, which has whole seconds. Fractions are cut off, so the
    /// event never begins before the written time. `None` for a time outside the years 0 to 9999.
    #[must_use]
    pub fn write(at: SystemTime) -> Option<String> {
        let at = Timestamp::try_from(at).ok()?;
        DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok()
    }
}

/// `Mon, 19 Sep 2016 18:29:47 GMT`, and the variants of RFC 822 and its successors: no weekday, no
/// seconds, a year of two digits, a numeric zone.
fn rfc_1123(text: &str) -> Option<Timestamp> {
    const PARSER: DateTimeParser = DateTimeParser::new().relaxed_weekday(true);
    PARSER.parse_timestamp(text).ok()
}

/// `Monday, 19-Sep-16 18:29:47 GMT`.
fn rfc_850(text: &str) -> Option<Timestamp> {
    let (_weekday, date) = text.split_once(", ")?;
    let date = date.strip_suffix(" GMT").or_else(|| date.strip_suffix(" UTC"))?;
    strtime::parse("%d-%b-%y %H:%M:%S %z", format!("{date} +0000")).ok()?.to_timestamp().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[track_caller]
    fn check(text: &str, unix_seconds: u64) {
        assert_eq!(
            NotBefore::read(text),
            NotBefore::At(UNIX_EPOCH + Duration::from_secs(unix_seconds)),
            "{text:?}"
        );
    }

    #[test]
    fn every_known_form_is_parsed() {
        // The documented form, and real values in it.
        check("Mon, 19 Sep 2016 18:29:47 GMT", 1_474_309_787);
        check("Tue, 09 Aug 2022 17:07:32 GMT", 1_660_064_852);
        check("Sat, 01 Aug 2026 05:41:02 GMT", 1_785_562_862);
        // One example of each form that other clients accept.
        check("2016-09-19T18:29:47Z", 1_474_309_787);
        check("2016-09-19T20:29:47+02:00", 1_474_309_787);
        check("2016-09-19T18:29:47.0000000Z", 1_474_309_787);
        check("19 Sep 16 18:29 +0000", 1_474_309_740);
        check("19 Sep 16 20:29 +0200", 1_474_309_740);
        check("Monday, 19-Sep-16 18:29:47 GMT", 1_474_309_787);
        check("Monday, 19-Sep-16 18:29:47 UTC", 1_474_309_787);
        check(" Mon, 19 Sep 2016 18:29:47 GMT\n", 1_474_309_787);
    }

    #[test]
    fn a_wrong_weekday_is_ignored() {
        check("Mon, 11 Apr 2026 22:26:58 GMT", 1_775_946_418);
        check("Sunday, 19-Sep-16 18:29:47 GMT", 1_474_309_787);
    }

    #[test]
    fn times_at_either_end_of_the_calendar_are_parsed() {
        check("Wed, 29 Dec 9999 23:59:59 GMT", 253_402_127_999);
        check("Mon, 01 Jan 0001 00:00:00 GMT", 0);
        check("-009998-01-01T00:00:00Z", 0);
    }

    #[test]
    fn blank_differs_from_unreadable() {
        assert_eq!(NotBefore::read(""), NotBefore::Blank);
        assert_eq!(NotBefore::read("  "), NotBefore::Blank);
        for text in ["soon", "0", "Mon, 32 Sep 2016 18:29:47 GMT", "19-Sep-16", ", GMT", "Mon, 19 Sep 2016"] {
            assert_eq!(NotBefore::read(text), NotBefore::Unreadable, "{text:?}");
        }
    }

    #[test]
    fn a_written_time_has_the_documented_form_and_is_never_later_than_meant() {
        let at = UNIX_EPOCH + Duration::from_millis(1_474_309_787_999);
        assert_eq!(NotBefore::write(at).as_deref(), Some("Mon, 19 Sep 2016 18:29:47 GMT"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_parsing_panic(text in "\\PC{0,40}") {
            let _: NotBefore = NotBefore::read(&text);
        }

        #[test]
        fn a_written_time_is_parsed(seconds in 0_u64..4_000_000_000) {
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            let text = NotBefore::write(at).expect("a date of this century");
            proptest::prop_assert_eq!(NotBefore::read(&text), NotBefore::At(at));
        }
    }
}
