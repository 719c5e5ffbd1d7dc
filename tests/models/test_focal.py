"""The Focal Transformer: equal to the published one's stored answers and to plain loops, bad input refused."""

from __future__ import annotations

import copy
import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vitlab import hooks
from vitlab.models import weights
from vitlab.models.focal import Focal, FocalAttention, FocalConfig, bias_index, focal_keys, ring
from vitlab.models.layers import DropPath
from vitlab.models.peers.focal import config_of, renamed

ORACLES = Path(__file__).parent / "oracles"

SIZES: dict[str, dict[str, Any]] = {
    "maps of 6, 3": {  # 16 ring tokens listed 20 times; the second map is one window
        "image_size": 12,
        "patch_size": 2,
        "window": 3,
        "dims": (4, 8),
        "depths": (2, 1),
        "heads": (2, 4),
        "expand": (1, 1),
        "focal_window": (3, 1),
        "classes": 5,
    },
    "maps of 8, 4, 2": {  # no token twice; the last map is smaller than a window
        "image_size": 16,
        "patch_size": 2,
        "channels": 1,
        "window": 4,
        "dims": (4, 6, 8),
        "depths": (1, 2, 1),
        "heads": (1, 3, 2),
        "expand": (2, 1, 2),
        "focal_window": (5, 3, 1),
        "classes": 3,
        "mlp_ratio": 2.0,
        "qkv_bias": False,
    },
    "each key once": {
        "image_size": 12,
        "patch_size": 2,
        "window": 3,
        "dims": (4, 8),
        "depths": (1, 1),
        "heads": (1, 2),
        "expand": (1, 0),
        "focal_window": (3, 3),
        "classes": 2,
        "repeat_keys": False,
    },
}


def oracle(name: str) -> tuple[Mapping[str, Any], Tensor, Tensor, dict[str, Tensor]]:
    """The published class's arguments, its input, its answer and its state dict."""
    stored = np.load(ORACLES / f"focal_{name}.npz")
    state = {key[2:]: torch.from_numpy(stored[key]) for key in stored.files if key.startswith("w/")}
    return (
        json.loads(str(stored["config"])),
        torch.from_numpy(stored["input"]),
        torch.from_numpy(stored["logits"]),
        state,
    )


