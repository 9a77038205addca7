//! The command line of a worker, and of programs that only use its store.

use clap::Args;

use super::given::{AnyText, Given};

/// Which store and queue: `--store`, `--queue`, `--container` and `--config`, with their environment variables and their keys in
/// `reprieve.toml`. To be flattened into a command of one's own; see [`Client::open`](crate::Client::open).
///
/// The default is what an empty command line says where no variable is set: the file, and the defaults.
#[derive(Debug, Clone, Default, Args)]
#[expect(clippy::doc_markdown, reason = "the fields' docs are --help, which is no Markdown")]
pub struct StoreArgs {
    /// Where jobs and their progress are kept [default: sqlite:reprieve.db]
    ///
    /// sqlite:PATH is one file, made when it does not exist and shared by all processes of this machine. A commit
    /// survives a power loss. With sqlite:PATH?durability=process it survives only the death of the process, and is
    /// faster.
    ///
    /// azure:ACCOUNT is a storage account, entered with this machine's identity: workload identity where it is set up,
    /// else managed identity (azure:ACCOUNT?client_id=ID where the VM has several), else the Azure CLI's login. It needs
    /// the roles Storage Queue Data Contributor and Storage Blob Data Contributor. azurite is the emulator on this machine. A
    /// connection string or a SAS (azure:ACCOUNT?sv=…&sig=…) is a secret, and read from REPRIEVE_STORE or the
    /// settings file only.
    #[arg(long, value_name = "ADDRESS", env = "REPRIEVE_STORE", hide_env_values = true, value_parser = AnyText)]
    pub(crate) store: Option<Box<Given>>,

    /// The queue: 3 to 56 of a-z, 0-9 and single hyphens [default: default]
    ///
    /// Several are one queue of more throughput: names with commas between them, or a pattern in quotes such as
    /// 'work-{0..7}'. Jobs that can't be done go to the queue NAME-poison.
    #[arg(long, value_name = "NAMES", env = "REPRIEVE_QUEUE", hide_env_values = true, value_parser = AnyText)]
    pub(crate) queue: Option<Box<Given>>,

    /// The blob container of a store in Azure: 3 to 63 of a-z, 0-9 and single hyphens [default: reprieve]
    ///
    /// It has inputs, outputs and progress. Everyone who uses a queue must name the same one.
    #[arg(long, value_name = "NAME", env = "REPRIEVE_CONTAINER", hide_env_values = true, value_parser = AnyText)]
    pub(crate) container: Option<Box<Given>>,

    /// The settings file [default: reprieve.toml, if there is one]
    ///
    /// Its keys are the long options. A flag wins over the environment, and the environment over the file.
    #[arg(long, value_name = "PATH", env = "REPRIEVE_CONFIG", hide_env_values = true, value_parser = AnyText)]
    pub(crate) config: Option<Box<Given>>,
}

