"""What the tests of plans share: heads of their own, writing a suite and collecting what is wrong with it."""

from pathlib import Path
from typing import Literal

import pytest
from torch import nn

from harness.errors import SuiteError
from harness.plan import load
from harness.registry import HEADS


class Layered(nn.Module):
    """A head whose parameters are a mapping or a list, and a list with a tuple for its default."""

    def __init__(
        self,
        dims,
        embedding,
        *,
        components: dict[Literal["top", "second"], int] | tuple[int, ...] = (15, 5),
        widths: list[float] = (1.0, 2.0),
    ):
        super().__init__()
        self.output = nn.Linear(dims.d_embed, dims.vocab_size)


class OwnWidth(nn.Module):
    """A head with a width of its own, E d_latent + d_latent V scalars."""

    def __init__(self, dims, embedding, *, d_latent: int | None = None, rate: float = 0.5):
        super().__init__()
        width = dims.d_embed if d_latent is None else d_latent
        self.latent = nn.Linear(dims.d_embed, width, bias=False)
        self.output = nn.Linear(width, dims.vocab_size, bias=False)


class OnlyUnset(nn.Module):
    """A head with a width that no number suits."""

    def __init__(self, dims, embedding, *, d_latent: int | None = None):
        super().__init__()
        if d_latent is not None:
            raise ValueError(f"d_latent must be left out, got {d_latent}\nand more")
        self.output = nn.Linear(dims.d_embed, dims.vocab_size)


class OwnModelWidth(nn.Module):
    """A head whose parameter is called as the backbone's."""

    def __init__(self, dims, embedding, *, d_model: int = 4):
        super().__init__()
        self.output = nn.Linear(d_model, dims.vocab_size)


@pytest.fixture
def layered(monkeypatch):
    """Layered is known as the head 'layered'."""
    HEADS.names()  # discover before the table is changed
    monkeypatch.setitem(HEADS._classes, "layered", Layered)


@pytest.fixture
def wide_heads(monkeypatch):
    """Heads with widths of their own: own, unset, clash."""
    HEADS.names()  # discover before the table is changed
    for name, cls in {"own": OwnWidth, "unset": OnlyUnset, "clash": OwnModelWidth}.items():
        monkeypatch.setitem(HEADS._classes, name, cls)


@pytest.fixture
def write(tmp_path):
    """Writes a suite's text or bytes to suite.yaml."""

    def to_file(content: str | bytes) -> Path:
        path = tmp_path / "suite.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return to_file


@pytest.fixture
def problems(write):
    """What is wrong with a suite, the file's path left out: ['7:5: heads.0: unknown head ...']."""

    def of(text: str, *overrides: str, call=load) -> list[str]:
        path = write(text)
        with pytest.raises(SuiteError) as caught:
            call(path, overrides) if call is load else call(path)
        assert str(caught.value) == "\n".join(caught.value.problems)
        return [problem.removeprefix(f"{path}:") for problem in caught.value.problems]

    return of
