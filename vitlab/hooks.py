"""Named taps: read what flows through a ViT, inside a context, without changing it.

A model is tapped by the names that timm gives its parts (`patch_embed`, `blocks.i.attn.attn_drop`, `norm`), which
this course's ViTs share. In order of depth: patch_embed, pos_embed, attn.0, block.0, attn.1, ..., cls, cls_norm.

    with hooks.taps(model, ["block.3", "attn.3"]) as seen:
        model(images)
    seen["block.3"]  # (batch, tokens, dim)

| tap | what it reads | shape |
|---|---|---|
| `patch_embed` | the patches' tokens, before positions | (batch, patches, dim) |
| `pos_embed` | what enters the first block: positions added, prefix tokens joined | (batch, tokens, dim) |
| `attn.i` | attention weights of block i after the softmax, before dropout | (batch, heads, tokens, tokens) |
| `block.i` | the residual stream after block i | (batch, tokens, dim) |
| `cls` | the CLS token before the final norm | (batch, dim) |
| `cls_norm` | the CLS token after the final norm | (batch, dim) |

Fused attention never forms its weights. An `attn.i` tap turns it off in that block while the context lasts, so the
model's output then agrees with the fused one to rounding, not to the bit; the other taps change no bit.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

Reader = Callable[[Tensor], Any]


class Missing(KeyError):
    """A tap that has nothing to read; its message is one plain sentence."""

    def __str__(self) -> str:
        return str(self.args[0])


class Seen(Mapping[str, Tensor]):
    """What the taps saw, by name; a tap is a key once it has fired; Missing, a KeyError, says why not."""

    def __init__(self, asked: Iterable[str], stored: bool, keep: str) -> None:
        self.asked = tuple(asked)
        self.counts = dict.fromkeys(self.asked, 0)  # how often each tap fired
        self._stored, self._keep = stored, keep
        self._values: dict[str, list[Tensor]] = {}

    def _store(self, name: str, value: Tensor) -> None:
        if self._keep == "all":
            self._values.setdefault(name, []).append(value.cpu())
        else:
            self._values[name] = [value]

    def __getitem__(self, name: str) -> Tensor:
        if name in self._values:
            kept = self._values[name]
            return kept[0] if len(kept) == 1 else torch.cat(kept)
        if name not in self.counts:
            raise Missing(f"The tap {name!r} was not asked for{_close(name, self.asked)}; add it to taps(...).")
        if not self._stored:
            raise Missing(f"The tap {name!r} hands each activation to its function and stores none; read that.")
        raise Missing(f"The tap {name!r} has not fired yet; run the model inside the context before reading it.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return "Seen(" + ", ".join(f"{k}: {tuple(v[-1].shape)}" for k, v in self._values.items()) + ")"


def _close(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=3)
    return f" (did you mean {' or '.join(repr(n) for n in near)}?)" if near else ""


def _part(model: nn.Module, name: str) -> nn.Module | None:
    part = getattr(model, name, None)
    return part if isinstance(part, nn.Module) else None


def _attention(block: nn.Module) -> nn.Module | None:
    """The attention of a block whose weights can be read, or None."""
    attention = _part(block, "attn")
    return attention if attention is not None and _part(attention, "attn_drop") is not None else None


def _has_cls(model: nn.Module) -> bool:
    return isinstance(getattr(model, "cls_token", None), Tensor) and _part(model, "norm") is not None


def names(model: nn.Module) -> list[str]:
    """Every tap this model has, in order of depth.

    A model without a class token has no `cls`, one that normalises after pooling no `cls_norm`, and a block whose
    attention cannot be read no `attn.i`. Raises ValueError for a model not laid out as timm's ViTs.
    """
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, (nn.Sequential, nn.ModuleList)) or len(blocks) == 0:
        raise ValueError(
            f"Taps need a ViT with timm's `blocks`, {type(model).__name__} has none; pass the ViT itself."
        )
    found = ["patch_embed"] if _part(model, "patch_embed") is not None else []
    found.append("pos_embed")
    for i, block in enumerate(blocks):
        found += [f"attn.{i}"] if _attention(block) is not None else []
        found.append(f"block.{i}")
    if _has_cls(model):
        found.append("cls")
        found += ["cls_norm"] if not isinstance(model.norm, nn.Identity) else []
    return found


def _why_missing(model: nn.Module, name: str, known: list[str]) -> str:
    """One sentence for a name that is no tap of this model."""
    kind = type(model).__name__
    if name in ("cls", "cls_norm") and not _has_cls(model):
        return f"{kind} has no tap {name!r}, for it has no class token; average {known[-1]!r} instead."
    if name == "cls_norm":
        return f"{kind} has no tap 'cls_norm', for it normalises after pooling; read 'cls', before any norm."
    stem, _, index = name.partition(".")
    depth = sum(k.startswith("block.") for k in known)
    if stem in ("block", "attn") and index.isdigit() and int(index) >= depth:
        return f"{kind} has no tap {name!r}, for it has {depth} blocks, counted from 0."
    if stem == "attn" and index.isdigit():
        return f"{kind} has no tap {name!r}, for that block's attention has no `attn_drop` to read weights at."
    return f"{kind} has no tap {name!r}{_close(name, known)}; hooks.names(model) lists them all."


def _tokens(patches: Tensor) -> Tensor:
    """Patches as (batch, patches, dim); where image sizes may vary timm has (batch, rows, columns, dim)."""
    return patches.flatten(1, 2) if patches.ndim == 4 else patches


def _attach(model: nn.Module, name: str, read: Reader, stack: ExitStack) -> None:
    """Let `read` see the tap's activations until the stack closes. Hooks return None, so nothing is replaced."""

    def entering(module: nn.Module, cut: Callable[[Tensor], Tensor]) -> None:
        stack.callback(module.register_forward_pre_hook(lambda _, args: _nothing(read(cut(args[0])))).remove)

    def leaving(module: nn.Module, cut: Callable[[Tensor], Tensor]) -> None:
        stack.callback(module.register_forward_hook(lambda _, args, out: _nothing(read(cut(out)))).remove)

    stem, _, index = name.partition(".")
    if name == "patch_embed":
        leaving(model.patch_embed, _tokens)
    elif name == "pos_embed":
        entering(model.blocks[0], _same)
    elif name == "cls":
        entering(model.norm, _first_token)
    elif name == "cls_norm":
        leaving(model.norm, _first_token)
    elif stem == "block":
        leaving(model.blocks[int(index)], _same)
    else:
        attention = model.blocks[int(index)].attn
        if hasattr(attention, "fused_attn"):
            # The innermost context closes first and puts back False, the outermost what the model came with.
            stack.callback(setattr, attention, "fused_attn", attention.fused_attn)
            attention.fused_attn = False
        entering(attention.attn_drop, _same)


