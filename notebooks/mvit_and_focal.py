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
# # Keys near and far
#
# In a Vision Transformer every token looks at every other, at full sharpness, in every layer. A window
# ([Swin](https://arxiv.org/abs/2103.14030)) forbids what is far; a pyramid
# ([PVT](https://arxiv.org/abs/2102.12122)) blurs everything alike. Two methods of 2021 stand between. *MViT* pools queries, keys and values
# before they meet, with a stride that changes with depth. *Focal* keeps what is near sharp and attends the rest in outline,
# inside one softmax. Both are called multi-scale, and mean different things by it: one has many scales over its depth, the other in
# every layer. This chapter draws what each query can see in either, counts what it costs, finds keys that are counted twice and keys that come
# from the other side of the picture, and then asks what each of these parts is worth to a small network on few images.
#
# **After it you can**
#
# - say of any block of an MViT or a Focal Transformer which keys a query meets, and draw them,
# - tell apart pooling that makes attention cheap from pooling that makes the network a pyramid,
# - show that a key listed twice is one key with another bias, and find such keys in a published network,
# - count key-query pairs by hand and check the count against the machine,
# - read a 2 x 2 design: two parts, alone and together, and what an interaction is.
#
# **It assumes** [The Vision Transformer](vision_transformer.ipynb) for attention, and [Hungry for data?](data_hunger.ipynb) for intervals over seeds and images.
#
# **It takes** three quarters of an hour to read. Run as it stands (scale `laptop`) it loads two recorded experiments and computes the rest in
# about half a minute on two cores; at scale `smoke` every cell runs in well under a minute, training included, on generated images. What
# recording costs is printed where a record is shown. Scale `paper` (all 100 classes, wider networks, 20,000 steps) is about ten hours on one
# modern GPU, by estimate: [Running at full scale](../book/scale.md) says how.

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
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch, Rectangle
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitlab import check, data, hooks, lab, show, train
from vitlab.analysis.statistics import apart, sign
from vitlab.analysis.statistics import crossed_interval as surely
from vitlab.data import feeds, views
from vitlab.data.few import share, some_classes
from vitlab.models.focal import Focal, FocalConfig, focal_keys, ring
from vitlab.models.mvit import MViT, MViTConfig, Pooling, relative_index
from vitlab.models.swin import Swin, SwinConfig
from vitlab.models.vit import ViT, ViTConfig
from vitlab.show import told

lab.start(seed=0)

# %% [markdown]
# ## On trial
#
# (The codes are those of the [ledger of claims](../book/claims.md).)
#
# > **Claim.** HUNGER-8. MViT attends pooled keys and values, $\operatorname{softmax}(QK_{\text{pool}}^\top/\sqrt d)\,V_{\text{pool}}$, which makes
# > attention cheap and the network a pyramid; in video, time and space are pooled together.
#
# > **Claim.** HUNGER-9. Focal attends fine neighbours and coarse summaries in one softmax,
# > $\operatorname{softmax}(Q[K_f;K_c]^\top/\sqrt d)\,[V_f;V_c]$, as an eye has a fovea and a periphery. So a window is fed what it lacks.
#
# > **Claim.** LIT-40. To pool by a learnt convolution is better than by the maximum, and the maximum is better than the mean
# > ([Fan et al., 2021](https://arxiv.org/abs/2104.11227), on videos).
#
# > **Claim.** LIT-41. Adding the pooled queries to what attention returns helps
# > ([Li et al., 2022](https://arxiv.org/abs/2112.01526)).
#
# > **Claim.** LIT-42. Fine keys around the window and coarse keys beyond it are better together than either alone
# > ([Yang et al., 2021](https://arxiv.org/abs/2107.00641)).
#
# What would we have to see? The two formulas can be held against the networks themselves, block by block and key by key: sections 1 to 6 do. What the
# parts are worth needs training with and without them, all else equal: sections 8 and 9. A part that helps must help decidedly; and one arm of
# section 9 differs from another in nothing that matters, so that we see how large a difference comes from nothing.
#
# ## 1. A stride for attention
#
# A convolution with stride 2 has one output for every second place. Attention has outputs where it has *queries*, and looks at places where it has
# *keys*. So it has two strides to choose, and they do different things. Fewer keys: the same tokens come out, cheaper. Fewer queries: fewer tokens
# come out, and all that follows is cheaper too. Pooling attention pools all three before they meet:
#
# $$ Q = P_Q(XW_Q), \quad K = P_K(XW_K), \quad V = P_V(XW_V), \qquad
#    Z = \operatorname{softmax}\!\Big(\frac{QK^\top}{\sqrt d}\Big)\,V. \tag{1.1} $$
#
# Each $P$ works on the grid of tokens, head by head. With $N$ tokens, strides $s_q$ and $s_k$ in rows and columns alike,
#
# $$ \text{queries} \times \text{keys} \;=\; \frac{N}{s_q^2} \cdot \frac{N}{s_k^2}. \tag{1.2} $$
#
# Keys and values must have the same stride, or a weight would have no value to go with. `MViTConfig.plan` lists what every block of an MViT
# does. This is MViTv2-T, the smallest of its paper, on 224 x 224 pixels.

# %% tags=["hide-input"]
TINY = MViTConfig.v2_tiny()
PLAN = TINY.plan
HALVING = [at for at, block in enumerate(PLAN) if block.q_stride > 1]


def grids(fig):
    """Draw a square for the queries of each block and one for its keys, true to scale."""
    ax = fig.add_subplot()
    for at, block in enumerate(PLAN):
        for row, side in ((1, block.queries), (0, block.keys)):
            size = 0.9 * side / PLAN[0].side
            colour = show.look().colours[0 if row else 1]
            corner = (at - size / 2, 1.45 * row - size / 2)
            ax.add_patch(Rectangle(corner, size, size, color=colour, linewidth=0))
            ax.annotate(
                f"{side}",
                (at, 1.45 * row - size / 2),
                (0, -15),
                textcoords="offset points",
                ha="center",
            )
    for at in HALVING:
        ax.axvline(at - 0.5, color=show.look().muted, linewidth=1, linestyle=":")
    ax.set(
        xlim=(-0.6, len(PLAN) - 0.5),
        ylim=(-0.75, 2.05),
        xticks=range(len(PLAN)),
        xticklabels=[f"{at + 1}" for at in range(len(PLAN))],
        yticks=(0, 1.45),
        yticklabels=("keys,\nvalues", "queries"),
        xlabel="block",
        aspect="equal",
    )
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


show.figure(
    grids,
    size=(7, 2.9),
    alt="Two rows of squares, one column a block of MViTv2-T: the grid of queries shrinks from 56 by 56 to 7 by 7 in three jumps; "
    "the grid of keys is 14 by 14 almost everywhere, twice as wide in the first blocks of the second and third stage, and 7 by 7 at the end.",
    caption="Queries and keys of each block of MViTv2-T, with the side of their grids. Queries (blue) make the pyramid: dotted lines mark the blocks "
    "that pool them. Keys and values (orange) are pooled from the first block on, and hardly change in number.",
)

# %% [markdown]
# ### The queries are pooled too
#
# Retellings write (1.1) with $K_{\text{pool}}$ and $V_{\text{pool}}$ and leave $Q$ alone. That is what most blocks of version 1 do. But a block whose queries
# are not pooled returns as many tokens as it was given. Without pooled queries there would be no pyramid: the halving between two stages *is*
# a stride of 2 on the queries of the next stage's first block, and the skip connection is pooled by the maximum to follow. Version 2 pools
# the queries in every block, elsewhere with stride 1. The stages (how many, how deep, where the halvings are) are chosen by hand; nothing about them is learned.

# %% tags=["hide-input"]
show.say(
    f"Of the {len(PLAN)} blocks of MViTv2-T, {len(HALVING)} pool their queries with a stride above 1: "
    + ", ".join(f"block {at + 1}" for at in HALVING)
    + ". A block that is first in its stage gets the larger grid of the stage before it and the key stride of its own stage; that is why its keys can be twice as many a side."
)