def randomised(model: nn.Module, seed: int, std: float = 0.5) -> nn.Module:
    """The model in float64 with random weights everywhere, biases, norms and tables too."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=std)
    return model.double()


def listed_keys(k: Tensor, i: int, j: int, window: int, expand: int, once: bool) -> list[Tensor]:
    """The tokens that window (i, j) of the map `k`, (batch, side, side, head_dim), sees sharply, as published.

    The window, and of four diagonally rolled maps what fell from outside into the window's place.
    """
    side, e = range(window), expand
    rows, columns = slice(i * window, (i + 1) * window), slice(j * window, (j + 1) * window)
    keys = [k[:, rows, columns][:, r, c] for r in side for c in side]
    if once:
        n = k.shape[1]
        around = [(r, c) for r in range(-e, window + e) for c in range(-e, window + e)]
        around = [(r, c) for r, c in around if not (r in side and c in side)]
        return keys + [k[:, (i * window + r) % n, (j * window + c) % n] for r, c in around]
    for down, right in [(-e, -e), (-e, e), (e, -e), (e, e)] if e else []:
        moved = torch.roll(k, (down, right), (1, 2))[:, rows, columns]
        for r in side:
            for c in side:
                if not (r - down in side and c - right in side):
                    keys.append(moved[:, r, c])
    return keys


def slow_attention(self: FocalAttention, x: Tensor) -> Tensor:
    """Focal attention one window, one head, one query at a time; no index, no mask, no folding of equal keys."""
    batch, tokens, dim = x.shape
    side, w, e, f = round(tokens**0.5), self.window, self.expand, self.focal_window
    n, head_dim = side // w, dim // self.num_heads
    maps = x.reshape(batch, side, side, dim)
    q, k, v = self.qkv(maps).split(dim, dim=-1)
    once = e > 0 and self.relative_position_bias_table_to_neighbors.shape[-1] < 4 * (w * w - (w - e) ** 2)
    coarse: dict[tuple[int, int], Tensor] = {}
    for i in range(n):
        for j in range(n):
            inside = maps[:, i * w : (i + 1) * w, j * w : (j + 1) * w].reshape(batch, w * w, dim)
            total = sum(self.pool.weight[0, t] * inside[:, t] for t in range(w * w)) + self.pool.bias
            coarse[i, j] = self.qkv(total)  # (batch, 3 * dim)
    out = torch.zeros_like(maps)
    for head in range(self.num_heads):
        part = slice(head * head_dim, (head + 1) * head_dim)
        for i in range(n):
            for j in range(n):
                keys = listed_keys(k[..., part], i, j, w, e, once)
                values = listed_keys(v[..., part], i, j, w, e, once)
                near = [(i + r, j + c) for r in range(-(f // 2), f // 2 + 1) for c in range(-(f // 2), f // 2 + 1)]
                on_map = [(t, place) for t, place in enumerate(near) if place in coarse]
                keys += [coarse[place][:, dim : 2 * dim][:, part] for _, place in on_map]
                values += [coarse[place][:, 2 * dim :][:, part] for _, place in on_map]
                stack, values_ = torch.stack(keys, 1), torch.stack(values, 1)  # (batch, keys, head_dim)
                for r in range(w):
                    for c in range(w):
                        bias = [
                            self.relative_position_bias_table[(r - s + w - 1) * (2 * w - 1) + c - t + w - 1, head]
                            for s in range(w)
                            for t in range(w)
                        ]
                        if e:
                            bias += list(self.relative_position_bias_table_to_neighbors[0, head, r * w + c])
                        for t, _ in on_map:
                            at = (r - t // f + f - 1) * (w + f - 1) + c - t % f + f - 1
                            bias.append(self.relative_position_bias_table_to_windows[head, at])
                        query = q[:, i * w + r, j * w + c, part]
                        logits = (stack @ query[..., None])[..., 0] / head_dim**0.5 + torch.stack(bias)
                        gathered = (logits.softmax(-1)[:, None] @ values_)[:, 0]
                        out[:, i * w + r, j * w + c, part] = gathered
    return self.proj(out.reshape(batch, tokens, dim))


def slow(model: Focal) -> Focal:
    """The same model with every attention computed by plain loops."""
    model = copy.deepcopy(model)
    for block in model.blocks:
        block.attn.forward = types.MethodType(slow_attention, block.attn)
    return model


class TestParity:
    @pytest.mark.parametrize("training", [False, True])
    @pytest.mark.parametrize("batch", [1, 2])
    @pytest.mark.parametrize("fused", [True, False])
    @pytest.mark.parametrize("name", ["ws4_e2", "ws7_e3"])
    def test_logits_are_the_published_ones(self, name, fused, batch, training):
        arguments, images, expected, state = oracle(name)
        model = Focal(config_of(arguments)).train(training)
        weights.load(model, renamed(state))
        for block in model.blocks:
            block.attn.fused_attn = fused
        assert torch.allclose(model(images[:batch]), expected[:batch], rtol=0, atol=1e-6)

    @pytest.mark.parametrize("name", ["ws4_e2", "ws7_e3"])
    def test_keys_and_biases_are_indexed_as_published(self, name):
        arguments, _, _, state = oracle(name)
        config = config_of(arguments)
        prefix, w, e = "layers.0.blocks.0.attn.", config.window, config.expand[0]
        moved = [(r + dr, c + dc) for dr in (e, -e) for dc in (e, -e) for r in range(w) for c in range(w)]
        kept = [moved[i] for i in state[prefix + "valid_ind_rolled"].tolist()]
        assert ring(w, e) == kept
        index = bias_index(w, config.focal_window[0])
        assert torch.equal(index, state[prefix + "relative_position_index_0"])

    @pytest.mark.parametrize("seed", [0, 1])
    @pytest.mark.parametrize("batch", [1, 3])
    @pytest.mark.parametrize("size", SIZES)
    def test_logits_and_gradients_equal_plain_loops(self, size, batch, seed):
        """softmax(Q K^T / sqrt(d) + B) V over the window, the ring and the pooled windows, key by key."""
        ours = randomised(Focal(FocalConfig(**SIZES[size])), seed)
        explicit, looped = copy.deepcopy(ours), slow(ours)
        for block in explicit.blocks:
            block.attn.fused_attn = False
        side, channels = ours.config.image_size, ours.config.channels
        images = torch.randn(batch, channels, side, side, dtype=torch.float64)
        expected = looped(images)
        expected.square().sum().backward()
        gradients = dict(looped.named_parameters())
        for model in (ours, explicit):
            with torch.no_grad():
                assert torch.allclose(model.eval()(images), expected, rtol=1e-10, atol=1e-12)
            logits = model.train()(images)
            assert torch.allclose(logits, expected, rtol=1e-10, atol=1e-12)
            logits.square().sum().backward()
            for name, parameter in model.named_parameters():
                scale = gradients[name].grad.abs().max().item()
                assert torch.allclose(parameter.grad, gradients[name].grad, rtol=1e-8, atol=1e-10 * scale), name

    @pytest.mark.parametrize("fused", [True, False])
    @pytest.mark.parametrize("repeat_keys", [True, False])
    def test_finite_differences_agree(self, repeat_keys, fused):
        config = FocalConfig(**(SIZES["maps of 6, 3"] | {"repeat_keys": repeat_keys}))
        attention = randomised(FocalAttention(config, 0), seed=0)
        attention.fused_attn = fused
        names, parameters = zip(*attention.named_parameters(), strict=True)

        def run(x: Tensor, *values: Tensor) -> Tensor:
            return torch.func.functional_call(attention, dict(zip(names, values, strict=True)), (x,))

        x = torch.randn(1, 36, 4, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(run, (x, *parameters), fast_mode=True)

    @pytest.mark.parametrize(
        ("name", "count", "printed"),
        [("tiny", 28_880_380, 28.9), ("small", 51_141_940, 51.1), ("base", 89_815_400, 89.8)],
    )
    def test_named_sizes_have_the_published_parameters(self, name, count, printed):
        """51.1 M and 89.8 M are the paper's, 28.9 M its authors' repository's."""
        with torch.device("meta"):
            model = Focal(getattr(FocalConfig, name)())
        counted = sum(parameter.numel() for parameter in model.parameters())
        assert counted == count
        assert round(counted / 1e6, 1) == printed
        attention = model.blocks[0].attn
        assert attention.relative_position_bias_table_to_neighbors.shape[2:] == (49, 132)
        assert attention.relative_position_bias_table_to_windows.shape[1:] == (169,)
        assert [model.config.geometry(i) for i in range(4)] == [(56, 7, 3), (28, 7, 3), (14, 7, 3), (7, 7, 0)]
        assert set(FocalConfig.SIZES) == {"tiny", "small", "base"}


