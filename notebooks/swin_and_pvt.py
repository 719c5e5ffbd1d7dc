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
# # Fewer pairs: Swin and PVT
#
# Attention compares every token with every other. Two roads lead to fewer pairs: let a token meet only its neighbours (Swin), or let it meet everything through fewer, blurred keys (PVT).
# Both are presented as cures for the data hunger of Vision Transformers. Both are, first of all, about cost. This chapter derives what each costs and checks the formulas against a counter, then against the clock and the memory, up to images of 896 pixels.
# It proves how far a token sees, and asks a gradient whether the proof is right. And it takes away Swin's shift and its position bias, one at a time, and trains what is left.
#
# **After it you can**
#
# - derive the multiply-adds of a ViT, a Swin and a PVT, and say which term matters at which image size,
# - draw a shifted window, its mask and its relative position bias, and say what each is for,
# - tell a cost that is linear from one that only looks so, by an exponent and its range,
# - find the receptive field of a stack of windows, and the block from which every token sees the whole image.
#
# **It assumes** [The Vision Transformer](vision_transformer.ipynb): attention, blocks, receptive fields. [Hungry for data?](data_hunger.ipynb) helps for sections 8 and 9.
#
# **It takes** an hour to read. Run as it stands (scale `laptop`) it loads two recorded experiments and computes the rest in about a minute on two cores; at scale `smoke` every cell runs in under a minute, on generated
# images. What recording costs is printed where a record is shown. Scale `paper` (all 100 classes, 20,000 steps) is about five hours on one modern GPU, by estimate: [Running at full scale](../book/scale.md) says how.

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
import inspect
import math
import textwrap

import numpy as np
import torch
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle
from torch.utils.flop_counter import FlopCounterMode

from vitlab import check, data, hooks, lab, show, train
from vitlab.analysis import equivariance, receptive, statistics
from vitlab.analysis.memory import peak_bytes
from vitlab.analysis.statistics import apart, sign
from vitlab.analysis.statistics import crossed_interval as surely
from vitlab.data import feeds, views
from vitlab.data.few import share, some_classes
from vitlab.models.pvt import PVT, Attention, PVTConfig, as_map, as_tokens
from vitlab.models.pvt_v2 import PVTv2, PVTv2Config
from vitlab.models.swin import (
    Block,
    Swin,
    SwinConfig,
    relative_position_index,
    shift_mask,
    window_partition,
)
from vitlab.models.vit import ViT, ViTConfig
from vitlab.show import told

lab.start(seed=0)

# %% [markdown]
# ## On trial
#
# (The codes are those of the [ledger of claims](../book/claims.md).)
#
# > **Claim.** HUNGER-4. Swin attends inside windows of 7 x 7 tokens, which costs $O(n w^2)$ in place of $O(n^2)$; shifting the windows by
# > $\lfloor w/2 \rfloor$ in every second layer lets the receptive field grow with depth
# > ([Liu et al., 2021](https://arxiv.org/abs/2103.14030)).
#
# > **Claim.** HUNGER-5. PVT shrinks keys and values by a convolution of stride $R$, with $R = 8, 4, 2, 1$ from stage to stage; queries keep full
# > resolution and attention stays global ([Wang et al., 2021](https://arxiv.org/abs/2102.12122)).
#
# > **Claim.** LIT-20. Shifting the windows makes Swin more accurate (the same paper, table 4).
#
# > **Claim.** LIT-21. So does the relative position bias (the same table).
#
# > **Claim.** LIT-22. The cost of Swin grows linearly with the size of the image (the same paper).
#
# > **Claim.** LIT-23. PVT's attention is $R^2$ times cheaper than full attention, so that it can take larger maps
# > ([Wang et al., 2021](https://arxiv.org/abs/2102.12122), section 3.3).
#
# > **Claim.** LIT-24. With pooling to a fixed size the cost of PVT's second version is linear
# > ([Wang et al., 2022](https://arxiv.org/abs/2106.13797)).
#
# Claims of cost can be counted, and then timed: if a cost is linear in the number of pixels, four times the pixels cost four times the time. Claims of reach can be
# proved, and the proof put to a gradient. Claims of accuracy need training. The three must not be mixed: **a cheaper attention is not yet a
# less hungry one.** What could make a method look linear that is not? A range of sizes in which something else costs more. So we
# first ask where the costs are.
#
# ## 1. Where the pairs are
#
# A block of a ViT has $N$ tokens of width $D$. Count its multiplications, each with its addition. Queries, keys, values and the output map are four matrices of $D \times D$ applied to
# $N$ tokens. The MLP goes from $D$ to $4D$ and back. Between them, each of $N$ queries meets each of $N$ keys in a product of length $D$ (over all heads together), and the weights
# then mix $N$ values of length $D$:
#
# $$ \underbrace{4ND^2}_{\text{four maps}} \;+\; \underbrace{8ND^2}_{\text{MLP}} \;+\; \underbrace{2N^2D}_{\text{pairs}} . \tag{1.1} $$
#
# Only the last term is quadratic in $N$; it is *the attention map*, what everyone means when they say that attention is quadratic. Its share of a block is
#
# $$ \frac{2N^2D}{12ND^2 + 2N^2D} \;=\; \frac{N}{N + 6D} . \tag{1.2} $$
#
# The pairs cost as much as all the rest when $N = 6D$. A ViT-S has $D = 384$, so this takes 2,304 tokens: with patches of 16 pixels, an image of 768 x 768.

# %% tags=["hide-input"]
PX = (224, 448, 672, 896)


def pair_share(n, d):
    """Return the share (1.2) of the attention map in a block's multiply-adds, for n tokens of width d."""
    return n / (n + 6 * d)


def small_share(fig):
    ax = fig.add_subplot()
    px = np.linspace(64, 1280, 200)
    for number, (patch, name) in enumerate(((16, "patch 16"), (8, "patch 8"))):
        show.lines(
            ax,
            px,
            100 * pair_share((px / patch) ** 2 + 1, 384),
            label=name,
            colour=show.look().colours[number],
        )
    show.reference(ax, 50, "half")
    ax.axvline(224, color=show.look().muted, linewidth=1)
    ax.set(
        xlabel="side of the image (px)",
        ylabel="pairs, share of a block (%)",
        ylim=(0, 100),
    )


