//! The VMs of the set.

use reprieve_core::ErrorKind;
use uuid::Uuid;

use super::World;
use crate::metadata::moment::Moment;
use crate::metadata::refusal::{Refusal, refuse};
use crate::metadata::state::{Entry, VmState, What};

/// A VM of the set.
#[derive(Debug, Clone)]
pub(in crate::metadata) struct Vm {
    pub(in crate::metadata) name: String,
    /// Never reused, unlike the name.
    pub(in crate::metadata) id: Uuid,
    polls: u64,
    last_poll_unix_ms: Option<i64>,
}

impl Vm {
    pub(super) fn state(&self) -> VmState {
        VmState {
            name: self.name.clone(),
            vm_id: self.id.to_string(),
            path: format!("/vm/{}", self.name),
            url: String::new(),
            polls: self.polls,
            last_poll_unix_ms: self.last_poll_unix_ms,
        }
    }
}

impl World {
    /// Returns the VM called `name`, or the first one.
    pub(in crate::metadata) fn vm(&self, name: Option<&str>) -> Option<&Vm> {
        match name {
            None => self.vms.first(),
            Some(name) => self.vms.iter().find(|vm| vm.name.eq_ignore_ascii_case(name)),
        }
    }

    /// Returns the VM with this id.
    pub(in crate::metadata) fn vm_with_id(&self, id: Uuid) -> Option<&Vm> {
        self.vms.iter().find(|vm| vm.id == id)
    }

    /// Counts a poll of the VM.
    pub(in crate::metadata) fn count_poll(&mut self, id: Uuid, now: Moment) {
        if let Some(vm) = self.vms.iter_mut().find(|vm| vm.id == id) {
            vm.polls += 1;
            vm.last_poll_unix_ms = Some(now.unix_ms());
        }
    }

    /// Adds a VM under a name that Azure would accept, and returns its id.
    /// <https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftcompute>
    pub(in crate::metadata) fn add_vm(&mut self, name: &str, now: Moment) -> Result<Uuid, Refusal> {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        let ends_well = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && !name.ends_with(['.', '-']);
        if !plain || !ends_well || name.len() > 64 {
            return refuse(
                ErrorKind::Invalid,
                format!(
                    "{name:?} can't be a VM's name: 1 to 64 letters, digits, -, _ and ., beginning with a letter or digit"
                ),
            );
        }
        if self.vm(Some(name)).is_some() {
            return refuse(ErrorKind::Conflict, format!("there is a VM called {name:?} already"));
        }
        let id = Uuid::now_v7();
        self.vms.push(Vm { name: name.to_owned(), id, polls: 0, last_poll_unix_ms: None });
        self.note(Entry { vms: vec![name.to_owned()], ..Entry::new(now, What::VmAdded) });
        Ok(id)
    }

    /// Removes a VM. Its events stay, as they do for its neighbours in Azure, until they end.
    pub(in crate::metadata) fn remove_vm(&mut self, name: &str, now: Moment) -> Result<(), Refusal> {
        let name = self.known(name)?;
        self.vms.retain(|vm| vm.name != name);
        self.note(Entry { vms: vec![name], ..Entry::new(now, What::VmGone) });
        Ok(())
    }

    /// Returns the VM's name as it is spelled in the set.
    pub(super) fn known(&self, name: &str) -> Result<String, Refusal> {
        if let Some(vm) = self.vm(Some(name)) {
            return Ok(vm.name.clone());
        }
        let names: Vec<_> = self.vms.iter().map(|vm| vm.name.as_str()).collect();
        refuse(
            ErrorKind::NotFound,
            format!("there is no VM called {name:?}; there are: {}", names.join(", ")),
        )
    }
}
