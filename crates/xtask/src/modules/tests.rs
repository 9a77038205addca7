//! The rules on small crates, and the workspace's own graph.

use super::*;

#[test]
fn the_workspace_has_no_circle_and_no_import_upward() {
    let mut found = Vec::new();
    for (name, file) in crate_roots(root()).unwrap() {
        let findings = check(&name, &file).unwrap();
        found.extend(findings.into_iter().map(|finding| format!("{}: {finding}", shown(&file))));
    }
    assert!(
        found.is_empty(),
        "break these circles, or move what is shared into a lower module:\n{}",
        found.join("\n")
    );
}

/// The circles of a crate, `parent: members`.
fn circles(source: &str) -> Vec<String> {
    let edges = graph::edges(&Tree::parse(source), root());
    let shown = |circle: Circle| {
        format!("{}: {}", circle.parent, circle.members.into_iter().collect::<Vec<_>>().join(" "))
    };
    graph::circles(&edges).into_iter().map(shown).collect()
}

#[track_caller]
fn assert_circles(source: &str, expected: &[&str]) {
    assert_eq!(circles(source), expected, "{source}");
}

#[test]
fn modules_that_import_each_other_are_a_circle_of_any_length() {
    assert_circles("mod a { use crate::b::B; } mod b { use super::a::A; }", &[": a b"]);
    assert_circles("mod a { use crate::b; } mod b { use crate::c; } mod c { use crate::a; }", &[": a b c"]);
    assert_circles("mod a { use crate::{b, c}; } mod b { use crate::c; } mod c {}", &[]);
    assert_circles("mod p { mod a { use super::b; } mod b { use super::a; } }", &["p: a b"]);
}

#[test]
fn a_path_in_an_expression_or_a_macro_counts_like_an_import() {
    assert_circles("mod a { fn f() { crate::b::g() } } mod b { fn g() -> crate::a::A {} }", &[": a b"]);
    assert_circles("mod a { select! { x = super::b::g() => {} } } mod b { use crate::a::A; }", &[": a b"]);
    assert_circles(
        "mod a { use crate::p; fn f() { p::b::g() } } mod p { mod b { use crate::a; } }",
        &[": a p"],
    );
    assert_circles(
        "mod a { macro_rules! m { () => { $crate::b::g() } } } mod b { use crate::a; }",
        &[": a b"],
    );
}

#[test]
fn a_module_and_its_submodules_count_as_one() {
    assert_circles("mod a { mod inner { use crate::b::B; } } mod b { use crate::a::A; }", &[": a b"]);
    assert_circles("mod a { mod inner { use super::A; } use inner::B; struct A; }", &[]);
}

#[test]
fn a_name_that_the_parent_passes_on_counts_for_where_it_is_defined() {
    let passed_on = "mod a { use super::B; struct A; } mod b { use crate::A; struct B; }";
    assert_circles(&format!("pub use a::A; use b::B; {passed_on}"), &[": a b"]);
    assert_circles(&format!("struct A; struct B; {passed_on}"), &[]);
    assert_circles(&format!("pub use a::{{A as Other}}; {passed_on}"), &[]);
    let globs = "pub use a::*; mod a { struct A; use crate::b; } mod b { use super::A; }";
    assert_circles(globs, &[": a b"]);
}

#[test]
fn tests_other_crates_strings_and_comments_do_not_count() {
    for a in [
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(test)] use crate::{b::B, c};",
        "#[cfg(all(test, unix))] #[test] fn f() { crate::b::g() }",
        "// use crate::b::B;",
        "const S: &str = \"use crate::b::B;\";",
        "use b::B;",
    ] {
        assert_circles(&format!("mod a {{ {a} }} mod b {{ use crate::a::A; }}"), &[]);
    }
    let compiled = "mod a { #[cfg(any(test, unix))] use crate::b::B; } mod b { use crate::a::A; }";
    assert_circles(compiled, &[": a b"]);
}

#[test]
fn a_lower_layer_imports_no_higher_one_and_every_module_has_a_layer() {
    let edges = graph::edges(&Tree::parse("mod low { use crate::high::H; } mod high {} mod new {}"), root());
    let modules = BTreeSet::from(["low", "high", "new"]);
    let findings = check_layers(&[&["low", "gone"], &["high"]], &modules, &edges[""]);
    let findings: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        findings,
        [
            "a lower layer imports a higher one\n  low → high\n    lib.rs:1  crate::high::H",
            "module `new` is in no layer; add it to LAYERS",
            "there is no module `gone`; remove it from LAYERS",
        ]
    );
}
