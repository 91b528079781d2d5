//! How someone reaches an API server: address, authority and token, in the forms clients want.

use k8s_openapi::ByteString;
use kube::config::AuthInfo;
use kube::{Client, Config};
use serde_json::{Value, json};

/// One user's way to one API server. It holds no connection, so it can be shared between runtimes.
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

    /// The same API server, reached with another token.
    #[must_use]
    pub fn with_token(&self, token: impl Into<String>) -> Self {
        Self { token: token.into(), ..self.clone() }
    }

    /// The same user's way to the same API server, through a proxy before it.
    #[must_use]
    pub fn through(&self, proxy: &crate::fault_proxy::FaultProxy) -> Self {
        Self { server: proxy.server(), ..self.clone() }
    }

    /// `https://127.0.0.1:<port>`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The certificate authority of the server, as PEM.
    pub fn authority(&self) -> &str {
        &self.authority_pem
    }

    /// The bearer token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A client configuration that verifies the server by the run's authority.
    pub fn config(&self) -> Config {
        let mut config = Config::new(self.server.parse().expect("the address was made from a port number"));
        config.root_cert = Some(vec![self.authority_der.clone()]);
        config.auth_info = serde_json::from_value::<AuthInfo>(json!({ "token": self.token }))
            .expect("a token alone is a valid AuthInfo");
        config
    }

    /// A new client, bound to the tokio runtime it is made in.
    pub fn client(&self) -> Client {
        Client::try_from(self.config()).expect("our own certificate and token make a valid client")
    }

    /// A self-contained kubeconfig. It is written as JSON, which is YAML.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_of(&json!({ "token": self.token }))
    }

    /// The same for who shows a certificate instead of the token.
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
