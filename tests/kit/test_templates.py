"""Templates that a site has written: what is refused, what is escaped, what a change does."""

import os

import pytest

from sidecar.kit.templates import MAX_TEMPLATE, TEMPLATE_NAME, Template, Templates


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<p>\n{{#a}}\n{{/b}}", "line 3: Section end tag mismatch. Found {{/b}}, expected {{/a}}"),
        ("<p>\n{{#a}}x", "line 2: Did not find a matching tag for {{#a}}"),
        ("{{/a}}", "line 1: Section end tag mismatch"),
        ("{{=x=}}", "a tag that changes the delimiters"),
    ],
)
def test_a_faulty_template_is_refused_with_its_line(text, problem):
    with pytest.raises(ValueError, match=r"line|tag") as refused:
        Template(text)
    assert str(refused.value).startswith(problem)


def test_values():
    """As a script reads them; what is not there is empty."""
    template = Template("{{yes}} {{no}} {{n}} [{{none}}] [{{unknown}}] {{^no}}none{{/no}}")
    values = {"yes": True, "no": False, "n": 0, "none": None}
    assert template.render(values) == "true false 0 [] [] none"


@pytest.mark.parametrize(
    "tag", ["{{x}}", "{{{x}}}", "{{&x}}", "{{#y}}{{{x}}}{{/y}}", "{{=<% %>=}}<%&x%>"]
)
def test_texts_are_escaped_wherever_they_stand(tag):
    said = Template(tag).render({"x": "</script>\"'`\\&", "y": True})
    assert said == "&lt;/script&gt;&quot;&#x27;&#96;&#92;&amp;"


@pytest.mark.parametrize(
    "tag", ["{{> /etc/passwd}}", "{{> other}}", "{{x.__class__}}", "{{x.upper}}"]
)
def test_a_template_reaches_nothing_else(tag, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.mustache").write_text("read")
    assert Template(tag).render({"x": "text"}) == ""


@pytest.mark.parametrize(
    "name", ["../a.html", "/a.html", "a.toml", ".html", "a/b.html", "a.html\n"]
)
def test_names(name):
    assert not TEMPLATE_NAME.match(name)


def test_the_last_good_one_stays(tmp_path):
    templates, file = Templates(tmp_path), tmp_path / "shop.html"
    assert templates.find("shop.html") is None
    assert "cannot be read" in templates.problem("shop.html")

    def shown():
        found = templates.find("shop.html")
        return found and found.render({})

    for text, expected in (
        ("one", "one"), ("two", "two"), ("{{#a}}", "two"), ("x" * (MAX_TEMPLATE + 1), "two"),
        ("three", "three"),
    ):  # fmt: skip
        file.write_text(text)
        assert shown() == expected
    file.write_bytes(b"\xff")
    os.utime(file, ns=(1, 1))
    assert shown() == "three"
    assert templates.problem("shop.html").endswith("it is not UTF-8 text")
    file.unlink()
    assert shown() == "three"


def test_a_file_is_read_once(tmp_path):
    templates, file = Templates(tmp_path), tmp_path / "shop.html"
    file.write_text("one")
    assert templates.find("shop.html") is templates.find("shop.html")
