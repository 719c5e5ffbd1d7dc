"""Weights made elsewhere: each library's checkpoints load, a foreign one is refused and changes nothing."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import sys
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
import timm
import torch
import transformers
from safetensors.torch import save_file
from torch import nn

from vitlab.models import weights
from vitlab.models.vit import ViT, ViTConfig

SMALL = ViTConfig(image_size=32, patch_size=8, dim=24, depth=2, heads=2, classes=5)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A file laid out as timm's own, and the model that made it."""
    torch.manual_seed(0)
    theirs = timm.create_model("vit_tiny_patch16_224").eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    file = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file(theirs.state_dict(), file)
    return file, theirs


def test_a_timm_checkpoint_gives_timms_logits_to_the_bit(checkpoint):
    file, theirs = checkpoint
    model, prepare = weights.from_timm("vit_tiny_patch16_224.augreg_in21k_ft_in1k", file=file)
    images = prepare(np.random.default_rng(0).integers(0, 256, (2, 300, 260, 3), dtype=np.uint8))
    with torch.no_grad():
        assert torch.equal(model(images), theirs(images))


def test_preprocessing_is_timms_own():
    """A whole batch, each image as timm would prepare it alone."""
    _, prepare = weights.from_timm("vit_tiny_patch16_224", pretrained=False)
    from PIL import Image

    images = np.random.default_rng(0).integers(0, 256, (2, 250, 333, 3), dtype=np.uint8)
    data = timm.data.resolve_model_data_config(timm.create_model("vit_tiny_patch16_224"))
    transform = timm.data.create_transform(**data, is_training=False)
    assert torch.equal(prepare(images), torch.stack([transform(Image.fromarray(image)) for image in images]))


def test_a_truncated_checkpoint_is_one_sentence(checkpoint, tmp_path):
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(checkpoint[0].read_bytes()[:1000])
    with pytest.raises(RuntimeError, match=r"weights of vit_tiny_patch16_224 could not be read from .*broken"):
        weights.from_timm("vit_tiny_patch16_224", file=broken)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.pop("blocks.1.mlp.fc1.bias"), r"lacks blocks.1.mlp.fc1.bias \(96,\)"),
        (
            lambda s: s.update(pos_embed=torch.zeros(1, 5, 24)),
            r"pos_embed should be \(1, 17, 24\), .* has \(1, 5, 24\)",
        ),
        (lambda s: s.update(extra=torch.zeros(2)), r"has extra \(2,\), which the model lacks"),
        (lambda s: s["head.bias"].fill_(float("nan")), "head.bias holds values that are not finite"),
        (
            lambda s: s.update({"head.bias": torch.full((5,), 1e300, dtype=torch.float64)}),
            "head.bias holds values",
        ),
        (lambda s: s.update({"head.bias": torch.zeros(5, dtype=torch.int8)}), "head.bias should be torch.float32"),
        (lambda s: s.update({"head.bias": [0.0] * 5}), r"head.bias should be \(5,\), the checkpoint has \(\)"),
        (lambda s: s.update(epoch=3), r"has epoch \(\), which the model lacks"),
    ],
)
def test_a_foreign_checkpoint_names_the_first_difference_and_changes_nothing(change, says):
    model = ViT(SMALL)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = {k: v + 1 for k, v in model.state_dict().items()}
    change(state)
    with pytest.raises(ValueError, match=says):
        weights.load(model, state)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


@pytest.mark.parametrize(
    ("tag", "says"),
    [
        (
            "vit_small_patch16_224",
            r"names its training too, got 'vit_small_patch16_224'; for example vit_small_patch16_224\.",
        ),
        ("vit_unknown.v1", "timm knows no model 'vit_unknown.v1'"),
    ],
)
def test_an_incomplete_or_unknown_tag_is_refused(tag, says):
    with pytest.raises(ValueError, match=says):
        weights.from_timm(tag)


def test_another_architecture_is_refused():
    with pytest.raises(ValueError, match="resnet18 is a ResNet, not a plain ViT"):
        weights.from_timm("resnet18", pretrained=False)


def test_images_that_are_not_uint8_colour_are_refused():
    _, prepare = weights.from_timm("vit_tiny_patch16_224", pretrained=False)
    for images in (np.zeros((1, 8, 8, 3)), np.zeros((1, 8, 8), np.uint8), np.zeros((8, 8, 3), np.uint8)):
        with pytest.raises(ValueError, match="Preprocessing takes uint8 images"):
            prepare(images)


