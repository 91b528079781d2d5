//! Runs the commands of the admission policy page on a real API server, and compares their output with the page.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

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

/// Commands, and their output if the page shows it.
struct Step {
    commands: String,
    output: Option<String>,
}

/// The `sh` blocks of a page. A `text` block is the output of the block before it.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, text) = block.split_once('\n').unwrap();
        match language {
            "sh" => steps.push(Step { commands: text.to_owned(), output: None }),
            "text" => steps.last_mut().unwrap().output = Some(format!("{text}\n")),
            // Covered by documentation.rs.
            "console" => {}
            other => panic!("unexpected block {other:?}"),
        }
    }
    steps
}

/// A directory with kubectl and the plugin, for PATH.
fn bin_directory(plane: &ControlPlane) -> PathBuf {
    let directory = plane.run_dir().subdirectory("bin").unwrap();
    symlink(plane.kubectl_path(), directory.join("kubectl")).unwrap();
    symlink(env!("CARGO_BIN_EXE_kubectl-5spot"), directory.join("kubectl-5spot")).unwrap();
    directory
}

/// Runs the commands in a shell that continues after errors. Returns whether the last one succeeded, and their output.
fn run(plane: &ControlPlane, bin: &Path, commands: &str) -> (bool, String) {
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", &format!("exec 2>&1\n{commands}")])
        .current_dir(root())
        .env("PATH", path)
        .env("KUBECONFIG", plane.kubeconfig_for("admin").unwrap())
        .env("AUDIT_LOG", plane.audit().path())
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// The API server applies changes of a policy and its binding with a delay, so steps with output are repeated until the output
/// matches. All of them are idempotent.
#[tokio::test]
async fn page_steps_print_documented_output() {
    let testbed = shared_with_crd().await;
    let plane = testbed.control_plane();
    let bin = bin_directory(plane);
    plane.apply(&root().join("examples/overnight.yaml")).await.unwrap();
    let page = std::fs::read_to_string(root().join(PAGE)).unwrap();
    let steps = steps(&page);
    assert!(steps.len() >= 12, "the page has too few steps");
    for Step { commands, output } in steps {
        match output {
            None => {
                let (succeeded, output) = run(plane, &bin, &commands);
                assert!(succeeded, "{commands}{output}");
            }
            Some(expected) => {
                eventually(
                    &format!("the output of the page:\n{commands}{expected}"),
                    Duration::from_mins(1),
                    async || {
                        let (_, output) = run(plane, &bin, &commands);
                        if output == expected { Ok(()) } else { Err(output) }
                    },
                )
                .await;
            }
        }
    }
}