def _nothing(_: Any) -> None:
    """Whatever a reader returns, a hook must return None: a tensor would replace the module's output."""


def _same(x: Tensor) -> Tensor:
    return x


def _first_token(x: Tensor) -> Tensor:
    return x[:, 0]


def _version(x: Tensor) -> int | None:
    return None if x.is_inference() else x._version  # inference tensors keep no count of their changes


@contextmanager
def taps(
    model: nn.Module,
    wanted: str | Iterable[str] | Mapping[str, Reader],
    *,
    grad: bool = False,
    keep: Literal["last", "all"] = "last",
) -> Iterator[Seen]:
    """Read the named taps of `model` while the context lasts, and leave no trace after it, error or not.

    Args:
        model: a ViT of this course or of timm; see `names(model)`.
        wanted: the taps to store, or a mapping from taps to functions, each called with every activation of its
            tap while nothing is stored: the way to pass over any number of images in constant memory.
        grad: keep the activations in the graph, to differentiate them; else they are detached.
        keep: "last" stores the last forward pass where it is; "all" stores every pass, on the processor, and joins
            them along the batch when read.

    Yields:
        A mapping from each tap that has fired to its activation; shapes in this module's table.

    Raises:
        ValueError: for a name that is no tap of this model, before anything is touched.
        RuntimeError: on leaving, if a tap never fired; at once, if a function changes an activation in place.
        KeyError: on reading a tap that was not asked for or has not fired.
    """
    readers: Mapping[str, Reader] | None = wanted if isinstance(wanted, Mapping) else None
    asked = [wanted] if isinstance(wanted, str) else list(dict.fromkeys(wanted))
    if not asked:
        raise ValueError("taps() needs at least one name; hooks.names(model) lists them.")
    if keep not in ("last", "all"):
        raise ValueError(f"taps() keeps 'last' or 'all', got {keep!r}.")
    if readers is not None and keep == "all":
        raise ValueError("With functions nothing is stored; drop keep='all', or pass a list of names.")
    known = names(model)
    for name in asked:
        if name not in known:
            raise ValueError(_why_missing(model, name, known))
        if readers is not None and not callable(readers[name]):
            raise ValueError(f"The tap {name!r} needs a function to call, got {type(readers[name]).__name__}.")
    seen = Seen(asked, stored=readers is None, keep=keep)

    def reader(name: str) -> Reader:
        def read(value: Tensor) -> None:
            seen.counts[name] += 1
            value = value if grad else value.detach()
            if readers is None:
                seen._store(name, value)
                return
            before = _version(value)
            readers[name](value)
            if _version(value) != before:
                raise RuntimeError(
                    f"The function at {name!r} changed its activation in place; let it work on a copy."
                )

        return read

    with ExitStack() as stack:
        for name in asked:
            _attach(model, name, reader(name), stack)
        yield seen
    silent = [name for name in asked if not seen.counts[name]]
    if silent:
        raise RuntimeError(
            f"{'The tap' if len(silent) == 1 else 'The taps'} {', '.join(silent)} did not fire; run the model "
            "inside the context, uncompiled, on a path that passes there."
        )