# Of each architecture one small network, in the layout of its library.
TIMM = {
    "ViT": (
        "vit_tiny_patch16_224",
        {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2},
    ),
    "DeiT": (
        "deit_tiny_distilled_patch16_224",
        {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2},
    ),
    "Swin": (
        "swin_tiny_patch4_window7_224",
        {"img_size": 56, "embed_dim": 16, "depths": (2, 1), "num_heads": (1, 2)},
    ),
    "PVTv2": ("pvt_v2_b0", {"depths": (1, 1, 1, 1), "embed_dims": (8, 8, 16, 16), "num_heads": (1, 1, 2, 2)}),
    "CoAtNet": ("test_coatnet", {}),
    "MViT": ("mvitv2_tiny", {"img_size": 64}),
}
SIDES = {"ViT": 32, "DeiT": 32, "Swin": 56, "PVTv2": 224, "CoAtNet": 160, "MViT": 64}


def shaken(theirs: nn.Module) -> nn.Module:
    """The same network with random weights everywhere, norms, biases and running statistics too."""
    torch.manual_seed(0)
    for name, tensor in theirs.state_dict().items():
        if tensor.is_floating_point():
            tensor.add_(
                torch.randn_like(tensor).mul_(0.05).abs_() if "var" in name else torch.randn_like(tensor) * 0.05
            )
    return theirs.eval()


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, atol=1e-5 * b.abs().max().item())


@pytest.fixture
def small_mvit(monkeypatch):
    """timm lets nobody change the sizes of an MViT: so its table says smaller ones here."""
    sizes = timm.models.mvitv2.model_cfgs
    monkeypatch.setitem(sizes, "mvitv2_tiny", replace(sizes["mvitv2_tiny"], depths=(1, 1, 1, 1), embed_dim=16))


@pytest.mark.usefixtures("small_mvit")
@pytest.mark.parametrize("name", TIMM)
def test_each_architecture_loads_from_a_file_of_timms_layout(name, tmp_path):
    tag, sizes = TIMM[name]
    theirs = shaken(timm.create_model(tag, num_classes=5, **sizes))
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    model, prepare = weights.from_timm(tag, file=tmp_path / "model.safetensors", num_classes=5, **sizes)
    assert type(model).__name__ == name
    assert not model.training
    images = prepare(np.random.default_rng(0).integers(0, 256, (1, 250, 240, 3), dtype=np.uint8))
    assert images.shape == (1, 3, SIDES[name], SIDES[name])
    assert prepare.size == model.config.image_size == SIDES[name]
    with torch.no_grad():
        assert close(model(images), theirs(images))


@pytest.mark.usefixtures("small_mvit")
@pytest.mark.parametrize("name", TIMM)
def test_a_file_of_another_layout_names_the_first_difference(name, tmp_path):
    tag, sizes = TIMM[name]
    state = timm.create_model(tag, num_classes=5, **sizes).state_dict()
    torch.save({"model": state, "epoch": 3}, tmp_path / "whole.pth")  # as training scripts wrap it
    weights.from_timm(tag, file=tmp_path / "whole.pth", num_classes=5, **sizes)
    with pytest.raises(ValueError, match=r"head\S* should be \(6, (\d+)\), the checkpoint has \(5, \1\)"):
        weights.from_timm(tag, file=tmp_path / "whole.pth", num_classes=6, **sizes)
    gone = next(key for key in state if key.endswith("mlp.fc2.bias"))
    shape = re.escape(str(tuple(state.pop(gone).shape)))
    torch.save(state, tmp_path / "lacking.pth")
    with pytest.raises(ValueError, match=rf"lacks \S*mlp.fc2.bias {shape}; load one of the same layout"):
        weights.from_timm(tag, file=tmp_path / "lacking.pth", num_classes=5, **sizes)


def test_an_option_timm_does_not_know_is_one_sentence():
    with pytest.raises(ValueError, match=r"timm cannot build pvt_v2_b0 with \{'windows': 7\}: .*windows"):
        weights.from_timm("pvt_v2_b0", pretrained=False, windows=7)


