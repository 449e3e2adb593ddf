"""For the site only: doctests in docstrings are shown as code, and the comment on a setting's line as its docstring."""

import re

import griffe

DOCTEST = re.compile(r"(^>>> .*?)(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"  # (?:… )?(?!type:|noqa)(.+)$")


class Doctests(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\1\n```", obj.docstring.value)


class Comments(griffe.Extension):
    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: object) -> None:
        said = COMMENT.search(attr.source)
        if attr.docstring is None and said is not None:
            attr.docstring = griffe.Docstring(said[1], parent=attr)
