//! The VM's name, location and other properties, from the metadata service.

use reprieve_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value};

/// The part of the instance document that identifies this VM.
///
/// All values are strings in the document, and `""` marks a value that does not apply; here that is
/// `None`. Keys and values vary in case in Microsoft's own samples, so keys are looked up without
/// regard to case, and callers should compare values in the same way. See
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#instance-metadata>.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compute {
    /// This VM's name in `Resources`: `{set}_{number}` in a uniform scale set. Another VM may get
    /// the same name later. It is not the host name.
    pub name: String,
    /// This VM's unique id, which is never used again.
    pub vm_id: Option<String>,
    /// The Azure Resource Manager id.
    pub resource_id: Option<String>,
    /// The scale set it belongs to.
    pub vm_scale_set_name: Option<String>,
    /// The region.
    pub location: Option<String>,
    /// The availability zone.
    pub zone: Option<String>,
    /// The size, such as `Standard_D2s_v5`.
    pub vm_size: Option<String>,
    /// `Spot` or `Regular`.
    pub priority: Option<String>,
    /// `Deallocate` or `Delete` for a Spot VM.
    pub eviction_policy: Option<String>,
}

impl Compute {
    /// Parses the body of an answer.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when it is not an instance's compute document, or has no
    /// name.
    pub fn read(body: &[u8]) -> Result<Self> {
        const OPERATION: &str = "read this VM's name";
        let document: Map<String, Value> = serde_json::from_slice(body).map_err(|error| {
            let message = format!("the answer is not an instance's compute document: {error}");
            Error::new(ErrorKind::Corrupt, OPERATION, message).with_source(error)
        })?;
        let field = |key: &str| {
            let (_, value) = document.iter().find(|(found, _)| found.eq_ignore_ascii_case(key))?;
            value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
        };
        Ok(Self {
            name: field("name").ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, OPERATION, "the instance document has no name")
            })?,
            vm_id: field("vmId"),
            resource_id: field("resourceId"),
            vm_scale_set_name: field("vmScaleSetName"),
            location: field("location"),
            zone: field("zone"),
            vm_size: field("vmSize"),
            priority: field("priority"),
            eviction_policy: field("evictionPolicy"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_any_case_and_empty_values_are_none() {
        let body = br#"{"Name":"workers_3","vmId":"02aab8a4","VMScaleSetName":"workers","zone":"","Priority":"Spot","tagsList":[]}"#;
        let compute = Compute::read(body).expect("a compute document");
        assert_eq!(compute.name, "workers_3");
        assert_eq!(compute.vm_id.as_deref(), Some("02aab8a4"));
        assert_eq!(compute.vm_scale_set_name.as_deref(), Some("workers"));
        assert_eq!(compute.priority.as_deref(), Some("Spot"));
        assert_eq!(compute.zone, None);
    }

    #[test]
    fn a_document_without_a_name_is_refused() {
        for body in ["", "null", "[]", "{}", r#"{"name":""}"#, r#"{"name":7}"#, r#"{"name":null}"#] {
            assert_eq!(Compute::read(body.as_bytes()).expect_err(body).kind(), ErrorKind::Corrupt, "{body}");
        }
    }
}