@pytest.mark.parametrize(
    ("tag", "options", "says"),
    [
        ("vit_tiny_r_s16_p8_224", {}, "patches by HybridEmbed, ours PatchEmbed"),
        ("vit_small_patch16_18x2_224", {}, "blocks of kind ParallelThingsBlock, ours Block"),
        ("vit_tiny_patch16_224", {"norm_layer": "rmsnorm"}, "norms of kind RmsNorm, ours LayerNorm"),
        ("vit_tiny_patch16_224", {"mlp_layer": timm.layers.SwiGLU}, "MLPs of kind SwiGLU, ours Mlp"),
        ("vit_tiny_patch16_224", {"norm_layer": nn.LayerNorm}, "LayerNorm with eps 1e-05, ours 1e-06"),
        ("vit_tiny_patch16_224", {"img_size": (32, 48)}, r"images \(32, 48\), ours square"),
        ("vit_tiny_patch16_224", {"global_pool": "max"}, "pooling max, ours token"),
        ("vit_tiny_patch16_224", {"act_layer": "gelu_tanh"}, "an activation GELUTanh"),
        ("vit_tiny_patch16_224", {"init_values": 1e-5}, r"has blocks.0.ls1.gamma \(192,\), which the model lacks"),
        (
            "vit_tiny_patch16_224",
            {"no_embed_class": True},
            r"pos_embed should be \(1, 197, 192\), .* \(1, 196, 192\)",
        ),
    ],
)
def test_a_vit_that_computes_otherwise_is_refused(tag, options, says):
    with pytest.raises(ValueError, match=says):
        weights.from_timm(tag, pretrained=False, depth=1, **options)


def pvt() -> nn.Module:
    sizes = {"hidden_sizes": [8, 16, 40, 32], "depths": [1, 1, 1, 2], "num_labels": 5, "image_size": 64}
    return transformers.PvtForImageClassification(transformers.PvtConfig(**sizes))


def cvt() -> nn.Module:
    sizes = {"embed_dim": [8, 16, 24], "num_heads": [1, 2, 3], "depth": [1, 2, 3], "num_labels": 5}
    return transformers.CvtForImageClassification(transformers.CvtConfig(**sizes, hidden_act="gelu"))


