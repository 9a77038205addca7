//! `reprieve redis rehearse`.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use jiff::Timestamp;
use reprieve::redis::{CHANNEL, Cmd, FromRedisValue, Redis, cmd};
use reprieve::{Error, ErrorKind, Result, clock};
use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::timeline::{Scenario, Step, message, steps};
use super::{At, invalid, open};
use crate::format::duration;
use crate::out::{Out, print_stderr};

/// The end of `rehearse --help`.
pub(super) const AFTER_HELP: &str = "\
A URL is redis://[USER]:PASSWORD@HOST[:PORT], or rediss://… with TLS.

The times are those of the sample in Microsoft's documentation: Scheduled at 0s, Starting at
12m 47s, Start at 13m 7s, connections closed at 13m 8s, FailoverComplete at 13m 17s, and Ended at
16m 9s.

On a server of this machine, the maintenance is carried out: the server closes its connections, and
answers again when the failover is complete. With --replica, that server is the primary then, until
the maintenance has ended; both have their masterauth, masteruser and master again afterwards. In the scenario `replica`, it is the replica that does not answer, until
the maintenance has ended. On a server elsewhere, nothing is carried out.

Programs that are subscribed act on the notifications, so the command refuses if there are any.
Exit codes: 0 done; 1 failed, or stopped before its end; 2 wrong usage or settings, or others are subscribed.
Data goes to stdout, everything else to stderr.";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,

    /// What happens
    #[arg(long, value_enum)]
    scenario: Scenario,

    /// How many times faster than in the sample
    #[arg(long, value_name = "N", value_parser = crate::values::speed, default_value = "1")]
    speed: NonZeroU32,

    /// Publishes even if others are subscribed, such as your worker
    #[arg(long)]
    allow_others: bool,

    /// The URL of the server's replica, on this machine
    #[arg(long, value_name = "URL")]
    replica: Option<String>,

    /// Only publishes, also on a server of this machine
    #[arg(long, conflicts_with = "replica")]
    announce_only: bool,

    /// Prints JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// A line of the output.
#[derive(Debug, Serialize)]
struct Report {
    at: Timestamp,
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    heard_by: Option<u64>,
}

struct Rehearsal {
    cache: Redis,
    replica: Option<Redis>,
    /// What the two were to each other; `None` before they are looked at, or without a replica.
    before: Option<Pair>,
    /// Whether they have each other's part.
    is_swapped: Cell<bool>,
    scenario: Scenario,
    acts: bool,
    speed: NonZeroU32,
    began: Timestamp,
}

pub(super) async fn run(args: Args) -> Result<()> {
    let rehearsal = Rehearsal::new(&args)?;
    let others = rehearsal.subscribers().await?;
    if others > 0 && !args.allow_others {
        let why = format!(
            "{others} other connections are subscribed to {CHANNEL} and would act on the notifications; if they \
             may, add --allow-others"
        );
        return Err(invalid(why));
    }
    let before = match &rehearsal.replica {
        Some(replica) => Some(Pair::find(&rehearsal.cache, replica).await?),
        None => None,
    };
    let rehearsal = Rehearsal { before, ..rehearsal };
    let stopped = reprieve::stop_signal()?;
    let mut out = Out::new();
    let rehearsed = async {
        let began = Instant::now();
        for (at, step) in steps(args.scenario) {
            sleep_until(began + rehearsal.scaled(at)).await;
            let Some(report) = rehearsal.take(at, step).await? else { continue };
            if args.json {
                out.json(&report)?;
                out.text("\n")?;
            } else {
                out.text(&report.line(at))?;
            }
            out.flush()?;
        }
        Ok(())
    };
    tokio::select! {
        rehearsed = rehearsed => {
            if rehearsed.is_err() {
                rehearsal.give_up("has failed").await;
            }
            rehearsed
        }
        _ = stopped => {
            rehearsal.give_up("was stopped").await;
            let why = "it was stopped before the maintenance had ended; a server that was silent may be so for a while";
            Err(Error::new(ErrorKind::Unavailable, "rehearse a maintenance", why))
        }
    }
}

