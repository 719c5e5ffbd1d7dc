"""The Swin: equal to timm's and torchvision's, its parts equal to their equations, bad input refused plainly."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import timm
import torch
import torchvision
from timm.models.swin_transformer import SwinTransformer, checkpoint_filter_fn
from torch import Tensor, nn

from vitlab import hooks
from vitlab.models import weights
from vitlab.models.peers.swin import config_of, renamed
from vitlab.models.swin import (
    Block,
    PatchMerging,
    Swin,
    SwinConfig,
    WindowAttention,
    biased_attention_weights,
    relative_position_index,
    shift_mask,
    window_partition,
    window_reverse,
)

SIZES: dict[str, dict[str, Any]] = {
    "maps of 16, 8, 4": {  # three depths in the second stage; the third stage's map is one window
        "image_size": 32,
        "patch_size": 2,
        "window": 4,
        "dims": (16, 32, 64),
        "depths": (2, 3, 2),
        "heads": (1, 2, 4),
        "classes": 7,
    },
    "maps of 12, 6, 3": {  # an odd window, shifted by 1; the last map is one window
        "image_size": 48,
        "patch_size": 4,
        "channels": 1,
        "window": 3,
        "dims": (12, 24, 48),
        "depths": (1, 2, 2),
        "heads": (3, 2, 4),
        "classes": 5,
        "mlp_ratio": 3.0,
        "qkv_bias": False,
    },
    "maps of 10, 5": {  # a map as large as the window, and one smaller
        "image_size": 20,
        "patch_size": 2,
        "window": 10,
        "dims": (12, 24),
        "depths": (2, 2),
        "heads": (2, 3),
        "classes": 3,
    },
}
SMALL = SIZES["maps of 16, 8, 4"]


def theirs_of(config: SwinConfig) -> SwinTransformer:
    """timm's Swin of these sizes."""
    return SwinTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,
        in_chans=config.channels,
        num_classes=config.classes,
        embed_dim=config.dims[0],
        depths=config.depths,
        num_heads=config.heads,
        window_size=config.window,
        mlp_ratio=config.mlp_ratio,
        qkv_bias=config.qkv_bias,
        drop_path_rate=config.drop_path,
    )


def pair(config: SwinConfig, seed: int) -> tuple[Swin, SwinTransformer]:
    """Our Swin and timm's, with the same random weights everywhere, biases, norms and bias tables included."""
    torch.manual_seed(seed)
    theirs = theirs_of(config)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.1)
    ours = Swin(config)
    weights.load(ours, renamed(theirs.state_dict()))
    return ours, theirs


def fuse(model: nn.Module, fused: bool) -> None:
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = fused


def batch_of(config: SwinConfig, batch: int) -> Tensor:
    return torch.randn(batch, config.channels, config.image_size, config.image_size)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_logits_and_gradients_equal_timms_to_the_bit(size, fused, training, batch, seed):
    """With a gradient both our ways are the explicit one on a CPU, which is timm's default."""
    ours, theirs = pair(SwinConfig(**SIZES[size]), seed)
    fuse(ours, fused)
    fuse(theirs, False)
    images = batch_of(ours.config, batch)
    logits, expected = ours.train(training)(images), theirs.train(training)(images)
    assert torch.equal(logits, expected)
    for out in (logits, expected):
        out.square().sum().backward()
    gradients = renamed({name: p.grad for name, p in theirs.named_parameters()})
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter.grad, gradients.pop(name)), name
    assert not gradients


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("size", SIZES)
@torch.no_grad()
def test_fused_logits_equal_timms_to_the_bit(size, batch):
    ours, theirs = pair(SwinConfig(**SIZES[size]), 0)
    fuse(theirs, True)
    images = batch_of(ours.config, batch)
    logits = ours(images)
    assert torch.equal(logits, theirs(images))
    fuse(ours, False)
    assert torch.allclose(logits, ours(images), atol=1e-5)


