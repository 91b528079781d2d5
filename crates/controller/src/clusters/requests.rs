//! Requests about single objects of a workload cluster.
//!
//! A server that belongs to a tenant may send any object. One with another name than was requested is no valid response: it
//! would be cached under that name.

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::wire::{WorkloadConfigMap, WorkloadNode};

pub(super) async fn get_node(client: &Client, name: &str) -> Result<Option<Node>, kube::Error> {
    let nodes: Api<WorkloadNode> = Api::all(client.clone());
    nodes.get_opt(name).await?.map(|node| expect_name(node.0, name)).transpose()
}

pub(super) async fn patch_node(
    client: &Client,
    name: &str,
    params: &PatchParams,
    patch: &Value,
) -> Result<Node, kube::Error> {
    let nodes: Api<WorkloadNode> = Api::all(client.clone());
    expect_name(nodes.patch(name, params, &Patch::Merge(patch)).await?.0, name)
}

/// The ConfigMaps of one namespace.
pub(crate) struct ConfigMaps {
    api: Api<WorkloadConfigMap>,
    namespace: String,
}

impl ConfigMaps {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        ConfigMaps { api: Api::namespaced(client, namespace), namespace: namespace.to_owned() }
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Option<ConfigMap>, kube::Error> {
        self.api.get_opt(name).await?.map(|config| self.expect(config, name)).transpose()
    }

    pub(crate) async fn create(&self, params: &PostParams, config: ConfigMap) -> Result<ConfigMap, kube::Error> {
        let name = config.name_any();
        self.expect(self.api.create(params, &WorkloadConfigMap(config)).await?, &name)
    }

    pub(crate) async fn patch(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Value,
    ) -> Result<ConfigMap, kube::Error> {
        self.expect(self.api.patch(name, params, &Patch::Merge(patch)).await?, name)
    }

    fn expect(&self, WorkloadConfigMap(config): WorkloadConfigMap, name: &str) -> Result<ConfigMap, kube::Error> {
        if config.namespace().as_deref() == Some(&*self.namespace) {
            expect_name(config, name)
        } else {
            Err(another_object())
        }
    }
}

fn expect_name<K: ResourceExt>(object: K, name: &str) -> Result<K, kube::Error> {
    if object.name_any() == name { Ok(object) } else { Err(another_object()) }
}

fn another_object() -> kube::Error {
    kube::Error::SerdeError(serde::de::Error::custom("the response is about another object"))
}

#[cfg(test)]
pub(super) mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A client whose server sends the same response to each request.
    pub(in crate::clusters) fn client(response: &Value) -> Client {
        let response = response.to_string();
        responding_client(move |_| response.clone())
    }

    /// A client whose server responds to a path and query.
    pub(in crate::clusters) fn responding_client(respond: impl Fn(&str) -> String + Clone + Send + 'static) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            let body = Body::from(respond(&path).into_bytes());
            async move { Ok::<_, std::convert::Infallible>(Response::new(body)) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn response_about_another_object_is_invalid() {
        let named = |namespace: &str, name: &str| json!({ "metadata": { "namespace": namespace, "name": name } });
        let config = || ConfigMap {
            metadata: kube::core::ObjectMeta { name: Some("c1".to_owned()), ..Default::default() },
            ..ConfigMap::default()
        };
        let (post, patch) = (PostParams::default(), PatchParams::default());
        for response in [json!({}), named("agents", "other"), named("other", "c1"), named("agents", "")] {
            let client = client(&response);
            get_node(&client, "n1").await.unwrap_err();
            patch_node(&client, "n1", &patch, &json!({})).await.unwrap_err();
            let config_maps = ConfigMaps::new(client, "agents");
            config_maps.get("c1").await.unwrap_err();
            config_maps.create(&post, config()).await.unwrap_err();
            config_maps.patch("c1", &patch, &json!({})).await.unwrap_err();
        }
        let node = get_node(&client(&named("any", "n1")), "n1").await.unwrap().unwrap();
        assert_eq!((node.name_any().as_str(), node.namespace()), ("n1", None));
        ConfigMaps::new(client(&named("agents", "c1")), "agents").create(&post, config()).await.unwrap();
    }
}