class TestEquations:
    @pytest.mark.parametrize("size", SIZES)
    def test_focal_keys_lists_what_each_query_gathers(self, size):
        """With equal logits and identity maps, a token's share in an output is its count, plus its windows'."""
        config = FocalConfig(**SIZES[size])
        side, window, _ = config.geometry(0)
        attention = FocalAttention(config, 0).double()
        dim = config.dims[0]
        for parameter in attention.parameters():
            nn.init.zeros_(parameter)
        nn.init.eye_(attention.proj.weight)
        with torch.no_grad():
            attention.qkv.weight[2 * dim :] = torch.eye(dim)
        nn.init.constant_(attention.pool.weight, 1 / window**2)
        identity = torch.eye(side * side, dtype=torch.float64)[..., None].expand(
            -1, -1, dim
        )  # one token lit a row
        share = attention(identity)[..., 0].T  # (query, token)
        for row in range(side):
            for column in range(side):
                keys = focal_keys(config, 0, (row, column))
                expected = torch.zeros(side, side, dtype=torch.float64)
                for (r, c), count in zip(keys.fine, keys.counts, strict=True):
                    expected[r, c] += count
                for (i, j), there in zip(keys.pooled, keys.on_map, strict=True):
                    if there:
                        expected[i * window : (i + 1) * window, j * window : (j + 1) * window] += 1 / window**2
                total = sum(keys.counts) + sum(keys.on_map)
                assert torch.allclose(share[row * side + column], expected.flatten() / total, atol=1e-14)

    def test_the_published_region_of_a_query_in_numbers(self):
        """Window 7, ring 3: 169 places, 181 listings, 49 pooled windows, 16 of them on the map at the corner."""
        keys = focal_keys(FocalConfig.tiny(), 0, (0, 0))
        assert len(keys.fine) == len(set(keys.fine)) == 13 * 13
        assert sum(keys.counts) == 49 + 132
        assert keys.counts.count(2) == 12
        assert keys.fine[0] == (53, 53)  # three up and three left of the corner: the other end of the image
        assert sum(keys.wrapped) == 169 - 100
        assert len(keys.pooled) == 49
        assert sum(keys.on_map) == 16
        inner = focal_keys(FocalConfig.tiny(), 0, (30, 30))
        assert not any(inner.wrapped)
        assert all(inner.on_map)
        assert inner.fine[0] == (25, 25)
        once = focal_keys(FocalConfig.tiny(repeat_keys=False), 0, (30, 30))
        assert set(once.counts) == {1}
        assert once.fine == inner.fine

    def test_a_key_listed_twice_is_one_key_whose_weights_add(self):
        """exp(s + b) + exp(s + c) = exp(s + log(exp b + exp c))."""
        sizes = SIZES["maps of 6, 3"]
        twice = randomised(FocalAttention(FocalConfig(**sizes), 0), seed=0)
        once = FocalAttention(FocalConfig(**sizes, repeat_keys=False), 0).double()
        listed, distinct = ring(3, 1), ring(3, 1, repeat_keys=False)
        assert (len(listed), len(distinct), len(set(listed))) == (20, 16, 16)
        state = twice.state_dict()
        table = state["relative_position_bias_table_to_neighbors"]
        at = [[i for i, place in enumerate(listed) if place == wanted] for wanted in distinct]
        folded = torch.stack([table[..., i].exp().sum(-1).log() for i in at], -1)
        once.load_state_dict(state | {"relative_position_bias_table_to_neighbors": folded})
        x = torch.randn(2, 36, 4, dtype=torch.float64)
        assert torch.allclose(twice(x), once(x), atol=1e-12)
        first = torch.stack([table[..., i[0]] for i in at], -1)  # leaving the second listing out is another model
        once.load_state_dict(state | {"relative_position_bias_table_to_neighbors": first})
        assert not torch.allclose(twice(x), once(x), atol=1e-3)

    def test_the_ring_wraps_round_and_the_pooled_windows_do_not(self):
        sizes = SIZES["maps of 6, 3"]
        for focal_window, equivariant in [(1, True), (3, False)]:
            config = FocalConfig(**(sizes | {"focal_window": (focal_window, 1)}))
            attention = randomised(FocalAttention(config, 0), seed=0)
            x = torch.randn(1, 6, 6, 4, dtype=torch.float64)
            moved = torch.roll(x, (3, 3), (1, 2))  # by a window, round the border
            expected = torch.roll(attention(x.flatten(1, 2)).reshape(x.shape), (3, 3), (1, 2))
            assert torch.allclose(attention(moved.flatten(1, 2)).reshape(x.shape), expected) is equivariant

    def test_distinct_keys_are_all_the_ring_and_nothing_else(self):
        for window, expand in [(3, 1), (4, 2), (7, 3), (7, 1), (4, 0)]:
            side = range(-expand, window + expand)
            around = {(r, c) for r in side for c in side} - {(r, c) for r in range(window) for c in range(window)}
            assert set(ring(window, expand)) == around
            assert ring(window, expand, repeat_keys=False) == sorted(around)
            repeats = len(ring(window, expand)) > len(around)
            assert repeats is (0 < 2 * expand < window)

    def test_a_fresh_model_pools_the_mean_and_has_the_published_spread(self):
        torch.manual_seed(0)
        config = FocalConfig(
            image_size=28, patch_size=2, dims=(96,), depths=(1,), heads=(12,), expand=(3,), focal_window=(7,)
        )
        model = Focal(config)
        attention = model.blocks[0].attn
        assert torch.equal(attention.pool.weight, torch.full((1, 49), 1 / 49))
        for name, parameter in model.named_parameters():
            if "table" in name or (name.endswith("weight") and parameter.ndim == 2 and "pool" not in name):
                assert parameter.std().item() == pytest.approx(0.02, rel=0.1), name
            elif "norm" in name or (name.endswith("bias") and "patch_embed" not in name):
                assert set(parameter.tolist()) == {float("norm" in name and name.endswith("weight"))}, name

    def test_drop_path_rises_through_all_stages(self):
        model = Focal(FocalConfig(**SIZES["maps of 8, 4, 2"], drop_path=0.3))
        rates = [b.drop_path1.rate if isinstance(b.drop_path1, DropPath) else 0.0 for b in model.blocks]
        assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3])

    def test_attention_dropout_acts_in_training_only(self):
        model = Focal(FocalConfig(**SIZES["maps of 6, 3"], attention_dropout=0.5))
        images = torch.randn(1, 3, 12, 12)
        for fused in (True, False):
            for block in model.blocks:
                block.attn.fused_attn = fused
            assert not torch.equal(model.train()(images), model(images))
            assert torch.equal(model.eval()(images), model(images))