# %% [markdown]
# Attention weights are no longer a square. A small MViT, asked for the weights of its blocks:

# %%
POCKET = MViTConfig(
    image_size=32,
    patch_kernel=3,
    patch_stride=2,
    classes=10,
    dims=(16, 32, 64),
    depths=(1, 2, 2),
    heads=(1, 2, 4),
    kv_strides=(4, 2, 1),
)
pocket = MViT(POCKET).eval()
TAPS = [f"attn.{at}" for at in range(len(POCKET.plan))]
with hooks.taps(pocket, TAPS) as maps_of, torch.no_grad():
    pocket(torch.rand(1, 3, 32, 32))
for at, block in enumerate(POCKET.plan):
    print(
        f"block {at + 1}: {tuple(maps_of[TAPS[at]].shape)[1:]} weights, "
        f"planned {block.heads} heads, {block.queries**2} queries, {block.keys**2} keys"
    )

# %% [markdown]
# ## 2. What a pool is
#
# Between the maximum, the mean and a convolution the paper chose the convolution: one kernel of 3 x 3 weights for every channel of a head, learnt, the same
# for all heads, followed by LayerNorm. For places $i$ of the coarse grid and stride $s$, with $\odot$ channel by channel,
#
# $$ \text{conv: } y_i = \sum_{\delta} w_\delta \odot x_{si+\delta}, \qquad
#    \text{mean: } w_\delta = \tfrac{1}{9} \text{ for all } \delta, \qquad
#    \text{maximum: } y_i = \max_\delta x_{si+\delta}. \tag{2.1} $$
#
# The mean is one particular convolution. The maximum is none: it is not linear. So a convolution can become the mean if that is best, and can become other things, such
# as the difference of a place and its surroundings. It also can become a mere choice of every $s$-th token. First the picture, with colours in place
# of features, then the check.

# %% tags=["hide-input"]
scene = data.load("scenes", "held_out", size=64, limit=8).images[3]
sharp = torch.tensor(scene).permute(2, 0, 1)[None] / 255.0
around = -torch.ones(3, 1, 3, 3) / 8
around[:, :, 1, 1] = 1.0
blurred = F.avg_pool2d(sharp, 3, 4, 1)
largest = F.max_pool2d(sharp, 3, 4, 1)
outlined = 0.5 + F.conv2d(sharp, around, stride=4, padding=1, groups=3)
show.images(
    [
        (255 * F.interpolate(one, 64).clamp(0, 1))[0].byte().permute(1, 2, 0).numpy()
        for one in (sharp, blurred, largest, outlined)
    ],
    titles=["64 x 64", "mean", "maximum", "convolution"],
    columns=4,
    alt="A generated scene, and its 16 by 16 poolings: the mean is a soft small copy, the maximum a brighter one, and a centre-minus-surround convolution keeps edges alone.",
    caption="One picture pooled with kernel 3 and stride 4 in three ways. The convolution, here centre minus surroundings (grey is zero), is one of many that could be learnt. "
    "In an MViT it is features of queries, keys and values that are pooled, each with kernels of its own.",
)

# %%
as_mean = Pooling("conv", dim=8, side=8, kernel=3, stride=2, prefix=0)
nn.init.constant_(as_mean.pool.weight, 1 / 9)
plain_mean = Pooling("avg", dim=8, side=8, kernel=3, stride=2, prefix=0)
some = torch.randn(1, 2, 64, 8)  # (batch, heads, tokens, channels)
gap = (as_mean(some) - as_mean.norm(plain_mean(some))).abs().max().item()
print(
    f"a convolution with all weights 1/9, and the mean with its norm: {gap:.0e} apart"
)

# %% [markdown]
# The check had to put a LayerNorm after the mean. That is a difference between the three of which retellings say nothing: here as in the published code, the convolution comes with a norm, and the mean
# and the maximum without. "Convolution against maximum" compares two packages.
#
# ## 3. Strides that adapt
#
# If keys were pooled by the same stride everywhere, the last stage would have almost none left. So the stride of keys and values is halved whenever the grid is, down to 1:
#
# $$ s_k(\text{stage } m) = \max\!\big(1,\; s_k(1) / 2^{\,m-1}\big)
#    \quad\Longrightarrow\quad \text{keys a side} = \frac{n_1/2^{\,m-1}}{s_k(1)/2^{\,m-1}} = \frac{n_1}{s_k(1)}, \tag{3.1} $$
#
# with $n_1$ tokens a side in the first stage: the same number of keys in every stage, until the stride is 1. For MViTv2-T that is $56/4 = 14$. In every layer a query can choose among about 196 summaries
# of the whole image; what changes with depth is how much each summary has been digested, and how many queries ask.
#
# PVT does the same by another route: its keys are made by a convolution whose kernel equals its stride, of the tokens before they become keys; and its pyramid
# is made by patches of patches between the stages, not inside attention.
#
# ## 4. Two repairs, and one more axis
#
# Version 2 ([Li et al., 2022](https://arxiv.org/abs/2112.01526)) makes five changes, which the table at the top of `vitlab/models/mvit.py` lists. Two matter here.
#
# **Residual pooling.** The pooled queries are added to what attention returns:
#
# $$ Z = \operatorname{softmax}\!\Big(\frac{QK^\top}{\sqrt d} + E\Big)\,V + Q. \tag{4.1} $$
#
# Why could that help? A query that cannot yet tell keys apart returns about the mean of the values, and so does its neighbour: what attention returns hardly says where it was asked, and
# the tokens' differences survive only in the skip connection. With $Q$ added, the branch carries what is at each place from the first step. In an untrained network, on generated
# scenes: how much of what attention returns differs between the tokens of an image?


# %%
def differing(tokens):
    """Return which share of the squares of tokens `(batch, tokens, dim)` is not in each image's mean."""
    centred = tokens - tokens.mean(1, keepdim=True)
    return (centred.square().sum() / tokens.square().sum()).item()


attend = pocket.blocks[2].attn
scenes = data.load("scenes", "held_out", size=32, limit=8)
returned = {}
with torch.no_grad():
    incoming = pocket.patch_embed(views.View()(scenes.tensor(), torch.Generator()))
    for block in pocket.blocks[:2]:
        incoming = block(incoming)
    for added in (False, True):
        attend.residual_pooling = added
        returned[added] = attend(pocket.blocks[2].norm1(incoming)) - attend.proj.bias
for added, out in returned.items():
    label = "with" if added else "without"
    print(
        f"{label} the queries added: {100 * differing(out):.1f} % differs between tokens"
    )

# %% [markdown]
# **Relative positions, taken apart.** $E$ in (4.1) is a learned vector for how far a key is from its query, multiplied by the query. One vector for every
# offset in the plane would be $(2n-1)^2$ of them; rows and columns apart need $2(2n-1)$:
#
# $$ E_{ij} = q_i \cdot \big(R^{\text{rows}}_{h(i)-h(j)} + R^{\text{columns}}_{w(i)-w(j)}\big). \tag{4.2} $$
#
# Query and key may lie on grids of different fineness; then both are counted on the finer one. For 4 queries and 2 keys along an axis, these are the numbers of the vectors (a row a query, a column a key):

# %%
print(relative_index(4, 2).numpy())
n_side = PLAN[0].side
print(
    f"{n_side} a side: {(2 * n_side - 1) ** 2:,} vectors in the plane, {2 * (2 * n_side - 1)} by rows and columns"
)

# %% [markdown]
# (The paper divides $E$ by $\sqrt d$ as it does $QK^\top$; the published code does not, nor do we.)
#
# **Video.** MViT was made for video, and the image models were got by taking an axis away. With the axis back, patches are cubes, of 3 frames and 7 x 7 pixels, strides 2, 4 and 4, and every pooling kernel is
# 3 x 3 x 3. So an output of the pool mixes 27 tokens from three moments: time and space *are* pooled together, as HUNGER-8 has it. But along time the stride is 1. The frames are mixed and never thinned out: only the cubes
# of the patch embedding reduce their number.

