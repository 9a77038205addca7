//! An event as it is written down: in a step of a scenario, and in the control API.

use std::fmt;
use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_core::ErrorKind;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::announcement::{Announcement, OtherTenants};
use super::refusal::{Refusal, refuse};
use super::span::Span;

/// An event to be announced. All but its type and its VMs may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventPlan {
    /// What will happen.
    #[serde(rename = "type", serialize_with = "write_type", deserialize_with = "read_type")]
    pub event_type: EventType,
    /// To which VMs: names, which need not be the mock's own; `@target`, the one that the scenario is run for; `@first`,
    /// the set's first; `@all`, all there are.
    pub vms: Vec<String>,
    /// How long before it begins. Default: the minimum that Azure documents for its type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Span>,
    /// Whether it is first seen when it has begun, without any notice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
    /// How long it is said to interrupt the VM. Default: unknown, -1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// `Platform`, the default, or `User`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Words for people. Default: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How long it is still told after it began. Default: what the mock was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_for: Option<Span>,
    /// Whether other tenants of the host hold it until its `NotBefore` though it is approved, or for how long. Default:
    /// they do not.
    #[serde(default)]
    pub other_tenants: Held,
    /// Whether the VMs it names are gone when it begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// Its id. Default: a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// What its `NotBefore` says, literally. Default: when it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// What later steps of the scenario call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// How long other tenants hold an event: `true`, `false`, or a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held(pub OtherTenants);

/// The VMs that `@target`, `@first` and `@all` stand for.
#[derive(Debug)]
pub(super) struct Cast<'a> {
    pub(super) all: Vec<&'a str>,
    pub(super) target: Option<&'a str>,
}

impl EventPlan {
    /// An event of this type for these VMs.
    #[must_use]
    pub fn new(event_type: EventType, vms: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            event_type,
            vms: vms.into_iter().map(Into::into).collect(),
            notice: None,
            started: false,
            duration: None,
            source: None,
            description: String::new(),
            started_for: None,
            other_tenants: Held::default(),
            gone: false,
            event_id: None,
            not_before: None,
            label: None,
        }
    }

    /// What can be said against it whoever the VMs are.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.vms.is_empty() {
            return refuse(ErrorKind::Invalid, "an event needs at least one VM in \"vms\"");
        }
        if self.started && (self.notice.is_some() || self.not_before.is_some()) {
            return refuse(
                ErrorKind::Invalid,
                "an event that has started gives no notice and has no NotBefore",
            );
        }
        if self.started && self.event_type == EventType::SpotRebalanceRecommendation {
            return refuse(ErrorKind::Invalid, "an advice does not start");
        }
        if let Some(source) = &self.source
            && !matches!(source.as_str(), "Platform" | "User")
        {
            return refuse(
                ErrorKind::Invalid,
                format!("{source:?} is no source; there are Platform and User"),
            );
        }
        if self.event_id.as_ref().is_some_and(|id| id.trim().is_empty()) {
            return refuse(ErrorKind::Invalid, "an event's id must not be blank");
        }
        self.vms.iter().try_for_each(|vm| check_vm(vm))
    }

    /// The event that is meant.
    pub(super) fn announcement(&self, cast: &Cast<'_>) -> Result<Announcement, Refusal> {
        self.check()?;
        let mut resources = Vec::new();
        for vm in &self.vms {
            resources.extend(cast.vms(vm)?);
        }
        let notice = self.notice.map_or_else(|| minimum_notice(&self.event_type), |notice| notice.0);
        Ok(Announcement {
            event_type: self.event_type.clone(),
            resources,
            notice: (!self.started).then_some(notice),
            source: self.source.clone().unwrap_or_else(|| "Platform".to_owned()),
            description: self.description.clone(),
            duration: self.duration.map(|duration| duration.0),
            started_for: self.started_for.map(|span| span.0),
            other_tenants: self.other_tenants.0,
            gone: self.gone,
            event_id: self.event_id.clone(),
            not_before: self.not_before.clone(),
        })
    }
}

impl Cast<'_> {
    /// The names that `name` stands for.
    pub(super) fn vms(&self, name: &str) -> Result<Vec<String>, Refusal> {
        let of_set = |vms: &[&str]| {
            if vms.is_empty() {
                return refuse(ErrorKind::NotFound, format!("{name} is nobody, for there are no VMs"));
            }
            Ok(vms.iter().map(|&vm| vm.to_owned()).collect())
        };
        match name {
            "@all" => of_set(&self.all),
            "@first" => of_set(&self.all[..self.all.len().min(1)]),
            "@target" => match self.target {
                Some(target) => Ok(vec![target.to_owned()]),
                None => refuse(ErrorKind::Invalid, "only a scenario has a @target"),
            },
            name => {
                check_vm(name)?;
                Ok(vec![name.to_owned()])
            }
        }
    }
}

fn check_vm(name: &str) -> Result<(), Refusal> {
    if name.trim().is_empty() || (name.starts_with('@') && !matches!(name, "@all" | "@first" | "@target")) {
        let message = format!("{name:?} is no VM; there are names, @target, @first and @all");
        return refuse(ErrorKind::Invalid, message);
    }
    Ok(())
}

/// The shortest notice that is documented. For an advice none is; it is given half an hour at most.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-properties>
fn minimum_notice(event_type: &EventType) -> Duration {
    Duration::from_secs(match event_type {
        EventType::Preempt => 30,
        EventType::Terminate => 5 * 60,
        EventType::Redeploy | EventType::SpotRebalanceRecommendation => 10 * 60,
        EventType::Freeze | EventType::Reboot | EventType::Other(_) => 15 * 60,
    })
}

/// The type called `name`, in any case.
///
/// # Errors
/// A sentence with the types there are.
pub fn event_type(name: &str) -> Result<EventType, String> {
    const NAMES: [&str; 6] =
        ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "SpotRebalanceRecommendation"];
    match NAMES.iter().find(|known| known.eq_ignore_ascii_case(name)) {
        Some(known) => Ok(EventType::from((*known).to_owned())),
        None => Err(format!("{name:?} is no type of event; there are {}", NAMES.join(", "))),
    }
}

fn write_type<S: Serializer>(event_type: &EventType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(event_type.as_str())
}

fn read_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EventType, D::Error> {
    event_type(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

impl Serialize for Held {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            OtherTenants::None => serializer.serialize_bool(false),
            OtherTenants::Silent => serializer.serialize_bool(true),
            OtherTenants::ApproveAfter(span) => Span(span).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Held {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BoolOrSpan;
        impl Visitor<'_> for BoolOrSpan {
            type Value = Held;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or a duration")
            }

            fn visit_bool<E>(self, held: bool) -> Result<Held, E> {
                Ok(Held(if held { OtherTenants::Silent } else { OtherTenants::None }))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Held, E> {
                let span = Span::try_from(text.to_owned()).map_err(E::custom)?;
                Ok(Held(OtherTenants::ApproveAfter(span.0)))
            }
        }
        deserializer.deserialize_any(BoolOrSpan)
    }
}
