# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The inductive bottleneck
#
# A convolutional network narrows because it was built to: its maps shrink, its channels grow. A Vision Transformer keeps
# as many tokens of the same width from the first block to the last, and nothing in its shape asks for a bottleneck. One paper
# reports that it makes one all the same: trained with DINO, the number of dimensions its tokens use falls in the middle of
# the network and rises at the end, the more so the more the images are *about something*, and on satellite textures not at
# all. A network that finds out for itself how much to compress would be worth knowing about.
#
# It would also be easy to be fooled. Two data sets that differ in texture differ in everything else too. This chapter takes
# the differences apart, one at a time.
#
# **After it you can**
#
# - say what must be held still before a curve over depth is allowed to speak of learning,
# - separate what the architecture, the images, the task, the number of steps and the projection head do to a spectrum,
# - split the variance of tokens into position, image and residual, and see which of them makes a curve,
# - say what the information bottleneck assumes, and why a count of dimensions is not an information.
#
# **It assumes** [How many dimensions?](effective_dimension.ipynb), the instrument, and [DINO](dino.ipynb), the objective.
#
# **It takes** an hour and a half to read. Run as it stands (scale `laptop`) it loads seven recorded experiments, of more than eighty trainings in all, and computes the
# rest in about a minute; at scale `smoke` every cell runs in about a minute and a half, training included, on generated images. What recording
# costs is printed where a record is shown. Scale `paper` trains a ViT-S for 100 epochs, one command a data set:
# [Running at full scale](../book/scale.md).

# %% tags=["hide-input"]
# Fetches the course and what it needs where they are missing (Colab, Kaggle); does nothing where they are not.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("vitlab") is None:
    address = os.environ.get(
        "VITLAB_REPOSITORY", "https://github.com/OWNER/hungry-transformer"
    )
    folder = "hungry-transformer"
    steps = [
        [sys.executable, "-m", "pip", "install", "--quiet", "--editable", folder]
    ]
    if not os.path.isdir(folder):
        steps.insert(0, ["git", "clone", "--quiet", "--depth", "1", address, folder])
    for step in steps:
        if subprocess.run(step).returncode:
            raise SystemExit(
                f"The course could not be fetched from {address}: is this machine online, "
                "and does VITLAB_REPOSITORY name a repository that has it?"
            )
    sys.path.insert(0, folder)

# %%
import itertools
import warnings

import numpy as np
import torch

from vitlab import check, data, hooks, lab, show, train
from vitlab.analysis import partition, probes, spectra, statistics
from vitlab.analysis.statistics import sign
from vitlab.data import feeds, scenes, views
from vitlab.data.imageset import balanced
from vitlab.models.dino import DINO, DINOConfig, HeadConfig
from vitlab.models.mae import MAE, MAEConfig
from vitlab.models.vit import ViT, ViTConfig

lab.start(seed=0)

# %% [markdown]
# ## On trial
#
# All from [Awadhiya, 2025](https://arxiv.org/abs/2512.07331), in our words; the codes are those of the [ledger of claims](../book/claims.md).
#
# > **Claim.** IB-2. The effective dimension of a self-supervised ViT is a U over depth: it falls in the middle layers and rises late.
#
# > **Claim.** IB-3, IB-14. The U is an active, learned compression that answers to the data; it is no artefact of the architecture.
#
# > **Claim.** IB-7, IB-8, IB-9. With DINO on CIFAR-100 and Tiny ImageNet the first layers use 58 to 60 % of the dimensions, layers 2 to 4 about 23 % and
# > 30.5 %, the last rise steeply, to 92.5 % on Tiny ImageNet, to fit the projection head.
#
# > **Claim.** IB-10, IB-11. On UC Merced, where texture is the signal, the profile is flat and above 90 %; the depth of the bottleneck falls with the
# > importance of texture.
#
# > **Claim.** IB-12. This is the information bottleneck at work: little information about the input kept, much about the target, and so better generalisation.
#
# > **Claim.** IB-13. Negligible eigenvalues, "phantom dimensions", are used early in training and pruned near convergence.
#
# ## 1. Six other explanations
#
# Say that a profile over depth is a U on object images and flat on satellite images. The paper reads: *the network compresses what the images do not
# need*. But so would these predict it, and none of them is about compression:
#
# | explanation | it predicts | what we do about it |
# |---|---|---|
# | **the input** has another spectrum | the same order of the sets before any training | print the untrained network beside the trained one, everywhere |
# | **the task** asks for another thing | the same pixels with other labels give another profile | three sets of labels on the same scenes |
# | **training was short**: 2,100 images for 100 epochs are 1/24 of the steps of 50,000 and 1/48 of those of 100,000 | more steps bend the flat profile | few and many images, at equal steps and at equal epochs |
# | **the head** wants a width | the late rise follows the head, and the last norm | no head (the sphere is then as wide as the features, and an MLP is missing as well: that step changes two things) |
# | **shrinking** to few pixels takes fine texture away | less difference between the sets | generated textures, drawn at 32 pixels |
# | **position or mean** fill the covariance | the shape is gone in what remains without them | split the covariance |
#
# And the objective itself: a curve found with one objective is that objective's, until it is found with others. So each data set below is learned three
# times over, by DINO, by its labels, and by painting what is hidden (a masked autoencoder,
# [He et al., 2022](https://arxiv.org/abs/2111.06377)), by the same ViT.
#
# The published numbers first. The paper gives effective dimension in per cent and does not say which of two conventions it means
# (see [How many dimensions?](effective_dimension.ipynb)). Of 384 dimensions,

# %% tags=["hide-input"]
PUBLISHED = (
    ("L0 to L1, CIFAR-100 and Tiny ImageNet", 58.0, 60.0),
    ("L2 to L4, CIFAR-100", 23.0, 23.0),
    ("L2 to L4, Tiny ImageNet", 30.5, 30.5),
    ("L9 to L11, Tiny ImageNet", 92.5, 92.5),
    ("all layers, UC Merced", 90.0, 100.0),
)


def both(low, high, read):
    """Write a range of percentages as dimensions."""
    ends = sorted({f"{read(low):.3g}", f"{read(high):.3g}"}, key=float)
    return " to ".join(ends)


show.table(
    [
        [
            where,
            f"{low:g}" if low == high else f"{low:g} to {high:g}",
            both(low, high, lambda share: 384 * share / 100),
            both(low, high, lambda share: 384 ** (share / 100)),
        ]
        for where, low, high in PUBLISHED
    ],
    header=["published", "%", "dimensions if linear", "dimensions if log"],
    caption="The paper's percentages (not ours), read as a share of the width, 100 N/D, and as a share of the entropy, 100 ln N / ln D, with D = 384. "
    "Read one way the bottleneck is a mild one, read the other it is nearly a point.",
)

# %% [markdown]
# ## 2. The experiment
#
# A ViT of 64 dimensions, six blocks and 64 patches of 4 x 4 pixels, and all images at 32 pixels. That is as large as two processor cores allow for
# more than eighty trainings, and far smaller than the paper's ViT-S (384 dimensions, 12 blocks, 100 epochs); what follows is about *these* networks. In return the resolution, the patches
# and the number of steps are the same for all. What still differs, apart from what the images show: they are shrunk from 256, 64 and 32 pixels, which takes fine texture from the satellite images most; under labels
# there are 21 classes or 100; and equal steps are, at scale `laptop`, about 15 passes over UC Merced's 1,680 images, one over the 25,000 of our part of Tiny ImageNet and two thirds of one over CIFAR-100's 40,000. *Texture is the signal* is therefore tested
# here on images that have lost most of theirs; the dial of section 6 has not. All objectives see the same kinds of change (crop, mirror, colour), DINO in several crops at once; only DINO's weight decay rises, as its authors have it. Rate, views and momentum are those of the chapter on DINO, chosen there on a handful of pilot runs.

# %%
OBJECTIVES = lab.choose(
    smoke=("dino", "supervised", "mae"),
    laptop=("dino", "supervised", "mae"),
    paper=("dino",),
)
SEEDS = 3
BATCH = lab.choose(smoke=16, laptop=64, paper=256)
RATE = lab.choose(smoke=1e-3, laptop=1e-3, paper=5e-4)
MOMENTUM = lab.choose(smoke=0.9, laptop=0.99, paper=0.996)
EPOCHS = 100
HELD_OUT = lab.choose(smoke=60, laptop=1000, paper=2000)  # images that are classified
PROFILED = lab.choose(
    smoke=40, laptop=400, paper=400
)  # images whose tokens are measured
HEAD = HeadConfig(
    outputs=lab.choose(smoke=32, laptop=256, paper=4096),
    bottleneck=lab.choose(smoke=16, laptop=64, paper=256),
    hidden=lab.choose(smoke=32, laptop=256, paper=2048),
)