def test_fused_gradients_equal_timms_to_the_bit(monkeypatch):
    """On an accelerator gradients too take the fused way; a CPU does when it believes that there are none."""
    ours, theirs = pair(SwinConfig(**SMALL | {"heads": (2, 2, 4)}), 0)  # a scale whose root is rounded
    fuse(theirs, True)
    images = batch_of(ours.config, 3)
    monkeypatch.setattr(torch, "is_grad_enabled", lambda: False)
    for model in (ours, theirs):
        model(images).square().sum().backward()
    gradients = renamed({name: p.grad for name, p in theirs.named_parameters()})
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter.grad, gradients[name]), name
    for parameter in ours.parameters():
        parameter.grad = None
    monkeypatch.undo()
    ours(images).square().sum().backward()  # the explicit way: the same up to rounding, but another kernel
    assert not all(torch.equal(p.grad, gradients[name]) for name, p in ours.named_parameters())
    for name, parameter in ours.named_parameters():
        g = gradients[name]
        assert torch.allclose(parameter.grad, g, rtol=0, atol=1e-4 * g.abs().max().item()), name


def from_torchvision(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """torchvision's weights under our names: its features are embedding, stage, merging, stage, merging, ..."""
    ours = {}
    for name, weight in state.items():
        name = name.replace("features.0.0.", "patch_embed.proj.").replace("features.0.2.", "patch_embed.norm.")
        name = re.sub(r"features\.(\d*[02468])\.", lambda m: f"layers.{int(m[1]) // 2}.downsample.", name)
        name = re.sub(r"features\.(\d+)\.(\d+)\.", lambda m: f"layers.{int(m[1]) // 2}.blocks.{m[2]}.", name)
        if not name.endswith("relative_position_index"):
            ours[name.replace("mlp.0.", "mlp.fc1.").replace("mlp.3.", "mlp.fc2.")] = weight
    return ours


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("training", [False, True])
def test_logits_and_gradients_equal_torchvisions_to_the_bit(training, seed):
    torch.manual_seed(seed)
    config = SwinConfig(**SMALL)
    theirs = torchvision.models.SwinTransformer(
        patch_size=[2, 2],
        embed_dim=16,
        depths=[2, 3, 2],
        num_heads=[1, 2, 4],
        window_size=[4, 4],
        stochastic_depth_prob=0.0,
        num_classes=7,
    )
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.1)
    ours = Swin(config)
    weights.load(ours, from_torchvision(theirs.state_dict()))
    images = batch_of(config, 3)
    logits, expected = ours.train(training)(images), theirs.train(training)(images)
    assert torch.equal(logits, expected)
    for out in (logits, expected):
        out.square().sum().backward()
    gradients = from_torchvision({name: p.grad for name, p in theirs.named_parameters()})
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter.grad, gradients.pop(name)), name
    assert not gradients


class TestNamedSizes:
    @pytest.mark.parametrize(
        ("name", "parameters"), [("tiny", 28_288_354), ("small", 49_606_258), ("base", 87_768_224)]
    )
    def test_they_have_timms_layout_and_the_papers_parameters(self, name, parameters):
        """The paper prints 29, 50 and 88 million (table 1)."""
        with torch.device("meta"):
            ours = Swin(getattr(SwinConfig, name)())
            theirs = timm.create_model(f"swin_{name}_patch4_window7_224")
        assert {k: v.shape for k, v in ours.state_dict().items()} == {
            k: v.shape for k, v in renamed(theirs.state_dict()).items()
        }
        assert sum(p.numel() for p in ours.parameters()) == parameters
        assert config_of(theirs) == getattr(SwinConfig, name)(drop_path=0.1)
        assert name in SwinConfig.SIZES

    def test_they_can_be_changed(self):
        config = SwinConfig.tiny(image_size=32, patch_size=1, window=4)
        assert config.sides == (32, 16, 8, 4)
        assert SwinConfig.tiny().sides == (56, 28, 14, 7)


