//! The written form of an event, for scenario steps and the control API.

use std::fmt;
use std::time::Duration;

use reprieve_azure::scheduled_events::document::EventType;
use reprieve_core::ErrorKind;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::announcement::{Announcement, OtherTenants};
use super::refusal::{Refusal, refuse};
use super::span::Span;

/// An event to announce. Only its type and its VMs are required.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventPlan {
    /// The type.
    #[serde(rename = "type", serialize_with = "write_type", deserialize_with = "read_type")]
    pub event_type: EventType,
    /// The affected VMs: names, which need not be the mock's own; `@target`, the VM for which the
    /// scenario runs; `@first`, the set's first; `@all`, all VMs.
    pub vms: Vec<String>,
    /// Time until it begins. Default: Azure's documented minimum for its type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Span>,
    /// Whether it first appears when it has begun, without notice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
    /// The announced length of the interruption. Default: unknown, -1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// `Platform`, the default, or `User`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// A description for people. Default: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How long it stays in the document after it began. Default: the mock's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_for: Option<Span>,
    /// Whether other tenants of the host delay it until its `NotBefore` although it is approved, or
    /// for how long. Default: no delay.
    #[serde(default)]
    pub other_tenants: TenantDelay,
    /// Whether its VMs are removed when it begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// Its id. Default: a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// The text of its `NotBefore`. Default: the time at which it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// Its label for later steps of the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// How long other tenants delay an event: `true`, `false`, or a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantDelay(pub OtherTenants);

/// The VMs to which `@target`, `@first` and `@all` refer.
#[derive(Debug)]
pub(super) struct VmNames<'a> {
    pub(super) all: Vec<&'a str>,
    pub(super) target: Option<&'a str>,
}

impl EventPlan {
    /// Returns an event of this type for these VMs.
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
            other_tenants: TenantDelay::default(),
            gone: false,
            event_id: None,
            not_before: None,
            label: None,
        }
    }

    /// Checks the plan without resolving its VMs.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.vms.is_empty() {
            return refuse(ErrorKind::Invalid, "an event needs at least one VM in \"vms\"");
        }
        if self.started && (self.notice.is_some() || self.not_before.is_some()) {
            return refuse(ErrorKind::Invalid, "a started event can't have a notice or a NotBefore");
        }
        if self.started && self.event_type == EventType::SpotRebalanceRecommendation {
            return refuse(ErrorKind::Invalid, "a recommendation does not start");
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

    /// Returns the event that the plan describes.
    pub(super) fn announcement(&self, vm_names: &VmNames<'_>) -> Result<Announcement, Refusal> {
        self.check()?;
        let mut resources = Vec::new();
        for vm in &self.vms {
            resources.extend(vm_names.vms(vm)?);
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

impl VmNames<'_> {
    /// Returns the names to which `name` refers.
    pub(super) fn vms(&self, name: &str) -> Result<Vec<String>, Refusal> {
        let of_set = |vms: &[&str]| {
            if vms.is_empty() {
                return refuse(ErrorKind::NotFound, format!("{name} matches no VM, because there are none"));
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
        let message = format!("{name:?} is not a VM; use a name, @target, @first or @all");
        return refuse(ErrorKind::Invalid, message);
    }
    Ok(())
}

/// Returns the shortest documented notice. None is documented for a recommendation, which gets ten
/// minutes here.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-properties>
fn minimum_notice(event_type: &EventType) -> Duration {
    Duration::from_secs(match event_type {
        EventType::Preempt => 30,
        EventType::Terminate => 5 * 60,
        EventType::Redeploy | EventType::SpotRebalanceRecommendation => 10 * 60,
        EventType::Freeze | EventType::Reboot | EventType::Other(_) => 15 * 60,
    })
}

/// Returns the type called `name`, in any case.
///
/// # Errors
/// A sentence with all valid types.
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

impl Serialize for TenantDelay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            OtherTenants::None => serializer.serialize_bool(false),
            OtherTenants::Silent => serializer.serialize_bool(true),
            OtherTenants::ApproveAfter(span) => Span(span).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for TenantDelay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BoolOrSpan;
        impl Visitor<'_> for BoolOrSpan {
            type Value = TenantDelay;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or a duration")
            }

            fn visit_bool<E>(self, held: bool) -> Result<TenantDelay, E> {
                Ok(TenantDelay(if held { OtherTenants::Silent } else { OtherTenants::None }))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TenantDelay, E> {
                let span = Span::try_from(text.to_owned()).map_err(E::custom)?;
                Ok(TenantDelay(OtherTenants::ApproveAfter(span.0)))
            }
        }
        deserializer.deserialize_any(BoolOrSpan)
    }
}
