"""Reconstruction: the loss equals its equation by hand, what is hidden is learned, a stopped training goes on."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from toys import assert_same, feed, one_sentence, weights

from vitlab import lab, train
from vitlab.data.feeds import InMemory
from vitlab.data.views import Flip, MultiCrop, Shift, View
from vitlab.models.mae import MAE, MAEConfig, patchify
from vitlab.models.vit import ViTConfig
from vitlab.train import reconstruction
from vitlab.train.watch import INTERVAL

TINY = MAEConfig(
    ViTConfig(image_size=8, patch_size=4, dim=32, depth=2, heads=2, classes=0), 32, 1, 2, mask_ratio=0.5
)
MEAN = 47 / 48  # what predicting each patch's mean costs, for 48 pixels
RECIPE = train.Recipe(steps=12, batch_size=8, lr=3e-3, warmup=3, ema=0.9, accumulate=2)


def mae(config=TINY):
    torch.manual_seed(1)
    return MAE(config)


def slopes(count, seed):
    """Images of 8 px, each brighter towards a side of its own, as steep for all; and labels that say nothing."""
    angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, (count, 1, 1))
    y, x = np.mgrid[:8, :8] - 3.5
    pixels = 127.5 + 24 * (np.cos(angle) * x + np.sin(angle) * y)
    return torch.tensor(pixels[:, None].repeat(3, 1), dtype=torch.uint8), torch.zeros(count, dtype=torch.int64)


def fit(model, pairs, steps, **more):
    return train.fit(
        model,
        InMemory(pairs, 16, View(), 0, "cpu"),
        more.pop("objective", None) or reconstruction(),
        train.Recipe(steps=steps, batch_size=16, lr=3e-3, warmup=4, betas=(0.9, 0.95), **more),
    )


def given(prediction, mask):
    """A model that gives these, whatever the images."""
    return lambda images: (prediction, mask)


def draw(batch=3, channels=3, height=8, width=12, side=4, seed=0):
    """Images, a prediction of their patches and a mask, in float64."""
    g = torch.Generator().manual_seed(seed)
    patches, n = (height // side) * (width // side), side * side * channels
    images = torch.rand(batch, channels, height, width, generator=g, dtype=torch.float64).float()
    prediction = torch.randn(batch, patches, n, generator=g)
    mask = torch.zeros(batch, patches)
    for i in range(batch):
        mask[i, torch.randperm(patches, generator=g)[: patches // 2 + i % 2]] = 1  # not even equally many
    return images, prediction, mask


def by_hand(images, prediction, mask, side, normalised):
    """The loss, pixel by pixel."""
    images, prediction = images.double().numpy(), prediction.double().numpy()
    columns = images.shape[3] // side
    errors = []
    for i, j in np.argwhere(mask.numpy() == 1):
        row, column = divmod(j, columns)
        patch = images[i, :, row * side : (row + 1) * side, column * side : (column + 1) * side]
        pixels = np.array([patch[c, y, x] for y in range(side) for x in range(side) for c in range(len(patch))])
        if normalised:
            variance = ((pixels - pixels.mean()) ** 2).sum() / (len(pixels) - 1)
            pixels = (pixels - pixels.mean()) / np.sqrt(variance + 1e-6)
        errors.append(((prediction[i, j] - pixels) ** 2).sum() / len(pixels))
    return np.mean(errors)


class TestLoss:
    @pytest.mark.parametrize("normalised", [True, False])
    @pytest.mark.parametrize(
        "sizes",
        [
            {},
            {"batch": 1, "channels": 1},
            {"height": 6, "width": 4, "side": 2},
            {"channels": 4, "height": 4, "width": 4, "side": 1},
            {"height": 8, "width": 8, "side": 4, "seed": 3},
        ],
    )
    def test_it_is_its_equation(self, sizes, normalised):
        images, prediction, mask = draw(**sizes)
        loss = reconstruction(normalised)(given(prediction, mask), images, None)
        expected = by_hand(images, prediction, mask, sizes.get("side", 4), normalised)
        assert loss.shape == () and loss.item() == pytest.approx(expected, rel=1e-5)

    def test_it_is_normalised_unless_told_otherwise(self):
        images, prediction, mask = draw()
        losses = [
            objective(given(prediction, mask), images, None)
            for objective in (reconstruction(), reconstruction(True))
        ]
        assert torch.equal(*losses)
        assert losses[0] != reconstruction(normalised=False)(given(prediction, mask), images, None)

    def test_the_right_pixels_cost_nothing_in_the_order_of_the_models_patches(self):
        images, _, mask = draw()
        assert reconstruction(False)(given(patchify(images, 4), mask), images, None) == 0

    def test_the_mean_of_every_patch_costs_what_is_said(self):
        images, prediction, mask = draw()
        loss = reconstruction()(given(torch.zeros_like(prediction), mask), images, None)
        assert loss.item() == pytest.approx(MEAN, abs=1e-3)

    def test_brightness_and_contrast_of_the_images_do_not_matter_where_patches_are_normalised(self):
        images, prediction, mask = draw()
        ours, theirs = (reconstruction()(given(prediction, mask), x, None) for x in (images, images * 3 - 1))
        assert ours.item() == pytest.approx(theirs.item(), rel=1e-4)

    def test_flat_patches_are_finite(self):
        images, prediction, mask = draw()
        loss = reconstruction()(given(prediction, mask), torch.full_like(images, 0.7), None)
        assert loss.item() == pytest.approx(prediction[mask == 1].square().mean().item(), rel=1e-3)

    def test_what_was_seen_is_not_scored(self):
        images, prediction, mask = draw()
        prediction.requires_grad_()
        loss = reconstruction()(given(prediction, mask), images, None)
        loss.backward()
        assert not prediction.grad[mask == 0].any() and prediction.grad[mask == 1].all()
        other = torch.where(mask[:, :, None] == 0, prediction + 100, prediction)
        assert torch.equal(reconstruction()(given(other, mask), images, None), loss)

    def test_it_is_computed_in_single_precision(self):
        images, prediction, mask = draw()
        loss = reconstruction()(given(prediction.bfloat16(), mask), images.bfloat16(), None)
        expected = reconstruction()(given(prediction.bfloat16().float(), mask), images.bfloat16().float(), None)
        assert loss.dtype == torch.float32 and torch.equal(loss, expected)
        double = reconstruction()(given(prediction.double(), mask), images.double(), None)
        assert double.dtype == torch.float32

    def test_outputs_are_one_row_an_image_and_hold_no_graph(self):
        images, prediction, mask = draw()
        objective = reconstruction()
        objective(given(prediction.requires_grad_(), mask), images, None)
        assert objective.outputs.shape == (3, 48) and not objective.outputs.requires_grad
        assert torch.equal(objective.outputs, prediction.detach().mean(1))

    def test_it_keeps_nothing_for_a_checkpoint(self):
        assert not reconstruction().state_dict()


class TestErrors:
    @pytest.mark.parametrize(
        ("outputs", "says"),
        [
            (torch.zeros(3, 48), "got (3, 48);"),
            (torch.zeros(3, 6, 48), "got (3, 6, 48);"),
            ((torch.zeros(3, 6, 48), None), "got (3, 6, 48) and NoneType;"),
            ((torch.zeros(3, 6, 48), torch.zeros(3, 6), 1), "got (3, 6, 48) and (3, 6) and int;"),
            ((torch.zeros(3, 48), torch.zeros(3, 6)), "got (3, 48) and (3, 6);"),
            ((torch.zeros(3, 6, 47), torch.zeros(3, 6)), "got (3, 6, 47) and (3, 6);"),
            ((torch.zeros(3, 6, 2), torch.zeros(3, 6)), "got (3, 6, 2) and (3, 6);"),
            ((torch.zeros(3, 24, 48), torch.zeros(3, 24)), "got (3, 24, 48) and (3, 24);"),
            ((torch.zeros(3, 1, 192), torch.zeros(3, 1)), "got (3, 1, 192) and (3, 1);"),
            ((torch.zeros(3, 7, 48), torch.zeros(3, 7)), "got (3, 7, 48) and (3, 7);"),  # as with a class token
            ((torch.zeros(3, 6, 48), torch.zeros(3, 5)), "got (3, 6, 48) and (3, 5);"),
            ((torch.zeros(2, 6, 48), torch.zeros(2, 6)), "got (2, 6, 48) and (2, 6);"),
            ({}, "got dict;"),
        ],
    )
    def test_outputs_of_another_shape_are_one_sentence(self, outputs, says):
        with pytest.raises(ValueError, match=re.escape(says)) as caught:
            reconstruction()(lambda images: outputs, draw()[0], None)
        assert "For images (3, 3, 8, 12) the model must give" in one_sentence(caught.value)

    def test_several_views_are_one_sentence(self):
        views = MultiCrop([View(), View(Flip())])
        with pytest.raises(ValueError, match="got list; feed one view") as caught:
            train.fit(mae(), feed(view=views), reconstruction(), train.Recipe(steps=1, batch_size=8))
        one_sentence(caught.value)

    def test_images_without_channels_are_one_sentence(self):
        with pytest.raises(ValueError, match=re.escape("got (3, 8, 8); feed one view")) as caught:
            reconstruction()(mae(), torch.zeros(3, 8, 8), None)
        one_sentence(caught.value)


class TestLearning:
    def test_it_learns_what_the_seen_patches_tell(self):
        model = mae()
        losses = fit(model, slopes(256, 0), 150).losses
        assert losses[:5].mean() > 0.9 * MEAN and losses[-20:].mean() < 0.15
        images = slopes(64, 1)[0] / 127.5 - 1  # unseen ones
        noise = torch.rand(64, 4, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            unseen = reconstruction()(lambda x: model(x, noise), images, None)
            # The same predictions, for other images than they were made of.
            prediction, mask = model(images, noise)
            other = reconstruction()(given(prediction.roll(1, 0), mask.roll(1, 0)), images, None)
        assert unseen < 0.15 and other > 1

    def test_it_learns_pixels_too(self):
        pairs = slopes(256, 0)
        losses = fit(mae(), pairs, 300, objective=reconstruction(normalised=False)).losses
        patches = patchify(pairs[0] / 127.5 - 1, 4)
        variance = (patches - patches.mean((0, 1, 2))).square().mean()  # what one colour for everything costs
        assert losses[-20:].mean() < 0.5 * variance

    def test_noise_has_nothing_to_learn_and_is_no_collapse(self):
        noise = torch.randint(0, 256, (256, 3, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        losses = fit(mae(), (noise, torch.zeros(256, dtype=torch.int64)), 2 * INTERVAL + 20).losses
        assert losses[-20:].mean() == pytest.approx(MEAN, abs=0.03)

    def test_one_image_over_and_over_is_no_collapse(self):
        pairs = tuple(x[:1].expand(64, *x.shape[1:]).contiguous() for x in slopes(1, 0))
        assert fit(mae(), pairs, 2 * INTERVAL + 20).losses[-1] < 0.2

    def test_a_dead_network_is_stopped(self):
        model = mae()
        model.decoder_norm.requires_grad_(False).weight.zero_()  # says the same whatever goes in
        with pytest.raises(train.TrainingFailed, match="every image gets the same") as caught:
            fit(model, slopes(64, 0), 3 * INTERVAL)
        one_sentence(caught.value)

    def test_positions_stay_as_they_are_and_all_else_learns(self):
        model = mae()
        before = weights(model)
        train.fit(model, feed(), reconstruction(), train.Recipe(steps=3, batch_size=8, lr=1e-3))
        same = {name for name, value in weights(model).items() if torch.equal(value, before[name])}
        assert same == {"backbone.pos_embed", "decoder_pos_embed"}

    def test_labels_do_not_matter(self):
        images, labels = slopes(64, 0)
        one, other = (fit(mae(), (images, x), 5).losses for x in (labels, torch.arange(64)))
        assert np.array_equal(one, other)

    def test_it_trains_in_half_precision(self):
        full, half = (fit(mae(), slopes(64, 0), 30, precision=p).losses for p in ("fp32", "bf16"))
        assert not np.array_equal(full, half)
        np.testing.assert_allclose(half, full, atol=0.1)


def test_every_part_of_a_batch_hides_other_patches():
    masks = []

    class Noted(MAE):
        def forward(self, images, noise=None):
            prediction, mask = super().forward(images, noise)
            masks.append(mask)
            return prediction, mask

    torch.manual_seed(1)
    recipe = train.Recipe(steps=3, batch_size=8, accumulate=2)
    train.fit(Noted(TINY), feed(view=View(Shift(1), Flip())), reconstruction(), recipe)
    assert [mask.shape for mask in masks] == [(4, 4)] * 6
    assert len(torch.stack(masks).unique(dim=0)) == 6


@pytest.mark.parametrize("dropping", [0.0, 0.3])
def test_it_stops_when_time_is_up_and_goes_on_to_the_bit(dropping, tmp_path):
    file = tmp_path / "run" / "net.safetensors"
    config = replace(TINY, vit=replace(TINY.vit, dropout=dropping, drop_path=dropping))

    def run(model, file=None, **more):
        return train.fit(model, feed(), reconstruction(), RECIPE, checkpoint=file, **more)

    def stop(now):
        if now.step == 7:
            os.environ["VITLAB_DEADLINE"] = str(time.time() - 1)

    try:
        with pytest.raises(lab.OutOfTime, match="after 7 of 12 steps"):
            run(mae(config), file, callbacks=[stop])
    finally:
        os.environ.pop("VITLAB_DEADLINE", None)
    ours, theirs = mae(config), mae(config)
    resumed, whole = run(ours, file), run(theirs)
    assert np.array_equal(resumed.losses, whole.losses)
    assert_same(weights(ours), weights(theirs))
    assert_same(weights(resumed.ema), weights(whole.ema))
