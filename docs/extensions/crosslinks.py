"""Names of code in running text become links to the API reference.

A page says ``table.node_states`` or ``SIKALayer`` in plain backquotes, readable anywhere; here such
a literal is linked if the reference has that object. Docstrings may say ``:class:`SIKALayer```
without the module that defines it.
"""

from typing import Any

import reference
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import sikagp

PUBLIC = {name for name in sikagp.__all__ if not name.startswith("_")}


def find(env: BuildEnvironment, name: str) -> tuple[str, Any] | None:
    """Full name and entry of the object that a reader would mean by ``name``."""
    objects = env.domains.python_domain.objects
    candidates = [name, f"sikagp.{name}"]
    head, _, rest = name.removeprefix("sikagp.").partition(".")
    if head in PUBLIC:
        candidates.append(f"{reference.home_of(head)}.{rest}".removesuffix("."))
    found = next(((full, objects[full]) for full in candidates if full in objects), None)
    # A bare word such as ``validation`` is more often an option than the module of that name.
    return None if found and found[1].objtype == "module" and "." not in name else found


def link_literals(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Wrap each literal that names an object in a reference to it."""
    for literal in list(doctree.findall(nodes.literal)):
        if isinstance(literal.parent, nodes.reference | addnodes.pending_xref | nodes.title):
            continue
        found = find(app.env, literal.astext().removesuffix("()"))
        if found:
            full, entry = found
            uri = app.builder.get_relative_uri(docname, entry.docname) + "#" + entry.node_id
            link = nodes.reference("", "", internal=True, refuri=uri, reftitle=full)
            literal.replace_self(link)
            link += literal


def resolve(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Find what a docstring calls by its public name."""
    found = find(env, node.get("reftarget", "")) if node.get("refdomain") == "py" else None
    if not found:
        return None
    full, entry = found
    uri = app.builder.get_relative_uri(node["refdoc"], entry.docname) + "#" + entry.node_id
    return nodes.reference("", "", content, internal=True, refuri=uri, reftitle=full)


def setup(app: Sphinx) -> dict[str, Any]:
    """Link once all objects are known."""
    app.connect("doctree-resolved", link_literals)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