at_224, at_896 = (100 * pair_share((px // 16) ** 2 + 1, 384) for px in (224, 896))
show.figure(
    small_share,
    size=(7, 3.6),
    alt="Share of the attention map in the multiply-adds of a ViT-S block against the side of the image, rising from near zero; with patches of 16 px it crosses one half near 768 px, with patches of 8 px near 384.",
    caption=f"The quadratic term of a ViT-S block. At 224 px (grey line) and patches of 16 px it is {at_224:.1f} % of the multiply-adds, at 896 px {at_896:.1f} %.",
)

# %% tags=["hide-input"]
show.say(
    f"So at the size at which these networks are usually compared, {at_224:.1f} % is all that fewer pairs can save in a block of ViT-S/16. What windows and reductions buy is "
    "something else: *fine maps*. With patches of 4 pixels, as a pyramid has them in its first stage, an image of 224 px has 3,136 tokens, and a full "
    f"attention of width 96 over them would be {100 * pair_share(3136, 96):.0f} % of its block."
)

# %% [markdown]
# ## 2. Road one: windows
#
# The first way to have fewer pairs: a query meets only the keys in its own window of $w \times w$ tokens. The map of $N$ tokens has $N/w^2$ windows with $w^2 \cdot w^2$
# pairs each. So $N$ pairs become $w^2$, and the attention of a block costs
#
# $$ \underbrace{4ND^2}_{\text{four maps}} + \underbrace{2\,w^2 N D}_{\text{pairs}} , \tag{2.1} $$
#
# linear in $N$. Accounts that write $O(nw^2)$ give the second term alone. With $w = 7$ and Swin-T's width of 96 the first is $4 \cdot 96 / (2 \cdot 49) = 3.9$ times the second, and in later stages more: what remains is dominated by
# what windows do not touch.
#
# The second way, of section 3: a query meets *all* places, but through fewer keys. Before any detail, see both. The map is that of
# stage 3 at 224 px, 14 x 14 tokens; windows are 7 x 7, and PVT's keys stand for 2 x 2 tokens each. Pick a query.

# %%


def keys_of(size, window, shift):
    """Return who meets whom in window attention, (tokens, tokens) of True and False, from the model's own functions."""
    numbers = torch.arange(size * size).reshape(1, size, size, 1)
    rolled = torch.roll(numbers, (-shift, -shift), dims=(1, 2))
    members = window_partition(rolled, window).squeeze(-1)  # (windows, n)
    n = window * window
    allowed = torch.ones(len(members), n, n, dtype=torch.bool)
    if shift:
        allowed = shift_mask(size, size, window, shift) == 0
    meets = torch.zeros(size * size, size * size, dtype=torch.bool)
    meets[members[:, :, None], members[:, None, :]] = allowed
    return meets


# %% tags=["hide-input"]
MAP, WINDOW, REDUCTION = 14, 7, 2
plain_keys, shifted_keys = keys_of(MAP, WINDOW, 0), keys_of(MAP, WINDOW, WINDOW // 2)
QUERIES = [(0, 0), (2, 8), (5, 12), (6, 6), (8, 1), (9, 9), (13, 13)]


def panel(ax, picture, colours, title):
    """Draw a small map of whole numbers in so many colours, without ticks."""
    ax.imshow(
        picture, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(colours) - 0.5
    )
    ax.set(xticks=[], yticks=[])
    ax.set_title(title)
    ax.grid(False)
    ax.spines[:].set_visible(False)


def rule(ax, size, step, offset=0, width=1.2):
    """Draw lines between cells of a map, every so many."""
    for at in range(offset, size + 1, step):
        ax.axhline(at - 0.5, color=show.look().ground, linewidth=width)
        ax.axvline(at - 0.5, color=show.look().ground, linewidth=width)


def what_a_query_sees(fig, query):
    row, column = query
    inks = show.look()
    for ax, (title, keys, ink) in zip(
        fig.subplots(1, 3),
        (
            ("window", plain_keys, inks.colours[0]),
            ("shifted window", shifted_keys, inks.colours[0]),
            (
                "PVT, R = 2",
                torch.ones(MAP * MAP, MAP * MAP, dtype=torch.bool),
                inks.colours[2],
            ),
        ),
        strict=True,
    ):
        of_query = keys[row * MAP + column].reshape(MAP, MAP).int().numpy()
        panel(ax, of_query, [inks.faint, ink], title)
        rule(ax, MAP, 1, width=0.4)
        if title.startswith("PVT"):
            rule(ax, MAP, REDUCTION, width=3.5)
        ax.plot(column, row, "o", color=inks.colours[1], ms=7, mec=inks.ground)


def key_count(query):
    """Return how many keys a query has in its shifted window."""
    return int(shifted_keys[query[0] * MAP + query[1]].sum())


show.interact(
    what_a_query_sees,
    values=QUERIES,
    label="query",
    text=lambda query: f"row {query[0] + 1}, column {query[1] + 1}",
    alt=lambda query: (
        f"Three maps of 14 x 14 tokens with the query at row {query[0] + 1}, column {query[1] + 1}, marked: its plain window of 49 keys; its shifted window of {key_count(query)} keys; "
        "and in PVT 49 keys of 2 x 2 tokens that cover the whole map."
    ),
    caption="What one query meets. In a plain window and in PVT it is 49 keys: sharp and near, or blurred and everywhere. At the border a shifted window is cut, and the query has fewer.",
    size=(7, 2.9),
)

# %% [markdown]
# ### Shift
#
# Windows that never move never exchange. Swin moves them by $\lfloor w/2 \rfloor$ tokens down and right in every second block. Now there are more windows than before, and those at the border
# are smaller (middle picture). To compute them all as one batch of equal size, the map is *rolled* up and left round the border; the cut windows then complete each other (right).
# What met only through rolling must not exchange. That is the job of the **mask**, which short accounts of Swin leave out.

# %% tags=["hide-input"]
SHOWN, CUT = 12, 4


def regions(meets, size):
    """Number the groups of tokens that meet, one colour of four for each, so that neighbours differ."""
    first = meets.int().argmax(1).reshape(size, size)  # the first token of the group
    down = torch.unique(first // size, return_inverse=True)[1]
    along = torch.unique(first % size, return_inverse=True)[1]
    return (2 * (down % 2) + along % 2).numpy()


unmoved = regions(keys_of(SHOWN, CUT, 0), SHOWN)
moved = regions(keys_of(SHOWN, CUT, CUT // 2), SHOWN)
rolled_up = np.roll(moved, (-(CUT // 2), -(CUT // 2)), axis=(0, 1))


def shifting(fig):
    inks = show.look().colours[:4]
    for ax, (title, picture) in zip(
        fig.subplots(1, 3),
        (("plain", unmoved), ("shifted", moved), ("rolled", rolled_up)),
        strict=True,
    ):
        panel(ax, picture, inks, title)
        rule(ax, SHOWN, 1, width=0.4)
        if title == "rolled":
            rule(ax, SHOWN, CUT, width=4)


show.figure(
    shifting,
    size=(7, 2.9),
    alt="Three maps of 12 x 12 tokens. Plain: nine squares of 4 x 4. Shifted: four full squares inside and twelve cut ones along the border. Rolled: nine squares again, of which five hold pieces of several colours.",
    caption="Windows of 4 x 4 on a map of 12 x 12, drawn from the model's own functions. Tokens of one colour in one field may meet. Rolling makes nine full windows again, and those "
    "with several colours hold tokens from opposite borders: they need the mask.",
)

# %% tags=["hide-input"]
masks = shift_mask(SHOWN, SHOWN, CUT, CUT // 2)


def masking(fig):
    inks = show.look()
    for ax, (title, number) in zip(
        fig.subplots(1, 4),
        (("inner", 0), ("right", 2), ("bottom", 6), ("corner", 8)),
        strict=True,
    ):
        panel(
            ax,
            (masks[number] == 0).int().numpy(),
            [inks.faint, inks.colours[0]],
            title,
        )
        rule(ax, CUT * CUT, CUT, width=0.8)
        ax.set_xlabel("key")
    fig.axes[0].set_ylabel("query")


show.figure(
    masking,
    size=(7, 2.3),
    alt="Masks of four rolled windows, 16 queries by 16 keys: all pairs allowed in an inner window; half of them, in stripes, at the right border and in blocks at the bottom; a quarter in the corner.",
    caption="The mask of four windows of the picture before. Colour: the pair may meet (0 is added to its logit). Grey: not (-100 is added, and the weight is nothing to forty decimals).",
)

# %% tags=["hide-input"]
kept_at = {
    size: float(keys_of(size, 7, 3).sum(1).float().mean()) for size in (14, 28, 56)
}
show.say(
    "The mask has a price that is easily overlooked: masked pairs are computed, too. On a map of 56 x 56 tokens a query of a shifted block has "
    f"{kept_at[56]:.1f} keys on average that count, of 49 computed; on 28 x 28 it has {kept_at[28]:.1f}, on 14 x 14 {kept_at[14]:.1f}. In stage 3 of Swin-T at 224 px "
    f"{100 - 100 * kept_at[14] / 49:.0f} % of the pairs of a shifted block are thrown away. (2.1) counts what is computed."
)

# %% [markdown]
# ### Bias
#
# Inside a window attention does not know who is where; it sees a set. Swin adds to each logit a number $B$ that depends on the *offset* between query and key, and on nothing else:
#
# $$ \operatorname{softmax}\!\big(QK^\top / \sqrt{d_h} + B + M\big)\,V, \qquad B_{ij} = b\,[\,\text{row}_i - \text{row}_j,\; \text{column}_i - \text{column}_j\,] . \tag{2.2} $$
#
# $M$ is the mask. In a window of $w \times w$ an offset runs from $-(w-1)$ to $w-1$ on each axis, so $b$ is a table of $(2w-1)^2$ learned numbers for each head, and all $w^4$ pairs read from it.

# %% tags=["hide-input"]
entries = relative_position_index(CUT)


def offsets(fig):
    left, ax = fig.subplots(1, 2)
    show.heat(left, entries, label="entry of the table")
    left.set(xlabel="key", ylabel="query", xticks=[0, 4, 8, 12], yticks=[0, 4, 8, 12])
    inks = show.look()
    panel(
        ax,
        np.zeros((2 * CUT - 1, 2 * CUT - 1), int),
        [inks.faint],
        "which part is read",
    )
    rule(ax, 2 * CUT - 1, 1, width=1)
    for number, (name, query) in enumerate((("first", 0), ("last", CUT * CUT - 1))):
        read = entries[query]
        top, at_left = (
            int((read // (2 * CUT - 1)).min()),
            int((read % (2 * CUT - 1)).min()),
        )
        inset = 0.08 * number
        ax.add_patch(
            Rectangle(
                (at_left - 0.5 + inset, top - 0.5 + inset),
                CUT - 2 * inset,
                CUT - 2 * inset,
                fill=False,
                edgecolor=inks.colours[number],
                linewidth=3,
                zorder=5,
            )
        )
        ax.text(
            at_left + CUT / 2 - 0.5,
            top + (0.2 if query == 0 else CUT - 1.0),
            name,
            color=inks.colours[number],
            ha="center",
        )


show.figure(
    offsets,
    size=(7, 3.2),
    alt="Left: which of 49 entries each of 16 x 16 pairs of a 4 x 4 window reads, a matrix of constant diagonals within blocks. Right: the table of 7 x 7 offsets, of which the first query reads the upper left 4 x 4 and the last query the lower right 4 x 4.",
    caption="A window of 4 x 4 has 256 pairs and a table of 49 offsets. Each query reads a 4 x 4 part of it, cut out at its own place, turned round: the row and column of an entry "
    "say how far the query lies below and to the right of the key.",
)

# %% [markdown]
# Without $B$ the tokens of a window can be shuffled and nothing notices. Here is one block of the small Swin of section 8, whose bias we fill with random numbers:

# %%
SHUFFLED = torch.randperm(16, generator=torch.Generator().manual_seed(1))


def notices(biased):
    """Return how far the attention of shuffled tokens is from the shuffled attention, as a share."""
    torch.manual_seed(0)
    config = SwinConfig(
        8, 2, window=4, dims=(24,), depths=(1,), heads=(2,), relative_bias=biased
    )
    layer = Swin(config).double().eval().blocks[0].attn
    if biased:
        torch.nn.init.normal_(layer.relative_position_bias_table)
    x = torch.randn(1, 16, 24, dtype=torch.float64)
    with torch.no_grad():
        straight, mixed = layer(x)[:, SHUFFLED], layer(x[:, SHUFFLED])
    return float((straight - mixed).norm() / straight.norm())


print(f"without the bias {notices(False):.0e}, with it {notices(True):.2f}")

# %% [markdown]
# So a Swin without $B$ still knows *which window* a token is in, and the merging between stages, which lays 2 x 2 tokens side by side in a fixed order, knows which of the four is which. It
# does not know places inside a window. That is what the control of section 8 takes away, and not more.
#
# The whole of it, as it runs here:

# %%
print(textwrap.dedent(inspect.getsource(Block.exchange)))

# %% [markdown]
# ## 3. Road two: fewer keys
#
# PVT keeps every query and lets it see the whole map, but through a shrunk copy of it. Its *spatial reduction* is a convolution whose kernel *and* stride are $R$, followed by a layer normalisation
# (accounts that say "a stride-$R$ convolution" leave out the norm):
#
# $$ \operatorname{SR}(x) = \operatorname{LayerNorm}\!\big(\operatorname{Conv}_{k=R,\,s=R}(x)\big), \qquad \operatorname{Attention}\big(xW^Q,\ \operatorname{SR}(x)W^K,\ \operatorname{SR}(x)W^V\big) . \tag{3.1} $$
#
# Since kernel and stride are equal the squares do not overlap. The convolution is then the same as laying each square of $R \times R$ tokens end to end and applying one linear map of $R^2D \to D$, which is how the paper writes it:

# %%
reducing = (
    PVT(
        PVTConfig(
            16,
            (2, 2),
            dims=(8, 8),
            depths=(1, 1),
            heads=(1, 1),
            sr_ratios=(4, 1),
            mlp_ratios=(2, 2),
        )
    )
    .blocks[0]
    .attn
)
tokens = torch.randn(1, 64, 8)
with torch.no_grad():
    convolved = as_tokens(reducing.sr(as_map(tokens, (8, 8))))
    squares = (
        tokens.reshape(1, 2, 4, 2, 4, 8).permute(0, 1, 3, 5, 2, 4).reshape(1, 4, 128)
    )
    mapped = squares @ reducing.sr.weight.reshape(8, 128).T + reducing.sr.bias
print(f"largest difference {float((convolved - mapped).abs().max()):.0e}")
print(textwrap.dedent(inspect.getsource(Attention.reduce)))

# %% [markdown]
# What does it cost? Queries and output: $2ND^2$. Keys and values, of $N/R^2$ tokens: $2ND^2/R^2$. The reduction has $N/R^2$ outputs of $R^2D \cdot D$ multiplications, which is $ND^2$ whatever $R$ is. And each of $N$ queries has $N/R^2$ keys:
#
# $$ \underbrace{\Big(2 + \frac{2}{R^2} + 1\Big) ND^2}_{\text{maps}} \;+\; \underbrace{\frac{2N^2D}{R^2}}_{\text{pairs}} . \tag{3.2} $$
#
# (With $R = 1$ there is no reduction, and it is the $4ND^2 + 2N^2D$ of a ViT.) **The pairs are divided by $R^2$ and stay quadratic.** $R$ is fixed when the network is designed; when the image grows, the number of keys grows with it.
# The second version of PVT has a variant in which it does not: keys are *average-pooled* to $P \times P$ whatever the image, $P = 7$, then mapped. With $P^2$ keys the attention costs
#
# $$ 2ND^2 + 3P^2D^2 + 2\,P^2 N D , \tag{3.3} $$
#
# linear in $N$, with the same number of pairs as a window of 7 x 7.
#
# > **Note.** [Wang et al., 2022](https://arxiv.org/abs/2106.13797), equation 1, print $hwc^2R^2$ for the reduction's convolution, with $hw = N$ and $c = D$. By our count it is $hwc^2$: $R^2D^2$ weights, used $N/R^2$ times. The
# > counter of section 4 agrees with us. The difference is a factor of 64 in a first stage with $R = 8$.
#
# ### Keys a query, size by size
#
# Swin-T and PVT-Small have the same pyramid: maps of one fourth, one eighth, one sixteenth and one thirty-second of the image's side. Move the slider.

# %% tags=["hide-input"]


def keys_in_stages(px):
    """Return keys a query in each of four stages: Swin-T, PVT-Small, PVTv2-B2-Li, and those of ViT-S/16."""
    tokens_of = [(px // 4 // 2**stage) ** 2 for stage in range(4)]
    ratios = PVTConfig.small().sr_ratios
    return {
        "Swin-T": [min(49, n) for n in tokens_of],
        "PVT-Small": [n // r**2 for n, r in zip(tokens_of, ratios, strict=True)],
        "PVTv2-B2-Li": [PVTv2Config.b2_linear().pool ** 2] * 4,
        "ViT-S/16": [(px // 16) ** 2] * 4,
    }


def pairs_by_stage(fig, px):
    ax = fig.add_subplot()
    found = keys_in_stages(px)
    for number, name in enumerate(("Swin-T", "PVT-Small", "PVTv2-B2-Li")):
        ax.bar(
            np.arange(4) + 0.27 * (number - 1),
            found[name],
            width=0.25,
            color=show.look().colours[number],
            label=name,
        )
    show.reference(ax, found["ViT-S/16"][0], "ViT-S/16, every block")
    ax.set(
        yscale="log",
        ylim=(10, 20_000),
        xticks=range(4),
        xticklabels=[f"stage {i}" for i in range(1, 5)],
        ylabel="keys a query meets",
    )
    ax.legend(loc="upper right", ncols=3, columnspacing=1, handlelength=1)


show.interact(
    pairs_by_stage,
    values=list(PX),
    label="side of the image",
    text="{value} px",
    alt=lambda px: (
        f"Bars on a logarithmic axis, keys a query by stage at {px} px: 49 in Swin-T and PVTv2-B2-Li; {keys_in_stages(px)['PVT-Small'][0]:,} in PVT-Small; a dashed line at {(px // 16) ** 2:,} for ViT-S/16."
    ),
    caption="At 224 px all three pyramids have 49 keys a query in every stage. As the image grows, windows and fixed pools stay at 49; PVT's keys grow with the pixels.",
    size=(7, 3.6),
)

# %% tags=["hide-input"]
swin_896, pvt_896 = keys_in_stages(896)["Swin-T"], keys_in_stages(896)["PVT-Small"]
times_keys = sorted({p / q for p, q in zip(pvt_896, swin_896, strict=True)})
show.say(
    f"At 224 px PVT-Small has {', '.join(str(n) for n in keys_in_stages(224)['PVT-Small'])} keys a query in its four stages and Swin-T {', '.join(str(n) for n in keys_in_stages(224)['Swin-T'])}. "
    "Whoever compares the two at this size alone finds that they cost the same, and cannot know that one is quadratic. At 896 px PVT has "
    f"{pvt_896[0]:,} and Swin {swin_896[0]}: {' or '.join(f'{t:.0f}' for t in times_keys)} times as many in every stage."
)

# %% [markdown]
# ## 4. Counted by hand, and by machine
#
# Now whole networks. The next cell counts (1.1), (2.1), (3.2) and (3.3), stage by stage, with embeddings, merging and the classifier. Beside it stands torch's own counter, which watches every product of a forward
# pass. It runs on the device `meta`, where tensors have shapes and no numbers, so that even 896 px take no time.

# %%


def by_hand(config):
    """Count multiply-adds of one image: a dict a stage (tokens, keys, maps, mlp, pairs, of all its blocks), and the rest."""
    c, stages = config, []

    def add(n, d, depth, keys, maps, ratio, more=0):
        stages.append(
            {
                "tokens": n,
                "keys": keys,
                "depth": depth,
                "maps": depth * maps,
                "mlp": depth * (2 * ratio * n * d * d + more),
                "pairs": depth * 2 * n * keys * d,
            }
        )

    if isinstance(c, ViTConfig):
        n, d = (c.image_size // c.patch_size) ** 2, c.dim
        add(n + 1, d, c.depth, n + 1, 4 * (n + 1) * d * d, c.mlp_ratio)
        return stages, n * 3 * c.patch_size**2 * d + d * c.classes
    rest, before, size = c.dims[-1] * c.classes, 3, c.image_size
    for i, (d, depth) in enumerate(zip(c.dims, c.depths, strict=True)):
        if isinstance(c, SwinConfig):
            size = c.sides[i]
            n, keys = size * size, min(c.window, size) ** 2
            rest += n * (4 * before if i else 3 * c.patch_size**2) * d
            add(n, d, depth, keys, 4 * n * d * d, c.mlp_ratio)
        elif isinstance(c, PVTConfig):
            size, ratio = size // c.patch_sizes[i], c.sr_ratios[i]
            rest += size * size * before * c.patch_sizes[i] ** 2 * d
            n = size * size + (
                i == len(c.dims) - 1
            )  # a class token in the last stage
            keys = n // ratio**2
            reduce = n * d * d if ratio > 1 else 0
            add(n, d, depth, keys, 2 * (n + keys) * d * d + reduce, c.mlp_ratios[i])
        else:
            stride, keys, ratio = c.strides[i], c.pool**2, c.mlp_ratios[i]
            size = math.ceil(size / stride)
            n = size * size
            rest += n * before * (2 * stride - 1) ** 2 * d
            add(
                n,
                d,
                depth,
                keys,
                (2 * n + 3 * keys) * d * d,
                ratio,
                9 * n * ratio * d,
            )
        before = d
    return stages, rest


def by_machine(make):
    """Count multiply-adds of one image by torch's counter; `make` builds the network."""
    with torch.device("meta"):
        net = make().eval()
        for layer in net.blocks:
            layer.attn.fused_attn = False  # so that its products are counted too
        px = net.config.image_size
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            net(torch.zeros(1, 3, px, px))
    return counter.get_total_flops() // 2


# %% tags=["hide-input"]
PUBLISHED = {
    "ViT-S/16": (ViT, ViTConfig.small),
    "Swin-T": (Swin, SwinConfig.tiny),
    "PVT-Small": (PVT, PVTConfig.small),
    "PVTv2-B2-Li": (PVTv2, PVTv2Config.b2_linear),
}


def on_paper(name, px):
    """Return a published network's configuration at an image size."""
    return PUBLISHED[name][1](image_size=px)


def summed(config):
    """Return maps, MLP, pairs and rest of a whole network."""
    stages, rest = by_hand(config)
    return [
        sum(stage[part] for stage in stages) for part in ("maps", "mlp", "pairs")
    ] + [rest]


hand = {(name, px): summed(on_paper(name, px)) for name in PUBLISHED for px in PX}
machine = {
    (name, px): by_machine(
        lambda name=name, px=px: PUBLISHED[name][0](on_paper(name, px))
    )
    for name in PUBLISHED
    for px in (224, 896)
}
off = {key: int(sum(hand[key])) - total for key, total in machine.items()}
show.table(
    [
        [
            f"{name}, {px} px",
            *(f"{part / 1e9:.2f}" for part in hand[name, px]),
            f"{machine[name, px] / 1e9:.2f}",
            f"{off[name, px]:,}",
        ]
        for px in (224, 896)
        for name in PUBLISHED
    ],
    header=["network", "maps", "MLP", "pairs", "rest", "machine", "off by"],
    caption="Billions of multiply-adds of one image: four parts counted by hand, their sum by torch's counter, and how many single multiply-adds the two differ by. Maps: all linear maps and reductions of attention.",
)

# %% tags=["hide-input"]
share_224 = {
    name: 100 * hand[name, 224][2] / sum(hand[name, 224]) for name in PUBLISHED
}
share_896 = {
    name: 100 * hand[name, 896][2] / sum(hand[name, 896]) for name in PUBLISHED
}
show.say(
    (
        "Hand and machine agree to the last multiply-add. "
        if not any(off.values())
        else "Hand and machine differ: one of the formulas is wrong. "
    )
    + f"At 224 px the pairs are {share_224['ViT-S/16']:.1f} % of the whole ViT-S/16 ({at_224:.1f} % of its blocks), {share_224['Swin-T']:.1f} % of Swin-T, {share_224['PVT-Small']:.1f} % of PVT-Small and "
    f"{share_224['PVTv2-B2-Li']:.1f} % of PVTv2-B2-Li. All four are at {min(total for (_, px), total in machine.items() if px == 224) / 1e9:.1f} to {max(total for (_, px), total in machine.items() if px == 224) / 1e9:.1f} billion there: what the pyramids save on pairs they spend on finer maps. At 896 px the pairs are "
    f"{share_896['ViT-S/16']:.0f} % of the ViT, {share_896['PVT-Small']:.0f} % of PVT and still {share_896['Swin-T']:.1f} % of Swin. PVT's pairs cost {hand['PVT-Small', 896][2] / hand['Swin-T', 896][2]:.1f} "
    "times Swin's there (sixteen times a query and channel; width and depth of the stages differ)."
)

# %% [markdown]
# How fast does a cost grow? Say it is $c(N) = aN + bN^2$, with a map of $N$ tokens. On logarithmic axes its slope, its *exponent* at $N$, is
#
# $$ \frac{d \log c}{d \log N} \;=\; \frac{aN + 2bN^2}{aN + bN^2} \;=\; 1 + \frac{bN^2}{aN + bN^2} \;=\; 1 + \text{the share of the pairs.} \tag{4.1} $$
#
# So *quadratic* is not a yes or no. A ViT-S/16 at 224 px has an exponent barely above one, and a measurement there will not find a quadratic cost, although it is in the formula. That is why section 5 measures over a range, and says which.
#
# ## 5. Measured: time and memory
#
# A count is not a time: a processor waits for memory, a softmax is not counted, small products are slow. So each network is timed on one image, on one thread, in turns with the others (a machine that slows down for a
# while then slows down all alike); the median of the repeats is kept. Beside the whole network the attention of its first block, on the finest map, is timed by itself. Memory is counted exactly: every tensor that is alive at once, weights left out. Attention is computed in two ways: *fused*, which never stores its weights, and *explicit*,
# which does.

# %%
CLASSES = lab.choose(smoke=4, laptop=10, paper=100)
STEPS = lab.choose(smoke=8, laptop=800, paper=20_000)
BATCH = lab.choose(smoke=16, laptop=32, paper=256)
SEEDS = lab.choose(smoke=3, laptop=3, paper=5)
DIMS = lab.choose(smoke=(8, 16, 24), laptop=(24, 48, 96), paper=(64, 128, 256))
DEPTHS = lab.choose(smoke=(1, 1, 1), laptop=(2, 2, 2), paper=(2, 4, 2))

# %%
import time

SIDES = lab.choose(
    smoke=(64, 128), laptop=(224, 448, 672, 896), paper=(224, 448, 672, 896)
)
REPEATS = lab.choose(smoke=1, laptop=3, paper=10)


def sized(kind, side):
    """Return a network of about 22 to 28 million parameters for images of a side; at scale smoke a tiny one."""
    if lab.scale() == "smoke":
        return {
            "ViT-S/16": lambda: ViT(ViTConfig(side, 8, dim=16, depth=2, heads=2)),
            "Swin-T": lambda: Swin(
                SwinConfig(
                    side, 2, window=4, dims=(8, 16), depths=(2, 2), heads=(1, 2)
                )
            ),
            "PVT-Small": lambda: PVT(
                PVTConfig(
                    side,
                    (2, 2),
                    dims=(8, 16),
                    depths=(1, 1),
                    heads=(1, 2),
                    sr_ratios=(2, 1),
                    mlp_ratios=(4, 4),
                )
            ),
            "PVTv2-B2-Li": lambda: PVTv2(
                PVTv2Config.b0(image_size=side, linear=True, depths=(1, 1, 1, 1))
            ),
        }[kind]()
    return {
        "ViT-S/16": lambda: ViT(ViTConfig.small(image_size=side)),
        "Swin-T": lambda: Swin(SwinConfig.tiny(image_size=side)),
        "PVT-Small": lambda: PVT(PVTConfig.small(image_size=side)),
        "PVTv2-B2-Li": lambda: PVTv2(PVTv2Config.b2_linear(image_size=side)),
    }[kind]()


BIG = ("ViT-S/16", "Swin-T", "PVT-Small", "PVTv2-B2-Li")


def first_attention(model, images):
    """Return the attention of the first block, and what it is given when the model sees these images."""
    attention, given = model.blocks[0].attn, []
    with attention.register_forward_pre_hook(lambda _, x: given.append(x)):
        model(images)
    return attention, given[0]


def timed(work):
    """Return the seconds of processor time that a call takes."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def priced(seed, kinds, sides, repeats):
    """Measure what one image costs: time of a network and of its first attention, in turns, and peak memory."""
    torch.set_num_threads(1)
    seconds = np.zeros((2, len(kinds), len(sides), repeats))
    peak = np.zeros((2, len(kinds), len(sides)))
    for s, side in enumerate(sides):
        lab.seed_everything(seed)
        images = torch.randn(1, 3, side, side)
        with torch.inference_mode():
            models = [sized(kind, side).eval() for kind in kinds]
            firsts = [first_attention(model, images) for model in models]  # warms up
            for r in range(repeats):
                for k in np.random.default_rng([seed, s, r]).permutation(len(kinds)):
                    (attention, given), model = firsts[k], models[k]
                    seconds[0, k, s, r] = timed(lambda: model(images))  # noqa: B023
                    seconds[1, k, s, r] = timed(lambda: attention(*given))  # noqa: B023
            for k, model in enumerate(models):
                for way, fused in enumerate((True, False)):
                    for block in model.blocks:
                        block.attn.fused_attn = fused
                    peak[way, k, s] = peak_bytes(lambda: model(images))  # noqa: B023
    return {"seconds": np.median(seconds, -1), "peak": peak}


# %%
prices = lab.record(
    "windows_cost",
    priced,
    seeds=SEEDS,
    kinds=BIG,
    sides=SIDES,
    repeats=REPEATS,
    rank=1,
    minutes=lab.choose(smoke=0.2, laptop=3, paper=5),
)
prices

# %% tags=["hide-input"]
pixels_at = np.log(np.square(SIDES))


def slope(values):
    """Return the exponent of the last axis, values at each side, over the number of pixels: a line on logarithmic axes."""
    logs = np.log(np.asarray(values, float))
    x = pixels_at - pixels_at.mean()
    return (logs - logs.mean(-1, keepdims=True)) @ x / (x @ x)


def geometric(values):
    """Return the mean and interval over seeds of positive values, taken in logarithms."""
    return [np.exp(end) for end in statistics.seeds_interval(np.log(values))]


took, held = prices["seconds"], prices["peak"]  # (seeds, 2, kinds, sides)
HOW_MANY = f"{len(prices.seeds)} seeds"


def measured_time(fig):
    axes = fig.subplots(1, 2)
    for which, (ax, title) in enumerate(
        zip(axes, ("whole network", "first attention"), strict=True)
    ):
        for number, name in enumerate(BIG):
            show.lines(
                ax,
                np.array(SIDES, float),
                *geometric(took[:, which, number]),
                label=name if which else None,
                markers=True,
            )
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="side of the image (px)",
            ylabel=f"{title} (s)",
        )
        ax.set_xticks(SIDES, [str(px) if px != 672 else "" for px in SIDES])
        ax.minorticks_off()


show.figure(
    measured_time,
    size=(7, 3.8),
    alt="Processor time of one image against the side of the image on logarithmic axes, for four networks, in two panels: the whole network, and the attention of its first block.",
    caption=f"Time of one image on one thread. A straight line is a power law; the steeper, the faster the cost grows. Bands: 95 % t-intervals over {HOW_MANY} (often narrower than the line).",
)

# %% tags=["hide-input"]


def first_by_hand(config):
    """Return the multiply-adds of the first block's attention: its maps and its pairs."""
    first = by_hand(config)[0][0]
    return (first["maps"] + first["pairs"]) / first["depth"]


def configured(name, px):
    """Return the configuration of a timed network; no weight is made."""
    with torch.device("meta"):
        return sized(name, px).config


expected = np.array(
    [
        [[sum(summed(configured(name, px))) for px in SIDES] for name in BIG],
        [[first_by_hand(configured(name, px)) for px in SIDES] for name in BIG],
    ]
)
counted_slope = slope(expected)  # (2, kinds)
timed_slope = [
    apart(statistics.seeds_interval(slope(took[:, which]))) for which in (0, 1)
]
show.table(
    [
        [
            name,
            f"{counted_slope[0, i]:.2f}",
            told(timed_slope[0][i], 2, plus=""),
            f"{counted_slope[1, i]:.2f}",
            told(timed_slope[1][i], 2, plus=""),
        ]
        for i, name in enumerate(BIG)
    ],
    header=["network", "counted", "timed", "first attention, counted", "timed"],
    caption=f"Exponents of the cost over the number of pixels, fitted from {SIDES[0]} to {SIDES[-1]} px: 1 is linear, 2 quadratic. Timed: mean and 95 % t-interval over {HOW_MANY}.",
)

# %% tags=["hide-input"]
PLACE = {name: i for i, name in enumerate(BIG)}
dearer = geometric(
    took[:, 1, PLACE["PVT-Small"], [0, -1]] / took[:, 1, PLACE["Swin-T"], [0, -1]]
)
dearer_count = (
    expected[1, PLACE["PVT-Small"], [0, -1]] / expected[1, PLACE["Swin-T"], [0, -1]]
)
show.say(
    f"From {SIDES[0]} to {SIDES[-1]} px the time of the whole network grows with an exponent of {told(timed_slope[0][0], 2, plus='')} in ViT-S/16, {told(timed_slope[0][1], 2, plus='')} in Swin-T, "
    f"{told(timed_slope[0][2], 2, plus='')} in PVT-Small and {told(timed_slope[0][3], 2, plus='')} in PVTv2-B2-Li; in the first attention alone with {told(timed_slope[1][0], 2, plus='')}, "
    f"{told(timed_slope[1][1], 2, plus='')}, {told(timed_slope[1][2], 2, plus='')} and {told(timed_slope[1][3], 2, plus='')}. "
    f"PVT's first attention takes {dearer[0][0]:.2f} ({dearer[1][0]:.2f} to {dearer[2][0]:.2f}) times as long as Swin's at {SIDES[0]} px, and {dearer[0][-1]:.2f} ({dearer[1][-1]:.2f} to {dearer[2][-1]:.2f}) times at {SIDES[-1]} px; "
    f"counted, {dearer_count[0]:.2f} and {dearer_count[-1]:.2f} times the multiply-adds. "
    + (
        "That is less than the ratio of their keys, because PVT's first stage is narrower, and the linear maps of attention cost the same a token whatever the size."
        if dearer[0][-1] < times_keys[-1]
        else ""
    )
)

# %% tags=["hide-input"]
always = held.mean(0)
same_memory = bool((held == held[:1]).all())


def measured_memory(fig):
    axes = fig.subplots(1, 2, sharey=True)
    for which, (ax, title) in enumerate(
        zip(axes, ("fused", "explicit"), strict=True)
    ):
        for number, name in enumerate(BIG):
            show.lines(
                ax,
                np.array(SIDES, float),
                always[which, number] / 2**20,
                label=name if which else None,
                markers=True,
            )
        ax.set(xscale="log", yscale="log", xlabel="side of the image (px)")
        ax.set_title(title)
        ax.set_xticks(SIDES, [str(px) if px != 672 else "" for px in SIDES])
        ax.minorticks_off()
    axes[0].set_ylabel("peak memory (MiB)")


show.figure(
    measured_memory,
    size=(7, 3.8),
    alt="Peak memory of a forward pass of one image against the side of the image on logarithmic axes, for four networks, with fused and with explicit attention.",
    caption="Bytes alive at the worst moment, weights left out. Fused attention stores no pairs, so its lines say what the tokens need; explicit attention stores a map for each block, one at a time.",
)

# %% tags=["hide-input"]
memory_slope = slope(always)
show.table(
    [
        [
            name,
            *(f"{memory_slope[which, i]:.2f}" for which in (0, 1)),
            *(f"{always[which, i, -1] / 2**20:,.0f}" for which in (0, 1)),
        ]
        for i, name in enumerate(BIG)
    ],
    header=[
        "network",
        "exponent, fused",
        "explicit",
        f"MiB at {SIDES[-1]} px, fused",
        "explicit",
    ],
    caption="Exponents of peak memory over the number of pixels, and the memory at the largest size. "
    + (
        "The count is the same in every seed." if same_memory else "Means over seeds."
    ),
)

# %% tags=["hide-input"]
show.say(
    f"With explicit attention memory grows with exponents of {memory_slope[1, 0]:.2f} (ViT), {memory_slope[1, 1]:.2f} (Swin), {memory_slope[1, 2]:.2f} (PVT) and {memory_slope[1, 3]:.2f} (PVTv2-B2-Li). Fused, "
    f"the four are at {', '.join(f'{x:.2f}' for x in memory_slope[0])}. "
    + (
        "A kernel that never stores the pairs takes the quadratic term out of memory, for a ViT as well, and leaves it in the time. So of the two reasons for having fewer pairs, time and memory, the second is weaker "
        "where such kernels are used."
        if memory_slope[0, 0] < memory_slope[1, 0] - 0.1
        else "At these sizes that hardly changes the exponent of the ViT."
    )
)

# %% [markdown]
# ## 6. Who can see what
#
# PVT's query sees the whole map in the first block, if blurred. Swin's does not. How far does it see after $L$ blocks of one stage?
#
# After one block a token sees its window: $w$ tokens along each axis. The second block's window, moved by $\lfloor w/2 \rfloor$, touches two of the first block's: $2w$. A plain window again touches two shifted ones, which
# overlap three plain ones: $3w$. Each block adds one window. So the *receptive field* of a token far from the border is
#
# $$ f(L) = w L \quad\text{tokens along each axis, exactly.} \tag{6.1} $$
#
# It need not lie around the token: after one block the window's corner sees to one side only. And at the border growth is slower. The token in the corner of the image lies in a plain
# window with its neighbours, but in a *cut* one when windows are shifted, with no one new. It gains a window only in every second block:
#
# $$ f_{\text{corner}}(L) = w \lceil L/2 \rceil . \tag{6.2} $$
#
# Is it so? A gradient knows. We take a Swin of a single stage, six blocks on a map of 84 x 84 tokens of one pixel each, untrained, and ask which pixels have a derivative in a token.

# %%


def field(net, place, unit):
    """Return the pixels that reach a token after a block, by gradient, (rows, columns) of True and False."""

    def after(x):
        with hooks.taps(net, f"block.{place}", grad=True) as found:
            net(x)
        return found[f"block.{place}"]

    px = net.config.image_size
    torch.manual_seed(0)
    gradient = receptive.input_gradient(after, torch.randn(1, 3, px, px), unit)
    return receptive.reach(gradient, threshold=1e-20)


LONG = SwinConfig(84, 1, classes=2, dims=(8,), depths=(6,), heads=(1,))
long_net, still_net = (
    Swin(
        SwinConfig(84, 1, classes=2, dims=(8,), depths=(6,), heads=(1,), shift=moves)
    ).eval()
    for moves in (True, False)
)
extents = np.array(
    [
        [
            receptive.extent(field(net, place, unit))
            for net, unit in (
                (long_net, 42 * 84 + 42),
                (long_net, 0),
                (still_net, 42 * 84 + 42),
            )
        ]
        for place in range(6)
    ]
)  # (blocks, cases, 2)
show.table(
    [
        [
            f"{i + 1}",
            f"{7 * (i + 1)}",
            "{} x {}".format(*extents[i, 0]),
            f"{7 * math.ceil((i + 1) / 2)}",
            "{} x {}".format(*extents[i, 1]),
            "{} x {}".format(*extents[i, 2]),
        ]
        for i in range(6)
    ],
    header=["blocks", "7L (6.1)", "middle", "(6.2)", "corner", "middle, no shift"],
    caption="Rows and columns of pixels that reach a token through L blocks of one stage, by gradient; windows of 7 x 7.",
)

# %% tags=["hide-input"]
blocks_done = np.arange(1, 7)
field_exact = bool((extents[:, 0] == 7 * blocks_done[:, None]).all())
corner_exact = bool((extents[:, 1] == 7 * ((blocks_done[:, None] + 1) // 2)).all())
torch.manual_seed(0)


def second_block(x):
    """Return the tokens after the second block of the long network."""
    with hooks.taps(long_net, "block.1", grad=True) as found:
        long_net(x)
    return found["block.1"]


by_graph = receptive.graph_reach(second_block, torch.randn(1, 3, 84, 84), 0)
show.say(
    f"The field is {'exactly 7L' if field_exact else 'not 7L'} in the middle and {'as (6.2) says' if corner_exact else 'not as (6.2) says'} in the corner. Without the shift it stays at "
    f"{extents[-1, 2, 0]} tokens for ever. A trap lies here. The reach of the *graph*, found without looking at weights, has {int(by_graph.sum()):,} pixels for the corner after two blocks, and the gradient {int(np.prod(extents[1, 1]))}: a masked pair is a path in the graph, and "
    "the rolled window holds tokens from all four corners. The mask is a value, not a structure, so here the gradient is right."
)

# %% [markdown]
# ### With merging
#
# Between stages 2 x 2 tokens become one, and from then on a window is twice as wide in pixels. To follow all tokens at once no gradient is needed: who meets whom is known. Windows and masks treat rows and columns apart, so one axis is enough.

# %%


def meets_along(size, window, shift):
    """Return which rows meet which in window attention, (rows, rows)."""
    n = keys_of(size, window, shift).reshape(size, size, size, size)
    return n.any(dim=3).any(dim=1)


def seen_along(config):
    """Return, after each block, which rows of the finest map reach which rows, a list of (rows there, rows)."""
    paths, rows = [], torch.eye(config.sides[0], dtype=torch.bool)
    for stage, size in enumerate(config.sides):
        if stage:
            rows = rows[0::2] | rows[1::2]  # merging
        window = min(config.window, size)
        for number in range(config.depths[stage]):
            moves = config.shift and number % 2 == 1 and window < size
            meets = meets_along(size, window, window // 2 if moves else 0)
            rows = (meets.float() @ rows.float()) > 0
            paths.append(rows)
    return paths


def first_global(paths):
    """Return the number of the first block after which every token sees everything, from 1, or None."""
    return next((i + 1 for i, rows in enumerate(paths) if bool(rows.all())), None)


def stage_and_block(config, number):
    """Write the number of a block as a stage and a block in it."""
    for stage, depth in enumerate(config.depths):
        if number <= depth:
            return f"stage {stage + 1}, block {number}"
        number -= depth
    raise ValueError("There are not so many blocks.")


NARROW = {"classes": 2, "dims": (8, 8, 8, 8), "heads": (1, 1, 1, 1)}
tiny_swin, tiny_still = (
    SwinConfig.tiny(**NARROW),
    SwinConfig.tiny(**NARROW, shift=False),
)
swin_paths, still_paths = seen_along(tiny_swin), seen_along(tiny_still)


def growing(fig):
    ax = fig.add_subplot()
    x = np.arange(1, len(swin_paths) + 1)
    for number, (name, paths) in enumerate(
        (("shift", swin_paths), ("no shift", still_paths))
    ):
        rows_seen = [4 * rows.sum(1).numpy() for rows in paths]
        show.lines(
            ax,
            x,
            np.array([r.mean() for r in rows_seen]),
            np.array([r.min() for r in rows_seen]),
            np.array([r.max() for r in rows_seen]),
            label=name,
            colour=show.look().colours[number],
            markers=True,
        )
    show.reference(ax, 224, "whole image (PVT: from block 1)")
    for edge in np.cumsum(tiny_swin.depths)[:-1]:
        ax.axvline(edge + 0.5, color=show.look().muted, linewidth=1)
    ax.set(xlabel="block", ylabel="side of the field (px)", xticks=x, ylim=(0, 255))


show.figure(
    growing,
    size=(7, 3.6),
    alt="Side of the receptive field in pixels against the block of Swin-T, with the shift and without it; grey lines mark the stages. With the shift it reaches 224 px in the third stage, without it in the last.",
    caption="Mean over tokens of how many pixels along an axis reach a token of Swin-T at 224 px; bands from the token that sees least to the one that sees most. Grey: merging.",
)

# %% tags=["hide-input"]
narrow_net = Swin(tiny_swin).eval()
wrong_pixels = 0
for place, rows in enumerate(swin_paths[:8]):
    n = len(rows)
    for unit in (0, n // 2 * n + n // 2):
        along_rows, along_columns = (
            rows[at].numpy().repeat(4) for at in divmod(unit, n)
        )
        predicted = along_rows[:, None] & along_columns[None, :]
        wrong_pixels += int((predicted != field(narrow_net, place, unit)).sum())
pvt_net = PVT(PVTConfig.small(**NARROW, depths=(1, 1, 1, 1))).eval()
pvt_sees = int(field(pvt_net, 0, 0).sum())
global_at, still_at = first_global(swin_paths), first_global(still_paths)
small_swin = SwinConfig(
    32, 2, window=4, dims=(8, 8, 8), depths=(2, 2, 2), heads=(1, 1, 1)
)
small_still = SwinConfig(
    32, 2, window=4, dims=(8, 8, 8), depths=(2, 2, 2), heads=(1, 1, 1), shift=False
)
small_at = [
    stage_and_block(c, first_global(seen_along(c))) for c in (small_swin, small_still)
]
show.say(
    f"Every token of Swin-T sees the whole image from {stage_and_block(tiny_swin, global_at)} on, without the shift only from {stage_and_block(tiny_still, still_at)}, where the map is a single window. "
    f"By gradient, in a narrow network of the same geometry, two tokens after each of the first eight blocks: {wrong_pixels} pixels differ from this prediction. One token of PVT-Small sees {pvt_sees:,} of {224 * 224:,} pixels after its first block. "
    f"The small Swin that section 8 trains is global from {small_at[0]} on, without the shift from {small_at[1]}"
    + (
        ": its third map is a single window, so that the shift changes what is seen on the way and not when all is seen."
        if small_at[0] == small_at[1]
        else "."
    )
)

# %% [markdown]
# > **Warning.** That a pixel *can* reach a token does not say how much. In a trained network the effective field is smaller than the receptive field, as it is for convolutions
# > ([Luo et al., 2016](https://arxiv.org/abs/1701.04128)).
#
# ## 7. Which shifts of the image do they follow?
#
# Locality is one half of what a convolution has; the other is that a shifted image gives shifted features. Swin's windows stand on a fixed raster. Inside a window the bias knows offsets only, but a token that crosses a window's edge meets others. So a stage follows shifts by whole windows, $w$ tokens, and no
# smaller ones; and the raster doubles from stage to stage: in Swin-T at 224 px the last stage's window is the whole image, and no smaller shift is followed by all stages. PVT adds absolute
# positions, which are different at every place, so it follows none. We ask untrained small networks after their first stage, with images shifted round the border.

# %%
SMALL = dict(  # noqa: C408
    image_size=32, classes=CLASSES, dims=DIMS, depths=DEPTHS, heads=(1, 2, 4)
)
ARMS = {
    "swin": dict(),  # noqa: C408
    "swin-still": dict(shift=False),  # noqa: C408  windows never move
    "swin-placeless": dict(relative_bias=False),  # noqa: C408  windows do not know who is where
    "pvt": None,
}


def build(arm):
    """Return a small Swin with its shift and its bias or without one of them, or a small PVT; grids of 16, 8 and 4."""
    if arm == "pvt":
        reduced = dict(sr_ratios=(4, 2, 1), mlp_ratios=(4, 4, 4))  # noqa: C408
        return PVT(PVTConfig(**SMALL, **reduced, patch_sizes=(2, 2, 2)))
    return Swin(SwinConfig(**SMALL, **ARMS[arm], patch_size=2, window=4))


# %% tags=["hide-input"]
STEPS_ASIDE = (1, 2, 4, 8)
NAMES = {
    "swin": "Swin",
    "swin-still": "Swin, no shift",
    "swin-placeless": "Swin, no bias",
    "pvt": "PVT",
}
few_scenes = data.load("scenes", "held_out", size=32, limit=20)


def astray(arm):
    """Return how far an untrained network's first stage is from following shifts, (shifts): 0 follows, 1 is unrelated."""
    lab.seed_everything(0)
    net = build(arm).double().eval()
    last = f"block.{DEPTHS[0] - 1}"

    def first_stage(x):
        with hooks.taps(net, last) as found:
            net(x)
        return found[last]

    batch = views.View()(few_scenes.tensor()[:8], torch.Generator()).double()
    errors = equivariance.feature_shift_error(
        first_stage,
        batch,
        STEPS_ASIDE,
        stride=2,
        grid=(16, 16),
        relative_to="variation",
    )
    return errors.mean(1)


strayed = {arm: astray(arm) for arm in ARMS}
show.table(
    [
        [NAMES[arm], *(f"{e:.1e}" if e < 1e-3 else f"{e:.3f}" for e in strayed[arm])]
        for arm in ARMS
    ],
    header=["network, untrained", *(f"{px} px" for px in STEPS_ASIDE)],
    caption="Error of the first stage's features when the image moves sideways round the border: 0 follows exactly, 1 is as far as unrelated places. A token is 2 px wide, a window and a square of PVT's reduction 8 px.",
)

# %% tags=["hide-input"]
follows = [NAMES[arm] for arm in ARMS if strayed[arm][-1] < 1e-9]
show.say(
    f"By a whole window, 8 px, {', '.join(follows) if follows else 'none of them'} follows to rounding. "
    + (
        "What breaks it in the others? In Swin it is the mask: it forbids meetings across the border, so that the border is a place. In PVT it is the positions. Before training positions are small; nothing keeps them so."
        if follows
        else ""
    )
    + " PVT as first published is a *hierarchy* without much locality: its patches do not overlap, its positions are absolute, and a query's keys are everywhere. Overlapping patches and convolutions came with the second version."
)

# %% [markdown]
# ## 8. Do shift and bias matter for learning?
#
# The paper's table 4 takes away one thing at a time. So do we, small: ten classes of CIFAR-100, images of 32 x 32, three stages with maps of 16, 8 and 4, windows of 4, and the same images in the same order for four networks. The PVT of the same widths and depths has
# reductions of 4, 2 and 1. Steps, batch and learning rate are the same for all. A seed draws weights, order and augmentation anew; the networks of one seed share order and augmentation.

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


def windowed(seed, source, arms):
    """Train each network on the same images in the same order."""
    few = share(pictures(source, "train"), 1.0, seed)
    held_out = pictures(source, "held_out")
    right = []
    for arm in arms:
        lab.seed_everything(seed)
        right.append(learn(build(arm), few, held_out, seed, arm))
    return {"right": np.stack(right), "answers": held_out.labels}


# %%
trained = lab.record(
    "windows_trained",
    windowed,
    seeds=SEEDS,
    source="cifar100",
    arms=tuple(ARMS),
    rank=2,
    minutes=lab.choose(smoke=0.2, laptop=5, paper=60),
)
trained

# %% tags=["hide-input"]
hits = 100.0 * np.moveaxis(trained["right"], -1, 1)  # (seeds, images, arms)
levels = apart(surely(hits))
against = apart(surely(hits - hits[..., :1]))  # each minus Swin
size_of = {arm: sum(p.numel() for p in build(arm).parameters()) for arm in ARMS}


def contrasts(fig):
    ax = fig.add_subplot()
    for number in (1, 2, 3):
        mean, low, high = against[number]
        ax.errorbar(
            [mean],
            [3 - number],
            xerr=[[mean - low], [high - mean]],
            fmt="o",
            capsize=4,
            color=show.look().colours[number - 1],
        )
    ax.axvline(0, color=show.look().muted, linewidth=1.4, linestyle=(0, (4, 2.5)))
    ax.grid(False)
    ax.set(
        yticks=[2, 1, 0],
        yticklabels=[NAMES[arm] for arm in list(ARMS)[1:]],
        ylim=(-0.6, 2.6),
        xlabel="minus Swin (points of accuracy)",
    )


show.figure(
    contrasts,
    size=(7, 2.6),
    alt="Differences of accuracy to Swin, with intervals, of Swin without the shift, Swin without the bias, and PVT, around a dashed line at zero.",
    caption=f"How much better or worse than Swin each network is on the same {hits.shape[1]:,} new images; 95 % intervals over {len(trained.seeds)} seeds and images. An interval across the dashed line decides nothing.",
)

# %% tags=["hide-input"]
show.table(
    [
        [
            NAMES[arm],
            f"{size_of[arm]:,}",
            told(levels[i], plus=""),
            told(against[i]) if i else "",
        ]
        for i, arm in enumerate(ARMS)
    ],
    header=["network", "parameters", "accuracy, %", "minus Swin"],
    caption=f"{CLASSES} classes, chance {100 / CLASSES:.0f} %, {STEPS:,} steps of {BATCH} images, {len(trained.seeds)} seeds; 95 % intervals over seeds and images.",
)

# %% tags=["hide-input"]
outcome = {
    1: "is decidedly better than Swin",
    -1: "is decidedly worse than Swin",
    0: "is not decidedly different from Swin",
}
show.say(
    "On the same images "
    + "; ".join(
        f"{NAMES[arm]} {outcome[sign(against[i])]} ({told(against[i])} points)"
        for i, arm in enumerate(ARMS)
        if i
    )
    + f". The widest of these intervals spans {max(d.high - d.low for d in against[1:]):.1f} points: an effect of one point, as in the paper's table, "
    + (
        "cannot be seen with it. "
        if max(d.high - d.low for d in against[1:]) > 2
        else "can be seen with it. "
    )
    + "Three intervals are read here and none is corrected for the others; rates were not tuned for any of the four."
)

# %% [markdown]
# ## 9. What the published numbers say
#
# By the authors, Swin-T on three tasks, from table 4 of [Liu et al., 2021](https://arxiv.org/abs/2103.14030):
#
# | Swin-T | ImageNet-1k, top-1 % | COCO, box AP | ADE20k, mIoU |
# |---|---|---|---|
# | as published | 81.3 | 50.5 | 46.1 |
# | without the shift | 80.2 | 47.7 | 43.3 |
# | without positions | 80.1 | 49.2 | 43.8 |
# | absolute positions instead | 80.5 | 49.0 | 43.2 |
# | both | 81.3 | 50.2 | 44.0 |
#
# One network each, no intervals. Shift and bias are worth about a point in classification and one to three where *places* are asked for. Section 6 has a reason: at the sizes of detection
# merging does not make the field global early, and without the shift it would not be so for long.
#
# Does a cheaper attention need fewer images? The pairs were never what makes a network hungry. [Liu et al., 2021b](https://arxiv.org/abs/2106.03746) trained Swin-T from scratch on CIFAR-100: 53.3 % after 100 epochs, and 66.2 % with an additional
# self-supervised task that asks where tokens lie relative to each other. On CIFAR-10 it stayed about 30 points behind CvT, a transformer with convolutions, though on ImageNet the two are equal (81.3 and 81.6). Windows alone are no cure for hunger.
#
# So in which group do they belong? One account counts the first four of its seven methods, Swin and PVT among them, as being about efficiency. For Swin and PVT that is fair: what they change is the cost of fine maps, and section 5 shows it. That they
# also bring a pyramid, and Swin locality, is a second thing, and a test of hunger must vary the number of images, which nothing in this chapter did. DeiT changes the signal at the same cost; CvT and CoAtNet put in convolutions: they belong elsewhere. The last chapter of this part sets all seven side by side.
#
# ## 10. What was claimed, what we measured

# %% tags=["hide-input"]
COST = f"{len(prices.seeds)} seeds at scale {prices.scale}, {SIDES[0]} to {SIDES[-1]} px. "
TRAINED = f"{len(trained.seeds)} seeds at scale {trained.scale}. "
swin_rows, _ = by_hand(on_paper("Swin-T", 224))
pairs_linear = all(
    hand["Swin-T", px][2] * 224**2 == hand["Swin-T", 224][2] * px**2 for px in PX
)
share_in_attention = [
    100 * row["pairs"] / (row["pairs"] + row["maps"]) for row in swin_rows
]
show.verdict(
    claim="HUNGER-4: Swin attends in windows of 7 x 7, at a cost of order n w² and not n²; shifting them by half a window in every second layer makes the receptive field grow with depth.",
    source="accounts of Swin, after [Liu et al., 2021](https://arxiv.org/abs/2103.14030)",
    verdict="fails"
    if not (pairs_linear and field_exact)
    else "holds"
    if min(share_in_attention) > 50
    else "holds in part",
    measured=f"Counted at scale {prices.scale}; the field by gradient, one seed. The pairs of Swin-T are {'exactly linear' if pairs_linear else 'not linear'} in the number of pixels, but only {min(share_in_attention):.0f} to {max(share_in_attention):.0f} % of its attention's multiply-adds "
    f"at 224 px: the claim leaves out the 4nD² of the maps. The field within a stage is {'exactly 7L' if field_exact else 'not 7L'} in the middle and {'a window for every second block' if corner_exact else 'not (6.2)'} in the corner; with merging every token of Swin-T sees the whole image from {stage_and_block(tiny_swin, global_at)} on, without the shift from {stage_and_block(tiny_still, still_at)}. "
    "Also left out: the mask, without which tokens of opposite borders would meet, and the relative bias.",
    would_change="A counter that finds other multiply-adds than the formulas, or one pixel with a derivative outside the predicted field.",
)

# %% tags=["hide-input"]
pvt_small = PVTConfig.small()
as_told = pvt_small.sr_ratios == (8, 4, 2, 1)
sees_all = pvt_sees == 224 * 224
keeps_queries = all(
    row["tokens"] - (i == 3) == (56 // 2**i) ** 2
    for i, row in enumerate(by_hand(on_paper("PVT-Small", 224))[0])
)
show.verdict(
    claim="HUNGER-5: PVT shrinks keys and values by a convolution of stride R = 8, 4, 2, 1; queries keep full resolution and attention stays global.",
    source="accounts of PVT, after [Wang et al., 2021](https://arxiv.org/abs/2102.12122)",
    verdict="holds" if as_told and sees_all and keeps_queries else "fails",
    measured=f"Read off the model and by gradient, one seed. R is {', '.join(map(str, pvt_small.sr_ratios))}; kernel and stride are equal, and a layer normalisation follows. After the first block one token is reached by {pvt_sees:,} of {224 * 224:,} pixels. "
    "Global, but blurred: in the first stage a key stands for 64 tokens. Not said by the claim, and often added to it: that this is linear. It is not (LIT-23).",
    would_change="A pixel that cannot reach a token after the first block.",
)

# %% tags=["hide-input"]


def worth_of(place):
    """Return what a part is worth: Swin minus the network without it, in points, with its interval."""
    return statistics.Interval(
        -against[place].mean, -against[place].high, -against[place].low
    )


HELPS = {1: "holds", -1: "fails", 0: "undecided"}
show.verdict(
    claim="LIT-20: shifting the windows makes Swin more accurate.",
    source="[Liu et al., 2021](https://arxiv.org/abs/2103.14030), table 4: 81.3 against 80.2 % on ImageNet-1k",
    verdict=HELPS[sign(worth_of(1))],
    measured=TRAINED
    + f"With the shift minus without it, on the same {hits.shape[1]:,} images: {told(worth_of(1))} points; {CLASSES} classes of CIFAR-100 at 32 px.",
    would_change="More seeds, until the interval is well under a point wide, and larger images: "
    f"ours are global from {small_at[0]} on with the shift and from {small_at[1]} on without it, which leaves the shift less to do than at 224 px.",
)

# %% tags=["hide-input"]
show.verdict(
    claim="LIT-21: the relative position bias makes Swin more accurate.",
    source="[Liu et al., 2021](https://arxiv.org/abs/2103.14030), table 4: 81.3 against 80.1 % on ImageNet-1k",
    verdict=HELPS[sign(worth_of(2))],
    measured=TRAINED
    + f"With the bias minus without it, on the same {hits.shape[1]:,} images: {told(worth_of(2))} points; {CLASSES} classes of CIFAR-100 at 32 px.",
    would_change="More seeds, until the interval is well under a point wide, and larger windows: in ours of 4 x 4, with a merging that knows places, there is less to be told than in 7 x 7.",
)

# %% tags=["hide-input"]


def linear(interval):
    """Return the verdict on a linear cost: an exponent within 0.15 of 1, a line of our choosing."""
    if interval.low > 0.85 and interval.high < 1.15:
        return "holds"
    return "fails" if interval.low > 1.15 else "undecided"


show.verdict(
    claim="LIT-22: the cost of Swin is linear in the number of pixels.",
    source="[Liu et al., 2021](https://arxiv.org/abs/2103.14030)",
    # Of its attention, too: in a whole network what is linear hides what is not, and PVT-Small as a whole passes.
    verdict=linear(timed_slope[0][1])
    if linear(timed_slope[1][1]) == "holds"
    else linear(timed_slope[1][1]),
    measured=COST
    + f"Exponent of the time of Swin-T over the number of pixels: {told(timed_slope[0][1], 2, plus='')}, of its first attention {told(timed_slope[1][1], 2, plus='')}; of its multiply-adds {counted_slope[0, 1]:.2f}; of its memory {memory_slope[0, 1]:.2f} fused and {memory_slope[1, 1]:.2f} explicit. "
    f"ViT-S/16 over the same sizes: {told(timed_slope[0][0], 2, plus='')}. We call it linear when both intervals are within 0.15 of 1; the network alone would not do, for PVT-Small as a whole is at {told(timed_slope[0][2], 2, plus='')} and its attention is not linear.",
    would_change="An exponent outside that range on other hardware, or at sizes at which windows do not tile the map and padding is needed.",
)

# %% tags=["hide-input"]
full_first = 4 * 3136 * 64**2 + 2 * 3136**2 * 64
pvt_first = first_by_hand(on_paper("PVT-Small", 224))
cheaper = full_first / pvt_first
pvt_timed, vit_timed = timed_slope[1][2], timed_slope[1][0]
show.verdict(
    claim="LIT-23: PVT's attention is R² times cheaper than full attention, and so can take larger maps.",
    source="[Wang et al., 2021](https://arxiv.org/abs/2102.12122), section 3.3",
    verdict="holds"
    if cheaper > 0.9 * 64 and linear(pvt_timed) == "holds"
    else "holds in part",
    measured=COST
    + f"The pairs of the first stage are 64 times fewer, exactly. Its attention as a whole, reduction and maps included, is {cheaper:.0f} times cheaper at 224 px by (3.2). Larger maps: its keys grow with the image, so that the exponent of its first attention is {told(pvt_timed, 2, plus='')} in time and {counted_slope[1, 2]:.2f} in multiply-adds, "
    f"where Swin's is {told(timed_slope[1][1], 2, plus='')}; PVT-Small as a whole {told(timed_slope[0][2], 2, plus='')}. It is a constant factor, not another order: at 896 px a query has {pvt_896[0]} keys, in Swin {swin_896[0]}.",
    would_change="A PVT whose R grows with the image. That is a different network: the reduction's kernel is a weight, and its shape depends on R.",
)

# %% tags=["hide-input"]
show.verdict(
    claim="LIT-24: pooled to a fixed number of keys, the attention of PVT's second version has a linear cost.",
    source="[Wang et al., 2022](https://arxiv.org/abs/2106.13797), equation 2",
    verdict=linear(timed_slope[1][3]),
    measured=COST
    + f"Exponent of the time of PVTv2-B2-Li's first attention over the number of pixels: {told(timed_slope[1][3], 2, plus='')}, of the whole network {told(timed_slope[0][3], 2, plus='')}; of its multiply-adds {counted_slope[1, 3]:.2f} and {counted_slope[0, 3]:.2f}. "
    "We call it linear when the whole interval is within 0.15 of 1; below it, something that does not grow with the image, keys and values of a fixed number, still has a share.",
    would_change="As for LIT-22. What pooling a large map to 7 x 7 keys costs in accuracy was not tested.",
)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: Pairs
#
# Write a function that counts the query-key pairs of one attention over an image of `side` pixels with patches of `patch` pixels: `road` is `"all"`, `"window"` with windows of `size` x `size` tokens, or `"reduce"` with $R$ = `size`. Everything tiles.

# %%


def pairs(side, patch, road, size): ...


check.key_query_pairs(pairs)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def pairs(side, patch, road, size):
#     n = (side // patch) ** 2
#     keys = {"all": n, "window": size**2, "reduce": n // size**2}[road]
#     return n * keys
#
#
# check.key_query_pairs(pairs)
# ```
#
# Windows and reductions have equally many pairs where $w^2 = N/R^2$, that is, where the map's side is $wR$. PVT-Small's $R = 8, 4, 2, 1$ are chosen such that it happens in all four stages at once at 224 px: $56 = 7 \cdot 8$, $28 = 7 \cdot 4$, and so on.
#
# </details>
#
# ### Exercise 2: The exponent of a sum
#
# A cost is $c(n) = a n + b n^2$. Write the exponent that two measurements give, at $n$ and at $kn$: the slope of the line through both on logarithmic axes. Then ask: a ViT-S/16 block has $a = 12D^2$, $b = 2D$. Which exponent
# will you measure between 224 and 448 px ($n = 197$, $k \approx 4$)?

# %%


def exponent(a, b, n, k): ...


check.exponent_of_sum(exponent)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def exponent(a, b, n, k):
#     ratio = (a * k * n + b * (k * n) ** 2) / (a * n + b * n**2)
#     return math.log(ratio) / math.log(k)
#
#
# check.exponent_of_sum(exponent)
# ```
#
# `exponent(12 * 384**2, 2 * 384, 197, 4)` is 1.15: nearly linear. As $k \to 1$ it becomes (4.1), and it lies between the shares of the pairs at both ends, plus one. An exponent without its range says nothing.
#
# </details>
#
# ### Exercise 3: How many blocks until all see all?
#
# A stage has a map of `side` x `side` tokens, cut into windows of `window` x `window` that tile it, and its blocks are plain and shifted in turn, the first plain; there is no merging. After how many blocks does *every* token see the whole map? A tempting answer is (6.1). Mind the corners.

# %%


def blocks_needed(side, window): ...


check.blocks_until_global(blocks_needed)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def blocks_needed(side, window):
#     return 2 * (side // window) - 1
#
#
# check.blocks_until_global(blocks_needed)
# ```
#
# There are $m = \text{side}/w$ windows along an axis. The corner token gains one in every second block, in the plain ones (6.2): it sees $\lceil L/2 \rceil$ of them, and all of $m$ for $L = 2m - 1$. Nobody is slower. Swin-T's first stage, 56 tokens wide, would need 15 blocks by itself;
# with merging the whole network needs seven. Merging is what makes the field large; the shift is what makes it larger than a window before the last stage.
#
# </details>
#
# ## For the seminar
#
# > **Seminar.** PVT's reduction and Swin's windows both leave 49 keys of 3,136 to a query of the first stage at 224 px. One throws away sharpness, the other distance. Suppose that you had to choose by the *statistics of images* alone, without training anything. Which measurement on images
# > would speak for windows, which for reduction? Would the answer be the same for satellite images, faces and text? And if you had both kinds of heads in one layer, what would you expect to find after training, and how would you test it?
#
# ## Further reading
#
# - [Liu et al., 2021](https://arxiv.org/abs/2103.14030): Swin; read section 3.2 with the pictures of this chapter, and table 4.
# - [Wang et al., 2021](https://arxiv.org/abs/2102.12122) and [Wang et al., 2022](https://arxiv.org/abs/2106.13797): PVT and its second version, which answers most of what we found missing in the first.
# - [Liu et al., 2021b](https://arxiv.org/abs/2106.03746): what Swin and others do with few images.
# - [Luo et al., 2016](https://arxiv.org/abs/1701.04128): receptive fields, theoretical and effective.
