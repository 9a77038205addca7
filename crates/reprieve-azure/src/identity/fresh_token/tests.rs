//! Tokens are fetched before they expire, and callers wait only without a valid token. Time is
//! paused: tokens live for an hour.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use async_trait::async_trait;
use azure_core::credentials::{TokenCredential, TokenRequestOptions};
use azure_core::error::ErrorKind;
use azure_core::time::OffsetDateTime;
use tokio::time::timeout;

use super::super::STORAGE;
use super::*;

const LIFE: Duration = Duration::from_secs(3600);

/// Returns numbered tokens that live for an hour of the test's time, unless a test configures it
/// otherwise.
#[derive(Debug)]
struct Source {
    asked: AtomicUsize,
    broken: AtomicBool,
    /// How long a token takes.
    takes: Duration,
    life: Duration,
}

impl Source {
    fn new(takes: Duration, life: Duration) -> Arc<Self> {
        Arc::new(Self { asked: AtomicUsize::new(0), broken: AtomicBool::new(false), takes, life })
    }
}

#[async_trait]
impl TokenCredential for Source {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let number = self.asked.fetch_add(1, SeqCst) + 1;
        sleep(self.takes).await;
        if self.broken.load(SeqCst) {
            return Err(azure_core::Error::with_message(ErrorKind::Io, "the identity service is down"));
        }
        // The wall clock does not follow the paused one, and a token's life is on the wall clock.
        let until = clock::wall_now() + self.life;
        Ok(AccessToken::new(format!("token-{number}"), OffsetDateTime::from(until)))
    }
}

fn token_of(source: &Arc<Source>) -> FreshToken {
    FreshToken::new(Chain::of(STORAGE, source.clone()))
}

/// The number of the token that is returned at once.
async fn number_now(token: &FreshToken) -> usize {
    let header = timeout(Duration::ZERO, token.header()).await.expect("at once").expect("a token");
    let text = header.to_str().expect("text");
    text.strip_prefix("Bearer token-").and_then(|number| number.parse().ok()).expect("a numbered token")
}