impl Rehearsal {
    fn new(args: &Args) -> Result<Self> {
        let cache = args.at.open()?;
        let replica = args.replica.as_deref().map(open).transpose()?;
        let all_are_local = cache.is_local() && replica.as_ref().is_none_or(Redis::is_local);
        if replica.is_some() && !all_are_local {
            return Err(invalid("with --replica, both servers must be on this machine".to_owned()));
        }
        let acts = all_are_local && !args.announce_only;
        if !acts && args.scenario == Scenario::Silent {
            return Err(invalid("a silent maintenance needs a server of this machine".to_owned()));
        }
        if !acts {
            print_stderr("only publishing: nothing happens to the server");
        }
        let (scenario, speed) = (args.scenario, args.speed);
        Ok(Self {
            cache,
            replica,
            before: None,
            is_swapped: Cell::new(false),
            scenario,
            acts,
            speed,
            began: now(),
        })
    }

    /// Gives both servers their parts again after the rehearsal `has_ended` early, as far as they can be reached.
    async fn give_up(&self, has_ended: &str) {
        let pair = self.replica.as_ref().zip(self.before.as_ref());
        let Some((replica, before)) = pair.filter(|_| self.is_swapped.get()) else { return };
        match before.set_parts(&self.cache, replica).await {
            Ok(()) => {
                print_stderr(&format!("the rehearsal {has_ended}; both servers have their parts again"));
            }
            Err(error) => print_stderr(&format!(
                "the rehearsal {has_ended}, and the two servers could not get their parts again (failed to {error}); both may be \
                 primaries, or each other's replica: see their INFO replication, and set the first one's \
                 masteruser and masterauth"
            )),
        }
    }

    fn scaled(&self, at: Duration) -> Duration {
        at / self.speed.get()
    }

    async fn subscribers(&self) -> Result<u64> {
        let (_, count): (String, u64) = send(&self.cache, cmd("PUBSUB").arg("NUMSUB").arg(CHANNEL)).await?;
        Ok(count)
    }

    /// Takes a step. Returns `None` for one that is not taken.
    async fn take(&self, at: Duration, step: Step) -> Result<Option<Report>> {
        if let Step::Announce(name, starts_in) = step {
            let starts_at = starts_in.map(|time| self.began + self.scaled(time));
            let text = message(name, starts_at, self.scenario == Scenario::Replica);
            let heard_by = send(&self.cache, cmd("PUBLISH").arg(CHANNEL).arg(text)).await?;
            return Ok(Some(Report { at: now(), what: name, heard_by: Some(heard_by) }));
        }
        let pair = self.replica.as_ref().zip(self.before.as_ref());
        let what = match (step, pair) {
            _ if !self.acts => return Ok(None),
            (Step::Leave(until), pair) => {
                let server =
                    if self.scenario == Scenario::Replica { pair.map(|it| it.0) } else { Some(&self.cache) };
                let Some(server) = server else { return Ok(None) };
                leave(server, self.scaled(until.saturating_sub(at))).await?;
                "closed the connections"
            }
            (Step::Promote, Some((replica, before))) => {
                self.is_swapped.set(true);
                before.swap(&self.cache, replica).await?;
                "the replica is the primary"
            }
            (Step::Restore, Some((replica, before))) => {
                before.restore(&self.cache, replica).await?;
                self.is_swapped.set(false);
                "the replica is a replica again"
            }
            _ => return Ok(None),
        };
        Ok(Some(Report { at: now(), what, heard_by: None }))
    }
}