class TestUse:
    def test_taps_read_every_attention_and_name_its_keys(self):
        model = Focal(FocalConfig(**SIZES["maps of 6, 3"])).eval()
        images = torch.randn(2, 3, 12, 12)
        for block in model.blocks:
            nn.init.zeros_(block.attn.qkv.weight)
            for table in block.attn.parameters(recurse=False):
                nn.init.zeros_(table)
        plain = model(images)
        wanted = ["attn.0", "attn.1", "attn.2", "block.2"]
        assert set(wanted) <= set(hooks.names(model))
        with hooks.taps(model, wanted) as seen:
            assert torch.allclose(model(images), plain, atol=1e-6)
        assert seen["attn.0"].shape == (2 * 4, 2, 9, 25 + 9)  # (batch * windows, heads, queries, keys)
        assert seen["attn.2"].shape == (2 * 1, 4, 9, 9 + 1)
        assert seen["block.2"].shape == (2, 9, 8)
        for window, query in enumerate([(0, 0), (0, 3), (3, 0), (3, 3)]):  # equal logits: counts are all there is
            keys = focal_keys(model.config, 0, query)
            counts = torch.tensor([*keys.counts, *keys.on_map], dtype=torch.float32)
            assert torch.allclose(seen["attn.0"][window, 0, 0], counts / counts.sum(), atol=1e-6)
        assert all(block.attn.fused_attn for block in model.blocks)

    def test_blocks_are_all_of_them_and_registered_once(self):
        model = Focal(FocalConfig(**SIZES["maps of 8, 4, 2"]))
        assert [block.attn.qkv.in_features for block in model.blocks] == [4, 6, 6, 8]
        assert not any(name.startswith("blocks") for name, _ in model.named_parameters())

    def test_bf16_autocast_is_finite_and_near(self):
        model = randomised(Focal(FocalConfig(**SIZES["maps of 6, 3"])), seed=0, std=0.2).float()
        images = torch.randn(2, 3, 12, 12)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(images)
        logits.float().sum().backward()
        assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
        assert torch.allclose(logits.float(), model(images), atol=0.1)

    def test_small_images_and_no_head(self):
        config = FocalConfig(
            image_size=32,
            patch_size=2,
            classes=0,
            window=4,
            dims=(32, 64, 128),
            depths=(2, 2, 2),
            heads=(1, 2, 4),
            expand=(2, 2, 2),
            focal_window=(5, 3, 1),
        )
        model = Focal(config)
        assert sum(p.numel() for p in model.parameters()) in range(300_000, 1_000_000)
        tokens = model.forward_features(torch.randn(1, 3, 32, 32))
        assert tokens.shape == (1, 16, 128)
        assert torch.equal(model.forward_head(tokens), tokens.mean(1))


