"""MViT: version 1 equal to torchvision's to the bit, version 2 to timm's, its parts equal to their equations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import timm
import torch
from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models.video import mvit_v1_b
from torchvision.models.video.mvit import MSBlockConfig
from torchvision.models.video.mvit import MViT as TorchvisionMViT

from vitlab import hooks
from vitlab.models import weights
from vitlab.models.mvit import Attention, Block, MViT, MViTConfig, Pooling, relative_index, relative_logits
from vitlab.models.peers import mvit as peers

THREE_STAGES = {
    "image_size": 32,
    "patch_kernel": 3,
    "patch_stride": 2,
    "classes": 7,
    "dims": (16, 32, 64),
    "depths": (1, 2, 2),
    "heads": (1, 2, 4),
    "kv_strides": (4, 2, 1),
}
TWO_STAGES = {  # with a key stride of 3 queries and keys do not fall on one another; heads are 6 and 8 wide
    "image_size": 48,
    "classes": 5,
    "dims": (12, 24),
    "depths": (2, 2),
    "heads": (2, 3),
    "kv_strides": (3, 2),
}
SIZES = {"three stages": THREE_STAGES, "two stages": TWO_STAGES}
CLASS_TOKEN = {"class_token": True, "absolute_positions": True}


TIME = ("temporal_pos", "rel_pos_t")  # torchvision's weights for the axis that we lack: one frame has no time


def timms(config: MViTConfig) -> nn.Module:
    """timm's model of these sizes."""
    c = config
    cfg = MultiScaleVitCfg(
        depths=c.depths,
        embed_dim=c.dims,
        num_heads=c.heads,
        mlp_ratio=c.mlp_ratio,
        expand_attn=c.widen_in == "attention",
        use_cls_token=c.class_token,
        use_abs_pos=c.absolute_positions,
        residual_pooling=c.residual_pooling,
        rel_pos_type="spatial" if c.relative_positions else "none",
        mode=c.pool,
        kernel_qkv=(c.pool_kernel, c.pool_kernel),
        stride_q=((1, 1),) + ((2, 2),) * (len(c.dims) - 1),
        stride_kv=tuple((s, s) for s in c.kv_strides),
        patch_kernel=(c.patch_kernel,) * 2,
        patch_stride=(c.patch_stride,) * 2,
        patch_padding=(c.patch_kernel // 2,) * 2,
    )
    return MultiScaleVit(cfg, img_size=c.image_size, in_chans=c.channels, num_classes=c.classes)


def torchvisions(config: MViTConfig) -> nn.Module:
    """torchvision's model of these sizes, with one frame."""
    c = config
    kernel = [1, c.pool_kernel, c.pool_kernel]
    settings = [
        MSBlockConfig(
            num_heads=p.heads,
            input_channels=p.dim,
            output_channels=p.dim_out,
            kernel_q=kernel if c.pool_every_query or p.q_stride > 1 else [],
            kernel_kv=kernel,
            stride_q=[1, p.q_stride, p.q_stride],
            stride_kv=[1, p.kv_stride, p.kv_stride],
        )
        for p in c.plan
    ]
    return TorchvisionMViT(
        spatial_size=(c.image_size, c.image_size),
        temporal_size=1,
        block_setting=settings,
        residual_pool=c.residual_pooling,
        residual_with_cls_embed=False,
        rel_pos_embed=c.relative_positions,
        proj_after_attn=c.widen_in == "attention",
        dropout=0.0,
        num_classes=c.classes,
        patch_embed_kernel=(1, c.patch_kernel, c.patch_kernel),
        patch_embed_stride=(1, c.patch_stride, c.patch_stride),
        patch_embed_padding=(0, c.patch_kernel // 2, c.patch_kernel // 2),
    )


def pair(config: MViTConfig, build, seed: int) -> tuple[MViT, nn.Module]:
    """Our model and a peer with the same random weights everywhere, biases, norms and position tables included."""
    torch.manual_seed(seed)
    theirs = build(config)
    for name, parameter in theirs.named_parameters():
        if name.endswith(TIME):
            nn.init.zeros_(parameter)
        else:
            scales = parameter.ndim == 1 and name.endswith("weight")  # a norm: near 1, or all weights are alike
            nn.init.normal_(parameter, mean=float(scales), std=0.2)
    assert peers.config_of(theirs) == config
    ours = MViT(peers.config_of(theirs))
    weights.load(ours, peers.renamed(theirs.state_dict()))
    return ours, theirs


def differences(ours: MViT, theirs: nn.Module, images: Tensor) -> tuple[float, float]:
    """The largest difference of the logits, and of any gradient, each as a part of the largest it should be.

    A bias of pooled keys moves all logits of a query alike, so that its gradient is nothing but rounding: only
    that is checked.
    """
    logits, expected = ours(images), theirs(images)
    for out in (logits, expected):
        out.square().sum().backward()
    gradients = {n: torch.zeros_like(p) if n.endswith(TIME) else p.grad for n, p in theirs.named_parameters()}
    gradients = peers.renamed(gradients)
    assert gradients.keys() == dict(ours.named_parameters()).keys()
    worst = 0.0
    for name, parameter in ours.named_parameters():
        off = (parameter.grad - gradients[name]).abs().max().item()
        if name.endswith("pool_k.norm.bias"):
            assert off < 1e-6 * max(gradient.abs().max().item() for gradient in gradients.values())
        elif off:
            worst = max(worst, off / gradients[name].abs().max().item())
    return ((logits - expected).abs().max() / expected.abs().max()).item(), worst


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("version", [1, 2])
def test_logits_equal_the_peers_to_the_bit_and_gradients_to_rounding(version, size, fused, training, batch, seed):
    """Version 1 against torchvision, version 2 against timm; the fused path to rounding."""
    name, build = ("b_16", torchvisions) if version == 1 else ("v2_tiny", timms)
    ours, theirs = pair(getattr(MViTConfig, name)(**SIZES[size]), build, seed)
    for model in (ours, theirs):
        model.train(training)
    for block in ours.blocks:
        block.attn.fused_attn = fused
    side = ours.config.image_size
    logits, gradients = differences(ours, theirs, torch.randn(batch, 3, side, side))
    assert logits <= (1e-6 if fused else 0.0)
    assert gradients <= 1e-5


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("build", "fields"),
    [
        ("timm", {"pool": "max"}),
        ("timm", {"pool": "avg"}),
        ("timm", {"pool_kernel": 5}),
        ("timm", {"widen_in": "mlp"}),
        ("timm", {"residual_pooling": False}),
        ("timm", {"relative_positions": False, "absolute_positions": True}),
        ("timm", CLASS_TOKEN | {"residual_pooling": False}),
        ("timm", {"pool_kernel": 1, "kv_strides": (1, 1, 1), "pool_every_query": False, "mlp_ratio": 2.0}),
        ("torchvision", CLASS_TOKEN | {"relative_positions": False}),
        ("torchvision", {"class_token": True}),
        ("torchvision", {"class_token": True, "pool_every_query": False, "widen_in": "mlp"}),
    ],
)
def test_each_field_alone_equals_the_peer(build, fields, fused):
    """torchvision's version 2 is the published one where there is a class token: nothing is added to it."""
    config = MViTConfig.v2_tiny(**THREE_STAGES | fields)
    ours, theirs = pair(config, timms if build == "timm" else torchvisions, 0)
    for block in ours.blocks:
        block.attn.fused_attn = fused
    logits, gradients = differences(ours, theirs, torch.randn(2, 3, 32, 32))
    assert logits <= 1e-6
    # Where two cells of a window tie but for rounding, a maximum sends its gradient to the other one.
    assert gradients <= (1e-4 if config.pool == "max" else 1e-5)


@pytest.mark.parametrize(
    ("size", "parameters", "flops"), [("tiny", 24, 4.7), ("small", 35, 7.0), ("base", 51.5, 10.1)]
)
def test_version_2_named_sizes_have_timms_layout_and_the_papers_size(size, parameters, flops):
    """arXiv 2112.01526, table 1, in millions and 1e9 multiplications; for base it prints 52 and 10.2."""
    with torch.device("meta"):
        ours = MViT(getattr(MViTConfig, f"v2_{size}")())
        theirs = timm.create_model(f"mvitv2_{size}")
    assert peers.config_of(theirs) == ours.config
    assert shapes(ours.state_dict()) == shapes(peers.renamed(theirs.state_dict()))
    assert millions(ours) == pytest.approx(parameters, abs=0.5 if size != "base" else 0.05)
    assert giga_multiplications(ours) == pytest.approx(flops, abs=0.05)


def test_b_16_has_the_layout_of_torchvisions_video_model_and_the_papers_size():
    """arXiv 2104.11227, tables 3b (depths and widths) and 17 (37.0 M parameters, 7.8 GFLOPs)."""
    config = MViTConfig.b_16()
    assert [p.dim for p in config.plan] == [96, 192, 192] + [384] * 11 + [768] * 2
    assert [p.queries for p in config.plan] == [56, 28, 28] + [14] * 11 + [7] * 2
    assert [p.keys for p in config.plan] == [14, 28, 14, 28] + [14] * 10 + [14, 7]
    with torch.device("meta"):
        ours, theirs, video = MViT(config), torchvisions(config), mvit_v1_b()
    assert shapes(ours.state_dict()) == shapes(peers.renamed(theirs.state_dict()))
    for block, plan in zip(video.blocks, config.plan, strict=True):
        assert block.attn.num_heads == plan.heads
        assert block.norm1.normalized_shape == (plan.dim,)
        assert block.mlp[3].out_features == plan.dim_out
        assert (block.attn.pool_q.pool.stride[1] if block.attn.pool_q else 1) == plan.q_stride
    assert millions(ours) == pytest.approx(37.0, abs=0.05)
    assert giga_multiplications(ours) == pytest.approx(7.8, abs=0.05)
    with torch.device("meta"):
        assert (
            giga_multiplications(MViT(replace(config, kv_strides=(8, 4, 2, 1)))) < 7.3
        )  # the video model's strides


def shapes(state: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in state.items()}


def millions(model: nn.Module) -> float:
    return sum(p.numel() for p in model.parameters()) / 1e6


def giga_multiplications(model: MViT) -> float:
    side = model.config.image_size
    for block in model.blocks:
        block.attn.fused_attn = False
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, side, side, device="meta"))
    return counter.get_total_flops() / 2e9  # torch counts a multiplication and an addition as two