def steps_for(images):
    """Return how long to train on so many images: the same for all sets, at paper scale the paper's epochs."""
    return lab.choose(smoke=8, laptop=400, paper=max(1, EPOCHS * images // BATCH))


def sides(source):
    """Return the sides in pixels of image, patch, global and local crop; at laptop scale the same for all sets."""
    small = (32, 4, 24, 16)
    published = {
        "ucmerced": (224, 16, 224, 96),
        "tinyimagenet": (64, 8, 64, 32),
        "cifar100": (32, 4, 32, 16),
    }
    return lab.choose(smoke=small, laptop=small, paper=published.get(source, small))


def pictures(source, split, limit=None):
    """Return images (N, 3, side, side) as bytes and labels (N,); "scenes 0.5" are scenes of that complexity."""
    name, _, dial = source.partition(" ")
    if name == "scenes" or lab.scale() == "smoke":
        few = lab.choose(smoke=120, laptop=limit, paper=limit)
        full = data.load(
            "scenes", split, size=32, limit=few, complexity=float(dial or 0.5)
        )
    else:
        full = data.load(name, split, size=sides(source)[0], limit=limit)
    images = torch.tensor(full.images).permute(0, 3, 1, 2).contiguous()
    return images, torch.tensor(full.labels)


# %% [markdown]
# One ViT inside three objectives. The crops of DINO's teacher are 24 pixels wide at scale `laptop`, so that a crop keeps about the size that things have in the
# image, and costs less than half. All networks are then measured on whole images, on a full grid of 8 x 8 patches, which only the labels' network has
# seen whole: DINO's crops have 36 or 16 patches, and the autoencoder's encoder is shown 16 of the 64. One more reason to compare a network with its own beginning before it is compared with another objective's. Of DINO we measure
# the student, the network that is trained.

# %%


def build(objective, source, classes, head):
    """Return an untrained network; the ViT inside is of one size for all objectives."""
    side, patch, _, _ = sides(source)
    vit = ViTConfig(
        image_size=side,
        patch_size=patch,
        classes=classes if objective == "supervised" else 0,
        dim=lab.choose(smoke=16, laptop=64, paper=384),
        depth=lab.choose(smoke=2, laptop=6, paper=12),
        heads=lab.choose(smoke=2, laptop=4, paper=6),
    )
    if objective == "dino":
        return DINO(DINOConfig(vit, head))
    if objective == "mae":
        return MAE(MAEConfig(vit, vit.dim // 2, 2, vit.heads))
    return ViT(vit)


def crop(share, size):
    """Return a random view: a crop of a share of the image, a mirror, other colours or none."""
    return views.View(
        views.Crop(share, size=size),
        views.Flip(),
        views.Colour(0.4, 0.4, 0.2, 0.1),
        views.Grey(0.20),
    )


def task(objective, model, source, classes, steps):
    """Return what a network is trained to do, and the views of the images that it is shown."""
    side, _, large, small = sides(source)
    whole = crop((0.4, 1.0), side)
    if objective == "dino":
        crops = [crop((0.4, 1.0), large)] * 2 + [crop((0.1, 0.4), small)] * 2
        aim = train.dino(
            model, steps, momentum=MOMENTUM, frozen_steps=steps // EPOCHS
        )
        return aim, views.MultiCrop(crops)
    if objective == "mae":
        return train.reconstruction(), whole
    return train.supervised(classes), whole


# %% [markdown]
# **What is measured.** Tokens $x_{it}$, image $i$ and patch $t$, of held-out images, at the embedding, after each block, and after the last LayerNorm; the class
# token is kept apart. With $m$ the mean of all, $p_t$ what patch $t$ has on average over images, and $a_i$ what image $i$ has on average over patches,
#
# $$ x_{it} = m + p_t + a_i + r_{it}, \qquad C = \underbrace{\tfrac1T \sum_t p_t p_t^\top}_{\text{position}} + \underbrace{\tfrac1n \sum_i a_i a_i^\top}_{\text{image}} + \underbrace{\tfrac1{nT} \sum_{it} r_{it} r_{it}^\top}_{\text{residual}}. \tag{2.1} $$
#
# The three parts of the covariance sum to the whole exactly: $p$ sums to zero over patches, $a$ over images and $r$ over either, so no product of two different ones is left. From the eigenvalues $\lambda$ of $C$, with
# $q_k = \lambda_k / \sum_j \lambda_j$,
#
# $$ N = \exp\Bigl(-\sum_k q_k \ln q_k\Bigr), \qquad \text{EED} = 100\,\frac{N}{D} \quad\text{or}\quad 100\,\frac{\ln N}{\ln D}. \tag{2.2} $$

# %%
PLAIN = views.View()
PARTS = ("position", "image", "residual", "trimmed", "class")


def spectra_of(vit, images):
    """Return the eigenvalues, largest first, at the embedding, after each block and after the last norm.

    Each (depth + 2, dim): of the patch tokens' covariance (`total`), of its three parts, of the tokens less the
    2 % with the largest norm (`trimmed`), of the class token (`class`). `mean_share` is (depth + 2,).
    """
    c = vit.config
    patches = c.grid[0] * c.grid[1]
    split = [partition.Partition(c.dim, patches) for _ in range(c.depth + 2)]
    first = [partition.Partition(c.dim, 1) for _ in range(c.depth + 2)]
    rest = [spectra.Covariance(c.dim) for _ in range(c.depth + 2)]

    def add(place, x):
        split[place].update(x[:, 1:])
        first[place].update(x[:, :1])
        rest[place].update(partition.without_top_norm(x[:, 1:], 0.02))

    def last(x):
        add(c.depth, x)
        add(c.depth + 1, vit.norm(x))

    readers = {"pos_embed": lambda x: add(0, x)}
    for block in range(c.depth - 1):
        readers[f"block.{block}"] = lambda x, place=block + 1: add(place, x)
    readers[f"block.{c.depth - 1}"] = last
    device = next(vit.parameters()).device
    with hooks.taps(vit, readers), torch.no_grad():
        for batch in images.split(100):
            vit(PLAIN(batch.to(device), torch.Generator()))
    found = {
        name: [partition.eigenvalues(p.parts()[name]) for p in split]
        for name in ("total", "position", "image", "residual")
    }
    found["class"] = [partition.eigenvalues(p.parts()["total"]) for p in first]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of eigenvalues in round-off, which weigh nothing
        found["trimmed"] = [r.eigenvalues() for r in rest]
    found["mean_share"] = [p.mean_share for p in split]
    return {
        name: np.array(values, dtype=np.float32) for name, values in found.items()
    }


def named(vit, bank, held_out):
    """Return which held-out images their neighbours name rightly: by class token, and by the patches' mean."""
    device = next(vit.parameters()).device
    pooled = []
    with torch.no_grad():
        for images, _ in (bank, held_out):
            seen = (PLAIN(x.to(device), torch.Generator()) for x in images.split(250))
            tokens = [vit.forward_features(x).cpu() for x in seen]
            pooled.append(
                torch.cat(
                    [torch.stack([x[:, 0], x[:, 1:].mean(1)]) for x in tokens], 1
                )
            )
    right = [
        probes.knn(known, bank[1], new) == held_out[1].numpy()
        for known, new in zip(*pooled, strict=True)
    ]
    return np.array(right)


# %% [markdown]
# **How it is trained.** Networks are looked at after 0, 1, 2, 4, 8, ... steps and at the end, because a spectrum can change much in the first hundred steps and little
# in the next thousand.

# %%


def learn(
    objective,
    source,
    shown,
    held_out,
    probed,
    seed,
    name,
    steps,
    head=HEAD,
    view=None,
):
    """Train one network; return what was found on the way, and before and after."""
    images, labels = shown
    lab.seed_everything(seed)
    model = build(objective, source, int(labels.max()) + 1, head)
    vit = model if objective == "supervised" else model.backbone
    aim, usual = task(objective, model, source, int(labels.max()) + 1, steps)
    chosen = balanced(labels.numpy(), 2000, seed)
    bank = images[chosen], labels[chosen]
    moments = {0, steps, *(2**i for i in range(20) if 2**i < steps)}

    def look(now):
        if now.step not in moments:
            return
        found = spectra_of(vit, probed)
        said = getattr(
            aim, "seen", {}
        )  # of the teacher's outputs, which only DINO has
        told = torch.tensor(
            [float(said.get(key, 0)) for key in ("entropy", "information")]
        )
        now.note(total=found["total"], mean_share=found["mean_share"], told=told)
        if now.step in (0, steps):
            now.note(
                right=named(vit, bank, held_out), **{key: found[key] for key in PARTS}
            )

    result = train.fit(
        model,
        feeds.InMemory(shown, BATCH, view or usual, seed),
        aim,
        train.Recipe(
            steps,
            BATCH,
            lr=RATE,
            weight_decay=0.04,
            final_weight_decay=0.4 if objective == "dino" else None,
            warmup=steps // 10,
            clip=3.0,
            seed=seed,
        ),
        checkpoint=lab.checkpoint(name),
        callbacks=[look],
    )
    noted = ("total", "mean_share", "told", "right", *PARTS)
    out = {key: result.log[key][1] for key in noted}
    out["moments"] = result.log["total"][0]
    out["loss"] = result.losses[: steps // 8 * 8].reshape(8, -1).mean(1)
    return vit, out


def some(images, labels):
    """Return the held-out images whose tokens are measured, all classes alike."""
    return images[balanced(labels.numpy(), PROFILED, 0)]


def gathered(rows, *shape):
    """Return what was found in all trainings, name by name, as arrays (trainings of one kind, of another, ...)."""
    stacked = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    return {key: v.reshape(*shape, *v.shape[1:]) for key, v in stacked.items()}


# %% [markdown]
# ## 3. Three data sets, three objectives
#
# UC Merced ([Yang and Newsam, 2010](https://doi.org/10.1145/1869790.1869829)) has 21 kinds of land seen from above; Tiny ImageNet (a part of it, 100 classes) has objects; CIFAR-100
# ([Krizhevsky, 2009](https://www.cs.toronto.edu/~kriz/learning-features-2009-TR.pdf)) smaller ones. One record for each. We call the three objectives *DINO*, *labels* and *painting*. Painting begins elsewhere: the autoencoder's positions are
# fixed waves about as large as its tokens, where the others' are learned and begin small; so its change counts, not its level.

# %%


def on_images(seed, source, objectives):
    """Train for each objective on one data set."""
    shown = pictures(source, "train")
    held_out = pictures(source, "held_out", HELD_OUT)
    steps = steps_for(len(shown[1]))
    rows = [
        learn(
            objective,
            source,
            shown,
            held_out,
            some(*held_out),
            seed,
            objective,
            steps,
        )[1]
        for objective in objectives
    ]
    chosen = balanced(shown[1].numpy(), 2000, seed)
    pixels = [x.flatten(1) / 127.5 - 1 for x in (shown[0][chosen], held_out[0])]
    right = probes.knn(pixels[0], shown[1][chosen], pixels[1]) == held_out[1].numpy()
    return gathered(rows, len(objectives)) | {"pixels": right}


# %%
satellite = lab.record(
    "bottleneck_ucmerced",
    on_images,
    seeds=SEEDS,
    source="ucmerced",
    objectives=OBJECTIVES,
    rank=1,
    minutes=lab.choose(smoke=0.2, laptop=6, paper=2),
)
satellite

# %%
tiny = lab.record(
    "bottleneck_tinyimagenet",
    on_images,
    seeds=SEEDS,
    source="tinyimagenet",
    objectives=OBJECTIVES,
    rank=2,
    minutes=lab.choose(smoke=0.2, laptop=6, paper=18),
)
tiny

# %%
cifar = lab.record(
    "bottleneck_cifar100",
    on_images,
    seeds=SEEDS,
    source="cifar100",
    objectives=OBJECTIVES,
    rank=3,
    minutes=lab.choose(smoke=0.2, laptop=6, paper=10),
)
cifar

# %% tags=["hide-input"]
NAMES = {"dino": "DINO", "supervised": "labels", "mae": "painting"}
RECORDS = {"UC Merced": satellite, "Tiny ImageNet": tiny, "CIFAR-100": cifar}
PLACE = {objective: i for i, objective in enumerate(OBJECTIVES)}


def dimension(eigenvalues, how=spectra.eed_linear):
    """Return the effective dimension in per cent along the last axis, which it takes away."""
    return np.apply_along_axis(how, -1, np.asarray(eigenvalues, dtype=float))


# (seeds, objectives, moments, places), by data set
EED = {name: dimension(record["total"]) for name, record in RECORDS.items()}
BLOCKS = satellite["total"].shape[-2] - 2
PLACES = range(BLOCKS + 2)
TICKS = ["in", *map(str, range(1, BLOCKS + 1)), "LN"]


def surely(values):
    """Return the mean over seeds, the first axis, and its 95 % t-interval."""
    return statistics.seeds_interval(np.asarray(values, dtype=float))


def told(interval, digits=1, plus="+"):
    """Write a mean ± half its interval; differences with their signs, levels (plus="") without."""
    half = max(
        float(interval.high - interval.mean), 0.5 * 10.0**-digits if digits else 0.0
    )
    return f"{float(interval.mean):{plus}.{digits}f} ± {half:.{digits}f}"


def by_depth(ax):
    """Lay an axis of places: the embedding, the blocks, the last norm."""
    ax.set(xticks=PLACES, xlabel="after block")
    ax.set_xticklabels(TICKS)


def panels(fig, rows):
    """Draw each row (title, lines) as a panel; a line is (label, before, after), each (seeds, places), dashed and solid."""
    axes = fig.subplots(1, len(rows), sharey=True, squeeze=False)[0]
    for ax, (title, drawn) in zip(axes, rows, strict=True):
        for (label, before, after), colour in zip(
            drawn, show.look().colours, strict=False
        ):
            ax.plot(PLACES, before.mean(0), color=colour, lw=1.4, ls=(0, (2, 2)))
            mean, low, high = surely(after)
            label = label if ax is axes[-1] else None
            show.lines(
                ax, PLACES, mean, np.maximum(low, 0), high, label=label, colour=colour
            )
        by_depth(ax)
        ax.set_title(title)
    return axes


def over_depth(untrained, trained):
    """Return what draws profiles, by label and each (seeds, places), and the mean of the untrained networks."""

    def draw(fig):
        ax = fig.add_subplot()
        show.lines(
            ax,
            PLACES,
            untrained.mean(0),
            label="untrained",
            colour=show.look().muted,
            dashed=True,
        )
        for (label, profile), colour in zip(
            trained.items(), show.look().colours, strict=False
        ):
            mean, low, high = surely(profile)
            show.lines(
                ax, PLACES, mean, np.maximum(low, 0), high, label=label, colour=colour
            )
        by_depth(ax)
        ax.set(ylabel="effective dimension (%)")

    return draw


TOP = max(float(eed.mean(0).max()) for eed in EED.values())


def profiles(fig, moment):
    """Each data set a panel, each objective a line; the untrained networks dashed."""
    axes = panels(
        fig,
        [
            (
                name,
                [
                    (NAMES[o], eed[:, i, 0], eed[:, i, moment])
                    for o, i in PLACE.items()
                ],
            )
            for name, eed in EED.items()
        ],
    )
    axes[0].set(ylabel="effective dimension (%)", ylim=(0, 1.15 * TOP))


show.figure(
    lambda fig: profiles(fig, -1),
    size=(7, 4),
    alt="Effective dimension in per cent of the width against depth, one panel for each of three data sets, one line for each objective; dashed "
    "lines are the untrained networks. "
    + " ".join(
        f"{name}, DINO: {e[0]:.0f} % at the embedding, {e[BLOCKS // 2]:.0f} in the middle, {e[BLOCKS]:.0f} after the last block."
        for name, eed in EED.items()
        for e in [eed[:, PLACE["dino"], -1].mean(0)]
    ),
    caption=f"Solid: after training; bands are 95 % t-intervals over {SEEDS} seeds. Dashed: the same networks before training. Linear convention, 100 N/D. The last place, LN, is after the last "
    "LayerNorm, all others before any.",
)

# %% [markdown]
# To speak of a U we must say what one is. Call *early* the embedding and the first sixth of the blocks, *middle* those after it up to half the depth, *late* those from five sixths of the depth on (of our six blocks: 1, 2 to 3, 5 to 6; of the paper's
# twelve: L0 to L1, L2 to L5, L9 to L11). Let
#
# $$ \text{fall} = \overline{\text{EED}}_\text{early} - \overline{\text{EED}}_\text{middle}, \qquad \text{rise} = \overline{\text{EED}}_\text{late} - \overline{\text{EED}}_\text{middle}. \tag{3.1} $$
#
# A *U* has both above zero, an *arch* both below; with one of each a profile is *rising* or *falling*. And the *sag*, their mean, says in one number how deep the middle lies below the ends,
#
# $$ \text{sag} = \tfrac12\,(\text{fall} + \text{rise}). \tag{3.2} $$
#
# All three are percentage points of the width, and are taken on each seed before anything is averaged. The cut is ours, and was made when one seed of each set had been looked at; a dip at block 4 would be missed by it. So take also the *dip*, by how much the lower of the two ends of
# a profile lies above the least place between them: for any U at all it is above zero.
#
# In the tables ± is half a 95 % t-interval over seeds. It takes seeds to scatter normally, which three cannot check, and is wide in return: 4.3 standard errors.

# %%
EARLY = [p for p in range(BLOCKS + 1) if p <= BLOCKS / 6]
MIDDLE = [p for p in range(BLOCKS + 1) if BLOCKS / 6 < p <= BLOCKS / 2]
LATE = [p for p in range(BLOCKS + 1) if p >= BLOCKS * 5 / 6]


def fall(profile):
    """Return early minus middle along the last axis, places."""
    return profile[..., EARLY].mean(-1) - profile[..., MIDDLE].mean(-1)


def rise(profile):
    """Return late minus middle along the last axis, places."""
    return profile[..., LATE].mean(-1) - profile[..., MIDDLE].mean(-1)


def sag(profile):
    """Return how far the middle lies below the ends."""
    return (fall(profile) + rise(profile)) / 2


def dip(profile):
    """Return by how much the lower end lies above the least place between; the choice of the least flatters it."""
    inside = profile[..., 1:BLOCKS].min(-1)
    return np.minimum(profile[..., 0], profile[..., BLOCKS]) - inside


def shape(profile):
    """Name a profile, (seeds, places), by the signs of its fall and rise, where both are decided."""
    signs = sign(surely(fall(profile))), sign(surely(rise(profile)))
    names = {(1, 1): "U", (-1, -1): "arch", (1, -1): "falling", (-1, 1): "rising"}
    return names.get(signs, "undecided")


# %% tags=["hide-input"]
shapes = {
    (name, objective): shape(EED[name][:, i, -1])
    for name in EED
    for objective, i in PLACE.items()
}


def better(record, i):
    """Return by how many points of k-NN accuracy training improved on the untrained network, each seed."""
    right = 100 * record["right"][:, i, :, 1].mean(-1)
    return right[:, 1] - right[:, 0]


learned = {
    (name, objective): sign(surely(better(record, i))) > 0
    for name, record in RECORDS.items()
    for objective, i in PLACE.items()
}


def row_name(name, objective):
    """Name a training, with a star where its neighbours are not shown to be better than before it."""
    return f"{name}, {NAMES[objective]}" + ("" if learned[name, objective] else " *")


show.table(
    [
        [
            row_name(name, objective),
            told(surely(fall(EED[name][:, i, -1]))),
            told(surely(rise(EED[name][:, i, -1]))),
            shapes[name, objective],
            told(surely(dip(EED[name][:, i, -1]))),
        ]
        for name in EED
        for objective, i in PLACE.items()
    ],
    header=["set, objective", "fall", "rise", "shape", "dip"],
    caption="Fall and rise of the trained profiles (3.1), the shape that their signs make where both are decided, and the dip; points of the width. A star: no better neighbours than before training, see below.",
)

# %% tags=["hide-input"]
show.table(
    [
        [
            row_name(name, objective),
            told(surely(fall(EED[name][:, i, -1]) - fall(EED[name][:, i, 0]))),
            told(surely(rise(EED[name][:, i, -1]) - rise(EED[name][:, i, 0]))),
            told(surely(sag(EED[name][:, i, -1]) - sag(EED[name][:, i, 0]))),
        ]
        for name in EED
        for objective, i in PLACE.items()
    ],
    header=["set, objective", "fall", "rise", "sag"],
    caption="The same minus the untrained network of the same seed: what training did to the shape.",
)

# %% tags=["hide-input"]
# %% tags=["hide-input"]
WORDS = (
    "none",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
)


def counted(kind):
    """Return how many of the trained profiles have a shape."""
    return list(shapes.values()).count(kind)


high = max(float(eed[:, :, -1, : BLOCKS + 1].mean(0).max()) for eed in EED.values())
strict = sum(
    bool(
        sign(
            statistics.seeds_interval(
                end(EED[n][:, i, -1]), level=1 - 0.05 / (2 * len(shapes))
            )
        )
    )
    for n in EED
    for i in PLACE.values()
    for end in (fall, rise)
)
show.say(
    f"Of {WORDS[len(shapes)]} trained profiles {WORDS[counted('U')]} {'is a U' if counted('U') == 1 else 'are Us'}, {WORDS[counted('arch')]} "
    f"{'is an arch' if counted('arch') == 1 else 'are arches'}, and {WORDS[counted('undecided')]} undecided. Under DINO, the paper's objective, they are: "
    + "; ".join(f"{name}, {shapes[name, 'dino']}" for name in EED)
    + f". These are {2 * len(shapes)} intervals at 95 %: were all true values zero, one would be expected to exclude it. Held to 95 % for all together, {strict} of them stay decided. And decided is not "
    f"large: a point is {0.01 * satellite['total'].shape[-1]:.2f} dimensions. "
    + (
        f"No mean of ours reaches {10 * np.ceil(high / 10):.0f} % of the width at any depth before the last norm; the paper has 58 % and more at the first layers, in one of the two conventions."
        if high < 58
        else f"Our means reach {high:.0f} % of the width."
    )
)

# %% [markdown]
# The same profiles in the other convention, where small differences among few dimensions look large:

# %% tags=["hide-input"]
LOG = {
    name: dimension(r["total"][:, :, [0, -1]], spectra.eed_log)
    for name, r in RECORDS.items()
}


def profiles_log(fig):
    axes = fig.subplots(1, 3, sharey=True)
    for ax, (name, eed) in zip(axes, LOG.items(), strict=True):
        for objective, i in PLACE.items():
            colour = show.look().colours[i]
            x = np.arange(BLOCKS + 2)
            ax.plot(x, eed[:, i, 0].mean(0), color=colour, lw=1.4, ls=(0, (2, 2)))
            label = NAMES[objective] if ax is axes[-1] else None
            show.lines(ax, x, eed[:, i, 1].mean(0), label=label, colour=colour)
        by_depth(ax)
        ax.set_title(name)
    axes[0].set(ylabel="entropy (% of ln D)", ylim=(0, 100))


show.figure(
    profiles_log,
    size=(7, 4),
    alt="Spectral entropy in per cent of its largest value against depth, one panel for each of three data sets, one line for each of three objectives; dashed lines are the "
    "untrained networks.",
    caption="The logarithmic convention, 100 ln N / ln D, of the same spectra: means over seeds, solid trained, dashed untrained.",
)

# %% tags=["hide-input"]
first_places = [float(v[:, PLACE["dino"], 1, :2].mean()) for v in LOG.values()]
show.say(
    f"In this convention the first two places have {min(first_places):.0f} to {max(first_places):.0f} % under DINO. The paper's 58 to 60 % would then be "
    f"{384**0.58:.0f} to {384**0.60:.0f} dimensions of 384. Levels at another width and length of training decide nothing; but which convention is meant decides how far apart we are."
)

# %% [markdown]
# Did these networks learn anything? An undertrained network has an undertrained spectrum.

# %% tags=["hide-input"]
show.table(
    [
        [
            f"{name}, {NAMES[objective]}",
            f"{100 * record['pixels'].mean():.1f}",
            *(
                told(surely(100 * record["right"][:, i, when, 1].mean(-1)), plus="")
                for when in (0, 1)
            ),
            told(surely(better(record, i))),
        ]
        for name, record in RECORDS.items()
        for objective, i in PLACE.items()
    ],
    header=["set, objective", "pixels", "untrained", "trained", "difference"],
    caption="Per cent of held-out images that their ten nearest neighbours among up to 2,000 name rightly, by raw pixels and by the mean of the normalised patch tokens, which no objective trains directly. "
    "Chance is one in the number of classes.",
)

# %% tags=["hide-input"]
silent = [f"{name} by {NAMES[o]}" for (name, o), s in learned.items() if not s]
least = min(float(r["told"][:, PLACE["dino"], -1, 1].min()) for r in RECORDS.values())
show.say(
    (
        "Decidedly better neighbours than before training are not shown for "
        + ", ".join(silent)
        + ". There a profile describes how a network begins to learn, or that it does not; a star marks these trainings, and none of them alone decides a verdict below. "
        if silent
        else "Every training made decidedly better neighbours than there were before. "
    )
    + f"Of these DINO trainings none collapsed: at the end the teacher's output says at least {least:.2f} nats about which image of the last batch it was (the meter of the chapter on DINO)."
)

# %% [markdown]
# ## 4. Through training
#
# Move the slider from the first step to the last.

# %% tags=["hide-input"]
MOMENTS = satellite["moments"][0, 0]
show.interact(
    profiles,
    values=list(range(len(MOMENTS))),
    size=(7, 4),
    label="training step",
    text=lambda moment: f"{MOMENTS[moment]:,}",
    alt=lambda moment: (
        f"Effective dimension against depth after {MOMENTS[moment]:,} steps, one panel a data set, one line an objective, dashed lines untrained."
    ),
    caption=f"Profiles at {len(MOMENTS)} moments, as in the figure before; bands are 95 % t-intervals over {SEEDS} seeds. At paper scale the sets have steps of their own, and a frame shows moments of equal rank.",
)

# %% [markdown]
# ## 5. Is the order there before training?
#
# If the images' own spectrum decides, the untrained network already ranks the data sets as the trained one does. [How many dimensions?](effective_dimension.ipynb) asks
# this of raw patches, textures and noise; here are the same three sets, before and after.

# %% tags=["hide-input"]
# (seeds, objectives, 2, sets): the mean over depth, before the last norm
LEVEL = np.stack(
    [eed[:, :, [0, -1], : BLOCKS + 1].mean(-1) for eed in EED.values()], axis=-1
)
ORDER = np.argsort(-LEVEL[:, PLACE["dino"], 0].mean(0))  # of the sets, untrained
kept_order = {
    o: bool((np.argsort(-LEVEL[:, i, 0]) == np.argsort(-LEVEL[:, i, 1])).all())
    for o, i in PLACE.items()
}


def before_after(fig):
    axes = fig.subplots(1, len(OBJECTIVES), sharey=True, squeeze=False)[0]
    for ax, (objective, i) in zip(axes, PLACE.items(), strict=True):
        for s, name in enumerate(RECORDS):
            mean, low, high = surely(LEVEL[:, i, :, s])
            label = name if ax is axes[-1] else None
            show.lines(
                ax, [0, 1], mean, low, high, label=label, markers=True,
                colour=show.look().colours[s],
            )  # fmt: skip
        ax.set(
            title=NAMES[objective],
            xticks=[0, 1],
            xticklabels=["before", "after"],
            xlabel="training",
            xlim=(-0.15, 1.15),
        )
    axes[0].set_ylabel("mean over depth (%)")


show.figure(
    before_after,
    size=(7, 3.6),
    alt="Effective dimension, mean over depth, before and after training, one panel an objective, one line a data set.",
    caption=f"Where lines do not cross, the means kept the order that they had untrained; the text counts seeds. 95 % t-intervals over {SEEDS} seeds.",
)

# %% tags=["hide-input"]
names = list(RECORDS)
show.say(
    "Before training the order, from most dimensions to fewest, is "
    + ", ".join(names[s] for s in ORDER)
    + " under DINO. Training keeps it in every seed for "
    + (
        ", ".join(NAMES[o] for o, kept in kept_order.items() if kept)
        or "no objective"
    )
    + (
        ", and not for "
        + ", ".join(NAMES[o] for o, kept in kept_order.items() if not kept)
        if not all(kept_order.values())
        else ""
    )
    + f". From the first set to the last, UC Merced to CIFAR-100, it was a distance of {told(surely(LEVEL[:, PLACE['dino'], 0, 0] - LEVEL[:, PLACE['dino'], 0, 2]))} points before DINO and is one of "
    f"{told(surely(LEVEL[:, PLACE['dino'], 1, 0] - LEVEL[:, PLACE['dino'], 1, 2]))} after it. An order that was there before training is no evidence that training made it; that it is kept is no evidence that training did nothing, either."
)

# %% [markdown]
# So one thing is moved at a time. Section 6 moves the images and takes off what the untrained network shows; section 7 holds the images still and moves the task; section 8 holds both and moves the number of steps.

# %% [markdown]
# ## 6. The dial
#
# Generated scenes have a dial that no photograph has: from pure texture ($c = 0$) to composed scenes ($c = 1$) objects are added to the *same* backgrounds. If depth
# of composition makes the bottleneck, the sag must grow with $c$, and by more than it does in the untrained network, which sees the same change of spectrum:
#
# $$ \Delta = \bigl(\text{sag}^{c=1} - \text{sag}^{c=0}\bigr)_\text{trained} - \bigl(\text{sag}^{c=1} - \text{sag}^{c=0}\bigr)_\text{untrained} > 0. \tag{6.1} $$

# %%
DIAL = (0.0, 0.5, 1.0)
SCENES = lab.choose(smoke=120, laptop=4000, paper=20_000)


def on_scenes(seed, dial, objectives, count, steps):
    """Train for each objective on scenes of each complexity; the supervised labels are the texture's."""
    rows = []
    for complexity in dial:
        source = f"scenes {complexity:g}"
        shown = pictures(source, "train", count)
        held_out = pictures(source, "held_out", HELD_OUT)
        for objective in objectives:
            name = f"{objective}-{complexity:g}"
            rows.append(
                learn(
                    objective,
                    source,
                    shown,
                    held_out,
                    some(*held_out),
                    seed,
                    name,
                    steps,
                )[1]
            )
    return gathered(rows, len(dial), len(objectives))


# %%
dialled = lab.record(
    "bottleneck_dial",
    on_scenes,
    seeds=SEEDS,
    dial=DIAL,
    objectives=OBJECTIVES,
    count=SCENES,
    steps=lab.choose(smoke=8, laptop=250, paper=8000),
    rank=5,
    minutes=lab.choose(smoke=0.4, laptop=16, paper=12),
)
dialled

# %% tags=["hide-input"]
TURNED = dimension(dialled["total"])  # (seeds, dial, objectives, moments, places)


def turning(fig):
    axes = panels(
        fig,
        [
            (
                NAMES[o],
                [
                    (f"c = {c:g}", TURNED[:, k, i, 0], TURNED[:, k, i, -1])
                    for k, c in enumerate(DIAL)
                ],
            )
            for o, i in PLACE.items()
        ],
    )
    top = float(TURNED[:, :, :, [0, -1]].mean(0).max())
    axes[0].set(ylabel="effective dimension (%)", ylim=(0, 1.3 * top))


show.figure(
    turning,
    size=(7, 4),
    alt="Effective dimension against depth for scenes of three complexities, one panel an objective; dashed lines are the untrained networks.",
    caption=f"The dial from pure texture (c = 0) to composed scenes (c = 1); solid trained, dashed untrained, bands 95 % t-intervals over {SEEDS} seeds.",
)

# %% tags=["hide-input"]
deeper, gained = {}, {}
for objective, i in PLACE.items():
    sags = sag(TURNED[:, :, i])  # (seeds, dial, moments)
    deeper[objective] = (
        surely(sags[:, -1, 0] - sags[:, 0, 0]),
        surely(sags[:, -1, -1] - sags[:, 0, -1]),
        surely((sags[:, -1, -1] - sags[:, 0, -1]) - (sags[:, -1, 0] - sags[:, 0, 0])),
    )
    named_rightly = 100 * dialled["right"][:, :, i, :, 1].mean(-1)  # (seeds, dial, 2)
    gained[objective] = [
        surely(named_rightly[:, k, 1] - named_rightly[:, k, 0]) for k in (0, -1)
    ]
show.table(
    [
        [NAMES[o], *(told(d, 2) for d in three), *(told(g, 0) for g in gained[o])]
        for o, three in deeper.items()
    ],
    header=[
        "objective",
        "untrained",
        "trained",
        "difference",
        "k-NN, c = 0",
        "k-NN, c = 1",
    ],
    caption="By how much the sag (3.2) grows from pure texture to composed scenes, in points of the width: before training, after it, and the difference (6.1); and by how many points neighbours name the texture better than before training. Under labels the dial also makes the task harder, for objects hide the texture that is asked for.",
)

# %% [markdown]
# ## 7. The labels
#
# This is the decisive control. (Three seeds were recorded first; a fourth was added after they had been looked at, which flatters a little what it decides.) A thousand scenes (at scale `laptop`), the same for all; the labels say the texture of the background, or the shape of the largest object, or are dealt out by lot.
# Same pixels, shown bare; same initial weights; same order of images. Whatever differs between the three profiles is due to the task, its difficulty and the speed at which it is learned included.

# %%
LABELS = ("texture", "shape", "random")


def relabelled(seed, kinds, count, steps):
    """Train on the same scenes, told their texture, their shape, or labels drawn by lot."""
    images, factors = scenes.draw(np.arange(count), "train", complexity=0.5)
    new, answers = scenes.draw(np.arange(HELD_OUT), "test", complexity=0.5)
    images, new = (
        torch.tensor(x).permute(0, 3, 1, 2).contiguous() for x in (images, new)
    )
    lots = np.random.default_rng(seed)
    labels = {
        "texture": (factors.texture, answers.texture),
        "shape": (factors.shape, answers.shape),
        "random": (lots.permutation(factors.shape), lots.permutation(answers.shape)),
    }
    rows = []
    for kind in kinds:
        known, asked = (torch.tensor(x) for x in labels[kind])
        vit, found = learn(
            "supervised",
            "scenes 0.5",
            (images, known),
            (new, asked),
            new[:PROFILED],
            seed,
            kind,
            steps,
            view=views.View(),
        )
        device = next(vit.parameters()).device
        with torch.no_grad():
            for key, pixels, truth in (
                ("fitted", images, known),
                ("tested", new, asked),
            ):
                seen = (
                    PLAIN(x.to(device), torch.Generator()) for x in pixels.split(250)
                )
                said = torch.cat([vit(x).argmax(1).cpu() for x in seen])
                found[key] = (said == truth).numpy()
        rows.append(found)
    return gathered(rows, len(kinds))


# %%
labelled = lab.record(
    "bottleneck_labels",
    relabelled,
    seeds=lab.choose(smoke=3, laptop=4, paper=5),
    kinds=LABELS,
    count=lab.choose(smoke=144, laptop=1008, paper=10_080),
    steps=lab.choose(smoke=8, laptop=500, paper=10_000),
    rank=4,
    minutes=lab.choose(smoke=0.2, laptop=6, paper=6),
)
labelled

# %% tags=["hide-input"]
ASKED = dimension(labelled["total"])  # (seeds, labels, moments, places)

show.figure(
    over_depth(
        ASKED[:, 0, 0], {kind: ASKED[:, k, -1] for k, kind in enumerate(LABELS)}
    ),
    alt="Effective dimension against depth for networks trained on the same scenes with labels by texture, by shape, and by lot, and for the untrained network.",
    caption=f"The same pixels and three tasks; dashed, the mean of the untrained networks; bands are 95 % t-intervals over {len(labelled.seeds)} seeds.",
)

# %% tags=["hide-input"]


def level_of(profile):
    """Return the mean over the blocks."""
    return profile[..., 1 : BLOCKS + 1].mean(-1)


def between(measure, moment=-1):
    """Return one task minus another; the three intervals hold together at 95 % (each at 98.3 %, after Bonferroni)."""
    value = measure(ASKED[:, :, moment])
    return {
        f"{a} − {b}": statistics.seeds_interval(
            value[:, i] - value[:, j], level=1 - 0.05 / 3
        )
        for (i, a), (j, b) in itertools.combinations(enumerate(LABELS), 2)
    }


contrasts, task_sag, earlier = between(level_of), between(sag), between(level_of, -2)
MID = int(labelled["moments"][0, 0, -2])
show.table(
    [
        [
            kind,
            told(surely(100 * labelled["fitted"][:, k].mean(-1)), 0, ""),
            told(surely(100 * labelled["tested"][:, k].mean(-1)), 0, ""),
            told(surely(level_of(ASKED[:, k, -1]) - level_of(ASKED[:, k, 0]))),
            shape(ASKED[:, k, -1]),
            told(surely(sag(ASKED[:, k, -1]) - sag(ASKED[:, k, 0]))),
        ]
        for k, kind in enumerate(LABELS)
    ],
    header=["labels", "learned, %", "new, %", "level", "shape", "sag"],
    caption=f"Accuracy on the scenes learned from and on new ones; the level, the mean effective dimension over the blocks, minus the untrained network's; the shape; the sag minus the untrained. {len(labelled.seeds)} seeds.",
)

# %% tags=["hide-input"]
show.table(
    [
        [name, told(contrasts[name]), told(earlier[name]), told(task_sag[name])]
        for name in contrasts
    ],
    header=[
        "one task − another",
        "level, at the end",
        f"level, step {MID}",
        "sag, at the end",
    ],
    caption=f"Differences between tasks on the same pixels, in points, {len(labelled.seeds)} seeds. The three intervals of a column hold together at 95 %.",
)

# %% tags=["hide-input"]
steady = [
    n
    for n in contrasts
    if sign(contrasts[n]) and sign(contrasts[n]) == sign(earlier[n])
]
by_level, by_bend = (
    any(map(sign, contrasts.values())),
    any(map(sign, task_sag.values())),
)
by_task = by_bend or bool(steady)
by_lot = surely(sag(ASKED[:, 2, -1]) - sag(ASKED[:, 2, 0]))
show.say(
    (
        "The task alone bends the profile: neither the images nor the architecture differ here. "
        if by_bend
        else f"The task alone moves the level, at the last two moments alike ({', '.join(steady)}); that it changes the bend is not shown. "
        if steady
        else "A level differs at the end and not at the moment before: that may be another speed and not another answer. "
        if by_level
        else "No difference is decided: on these scenes the task has not been shown to move the profile. "
    )
    + "The tasks also differ in how fast they are learned (see *learned*), and equal steps are not equal fits. "
    + f"Labels by lot, which can only be memorised, change the sag by {told(by_lot)} points against the untrained network: "
    + (
        "memorising bends a profile too, so a bend alone does not show that structure was found."
        if sign(by_lot)
        else "that memorising bends the profile is not shown."
    )
)

# %% [markdown]
# ## 8. Flat, or not yet trained?
#
# At the same number of epochs a small set gets few steps. Of pure textures, few images and many, trained with DINO: few images for as many *epochs* as the many (so for few steps), few images for
# as many *steps*, and many images.

# %%


def fed(seed, few, many, steps):
    """Train DINO on textures: on few for few steps, on few for many steps, on many for as many."""
    held_out = pictures("scenes 0", "held_out", HELD_OUT)
    rows = []
    for count, length in ((few, steps * few // many), (few, steps), (many, steps)):
        shown = pictures("scenes 0", "train", count)
        name = f"{count}-{length}"
        rows.append(
            learn(
                "dino",
                "scenes 0",
                shown,
                held_out,
                some(*held_out),
                seed,
                name,
                length,
            )[1]
        )
    ends = [
        {k: v[[0, -1]] for k, v in row.items() if k in ("total", *PARTS, "right")}
        for row in rows
    ]
    return gathered(ends, len(rows))


# %%
starved = lab.record(
    "bottleneck_steps",
    fed,
    seeds=SEEDS,
    few=lab.choose(smoke=60, laptop=1000, paper=2000),
    many=lab.choose(smoke=120, laptop=10_000, paper=20_000),
    steps=lab.choose(smoke=16, laptop=250, paper=8000),
    rank=6,
    minutes=lab.choose(smoke=0.2, laptop=7, paper=12),
)
starved

# %% tags=["hide-input"]
FED = dimension(starved["total"])  # (seeds, diets, 2, places)
DIETS = ("few, equal epochs", "few, equal steps", "many")

show.figure(
    over_depth(FED[:, 0, 0], {diet: FED[:, k, 1] for k, diet in enumerate(DIETS)}),
    size=(7, 3.8),
    alt="Effective dimension against depth for DINO on textures: few images for equal epochs, few images for equal steps, many images, and untrained.",
    caption=f"The same textures and DINO; few images are a tenth of many. Bands: 95 % t-intervals over {SEEDS} seeds.",
)

# %% tags=["hide-input"]


def uneven(profile):
    """Return the spread of a profile over depth, before the last norm: its standard deviation in points."""
    return profile[..., : BLOCKS + 1].std(-1)


bends = [surely(uneven(FED[:, k, 1]) - uneven(FED[:, k, 0])) for k in range(3)]
by_steps = surely(uneven(FED[:, 1, 1]) - uneven(FED[:, 0, 1]))
by_images = surely(uneven(FED[:, 2, 1]) - uneven(FED[:, 1, 1]))
show.say(
    "How uneven a profile is over depth (its standard deviation, minus the untrained network's): "
    + "; ".join(
        f"{diet}, {told(b, 2)} points" for diet, b in zip(DIETS, bends, strict=True)
    )
    + f". Ten times the steps on the same few images move it by {told(by_steps, 2)}; ten times the images at the same steps by {told(by_images, 2)}. "
    + (
        "A profile can be flat because training was short: equal epochs are no equal training. "
        if sign(by_steps) > 0
        else "Here the short training left the profile more uneven, not flatter: what too few steps do need not be to hide a bend. "
        if sign(by_steps) < 0
        else "That more steps on the same images bend a flat profile is not shown here. "
    )
    + "A shorter run also ends its learning rate sooner; the two are not told apart."
)

# %% [markdown]
# ## 9. Does the late rise fit the head?
#
# The paper says that the last layers spread out again to fit the projection head. If they do, the rise must go when the head goes. So: DINO on Tiny ImageNet without a head, the features themselves compared with the
# directions (at paper scale also with a head that ends in another width).

# %%
HEADS = lab.choose(smoke=("none", "wide"), laptop=("none",), paper=("none", "wide"))


def headed(seed, source, heads):
    """Train DINO with heads that end in other widths; the usual one is in the record of this data set."""
    narrow, wide = lab.choose(smoke=(8, 32), laptop=(16, 256), paper=(64, 1024))
    configs = {
        "none": HeadConfig(HEAD.outputs, layers=0),
        "narrow": HeadConfig(HEAD.outputs, narrow, HEAD.hidden),
        "wide": HeadConfig(HEAD.outputs, wide, HEAD.hidden),
    }
    shown = pictures(source, "train")
    held_out = pictures(source, "held_out", HELD_OUT)
    steps = steps_for(len(shown[1]))
    rows = [
        learn(
            "dino",
            source,
            shown,
            held_out,
            some(*held_out),
            seed,
            kind,
            steps,
            configs[kind],
        )[1]
        for kind in heads
    ]
    return gathered(rows, len(heads))


# %%
crowned = lab.record(
    "bottleneck_head",
    headed,
    seeds=SEEDS,
    source="tinyimagenet",
    heads=HEADS,
    rank=7,
    minutes=lab.choose(smoke=0.2, laptop=5, paper=20),
)
crowned

# %% tags=["hide-input"]
WIDE = lab.choose(smoke=32, laptop=256, paper=1024)
HEADED = dimension(crowned["total"])  # (seeds, heads, moments, places)
USUAL = f"{HEAD.bottleneck}"
by_head = {
    "none": HEADED[:, 0, -1],
    USUAL: EED["Tiny ImageNet"][:, PLACE["dino"], -1],
}
if "wide" in HEADS:
    by_head[f"{WIDE}"] = HEADED[:, 1, -1]

show.figure(
    over_depth(
        HEADED[:, 0, 0],
        {f"head {width}": profile for width, profile in by_head.items()},
    ),
    size=(7, 3.8),
    alt="Effective dimension against depth for DINO with and without a projection head, and untrained.",
    caption=f"DINO on Tiny ImageNet; the number is the width in which the head ends. The last place, LN, is after the last LayerNorm. Bands: 95 % t-intervals over {SEEDS} seeds.",
)

# %% [markdown]
# The head reads the class token alone, and DINO's loss reaches the patches only through it. If a layer fits the head, the class token should show it first; so its spectrum over images stands beside that of the patches. (It has one row an image: 400 rows for 64
# dimensions at scale `laptop`. Its level is a little low, alike for all heads.)

# %% tags=["hide-input"]


def of_class(record, i):
    """Return the class token's effective dimension after each block and the norm; at the embedding it is one point."""
    return dimension(record["class"][:, i, 1, 1:])


def class_rise(profile):
    """Return late minus middle of a profile that begins after the first block."""
    late, middle = ([p - 1 for p in places if p] for places in (LATE, MIDDLE))
    return profile[..., late].mean(-1) - profile[..., middle].mean(-1)


at_head = {"none": of_class(crowned, 0), USUAL: of_class(tiny, PLACE["dino"])}
if "wide" in HEADS:
    at_head[f"{WIDE}"] = of_class(crowned, 1)
untrained_norm = surely(HEADED[:, 0, 0, BLOCKS + 1] - HEADED[:, 0, 0, BLOCKS])
show.table(
    [
        [
            w,
            told(surely(rise(by_head[w])), 2),
            told(surely(by_head[w][:, BLOCKS + 1] - by_head[w][:, BLOCKS]), 2),
            told(surely(class_rise(at_head[w])), 2),
            told(surely(at_head[w][:, -1]), 1, ""),
        ]
        for w in by_head
    ],
    header=["head", "rise", "norm adds", "class: rise", "class: level"],
    caption=f"The late rise (3.1) of the patch tokens before the last norm, what the last LayerNorm adds to it, the late rise of the class token, and its level after the norm, in points of the width; {SEEDS} seeds. In the untrained network the norm adds {told(untrained_norm, 2)}.",
)

# %% tags=["hide-input"]
# By how much a head moves the rise against none, by width: of the patches, and of the class token.
head_moves = {
    w: surely(rise(p) - rise(by_head["none"]))
    for w, p in by_head.items()
    if w != "none"
}
class_moves = {
    w: surely(class_rise(p) - class_rise(at_head["none"]))
    for w, p in at_head.items()
    if w != "none"
}
told_heads = "; ".join(
    f"one that ends in {w} dimensions, by {told(head_moves[w], 2)} in the patches and by {told(class_moves[w], 2)} in the class token"
    for w in head_moves
)
HEAD_SIGNS = [sign(m) for m in (*head_moves.values(), *class_moves.values())]
show.say(
    f"Against none, a head moves the late rise, in points: {told_heads}. "
    + (
        "With a head the late rise is larger, in patches and class token alike."
        if min(HEAD_SIGNS) > 0
        else "With a head the late rise is smaller, or not decidedly changed: the last layers do not spread out to fit it."
        if max(HEAD_SIGNS) <= 0 and any(HEAD_SIGNS)
        else "A head changes the late rise, but patches and class token do not agree on how."
        if any(HEAD_SIGNS)
        else "That the late rise follows the head is not shown."
    )
    + (
        f" The last LayerNorm adds {told(untrained_norm, 2)} points in a network that has learned nothing. A profile that ends after the norm then ends in a rise that nobody trained: "
        "before comparing two papers, ask on which side of the norm each has measured."
        if sign(untrained_norm) > 0
        else ""
    )
)

# %% [markdown]
# ## 10. Position, mean, giants
#
# Patches carry where they are, and all images of a set have something in common. By (2.1) the covariance splits into what the position explains, what the image explains and the rest. Does the shape
# survive in the rest? And without the two tokens in a hundred that have the largest norm, since a few giants can be a spectrum of their own
# ([Darcet et al., 2024](https://arxiv.org/abs/2309.16588), in large ViTs trained long)?

# %% tags=["hide-input"]


def share_of(record, part, when):
    """Return a part's share of all variance in per cent, (seeds, objectives, places)."""
    whole = sum(
        record[p][:, :, when].sum(-1) for p in ("position", "image", "residual")
    )
    return 100 * record[part][:, :, when].sum(-1) / whole


def parts(fig):
    axes = fig.subplots(1, len(OBJECTIVES), sharey=True, squeeze=False)[0]
    x = np.arange(BLOCKS + 2)
    for ax, (objective, i) in zip(axes, PLACE.items(), strict=True):
        below = np.zeros(BLOCKS + 2)
        for k, part in enumerate(("position", "image", "residual")):
            share = share_of(tiny, part, 1)[:, i].mean(0)
            ax.bar(
                x,
                share,
                bottom=below,
                color=show.look().colours[k],
                label=part,
                width=0.8,
            )
            below = below + share
        by_depth(ax)
        ax.set_title(NAMES[objective])
    axes[0].set_ylabel("share of the variance (%)")
    fig.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3
    )


show.figure(
    parts,
    size=(7, 4.2),
    alt="Stacked bars: shares of position, image and residual in the variance of patch tokens against depth, one panel an objective.",
    caption=f"Tiny ImageNet after training, means over {SEEDS} seeds. If tokens were independent between images and patches, position would have a share of about one in the number of images, and image of one in the number of patches; where neighbouring patches resemble each other, image has more.",
)

# %% tags=["hide-input"]
rest = {name: dimension(r["residual"]) for name, r in RECORDS.items()}
trim = {name: dimension(r["trimmed"]) for name, r in RECORDS.items()}
show.table(
    [
        [
            row_name(name, o),
            shapes[name, o],
            shape(rest[name][:, i, 1]),
            shape(trim[name][:, i, 1]),
        ]
        for name in RECORDS
        for o, i in PLACE.items()
    ],
    header=["set, objective", "whole", "residual", "less 2 %"],
    caption="The shape of the trained profile of all variance, of the residual alone, and without the 2 % of tokens with the largest norm, whether or not any stands out.",
)

# %% tags=["hide-input"]
show.table(
    [
        [
            row_name(name, o),
            told(surely(sag(EED[name][:, i, -1]))),
            told(surely(sag(rest[name][:, i, 1]))),
            f"{100 * RECORDS[name]['mean_share'][:, i, -1, BLOCKS].mean():.0f}",
        ]
        for name in RECORDS
        for o, i in PLACE.items()
    ],
    header=["set, objective", "sag", "of the residual", "mean, %"],
    caption=f"The sag of both in points, {SEEDS} seeds; and the mean's share of the second moment after the last block, which an uncentred covariance would count as a dimension.",
)

# %% tags=["hide-input"]
survive = [(n, o) for (n, o), s in shapes.items() if s == "U"]
still = [(n, o) for n, o in survive if shape(rest[n][:, PLACE[o], 1]) == "U"]
new_u = [
    (n, o)
    for n in RECORDS
    for o, i in PLACE.items()
    if shape(rest[n][:, i, 1]) == "U" and shapes[n, o] != "U"
]
show.say(
    f"Us in all variance: {len(survive)}; of them also in the residual: {len(still)}. "
    + (
        "Only in the residual there is a U for "
        + ", ".join(f"{n} by {NAMES[o]}" for n, o in new_u)
        + "."
        if new_u
        else "No profile is a U in the residual and not in the whole."
    )
)

# %% [markdown]
# ## 11. Phantom dimensions
#
# Claim IB-13 says that negligible eigenvalues are put to use early in training and pruned near convergence. Call a dimension *negligible* if it has less than a hundredth of its even share,
# $q_k < 1/(100 D)$. If the claim is right, their number falls early and rises again towards the end.

# %% tags=["hide-input"]


def negligible(total, share):
    """Return the share of dimensions with less than a share of an even share, in per cent, mean over blocks."""
    q = total / total.sum(-1, keepdims=True)
    return 100 * (q < share / total.shape[-1]).mean(-1)[..., 1 : BLOCKS + 1].mean(-1)


GHOSTS = {name: negligible(r["total"], 0.01) for name, r in RECORDS.items()}


def ghosts(fig):
    axes = fig.subplots(1, 3, sharey=True)
    for ax, (name, found) in zip(axes, GHOSTS.items(), strict=True):
        for objective, i in PLACE.items():
            mean, low, high = surely(found[:, i])
            label = NAMES[objective] if ax is axes[-1] else None
            show.lines(
                ax, RECORDS[name]["moments"][0, 0] + 1, mean, np.maximum(low, 0), np.minimum(high, 100),
                label=label, colour=show.look().colours[i],
            )  # fmt: skip
        ax.set(xscale="log", title=name, xlabel="step + 1", ylim=(0, 100))
    axes[0].set_ylabel("negligible dimensions (%)")


show.figure(
    ghosts,
    size=(7, 3.8),
    alt="Per cent of dimensions that are negligible, mean over blocks, against training step on a logarithmic axis, one panel a data set, one line an objective.",
    caption=f"Dimensions with less than a hundredth of an even share of the variance, mean over the blocks; bands are 95 % t-intervals over {SEEDS} seeds.",
)

# %% tags=["hide-input"]


def least_at(ghosts):
    """Return for each seed the moment of the least, as the other seeds have it: so no seed flatters itself."""
    return np.array(
        [np.delete(ghosts, s, 0).mean(0).argmin() for s in range(len(ghosts))]
    )


def used_and_pruned(ghosts):
    """Return by how much the negligible dimensions fall to their least and rise from there, (seeds, moments)."""
    least = ghosts[np.arange(len(ghosts)), least_at(ghosts)]
    return surely(ghosts[:, 0] - least), surely(ghosts[:, -1] - least)


used = {
    (name, o): used_and_pruned(found[:, i])
    for name, found in GHOSTS.items()
    for o, i in PLACE.items()
}
show.table(
    [
        [
            row_name(n, o),
            *map(told, both_ways),
            f"{RECORDS[n]['moments'][0, 0, int(GHOSTS[n][:, PLACE[o]].mean(0).argmin())]:,}",
        ]
        for (n, o), both_ways in used.items()
    ],
    header=["set, objective", "start − least", "end − least", "at step"],
    caption=f"By how many points of all dimensions the number of negligible ones falls from the start to its least, and rises from there to the end, {SEEDS} seeds; for each seed the moment of the least is that of the others. And the step of the least of the mean: where it is the last, nothing was pruned.",
)

# %% [markdown]
# The threshold is ours, so here is another, a tenth of an even share.

# %% tags=["hide-input"]
coarser = {
    (name, o): used_and_pruned(negligible(r["total"], 0.1)[:, i])
    for name, r in RECORDS.items()
    for o, i in PLACE.items()
}


def both_decided(found):
    """Name the trainings in which negligible dimensions decidedly fall and then decidedly rise."""
    return [
        f"{n} by {NAMES[o]}"
        for (n, o), two in found.items()
        if min(map(sign, two)) > 0
    ]


show.say(
    "With a tenth of an even share, a fall and a later rise are both decided for "
    + (", ".join(both_decided(coarser)) or "no training")
    + "; with a hundredth, for "
    + (", ".join(both_decided(used)) or "no training")
    + "."
)

# %% [markdown]
# ## 12. An information bottleneck?
#
# The *information bottleneck* ([Tishby, Pereira and Bialek, 1999](https://arxiv.org/abs/physics/0004057); for deep networks [Tishby and Zaslavsky, 2015](https://arxiv.org/abs/1503.02406)) asks of a representation $T$ of the input $X$ that it tell much of the target $Y$ and little else of $X$,
#
# $$ \min_{T}\; I(X; T) - \beta\, I(T; Y). \tag{12.1} $$
#
# The paper takes $N$ of (2.2) for a measure of $I(X; T)$. Three things stand between the two.
#
# - A block of a ViT is a function without noise. For continuous inputs $I(X; T)$ is then infinite, or, for a finite set of $n$ different images that stay different and are drawn equally often, exactly $\ln n$, whatever the spectrum
#   ([Goldfeld et al., 2019](https://arxiv.org/abs/1810.05728)). Only noise, or a limit to precision, makes it a number that can fall; what earlier work saw fall depended on the nonlinearity and the bins
#   ([Saxe et al., 2018](https://openreview.net/forum?id=ry_WPG-A-)).
# - Information does not change under any invertible map of $T$; $N$ changes under almost all of them (not under rotations and a common scale). Exercise 1 takes any representation of full rank to 100 % by a matrix that can be undone.
# - If a Gaussian of variance $\sigma^2$ a dimension is added to Gaussian tokens with eigenvalues $\lambda_k$, there is such a number,
#
# $$ I = \tfrac12 \sum_k \ln\Bigl(1 + \frac{\lambda_k}{\sigma^2}\Bigr), \tag{12.2} $$
#
# for *one* token. It grows with the size of the eigenvalues at a fixed noise, which $N$ does not see at all: two networks with the same $N$ can differ in (12.2) without bound. What is right in the analogy: at a fixed total variance and noise, (12.2) too grows as the
# spectrum is evened out. But a residual stream does not keep its total.
#
# And a bound on the generalisation gap needs assumptions of its own. That of [Kawaguchi et al., 2023](https://arxiv.org/abs/2305.18887), is by what $T$ keeps of $X$ beyond the target, $I(X; T \mid Y)$, for an encoder chosen without these samples; for a learned one a term is added for
# what the encoder knows of them (bounds by what the *weights* know of the sample alone are older: [Xu and Raginsky, 2017](https://arxiv.org/abs/1705.07809)); and its authors call it one way to control the gap, neither the only nor a necessary one. Section 7 has a small test of what remains, the association: do fewer dimensions go with a smaller gap between own and new images?

# %% tags=["hide-input"]
gap = 100 * (
    labelled["fitted"].mean(-1) - labelled["tested"].mean(-1)
)  # (seeds, labels)
level = level_of(ASKED[:, :, -1])
relevance = {kind: surely(gap[:, k]) for k, kind in enumerate(LABELS)}


def together(x, y):
    """Return the covariance over the tasks within each seed: its sign is the association's, and nothing is divided by."""
    return ((x - x.mean(-1, keepdims=True)) * (y - y.mean(-1, keepdims=True))).mean(
        -1
    )


association = surely(together(level, gap))


def gaps(fig):
    ax = fig.add_subplot()
    for k, kind in enumerate(LABELS):
        ax.plot(
            level[:, k],
            gap[:, k],
            "os^"[k],
            ms=8,
            color=show.look().colours[k],
            label=kind,
        )
    ax.set(
        xlabel="effective dimension, mean over blocks (%)",
        ylabel="own − new images (points)",
    )
    ax.legend(title="labels")


show.figure(
    gaps,
    alt="Generalisation gap against effective dimension, one mark a network, its form and colour the kind of labels.",
    caption="Each mark is a network of section 7. The reading would have marks to the left lie lower; a bound would only keep them from lying high. All seeds of a task share it, so there are three tasks to compare, however many marks.",
)

# %% tags=["hide-input"]
show.say(
    f"Within a seed, the covariance of level and gap over the three tasks is {told(association, 0)} squared points. "
    + (
        "The sign is the one that the reading predicts, though three tasks differ in more than their dimensions."
        if sign(association) > 0
        else "The sign is against the reading."
        if sign(association) < 0
        else "Its sign is undecided."
    )
    + " Labels by lot say nothing of a *new* image, so over all images (12.1) would keep nothing of them; on the images learned from each label is one to be remembered, and the network "
    f"names {told(surely(100 * labelled['fitted'][:, 2].mean(-1)), 0, '')} % of them, with {told(surely(level[:, 2]), 1, '')} % of its dimensions."
)

# %% [markdown]
# ## 13. What was claimed, what we measured
#
# The rules by which the verdicts follow stand in the cells. They were revised once, after a first seed of most records had been seen, and before the others were there.

# %% tags=["hide-input"]
HERE = f"{SEEDS} seeds at scale {satellite.scale}. "
SOURCE = "[Awadhiya, 2025](https://arxiv.org/abs/2512.07331)"
# A U is excluded where even the dip, flattered as it is, lies decidedly below zero.
no_u = {n: sign(surely(dip(eed[:, PLACE["dino"], -1]))) < 0 for n, eed in EED.items()}
THINGS = ("Tiny ImageNet", "CIFAR-100")  # the sets on which the paper has a U
show.verdict(
    claim="IB-2: the effective dimension of a self-supervised ViT is a U over depth.",
    source=SOURCE,
    # Only networks that learned can speak for the claim, and on UC Merced the paper itself expects no U.
    verdict="undecided"
    if not all(learned[n, "dino"] for n in THINGS)
    else "holds"
    if all(shapes[n, "dino"] == "U" for n in THINGS)
    else "holds in part"
    if any(shapes[n, "dino"] == "U" for n in THINGS)
    else "fails"
    if all(no_u[n] for n in THINGS)
    else "undecided",
    measured=HERE
    + "Under DINO: "
    + "; ".join(
        f"{n}, {shapes[n, 'dino']} (fall {told(surely(fall(EED[n][:, PLACE['dino'], -1])))}, rise {told(surely(rise(EED[n][:, PLACE['dino'], -1])))})"
        for n in RECORDS
    )
    + ". Under the other objectives, where something was learned: "
    + (
        "; ".join(
            f"{n} by {NAMES[o]}, {s}"
            for (n, o), s in shapes.items()
            if o != "dino" and learned[n, o]
        )
        or "none"
    )
    + f". Even by the dip, which would find a U anywhere, it is excluded on {sum(no_u.values())} of {len(no_u)} sets under DINO. "
    + (
        "But better neighbours than before training are not shown for "
        + " and ".join(n for n in THINGS if not learned[n, "dino"])
        + ": what a network does that has learned about the objects is not seen here."
        if not all(learned[n, "dino"] for n in THINGS)
        else ""
    )
    + (
        " This is said of networks of this size at these few steps; the paper's are six times as wide, twice as deep and trained far longer."
        if satellite.scale != "paper"
        else ""
    ),
    would_change="A U under DINO on two sets or more with a ViT-S at 100 epochs, which the paper-scale commands would record.",
)

# %% tags=["hide-input"]
moved = {
    n: surely(sag(eed[:, PLACE["dino"], -1]) - sag(eed[:, PLACE["dino"], 0]))
    for n, eed in EED.items()
}
bent = [n for n, d in moved.items() if sign(d)]
dial_dino = deeper["dino"][2]
HALF = (
    0.5  # a change of sag that we call none, in points; chosen after the recordings
)
unmoved = all(max(abs(d.low), abs(d.high)) < HALF for d in moved.values())
show.table(
    [
        [
            "Was the order there untrained? (section 5)",
            "kept in every seed under "
            + (
                ", ".join(NAMES[o] for o, k in kept_order.items() if k)
                or "no objective"
            ),
            "what the images bring; settles nothing alone",
        ],
        [
            "Does training bend the profile? (3)",
            f"under DINO on {len(bent)} of {len(moved)} sets",
            "whether the architecture alone makes it",
        ],
        [
            "Other images, same task? (6)",
            f"sag {told(dial_dino, 2)} under DINO",
            "the data's part",
        ],
        [
            "Same images, other task? (7)",
            "another bend"
            if by_bend
            else "another level"
            if steady
            else "another level at the end, not before"
            if by_level
            else "not shown",
            "the task's part",
        ],
        [
            "Same images, more steps? (8)",
            f"unevenness {told(by_steps, 2)}",
            "the length of training",
        ],
    ],
    header=["question", "found", "speaks of"],
    caption="The argument, step by step: each line moves one thing. An interval covers the seeds of one network, size and recipe; no line says what a ViT-S does.",
)

# %% tags=["hide-input"]
show.verdict(
    claim="IB-3, IB-14: the profile is a learned answer to the data, no artefact of the architecture.",
    source=SOURCE,
    verdict="fails"
    if unmoved and not by_task
    else "holds"
    if len(bent) == len(moved) and sign(dial_dino) and by_bend and not sign(by_steps)
    else "holds in part"
    if bent or sign(dial_dino) or by_task
    else "undecided",
    measured=HERE
    + f"Learned: training with DINO changes the sag on {len(bent)} of {len(moved)} sets, beyond what the architecture brings ("
    + "; ".join(f"{n}, {told(d)}" for n, d in moved.items())
    + f"). By the data: objects on the same textures change it by {told(dial_dino, 2)} points more than untrained. By the task: on the same pixels ({len(labelled.seeds)} seeds), "
    + (
        "the bend differs"
        if by_bend
        else f"the level differs ({', '.join(steady)}), the bend not decidedly"
        if steady
        else "the level differs at the end and not at the moment before, the bend not decidedly"
        if by_level
        else "nothing is decided"
    )
    + f". By the length of training: {told(by_steps, 2)} points of unevenness. And what the images bring is there before: their order is kept in every seed under "
    + f"{', '.join(NAMES[o] for o, k in kept_order.items() if k) or 'no objective'}. *Data-driven* names one of several causes that all move the profile where they are decided, so a profile by itself tells of none of them.",
    would_change=f"Profiles under DINO that stay within {HALF} points of their untrained sag would take back what holds; the same bend whatever the task and the steps, and another for other data, would add the rest.",
)

# %% tags=["hide-input"]
show.verdict(
    claim="IB-7, IB-8, IB-9: 58 to 60 % early, 23 to 30 % in the middle, over 90 % late, the last to fit the projection head. The levels cannot be tested at another size; the reason can.",
    source=SOURCE,
    verdict="holds in part"
    if min(HEAD_SIGNS) > 0
    else "fails"
    if max(HEAD_SIGNS) <= 0 and any(HEAD_SIGNS)
    else "undecided",
    measured=HERE
    + "Levels at our size under DINO, embedding to last block: "
    + "; ".join(
        f"{n}, {', '.join(f'{v:.0f}' for v in EED[n][:, PLACE['dino'], -1, : BLOCKS + 1].mean(0))} %"
        for n in RECORDS
    )
    + f". They are not the paper's, and need not be at another width and length of training. Against no head, a head moves the late rise: {told_heads}. "
    f"The last LayerNorm alone adds {told(untrained_norm, 2)} before any training.",
    would_change="The paper-scale record with its levels in both conventions; a rise that grows with the head's width at every step along it.",
)

# %% tags=["hide-input"]


def unlevel(profile):
    """Return the spread over depth as a share of the mean, in per cent: unlike `uneven` it does not grow with the level."""
    inside = profile[..., : BLOCKS + 1]
    return 100 * inside.std(-1) / inside.mean(-1)


uc = EED["UC Merced"][:, PLACE["dino"], -1]
others = {
    n: surely(unlevel(EED[n][:, PLACE["dino"], -1]) - unlevel(uc))
    for n in list(RECORDS)[1:]
}
flatter, bumpier = (
    min(map(sign, others.values())) > 0,
    max(map(sign, others.values())) < 0,
)
dial_learned = sign(gained["dino"][-1]) > 0
uc_means = uc[:, : BLOCKS + 1].mean(0)
show.verdict(
    claim="IB-10, IB-11: flat and above 90 % where texture is the signal; the bottleneck is the deeper, the less texture matters.",
    source=SOURCE,
    verdict="holds"
    if sign(dial_dino) > 0 and flatter and uc_means.min() > 90
    else "holds in part"
    if sign(dial_dino) > 0 or flatter
    else "fails"
    if (sign(dial_dino) < 0 and dial_learned) or bumpier
    else "undecided",
    measured=HERE
    + f"UC Merced under DINO has {uc_means.min():.0f} to {uc_means.max():.0f} % of the width, a spread over depth of {told(surely(unlevel(uc)), 1, '')} % of its mean; against it "
    + "; ".join(f"{n}, {told(d)}" for n, d in others.items())
    + f". The dial from texture to composed scenes moves the sag under DINO by {told(dial_dino, 2)} points beyond what it does untrained; the claim has this above zero. "
    + (
        ""
        if dial_learned
        else "But neighbours name the scenes' texture no better after DINO than before it, so networks that learned more may do otherwise. "
    )
    + "On the photographs texture is confounded with shrinking; on the dial it is not.",
    would_change="A sag that grows with the dial under DINO at paper scale, beyond the untrained network's.",
)

# %% tags=["hide-input"]
show.verdict(
    claim="IB-12: the profile shows the information bottleneck, so lower effective dimension means better generalisation.",
    source=SOURCE
    + ", after [Tishby and Zaslavsky, 2015](https://arxiv.org/abs/1503.02406)",
    verdict="fails" if sign(association) < 0 else "undecided",
    measured=HERE
    + "The step from dimension to information fails whatever the networks do, by the three points of section 12; the verdict is on what remains. As an association, over three tasks on the same pixels, the covariance of level and gap is "
    f"{told(association, 0)} squared points; the gaps are "
    + "; ".join(f"{k}, {told(g, 0)}" for k, g in relevance.items())
    + ".",
    would_change="Many tasks of equal difficulty on the same pixels in which the gap follows the dimension; and a measure of information with its noise stated.",
)

# %% tags=["hide-input"]
pruned, robust = both_decided(used), both_decided(coarser)
dino_robust = [
    n
    for n in RECORDS
    if all(min(map(sign, f[n, "dino"])) > 0 for f in (used, coarser))
]
show.verdict(
    claim="IB-13: phantom dimensions are used early in training and pruned near convergence.",
    source=SOURCE,
    verdict="holds"
    if len(dino_robust) == len(RECORDS)
    else "holds in part"
    if dino_robust
    else "undecided",
    measured=HERE
    + "Under DINO the share of negligible dimensions falls by "
    + "; ".join(
        f"{told(used[n, 'dino'][0])} and rises again by {told(used[n, 'dino'][1])} points on {n}"
        for n in RECORDS
    )
    + f". Both are decided for {', '.join(pruned) or 'no training'}; with the other threshold for {', '.join(robust) or 'no training'}; under DINO at either threshold on {len(dino_robust)} of {len(RECORDS)} sets. "
    "Which of these trainings has converged was not tested, so *near convergence* is only touched.",
    would_change="A late rise of negligible dimensions under DINO once accuracy has stopped rising, at paper scale.",
)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: Any number you like
#
# Write `whiten(X)`: tokens $X$, `(N, D)`, of full rank, to tokens $XW$ of the same shape with a matrix $W$ that can be inverted, so that their effective dimension is 100 %. Nothing is lost: multiplying by $W^{-1}$
# gives $X$ back.

# %%


def whiten(X): ...


check.whitening(whiten)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def whiten(X):
#     values, vectors = np.linalg.eigh(np.cov(X.T))
#     return X @ vectors / np.sqrt(values)
#
#
# check.whitening(whiten)
# ```
#
# In the axes of the eigenvectors each coordinate is divided by its standard deviation: the covariance becomes the identity, $q_k = 1/D$ and $N = D$. A linear layer can do this or undo it, and so can the next
# one: a dip of the effective dimension followed by a rise need not lose anything on the way.
#
# </details>
#
# ### Exercise 2: How much is noise?
#
# Tokens that are independent noise of variance 1 a feature still have a "position" part, since the mean over $n$ images is not exactly zero. By (2.1), what share of the variance do position, image and residual have on average,
# for $n$ images of $T$ patches? Write it as a function.

# %%


def noise_shares(n, T): ...


check.noise_shares(noise_shares)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def noise_shares(n, T):
#     return (T - 1) / (n * T - 1), (n - 1) / (n * T - 1), (n - 1) * (T - 1) / (n * T - 1)
#
#
# check.noise_shares(noise_shares)
# ```
#
# Count degrees of freedom: $T - 1$ for positions, $n - 1$ for images, $(n-1)(T-1)$ for the rest, $nT - 1$ together. With 400 images of 64 patches position gets a quarter of a per cent, image one and a half: a share of
# 30 % for the image would be far above this floor. But the floor is higher where neighbouring patches resemble each other: patches that move in $m$ independent groups have about $1/m$. And above the floor means *not chance*; brightness is enough.
#
# </details>
#
# ### Exercise 3: The same epochs
#
# Two sets of $n_1 < n_2$ images are trained for the same number of epochs at the same batch size. A profile's unevenness grows as $u(s) = u_\infty (1 - e^{-s/\tau})$ with the step $s$. Write the function `apparent(n1, n2, epochs, batch, tau)` that gives the ratio
# of the two unevennesses that one would see, $u_1/u_2$, if in truth both sets behave alike.

# %%


def apparent(n1, n2, epochs, batch, tau): ...


check.apparent_ratio(apparent)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def apparent(n1, n2, epochs, batch, tau):
#     def bent(n):
#         return 1 - np.exp(-epochs * n / batch / tau)
#
#     return bent(n1) / bent(n2)
#
#
# check.apparent_ratio(apparent)
# ```
#
# For 2,100 and 50,000 images, 100 epochs, batches of 64 and $\tau$ of 5,000 steps it is about a half: the small set would look half as bent, for no other reason than its size. With $\tau$ small against both numbers of steps the
# ratio is one, and equal epochs do no harm. Which it is can only be seen through training, which is why section 4 has a slider. The formula is an assumption; section 8 asks whether profiles do behave so.
#
# </details>
#
# ## For the seminar
#
# > **Seminar.** "The network compresses because the data allow it" and "the network compresses because the loss asks for it": find an experiment in this chapter that speaks for each, and one that neither explains. Then design the
# > experiment that a reviewer of the paper should have asked for first. What would it cost, and which of the six explanations of section 1 would it leave standing?
#
# ## Further reading
#
# - [Awadhiya, 2025](https://arxiv.org/abs/2512.07331): the paper on trial.
# - [Saxe et al., 2018](https://openreview.net/forum?id=ry_WPG-A-): what the information bottleneck does not explain about deep learning; the model of how to test a beautiful idea.
# - [Goldfeld et al., 2019](https://arxiv.org/abs/1810.05728): how to put noise into a network so that its information is a number.
# - [Garrido et al., 2023](https://arxiv.org/abs/2210.02885): RankMe, where the rank of self-supervised features predicts how useful they are.
# - [Darcet et al., 2024](https://arxiv.org/abs/2309.16588): giants among the tokens of large ViTs, and what they are for.
