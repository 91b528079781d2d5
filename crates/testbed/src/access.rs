//! Address, certificate authority and token of an API server, as client configuration or kubeconfig.

use k8s_openapi::ByteString;
use kube::config::AuthInfo;
use kube::{Client, Config};
use serde_json::{Value, json};

/// Credentials of one user at one API server. Holds no connection, so runtimes can share it.
#[derive(Debug, Clone)]
pub struct Access {
    server: String,
    authority_pem: String,
    authority_der: Vec<u8>,
    token: String,
}

impl Access {
    pub(crate) fn new(server: String, authority: &crate::certificates::Authority, token: String) -> Self {
        Self { server, authority_pem: authority.pem(), authority_der: authority.der(), token }
    }

    /// The same API server with another token.
    #[must_use]
    pub fn with_token(&self, token: impl Into<String>) -> Self {
        Self { token: token.into(), ..self.clone() }
    }

    /// The same user and API server, through a proxy.
    #[must_use]
    pub fn through(&self, proxy: &crate::fault_proxy::FaultProxy) -> Self {
        Self { server: proxy.server(), ..self.clone() }
    }

    /// `https://127.0.0.1:<port>`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The server's certificate authority, as PEM.
    pub fn authority(&self) -> &str {
        &self.authority_pem
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    /// A client configuration that trusts only this run's certificate authority.
    pub fn config(&self) -> Config {
        let mut config = Config::new(self.server.parse().expect("an address built from a port number is a valid URI"));
        config.root_cert = Some(vec![self.authority_der.clone()]);
        config.auth_info = serde_json::from_value::<AuthInfo>(json!({ "token": self.token }))
            .expect("a token alone is a valid AuthInfo");
        config
    }

    /// A new client, bound to the current tokio runtime.
    pub fn client(&self) -> Client {
        Client::try_from(self.config()).expect("a generated certificate and token make a valid client")
    }

    /// A self-contained kubeconfig, as JSON (a subset of YAML).
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_of(&json!({ "token": self.token }))
    }

    /// A kubeconfig with a client certificate instead of the token.
    pub(crate) fn kubeconfig_with(&self, identity: &crate::certificates::Identity) -> String {
        self.kubeconfig_of(&json!({
            "client-certificate-data": ByteString(identity.certificate.clone().into_bytes()),
            "client-key-data": ByteString(identity.key.clone().into_bytes()),
        }))
    }

    fn kubeconfig_of(&self, user: &Value) -> String {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "clusters": [{ "name": "testbed", "cluster": {
                "server": self.server,
                "certificate-authority-data": ByteString(self.authority_pem.clone().into_bytes()),
            } }],
            "users": [{ "name": "testbed", "user": user }],
            "contexts": [{ "name": "testbed", "context": { "cluster": "testbed", "user": "testbed" } }],
        });
        format!("{kubeconfig:#}\n")
    }
}
