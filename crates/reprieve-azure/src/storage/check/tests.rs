//! A check's results, and that other clients do not notice it.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::time::OffsetDateTime;
use reprieve_core::ports::NewMessage;
use reprieve_core::{ErrorKind, clock};
use reprieve_sim::storage::{Action, Config, Operation, Rule, StorageServer};
use tokio::time::Instant;

use super::*;
use crate::identity::{Chain, FreshToken, STORAGE};
use crate::storage::call::Pass;
use crate::storage::store::{AzureStore, Options};
use crate::test_server::{Reply, TestServer};

#[derive(Debug)]
struct Token;

#[async_trait]
impl TokenCredential for Token {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        Ok(AccessToken::new("a-token", OffsetDateTime::from(clock::wall_now() + Duration::from_secs(3_600))))
    }
}

fn queue() -> QueueName {
    QueueName::parse("work").expect("a name")
}

/// A check of the test server by an identity. The server accepts its token over plain HTTP.
fn checkup(double: &StorageServer) -> Checkup {
    let text =
        format!("AccountName=thumbs;BlobEndpoint={};QueueEndpoint={}", double.blob_url(), double.queue_url());
    let address = Address::parse(&text).expect("an address");
    let pass = Pass::Token(FreshToken::new(Chain::of(STORAGE, Arc::new(Token))));
    let access = Access::with_pass(&address, pass, None).expect("an access");
    Checkup { access, queues: vec![queue()], container: ContainerName::default() }
}

async fn double(denied: &[Operation]) -> StorageServer {
    let double = StorageServer::start(Config::default()).await.expect("free ports");
    for operation in denied {
        double.add_fault(Rule::new(Action::PermissionMismatch).on(*operation)).expect("a rule");
    }
    double
}

/// The store as jobs use it, with one message in it.
async fn store(double: &StorageServer) -> AzureStore {
    let address = Address::parse(&double.connection_string()).expect("an address");
    let store = AzureStore::open(&address, Options::new(vec![queue()])).await.expect("a store");
    let message = NewMessage { body: b"a job".to_vec(), delay: Duration::ZERO };
    store.store().queue.send(vec![message]).await.expect("it is sent");
    double.reset_counts();
    store
}

fn outcome(attempts: &[Attempt], checked: StoreOperation) -> &Outcome {
    &attempts.iter().find(|one| one.operation == checked).expect("every operation is reported").outcome
}

#[track_caller]
fn assert_denied(attempts: &[Attempt], checked: StoreOperation) -> &str {
    match outcome(attempts, checked) {
        Outcome::Failed(error) if error.kind() == ErrorKind::Denied => error.message(),
        other => panic!("{checked:?}: {other:?}"),
    }
}

#[tokio::test]
async fn everything_is_tried_and_nothing_stays() {
    let double = double(&[]).await;
    let store = store(&double).await;
    let checkup = checkup(&double);
    let signed_in = checkup.sign_in().await.expect("a token");
    assert!(signed_in.by == "own credential" && signed_in.until.is_some(), "{signed_in:?}");
    for reached in checkup.reach().await {
        let reached = reached.expect("it answers");
        assert!(reached.turned_away.is_none(), "{reached:?}");
        assert!(reached.ahead.is_some_and(|ahead| ahead.as_secs().abs() < 5), "{reached:?}");
    }
    let queues = checkup.try_queue().await.expect("a trial");
    assert!(queues.attempts.iter().all(|one| matches!(one.outcome, Outcome::Done)), "{:?}", queues.attempts);
    assert!(matches!(&queues.target, TrialTarget::Scratch(name) if name.starts_with(SCRATCH)));
    assert_eq!(queues.round_trips.len(), 20);
    let blobs = checkup.try_blobs().await.expect("a trial");
    assert!(blobs.attempts.iter().all(|one| matches!(one.outcome, Outcome::Done)), "{:?}", blobs.attempts);
    assert_eq!((blobs.conditions_kept, &blobs.left_behind), (Some(true), &None));
    let look = checkup.look().await.remove(0);
    assert_eq!((look.messages.unwrap(), look.poisoned.unwrap()), (1, 0));
    assert_eq!(look.next.unwrap(), Next { peeked: 1, expiring: 0, first_end: None });

    let counts = double.counts();
    assert_eq!(counts.answered(Operation::QueueCreate, 201), counts.answered(Operation::QueueDelete, 204));
    assert_eq!(counts.requests(Operation::ContainerCreate), 0);
    assert_eq!(counts.requests(Operation::BlobDelete), 2);
    assert_eq!(store.store().blobs.list("").await.unwrap(), []);
    let mut received = store.store().queue.receive(32, Duration::from_secs(60)).await.expect("messages");
    assert_eq!((received.len(), received.remove(0).dequeue_count), (1, 1), "no one else received it");
}