/// Lets a server be silent for some time. All that is connected then is closed: subscriptions, too.
async fn leave(server: &Redis, time: Duration) -> Result<()> {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut connection = server.connect().await.map_err(failed)?;
    for kind in ["pubsub", "normal"] {
        let killed = cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind).take();
        let _count: u64 = killed.query_async(&mut connection).await.map_err(failed)?;
    }
    pause(millis).query_async(&mut connection).await.map_err(failed)
}

/// All commands wait, which is the default: before Redis 6.2 there is no argument that says so.
fn pause(millis: u64) -> Cmd {
    cmd("CLIENT").arg("PAUSE").arg(millis).take()
}

/// How long the replica may take to have its primary's data again.
const RESTORED_WITHIN: Duration = Duration::from_secs(30);

/// How a replica's part is set with which it signs in at its primary.
const SIGN_IN: [&str; 2] = ["masteruser", "masterauth"];

/// Two servers as they were before the maintenance.
struct Pair {
    /// Where the replica's data comes from, which may be another replica.
    master: (String, String),
    /// What the primary has of [`SIGN_IN`], for a part as a replica. Before Redis 6 there are no users.
    sign_in: [Option<String>; 2],
}

impl Pair {
    /// Looks at two servers. Refuses those that are no pair: to make one the other's replica would remove all that it
    /// has.
    async fn find(primary: &Redis, replica: &Redis) -> Result<Self> {
        let (of_primary, of_replica) = (replication(primary).await?, replication(replica).await?);
        let has = |info, name, wanted| value(info, name).is_some_and(|value| value == wanted);
        // The id of the data that both have: addresses and ports may be those of containers.
        let id = |info| value(info, "master_replid");
        let master = value(&of_replica, "master_host").zip(value(&of_replica, "master_port"));
        let why = match master {
            Some(_) if has(&of_replica, "role", "slave") && !has(&of_replica, "master_link_status", "up") => {
                "--replica has not received the data of its primary yet; try again in some seconds"
            }
            _ if id(&of_primary).is_none() || id(&of_replica).is_none() => {
                "the servers do not say whether they have the same data (there is no master_replid in INFO); use \
                 Redis 4.0 or newer for --replica"
            }
            Some((host, port))
                if has(&of_primary, "role", "master")
                    && has(&of_replica, "role", "slave")
                    && id(&of_primary) == id(&of_replica) =>
            {
                let sign_in = [setting(primary, SIGN_IN[0]).await?, setting(primary, SIGN_IN[1]).await?];
                let pair = Self { master: (host.to_owned(), port.to_owned()), sign_in };
                pair.try_parts(primary, replica).await?;
                return Ok(pair);
            }
            _ => "--replica is no replica of the first server; start it with --replicaof HOST PORT",
        };
        Err(invalid(why.to_owned()))
    }

    /// Sends what will be sent to change the parts, while that changes nothing: a server may not let this user, and
    /// half of a change would leave two primaries.
    async fn try_parts(&self, primary: &Redis, replica: &Redis) -> Result<()> {
        self.set_parts(primary, replica).await.map_err(|error| {
            invalid(format!("the servers' parts can't be changed (failed to {error}); nothing has been done"))
        })
    }

    /// Gives both servers their parts, the second one also if the first one can't be reached.
    async fn set_parts(&self, primary: &Redis, replica: &Redis) -> Result<()> {
        let first = async {
            send::<()>(primary, cmd("REPLICAOF").arg("NO").arg("ONE")).await?;
            set_sign_in(primary, &self.sign_in).await
        };
        let (host, port) = &self.master;
        let first = first.await;
        let second = send(replica, cmd("REPLICAOF").arg(host).arg(port)).await;
        first.and(second)
    }

