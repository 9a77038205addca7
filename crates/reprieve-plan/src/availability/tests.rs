use super::{Series, TraceError};

const MINUTE_MS: u64 = 60_000;

fn fault(text: &str) -> String {
    Series::parse(text).unwrap_err().to_string()
}

fn percent(series: &Series, machines: u32) -> String {
    format!("{:.0}", series.share(machines) * 100.0)
}

#[test]
fn a_sampled_series_is_read() {
    let series = Series::parse(r#"{"metadata": {"gap_seconds": 300}, "data": [0, 2, 2, 1]}"#).unwrap();
    assert_eq!((series.length_ms(), series.most()), (20 * MINUTE_MS, 2));
    assert_eq!([0, 1, 2, 3].map(|machines| percent(&series, machines)), ["100", "75", "50", "0"]);
}

#[test]
fn fleet_events_are_read_and_begin_with_the_first() {
    let series = Series::parse("60000,add,a\n60000,add,b\n180000,remove,a\n240000,remove,b\n").unwrap();
    assert_eq!(series.length_ms(), 3 * MINUTE_MS);
    assert_eq!(series.window(0, 3 * MINUTE_MS, 2).changes().collect::<Vec<_>>(), [2 * MINUTE_MS]);
    assert_eq!(percent(&series, 1), "100");
}

#[test]
fn lifetimes_are_counted_by_columns_that_the_header_names() {
    let text = "zone,lifetime_s,start_utc\n\
                a,120,2019-02-18T00:01:00Z\n\
                b,120,2019-02-18T00:00:00Z\n";
    let series = Series::parse(text).unwrap();
    assert_eq!((series.length_ms(), series.most()), (3 * MINUTE_MS, 2));
    let both = series.window(0, 3 * MINUTE_MS, 2);
    assert_eq!((both.first(), both.changes().collect::<Vec<_>>()), (false, vec![MINUTE_MS, 2 * MINUTE_MS]));
}

#[test]
fn a_window_beyond_the_end_goes_on_from_the_beginning() {
    let series = Series::parse(r#"{"metadata": {"gap_seconds": 60}, "data": [1, 0, 0]}"#).unwrap();
    let window = series.window(2 * MINUTE_MS, 6 * MINUTE_MS, 1);
    assert!(!window.first());
    assert_eq!(window.changes().map(|at_ms| at_ms / MINUTE_MS).collect::<Vec<_>>(), [1, 2, 4, 5]);
}

#[test]
fn counts_go_on_from_the_beginning_of_the_trace() {
    let series = Series::parse(r#"{"metadata": {"gap_seconds": 60}, "data": [1, 0, 3]}"#).unwrap();
    let counts: Vec<_> = series.counts_from(MINUTE_MS * 5 / 2).take(4).collect();
    assert_eq!(counts, [(0, 3), (MINUTE_MS / 2, 1), (MINUTE_MS * 3 / 2, 0), (MINUTE_MS * 5 / 2, 3)]);
}

#[test]
fn the_same_seed_draws_the_same_windows() {
    let series =
        Series::parse(r#"{"metadata": {"gap_seconds": 60}, "data": [1, 0, 0, 2, 3, 0, 1]}"#).unwrap();
    assert_eq!(series.draw_windows(10 * MINUTE_MS, 20, 1), series.draw_windows(10 * MINUTE_MS, 20, 1));
    assert_ne!(series.draw_windows(10 * MINUTE_MS, 20, 1), series.draw_windows(10 * MINUTE_MS, 20, 2));
}

#[test]
fn a_trace_that_cannot_be_read_is_refused_in_one_sentence() {
    let cases = [
        ("", "the trace is empty: give a series, fleet events or lifetimes"),
        ("  \n", "the trace is empty: give a series, fleet events or lifetimes"),
        (
            r#"{"metadata":{"gap_seconds":0},"data":[1]}"#,
            "gap_seconds of the trace is 0: give the seconds between two samples",
        ),
        (
            r#"{"metadata":{"gap_seconds":5},"data":[]}"#,
            "the trace is empty: give a series, fleet events or lifetimes",
        ),
        (
            r#"{"metadata":{"gap_seconds":18446744073709551615},"data":[1]}"#,
            "the trace is longer than 500 million years: check its unit of time",
        ),
        ("5,add\n", "line 1 of the trace is not `milliseconds,add|remove,node`"),
        ("5,add,a,b\n", "line 1 of the trace is not `milliseconds,add|remove,node`"),
        ("5,add,a\nsoon,add,b\n", r#"line 2 of the trace has "soon" where a time in milliseconds should be"#),
        ("5,join,a\n", r#"line 1 of the trace has "join" where add or remove should be"#),
        ("5,add,a\n4,add,b\n", "line 2 of the trace is earlier than the line before it: sort events by time"),
        ("5,add,a\n6,add,a\n", r#"line 2 of the trace adds "a", which is in the fleet already"#),
        ("5,remove,a\n", r#"line 1 of the trace removes "a", which is not in the fleet"#),
        ("5,add,a\n", "the trace covers no time: it needs events at two moments at least"),
        ("start_utc,lifetime_s\n", "the trace is empty: give a series, fleet events or lifetimes"),
        (
            "start_utc,lifetime_s\n2019-02-18,5\n",
            r#"line 2 of the trace has "2019-02-18" where a time like 2019-02-18T16:57:39Z should be"#,
        ),
        (
            "start_utc,lifetime_s\n2019-02-18T16:57:39Z,-5\n",
            r#"line 2 of the trace has "-5" where whole seconds should be"#,
        ),
        (
            "start_utc,lifetime_s\n2019-02-18T16:57:39Z\n",
            "line 2 of the trace is not `start_utc,lifetime_s and further columns, as many as the header has`",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(fault(text), expected, "{text:?}");
    }
}

#[test]
fn a_series_with_a_wrong_shape_says_what_the_parser_says() {
    let fault = fault(r#"{"metadata":{"gap_seconds":300},"data":[1,-1]}"#);
    assert!(fault.contains("invalid value: integer `-1`") && fault.contains("line 1"), "{fault}");
    assert!(matches!(Series::parse("{").unwrap_err(), TraceError::Series(_)));
}

#[test]
fn a_series_of_times_as_many_machines_has_the_same_changes() {
    let series = Series::parse(r#"{"metadata": {"gap_seconds": 300}, "data": [0, 2, 1]}"#).unwrap().times(5);
    assert_eq!((series.length_ms(), series.most()), (15 * MINUTE_MS, 10));
    assert_eq!([5, 6, 10].map(|machines| percent(&series, machines)), ["67", "33", "33"]);
}

#[test]
fn a_series_without_a_loss_says_how_sure_that_is() {
    let bound = |data: &str| {
        let text = format!(r#"{{"metadata":{{"gap_seconds":3600}},"data":[{data}]}}"#);
        Series::parse(&text).unwrap().loss_bound()
    };
    // 0.05 is the chance of ten hours without a loss if there is one in 25.9 % of the hours.
    let ten = bound("2,2,2,3,3,3,3,3,3,3").unwrap();
    assert!((ten - 0.2589).abs() < 0.0001, "{ten}");
    assert!(bound("1,1,1,1").unwrap() > 0.5);
    assert_eq!(bound("1,1,0,1"), None);
}