# %%
pool_of_clip = nn.Conv3d(8, 8, 3, stride=(1, 2, 2), padding=1, groups=8, bias=False)
clip = torch.randn(1, 8, 8, 14, 14)  # (batch, channels, moments, rows, columns)
touched = clip.clone()
touched[:, :, 4] += 1.0
moved = (pool_of_clip(touched) - pool_of_clip(clip)).abs().amax((0, 1, 3, 4)) > 1e-6
print(f"{tuple(clip.shape[2:])} tokens become {tuple(pool_of_clip(clip).shape[2:])}")
print(
    f"a change at moment 5 is felt at moments {(torch.nonzero(moved)[:, 0] + 1).tolist()}"
)

# %% [markdown]
# ## 5. Sharp near, in outline far
#
# MViT shows every query all of the image at one sharpness. An eye does otherwise: sharp where it looks, and coarse around, yet it sees the whole scene at once. Focal attention copies that. Take Swin's windows of $w \times w$
# tokens. All queries of a window get the same keys, of three kinds:
#
# - the *window* itself, $w^2$ tokens;
# - a *ring* of $e$ tokens around it, at full sharpness;
# - *pooled windows*: whole windows around, $f \times f$ of them, each summed up to one token by $w^2$ learnt weights (the same for all channels).
#
# $$ Z = \operatorname{softmax}\!\Big(\frac{Q\,[K_f;K_c]^\top}{\sqrt d} + B\Big)\,[V_f;V_c],
#    \qquad \text{keys} = (w+2e)^2 + f^2, \tag{5.1} $$
#
# with $B$ a learned bias for each pair of places, and pooled windows off the map masked away. For Focal-T $w=7$ and $e=3$: the fine region is 13 x 13 tokens. Its coarse keys are *windows*, $f = 7, 5, 3, 1$ in its four stages;
# they are not sampled tokens, and not 32 of them, as one reads. Windows overlap through their rings, so tokens are exchanged everywhere, and nothing needs to be shifted as in Swin.
#
# Pick a query, and see what it sees.

# %% tags=["hide-input"]
FOCAL_T = FocalConfig.tiny()
# Places on the first stage's map of 56 x 56; in later stages the token that covers them.
PLACES = ((28, 28), (24, 16), (30, 43), (3, 30), (0, 0), (52, 55))
KIND_NAMES = ("window", "ring", "ring, listed twice", "ring, other side")


def seen_by(config, stage, query):
    """Return a map of a stage, (side, side): 0 where a query has no fine key, else 1 plus the place in KIND_NAMES."""
    side, window, _ = config.geometry(stage)
    keys = focal_keys(config, stage, query)
    drawn = np.zeros((side, side), int)
    for (r, c), times, wraps in zip(
        keys.fine, keys.counts, keys.wrapped, strict=True
    ):
        own = r // window == query[0] // window and c // window == query[1] // window
        drawn[r, c] = 1 if own and not wraps else 4 if wraps else 1 + times
    return drawn


def fovea(fig, place):
    axes = fig.subplots(2, 2).ravel()
    look = show.look()
    inks = [look.colours[k] for k in (0, 2, 1, 3)]
    for stage, ax in enumerate(axes):
        side, window, _ = FOCAL_T.geometry(stage)
        query = (place[0] >> stage, place[1] >> stage)
        ax.imshow(
            seen_by(FOCAL_T, stage, query),
            cmap=ListedColormap([look.faint, *inks]),
            vmin=-0.5,
            vmax=4.5,
        )
        edges = np.arange(window, side, window) - 0.5
        ends = {"colors": look.ground, "linewidth": 0.8}
        ax.hlines(edges, -0.5, side - 0.5, **ends)
        ax.vlines(edges, -0.5, side - 0.5, **ends)
        keys = focal_keys(FOCAL_T, stage, query)
        on = [w for w, there in zip(keys.pooled, keys.on_map, strict=True) if there]
        middle = np.array(on) * window + (window - 1) / 2
        ax.plot(middle[:, 1], middle[:, 0], "o", ms=5, color=look.ink)
        ax.plot(query[1], query[0], "*", ms=13, color=look.ground, mec=look.ink)
        ax.set(title=f"stage {stage + 1}: {side} x {side}", xticks=[], yticks=[])
        ax.grid(False)
        ax.spines[:].set_visible(False)
    fig.legend(
        handles=[
            Patch(color=c, label=n) for c, n in zip(inks, KIND_NAMES, strict=True)
        ],
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )


show.interact(
    fovea,
    PLACES,
    label="query at",
    text=lambda place: f"row {place[0]}, column {place[1]}",
    alt=lambda place: (
        f"The keys of the token at row {place[0]}, column {place[1]} in the four stages of Focal-T: a window, a ring of three tokens around it, and dots for pooled windows. "
        "At a border part of the ring lies on the opposite side of the map."
    ),
    caption="The keys of one query (star) in each stage of Focal-T: its window, the ring around it, the tokens of the ring that are listed twice, those that are taken from the other side of the image, and the "
    "pooled windows (dots, one key each, those on the map). In the last stage the window is the map.",
    size=(7, 7.6),
)

