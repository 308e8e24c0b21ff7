"""A walk as one web page that opens from disk and needs nothing else.

What a program can put into a name, a line or a value is data in the page: the JSON block cannot
end early, the script writes text nodes only, and the page's policy runs no script but its own.
"""
from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adjoint.inspect.walk import Walk

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028",
            "\u2029": "\\u2029"}


def embedded(data: Any) -> str:
    """JSON that may stand inside of a script element.

    >>> embedded({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for bad, good in _ESCAPES.items():
        text = text.replace(bad, good)
    return text


@cache
def asset(name: str) -> str:
    """The text of a file of `adjoint/inspect/assets`."""
    return files("adjoint.inspect").joinpath("assets", name).read_text(encoding="utf-8")


def fingerprint(text: str) -> str:
    """How a content policy names an inline script or style."""
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def assemble(template: str, title: str, style: str, script: str, data: Any = None,
             body: str = "") -> str:
    """A template with its style, script, data and body (trusted markup) in place, and a policy
    that admits exactly that script and that style."""
    policy = (f"default-src 'none'; script-src {fingerprint(script)}; "
              f"style-src {fingerprint(style)}; img-src data:; base-uri 'none'; "
              "form-action 'none'")
    parts = {"POLICY": policy, "TITLE": html.escape(title), "STYLE": style, "BODY": body,
             "DATA": embedded(data), "SCRIPT": script}
    out = []
    for i, piece in enumerate(asset(template).split("@@")):
        out.append(parts[piece] if i % 2 else piece)
    return "".join(out)


def page(walk: Walk) -> str:
    """The stepper over `walk`."""
    data = walk.to_json()
    return assemble("walk.html", data["title"], asset("walk.css"), asset("walk.js"), data)


__all__ = ["assemble", "asset", "embedded", "page"]
