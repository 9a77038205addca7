use std::time::Duration;

use super::*;

const NOW: &str = "2026-11-26T12:00:00Z";

fn now() -> SystemTime {
    NOW.parse::<Timestamp>().expect("a time").into()
}

fn nanos(price: Price) -> u64 {
    price.nanos_per_hour()
}

/// The regular meter of a size that has been for sale for years.
fn meter() -> Meter {
    Meter {
        currency_code: "USD".to_owned(),
        retail_price: Some(Price::from_nanos_per_hour(192_000_000)),
        arm_region_name: "westeurope".to_owned(),
        arm_sku_name: "Standard_D4s_v5".to_owned(),
        meter_name: "D4s v5".to_owned(),
        sku_name: "D4s v5".to_owned(),
        product_name: "Virtual Machines Dsv5 Series".to_owned(),
        service_name: "Virtual Machines".to_owned(),
        unit_of_measure: "1 Hour".to_owned(),
        price_type: "Consumption".to_owned(),
        effective_start_date: "2021-11-01T00:00:00Z".parse().expect("a time"),
        effective_end_date: None,
        is_primary_meter_region: true,
    }
}

fn spot() -> Meter {
    Meter {
        retail_price: Some(Price::from_nanos_per_hour(48_000_000)),
        meter_name: "D4s v5 Spot".to_owned(),
        sku_name: "D4s v5 Spot".to_owned(),
        ..meter()
    }
}

/// The same meter at a price that would be seen.
fn decoy(change: impl FnOnce(&mut Meter)) -> Meter {
    let mut decoy = Meter { retail_price: Some(Price::from_nanos_per_hour(1)), ..spot() };
    change(&mut decoy);
    decoy
}

fn of(meters: &[Meter], os: Os) -> Result<(u64, u64), NoPrice> {
    let query = Query::new("standard_d4s_V5", "westeurope", "USD").expect("a query");
    let pair = select(meters, &query, os, now())?;
    assert_eq!(pair.size, "Standard_D4s_v5", "as the service spells it");
    Ok((nanos(pair.regular), nanos(pair.spot)))
}

const PAIR: Result<(u64, u64), NoPrice> = Ok((192_000_000, 48_000_000));

#[test]
fn no_other_meter_of_a_size_changes_its_prices() {
    let text = str::to_owned;
    let time = |text: &str| text.parse::<Timestamp>().expect("a time");
    let decoys: [(&str, Meter); 17] = [
        ("Low Priority", decoy(|it| it.meter_name = text("D4s v5 Low Priority"))),
        ("Low Priority by its SKU only", decoy(|it| it.sku_name = text("D4s v5 Low Priority"))),
        ("Windows", decoy(|it| it.product_name = text("Virtual Machines Dsv5 Series Windows"))),
        ("for development", decoy(|it| it.price_type = text("DevTestConsumption"))),
        ("a reservation", decoy(|it| it.price_type = text("Reservation"))),
        ("by the month", decoy(|it| it.unit_of_measure = text("1/Month"))),
        ("ten hours", decoy(|it| it.unit_of_measure = text("10 Hours"))),
        ("of the future", decoy(|it| it.effective_start_date = time("2026-12-01T00:00:00Z"))),
        ("of the past", decoy(|it| it.effective_end_date = Some(time("2026-11-01T00:00:00Z")))),
        ("ending now", decoy(|it| it.effective_end_date = Some(time(NOW)))),
        ("of another currency", decoy(|it| it.currency_code = text("EUR"))),
        ("of another region", decoy(|it| it.arm_region_name = text("westeurope2"))),
        ("of another size", decoy(|it| it.arm_sku_name = text("Standard_D4s_v50"))),
        ("not the primary meter", decoy(|it| it.is_primary_meter_region = false)),
        ("Cloud Services", decoy(|it| it.product_name = text("Dsv5 Series Cloud Services"))),
        ("Cloud Services in one word", decoy(|it| it.product_name = text("Dsv5 Series CloudServices"))),
        ("of another service", decoy(|it| it.service_name = text("Cloud Services"))),
    ];
    for (what, decoy) in decoys {
        for meters in [[meter(), spot(), decoy.clone()], [decoy.clone(), spot(), meter()]] {
            assert_eq!(of(&meters, Os::Linux), PAIR, "{what}");
        }
        // Without the Spot meter the decoy is not taken for it.
        let alone = of(&[meter(), decoy], Os::Linux);
        if what != "not the primary meter" {
            assert!(matches!(alone, Err(NoPrice::NoSpot { .. })), "{what}: {alone:?}");
        }
    }
}

#[test]
fn a_meter_without_a_price_or_for_nothing_is_none() {
    for price in [None, Some(Price::from_nanos_per_hour(0))] {
        let free = Meter { retail_price: price, ..spot() };
        assert!(matches!(of(&[meter(), free.clone()], Os::Linux), Err(NoPrice::NoSpot { .. })));
        assert_eq!(of(&[meter(), free, spot()], Os::Linux), PAIR);
    }
}

#[test]
fn windows_is_told_from_linux_by_the_product() {
    let windows = |it: Meter, price| Meter {
        product_name: "Virtual Machines Dsv5 Series Windows".to_owned(),
        retail_price: Some(Price::from_nanos_per_hour(price)),
        ..it
    };
    let meters = [windows(meter(), 376_000_000), meter(), windows(spot(), 90_000_000), spot()];
    assert_eq!(of(&meters, Os::Linux), PAIR);
    assert_eq!(of(&meters, Os::Windows), Ok((376_000_000, 90_000_000)));
    let none = of(&[meter(), spot()], Os::Windows).expect_err("Linux only");
    assert_eq!(
        none.to_string(),
        "Standard_D4s_v5 with Windows is not for sale in westeurope; choose another size, \
                                  region or system"
    );
}