# %% tags=["hide-input"]
rows_of_stages = []
for stage in range(len(FOCAL_T.dims)):
    side, window, width_of_ring = FOCAL_T.geometry(stage)
    middle_keys = focal_keys(FOCAL_T, stage, (side // 2, side // 2))
    corner_keys = focal_keys(FOCAL_T, stage, (0, 0))
    rows_of_stages.append(
        [
            f"{stage + 1}: {side} x {side}",
            f"{len(middle_keys.fine)}",
            f"{sum(middle_keys.counts)}",
            f"{sum(middle_keys.on_map)}",
            f"{sum(corner_keys.on_map)}",
            f"{sum(corner_keys.wrapped)}",
        ]
    )
show.table(
    rows_of_stages,
    header=[
        "stage",
        "fine",
        "listed",
        "coarse, middle",
        "coarse, corner",
        "wrapped, corner",
    ],
    caption="Keys of a query of Focal-T in the middle of the map and of one in its corner: different fine tokens, fine tokens as listed (some twice, section 6), pooled windows on the map, and fine tokens taken from the other side.",
)

# %% [markdown]
# ## 6. Keys that count twice, and keys from the other side
#
# The drawing has two colours that equation (5.1) does not mention. Both come from how the published code finds the ring: it moves the whole map diagonally by $e$, four times, and keeps of each moved window the part outside the window.
#
# **Twice.** Each of the four parts is an L. Where $2e < w$ the arms of neighbouring L's overlap, and the tokens there are listed twice. What is a key that stands in the softmax twice? Query and key have the same product $s$ both times, and
# the same value $v$; only the biases may differ, $b$ and $c$. Its two terms add up:
#
# $$ e^{s+b}\,v + e^{s+c}\,v \;=\; e^{s}\,\big(e^{b}+e^{c}\big)\,v \;=\; e^{\,s + \log(e^{b} + e^{c})}\,v, \tag{6.1} $$
#
# in the numerator, and without $v$ in the denominator. So it is *one* key with the bias
#
# $$ b \oplus c = \log\big(e^{b} + e^{c}\big), \qquad 0 \oplus 0 = \log 2. \tag{6.2} $$
#
# Nothing is lost by merging the two, and nothing has to be copied. But nothing is neutral either: biases begin near zero, so such a key begins with *twice the weight* of its neighbours. Training can undo it, for a bias of $-\log 2$ on both is
# no key more than another. Which tokens are they?

# %% tags=["hide-input"]


def times_listed(window, expand):
    """Return how often each token of the fine region is listed, (window + 2 expand, window + 2 expand)."""
    span = range(-expand, window + expand)
    listed = [(r, c) for r in range(window) for c in range(window)]
    listed += ring(window, expand)
    return np.array([[listed.count((r, c)) for c in span] for r in span])


def doubled(fig):
    look = show.look()
    for at, (window, expand) in enumerate(((7, 3), (7, 2), (4, 2))):
        ax = fig.add_subplot(1, 3, at + 1)
        times = times_listed(window, expand)
        inner = np.pad(np.ones((window, window), int), expand)
        ax.imshow(
            np.where(inner > 0, 0, times),
            cmap=ListedColormap([look.colours[0], look.colours[2], look.colours[1]]),
            vmin=-0.5,
            vmax=2.5,
        )
        twice = int((times > 1).sum())
        ax.set(
            title=f"window {window}, ring {expand}",
            xlabel=f"{twice} twice",
            xticks=[],
            yticks=[],
        )
        ax.grid(False)
        ax.spines[:].set_visible(False)


show.figure(
    doubled,
    size=(7, 2.9),
    alt="Three fine regions: a window of 7 with a ring of 3 has one token in the middle of each side, in all three layers of the ring, listed twice; with a ring of 2 the double part is three tokens wide; a window of 4 with a ring of 2 has none.",
    caption="Window (blue), ring (green) and tokens of the ring that are listed twice (orange). Left, as in the published models; right, as in our small networks below, where the ring is half a window wide and no token is listed twice.",
)

# %% [markdown]
# We check (6.1) on the network. One attention layer as in Focal-T; the keys of a window in the middle *listed* as the published code lists them, doubles and all; and the layer's own weights, which come from merged keys.

# %%
GLASS = FocalConfig(
    image_size=84,
    patch_size=4,
    classes=10,
    dims=(16,),
    depths=(1,),
    heads=(2,),
    expand=(3,),
    focal_window=(1,),
)
glass = Focal(GLASS).double().eval()
layer = glass.blocks[0].attn
with torch.no_grad():  # biases as they could be after training
    for table in layer.parameters(recurse=False):
        table.normal_()
patches = torch.randn(1, 21 * 21, 16, dtype=torch.float64)


def listed_logits(layer, tokens, side, window_at):
    """Return logits (heads, queries, listed keys) with every key as the published code lists it, and the rows of the keys in `tokens`.

    `window_at` is the (row, column) of the window. Keys beyond the border come from the other side.
    """
    w, heads = layer.window, layer.num_heads
    inside = [(r, c) for r in range(w) for c in range(w)]
    at = inside + ring(w, layer.expand)
    rows = [
        (window_at[0] * w + r) % side * side + (window_at[1] * w + c) % side
        for r, c in at
    ]
    q, k, _ = layer.qkv(tokens[0]).reshape(side * side, 3, heads, -1).unbind(1)
    logits = (
        torch.einsum("qhd,khd->hqk", q[rows[: w * w]], k[rows]) / q.shape[-1] ** 0.5
    )
    fine = layer.relative_position_bias_table[layer.window_index].permute(2, 0, 1)
    logits = logits + torch.cat(
        [fine, layer.relative_position_bias_table_to_neighbors[0]], -1
    )
    return logits, rows


with torch.no_grad():
    logits, listed_rows = listed_logits(layer, patches, 21, (1, 1))
    with hooks.taps(glass, ["attn.0"]) as weights_of:
        layer(patches)
merged = weights_of["attn.0"][4][
    ..., :-1
]  # window (1, 1) of 3 x 3; the last key is the pooled window
merged = merged / merged.sum(-1, keepdim=True)  # among the fine keys alone
listed = logits.softmax(-1)
fine_rows = [r * 21 + c for r, c in focal_keys(GLASS, 0, (7, 7)).fine]
added_up = torch.stack(
    [
        listed[..., np.flatnonzero(np.array(listed_rows) == row)].sum(-1)
        for row in fine_rows
    ],
    -1,
)
print(f"{len(listed_rows)} keys as listed, {len(fine_rows)} merged")
print(
    f"weights of equal places, added up, differ by at most {(added_up - merged).abs().max():.0e}"
)

# %% [markdown]
# `FocalConfig(repeat_keys=False)` counts each token once, as (5.1) says. What it changes in training is *not* tested below: with windows of 4 and a ring of 2 nothing is listed twice, as the right of the figure shows. We shall use that as a control.
#
# **From the other side.** Moving a map round its border brings the far side near. Swin moves its map too, and masks what does not belong together. The published Focal code has no mask: a query at the left border attends, at full
# sharpness, three columns of the *right* border. In a photograph the sky on the left is given to the sky on the right, which may do no harm; a cell that leaves the picture is another matter. The
# derivative of what one corner token returns, by all tokens of the map, shows it:

# %% tags=["hide-input"]
CORNER = FocalConfig(
    image_size=112,
    patch_size=4,
    classes=10,
    dims=(16,),
    depths=(1,),
    heads=(2,),
    expand=(3,),
    focal_window=(3,),
)
corner_block = Focal(CORNER).eval().blocks[0]
leaf = torch.randn(1, 28 * 28, 16, requires_grad=True)
probe = torch.randn(16, generator=torch.Generator().manual_seed(0))
(corner_block.attn(leaf)[0, 0] @ probe).backward()
felt = leaf.grad[0].norm(dim=-1).reshape(28, 28).numpy()
relative = np.log10(np.maximum(felt / felt.max(), 1e-4))


def wrapped(fig):
    ax = fig.add_subplot()
    show.heat(ax, relative, label="log10 of influence", limits=(-4.0, 0.0))
    ax.set(xlabel="column of tokens", ylabel="row of tokens")


show.figure(
    wrapped,
    size=(6, 4.4),
    alt="A map of 28 by 28 tokens: strong influence in the top left window and its ring; equally strong stripes at the right and bottom borders and in the bottom right corner; a weak even influence of the neighbouring windows; none elsewhere.",
    caption="Influence of every token on what the token in the top left corner gets from one untrained layer of Focal attention, as a share of the largest, on a logarithmic scale. Stripes at the right and at the bottom are the ring, "
    "come round the border. The brightest tokens are listed twice. The green squares are tokens that act through a pooled window, each with 1/49 of its weight; the darkest have no influence.",
)

# %% [markdown]
# ## 7. What they cost
#
# Every pair of a query and a key costs $d$ multiply-adds a head for the product, and $d$ for adding the value: over all heads of a block of width $D$,
#
# $$ \text{multiply-adds of attention} = 2 D \cdot \text{queries} \cdot \text{keys a query}. \tag{7.1} $$
#
# So it is enough to count pairs. The keys of a query are all tokens in a ViT, $w^2$ in Swin, $N/s_k^2$ of the incoming grid in MViT, and $(w+2e)^2 + f^2$ in Focal (those off the map are computed and masked).


# %%
def bill(config):
    """Return, for each block of a network, its queries, the keys of each, and its width."""
    if isinstance(config, ViTConfig):
        tokens = config.grid[0] * config.grid[1] + 1  # and the class token
        return [(tokens, tokens, config.dim)] * config.depth
    if isinstance(config, MViTConfig):
        return [(b.queries**2, b.keys**2, b.width) for b in config.plan]
    out = []
    for stage, (dim, depth) in enumerate(
        zip(config.dims, config.depths, strict=True)
    ):
        side = config.image_size // config.patch_size // 2**stage
        window = min(side, config.window)
        keys = window**2
        if isinstance(config, FocalConfig):
            _, _, expand = config.geometry(stage)
            keys = (window + 2 * expand) ** 2 + config.focal_window[stage] ** 2
        out += [(side**2, keys, dim)] * depth
    return out


def multiply_adds(config):
    """Return the multiply-adds of attention by (7.1), all blocks together."""
    return sum(2 * width * queries * keys for queries, keys, width in bill(config))


def counted(network, image):
    """Return the multiply-adds of the two products in attention, as torch counts them."""
    found = []
    for fused in (False, True):  # fused, the two products are no products of matrices
        for block in network.blocks:
            block.attn.fused_attn = fused
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(image)
        found.append(counter.get_flop_counts()["Global"].get(torch.ops.aten.bmm, 0))
    return (found[0] - found[1]) // 2


TOYS = {
    "ViT": ViT(
        ViTConfig(image_size=32, patch_size=4, classes=10, dim=16, depth=2, heads=2)
    ),
    "Swin": Swin(
        SwinConfig(
            image_size=32,
            patch_size=2,
            classes=10,
            window=4,
            dims=(8, 16),
            depths=(2, 2),
            heads=(1, 2),
        )
    ),
    "MViT": MViT(POCKET),
    "Focal": Focal(
        FocalConfig(
            image_size=32,
            patch_size=2,
            classes=10,
            window=4,
            dims=(8, 16),
            depths=(2, 2),
            heads=(1, 2),
            expand=(1, 1),
            focal_window=(3, 1),
        )
    ),
}
for kind, toy in TOYS.items():
    print(
        f"{kind:6} {multiply_adds(toy.config):>9,} by (7.1), {counted(toy.eval(), torch.zeros(1, 3, 32, 32)):>9,} counted"
    )

# %% [markdown]
# Now the published sizes, by the formula, at 224 pixels and at two larger ones.

# %% tags=["hide-input"]
BIG = {
    "ViT-S/16": lambda side: ViTConfig(
        image_size=side, patch_size=16, dim=384, depth=12, heads=6
    ),
    "Swin-T": lambda side: SwinConfig.tiny(image_size=side),
    "MViTv2-T": lambda side: MViTConfig.v2_tiny(image_size=side),
    "Focal-T": lambda side: FocalConfig.tiny(image_size=side),
}
SIDES = (224, 448, 896)
bills = {
    kind: [multiply_adds(make(side)) for side in SIDES] for kind, make in BIG.items()
}
pairs_of = {
    kind: sum(q * k for q, k, _ in bill(make(224))) for kind, make in BIG.items()
}


def grown(fig):
    ax = fig.add_subplot()
    for kind, amounts in bills.items():
        show.lines(ax, SIDES, np.array(amounts) / 1e9, label=kind, markers=True)
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="image side (pixels)",
        ylabel="multiply-adds (billions)",
    )
    ax.set_xticks(SIDES, [f"{side}" for side in SIDES])
    ax.minorticks_off()


show.figure(
    grown,
    size=(7, 3.8),
    alt="Multiply-adds of attention against image side on logarithmic axes for four networks: two lines rise more steeply than the other two.",
    caption="Multiply-adds of attention alone (7.1). ViT and MViT rise with the fourth power of the side: pooled keys divide the square of the number of tokens and leave it a square. Swin and Focal rise with the second power (Focal a little faster, since its last stage gains a ring once the map is larger than a window).",
)

# %% tags=["hide-input"]
show.table(
    [
        [
            kind,
            f"{pairs_of[kind] / 1e6:.2f} M",
            f"{amounts[0] / 1e9:.2f}",
            f"{amounts[2] / amounts[0]:.0f}×",
        ]
        for kind, amounts in bills.items()
    ],
    header=["network", "pairs, all blocks", "billion multiply-adds", "at 896 px"],
    caption="Pairs of query and key, and multiply-adds of attention, at 224 x 224 pixels; and by how much the latter grow at four times the side.",
)

# %% tags=["hide-input"]
in_focal = sum(keys for _, keys, _ in bill(FOCAL_T)[:1]) / 49
show.say(
    f"Focal-T spends {bills['Focal-T'][0] / bills['Swin-T'][0]:.1f} times the multiply-adds of Swin-T on attention, and MViTv2-T {bills['MViTv2-T'][0] / bills['Swin-T'][0]:.1f} times. "
    f"Were its keys not pooled, MViTv2-T would spend {multiply_adds(MViTConfig.v2_tiny(kv_strides=(1, 1, 1, 1))) / bills['MViTv2-T'][0]:.0f} times as much. The pyramids begin with patches of 4 pixels, {(224 // 4) ** 2 // (224 // 16) ** 2} times as many tokens as ViT-S/16 has, "
    f"and pooling is what lets them. But a multiply-add is not a second. For a window of 49 queries Focal's first stage must gather "
    f"{bill(FOCAL_T)[0][1]} keys and as many values, {in_focal:.1f} for each token, where Swin gathers one: memory is moved to save arithmetic. Section 10 has what that costs in time, as published."
)

# %% [markdown]
# ## 8. What to pool with, and whether
#
# Five small MViTs, each trained on the same images in the same order, with the same number of steps. They differ in one field each from the first.
#
# | arm | what differs |
# |---|---|
# | conv | nothing: version 2 with learnt pooling, key strides 4, 2, 1 |
# | max | queries, keys and values pooled by the maximum, no norm after it |
# | avg | the same by the mean |
# | unpooled | key strides 1, 1, 1: keys and values still pass a convolution of 3 x 3, but none is dropped |
# | no-residual | the queries are not added to what attention returns |
#
# Two cautions before the result. In version 2 *every* block pools its queries, keys and values with a kernel of 3, also where the stride is 1. So `max` and `avg` blur in every block, where the paper's best maximum had a kernel
# one wider than its stride and left stride 1 alone. And `unpooled` tells what the *stride* costs, not what the convolution brings. The focal arms in the cell below belong to section 9.

# %%
CLASSES = lab.choose(smoke=4, laptop=10, paper=100)
STEPS = lab.choose(smoke=8, laptop=800, paper=20_000)
BATCH = lab.choose(smoke=16, laptop=32, paper=256)
SEEDS = lab.choose(smoke=3, laptop=3, paper=5)
DIMS = lab.choose(smoke=(8, 16, 24), laptop=(24, 48, 96), paper=(64, 128, 256))
DEPTHS = lab.choose(smoke=(1, 1, 1), laptop=(2, 2, 2), paper=(2, 4, 2))


# %%
SMALL = dict(image_size=32, classes=CLASSES, dims=DIMS, heads=(1, 2, 4))  # noqa: C408
POOLED = dict(  # noqa: C408
    patch_kernel=3,
    patch_stride=2,
    depths=lab.choose(smoke=(1, 1, 1), laptop=(1, 2, 2), paper=(1, 2, 6)),
)
FOCUSED = dict(patch_size=2, window=4, depths=DEPTHS)  # noqa: C408
ARMS = {
    "conv": lambda: MViT(MViTConfig(**SMALL, **POOLED, kv_strides=(4, 2, 1))),
    "max": lambda: MViT(
        MViTConfig(**SMALL, **POOLED, kv_strides=(4, 2, 1), pool="max")
    ),
    "avg": lambda: MViT(
        MViTConfig(**SMALL, **POOLED, kv_strides=(4, 2, 1), pool="avg")
    ),
    "unpooled": lambda: MViT(MViTConfig(**SMALL, **POOLED, kv_strides=(1, 1, 1))),
    "no-residual": lambda: MViT(
        MViTConfig(**SMALL, **POOLED, kv_strides=(4, 2, 1), residual_pooling=False)
    ),
    "focal": lambda: Focal(
        FocalConfig(**SMALL, **FOCUSED, expand=(2, 2, 2), focal_window=(5, 3, 1))
    ),
    "focal-textbook": lambda: Focal(
        FocalConfig(
            **SMALL,
            **FOCUSED,
            expand=(2, 2, 2),
            focal_window=(5, 3, 1),
            repeat_keys=False,
        )
    ),
    "focal-no-ring": lambda: Focal(
        FocalConfig(**SMALL, **FOCUSED, expand=(0, 0, 0), focal_window=(5, 3, 1))
    ),
    "focal-near": lambda: Focal(
        FocalConfig(**SMALL, **FOCUSED, expand=(2, 2, 2), focal_window=(1, 1, 1))
    ),
    "focal-window": lambda: Focal(
        FocalConfig(**SMALL, **FOCUSED, expand=(0, 0, 0), focal_window=(1, 1, 1))
    ),
}


# %% [markdown]
# The training is the course's own loop, on images shifted by up to four pixels and mirrored.


# %%
def pictures(source, split):
    """Return the images of some classes, evenly from all, at 32 px."""
    full = data.load(
        lab.choose(smoke="scenes", laptop=source, paper=source),
        split,
        size=32,
        limit=lab.choose(smoke=200, laptop=None, paper=None),
    )
    return some_classes(full, CLASSES)


def seen(images):
    """Return images as a network sees them outside training, (N, 3, 32, 32)."""
    return views.View()(images.tensor(), torch.Generator())


def learn(model, few, held_out, seed, name, rate=1e-3, steps=STEPS):
    """Train a network on images shifted and mirrored; return which held-out images it gets right."""
    train.fit(
        model,
        feeds.InMemory(few, BATCH, views.View(views.Shift(4), views.Flip()), seed),
        train.supervised(len(few.classes)),
        train.Recipe(
            steps, BATCH, lr=rate, weight_decay=0.05, warmup=steps // 20, seed=seed
        ),
        checkpoint=lab.checkpoint(name),
    )
    return train.predict(model, seen(held_out)).argmax(1).numpy() == held_out.labels


def compared(seed, source, arms):
    """Train each network on the same images in the same order."""
    few = share(pictures(source, "train"), 1.0, seed)
    held_out = pictures(source, "held_out")
    right = []
    for arm in arms:
        lab.seed_everything(seed)
        right.append(learn(ARMS[arm](), few, held_out, seed, arm))
    return {"right": np.stack(right), "answers": held_out.labels}


# %%
pooled = lab.record(
    "mvit_pooling",
    compared,
    seeds=SEEDS,
    source="cifar100",
    arms=tuple(arm for arm in ARMS if not arm.startswith("focal")),
    rank=1,
    minutes=lab.choose(smoke=0.2, laptop=8, paper=60),
)
pooled

# %% tags=["hide-input"]
POOL_ARMS = [k for k in ARMS if not k.startswith("focal")]
FOCAL_ARMS = [k for k in ARMS if k.startswith("focal")]
# (seeds, images, arms), in points: 100 where an image is right
pool_hits = np.moveaxis(100.0 * pooled["right"], 1, -1)
pool_levels = dict(zip(POOL_ARMS, apart(surely(pool_hits)), strict=True))


def gained(hits, names, first, second):
    """Return how many points one arm is ahead of another on the same images, with its interval."""
    return surely(hits[..., names.index(first)] - hits[..., names.index(second)])


POOL_PAIRS = (
    ("conv", "max"),
    ("max", "avg"),
    ("conv", "avg"),
    ("conv", "unpooled"),
    ("conv", "no-residual"),
)
pool_gains = {two: gained(pool_hits, POOL_ARMS, *two) for two in POOL_PAIRS}


def dots(gains):
    """Return a drawing of differences with their intervals, one a row."""

    def draw(fig):
        ax = fig.add_subplot()
        look = show.look()
        for at, interval in enumerate(gains.values()):
            ax.plot(
                [interval.low, interval.high],
                [-at, -at],
                color=look.colours[0],
                lw=3,
                solid_capstyle="butt",
            )
            ax.plot(interval.mean, -at, "o", ms=8, color=look.colours[0])
        ax.axvline(0, color=look.muted, lw=1.4, ls=(0, (4, 2.5)))
        ax.set(
            yticks=[-at for at in range(len(gains))],
            yticklabels=list(gains)
            if isinstance(next(iter(gains)), str)
            else [" minus ".join(two) for two in gains],
            xlabel="difference of accuracy (points)",
            ylim=(0.6 - len(gains), 0.6),
        )

    return draw


show.figure(
    dots(pool_gains),
    size=(7, 3.2),
    alt="Differences of accuracy between arms of the pooling experiment, each a dot with a bar for its interval, and a dashed line at zero.",
    caption=f"Paired differences between MViTs on {pool_hits.shape[1]:,} new images, with 95 % intervals over {len(pooled.seeds)} seeds and the images. A bar that does not touch the dashed line is a decided difference.",
)

# %% tags=["hide-input"]


def priced(kind):
    """Return an arm's parameters, and the multiply-adds of its attention."""
    built = ARMS[kind]()
    return sum(p.numel() for p in built.parameters()), multiply_adds(built.config)


prices = {kind: priced(kind) for kind in ARMS}


def levels_table(levels, caption):
    """Show accuracy and price of arms, one a row."""
    return show.table(
        [
            [
                kind.removeprefix("focal-") if kind != "focal" else kind,
                told(level, plus=""),
                f"{prices[kind][0]:,}",
                f"{prices[kind][1] / 1e6:.2f} M",
            ]
            for kind, level in levels.items()
        ],
        header=["arm", "accuracy, %", "parameters", "attention, multiply-adds"],
        caption=caption,
    )


CHANCE = 100 / CLASSES
levels_table(
    pool_levels,
    f"MViTs on new images, {CLASSES} classes, chance {CHANCE:.0f} %, after {STEPS:,} steps of {BATCH} images; 95 % intervals over seeds and images.",
)

# %% tags=["hide-input"]
AHEAD = {
    1: "decidedly ahead of",
    0: "not decidedly apart from",
    -1: "decidedly behind",
}
widest = max((g.high - g.low) / 2 for g in pool_gains.values())
residual = pool_gains["conv", "no-residual"]
price = pool_gains["conv", "unpooled"]
show.say(
    f"The convolution is {AHEAD[sign(pool_gains['conv', 'max'])]} the maximum ({told(pool_gains['conv', 'max'])} points), and the maximum "
    f"{AHEAD[sign(pool_gains['max', 'avg'])]} the mean ({told(pool_gains['max', 'avg'])}). Pooling keys and values with a stride changes accuracy by {told(price)} points and cuts the multiply-adds of attention to "
    f"{100 * prices['conv'][1] / prices['unpooled'][1]:.0f} %. Adding the queries is worth {told(residual)}. Half the widest of these intervals is {widest:.1f} points: smaller differences than about that we cannot tell from none. They are {len(pool_gains)} intervals, not corrected for being several."
)

# %% [markdown]
# ## 9. Fovea, periphery, both, neither
#
# A Focal network has two parts that a bare window lacks: the ring and the coarse keys. Two parts, each there or not, make four networks, and that is a *2 x 2 design*. It answers three questions: what is the ring worth, what are the coarse keys worth,
# and does the one make the other superfluous? With $a$ for accuracy,
#
# $$ \text{interaction} = \big(a_{\text{both}} - a_{\text{coarse}}\big) - \big(a_{\text{ring}} - a_{\text{neither}}\big): \tag{9.1} $$
#
# what the ring adds where there are coarse keys, minus what it adds where there are none. Negative: each does part of the other's work. Positive: they need each other.
#
# | arm | coarse keys | the own window's only |
# |---|---|---|
# | **ring** | focal | focal-near |
# | **no ring** | focal-no-ring | focal-window |
#
# "Neither" is a window with one coarse key, its own. The fifth arm, `focal-textbook`, counts every token of the ring once.

# %% tags=["hide-input"]
SETTING = ARMS["focal"]().config
stages_here = [
    focal_keys(SETTING, stage, (0, 0)) for stage in range(len(SETTING.dims))
]
same_keys = all(max(keys.counts) == 1 for keys in stages_here)
whole_map = [
    stage + 1
    for stage, keys in enumerate(stages_here)
    if len(set(keys.fine)) == SETTING.geometry(stage)[0] ** 2
    and SETTING.geometry(stage)[2]
]
show.say(
    "What these networks can show is limited by their size, and it is better to know that before the result. Their maps are "
    + ", ".join(
        f"{SETTING.geometry(stage)[0]} x {SETTING.geometry(stage)[0]}"
        for stage in range(len(SETTING.dims))
    )
    + f" tokens, with windows of {SETTING.window} and a ring of {SETTING.expand[0]}. "
    + (
        f"In stage {', '.join(map(str, whole_map))} window and ring, come round the border, hold every token of the map once: there the ring alone makes attention global, and coarse keys can bring it no new place. "
        if whole_map
        else ""
    )
    + (
        "No token is listed twice in any stage. So `focal` and `focal-textbook` are one and the same architecture, with the random biases of the ring in another order: whatever difference they show is a difference from nothing."
        if same_keys
        else "Some tokens are listed twice, so `focal-textbook` is an architecture of its own."
    )
)

# %%
focused = lab.record(
    "focal_keys",
    compared,
    seeds=SEEDS,
    source="cifar100",
    arms=tuple(arm for arm in ARMS if arm.startswith("focal")),
    rank=2,
    minutes=lab.choose(smoke=0.2, laptop=10, paper=60),
)
focused

# %% tags=["hide-input"]
focal_hits = np.moveaxis(100.0 * focused["right"], 1, -1)
focal_levels = dict(zip(FOCAL_ARMS, apart(surely(focal_hits)), strict=True))
by_arm = {kind: focal_hits[..., at] for at, kind in enumerate(FOCAL_ARMS)}
FOCAL_GAINS = {
    "ring, with coarse": surely(by_arm["focal"] - by_arm["focal-no-ring"]),
    "ring, without": surely(by_arm["focal-near"] - by_arm["focal-window"]),
    "coarse, with ring": surely(by_arm["focal"] - by_arm["focal-near"]),
    "coarse, without": surely(by_arm["focal-no-ring"] - by_arm["focal-window"]),
    "both": surely(by_arm["focal"] - by_arm["focal-window"]),
    "nothing (textbook)": surely(by_arm["focal-textbook"] - by_arm["focal"]),
}
together = surely(
    (by_arm["focal"] - by_arm["focal-no-ring"])
    - (by_arm["focal-near"] - by_arm["focal-window"])
)
show.figure(
    dots(FOCAL_GAINS),
    size=(7, 3.6),
    alt="What the ring and the coarse keys add to a Focal network, with and without each other, both together, and the control, each a dot with a bar for its interval.",
    caption=f"What the parts of focal attention add, in points on the same {focal_hits.shape[1]:,} new images, with 95 % intervals over {len(focused.seeds)} seeds and the images. The last row is the control.",
)

# %% tags=["hide-input"]
levels_table(
    focal_levels,
    f"Focal networks on new images, {CLASSES} classes, chance {CHANCE:.0f} %; 95 % intervals over seeds and images. The names leave `focal-` out.",
)

# %% tags=["hide-input"]
control = FOCAL_GAINS["nothing (textbook)"]
show.say(
    f"The ring adds {told(FOCAL_GAINS['ring, with coarse'])} points where there are coarse keys and {told(FOCAL_GAINS['ring, without'])} where there are none; coarse keys add "
    f"{told(FOCAL_GAINS['coarse, with ring'])} beside the ring and {told(FOCAL_GAINS['coarse, without'])} without it. The interaction (9.1) is {told(together)}: "
    + {
        1: "the parts need each other.",
        0: "whether one makes the other superfluous is not decided.",
        -1: "each does part of the other's work.",
    }[sign(together)]
    + (
        f" The control shows {told(control)}: "
        + (
            "a difference from nothing that our intervals call decided. They are then too narrow, and no difference of this size elsewhere in this section should be believed."
            if sign(control)
            else "nothing, as it should."
        )
        if same_keys
        else ""
    )
)

# %% tags=["hide-input"]


def on_which_two_differ(hits):
    """Return on how many of 100 images one of two arms is right and the other not, for any two: least, mean, most."""
    pairs = [(i, j) for i in range(hits.shape[-1]) for j in range(i)]
    shares = [(hits[..., i] != hits[..., j]).mean() for i, j in pairs]
    return 100 * min(shares), 100 * np.mean(shares), 100 * max(shares)


focal_apart = on_which_two_differ(focal_hits)
SAME_START = [POOL_ARMS.index(arm) for arm in ("conv", "unpooled", "no-residual")]
pool_apart = on_which_two_differ(pool_hits[..., SAME_START])
show.say(
    "Means can agree by chance where networks do not. Do these? The arms of a seed begin with the same weights, where they have the same, and see the same images in the same order. Of 100 new images "
    f"one of two arms is right and the other wrong on {focal_apart[0]:.1f} to {focal_apart[2]:.1f}, {focal_apart[1]:.1f} on average over any two. Of the MViTs of section 8 it is {pool_apart[0]:.1f} to {pool_apart[2]:.1f}, {pool_apart[1]:.1f} on average, "
    "between those three that begin alike (without a convolution to draw, maximum and mean begin with other weights, and are left out). "
    f"So what a Focal network is allowed to look at has changed {focal_apart[1] / pool_apart[1]:.1f} times as many of its answers as pooling has of an MViT's. Where answers hardly differ, *the parts did not help* and *the parts did not get to work* look the same. "
    "The rate is one of the conditions: it was not sought here, and where it was, in the chapter on trade-offs, a Focal network did a little better at three times this rate."
)

# %% [markdown]
# ## 10. What the published numbers say
#
# Ours are small networks on few images. These are the authors' own, on ImageNet-1k at 224 pixels, from scratch, unless the table says otherwise.
#
# | what | published | source |
# |---|---|---|
# | MViT-B, Kinetics-400, pooled by mean / maximum / convolution | 75.4 / 77.2 / 1.2 above the maximum | [Fan et al., 2021](https://arxiv.org/abs/2104.11227), their table 15 |
# | MViT-B-16, convolution | 83.0 %, 37.0 M parameters, 7.8 G | [Fan et al., 2021](https://arxiv.org/abs/2104.11227), their table 17 |
# | MViTv2-T | 82.3 %, 24 M, 4.7 G | [Li et al., 2022](https://arxiv.org/abs/2112.01526) |
# | Focal-T | 82.2 %, 28.9 M, 4.9 G | [Yang et al., 2021](https://arxiv.org/abs/2107.00641) |
# | Swin-T | 81.3 %, 28 M, 4.5 G | [Liu et al., 2021](https://arxiv.org/abs/2103.14030) |
#
# The first row is one experiment and can be read across. The others differ in recipes, and a point between two rows may be recipe. Kinetics is a set of videos with 400 actions.
#
# **Time.** Focal-T needs about the multiply-adds of Swin-T. In the table of [its authors' repository](https://github.com/microsoft/Focal-Transformer) it handles 319 images a second, and they add there that its speed lags behind its
# arithmetic, because of rolling and unfolding the map. Their later paper prints 319 beside 760 for Swin-T ([Yang et al., 2022](https://arxiv.org/abs/2203.11926)): the same arithmetic, to within a tenth, at 2.4 times the time. Its answer is to give attention up altogether. Time on our own machines is
# measured for all methods side by side in the chapter on trade-offs.
#
# **Which shelf?** Remedies are often sorted into those that save and those that add a bias. Neither of our two stands on one shelf: MViT is a pyramid *and* pools its keys, Focal is a pyramid *and* widens its
# windows. A pyramid is a bias; pooled keys are a saving; a convolution in the pool is a bias again. What a method costs and what it needs in data are different questions: the bill of section 7 answers the first,
# sections 8 and 9 a little of the second.
#
# ## 11. What was claimed, what we measured

# %% tags=["hide-input"]
HERE = f"{len(pooled.seeds)} seeds at scale {pooled.scale}. "
MARGIN = 2.0
every_query = sum(b.q_stride > 1 for b in PLAN)
show.verdict(
    claim="HUNGER-8: MViT attends pooled keys and values, which makes attention cheap and the network a pyramid; in video, time and space are pooled together.",
    source="a blog post on ViTs' data hunger, after [Fan et al., 2021](https://arxiv.org/abs/2104.11227)",
    verdict=("holds in part" if every_query else "holds")
    if price.low > -MARGIN
    else "fails"
    if price.high < -MARGIN
    else "undecided",
    measured=HERE
    + f"Pooled keys and values: so they are, in every block. The pyramid does not come from them: it comes from pooled queries, in {every_query} blocks of MViTv2-T, which the claim leaves out. Cheap: with strides the attention of our MViT takes "
    f"{100 * prices['conv'][1] / prices['unpooled'][1]:.0f} % of the multiply-adds, at a difference of accuracy of {told(price)} points. In video the kernels mix time and space; time is not thinned out.",
    would_change=f"A loss of more than {MARGIN:.0f} points through the stride (our line, drawn beforehand), with an interval that excludes less. We did not train on video, nor compare with a network without a pyramid.",
)

# %% tags=["hide-input"]
FED = FOCAL_GAINS["both"]
irregular = any(n > 1 for n in focal_keys(FOCAL_T, 0, (0, 0)).counts)
show.verdict(
    claim="HUNGER-9: fine neighbours and coarse summaries in one softmax, fovea and periphery, feed a window what it lacks.",
    source="a blog post on ViTs' data hunger, after [Yang et al., 2021](https://arxiv.org/abs/2107.00641)",
    verdict=("holds in part" if irregular else "holds")
    if sign(FED) > 0
    else "fails"
    if sign(FED) < 0
    else "undecided",
    measured=f"{len(focused.seeds)} seeds at scale {focused.scale}. The formula is the network's, with two additions that it does not show: in Focal-T a query counts {sum(n > 1 for n in focal_keys(FOCAL_T, 0, (0, 0)).counts)} of its {len(focal_keys(FOCAL_T, 0, (0, 0)).fine)} fine keys twice, and in the corner takes "
    f"{sum(focal_keys(FOCAL_T, 0, (0, 0)).wrapped)} of them from the other side of the image. Ring and coarse keys together add {told(FED)} points to a bare window.",
    would_change="The same with a mask at the border and every key once, at a size where the two differ from what is published; and with a window that shifts in place of the bare one, for a shift feeds a window too.",
)

# %% tags=["hide-input"]
better = [sign(pool_gains[two]) for two in POOL_PAIRS[:3]]
show.verdict(
    claim="LIT-40: pooling by a learnt convolution beats the maximum, and the maximum beats the mean.",
    source="[Fan et al., 2021](https://arxiv.org/abs/2104.11227), table 15, on Kinetics-400",
    verdict="holds"
    if better[0] > 0 and better[1] > 0
    else "holds in part"
    if any(b > 0 for b in better)
    else "fails"
    if any(b < 0 for b in better)
    else "undecided",
    measured=HERE
    + f"Convolution minus maximum: {told(pool_gains['conv', 'max'])} points; maximum minus mean: {told(pool_gains['max', 'avg'])}; convolution minus mean: {told(pool_gains['conv', 'avg'])}.",
    would_change="A norm after maximum and mean, which the convolution alone has; and a maximum that leaves stride 1 alone, the paper's best. Each is one run of the same size.",
)

# %% tags=["hide-input"]
show.verdict(
    claim="LIT-41: adding the pooled queries to what attention returns helps.",
    source="[Li et al., 2022](https://arxiv.org/abs/2112.01526), on ImageNet and COCO",
    verdict={1: "holds", 0: "undecided", -1: "fails"}[sign(residual)],
    measured=HERE
    + f"With minus without: {told(residual)} points. Before training, what attention returns differs between tokens by {100 * differing(returned[True]):.0f} % of its squares with the queries and {100 * differing(returned[False]):.0f} % without, in a layer of an untrained network.",
    would_change="More seeds, if the interval still holds zero; or a longer run, since what the queries bring at the start may be learnt later without them.",
)

# %% tags=["hide-input"]
over = [
    sign(FOCAL_GAINS["ring, with coarse"]),
    sign(FOCAL_GAINS["coarse, with ring"]),
]
show.verdict(
    claim="LIT-42: fine keys around the window and coarse keys beyond it are better together than either alone.",
    source="[Yang et al., 2021](https://arxiv.org/abs/2107.00641)",
    verdict="holds"
    if all(o > 0 for o in over)
    else "holds in part"
    if any(o > 0 for o in over)
    else "fails"
    if any(o < 0 for o in over)
    else "undecided",
    measured=f"{len(focused.seeds)} seeds at scale {focused.scale}. Both minus coarse alone: {told(FOCAL_GAINS['ring, with coarse'])} points; both minus ring alone: {told(FOCAL_GAINS['coarse, with ring'])}; interaction {told(together)}."
    + (
        f" The control, a difference of nothing, shows {told(control)}."
        if same_keys
        else ""
    ),
    would_change="Larger maps: on ours a ring reaches most of the map by itself, so coarse keys have little left to show. Images of 64 pixels with the same windows would give them room.",
)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: The keys of a window
#
# A map has `windows` x `windows` windows of `window` x `window` tokens. Write a function that returns two numbers for the window at (`row`, `column`), counted from 0: its different fine keys with a ring of `expand`, and its pooled windows that lie on the map,
# of the `focal_window` x `focal_window` about it. The ring comes round the border; where the map is one window there is none.

# %%


def keys_of_window(window, expand, focal_window, windows, row, column): ...


check.keys_of_window(keys_of_window)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def keys_of_window(window, expand, focal_window, windows, row, column):
#     fine = (window + 2 * expand) ** 2 if windows > 1 else window**2
#     reach = focal_window // 2
#
#     def on_map(at):
#         return min(at + reach, windows - 1) - max(at - reach, 0) + 1
#
#     return fine, on_map(row) * on_map(column)
#
#
# check.keys_of_window(keys_of_window)
# ```
#
# Round the border no token is met twice, for the ring is at most half a window wide and two windows leave it room. With two windows of 4 an axis and a ring of 2
# it just fits: the fine keys are all 64 tokens, as in the second stage of our networks in section 9.
#
# </details>
#
# ### Exercise 2: The grids of keys
#
# Write a function that returns the side of the grid of keys for every block, given the side of the first stage's grid, the stride of its keys, and the depth of each stage. Strides are halved from stage to stage, down to 1; the first block of a later stage
# gets the larger grid of the stage before, and halves it by its queries.

# %%


def key_sides(side, stride, depths): ...


check.key_sides(key_sides)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def key_sides(side, stride, depths):
#     out = []
#     for stage, depth in enumerate(depths):
#         for block in range(depth):
#             out.append(side // stride)
#             if stage and block == 0:
#                 side //= 2
#         stride = max(1, stride // 2)
#     return out
#
#
# check.key_sides(key_sides)
# ```
#
# Only the first block of a stage departs from (3.1). It is also the only one with more keys than queries, once strides are 1: a few tokens that each look at a finer grid than their own.
#
# </details>
#
# ### Exercise 3: Merge what is listed twice
#
# Keys are listed with repetition: `place` (listed,) says at which of the places 0, 1, ... each one stands, and `bias` (queries, listed) what is added to its logit. Return the bias (queries, places) with which each place, listed once, gets the weight
# that it has now. All of it with torch, for any number of repetitions.

# %%


def merge_biases(place, bias): ...


check.merge_biases(merge_biases)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def merge_biases(place, bias):
#     places = range(int(place.max()) + 1)
#     return torch.stack([bias[:, place == p].logsumexp(1) for p in places], dim=1)
#
#
# check.merge_biases(merge_biases)
# ```
#
# This is (6.2) for many terms. `logsumexp` subtracts the largest before it takes exponentials, so that large biases do not overflow. A place with $m$ equal biases $b$ gets $b + \log m$: a count is a bias. That is why a token that stands for many
# (a pooled window, say) can be given its due by a bias alone.
#
# </details>
#
# ## For the seminar
#
# > **Seminar.** A pooled window stands for 49 tokens and enters the softmax as one key. Should it count as 49, by a bias of $\log 49$? Argue for both. What would a trained network need to do to get from one to the other, and what happens at a border, where it has fewer
# > neighbours? Then the same question for MViT's pooled keys: why has nobody asked it there?
#
# ## Further reading
#
# - [Fan et al., 2021](https://arxiv.org/abs/2104.11227): MViT, for video first; its ablations are the most careful of the two papers.
# - [Li et al., 2022](https://arxiv.org/abs/2112.01526): version 2, which also sets pooling attention against windows in detection.
# - [Yang et al., 2021](https://arxiv.org/abs/2107.00641): focal attention, with three levels of sharpness in the text and two in the published models.
# - [Yang et al., 2022](https://arxiv.org/abs/2203.11926): the same authors a year later, with the coarse summaries kept and attention given up.
# - [Liu et al., 2021](https://arxiv.org/abs/2103.14030) and [Wang et al., 2021](https://arxiv.org/abs/2102.12122): Swin and PVT, between which these two stand.
