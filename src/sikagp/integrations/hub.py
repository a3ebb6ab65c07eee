"""The Hugging Face hub: where saved models are pushed to and pulled from."""

from pathlib import Path

from sikagp.serialization import CONFIG, WEIGHTS

_CARD = """---
library_name: sikagp
tags: [gaussian-process, uncertainty]
---
Load this model with `sikagp`: `from_pretrained("{repo_id}")` of the class named in `config.json`.
"""


def download(repo_id: str, *, revision: str | None = None) -> Path:
    """Fetch the two files of a model and return the local folder that holds them."""
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ImportError:
        raise ValueError(
            f"{repo_id!r} is not a folder; to load it from the hub, install huggingface_hub"
        ) from None
    try:
        folder = huggingface_hub.snapshot_download(
            repo_id, revision=revision, allow_patterns=[CONFIG, WEIGHTS]
        )
    except (HFValidationError, HfHubHTTPError) as error:
        raise ValueError(f"{repo_id!r} is neither a folder nor on the hub: {error}") from None
    return Path(folder)


def upload(folder: Path, repo_id: str, *, private: bool) -> str:
    """Send a saved model with a short model card, in one commit, and return its address."""
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise ImportError("push_to_hub needs huggingface_hub; install sikagp[train]") from None
    (folder / "README.md").write_text(_CARD.format(repo_id=repo_id), encoding="utf-8")
    api = HfApi()
    address = api.create_repo(repo_id, private=private, exist_ok=True)
    api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Upload a sikagp model")
    return str(address)