class TestBadInput:
    @pytest.mark.parametrize(
        ("images", "says"),
        [
            (torch.zeros(1, 3, 13, 12), r"takes images \(batch, 3, 12, 12\), got \(1, 3, 13, 12\)"),
            (torch.zeros(1, 1, 12, 12), r"got \(1, 1, 12, 12\)"),
            (torch.zeros(1, 3, 12, 12, dtype=torch.uint8), "floating-point images, got torch.uint8"),
        ],
    )
    def test_images_that_do_not_fit(self, images, says):
        with pytest.raises(ValueError, match=says):
            Focal(FocalConfig(**SIZES["maps of 6, 3"]))(images)

    @pytest.mark.parametrize(
        ("sizes", "says"),
        [
            ({"image_size": 13}, "multiple of the patch side, got 13 and 2"),
            ({"image_size": 20}, r"tile the map, got 10 x 10 tokens in stage 1 and windows of 3 x 3"),
            ({"image_size": 18}, r"2 x 2 tokens, got an odd map of 9 x 9 after stage 1"),
            ({"heads": (3, 4)}, "multiple of the number of heads, got 4 and 3"),
            ({"heads": (2,)}, "one entry a stage, got 2, 2, 1, 2, 2 entries"),
            ({"dims": (), "depths": (), "heads": (), "expand": (), "focal_window": ()}, "got 0, 0, 0, 0, 0"),
            ({"depths": (0, 1)}, "at least 1"),
            ({"window": 0}, "at least 1"),
            ({"mlp_ratio": -1.0}, "at least 1"),
            ({"classes": -1}, "at least 1"),
            ({"expand": (2, 1)}, "at most half a window wide, got 2 for a window of 3"),
            ({"expand": (-1, 1)}, "at most half a window wide, got -1"),
            ({"focal_window": (2, 1)}, "got 2 of them along an axis; choose an odd focal_window"),
        ],
    )
    def test_sizes_that_do_not_fit(self, sizes, says):
        with pytest.raises(ValueError, match=says):
            FocalConfig(**(SIZES["maps of 6, 3"] | sizes))

    @pytest.mark.parametrize(
        ("stage", "query", "says"),
        [
            (2, (0, 0), "Stages run from 0 to 1, got 2"),
            (-1, (0, 0), "Stages run from 0 to 1, got -1"),
            (1, (0, 3), r"Stage 1 is 3 x 3 tokens, got the query \(0, 3\)"),
            (0, (-1, 0), r"Stage 0 is 6 x 6 tokens, got the query \(-1, 0\)"),
        ],
    )
    def test_queries_that_do_not_exist(self, stage, query, says):
        with pytest.raises(ValueError, match=says):
            focal_keys(FocalConfig(**SIZES["maps of 6, 3"]), stage, query)

    @pytest.mark.parametrize(
        ("peer", "says"),
        [
            ({"use_shift": True}, "use_shift=True, ours False only"),
            ({"use_conv_embed": True}, "use_conv_embed=True"),
            ({"use_layerscale": True}, "use_layerscale=True"),
            ({"focal_pool": "conv"}, "focal_pool='conv', ours 'fc' only"),
            ({"expand_layer": "odd"}, "expand_layer='odd'"),
            ({"focal_levels": [3, 2]}, r"two levels a stage, fine and coarse, the peer \[3, 2\]"),
            ({"focal_stages": [0]}, r"focal in all 2 stages, the peer has focal_stages=\[0\]"),
            ({"num_heads": [3, 4]}, "multiple of the number of heads, got 16 and 3"),
        ],
    )
    def test_peers_that_ours_is_not(self, peer, says):
        arguments = dict(oracle("ws7_e3")[0])
        with pytest.raises(ValueError, match=says):
            config_of(arguments | peer)

    def test_a_peer_that_is_no_mapping_or_lacks_the_coarse_level(self):
        with pytest.raises(ValueError, match="the mapping of arguments of a FocalTransformer, got Linear"):
            config_of(nn.Linear(1, 1))
        with pytest.raises(ValueError, match=r"the peer \[1, 1, 1, 1\]"):
            config_of({})
        assert config_of({"focal_levels": [2, 2, 2, 2], "drop_path_rate": 0.0}) == FocalConfig.tiny()

    def test_weights_of_another_layout(self):
        arguments, _, _, state = oracle("ws7_e3")
        model = Focal(config_of(arguments | {"focal_windows": [1, 1]}))
        with pytest.raises(ValueError, match=r"_to_windows should be \(2, 49\), the checkpoint has \(2, 81\)"):
            weights.load(model, renamed(state))


def test_an_attention_alone_is_initialised():
    """What a network draws afterwards is zero until then, and never whatever lay in memory."""
    config = FocalConfig.tiny()
    for name, parameter in FocalAttention(config, 0).named_parameters():
        assert "bias_table" not in name or not parameter.any(), name