PROCESSORS = {
    "PVT": {"image_processor_type": "PvtImageProcessor", "size": {"height": 64, "width": 64}, "resample": 2},
    # As microsoft/cvt-13 has it: the older name of the class, and a size that is cut from a larger image.
    "CvT": {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 96, "crop_pct": 0.875, "resample": 3},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders as save_pretrained leaves them, and the networks saved."""
    found = {}
    for name, theirs in (("PVT", pvt()), ("CvT", cvt())):
        folder = tmp_path_factory.mktemp(name)
        shaken(theirs).save_pretrained(folder)
        common = {
            "do_resize": True,
            "do_normalize": True,
            "image_mean": [0.4, 0.5, 0.6],
            "image_std": [0.2, 0.3, 0.4],
        }
        (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[name] | common))
        found[name] = folder, theirs
    return found


class TestTransformers:
    @pytest.mark.parametrize(("name", "side"), [("PVT", 64), ("CvT", 96)])
    def test_a_folder_gives_transformers_logits(self, folders, name, side):
        folder, theirs = folders[name]
        model, prepare = weights.from_transformers("somebody/something", file=folder)
        assert type(model).__name__ == name
        assert not model.training
        images = np.random.default_rng(0).integers(0, 256, (2, 130, 120, 3), dtype=np.uint8)
        x = prepare(images)
        assert x.shape == (2, 3, side, side)
        assert prepare.size == model.config.image_size == side
        with torch.no_grad():
            assert close(model(x), theirs(x).logits)

    @pytest.mark.parametrize("name", ["PVT", "CvT"])
    def test_preprocessing_is_that_of_the_checkpoint(self, folders, name):
        folder, _ = folders[name]
        _, prepare = weights.from_transformers("somebody/something", file=folder)
        assert prepare.mean == (0.4, 0.5, 0.6)
        assert prepare.std == (0.2, 0.3, 0.4)
        images = np.random.default_rng(0).integers(0, 256, (2, 130, 120, 3), dtype=np.uint8)
        processor = transformers.AutoImageProcessor.from_pretrained(folder)
        from PIL import Image

        expected = processor([Image.fromarray(image) for image in images], return_tensors="pt")["pixel_values"]
        assert torch.equal(prepare(images), expected)
        white = prepare(np.full((1, 130, 120, 3), 255, dtype=np.uint8))  # (1 - mean) / std, by hand
        assert torch.allclose(white.mean((0, 2, 3)), torch.tensor([3.0, 0.5 / 0.3, 1.0]), atol=1e-5)
        pickle.loads(pickle.dumps(prepare))(images)  # a worker can be handed it

    @pytest.mark.parametrize("name", ["PVT", "CvT"])
    def test_another_layout_names_the_first_difference(self, folders, name, tmp_path):
        shutil.copytree(folders[name][0], tmp_path, dirs_exist_ok=True)
        state = dict(folders[name][1].state_dict())
        head = state["classifier.weight"]
        for change, says in (
            ({"classifier.weight": head[:, 1:].contiguous()}, r"classifier.weight should be \(5, 32\|24\)"),
            ({"classifier.weight": None}, r"lacks classifier.weight \(5, "),
            ({"extra.weight": torch.zeros(2)}, "has extra.weight, which the model lacks"),
            ({"classifier.bias": torch.full((5,), float("nan"))}, "head.bias holds values that are not finite"),
        ):
            changed = {key: weight for key, weight in (state | change).items() if weight is not None}
            save_file(changed, tmp_path / "model.safetensors", metadata={"format": "pt"})
            with pytest.raises(ValueError, match=says.replace("32\\|24", "(32|24)")):
                weights.from_transformers("somebody/something", file=tmp_path)

    def test_a_truncated_file_an_empty_folder_and_none_are_one_sentence(self, folders, tmp_path):
        shutil.copytree(folders["CvT"][0], tmp_path / "cut")
        file = tmp_path / "cut" / "model.safetensors"
        file.write_bytes(file.read_bytes()[:500])
        (tmp_path / "empty").mkdir()
        for folder in ("cut", "empty"):
            with pytest.raises(
                RuntimeError, match=rf"weights of some/cvt could not be read from \S*{folder}: ."
            ) as e:
                weights.from_transformers("some/cvt", file=tmp_path / folder)
            assert "\n" not in str(e.value)
        with pytest.raises(RuntimeError, match=r"are read from a folder, and .* is none"):
            weights.from_transformers("some/cvt", file=tmp_path / "absent")

    def test_without_its_image_processor_a_folder_is_refused(self, folders, tmp_path):
        shutil.copytree(folders["PVT"][0], tmp_path, dirs_exist_ok=True)
        (tmp_path / "preprocessor_config.json").unlink()
        with pytest.raises(RuntimeError, match="could not be read from"):
            weights.from_transformers("some/pvt", file=tmp_path)

    def test_an_image_processor_of_another_size_is_refused(self, folders, tmp_path):
        shutil.copytree(folders["PVT"][0], tmp_path, dirs_exist_ok=True)
        file = tmp_path / "preprocessor_config.json"
        file.write_text(file.read_text().replace("64", "32"))
        with pytest.raises(ValueError, match="takes images of 64 px, its image processor makes 32 px"):
            weights.from_transformers("some/pvt", file=tmp_path)

    def test_another_architecture_is_refused(self, tmp_path):
        transformers.ResNetConfig().save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="some/resnet is a resnet, and transformers' pvt and cvt are known"):
            weights.from_transformers("some/resnet", file=tmp_path)

    def test_offline_is_one_sentence(self, monkeypatch):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(
            RuntimeError, match=r"weights of nobody/cvt-0 could not be read from the hub \(is"
        ) as e:
            weights.from_transformers("nobody/cvt-0")
        assert "\n" not in str(e.value)

    def test_where_transformers_is_absent_it_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(
            ImportError, match="microsoft/cvt-13 is read by transformers, which is absent; pip install"
        ):
            weights.from_transformers("microsoft/cvt-13")


class TestOurs:
    def test_a_network_at_hand_keeps_its_mode_and_its_own_weights(self):
        theirs = shaken(timm.create_model("deit_tiny_distilled_patch16_224", depth=1)).train()
        before = theirs.norm.weight.clone()
        model = weights.ours(theirs)
        assert model.training
        model.norm.weight.data.zero_()
        assert torch.equal(theirs.norm.weight, before)

    def test_peers_without_an_image_size_take_the_one_given(self):
        assert weights.ours(cvt()).config.image_size == 224
        assert weights.ours(cvt(), image_size=64).config.image_size == 64

    def test_torchvisions_mvit_on_images(self):
        from torchvision.models.video.mvit import MSBlockConfig, MViT

        block = {
            "input_channels": 16,
            "output_channels": 16,
            "kernel_q": [],
            "kernel_kv": [1, 3, 3],
            "stride_q": [],
        }
        theirs = MViT(
            spatial_size=(32, 32),
            temporal_size=1,
            block_setting=[MSBlockConfig(num_heads=2, stride_kv=[1, 2, 2], **block)] * 2,
            residual_pool=False,
            residual_with_cls_embed=False,
            rel_pos_embed=False,
            proj_after_attn=False,
            num_classes=5,
            patch_embed_kernel=(1, 7, 7),
            patch_embed_stride=(1, 4, 4),
            patch_embed_padding=(0, 3, 3),
        )
        shaken(theirs)
        images = torch.randn(2, 3, 32, 32)
        with torch.no_grad():
            assert close(weights.ours(theirs)(images), theirs(images[:, :, None]))

    def test_an_unknown_class_is_refused(self):
        with pytest.raises(ValueError, match=r"are known, not torch.Linear; pass one of them"):
            weights.ours(nn.Linear(2, 2))


class TestPublishedFiles:
    """Files as the authors wrote them: with names of their own, wrapped, masks and indices among the weights."""

    SIZES = MappingProxyType(
        {
            "image_size": 32,
            "patch_size": 2,
            "window": 4,
            "dims": (16, 32),
            "depths": (1, 2),
            "heads": (1, 2),
            "expand": (2, 2),
            "focal_window": (3, 3),
        }
    )

    def write(self, folder, change=lambda state: None):
        """A Focal checkpoint: the inverse of what peers.focal renames."""
        from vitlab import models

        torch.manual_seed(0)
        model = models.create("focal", "tiny", classes=5, **self.SIZES).eval()
        state = {
            name.replace(".attn.pool.", ".pool_layers.0.").replace("_to_windows", "_to_windows.0"): weight
            for name, weight in model.state_dict().items()
        }
        state["layers.0.blocks.0.attn.relative_position_index"] = torch.zeros(16, 16, dtype=torch.long)
        change(state)
        torch.save({"model": state}, folder / "focal.pth")
        save_file({k: v.contiguous() for k, v in state.items()}, folder / "focal.safetensors")
        return model

    @pytest.mark.parametrize("ending", ["pth", "safetensors"])
    def test_a_focal_checkpoint_loads(self, tmp_path, ending):
        theirs = self.write(tmp_path)
        torch.manual_seed(1)
        model = weights.from_file("focal", "tiny", tmp_path / f"focal.{ending}", classes=5, **self.SIZES)
        assert not model.training
        images = torch.randn(1, 3, 32, 32)
        with torch.no_grad():
            assert torch.equal(model(images), theirs(images))

    def test_another_layout_names_the_first_difference(self, tmp_path):
        self.write(tmp_path, lambda state: state.pop("head.bias"))
        with pytest.raises(ValueError, match=r"lacks head.bias \(5,\)"):
            weights.from_file("focal", "tiny", tmp_path / "focal.pth", classes=5, **self.SIZES)
        with pytest.raises(ValueError, match=r"head.weight should be \(6, 32\), the checkpoint has \(5, 32\)"):
            weights.from_file("focal", "tiny", tmp_path / "focal.pth", classes=6, **self.SIZES)

    def test_deit_as_its_authors_wrap_it(self, tmp_path):
        theirs = shaken(timm.create_model("deit_tiny_distilled_patch16_224", depth=1, num_classes=5))
        torch.save({"model": theirs.state_dict()}, tmp_path / "deit.pth")
        model = weights.from_file("deit", "tiny", tmp_path / "deit.pth", depth=1, classes=5)
        images = torch.randn(1, 3, 224, 224)
        with torch.no_grad():
            assert torch.equal(model(images), theirs(images))

    def test_keys_without_their_values_are_named(self, tmp_path):
        state = pvt().state_dict()
        gone = next(name for name in state if ".self.value." in name)
        torch.save({name: weight for name, weight in state.items() if name != gone}, tmp_path / "pvt.pth")
        with pytest.raises(ValueError, match=f"lacks {gone}"):
            weights.from_file("pvt", "tiny", tmp_path / "pvt.pth")

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (None, "there is no such file"),
            (b"", "."),
            (b"PK\x03\x04 and no more", "."),
            ([1, 2], "it holds no weights by name"),
            ({"epoch": 3}, "it has epoch, which is no weight but a int"),
        ],
    )
    def test_a_file_that_is_none_is_one_sentence(self, tmp_path, content, says):
        file = tmp_path / "focal.pth"
        if isinstance(content, bytes):
            file.write_bytes(content)
        elif content is not None:
            torch.save(content, file)
        with pytest.raises(
            RuntimeError, match=rf"weights of deit tiny could not be read from \S*focal.pth: {says}"
        ) as e:
            weights.from_file("deit", "tiny", file, depth=1)
        assert "\n" not in str(e.value)

    def test_a_file_that_would_run_code_is_refused(self, tmp_path):
        torch.save({"model": Runs()}, tmp_path / "evil.pth")
        with pytest.raises(RuntimeError, match="could not be read from"):
            weights.from_file("deit", "tiny", tmp_path / "evil.pth", depth=1)
        assert not (tmp_path / "ran").exists() and not Runs.ran


class Runs:
    ran = False

    def __reduce__(self):
        return Runs.run, ()

    @staticmethod
    def run():
        Runs.ran = True
