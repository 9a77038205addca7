//! The figures as text and as HTML.

use std::fmt::Write as _;

use maud::{Markup, html};
use reprieve_azure::prices::price_text;
use reprieve_plan::Cost;

use super::super::span;
use super::book::Basis;
use super::sum::{Money, Row, Sums, Unpriced};
use crate::format::{count, plain, table};

/// What a report without prices says about money.
const HOW_TO_GET: &str =
    "What it cost is not in here: --prices ask, or --spot-price and --regular-price, add it.";

/// The headings of the table, of which the currency is in the first.
const HEADINGS: [&str; 10] =
    ["SIZE", "REGION", "PRIORITY", "BILLED FOR", "AN HOUR", "COST", "REGULAR", "SAVED", "LOST", "BOOTS"];

/// The figures as text; without prices how to get them.
pub(crate) fn text(money: Option<&Money>) -> String {
    let Some(money) = money else { return format!("\n{HOW_TO_GET}\n") };
    let mut text = String::from("\n");
    let verdict = (money.total.machines > 0).then(|| verdict(money));
    for sentence in verdict.into_iter().chain(notes(money)) {
        // Writing to a string can't fail.
        let _infallible = writeln!(text, "{}", plain(&sentence));
    }
    if !money.machines.is_empty() {
        text.push('\n');
        let rows: Vec<_> = rows(money).into_iter().map(|row| row.map(|cell| plain(&cell))).collect();
        text.push_str(&table(HEADINGS, &rows));
    }
    text
}

/// The figures as a part of the page.
pub(crate) fn section(money: Option<&Money>) -> Markup {
    html! {
        section id="money" aria-labelledby="money-title" {
            h2 id="money-title" { "What it cost" }
            @match money {
                None => p { (HOW_TO_GET) },
                Some(money) => {
                    @if money.total.machines > 0 { p { (plain(&verdict(money))) } (bars(money)) (html_table(money)) }
                    @for sentence in notes(money) { p { (plain(&sentence)) } }
                }
            }
        }
    }
}

/// What is said about the figures, besides the most important.
fn notes(money: &Money) -> Vec<String> {
    let mut sentences = Vec::new();
    if money.total.machines > 0 {
        sentences.push(parts(money));
    }
    sentences.extend(money.unpriced.iter().map(unpriced));
    let spot = || money.machines.iter().filter(|row| row.priority == "Spot");
    if spot().any(|row| row.basis == Basis::Now) {
        sentences.push(
            "The Spot price of one moment counts for all of the time; --price-history has that of each hour."
                .to_owned(),
        );
    }
    if money.before_prices_ms() > 0 {
        let before = span(money.before_prices_ms());
        sentences.push(format!(
            "{before} of machines were before the first known Spot price, which counts for them."
        ));
    }
    if money.total.machines > 0 {
        sentences.push(
            "Counted from boot to when a machine was last seen; without disks, requests and your discounts."
                .to_owned(),
        );
    }
    sentences
}

fn verdict(money: &Money) -> String {
    let Money { currency, total, .. } = money;
    let (cost, regular) = (money.amount(total.cost), money.amount(total.regular));
    let saved = total.saved_micros_shown();
    let difference = money.shown(saved.unsigned_abs());
    let end = if saved < 0 {
        format!("so Spot cost {difference} {currency} more")
    } else {
        format!("so Spot saved {difference} {currency} ({})", share(total))
    };
    format!("It cost {cost} {currency}. Regular machines would have cost {regular} {currency}, {end}.")
}

fn parts(money: &Money) -> String {
    let Money { currency, total, .. } = money;
    format!(
        "Evictions lost work worth {} {currency} ({} of machines), and machines took {} {currency} ({}) from their boot to \
         their first worker; both are in the cost.",
        money.amount(total.lost),
        span(total.lost_ms),
        money.amount(total.boots),
        span(total.boots_ms)
    )
}

fn unpriced(it: &Unpriced) -> String {
    let Unpriced { size, region, priority, why, machines, billed_ms } = it;
    let named: Vec<_> =
        [priority, size, region].into_iter().filter(|name| !name.is_empty()).map(String::as_str).collect();
    let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    format!("In no sum: {}{named}, {} in all, because {why}.", count(*machines, "machine"), span(*billed_ms))
}

