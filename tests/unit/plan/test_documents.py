"""Files, folders and standard input as documents."""

import json
import os

import pytest

from workers.plan.documents import InputError, parse, read_sources
from workers.plan.findings import Findings


def texts(findings):
    return [str(fault) for fault in findings.faults]


def contents(documents):
    return [document.content for document in documents]


def read(text):
    findings = Findings()
    return parse(text.encode(), "a.yaml", findings), findings


def test_documents_are_numbered_by_what_has_content():
    documents, findings = read("# head\n---\nkind: A\n---\n# nothing here\n---\n\n---\nkind: B\n...\n---\nkind: C\n")
    assert [(d.number, d.kind) for d in documents] == [(1, "A"), (2, "B"), (3, "C")]
    assert not findings.faults


def test_a_broken_document_is_named_with_its_line_and_stops_no_other():
    documents, findings = read("kind: A\n---\nkind: [\n---\nkind: C\n")
    assert [d.kind for d in documents] == ["A", "C"]
    [fault] = texts(findings)
    assert fault.startswith("a.yaml, document 2: line ")
    assert "is not YAML" in fault


def test_a_template_is_told_to_be_rendered_first():
    _, findings = read("kind: {{ .Values.kind }}\n")
    assert "helm template" in texts(findings)[0]


def test_a_key_that_is_there_twice_is_a_fault():
    _, findings = read("spec:\n  replicas: 1\n  replicas: 2\n")
    assert "'replicas' is there twice" in texts(findings)[0]
    assert "line 3" in texts(findings)[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-01", "2026-01-01"),  # no date: annotations are text
        ("12:30:45", "12:30:45"),  # no base-60 number
        ("1e3", "1e3"),
        ("010", 8),
        ("1_000", 1000),
        ("0.5", 0.5),
        ("yes", True),
        ("~", None),
        ("=", "="),
    ],
)
def test_plain_values_are_read_as_kubernetes_reads_them(text, value):
    documents, _ = read(f"a: {text}\n")
    assert contents(documents) == [{"a": value}]


def test_json_is_read_too():
    documents, _ = read(json.dumps({"kind": "Pod", "spec": {"a": [1, "---"]}}))
    assert contents(documents) == [{"kind": "Pod", "spec": {"a": [1, "---"]}}]


def test_items_of_lists_come_one_by_one_typed_lists_give_their_kind():
    documents, findings = read(
        "kind: List\nitems: [{kind: Pod}, 3]\n---\nkind: PodList\napiVersion: v1\nitems: [{metadata: {name: a}}]\n"
    )
    assert [(d.kind, d.number) for d in documents] == [("Pod", 1), ("Pod", 2)]
    assert documents[1].content["apiVersion"] == "v1"
    assert texts(findings) == ["a.yaml, document 1 (List): items[1]: 3: must be an object"]


def test_what_is_no_object_is_a_fault():
    documents, findings = read("just text\n---\n- 1\n")
    assert not documents
    assert [fault.value for fault in findings.faults] == ["just text", [1]]


def test_bytes_that_are_no_text_are_a_fault():
    findings = Findings()
    assert parse(b"\xff\xfe", "a.yaml", findings) == []
    assert "is not UTF-8" in texts(findings)[0]


def test_sources_are_files_folders_and_standard_input_in_the_order_given(tmp_path):
    (tmp_path / "b.yaml").write_text("kind: B\n")
    (tmp_path / "a.yml").write_text("kind: A\n")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "c.json").write_text('{"kind": "C"}')
    (tmp_path / "notes.txt").write_text("kind: no\n")
    (tmp_path / ".hidden.yaml").write_text("kind: no\n")
    single = tmp_path / "b.yaml"
    documents = read_sources(["-", str(single), str(tmp_path)], lambda: b"kind: S\n", Findings())
    assert [d.kind for d in documents] == ["S", "B", "A", "B", "C"]
    assert documents[0].file == "stdin"


def test_a_source_given_twice_is_read_once(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("kind: A\n")
    assert len(read_sources([str(file), str(file)], bytes, Findings())) == 1


def test_every_source_that_is_missing_is_named():
    with pytest.raises(InputError) as caught:
        read_sources(["/nonexistent/a.yaml", "/nonexistent/b"], bytes, Findings())
    assert str(caught.value).splitlines() == [
        "/nonexistent/a.yaml: No such file or directory",
        "/nonexistent/b: No such file or directory",
    ]


def test_an_unreadable_file_in_a_folder_does_not_stop_the_others(tmp_path):
    (tmp_path / "a.yaml").symlink_to(tmp_path / "a.yaml.d" / "gone")
    (tmp_path / "b.yaml").write_text("kind: B\n")
    os.mkfifo(tmp_path / "c.yaml")
    assert [d.kind for d in read_sources([str(tmp_path)], bytes, Findings())] == ["B"]


def test_a_folder_without_manifests_and_a_kustomization_are_told(tmp_path):
    findings = Findings()
    read_sources([str(tmp_path)], bytes, findings)
    assert "there is no .yaml" in findings.warnings[0]
    (tmp_path / "kustomization.yaml").write_text("resources: []\n")
    findings = Findings()
    assert read_sources([str(tmp_path)], bytes, findings) == []
    assert "kubectl kustomize" in findings.warnings[0]
