//! A refused condition is checked again before an owner counts as superseded.

use reprieve_core::{BlobName, ErrorKind, JobId};
use reprieve_sim::storage::{Action, Operation};

use crate::support::{Shop, owner};

/// Both error codes of a failed condition, while the owner is still the owner.
#[tokio::test]
async fn a_refused_condition_alone_does_not_supersede_an_owner() {
    for (status, code) in [(409, "BlobAlreadyExists"), (412, "ConditionNotMet")] {
        let shop = Shop::open().await;
        let job = JobId::unique();
        let output = BlobName::parse("out/1").unwrap();
        shop.next(Operation::BlobPut, 1, Action::Refuse { status, code: code.to_owned() });
        shop.store.blobs.put(&output, b"x".to_vec(), Some(&owner(&job, 1))).await.unwrap();
        assert_eq!(shop.store.blobs.get(&output).await.unwrap().unwrap(), b"x", "{code}");
    }
}

#[tokio::test]
async fn an_output_of_a_later_owner_stays_also_when_the_answers_to_both_were_lost() {
    let shop = Shop::open().await;
    let (job, output) = (JobId::unique(), BlobName::parse("out/1").unwrap());
    let put = async |delivery: u32| {
        shop.next(Operation::BlobPut, 1, Action::LoseAnswer);
        shop.store.blobs.put(&output, delivery.to_string().into_bytes(), Some(&owner(&job, delivery))).await
    };
    put(1).await.unwrap();
    put(2).await.unwrap();
    assert_eq!(put(1).await.unwrap_err().kind(), ErrorKind::Superseded);
    assert_eq!(shop.store.blobs.get(&output).await.unwrap().unwrap(), b"2");
}

/// The write arrives after its caller has timed out, and after the next owner has written.
#[tokio::test]
async fn a_write_that_arrives_late_changes_nothing() {
    let shop = Shop::open().await;
    let (job, output) = (JobId::unique(), BlobName::parse("out/1").unwrap());
    let late = std::time::Duration::from_millis(1_500);
    shop.next(Operation::BlobPut, 1, Action::ApplyLate { by: late });
    let first = owner(&job, 1);
    let early = shop.drain.blobs.put(&output, b"1".to_vec(), Some(&first));
    // Its caller times out.
    assert!(tokio::time::timeout(std::time::Duration::from_millis(300), early).await.is_err());
    shop.store.blobs.put(&output, b"2".to_vec(), Some(&owner(&job, 2))).await.unwrap();
    shop.double.reset_counts();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while shop.double.faults().iter().any(|fault| fault.injected == 0) {
        assert!(tokio::time::Instant::now() < deadline, "the write never arrived");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    tokio::time::sleep(late).await;
    assert_eq!(shop.store.blobs.get(&output).await.unwrap().unwrap(), b"2");
}