/// What was saved, in percent of what regular machines would have cost.
fn share(sums: &Sums) -> String {
    let regular = i128::try_from(sums.regular.nanos()).unwrap_or(i128::MAX).max(1);
    // Of what was saved: a share below zero is not shown.
    let permille = sums.saved_nanos().saturating_mul(1_000).saturating_add(regular / 2) / regular;
    if permille == 0 && sums.saved_nanos() > 0 {
        return "<0.1 %".to_owned();
    }
    // What cost something did not save all.
    let permille = if sums.cost > Cost::default() { permille.min(999) } else { permille };
    format!("{}.{} %", permille / 10, permille % 10)
}

impl Money {
    fn amount(&self, cost: Cost) -> String {
        self.shown(cost.micros_shown().into())
    }

    /// Millionths as money: all in cents, or all in hundredths of them where the whole is less than ten. What is not nothing
    /// is never shown as nothing.
    fn shown(&self, micros: u128) -> String {
        let whole = self.total.cost.max(self.total.regular).micros();
        let (unit, decimals) = if whole >= 10_000_000 { (10_000, 2) } else { (100, 4) };
        if micros > 0 && micros < unit / 2 {
            return if decimals == 2 { "<0.01".to_owned() } else { "<0.0001".to_owned() };
        }
        let rounded = (micros + unit / 2) / unit;
        let per_whole = 1_000_000 / unit;
        format!("{}.{:0decimals$}", rounded / per_whole, rounded % per_whole)
    }

    fn signed(&self, micros: i128) -> String {
        let shown = self.shown(micros.unsigned_abs());
        match shown.strip_prefix('<') {
            _ if micros >= 0 => shown,
            Some(least) => format!(">-{least}"),
            None => format!("-{shown}"),
        }
    }
}

fn rows(money: &Money) -> Vec<[String; 10]> {
    let mut rows: Vec<_> = money.machines.iter().map(|it| row(money, it)).collect();
    if rows.len() > 1 {
        let dash = || "-".to_owned();
        rows.push(cells(money, ["all".to_owned(), dash(), dash()], dash(), &money.total));
    }
    rows
}

fn row(money: &Money, row: &Row) -> [String; 10] {
    let (from, to) = (price_text(row.price_from), price_text(row.price_to));
    let price = if from == to { from } else { format!("{from} to {to}") };
    let known = |name: &str| super::super::known(name).to_owned();
    cells(money, [known(&row.size), known(&row.region), row.priority.to_owned()], price, &row.sums)
}

fn cells(money: &Money, names: [String; 3], price: String, sums: &Sums) -> [String; 10] {
    let [size, region, priority] = names;
    let [cost, regular, lost, boots] =
        [sums.cost, sums.regular, sums.lost, sums.boots].map(|cost| money.amount(cost));
    let saved = money.signed(sums.saved_micros_shown());
    [size, region, priority, span(sums.billed_ms), price, cost, regular, saved, lost, boots]
}

/// What it cost beside what regular machines would have cost, as two bars.
fn bars(money: &Money) -> Markup {
    let Sums { cost, regular, lost, .. } = money.total;
    let most = cost.max(regular).micros().max(1);
    let width = |micros: u128| {
        let permille = (micros * 1_000 + most / 2) / most;
        format!("width:{}.{}%", permille / 10, permille % 10)
    };
    let shown = |cost: Cost| format!("{} {}", money.amount(cost), plain(&money.currency));
    let used = cost.micros().saturating_sub(lost.micros());
    html! {
        div.money role="img" aria-label={ "It cost " (shown(cost)) ", regular machines " (shown(regular)) } {
            span.what { "It cost" }
            span.track {
                span.spent.used style=(width(used)) {}
                span.spent.wasted style=(width(lost.micros())) {}
            }
            span.sum { (shown(cost)) }
            span.what { "Regular" }
            span.track { span.spent.full style=(width(regular.micros())) {} }
            span.sum { (shown(regular)) }
        }
        ul.legend aria-hidden="true" {
            li { span.swatch.used {} " machines as they were" }
            li { span.swatch.wasted {} " of that lost to evictions" }
            li { span.swatch.full {} " regular machines" }
        }
    }
}