#[test]
fn of_several_prices_in_effect_the_newest_counts() {
    let older =
        Meter { effective_start_date: "2020-01-01T00:00:00Z".parse().expect("a time"), ..decoy(|_| ()) };
    assert_eq!(of(&[older.clone(), meter(), spot()], Os::Linux), PAIR);
    assert_eq!(of(&[spot(), meter(), older], Os::Linux), PAIR);
}

#[test]
fn a_meter_that_is_not_primary_counts_where_there_is_no_other() {
    let secondary = |it| Meter { is_primary_meter_region: false, ..it };
    assert_eq!(of(&[secondary(meter()), secondary(spot())], Os::Linux), PAIR);
}

#[test]
fn equal_prices_are_one_and_different_ones_are_named() {
    assert_eq!(of(&[meter(), spot(), spot()], Os::Linux), PAIR);
    let fault =
        of(&[meter(), spot(), decoy(|it| it.product_name += " Special")], Os::Linux).expect_err("two");
    assert_eq!(
        fault.to_string(),
        "Standard_D4s_v5 in westeurope has several prices, and nothing tells which one counts: \"D4s v5 Spot\" of \
         \"Virtual Machines Dsv5 Series\" for 0.0480, \"D4s v5 Spot\" of \"Virtual Machines Dsv5 Series Special\" for \
         0.000000001"
    );
}

#[test]
fn a_region_without_prices_in_another_currency_may_have_some_in_dollars() {
    let query = Query::new("Standard_D4s_v5", "westeurope", "XXX").expect("a query");
    let fault = select(&[], &query, Os::Linux, SystemTime::UNIX_EPOCH).expect_err("no prices");
    assert_eq!(
        fault.to_string(),
        "no VM has a price in region \"westeurope\" in XXX; `az account list-locations --query [].name` lists the \
         regions, and --currency USD has prices in all of them"
    );
}

#[test]
fn what_is_unknown_is_told_in_one_sentence() {
    let elsewhere = Meter { arm_region_name: "northeurope".to_owned(), ..meter() };
    let other_size = Meter { arm_sku_name: "Standard_D2s_v5".to_owned(), ..meter() };
    let euros = Meter { currency_code: "EUR".to_owned(), ..meter() };
    for (meters, expected) in [
        (
            vec![],
            "no VM has a price in region \"westeurope\"; `az account list-locations --query [].name` lists the regions",
        ),
        (
            vec![elsewhere],
            "no VM has a price in region \"westeurope\"; `az account list-locations --query [].name` lists the regions",
        ),
        (
            vec![other_size],
            "there is no price of size \"standard_d4s_V5\" in westeurope; `az vm list-skus --location westeurope` lists \
             the sizes",
        ),
        (vec![euros], "there are no prices in USD, only in EUR; choose another --currency"),
        (
            vec![meter()],
            "Standard_D4s_v5 with Linux has no Spot price in westeurope, only a regular one; choose another size or \
             region",
        ),
        (
            vec![spot()],
            "Standard_D4s_v5 with Linux is not for sale in westeurope; choose another size, region or system",
        ),
    ] {
        assert_eq!(of(&meters, Os::Linux).expect_err(expected).to_string(), expected);
    }
}

#[test]
fn a_discount_is_in_whole_thousandths() {
    let discount = |regular, spot| {
        let [regular, spot] = [regular, spot].map(Price::from_nanos_per_hour);
        PricePair { size: String::new(), regular, spot }.discount_permille()
    };
    assert_eq!(
        [discount(192, 48), discount(3, 2), discount(100, 100), discount(100, 150)],
        [750, 333, 0, -500]
    );
}

#[test]
fn a_price_has_ended_only_if_it_was_in_effect_before() {
    let time = |text: &str| -> SystemTime { text.parse::<Timestamp>().expect("a time").into() };
    let ends = |end: &str| Meter { effective_end_date: Some(end.parse().expect("a time")), ..spot() };
    let asked = time("2026-11-26T11:30:00Z");
    for (meter, expected) in [
        (ends("2026-11-26T11:45:00Z"), true),
        (ends(NOW), true),
        (ends("2026-11-26T12:00:01Z"), false),
        (ends("2026-11-01T00:00:00Z"), false),
        (spot(), false),
    ] {
        assert_eq!(meter.has_ended_since(asked, now()), expected, "{:?}", meter.effective_end_date);
    }
}

#[test]
fn a_price_of_the_future_counts_from_its_first_instant() {
    let query = Query::new("Standard_D4s_v5", "westeurope", "USD").expect("a query");
    let later = decoy(|it| it.effective_start_date = "2026-12-01T00:00:00Z".parse().expect("a time"));
    let meters = [meter(), spot(), later];
    let start: SystemTime = "2026-12-01T00:00:00Z".parse::<Timestamp>().expect("a time").into();
    let at = |time| nanos(select(&meters, &query, Os::Linux, time).expect("a pair").spot);
    assert_eq!((at(start - Duration::from_millis(1)), at(start)), (48_000_000, 1));
}
