//! Packages, made of this test's own program.

use std::collections::BTreeMap;
use std::env;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value;
use tempfile::TempDir;

use super::*;

/// Where the offsets of a 64-bit ELF header are.
const ELF_TYPE: usize = 16;
const ELF_MACHINE: usize = 18;

fn options(bin: &Path) -> Options {
    Options {
        bin: bin.to_owned(),
        cli: None,
        version: "1.2.3".to_owned(),
        out: None,
        allow_large: true,
        mtime: 0,
    }
}

/// Packs `content` as the worker.
fn pack(content: &[u8]) -> Result<Package, String> {
    let directory = TempDir::new().unwrap();
    let bin = directory.path().join("worker");
    fs::write(&bin, content).unwrap();
    let packed = package(&options(&bin), &root().join("infra/package"), directory.path());
    packed.map_err(|failure| failure.to_string().replace(&*bin.to_string_lossy(), "WORKER"))
}

fn this_program() -> Vec<u8> {
    fs::read(env::current_exe().unwrap()).unwrap()
}

/// Returns this program with some bytes changed.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut program = this_program();
    program[at..at + bytes.len()].copy_from_slice(bytes);
    program
}

#[test]
#[cfg(target_os = "linux")]
fn the_archive_is_the_same_each_time_and_has_what_the_manifest_says() {
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let options = options(&env::current_exe().unwrap());
    let scripts = root().join("infra/package");
    let once = package(&options, &scripts, first.path()).unwrap();
    let again = package(&options, &scripts, second.path()).unwrap();
    assert_eq!(once.sha256, again.sha256);
    let bytes = fs::read(&once.archive).unwrap();
    assert_eq!(once.sha256, manifest::sha256(&bytes));
    assert_eq!(bytes[4..10], [0, 0, 0, 0, 2, 255], "no time, best compression, no system");

    let mut archive = tar::Archive::new(GzDecoder::new(&*bytes));
    let mut files = BTreeMap::new();
    let mut order = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 0));
        let mode = header.mode().unwrap();
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        order.push(path.clone());
        files.insert(path, (mode, content));
    }
    assert_eq!(
        order,
        [
            "bin/",
            "systemd/",
            "bin/worker",
            "install.sh",
            "lib.sh",
            "manifest.json",
            "remove.sh",
            "systemd/reprieve-worker.service",
            "systemd/reprieve-worker@.service",
            "update.sh"
        ]
    );
    assert_eq!(files["manifest.json"].1, fs::read(first.path().join(MANIFEST)).unwrap());
    let manifest: Value = serde_json::from_slice(&files["manifest.json"].1).unwrap();
    assert_eq!((&manifest["name"], &manifest["version"]), (&"reprieve-worker".into(), &"1.2.3".into()));
    assert_eq!(manifest["architecture"], env::consts::ARCH);
    let listed = manifest["files"].as_array().unwrap();
    assert_eq!(listed.len(), 7);
    for file in listed {
        let (mode, content) = &files[file["path"].as_str().unwrap()];
        assert_eq!(file["mode"], format!("{mode:04o}"));
        assert_eq!(file["size"], content.len());
        assert_eq!(file["sha256"], manifest::sha256(content));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_program_that_does_not_run_on_the_images_is_refused() {
    let refused = |content: &[u8], expected: &str| assert_eq!(pack(content).unwrap_err(), expected);
    refused(b"#!/bin/sh\n", "WORKER is not a Linux program (64-bit ELF)");
    refused(b"", "WORKER is not a Linux program (64-bit ELF)");
    let riscv = changed(ELF_MACHINE, &243_u16.to_le_bytes());
    refused(&riscv, "WORKER is for another processor than x86-64 and aarch64");
    let object = changed(ELF_TYPE, &1_u16.to_le_bytes());
    refused(&object, "WORKER is a library or an object file, not a program");
    assert!(pack(&this_program()[..4096]).unwrap_err().starts_with("WORKER is damaged: "));
}

#[test]
#[cfg(target_os = "linux")]
fn a_program_for_a_newer_c_library_is_refused_with_the_cure() {
    let mut program = this_program();
    // A string of the same length, in the table of the versions' names.
    let old = b"GLIBC_2.34\0";
    let at = program.windows(old.len()).position(|window| window == old).unwrap();
    program[at..at + old.len()].copy_from_slice(b"GLIBC_2.39\0");
    let refusal = pack(&program).unwrap_err();
    let expected = "WORKER needs glibc 2.39, and Ubuntu 22.04 has 2.35: build it in a container";
    assert!(refusal.starts_with(expected), "{refusal}");
}

#[test]
#[cfg(target_os = "linux")]
fn the_command_is_packed_with_the_worker_if_it_is_for_the_same_processor() {
    let directory = TempDir::new().unwrap();
    let cli = directory.path().join("reprieve");
    let mut options = options(&env::current_exe().unwrap());
    options.cli = Some(cli.clone());
    let scripts = root().join("infra/package");
    fs::write(&cli, this_program()).unwrap();
    package(&options, &scripts, directory.path()).unwrap();
    let manifest = fs::read_to_string(directory.path().join(MANIFEST)).unwrap();
    assert!(manifest.contains("{\"path\": \"bin/reprieve\", \"mode\": \"0755\""), "{manifest}");

    let other = if cfg!(target_arch = "x86_64") { 183_u16 } else { 62 };
    fs::write(&cli, changed(ELF_MACHINE, &other.to_le_bytes())).unwrap();
    let refusal = package(&options, &scripts, directory.path()).unwrap_err().to_string();
    assert!(refusal.contains("reprieve is for ") && refusal.contains(" is for "), "{refusal}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_large_program_needs_a_flag() {
    let directory = TempDir::new().unwrap();
    let bin = directory.path().join("worker");
    let mut program = this_program();
    program.resize(program.len().max(15_000_001), 0);
    fs::write(&bin, program).unwrap();
    let mut options = options(&bin);
    let scripts = root().join("infra/package");
    package(&options, &scripts, directory.path()).unwrap();
    options.allow_large = false;
    let refusal = package(&options, &scripts, directory.path()).unwrap_err().to_string();
    assert!(refusal.contains("or allow it with --allow-large"), "{refusal}");
}

#[test]
fn a_program_that_is_missing_is_named() {
    let missing = options(Path::new("no-such-program"));
    let failure = package(&missing, Path::new("."), Path::new(".")).unwrap_err().to_string();
    assert!(failure.starts_with("no-such-program can't be read: "), "{failure}");
}
