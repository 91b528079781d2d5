//! What the API server serves: the version of Cluster API, and the plural of each provider's kind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use fivespot_api::conditions::ReferencesValid;
use fivespot_planner::children::MachineVersion;
use fivespot_planner::observed::Ref;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use kube::api::ApiResource;

use crate::cluster_api::Served;
use crate::lock::lock;
use crate::trouble::{MANAGEMENT, Trouble, is_not_found, within};

/// The best version of Cluster API that the API server serves and that we can write; `None` if it serves none.
pub(crate) async fn served(client: &Client) -> Result<Option<Served>, Trouble> {
    let what = "cannot ask for the version of Cluster API";
    for version in MachineVersion::ALL {
        match within(MANAGEMENT, what, client.list_api_group_resources(&version.api_version())).await? {
            Ok(list) if list.resources.iter().any(|it| it.kind == "Machine") => return Ok(Some(Served::new(version))),
            Ok(_) => {}
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(Trouble::of(what, &error)),
        }
    }
    Ok(None)
}

/// The kinds of providers. What has been found is remembered; what has not is asked for each time.
pub(crate) struct Kinds {
    client: Client,
    groups: Mutex<HashMap<String, Arc<APIResourceList>>>,
}

impl Kinds {
    pub(crate) fn new(client: Client) -> Self {
        Kinds { client, groups: Mutex::default() }
    }

    /// What a client needs to know of a kind.
    pub(crate) async fn find(&self, of: &Ref) -> Result<ApiResource, Trouble> {
        if let Some(found) = self.remembered(of) {
            return Ok(found);
        }
        let what = format!("cannot look for {} in {}", of.kind, of.api_version);
        let list = match within(MANAGEMENT, &what, self.client.list_api_group_resources(&of.api_version)).await? {
            Ok(list) => list,
            Err(error) if is_not_found(&error) => return Err(not_found(of)),
            Err(error) => return Err(Trouble::of(&what, &error)),
        };
        let found = resource(&list, of);
        if found.is_some() {
            let mut groups = lock(&self.groups);
            groups.insert(of.api_version.clone(), Arc::new(list));
        }
        found.ok_or_else(|| not_found(of))
    }

    /// The same, of an object that was made some time ago: its provider may serve another version since then.
    pub(crate) async fn find_in_any_version(&self, of: &Ref) -> Result<ApiResource, Trouble> {
        let missing = match self.find(of).await {
            Err(trouble @ Trouble::Refused { references: Some(ReferencesValid::KindNotFound), .. }) => trouble,
            found => return found,
        };
        let what = format!("cannot look for {}", of.kind);
        let groups = within(MANAGEMENT, &what, self.client.list_api_groups()).await?;
        let groups = groups.map_err(|error| Trouble::of(&what, &error))?.groups;
        let group = of.api_version.split_once('/').map_or("", |(group, _)| group);
        for version in groups.into_iter().filter(|it| it.name == group).flat_map(|it| it.versions) {
            let other = Ref { api_version: version.group_version, ..of.clone() };
            match self.find(&other).await {
                Err(Trouble::Refused { references: Some(ReferencesValid::KindNotFound), .. }) => {}
                // An answer that did not come says nothing of what is there.
                answer => return answer,
            }
        }
        Err(missing)
    }

    /// Forgets a group that turned out not to be served any more.
    pub(crate) fn forget(&self, of: &Ref) {
        lock(&self.groups).remove(&of.api_version);
    }

    fn remembered(&self, of: &Ref) -> Option<ApiResource> {
        let list = lock(&self.groups).get(&of.api_version).cloned();
        list.and_then(|it| resource(&it, of))
    }
}

fn resource(list: &APIResourceList, of: &Ref) -> Option<ApiResource> {
    let found = list.resources.iter().find(|it| it.kind == of.kind && it.namespaced && !it.name.contains('/'))?;
    let (group, version) = of.api_version.split_once('/').unwrap_or(("", &of.api_version));
    Some(ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: of.api_version.clone(),
        kind: of.kind.clone(),
        plural: found.name.clone(),
    })
}

fn not_found(of: &Ref) -> Trouble {
    Trouble::Refused {
        why: format!(
            "the API server serves no namespaced kind {} in {}: install the provider, or mend the spec",
            of.kind, of.api_version
        ),
        references: Some(ReferencesValid::KindNotFound),
    }
}
