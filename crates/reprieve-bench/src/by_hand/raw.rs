//! The upper bound: the same requests on bare HTTP. It reads only the parts of a response that the
//! next request needs.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use reqwest::{Client, Url};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::{BATCH, HELD_SECONDS, Loop, PAUSE, http, say};

/// The API version that the SDK sends.
const VERSION: &str = "2026-04-06";

pub(super) async fn run(what: &Loop) -> Result<()> {
    let http = http()?;
    let mut receive = messages(&what.queue)?;
    receive
        .query_pairs_mut()
        .append_pair("numofmessages", &BATCH.to_string())
        .append_pair("visibilitytimeout", &HELD_SECONDS.to_string());
    let slots = Arc::new(Semaphore::new(usize::try_from(what.in_flight)?));
    loop {
        let mut room = Arc::clone(&slots).acquire_many_owned(BATCH.min(what.in_flight)).await?;
        let answer = http.get(receive.clone()).header("x-ms-version", VERSION).send().await?;
        ensure!(answer.status().is_success(), "a receive was answered {}", answer.status());
        let held = held(&answer.text().await?);
        if held.is_empty() {
            drop(room);
            sleep(PAUSE).await;
            continue;
        }
        for (id, receipt) in held {
            let slot = room.split(1).context("more messages came than were asked for")?;
            let (http, url) = (http.clone(), message(&what.queue, &id, &receipt)?);
            tokio::spawn(async move {
                if let Err(error) = delete(&http, url).await {
                    say(&format!("a message was not deleted: {error:#}"));
                }
                drop(slot);
            });
        }
    }
}

async fn delete(http: &Client, url: Url) -> Result<()> {
    let answer = http.delete(url).header("x-ms-version", VERSION).send().await?;
    ensure!(answer.status().is_success(), "it was answered {}", answer.status());
    // Reads the body to its end, so that the connection is reused.
    answer.bytes().await?;
    Ok(())
}

/// Returns the ids and pop receipts in a response.
fn held(xml: &str) -> Vec<(String, String)> {
    let ids = elements(xml, "<MessageId>", "</MessageId>");
    ids.zip(elements(xml, "<PopReceipt>", "</PopReceipt>"))
        .map(|(id, receipt)| (id.to_owned(), receipt.to_owned()))
        .collect()
}

/// Returns the text between two tags. Ids and receipts contain no characters that XML escapes.
fn elements<'x>(xml: &'x str, open: &'x str, close: &'x str) -> impl Iterator<Item = &'x str> {
    xml.split(open).skip(1).filter_map(move |rest| Some(rest.split_once(close)?.0))
}

fn messages(queue: &Url) -> Result<Url> {
    under(queue, &["messages"])
}

fn message(queue: &Url, id: &str, receipt: &str) -> Result<Url> {
    let mut url = under(queue, &["messages", id])?;
    url.query_pairs_mut().append_pair("popreceipt", receipt);
    Ok(url)
}

fn under(queue: &Url, path: &[&str]) -> Result<Url> {
    let mut url = queue.clone();
    url.path_segments_mut().ok().context("the queue's URL is none")?.extend(path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_far_as_a_delete_needs() {
        let xml = "<QueueMessagesList>\
            <QueueMessage><MessageId>a</MessageId><PopReceipt>AB+/=</PopReceipt><MessageText>x</MessageText></QueueMessage>\
            <QueueMessage><MessageId>b</MessageId><PopReceipt>CD</PopReceipt></QueueMessage></QueueMessagesList>";
        let held = held(xml);
        assert_eq!(held, [("a".to_owned(), "AB+/=".to_owned()), ("b".to_owned(), "CD".to_owned())]);
        let queue = Url::parse("http://127.0.0.1:1/account/queue?sig=x").unwrap();
        let url = message(&queue, "a", &held[0].1).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:1/account/queue/messages/a?sig=x&popreceipt=AB%2B%2F%3D");
    }
}
