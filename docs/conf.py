"""How Sphinx builds the documentation: offline, with every warning an error (``make docs``)."""

import sys
import warnings
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))
# linear_operator, which GPyTorch imports, still scripts a function when it is loaded.
warnings.filterwarnings("ignore", message=".*torch.jit.script.*", category=DeprecationWarning)

project = "sikagp"
author = "The sikagp developers"
project_copyright = author
release = version = installed_version("sikagp")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "architecture",
    "crosslinks",
    "docstrings",
    "mathml",
    "pictures",
    "reference",
]
exclude_patterns = ["extensions"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Shape"]
python_maximum_signature_line_length = 80
python_display_short_literal_types = True
add_module_names = False
toc_object_entries = False

html_theme = "furo"
html_title = f"sikagp {release}"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1b5e9e", "color-brand-content": "#1b5e9e"},
    "dark_css_variables": {"color-brand-primary": "#8ec1f0", "color-brand-content": "#8ec1f0"},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