fn html_table(money: &Money) -> Markup {
    const TITLES: [&str; 10] =
        ["Size", "Region", "Priority", "Billed for", "An hour", "Cost", "Regular", "Saved", "Lost", "Boots"];
    html! {
        div.scroll {
            table {
                caption { "In " (plain(&money.currency)) }
                thead { tr { @for title in TITLES { th { (title) } } } }
                tbody {
                    @for row in rows(money) {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                @if at < 3 { td { (plain(cell)) } } @else { td.number { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::book::{Book, Entry, steps};
    use super::*;
    use reprieve_core::ledger::{Eviction, Life, Machine};
    use reprieve_plan::Price;

    const HOUR: i64 = 3_600_000;

    fn price(micros: u64) -> Price {
        Price::from_nanos_per_hour(micros * 1_000)
    }

    fn life(priority: &str, size: &str, hours: i64) -> Life {
        let (size, region) = (size.to_owned(), "westeurope".to_owned());
        let machine = Machine { size, region, priority: priority.to_owned(), ..Machine::default() };
        Life {
            boot: "b".to_owned(),
            machine,
            born_unix_ms: Some(HOUR),
            seen_unix_ms: HOUR + HOUR / 10,
            until_unix_ms: HOUR + hours * HOUR,
            evicted: Some(Eviction { lead_ms: None }),
        }
    }

    pub(crate) fn money(spot: u64, basis: Basis) -> Money {
        let mut book = Book::new("USD");
        let known = steps([(2 * HOUR, price(spot)), (60 * HOUR, price(spot + 4_000))]);
        book.insert(
            "Standard_D4s_v5",
            "westeurope",
            Entry { spot: known, regular: Some(price(230_000)), basis },
        );
        book.notes.push("past prices\u{1b} are a sample".to_owned());
        let lives = [
            life("Spot", "Standard_D4s_v5", 100),
            life("Regular", "Standard_D4s_v5", 50),
            life("Spot", "Standard_X9", 3),
            life("", "", 2),
        ];
        Money::of(book, &lives, &[], 0)
    }

    #[test]
    fn text_has_the_sums_and_what_is_in_none() {
        insta::assert_snapshot!(text(Some(&money(46_000, Basis::History))));
    }

    #[test]
    fn one_price_for_all_time_and_a_loss_are_said() {
        let text = text(Some(&money(300_000, Basis::Now)));
        assert!(text.contains("The Spot price of one moment counts for all of the time"), "{text}");
        assert!(text.contains("so Spot cost 7.") && text.contains("  -7."), "{text}");
    }

    #[test]
    fn without_a_priced_machine_there_is_no_sum_of_zero() {
        let text = text(Some(&Money::of(Book::new("USD"), &[life("Spot", "D4", 3)], &[], 0)));
        let expected = "\nIn no sum: 1 machine (Spot, D4, westeurope), 3h in all, because there is no price of its size and \
                        region.\n";
        assert_eq!(text, expected);
        assert!(super::text(None).contains("--prices ask"));
    }

    #[test]
    fn money_is_rounded_to_cents_or_a_hundredth_of_them_by_the_whole() {
        let of = |whole: u64| {
            let mut money = Money::of(Book::new("USD"), &[], &[], 0);
            money.total.regular = Cost::from_nanos(whole * 1_000);
            [0, 49, 50, 1_234_567, 12_345_000].map(|micros| money.shown(micros))
        };
        assert_eq!(of(9_999_999), ["0.0000", "<0.0001", "0.0001", "1.2346", "12.3450"]);
        assert_eq!(of(10_000_000), ["0.00", "<0.01", "<0.01", "1.23", "12.35"]);
        let money = money(46_000, Basis::History);
        assert_eq!([-1_500_000, 1, -1].map(|micros| money.signed(micros)), ["-1.50", "<0.01", ">-0.01"]);
        let share_of = |saved_micros: u64| {
            let (cost, regular) = (1_000_000_000 - saved_micros * 1_000, 1_000_000_000);
            let [cost, regular] = [cost, regular].map(Cost::from_nanos);
            share(&Sums { cost, regular, ..Sums::default() })
        };
        assert_eq!([0, 1, 500, 999_999].map(share_of), ["0.0 %", "<0.1 %", "0.1 %", "99.9 %"]);
    }

    #[test]
    fn a_page_has_bars_a_table_and_no_foreign_markup() {
        let page = section(Some(&money(46_000, Basis::History))).into_string();
        assert_eq!(page.matches("class=\"spent").count(), 3, "{page}");
        assert!(page.contains("<td>Standard_D4s_v5</td>") && !page.contains('\u{1b}'), "{page}");
        assert!(section(None).into_string().contains("--prices ask"));
    }
}
