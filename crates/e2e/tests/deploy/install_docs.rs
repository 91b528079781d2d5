//! Runs the commands of `docs/how-to/install.md` unmodified.

use std::process::{Command, Output};

use fivespot_e2e::{read_repo_file, repo_root};
use fivespot_testbed::ControlPlane;
use fivespot_testbed::control_plane::ADMIN;

use crate::render::{failed, helm, succeeded};

/// The commands in the shell blocks of a section.
pub(crate) fn commands(heading: &str) -> Vec<String> {
    let page = read_repo_file("docs/how-to/install.md");
    let section =
        page.split("\n##").find(|it| it.lines().next().map(|it| it.trim_start_matches(['#', ' '])) == Some(heading));
    let section = section.unwrap_or_else(|| panic!("no section {heading:?}"));
    let blocks = section.split("```sh\n").skip(1).map(|it| it.split_once("```").unwrap().0.replace("\\\n", ""));
    let commands: Vec<String> = blocks.flat_map(|it| it.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    assert!(!commands.is_empty(), "{heading}");
    commands
}

/// A shell in the repository with kubectl, Helm and a kubeconfig.
pub(crate) struct Shell<'a> {
    plane: &'a ControlPlane,
    home: tempfile::TempDir,
}

impl<'a> Shell<'a> {
    pub(crate) fn new(plane: &'a ControlPlane) -> Self {
        Shell { plane, home: tempfile::tempdir().unwrap() }
    }

    /// Runs the commands of a section and returns what each printed.
    pub(crate) fn run_section(&self, heading: &str) -> Vec<String> {
        commands(heading).iter().map(|it| self.run(it)).collect()
    }

    /// Asserts that a command succeeds, and returns what it printed.
    pub(crate) fn run(&self, command: &str) -> String {
        succeeded(self.output(command))
    }

    /// Asserts that a command fails, and returns its standard error.
    pub(crate) fn run_failing(&self, command: &str) -> String {
        failed(self.output(command))
    }

    fn output(&self, command: &str) -> Output {
        let folder = |program: std::path::PathBuf| program.parent().unwrap().display().to_string();
        let (kubectl, helm) = (folder(self.plane.kubectl_path()), folder(helm().get_program().into()));
        let path = std::env::var("PATH").unwrap();
        Command::new("sh")
            .args(["-ec", command])
            .current_dir(repo_root())
            .env("PATH", format!("{kubectl}:{helm}:{path}"))
            .env("KUBECONFIG", self.plane.kubeconfig_for(ADMIN).unwrap())
            .env("HOME", self.home.path())
            .output()
            .unwrap()
    }
}