#[tokio::test]
async fn a_role_that_can_not_renew_is_noticed_in_a_queue_that_others_use() {
    // The operations that Storage Queue Data Message Processor may not perform.
    let denied = [Operation::QueueCreate, Operation::QueueProperties, Operation::Send, Operation::Update];
    let double = double(&[]).await;
    let store = store(&double).await;
    for operation in denied {
        double.add_fault(Rule::new(Action::PermissionMismatch).on(operation)).expect("a rule");
    }
    let trial = checkup(&double).try_queue().await.expect("a trial");
    assert_eq!(trial.target, TrialTarget::Own("work".to_owned()));
    assert!(trial.round_trips.is_empty());
    for checked in [StoreOperation::Create, StoreOperation::Count, StoreOperation::Send] {
        assert_denied(&trial.attempts, checked);
    }
    let renew = assert_denied(&trial.attempts, StoreOperation::Renew);
    for words in ["Storage Queue Data Contributor", "Message Processor", "can't renew a lease", "thumbs"] {
        assert!(renew.contains(words), "{renew}");
    }
    for checked in [StoreOperation::Peek, StoreOperation::Delete] {
        assert!(
            matches!(outcome(&trial.attempts, checked), Outcome::Done),
            "{checked:?}: {:?}",
            trial.attempts
        );
    }
    assert!(matches!(outcome(&trial.attempts, StoreOperation::Receive), Outcome::NotTried(_)));
    assert_eq!(double.counts().requests(Operation::Receive), 0, "receiving would take the job");
    double.clear_faults();
    assert_eq!(store.store().queue.depth().await.unwrap().total, 1);
}

#[tokio::test]
async fn a_message_in_a_queue_that_others_use_is_never_seen_and_taken_back() {
    let double = double(&[]).await;
    let store = store(&double).await;
    double.add_fault(Rule::new(Action::PermissionMismatch).on(Operation::QueueCreate)).expect("a rule");
    let trial = checkup(&double).try_queue().await.expect("a trial");
    for checked in [
        StoreOperation::Send,
        StoreOperation::Renew,
        StoreOperation::Delete,
        StoreOperation::Peek,
        StoreOperation::Count,
    ] {
        assert!(
            matches!(outcome(&trial.attempts, checked), Outcome::Done),
            "{checked:?}: {:?}",
            trial.attempts
        );
    }
    assert_eq!(trial.round_trips.len(), 20);
    assert_eq!(double.counts().answered(Operation::Delete, 204), 1);
    // The message could not be deleted, but it is invisible.
    double.add_fault(Rule::new(Action::PermissionMismatch).on(Operation::Delete)).expect("a rule");
    let trial = checkup(&double).try_queue().await.expect("a trial");
    assert_denied(&trial.attempts, StoreOperation::Delete);
    let received = store.store().queue.receive(32, Duration::from_secs(60)).await.expect("messages");
    assert_eq!(received.iter().map(|one| one.body.as_slice()).collect::<Vec<_>>(), [b"a job"]);
}

#[tokio::test]
async fn each_denied_operation_is_reported_and_the_others_are_still_tried() {
    for (operation, checked) in [
        (Operation::Send, StoreOperation::Send),
        (Operation::Receive, StoreOperation::Receive),
        (Operation::Update, StoreOperation::Renew),
        (Operation::Update, StoreOperation::Release),
        (Operation::Delete, StoreOperation::Delete),
        (Operation::Peek, StoreOperation::Peek),
        (Operation::QueueProperties, StoreOperation::Count),
        (Operation::QueueDelete, StoreOperation::Remove),
    ] {
        let double = double(&[operation]).await;
        let trial = checkup(&double).try_queue().await.expect("a trial");
        assert_denied(&trial.attempts, checked);
        let failed = |one: &&Attempt| matches!(one.outcome, Outcome::Failed(_));
        let others = trial.attempts.iter().filter(failed).filter(|one| {
            one.operation != checked
                && !(operation == Operation::Update
                    && matches!(one.operation, StoreOperation::Renew | StoreOperation::Release))
        });
        assert_eq!(others.count(), 0, "{operation}: {:?}", trial.attempts);
        assert_eq!(trial.attempts.len(), 9, "{operation}: {:?}", trial.attempts);
    }
    for (operation, checked) in [
        (Operation::BlobPut, StoreOperation::Write),
        (Operation::BlobGet, StoreOperation::Read),
        (Operation::BlobDelete, StoreOperation::Delete),
    ] {
        let double = double(&[]).await;
        drop(store(&double).await);
        double.add_fault(Rule::new(Action::PermissionMismatch).on(operation)).expect("a rule");
        let trial = checkup(&double).try_blobs().await.expect("a trial");
        let message = assert_denied(&trial.attempts, checked);
        assert!(message.contains("Storage Blob Data Contributor"), "{message}");
        assert_eq!(
            trial.left_behind.is_some(),
            operation == Operation::BlobDelete,
            "{:?}",
            trial.left_behind
        );
        assert_eq!(trial.conditions_kept, (operation != Operation::BlobPut).then_some(true));
    }
}

