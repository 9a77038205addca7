//! A service that throttles, is slow, breaks off, or answers with what is no page of prices.

use std::time::Duration;

use reprieve_azure::prices::{Os, select};
use reprieve_core::ErrorKind;
use reprieve_core::clock::wall_now;
use reprieve_sim::prices::Fault;
use tokio::time::Instant;

use crate::support::{PAIR, SIZE, prices, query, server, shown};

const fn busy(status: u16, retry_after_seconds: Option<u64>) -> Fault {
    Fault::Busy { status, retry_after_seconds }
}

#[tokio::test(start_paused = true)]
async fn a_busy_service_is_asked_again_after_the_pause_that_it_asks_for() {
    for (fault, times, seconds) in [
        (busy(429, Some(17)), 2, 34..=35),
        (busy(503, Some(60)), 1, 60..=61),
        (busy(503, None), 3, 7..=8),
        (busy(429, Some(0)), 4, 15..=16),
        (busy(429, Some(3)), 3, 10..=11),
        (busy(500, None), 1, 1..=2),
        (Fault::Reset, 2, 3..=4),
        (Fault::BreakOff, 1, 1..=2),
        (Fault::Late(Duration::from_secs(29)), 1, 29..=30),
    ] {
        let (server, client) = server(1_000).await;
        server.inject(&fault, times);
        let began = Instant::now();
        assert_eq!(prices(&client).await.expect("prices"), PAIR, "{fault:?}");
        assert!(seconds.contains(&began.elapsed().as_secs()), "{fault:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stays_busy_is_given_up_with_its_reason() {
    for (fault, requests, why) in [
        (busy(429, Some(1)), 5, "answered 429 Too Many Requests and \"{\\\"Error\\\""),
        (busy(503, None), 5, "answered 503 Service Unavailable"),
        (busy(429, Some(600)), 1, "it asks to wait for 600s"),
        (Fault::Reset, 5, "broke off"),
        (Fault::Hang, 2, "did not answer within 30s"),
    ] {
        let (server, client) = server(1_000).await;
        server.inject(&fault, 20);
        let error = prices(&client).await.expect_err(why);
        assert!(error.is_temporary() && error.message().contains(why), "{error}");
        assert!(error.message().contains(&server.url()), "{error}");
        assert_eq!(server.requests().len(), requests, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_away_is_not_asked_for_every_size() {
    let (server, client) = server(1_000).await;
    let url = server.url();
    server.stop().await;
    let queries = vec![query(SIZE, "westeurope", "USD"); 40];
    let began = Instant::now();
    let answers = client.meters_of(&queries).await;
    assert!(began.elapsed() <= Duration::from_secs(3), "{:?}", began.elapsed());
    for answer in answers {
        let error = answer.expect_err("nobody there");
        assert!(
            error.is_temporary() && error.message().contains(&format!("{url} can't be reached")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_link_to_another_host_is_not_followed() {
    let (other, _) = server(1_000).await;
    for link in [
        format!("{}/api/retail/prices?$skip=1", other.url()),
        "https://prices.azure.com:443/api/retail/prices?$skip=1".to_owned(),
        "/api/retail/prices?$skip=1".to_owned(),
    ] {
        let (server, client) = server(1_000).await;
        server.inject(&Fault::Link(link), 1);
        let error = prices(&client).await.expect_err("another host");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("leads away from"), "{error}");
    }
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn pages_that_lead_back_end() {
    let (server, client) = server(1).await;
    let first = format!("{}{}", server.url(), "/api/retail/prices?$skip=1");
    server.inject(&Fault::Link(first), 20);
    let error = prices(&client).await.expect_err("a circle");
    assert!(error.message().contains("leads back to an earlier one"), "{error}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_left_out_and_counted() {
    for (from, to, why) in [
        ("\"meterName\"", "\"name\"", "missing field `meterName`"),
        ("2021-11-01T00:00:00Z", "2021-13-01", "is no time"),
        ("\"isPrimaryMeterRegion\":true", "\"isPrimaryMeterRegion\":\"yes\"", "invalid type: string"),
    ] {
        let (mock, client) = server(1_000).await;
        mock.inject(&Fault::Changed(from.to_owned(), to.to_owned()), 1);
        // The first row of the catalogue is one that does not count.
        let query = query(SIZE, "westeurope", "USD");
        let meters = client.meters(&query).await.expect(why);
        assert_eq!(meters.skipped(), 1, "{why}");
        assert!(meters.fault().is_some_and(|fault| fault.contains(why)), "{:?}", meters.fault());
        // Also where it is alone on its page.
        let (pages, of_one) = server(1).await;
        pages.inject(&Fault::Changed(from.to_owned(), to.to_owned()), 1);
        let meters_of_one = of_one.meters(&query).await.expect(why);
        assert_eq!((&*meters_of_one, meters_of_one.skipped()), (&*meters, 1));
        let all = client.meters(&query).await.expect("all rows");
        assert_eq!((meters.len() + 1, all.skipped(), all.fault()), (all.len(), 0, None));
        assert_eq!(shown(&select(&meters, &query, Os::Linux, wall_now()).expect("a pair")), PAIR);
    }
}

#[tokio::test]
async fn what_is_no_page_of_prices_is_refused_and_not_believed() {
    for (fault, kind, why) in [
        (Fault::Garbage(String::new()), ErrorKind::Corrupt, "no page of prices"),
        (Fault::Garbage("<html>sign in</html>".to_owned()), ErrorKind::Corrupt, "no page of prices"),
        (Fault::Garbage("{}".to_owned()), ErrorKind::Corrupt, "missing field `Items`"),
        (Fault::Garbage("[1]".to_owned()), ErrorKind::Corrupt, "no page of prices"),
        (Fault::Garbage("x".repeat(11 << 20)), ErrorKind::TooLarge, "longer than"),
        (
            Fault::Garbage(r#"{"Items":[{"meterName":7},null]}"#.to_owned()),
            ErrorKind::Corrupt,
            "invalid type: integer",
        ),
        (Fault::Redirect("https://prices.azure.com/".to_owned()), ErrorKind::Invalid, "it never redirects"),
        (busy(404, None), ErrorKind::Invalid, "answered 404"),
    ] {
        let (server, client) = server(1_000).await;
        server.inject(&fault, 1);
        let error = prices(&client).await.expect_err(why);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(why), "{error}");
        assert_eq!(server.requests().len(), 1, "it is not asked again: {error}");
    }
}