#[tokio::test(start_paused = true)]
async fn a_token_is_fetched_once_for_all_callers() {
    let source = Source::new(Duration::from_secs(1), LIFE);
    let token = token_of(&source);
    let (one, other) = tokio::join!(token.header(), token.header());
    assert_eq!(one.expect("a token"), other.expect("a token"));
    assert_eq!(number_now(&token).await, 1);
    assert_eq!(source.asked.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn the_next_token_is_there_before_the_last_one_ends() {
    let source = Source::new(Duration::from_secs(20), LIFE);
    let token = token_of(&source);
    token.header().await.expect("a token");
    sleep(LIFE * 40 / 100).await;
    assert_eq!(number_now(&token).await, 1);
    // The refresh needs no request, and no caller waits.
    sleep(LIFE * 20 / 100).await;
    assert_eq!(number_now(&token).await, 2);
    sleep(LIFE * 3).await;
    assert!(number_now(&token).await >= 6);
}

#[tokio::test(start_paused = true)]
async fn while_the_old_token_is_good_no_failure_is_seen() {
    let source = Source::new(Duration::from_millis(10), LIFE);
    let token = token_of(&source);
    token.header().await.expect("a token");
    source.broken.store(true, SeqCst);
    sleep(LIFE * 90 / 100).await;
    assert_eq!(number_now(&token).await, 1);
    let asked = source.asked.load(SeqCst);
    assert!((10..200).contains(&asked), "asked {asked} times");
    source.broken.store(false, SeqCst);
    // The longest wait between two tries is a minute.
    sleep(Duration::from_secs(70)).await;
    assert!(number_now(&token).await > 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_good_token_the_wait_is_bounded_and_over_as_soon_as_there_is_one() {
    let source = Source::new(Duration::from_millis(10), LIFE);
    let token = token_of(&source);
    token.header().await.expect("a token");
    source.broken.store(true, SeqCst);
    sleep(LIFE + Duration::from_secs(60)).await;
    let error = timeout(Duration::from_secs(10), token.header())
        .await
        .expect("no endless wait")
        .expect_err("no token");
    assert!(error.to_string().contains("identity service is down"), "{error}");
    assert!(error.downcast_ref::<NoIdentity>().expect("our own error").may_pass());
    source.broken.store(false, SeqCst);
    let header = timeout(Duration::from_secs(10), token.header()).await.expect("no endless wait");
    header.expect("a token");
}

/// Each try of an identity service that is down takes longer than a connection to a cache waits.
#[tokio::test(start_paused = true)]
async fn a_caller_with_little_patience_hears_the_known_reason_while_the_next_try_takes_long() {
    let source = Source::new(Duration::from_secs(20), LIFE);
    source.broken.store(true, SeqCst);
    let token = token_of(&source);
    let second = Duration::from_secs(1);
    assert!(timeout(second, token.token()).await.is_err(), "nothing is known yet");
    sleep(Duration::from_secs(25)).await;
    for _ in 0..5 {
        let failure = timeout(second, token.token()).await.expect("a reason in time").expect_err("a failure");
        assert!(failure.to_string().contains("the identity service is down"), "{failure}");
        sleep(Duration::from_secs(7)).await;
    }
    source.broken.store(false, SeqCst);
    sleep(Duration::from_secs(50)).await;
    assert!(token.token().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_does_not_stop_the_fetch() {
    let source = Source::new(Duration::from_secs(5), LIFE);
    let token = token_of(&source);
    for _ in 0..5 {
        assert!(timeout(Duration::from_millis(990), token.header()).await.is_err(), "it takes five seconds");
    }
    timeout(Duration::from_secs(1), token.header()).await.expect("it is here").expect("a token");
    assert_eq!(source.asked.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_fetched_anew_but_not_again_and_again() {
    let source = Source::new(Duration::from_millis(10), LIFE);
    let token = token_of(&source);
    token.header().await.expect("a token");
    token.suspect();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(source.asked.load(SeqCst), 1, "it was new");
    sleep(SUSPECT_AGE_MIN).await;
    token.suspect();
    assert_eq!(number_now(&token).await, 1, "and meanwhile the old one is used");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(number_now(&token).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_short_life_does_not_lead_to_a_storm() {
    let source = Source::new(Duration::ZERO, Duration::from_millis(1500));
    let token = token_of(&source);
    token.header().await.expect("a token");
    sleep(Duration::from_secs(100)).await;
    let asked = source.asked.load(SeqCst);
    assert!((90..=112).contains(&asked), "asked {asked} times in 100 s");
}

#[tokio::test]
async fn a_clock_that_is_ahead_is_named_for_a_token_that_has_expired_at_once() {
    #[derive(Debug)]
    struct Yesterdays;
    #[async_trait]
    impl TokenCredential for Yesterdays {
        async fn get_token(
            &self,
            _: &[&str],
            _: Option<TokenRequestOptions<'_>>,
        ) -> azure_core::Result<AccessToken> {
            Ok(AccessToken::new("old", OffsetDateTime::from(clock::wall_now() - Duration::from_secs(86_400))))
        }
    }
    let token = FreshToken::new(Chain::of(STORAGE, Arc::new(Yesterdays)));
    let error = token.header().await.expect_err("no good token");
    assert!(error.to_string().contains("set this machine's clock"), "{error}");
}

/// The task that fetches ends with its runtime; the next caller, on another runtime, must not wait
/// for it.
#[test]
fn fetching_goes_on_when_its_runtime_has_ended() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime")
    };
    let first = runtime();
    let source = first.block_on(async { Source::new(Duration::ZERO, Duration::from_millis(50)) });
    let token = token_of(&source);
    first.block_on(token.header()).expect("a token");
    drop(first);
    let second = runtime();
    second
        .block_on(async {
            sleep(Duration::from_secs(1)).await;
            token.header().await
        })
        .expect("another token");
    assert!(source.asked.load(SeqCst) >= 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_fetched_once_it_is_dropped() {
    let source = Source::new(Duration::ZERO, LIFE);
    let token = token_of(&source);
    token.header().await.expect("a token");
    drop(token);
    sleep(LIFE * 2).await;
    assert_eq!((source.asked.load(SeqCst), Arc::strong_count(&source)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn no_token_is_in_its_debug_text() {
    let token = token_of(&Source::new(Duration::ZERO, LIFE));
    let header = token.header().await.expect("a token");
    assert_eq!(format!("{token:?} {header:?}"), "FreshToken { .. } Sensitive");
}