/// All settings of a worker: flags, with their environment variables and their keys in `reprieve.toml`. To be flattened
/// into a command of one's own; see [`work`](crate::work).
///
/// The default is what an empty command line says where no variable is set: the file, and the defaults.
#[derive(Debug, Clone, Default, Args)]
#[expect(clippy::doc_markdown, reason = "the fields' docs are --help, which is no Markdown")]
pub struct WorkerArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The kind of job that a message means which is JSON and names none [default: none]
    ///
    /// Such a message is the job's arguments. Without it, it goes to the poison queue.
    #[arg(long, value_name = "KIND", env = "REPRIEVE_DEFAULT_KIND", hide_env_values = true, value_parser = AnyText)]
    pub(crate) default_kind: Option<Box<Given>>,

    /// How long a message is deferred that no worker can use yet, before it goes to the poison queue [default: 24h]
    ///
    /// For a kind that no worker knows, state of a newer binary, and a body that can't be read: deploy a worker that
    /// knows it meanwhile. Arguments or state that do not fit a known kind are deferred for 10 minutes, or this if it is
    /// less. Deferred messages are in `reprieve status`. At most 720h.
    #[arg(long, value_name = "DURATION", env = "REPRIEVE_UNKNOWN_KIND_AFTER", hide_env_values = true, value_parser = AnyText)]
    pub(crate) unknown_kind_after: Option<Box<Given>>,

    /// How long a finished job is remembered, so that a second message of it does not run it again [default: 0s]
    ///
    /// A job with a result, with long arguments, or that was redriven is remembered without this. It costs a read before
    /// and a write after each job. At most 8760h.
    #[arg(long, value_name = "DURATION", env = "REPRIEVE_REMEMBER_DONE", hide_env_values = true, value_parser = AnyText)]
    pub(crate) remember_done: Option<Box<Given>>,

    /// The instance metadata service, which announces evictions; off outside Azure [default: http://169.254.169.254]
    ///
    /// The default is its address in every Azure VM. No job is taken before it has answered.
    #[arg(long, value_name = "URL|off", env = "REPRIEVE_METADATA_URL", hide_env_values = true, value_parser = AnyText)]
    pub(crate) metadata_url: Option<Box<Given>>,

    /// What Azure calls this VM [default: as the metadata service says]
    ///
    /// It tells the evictions of this VM from those of its neighbours.
    #[arg(long, value_name = "NAME", env = "REPRIEVE_VM_NAME", hide_env_values = true, value_parser = AnyText)]
    pub(crate) vm_name: Option<Box<Given>>,

    /// How many jobs run at once, 1 to 4096 [default: auto]
    ///
    /// auto is the number of cores, which is right for jobs that compute.
    #[arg(long, value_name = "NUMBER|auto", env = "REPRIEVE_CONCURRENCY", hide_env_values = true, value_parser = AnyText)]
    pub(crate) concurrency: Option<Box<Given>>,

    /// The longest a drain may take, at least 100ms [default: 10s]
    ///
    /// A drain gives back all jobs, when the VM is about to go or the process is told to stop. 10 seconds, because a
    /// notice of 30 is often much shorter.
    #[arg(long, value_name = "DURATION", env = "REPRIEVE_BUDGET", hide_env_values = true, value_parser = AnyText)]
    pub(crate) budget: Option<Box<Given>>,

    /// How long a job stays held after its last renewal, 1s to 168h [default: 60s]
    ///
    /// It is how long a job waits when its machine died unannounced, against one renewal per third of it. At least 1.5
    /// times the budget, so that it outlasts a drain.
    #[arg(long, value_name = "DURATION", env = "REPRIEVE_LEASE", hide_env_values = true, value_parser = AnyText)]
    pub(crate) lease: Option<Box<Given>>,

    /// How often a job's progress is saved, 0s to 24h [default: auto]
    ///
    /// auto is between 5s and 10m, by what a save costs. 0s saves after every step.
    #[arg(
        long,
        value_name = "DURATION|auto",
        env = "REPRIEVE_CHECKPOINT_EVERY",
        hide_env_values = true,
        value_parser = AnyText
    )]
    pub(crate) checkpoint_every: Option<Box<Given>>,

    /// Who approves events, so that they begin before their time: never, sole, leader or any [default: sole]
    ///
    /// An approval covers every VM that the event names. sole approves an event that names this VM alone, once every
    /// worker on it has marked itself ready in the store. leader does so too, and the first VM that an event for several
    /// names approves it, once every worker on all of them is ready. any approves whatever names this VM, whether the
    /// others are ready or not. An eviction (Preempt) is never approved.
    #[arg(long, value_name = "WHO", env = "REPRIEVE_APPROVE", hide_env_values = true, value_parser = AnyText)]
    pub(crate) approve: Option<Box<Given>>,

    /// When an event is approved that a user began: drained or at-once [default: drained]
    ///
    /// drained is when all jobs are given back, which begins at once; at-once does not wait for that.
    #[arg(long, value_name = "WHEN", env = "REPRIEVE_APPROVE_USER", hide_env_values = true, value_parser = AnyText)]
    pub(crate) approve_user: Option<Box<Given>>,

    /// Freezes known to be shorter than this are approved at once, 0s to 5m [default: 10s]
    ///
    /// Jobs go on, under leases that outlast the freeze. For one that is longer, or of unknown length, they rest, and it
    /// is left to begin by itself. With 0s none is short.
    #[arg(
        long,
        value_name = "DURATION",
        env = "REPRIEVE_APPROVE_FREEZE_UNDER",
        hide_env_values = true,
        value_parser = AnyText
    )]
    pub(crate) approve_freeze_under: Option<Box<Given>>,

    /// How long an approval waits until all other workers are ready, 0s to 1h [default: 5m]
    ///
    /// After that the event is left to begin by itself.
    #[arg(long, value_name = "DURATION", env = "REPRIEVE_APPROVE_WAIT", hide_env_values = true, value_parser = AnyText)]
    pub(crate) approve_wait: Option<Box<Given>>,

    /// What to do when this VM is to be moved because its host will fail within days: warn or drain [default: warn]
    ///
    /// warn goes on working and says that redeploying early is safer. drain gives back all jobs and approves the move now.
    #[arg(
        long,
        value_name = "WHAT",
        env = "REPRIEVE_PREDICTED_FAILURE",
        hide_env_values = true,
        value_parser = AnyText
    )]
    pub(crate) predicted_failure: Option<Box<Given>>,

    /// The address of /healthz, /readyz and /metrics, such as 127.0.0.1:9090 [default: off]
    ///
    /// They have no access control, so they are off until asked for.
    #[arg(long, value_name = "IP:PORT|off", env = "REPRIEVE_LISTEN", hide_env_values = true, value_parser = AnyText)]
    pub(crate) listen: Option<Box<Given>>,

    /// How the log on stderr is written: text or json [default: text on a terminal, else json]
    #[arg(long, value_name = "FORMAT", env = "REPRIEVE_LOG_FORMAT", hide_env_values = true, value_parser = AnyText)]
    pub(crate) log_format: Option<Box<Given>>,

    /// What is logged: error, warn, info, debug or trace [default: info]
    ///
    /// Also per part of the program, as in info,reprieve_core=debug.
    #[arg(long, value_name = "FILTER", env = "REPRIEVE_LOG", hide_env_values = true, value_parser = AnyText)]
    pub(crate) log: Option<Box<Given>>,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    /// Works.
    #[derive(Debug, Parser)]
    struct Own {
        #[command(flatten)]
        worker: WorkerArgs,
    }

    #[derive(Debug, Parser)]
    enum Commands {
        /// Works, too.
        Work(WorkerArgs),
        /// Enqueues.
        Enqueue(StoreArgs),
    }

    #[test]
    fn a_command_keeps_its_own_description() {
        assert_eq!(Own::command().get_about().map(ToString::to_string).as_deref(), Some("Works"));
        assert_eq!(Own::command().get_long_about(), None);
        let commands = Commands::command();
        let about =
            |name| commands.find_subcommand(name).and_then(|one| one.get_about()).map(ToString::to_string);
        assert_eq!(about("work").as_deref(), Some("Works, too"));
        assert_eq!(about("enqueue").as_deref(), Some("Enqueues"));
        assert!(commands.get_subcommands().all(|one| one.get_long_about().is_none()));
    }

    #[test]
    fn every_setting_has_a_flag_a_variable_and_a_key_of_the_same_name() {
        let command = Own::command();
        for arg in command.get_arguments().filter(|arg| arg.get_id() != "help") {
            let flag = arg.get_long().expect("every setting is a flag");
            let env = arg.get_env().and_then(|env| env.to_str()).expect("every setting has a variable");
            assert_eq!(env, format!("REPRIEVE_{}", flag.to_uppercase().replace('-', "_")));
            assert_eq!(crate::settings::file::KEYS.contains(&flag), flag != "config", "{flag}");
            assert!(arg.is_hide_env_values_set(), "{flag}: its value may be a secret");
            let help = arg.get_help().expect("every setting is explained").to_string();
            assert!(help.contains("[default: "), "{flag}: {help}");
        }
        assert_eq!(command.get_arguments().count(), crate::settings::file::KEYS.len() + 1);
    }

    #[test]
    fn a_store_address_never_shows_in_debug_output() {
        let own = Own::parse_from(["own", "--store", "AccountKey=hunter2"]);
        assert!(!format!("{own:?}").contains("hunter2"));
    }
}