    /// Gives both servers their parts again, and waits until the replica has the primary's data.
    async fn restore(&self, primary: &Redis, replica: &Redis) -> Result<()> {
        self.set_parts(primary, replica).await?;
        let (host, port) = &self.master;
        let end = Instant::now() + RESTORED_WITHIN;
        while value(&replication(replica).await?, "master_link_status") != Some("up") {
            if Instant::now() >= end {
                let why = format!(
                    "the replica has no data of its primary {host}:{port} {} after it became a replica again \
                     (master_link_status is not up); see its log, and its masteruser and masterauth",
                    duration(RESTORED_WITHIN)
                );
                return Err(Error::new(ErrorKind::Unavailable, "restore the replica", why));
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Makes the replica the primary of the other, which signs in there as this command does.
    async fn swap(&self, primary: &Redis, replica: &Redis) -> Result<()> {
        let info = replica.client().get_connection_info();
        let address = info.addr().to_string();
        let (host, port) = address.rsplit_once(':').unwrap_or((&address, "6379"));
        let settings = info.redis_settings();
        let [user, password] = [settings.username(), settings.password()];
        let [has_user, has_password] = self.sign_in.each_ref().map(Option::is_some);
        let value = |it: Option<&str>, is_known: bool| is_known.then(|| it.unwrap_or_default().to_owned());
        set_sign_in(primary, &[value(user, has_user), value(password, has_password)]).await?;
        send::<()>(replica, cmd("REPLICAOF").arg("NO").arg("ONE")).await?;
        send(primary, cmd("REPLICAOF").arg(host).arg(port)).await
    }
}

async fn set_sign_in(server: &Redis, values: &[Option<String>; 2]) -> Result<()> {
    for set in sign_in(values) {
        send::<()>(server, &set).await?;
    }
    Ok(())
}

/// Before Redis 7, a command sets one parameter.
fn sign_in(values: &[Option<String>; 2]) -> impl Iterator<Item = Cmd> {
    let set = |(name, value)| Some(cmd("CONFIG").arg("SET").arg(name).arg(value?).take());
    SIGN_IN.into_iter().zip(values.iter().map(Option::as_ref)).filter_map(set)
}

/// Returns a setting; `None` if the server does not have it.
async fn setting(server: &Redis, name: &str) -> Result<Option<String>> {
    let found: Vec<String> = send(server, cmd("CONFIG").arg("GET").arg(name)).await?;
    Ok(found.into_iter().nth(1))
}

async fn replication(server: &Redis) -> Result<String> {
    send(server, cmd("INFO").arg("replication")).await
}

/// Returns a value of `INFO`.
fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let values = info.lines().filter_map(|line| line.trim_end().split_once(':'));
    values.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
}

/// Sends a command on a connection of its own: the steps close those that there are.
async fn send<T: FromRedisValue>(server: &Redis, command: &Cmd) -> Result<T> {
    let mut connection = server.connect().await.map_err(failed)?;
    command.query_async(&mut connection).await.map_err(failed)
}

fn failed(error: reprieve::redis::RedisError) -> Error {
    Error::new(ErrorKind::Unavailable, "use the cache", reprieve::redis::describe(&error)).with_source(error)
}

fn now() -> Timestamp {
    Timestamp::from_millisecond(clock::unix_millis()).unwrap_or_default()
}

impl Report {
    fn line(&self, at: Duration) -> String {
        let heard = self.heard_by.map(|count| format!(", heard by {count}")).unwrap_or_default();
        format!("{:>7}  {}{heard}\n", duration(at), self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Cmd) -> String {
        String::from_utf8_lossy(&command.get_packed_command())
            .split("\r\n")
            .skip(2)
            .step_by(2)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn what_is_sent_is_understood_by_redis_5() {
        let set = |values: [Option<&str>; 2]| {
            let values = values.map(|value| value.map(str::to_owned));
            sign_in(&values).map(|set| words(&set)).collect::<Vec<_>>()
        };
        assert_eq!(words(&pause(900)), "CLIENT PAUSE 900");
        assert_eq!(set([Some("u"), Some("p")]), ["CONFIG SET masteruser u", "CONFIG SET masterauth p"]);
        assert_eq!(set([None, Some("p")]), ["CONFIG SET masterauth p"]);
    }
}
