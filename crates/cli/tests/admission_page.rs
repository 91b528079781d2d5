//! The commands of the page on the admission policy, run from top to bottom on a real cluster, print what the page says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, shared_with_crd};

const PAGE: &str = "docs/how-to/admission-policy.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Commands, with their output where the page shows it.
struct Step {
    commands: String,
    output: Option<String>,
}

/// The blocks `sh` of a page; a block `text` is the output of the one before it.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, text) = block.split_once('\n').unwrap();
        match language {
            "sh" => steps.push(Step { commands: text.to_owned(), output: None }),
            "text" => steps.last_mut().unwrap().output = Some(format!("{text}\n")),
            // Run by another test.
            "console" => {}
            other => panic!("a block of {other:?}"),
        }
    }
    steps
}

/// A directory that has kubectl and the plugin, for a PATH.
fn programs(plane: &ControlPlane) -> PathBuf {
    let directory = plane.run_dir().subdirectory("bin").unwrap();
    symlink(plane.kubectl_path(), directory.join("kubectl")).unwrap();
    symlink(env!("CARGO_BIN_EXE_kubectl-5spot"), directory.join("kubectl-5spot")).unwrap();
    directory
}

/// Runs commands as a person does, one after the other whatever the one before said, and gives what they print.
fn run(plane: &ControlPlane, programs: &Path, commands: &str) -> (bool, String) {
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let ran = Command::new("bash")
        .args(["-c", &format!("exec 2>&1\n{commands}")])
        .current_dir(root())
        .env("PATH", path)
        .env("KUBECONFIG", plane.kubeconfig_for("admin").unwrap())
        .env("AUDIT_LOG", plane.audit().path())
        .output()
        .unwrap();
    (ran.status.success(), String::from_utf8(ran.stdout).unwrap())
}

/// A policy, and every change of its binding, is in force only after a moment, so what a step prints is waited for. Steps
/// that show their output can be run again and again.
#[tokio::test]
async fn every_step_of_the_page_does_what_it_says() {
    let testbed = shared_with_crd().await;
    let plane = testbed.control_plane();
    let programs = programs(plane);
    plane.apply(&root().join("examples/overnight.yaml")).await.unwrap();
    let page = std::fs::read_to_string(root().join(PAGE)).unwrap();
    let steps = steps(&page);
    assert!(steps.len() >= 12, "the page has lost its steps");
    for Step { commands, output } in steps {
        match output {
            None => {
                let (succeeded, printed) = run(plane, &programs, &commands);
                assert!(succeeded, "{commands}{printed}");
            }
            Some(expected) => {
                eventually(&format!("the page's output:\n{commands}{expected}"), Duration::from_mins(1), async || {
                    let (_, printed) = run(plane, &programs, &commands);
                    if printed == expected { Ok(()) } else { Err(printed) }
                })
                .await;
            }
        }
    }
}