def test_initialisation_has_timms_spread():
    torch.manual_seed(0)
    config = SwinConfig(**SMALL | {"dims": (96, 192, 384), "classes": 100})
    expected = renamed(dict(theirs_of(config).named_parameters()))
    for name, a in Swin(config).named_parameters():
        slack = 0.3 if a.numel() < 1000 else 0.1
        assert a.std().item() == pytest.approx(expected[name].std().item(), rel=slack, abs=1e-5), name
        assert a.mean().item() == pytest.approx(expected[name].mean().item(), abs=0.01), name


def test_stochastic_depth_rises_through_all_stages():
    model = Swin(SwinConfig(**SMALL, drop_path=0.3))
    rates = [getattr(block.drop_path2, "rate", 0.0) for block in model.blocks]
    assert rates == pytest.approx([0.3 * i / 6 for i in range(7)])


class TestEquations:
    def test_windows_are_cut_row_by_row_and_put_back(self):
        x = torch.randn(2, 6, 9, 4)
        windows = window_partition(x, 3)
        assert windows.shape == (2 * 2 * 3, 9, 4)
        for b in range(2):
            for row in range(6):
                for column in range(9):
                    window = b * 6 + (row // 3) * 3 + column // 3
                    assert torch.equal(windows[window, row % 3 * 3 + column % 3], x[b, row, column])
        assert torch.equal(window_reverse(windows, 3, 6, 9), x)

    @pytest.mark.parametrize(("rows", "columns", "window"), [(8, 8, 4), (6, 12, 3), (4, 6, 2)])
    def test_the_mask_keeps_apart_what_lay_further_apart_than_a_window(self, rows, columns, window):
        """Figure 4: two tokens that the roll brought into one window meet if a window can hold both."""
        shift = window // 2
        mask = shift_mask(rows, columns, window, shift)
        assert mask.shape == (rows // window * columns // window, window**2, window**2)
        for i, pairs in enumerate(mask):
            top, left = i // (columns // window) * window, i % (columns // window) * window
            for a in range(window**2):
                for b in range(window**2):
                    near = True
                    for start, side, x, y in ((top, rows, a // window, b // window), (left, columns, a, b)):
                        origin = [(start + t % window + shift) % side for t in (x, y)]
                        near &= abs(origin[0] - origin[1]) < window
                    assert pairs[a, b] == (0.0 if near else -100.0)

    def test_the_bias_is_read_by_offset(self):
        """(q - k + M - 1), rows then columns, row by row over a side of 2M - 1 (section 3.2)."""
        index = relative_position_index(3)
        for q in range(9):
            for k in range(9):
                assert index[q, k] == (q // 3 - k // 3 + 2) * 5 + (q % 3 - k % 3 + 2)
        assert sorted(set(index.flatten().tolist())) == list(range(25))

    def test_attention_weights_are_softmax_of_scaled_products_and_bias(self):
        """softmax(Q K^T / sqrt(d) + B), equation 4, in float64 and by hand."""
        q, k = torch.randn(2, 2, 3, 4, 5, dtype=torch.float64)
        bias = torch.randn(3, 4, 4, dtype=torch.float64)
        expected = torch.empty(2, 3, 4, 4, dtype=torch.float64)
        for b in range(2):
            for h in range(3):
                for i in range(4):
                    logits = [
                        float(q[b, h, i] @ k[b, h, j]) / math.sqrt(5) + float(bias[h, i, j]) for j in range(4)
                    ]
                    total = sum(map(math.exp, logits))
                    expected[b, h, i] = torch.tensor([math.exp(x) / total for x in logits])
        assert torch.allclose(biased_attention_weights(q, k, bias), expected, atol=1e-14)
        none = biased_attention_weights(q, k, torch.zeros_like(bias))
        assert torch.equal(biased_attention_weights(q, k, None), none)

    @pytest.mark.parametrize("relative", [True, False])
    @pytest.mark.parametrize("shifted", [True, False])
    @pytest.mark.parametrize("fused", [True, False])
    @torch.no_grad()
    def test_rolling_and_masking_is_attention_in_displaced_windows(self, fused, shifted, relative):
        """Each token gathers from the window it lies in, borders at shift, shift + M, ... (figure 2)."""
        torch.manual_seed(0)
        config = SwinConfig(**SMALL | {"patch_size": 4, "dims": (8, 16, 32)}, relative_bias=relative)  # 8 x 8
        block = Block(config, 0, shifted, 0.0).double()
        for parameter in block.parameters():
            nn.init.normal_(parameter, std=0.5)
        block.attn.fused_attn = fused
        x = torch.randn(2, 64, 8, dtype=torch.float64)
        q, k, v = block.attn.qkv(x).chunk(3, dim=-1)
        place = [divmod(t, 8) for t in range(64)]
        displaced = 2 if shifted else 0
        window = [((r - displaced) // 4, (c - displaced) // 4) for r, c in place]
        expected = torch.empty_like(x)
        for b in range(2):
            for i, (r, c) in enumerate(place):
                keys = [j for j in range(64) if window[j] == window[i]]
                logits = [float(q[b, i] @ k[b, j]) / math.sqrt(8) for j in keys]
                if relative:
                    table = block.attn.relative_position_bias_table.reshape(7, 7)
                    for n, j in enumerate(keys):
                        logits[n] += float(table[r - place[j][0] + 3, c - place[j][1] + 3])
                attention = torch.tensor(logits, dtype=torch.float64).softmax(0)
                expected[b, i] = block.attn.proj(attention @ v[b, keys])
        assert torch.allclose(block.exchange(x), expected, atol=1e-12)

    def test_merging_lays_four_tokens_side_by_side(self):
        """(0, 0), (1, 0), (0, 1), (1, 1), section 3.1 and the published order; then the norm, then one map."""
        merge = PatchMerging(4, 3, 5).double()
        nn.init.normal_(merge.norm.weight)
        x = torch.randn(2, 16, 3, dtype=torch.float64)
        out = merge(x)
        assert out.shape == (2, 4, 5)
        for row in range(2):
            for column in range(2):
                four = [(2 * row + dr) * 4 + 2 * column + dc for dc in (0, 1) for dr in (0, 1)]
                expected = merge.reduction(merge.norm(torch.cat([x[:, t] for t in four], dim=-1)))
                assert torch.allclose(out[:, row * 2 + column], expected, atol=1e-14)

    def test_only_a_shift_lets_windows_exchange(self):
        """What a token changes after one stage: its own window without the shift, other windows with it."""
        for shift in (False, True):
            torch.manual_seed(0)
            model = Swin(SwinConfig(**SMALL, shift=shift)).double().eval()
            tokens = torch.randn(1, 256, 16, dtype=torch.float64, requires_grad=True)
            at = 6 * 16 + 6  # in the window of rows and columns 4 to 7, in the part that a shift joins to the next
            model.layers[0](tokens)[0, at].sum().backward()
            seen = (tokens.grad[0].abs().amax(-1).reshape(16, 16) > 1e-12).nonzero()
            assert seen.min().item() == 4
            assert seen.max().item() == (11 if shift else 7)

    def test_without_the_bias_tokens_of_a_window_have_no_order(self):
        x = torch.randn(3, 16, 16, dtype=torch.float64)
        order = torch.randperm(16)
        for relative in (True, False):
            config = SwinConfig(**SMALL, relative_bias=relative)
            attention = WindowAttention(config, 16, 2, 4).double()
            if relative:
                nn.init.normal_(attention.relative_position_bias_table)
            same = torch.allclose(attention(x)[:, order], attention(x[:, order]), atol=1e-12)
            assert same is not relative

    def test_a_map_no_larger_than_the_window_is_one_window(self):
        blocks = Swin(SwinConfig(**SIZES["maps of 10, 5"])).blocks
        assert [(b.window, b.shift, b.mask) for b in blocks] == [(10, 0, None)] * 2 + [(5, 0, None)] * 2

    def test_the_head_averages(self):
        model = Swin(SwinConfig(**SMALL)).eval()
        images = batch_of(model.config, 2)
        tokens = model.forward_features(images)
        assert tokens.shape == (2, 16, 64)
        assert torch.equal(model(images), model.head(tokens.mean(1)))
        assert isinstance(Swin(SwinConfig(**SMALL | {"classes": 0})).head, nn.Identity)


class TestUse:
    def test_taps_read_every_block(self):
        model = Swin(SwinConfig(**SMALL)).eval()
        names = hooks.names(model)
        assert names == ["patch_embed", "pos_embed", *(f"{k}.{i}" for i in range(7) for k in ("attn", "block"))]
        images = batch_of(model.config, 2)
        with torch.no_grad():
            expected = model(images)
            with hooks.taps(model, names) as seen:
                logits = model(images)
        assert torch.allclose(logits, expected, atol=1e-6)
        assert seen["patch_embed"].shape == seen["pos_embed"].shape == (2, 256, 16)
        windows, heads, tokens, dims = (
            [16] * 2 + [4] * 3 + [1] * 2,
            [1] * 2 + [2] * 3 + [4] * 2,
            [256, 64, 16],
            SMALL["dims"],
        )
        for i in range(7):
            stage = (0, 0, 1, 1, 1, 2, 2)[i]
            assert seen[f"attn.{i}"].shape == (2 * windows[i], heads[i], 16, 16)
            assert torch.allclose(seen[f"attn.{i}"].sum(-1), torch.ones(()), atol=1e-5)
            assert seen[f"block.{i}"].shape == (2, tokens[stage], dims[stage])
        assert torch.equal(model.norm(seen["block.6"]), model.forward_features(images).detach())

    def test_the_list_of_blocks_registers_nothing(self):
        model = Swin(SwinConfig(**SMALL))
        before = list(model.state_dict())
        assert len(model.blocks) == 7
        assert list(model.state_dict()) == before
        assert not any("mask" in name or "index" in name for name in before)

    @pytest.mark.parametrize("grad", [True, False])
    def test_autocast_in_bfloat16_is_near_float32(self, grad):
        torch.manual_seed(0)
        model = Swin(SwinConfig(**SMALL))
        images = batch_of(model.config, 2)
        with torch.set_grad_enabled(grad):
            expected = model(images)
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(images)
        assert logits.dtype == torch.bfloat16
        assert torch.allclose(logits.float(), expected, atol=0.05 * expected.abs().max().item())
        if grad:
            logits.float().square().sum().backward()
            assert all(p.grad.isfinite().all() for p in model.parameters())

    def test_a_small_one_learns(self):
        torch.manual_seed(0)
        model = Swin(SwinConfig(**SMALL, drop_path=0.1, dropout=0.1, attention_dropout=0.1))
        images, labels = batch_of(model.config, 7), torch.arange(7)
        optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
        for _ in range(30):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        assert nn.functional.cross_entropy(model.eval()(images), labels) < 0.5


class TestPeers:
    def test_the_published_layout_is_read_as_timm_reads_it(self):
        ours, theirs = pair(SwinConfig(**SMALL), 0)
        published = {}
        for name, weight in theirs.state_dict().items():
            name = re.sub(r"layers\.(\d+)\.downsample", lambda m: f"layers.{int(m[1]) - 1}.downsample", name)
            published[name.replace("head.fc.", "head.")] = weight
        published["layers.0.blocks.0.attn.relative_position_index"] = torch.zeros(16, 16)
        published["layers.0.blocks.1.attn_mask"] = torch.zeros(16, 16, 16)
        expected = renamed(checkpoint_filter_fn(dict(published), theirs))
        read = renamed(published)
        assert read.keys() == expected.keys() == ours.state_dict().keys()
        assert all(torch.equal(read[name], expected[name]) for name in expected)

    def test_all_options_are_read(self):
        theirs = SwinTransformer(
            img_size=32,
            patch_size=2,
            window_size=4,
            embed_dim=16,
            depths=(2, 3, 2),
            num_heads=(1, 2, 4),
            num_classes=7,
            mlp_ratio=3.0,
            qkv_bias=False,
            drop_path_rate=0.2,
            proj_drop_rate=0.3,
            attn_drop_rate=0.4,
        )
        assert config_of(theirs) == SwinConfig(
            **SMALL, mlp_ratio=3.0, qkv_bias=False, drop_path=0.2, dropout=0.3, attention_dropout=0.4
        )

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"window_size": (4, 8, 4)}, "stage 1 has windows of 4 x 4 shifted by 0 and 0, ours would have 8 x 8"),
            ({"window_size": (4, 2)}, "stage 1 has windows of 4 x 2"),
            ({"img_size": (32, 64)}, "square images, the peer 32 x 64"),
            ({"norm_layer": lambda d, **kw: nn.LayerNorm(d, eps=1e-6)}, "eps 1e-06, ours with 1e-5"),
            ({"drop_rate": 0.1}, "drops 0.1 before its head"),
            (
                {"always_partition": True, "window_size": 8},
                "stage 2 has windows of 8 x 8 shifted by 4 and 4, ours would have 8 x 8 shifted by 0",
            ),
            ({"head_dim": 8}, "not as wide as dim / heads"),
            ({"global_pool": "max"}, "pools by 'max', ours averages"),
            ({"window_size": 3}, "Windows must tile the map"),
        ],
    )
    def test_a_feature_we_lack_is_refused(self, options, says):
        sizes = {"img_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 16} | options
        theirs = SwinTransformer(**sizes, depths=(2, 2, 2), num_heads=(1, 2, 4))
        with pytest.raises(ValueError, match=says):
            config_of(theirs)

    def test_another_architecture_is_refused(self):
        with pytest.raises(ValueError, match="reads a timm SwinTransformer, got Linear"):
            config_of(nn.Linear(2, 2))


class TestBadInput:
    @pytest.mark.parametrize(
        ("images", "says"),
        [
            (torch.zeros(1, 3, 28, 28), r"takes images \(batch, 3, 32, 32\), got \(1, 3, 28, 28\)"),
            (torch.zeros(1, 1, 32, 32), r"got \(1, 1, 32, 32\)"),
            (torch.zeros(3, 32, 32), r"got \(3, 32, 32\)"),
            (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "floating-point images, got torch.uint8"),
        ],
    )
    def test_images_that_do_not_fit(self, images, says):
        with pytest.raises(ValueError, match=says):
            Swin(SwinConfig(**SMALL))(images)

    @pytest.mark.parametrize(
        ("sizes", "says"),
        [
            ({"image_size": 33}, "multiple of the patch side, got 33 and 2"),
            ({"window": 5}, r"must tile the map, got 16 x 16 tokens in stage 1 and windows of 5 x 5"),
            ({"window": 8, "image_size": 48}, "got 12 x 12 tokens in stage 2 and windows of 8 x 8"),
            ({"image_size": 28, "window": 7}, "an odd map of 7 x 7 after stage 2"),
            ({"heads": (1, 2, 5)}, "multiple of the number of heads, got 64 and 5"),
            ({"depths": (2, 2)}, "got 3, 2 and 3 entries"),
            ({"dims": (), "depths": (), "heads": ()}, "got 0, 0 and 0 entries"),
            ({"depths": (2, 0, 2)}, "at least 1"),
            ({"window": 0}, "at least 1"),
            ({"patch_size": -2}, "at least 1"),
            ({"classes": -1}, "at least 1"),
            ({"mlp_ratio": 0.0}, "at least 1"),
            ({"image_size": 2}, "stage"),
        ],
    )
    def test_sizes_that_do_not_fit(self, sizes, says):
        with pytest.raises(ValueError, match=says):
            SwinConfig(**(SMALL | sizes))
