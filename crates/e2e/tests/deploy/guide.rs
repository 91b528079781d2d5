//! The commands of `docs/how-to/install.md`, run as they stand there.

use std::fs;
use std::process::{Command, Output};

use fivespot_testbed::ControlPlane;
use fivespot_testbed::control_plane::ADMIN;

use crate::rendered::{helm, root, succeeded};

/// The commands of the shell blocks under a heading, up to the next one.
pub(crate) fn commands(heading: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/how-to/install.md")).unwrap();
    let section =
        page.split("\n##").find(|it| it.lines().next().map(|it| it.trim_start_matches(['#', ' '])) == Some(heading));
    let section = section.unwrap_or_else(|| panic!("no section {heading:?}"));
    let blocks = section.split("```sh\n").skip(1).map(|it| it.split_once("```").unwrap().0.replace("\\\n", ""));
    let commands: Vec<String> = blocks.flat_map(|it| it.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    assert!(!commands.is_empty(), "{heading}");
    commands
}

/// A person at a shell, in the repository, with kubectl and Helm and a kubeconfig.
pub(crate) struct Shell<'a> {
    plane: &'a ControlPlane,
    home: tempfile::TempDir,
}

impl<'a> Shell<'a> {
    pub(crate) fn new(plane: &'a ControlPlane) -> Self {
        Shell { plane, home: tempfile::tempdir().unwrap() }
    }

    /// Follows a section of the guide.
    pub(crate) fn follow(&self, heading: &str) -> Vec<String> {
        commands(heading).iter().map(|it| self.run(it)).collect()
    }

    /// What a command prints.
    pub(crate) fn run(&self, command: &str) -> String {
        succeeded(self.output(command))
    }

    /// What a command prints, or what it complains of.
    pub(crate) fn try_run(&self, command: &str) -> Result<String, String> {
        let output = self.output(command);
        let said = |text: Vec<u8>| String::from_utf8(text).unwrap();
        if output.status.success() { Ok(said(output.stdout)) } else { Err(said(output.stderr)) }
    }

    fn output(&self, command: &str) -> Output {
        let folder = |program: std::path::PathBuf| program.parent().unwrap().display().to_string();
        let (kubectl, helm) = (folder(self.plane.kubectl_path()), folder(helm().get_program().into()));
        let path = std::env::var("PATH").unwrap();
        Command::new("sh")
            .args(["-ec", command])
            .current_dir(root())
            .env("PATH", format!("{kubectl}:{helm}:{path}"))
            .env("KUBECONFIG", self.plane.kubeconfig_for(ADMIN).unwrap())
            .env("HOME", self.home.path())
            .output()
            .unwrap()
    }
}