#[tokio::test]
async fn a_container_that_is_missing_is_not_made_but_one_of_the_checks_own_is() {
    let double = double(&[]).await;
    let trial = checkup(&double).try_blobs().await.expect("a trial");
    assert!(
        matches!(&trial.target, TrialTarget::Scratch(name) if name.starts_with(SCRATCH)),
        "{:?}",
        trial.target
    );
    assert!(trial.attempts.iter().all(|one| matches!(one.outcome, Outcome::Done)), "{:?}", trial.attempts);
    let counts = double.counts();
    assert_eq!(counts.answered(Operation::ContainerCreate, 201), 1);
    assert_eq!(counts.answered(Operation::ContainerDelete, 202), 1);

    double.add_fault(Rule::new(Action::PermissionMismatch).on(Operation::ContainerCreate)).expect("a rule");
    let trial = checkup(&double).try_blobs().await.expect("a trial");
    match outcome(&trial.attempts, StoreOperation::Create) {
        Outcome::Failed(error) => {
            let command = "az storage container create --name reprieve --account-name thumbs";
            assert!(error.message().contains(command), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(outcome(&trial.attempts, StoreOperation::Write), Outcome::NotTried(_)));
}

#[tokio::test]
async fn an_account_that_does_not_keep_conditions_is_found_out() {
    let list = "<?xml version=\"1.0\"?><EnumerationResults><Blobs></Blobs><NextMarker/></EnumerationResults>";
    let headers = "x-ms-request-id: r-1\r\nx-ms-version: 2026-04-06\r\ncontent-type: application/xml\r\netag: \"1\"\r\n";
    let answer = move |head: &str| match head.split(' ').next() {
        Some("PUT") => Reply::answer(201, headers, ""),
        Some("DELETE") => Reply::answer(202, headers, ""),
        _ => Reply::answer(200, headers, list),
    };
    let server = TestServer::start(answer).await;
    let at = format!("http://{}", server.address);
    let text = format!("AccountName=thumbs;AccountKey=a2V5;BlobEndpoint={at};QueueEndpoint={at}");
    let address = Address::parse(&text).expect("an address");
    let checkup = Checkup::new(&address, vec![queue()], ContainerName::default()).expect("a checkup");
    let trial = checkup.try_blobs().await.expect("a trial");
    assert_eq!(trial.conditions_kept, Some(false), "{trial:?}");
}

#[tokio::test]
async fn a_refused_identity_differs_from_one_that_lacks_a_role() {
    for (status, code, turned_away) in [
        (403, "AuthenticationFailed", true),
        (401, "InvalidAuthenticationInfo", true),
        (403, "AuthorizationPermissionMismatch", false),
        (404, "QueueNotFound", false),
    ] {
        let double = double(&[]).await;
        let refuse = Action::Refuse { status, code: code.to_owned() };
        double.add_fault(Rule::new(refuse)).expect("a rule");
        for reached in checkup(&double).reach().await {
            let reached = reached.expect("it answers");
            assert_eq!(reached.turned_away.is_some(), turned_away, "{code}: {reached:?}");
        }
    }
}

#[tokio::test]
async fn a_service_that_hangs_in_the_middle_is_left_in_time_and_tidied_up() {
    let double = double(&[]).await;
    double.add_fault(Rule::new(Action::Hang { applied: true }).on(Operation::Peek)).expect("a rule");
    double.add_fault(Rule::new(Action::Hang { applied: true }).on(Operation::Update)).expect("a rule");
    let began = Instant::now();
    let trial = checkup(&double).try_queue().await.expect("a trial");
    assert!(began.elapsed() <= CHECK_MAX, "{:?}", began.elapsed());
    assert!(
        matches!(outcome(&trial.attempts, StoreOperation::Renew), Outcome::Failed(error) if error.kind() == ErrorKind::TimedOut),
        "{:?}",
        trial.attempts
    );
    assert!(matches!(
        outcome(&trial.attempts, StoreOperation::Count),
        Outcome::NotTried("there was no time left")
    ));
    assert_eq!(double.counts().answered(Operation::QueueDelete, 204), 1);
}