def test_initialisation_has_the_peers_spread():
    sizes = {"dims": (96, 192), "depths": (1, 2), "heads": (1, 2), "kv_strides": (2, 1), "image_size": 64}
    for config in (MViTConfig.b_16(**sizes), MViTConfig.v2_tiny(**sizes, class_token=True)):
        torch.manual_seed(0)
        ours, theirs = MViT(config), torchvisions(config)
        for name, parameter in theirs.named_parameters():
            if name.endswith(TIME):
                nn.init.zeros_(parameter)
        expected = peers.renamed(theirs.state_dict())
        for name, parameter in ours.named_parameters():
            spread = expected[name].std().item()
            assert parameter.std().item() == pytest.approx(spread, rel=0.15, abs=1e-5), name


class TestEquations:
    @pytest.mark.parametrize("prefix", [0, 1])
    @pytest.mark.parametrize("op", ["conv", "max", "avg"])
    def test_pooling_slides_a_kernel_over_the_grid_of_each_head(self, op, prefix):
        """P(.; k, s, p), arXiv 2104.11227, section 3.1: length floor((L + 2p - k) / s) + 1 along each axis."""
        torch.manual_seed(0)
        side, stride, dim = 6, 2, 4
        pooling = Pooling(op, dim, side, 3, stride, prefix).double()
        nn.init.normal_(pooling.norm.weight) if op == "conv" else None
        x = torch.randn(2, 3, prefix + side * side, dim, dtype=torch.float64)
        out = (side + 2 - 3) // stride + 1
        expected = torch.zeros(2, 3, prefix + out * out, dim, dtype=torch.float64)
        expected[:, :, :prefix] = x[:, :, :prefix]
        for i in range(out):
            for j in range(out):
                window = []
                for a in range(3):
                    for b in range(3):
                        r, c = i * stride + a - 1, j * stride + b - 1
                        inside = 0 <= r < side and 0 <= c < side
                        cell = x[:, :, prefix + r * side + c] if inside else torch.zeros_like(x[:, :, 0])
                        if op == "conv":
                            cell = cell * pooling.pool.weight[:, 0, a, b]
                        if inside or op != "max":
                            window.append(cell)
                cells = torch.stack(window)
                value = {"conv": cells.sum(0), "max": cells.amax(0), "avg": cells.sum(0) / 9}[op]
                expected[:, :, prefix + i * out + j] = value
        if op == "conv":  # LayerNorm over each token of each head, the class token too
            mean, var = expected.mean(-1, keepdim=True), expected.var(-1, keepdim=True, unbiased=False)
            expected = (expected - mean) / (var + 1e-6).sqrt() * pooling.norm.weight + pooling.norm.bias
        assert torch.allclose(pooling(x), expected, atol=1e-12)

    @pytest.mark.parametrize(("queries", "keys"), [(4, 4), (8, 2), (3, 6), (1, 4)])
    def test_the_relative_index_is_the_distance_on_the_finer_scale(self, queries, keys):
        """arXiv 2112.01526, section 4.1, footnote 3: positions of both in a shared scale."""
        index = relative_index(queries, keys)
        finer = max(queries, keys)
        for i in range(queries):
            for j in range(keys):
                distance = i * (finer // queries) - j * (finer // keys)
                assert index[i, j] == distance + (keys - 1) * (finer // keys)
        assert index.min() == 0
        assert index.max() <= 2 * finer - 2

    def test_relative_logits_are_a_query_times_the_vector_of_its_row_and_of_its_column(self):
        """E_ij = Q_i . (R^h + R^w), arXiv 2112.01526, equations 3 and 4, in float64 and by hand."""
        torch.manual_seed(0)
        side, span, dim = 4, 2, 5
        q = torch.randn(2, 3, side * side, dim, dtype=torch.float64)
        rows, columns = torch.randn(2, 2 * side - 1, dim, dtype=torch.float64)
        onto = torch.randn(2, 3, side * side, span * span, dtype=torch.float64)
        index = relative_index(side, span)
        expected = onto.clone()
        for i in range(side * side):
            for j in range(span * span):
                vertical = rows[index[i // side, j // span]]
                horizontal = columns[index[i % side, j % span]]
                expected[:, :, i, j] += q[:, :, i] @ (vertical + horizontal)
        assert torch.allclose(relative_logits(q, rows, columns, index, onto), expected, atol=1e-13)
        alone = relative_logits(q, rows, columns, index)
        assert torch.allclose(alone, expected - onto, atol=1e-13)

    @pytest.mark.parametrize("class_token", [False, True])
    def test_pooling_attention_by_hand(self, class_token):
        """Softmax(Q K^T / sqrt(d) + E) V + Q, arXiv 2112.01526, equations 1 to 5, but no Q for a class token."""
        torch.manual_seed(0)
        config = MViTConfig.v2_tiny(**THREE_STAGES, class_token=class_token)
        attention = Attention(config, config.plan[1]).double()  # 16 x 16 cells to 8 x 8 queries and 8 x 8 keys
        for parameter in attention.parameters():
            nn.init.normal_(parameter, std=0.3)
        prefix = int(class_token)
        x = torch.randn(2, prefix + 256, 16, dtype=torch.float64)
        q, k, v = attention.qkv(x).unflatten(2, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        q, k, v = attention.pool_q(q), attention.pool_k(k), attention.pool_v(v)
        gathered = torch.zeros_like(q)
        for i in range(prefix + 64):
            logits = torch.einsum("bhd,bhkd->bhk", q[:, :, i], k) / math.sqrt(16)
            for j in range(prefix, prefix + 64):
                if i >= prefix:
                    (r, c), (s, t) = divmod(i - prefix, 8), divmod(j - prefix, 8)
                    vector = attention.rel_pos_h[r - s + 7] + attention.rel_pos_w[c - t + 7]
                    logits[:, :, j] += q[:, :, i] @ vector
            gathered[:, :, i] = torch.einsum("bhk,bhkd->bhd", logits.softmax(-1), v)
            if i >= prefix:
                gathered[:, :, i] += q[:, :, i]
        expected = attention.proj(gathered.transpose(1, 2).flatten(2))
        assert expected.shape == (2, prefix + 64, 32)
        for fused in (True, False):
            attention.fused_attn = fused
            assert torch.allclose(attention(x), expected, atol=1e-12)

    def test_a_block_alone_is_initialised(self):
        """What a network draws afterwards is zero until then, and never whatever lay in memory."""
        for plan in MViTConfig.v2_tiny(**THREE_STAGES).plan:
            block = Block(MViTConfig.v2_tiny(**THREE_STAGES), plan, 0.0)
            assert not block.attn.rel_pos_h.any() and not block.attn.rel_pos_w.any()

    @pytest.mark.parametrize("widen_in", ["attention", "mlp"])
    def test_the_linear_layer_of_a_skip_reads_the_normed_tokens(self, widen_in):
        """arXiv 2104.11227, section 3.2: with attention and MLP silenced, what is left is the skip connection."""
        torch.manual_seed(0)
        config = MViTConfig.v2_tiny(**THREE_STAGES, widen_in=widen_in)
        plan = config.plan[1] if widen_in == "attention" else config.plan[0]
        block = Block(config, plan, 0.0).double()
        for layer in (block.attn.proj, block.mlp.fc2):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        x = torch.randn(2, 256, 16, dtype=torch.float64)
        normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-6).sqrt()
        if widen_in == "mlp":
            assert torch.allclose(block(x), block.shortcut_proj_mlp(normed), atol=1e-12)
        else:
            grid = block.shortcut_proj_attn(normed).transpose(1, 2).unflatten(2, (16, 16))
            padded = nn.functional.pad(grid, (1, 1, 1, 1), value=-math.inf)
            pooled = padded.unfold(2, 3, 2).unfold(3, 3, 2).amax((-2, -1))  # (batch, dim, 8, 8)
            assert torch.allclose(block(x), pooled.flatten(2).transpose(1, 2), atol=1e-12)

    def test_a_kernel_one_wider_than_its_stride_pools_nothing_at_stride_1(self):
        """arXiv 2104.11227, table 15, k = s + 1."""
        config = MViTConfig.b_16(**THREE_STAGES, pool="max", pool_kernel=None)
        attentions = [block.attn for block in MViT(config).blocks]
        kernels = [a.pool_k.pool.kernel_size if isinstance(a.pool_k, Pooling) else 1 for a in attentions]
        assert kernels == [5, 3, 3, 1, 1]
        assert [isinstance(a.pool_q, Pooling) for a in attentions] == [False, True, False, True, False]
        assert MViT(config)(torch.randn(1, 3, 32, 32)).shape == (1, 7)

    @pytest.mark.parametrize("kernel", [None, 1, 3, 5])
    @pytest.mark.parametrize("stride", [1, 2, 3, 4])
    def test_the_stride_divides_the_side_whatever_the_kernel(self, stride, kernel):
        """Shape-preserving padding, arXiv 2104.11227, section 3.1; with k = s + 1 a kernel may be even."""
        config = MViTConfig.b_16(**TWO_STAGES | {"kv_strides": (stride, 1)}, pool_kernel=kernel)
        attention = Attention(config, config.plan[0])
        keys = attention.pool_k(torch.randn(1, 2, 1 + 12 * 12, 6))
        assert keys.shape == (1, 2, 1 + (12 // stride) ** 2, 6)

    def test_without_positions_pooling_still_knows_neighbours(self):
        """Pooling over the grid tells places apart: why arXiv 2112.01526, table 6, finds little lost in row 1."""
        torch.manual_seed(0)
        config = MViTConfig.v2_tiny(**THREE_STAGES, relative_positions=False)
        model = MViT(config).double().eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
        tokens = model.embed(torch.randn(1, 3, 32, 32, dtype=torch.float64))
        order = torch.randperm(256)
        one = model.blocks[0]
        assert not torch.allclose(one(tokens)[:, order], one(tokens[:, order]), atol=1e-3)


class TestModel:
    def test_a_head_of_no_classes_gives_features(self):
        model = MViT(MViTConfig.v2_tiny(**THREE_STAGES | {"classes": 0})).eval()
        images = torch.randn(2, 3, 32, 32)
        tokens = model.forward_features(images)
        assert tokens.shape == (2, 16, 64)
        assert torch.equal(model(images), tokens.mean(1))

    def test_version_1_reads_its_class_token(self):
        model = MViT(MViTConfig.b_16(**THREE_STAGES)).eval()
        tokens = model.forward_features(torch.randn(2, 3, 32, 32))
        assert tokens.shape == (2, 17, 64)
        assert torch.equal(model.forward_head(tokens), model.head(tokens[:, 0]))

    def test_drop_path_rises_with_depth(self):
        model = MViT(MViTConfig.v2_tiny(**THREE_STAGES, drop_path=0.4))
        rates = [getattr(block.drop_path1, "rate", 0.0) for block in model.blocks]
        assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])

    @pytest.mark.parametrize("name", ["b_16", "v2_tiny"])
    def test_every_weight_learns(self, name):
        model = MViT(getattr(MViTConfig, name)(**THREE_STAGES))
        model(torch.randn(2, 3, 32, 32)).square().sum().backward()
        assert [n for n, p in model.named_parameters() if p.grad is None] == []

    @pytest.mark.parametrize("name", ["b_16", "v2_tiny"])
    def test_attention_can_be_tapped(self, name):
        model = MViT(getattr(MViTConfig, name)(**THREE_STAGES)).eval()
        images = torch.randn(2, 3, 32, 32)
        expected, prefix = model(images), int(name == "b_16")
        assert [n for n in hooks.names(model) if n.startswith("attn")] == [f"attn.{i}" for i in range(5)]
        with hooks.taps(model, hooks.names(model)) as seen:
            assert torch.allclose(model(images), expected, atol=1e-6)
        for i, plan in enumerate(model.config.plan):
            queries, keys = prefix + plan.queries**2, prefix + plan.keys**2
            assert seen[f"attn.{i}"].shape == (2, plan.heads, queries, keys)
            assert torch.allclose(seen[f"attn.{i}"].sum(-1), torch.ones(2, plan.heads, queries), atol=1e-5)
            assert seen[f"block.{i}"].shape == (2, queries, plan.dim_out)

    @pytest.mark.parametrize("fused", [True, False])
    @pytest.mark.parametrize("name", ["b_16", "v2_tiny"])
    def test_bfloat16(self, name, fused):
        torch.manual_seed(0)
        model = MViT(getattr(MViTConfig, name)(**THREE_STAGES))
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.1)
        for block in model.blocks:
            block.attn.fused_attn = fused
        images = torch.randn(2, 3, 32, 32)
        expected = model(images)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(images)
        scores.float().sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())
        assert (scores - expected).abs().max() < 0.05 * expected.abs().max()

    def test_attention_dropout_drops_weights_in_both_paths(self):
        model = MViT(MViTConfig.v2_tiny(**THREE_STAGES, attention_dropout=0.5)).train()
        images = torch.randn(1, 3, 32, 32)
        for fused in (True, False):
            for block in model.blocks:
                block.attn.fused_attn = fused
            assert not torch.equal(model(images), model(images))
            assert torch.equal(model.eval()(images), model(images))
            model.train()


class TestBadInput:
    @pytest.mark.parametrize(
        ("images", "says"),
        [
            (torch.zeros(1, 3, 28, 28), r"takes images \(batch, 3, 32, 32\), got \(1, 3, 28, 28\)"),
            (torch.zeros(1, 1, 32, 32), r"got \(1, 1, 32, 32\)"),
            (torch.zeros(3, 32, 32), r"got \(3, 32, 32\)"),
            (
                torch.zeros(1, 3, 32, 32, dtype=torch.uint8),
                "floating-point images, got torch.uint8; divide by 255",
            ),
        ],
    )
    def test_images_that_do_not_fit(self, images, says):
        with pytest.raises(ValueError, match=says):
            MViT(MViTConfig.v2_tiny(**THREE_STAGES))(images)

    @pytest.mark.parametrize(
        ("sizes", "says"),
        [
            ({"image_size": 36}, "multiple of the total stride, got 36 and 8; resize the images"),
            ({"image_size": 0}, "at least 1"),
            ({"depths": (1, 0, 2)}, "at least 1"),
            ({"classes": -1}, "at least 1"),
            ({"mlp_ratio": 0.0}, "at least 1"),
            ({"depths": (1, 2)}, "one number for each stage, got 3, 2, 3, 3; give all the same length"),
            ({"heads": (1, 3, 4)}, "multiple of its heads, got 32 and 3"),
            (
                {"kv_strides": (4, 3, 1)},
                r"multiple of kv_strides\[1\], got 8 and 3; choose a stride that divides it",
            ),
            ({"pool": "mean"}, "pool is .* got 'mean'"),
            ({"widen_in": "head"}, "widen_in is .* got 'head'"),
            ({"patch_kernel": 4}, "patch_kernel is odd, so that it has a centre, got 4"),
            ({"pool_kernel": 2}, "pool_kernel is odd, so that it has a centre, got 2"),
        ],
    )
    def test_sizes_that_do_not_fit(self, sizes, says):
        with pytest.raises(ValueError, match=says):
            MViTConfig(**(THREE_STAGES | sizes))

    def test_peers_with_a_feature_ours_lack(self):
        tiny = MViTConfig.v2_tiny(**THREE_STAGES)
        block = MSBlockConfig(1, 8, 8, [], [], [], [])
        video = TorchvisionMViT((32, 32), 4, [block, block], False, False, False, False)
        with_query = timms(replace(tiny, class_token=True))
        for theirs, says in (
            (video, "several frames"),
            (with_query, "added to the class token"),
            (timms(replace(tiny, relative_positions=False)), "no positions"),
            (timm.models.mvitv2.MultiScaleVit(MultiScaleVitCfg(norm_eps=1e-5)), "eps 1e-05 in stages"),
            (nn.Linear(2, 2), "got Linear"),
        ):
            with pytest.raises(ValueError, match=says):
                peers.config_of(theirs)
