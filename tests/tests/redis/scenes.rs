//! What happens to a cache, and what it says of it. The document's maintenance takes 16 minutes; here its pauses are
//! shorter.
//! <https://learn.microsoft.com/azure/azure-cache-for-redis/cache-failover>

use std::time::Duration;

use Act::{
    Close, Closed, Idle, Last, Opened, Promote, Raw, Rejoin, ReplicasAvoided, Say, SayOfReplica, SayOnce,
    Stop, StopReplica, Wake,
};

/// Something that happens in a scene, or that it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// The cache announces this of its primary, and the worker hears it.
    Say(&'static str),
    /// The same of its replica.
    SayOfReplica(&'static str),
    /// It announces this of its primary, whether or not somebody hears it.
    SayOnce(&'static str),
    /// It publishes this text, and the worker hears it.
    Raw(&'static str),
    /// The worker's breaker is open. Only where that was announced.
    Opened,
    /// The worker's breaker is closed again.
    Closed,
    /// The worker avoids replicas. Only where that was announced.
    ReplicasAvoided,
    /// No job runs.
    Idle,
    /// The address answers nothing for a moment, then closes its connections, and takes no new ones.
    Close,
    /// The address leads to the same server again.
    Reopen,
    /// The primary hangs.
    Stop,
    /// The replica hangs.
    StopReplica,
    /// Both go on.
    Wake,
    /// The replica becomes the primary.
    Promote,
    /// The old primary becomes the replica.
    Rejoin,
    /// The state lasts for this time.
    Last(Duration),
}

impl Act {
    /// Whether it is of the notifications.
    pub(crate) const fn is_announced(self) -> bool {
        matches!(self, Say(_) | SayOfReplica(_) | SayOnce(_) | Raw(_) | Opened | ReplicasAvoided)
    }
}

/// What the scene must have done to the worker's breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breaker {
    StaysClosed,
    Opens,
    /// It opens before the cache goes, so no call fails at all.
    OpensInTime,
}

/// A scene.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) acts: &'static [Act],
    pub(crate) breaker: Breaker,
    /// Whether the worker's jobs need the cache.
    pub(crate) is_needed: bool,
}

const fn scene(name: &'static str, breaker: Breaker, acts: &'static [Act]) -> Scene {
    Scene { name, acts, breaker, is_needed: false }
}

/// The cache's worst seconds.
const OUTAGE: Act = Last(Duration::from_secs(2));

/// Scenes that are shown with and without their notifications.
pub(crate) const MAINTENANCES: [Scene; 4] = [
    scene(
        "the primary is maintained, as documented",
        Breaker::OpensInTime,
        &[
            Say("NodeMaintenanceScheduled"),
            Say("NodeMaintenanceStarting"),
            Opened,
            Say("NodeMaintenanceStart"),
            Close,
            OUTAGE,
            Promote,
            Say("NodeMaintenanceFailoverComplete"),
            Closed,
            Rejoin,
            Say("NodeMaintenanceEnded"),
        ],
    ),
    scene(
        "a replica is maintained, as documented",
        Breaker::StaysClosed,
        &[
            SayOfReplica("NodeMaintenanceScheduled"),
            SayOfReplica("NodeMaintenanceStarting"),
            ReplicasAvoided,
            SayOfReplica("NodeMaintenanceStart"),
            StopReplica,
            OUTAGE,
            Wake,
            SayOfReplica("NodeMaintenanceEnded"),
        ],
    ),
    scene(
        "the primary hangs until the replica is promoted",
        Breaker::OpensInTime,
        &[
            Say("NodeMaintenanceStarting"),
            Opened,
            Say("NodeMaintenanceStart"),
            Stop,
            OUTAGE,
            Promote,
            Say("NodeMaintenanceFailoverComplete"),
            Closed,
            Wake,
            Rejoin,
            Say("NodeMaintenanceEnded"),
        ],
    ),
    scene(
        "the primary refuses, and comes back itself",
        Breaker::OpensInTime,
        &[
            Say("NodeMaintenanceStarting"),
            Opened,
            Say("NodeMaintenanceStart"),
            Close,
            OUTAGE,
            Act::Reopen,
            Say("NodeMaintenanceEnded"),
            Closed,
        ],
    ),
];

/// Scenes whose notifications are not what is documented.
pub(crate) const ODD: [Scene; 7] = [
    scene(
        "doubled",
        Breaker::OpensInTime,
        &[
            Say("NodeMaintenanceStarting"),
            Say("NodeMaintenanceStarting"),
            Opened,
            Say("NodeMaintenanceStart"),
            Say("NodeMaintenanceStart"),
            Close,
            OUTAGE,
            Promote,
            Say("NodeMaintenanceFailoverComplete"),
            Say("NodeMaintenanceFailoverComplete"),
            Closed,
            Rejoin,
            Say("NodeMaintenanceEnded"),
            Say("NodeMaintenanceEnded"),
        ],
    ),
    scene(
        "late: the failover is over",
        Breaker::Opens,
        &[
            Close,
            OUTAGE,
            Promote,
            Closed,
            Rejoin,
            Say("NodeMaintenanceStarting"),
            Opened,
            Say("NodeMaintenanceStart"),
            Say("NodeMaintenanceFailoverComplete"),
            Closed,
            Say("NodeMaintenanceEnded"),
        ],
    ),
    scene(
        "out of order, and the start comes last",
        Breaker::OpensInTime,
        &[
            Say("NodeMaintenanceEnded"),
            Say("NodeMaintenanceFailoverComplete"),
            Say("NodeMaintenanceStart"),
            Opened,
            Say("NodeMaintenanceStarting"),
            Close,
            OUTAGE,
            Promote,
            Rejoin,
            Say("NodeMaintenanceScheduled"),
        ],
    ),
    scene(
        "missed: nobody hears that it has switched over",
        Breaker::OpensInTime,
        &[
            Say("NodeMaintenanceStarting"),
            Opened,
            Say("NodeMaintenanceStart"),
            Close,
            SayOnce("NodeMaintenanceFailoverComplete"),
            OUTAGE,
            Promote,
            Rejoin,
        ],
    ),
    scene(
        "wrong: nothing happens",
        Breaker::OpensInTime,
        &[Say("NodeMaintenanceStarting"), Opened, Say("NodeMaintenanceStart"), OUTAGE],
    ),
    scene(
        "wrong: it says that it is the replica",
        Breaker::Opens,
        &[
            SayOfReplica("NodeMaintenanceStarting"),
            ReplicasAvoided,
            SayOfReplica("NodeMaintenanceStart"),
            Close,
            OUTAGE,
            Promote,
            Closed,
            SayOfReplica("NodeMaintenanceEnded"),
        ],
    ),
    scene(
        "wrong: no notifications at all",
        Breaker::StaysClosed,
        &[
            Raw(""),
            Raw("|||"),
            Raw("NodeMaintenanceStart"),
            Raw("NotificationType|NodeMaintenanceSomethingNew|IsReplica|False"),
            Raw("StartTimeInUTC|2021-03-02T23:26:57|notificationtype|NodeMaintenanceStart"),
        ],
    ),
];

/// The document's scene for jobs that can't do without the cache.
pub(crate) const NEEDED: Scene = Scene {
    name: "the primary is maintained, and the job needs the cache",
    acts: &[
        Say("NodeMaintenanceStarting"),
        Opened,
        Idle,
        Say("NodeMaintenanceStart"),
        Close,
        OUTAGE,
        Promote,
        Say("NodeMaintenanceFailoverComplete"),
        Closed,
        Rejoin,
        Say("NodeMaintenanceEnded"),
    ],
    breaker: Breaker::OpensInTime,
    is_needed: true,
};
