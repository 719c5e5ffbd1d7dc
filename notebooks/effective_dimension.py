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
# # How many dimensions?
#
# A Vision Transformer gives every token the same number of coordinates from the first layer to the last. Does it use
# them? A whole literature reads the answer off one number, the *effective dimension* of the tokens, and draws from its
# rise and fall what a network keeps, discards and builds up again. Before we read such numbers in the next chapters, this
# one takes the instrument apart: what it counts, in which units, what moves it although nothing has been learned, how
# it errs when there are few images, and how much can be mended. Then it makes the control that every figure of this kind
# needs: the same measurement on networks that have never been trained.
#
# **After it you can**
#
# - say what effective rank, participation ratio and stable rank count, and why they always come in one order,
# - read a published percentage of effective dimension, and say which two quite different things it can mean,
# - name what moves such a number without any change of what is represented: the mean, LayerNorm, a few giant tokens, too few rows,
# - correct the bias of few rows, and know when the correction cannot be trusted,
# - tell what a profile through depth owes to the images and to the initialisation, before training has done anything.
#
# **It assumes** [The Vision Transformer](vision_transformer.ipynb), eigenvalues of a symmetric matrix, and what a mean and a
# variance are. Entropy is explained.
#
# **It takes** an hour and a quarter to read. Run as it stands (scale `laptop`) it loads two recorded experiments and computes the rest in
# about half a minute on one core; at scale `smoke` every cell runs in under half a minute, on generated images and three textures.
# What recording costs is printed where a record is shown. Scale `paper` measures ViT-S/16 on several hundred images a set; there
# is no training in it, and one GPU needs minutes.

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
import functools
import math
import warnings

import numpy as np
import torch
import torch.nn.functional as F

from vitlab import check, data, hooks, lab, show
from vitlab.analysis import bias, spectra, statistics
from vitlab.analysis.statistics import sign
from vitlab.data import scrambled
from vitlab.models.vit import ViT, ViTConfig

lab.start(seed=0)

# %% [markdown]
# ## On trial
#
# (The codes are those of the [ledger of claims](../book/claims.md).)
#
# > **Claim.** IB-6. The dimension of a layer is measured by $N_{\text{eff}}$, from the entropy of the spectrum of the tokens'
# > covariance: near $D$ when they spread evenly, near 1 when they have collapsed; given in per cent it can be compared between layers
# > and data sets ([Awadhiya, 2025](https://arxiv.org/abs/2512.07331)).
#
# > **Claim.** IB-1, its second half. Since a ViT keeps the number and the width of its tokens, one would expect it to be isotropic
# > and of full rank everywhere; that trained ones are not is then a discovery about training (the same paper).
#
# > **Claim.** IB-10. On UC Merced, satellite pictures of textures, the profile is flat and above 90 % at every depth, above the
# > profiles of object pictures, *because* there the network has adapted to texture as the signal (the same paper).
#
# What would we have to see? For the first: that the number is what it should be where the answer is known, and does not move with
# things that are not dimension. For the second and third: that a network which has never been trained is isotropic and does
# not yet put textures above objects. If it already does, training is not the cause.
#
# ## 1. A cloud and its axes
#
# Cut many images into patches, send them through a network and stop at one layer. Every patch has become a *token*, $D$ numbers, a
# point in a space of $D$ dimensions. All points together are a cloud. If the cloud is round, every direction is as good as any
# other and all $D$ are in use. If it is a cigar, one direction tells almost everything. Most clouds are in between, and the
# question "how many dimensions?" is how to give a number to the in-between.

# %% tags=["hide-input"]
CLOUDS = {"round": (1.0, 1.0), "oval": (1.0, 0.4), "a cigar": (1.0, 0.05)}


def clouds(fig):
    """Three clouds in the plane, their axes, and how many dimensions they have."""
    rng = np.random.default_rng(0)
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    look = show.look()
    for ax, (name, widths) in zip(
        fig.subplots(1, 3, sharey=True), CLOUDS.items(), strict=True
    ):
        points = rng.standard_normal((150, 2)) * widths @ turn.T
        ax.plot(*points.T, ".", ms=3, alpha=0.5, color=look.colours[0])
        for width, axis in zip(widths, turn.T, strict=True):
            ax.plot(
                *np.stack([-2 * width * axis, 2 * width * axis], 1),
                color=look.ink,
                lw=1.8,
            )
        count = spectra.effective_rank(np.square(widths))
        ax.set(
            title=f"{name}: {count:.2f}",
            xlim=(-3, 3),
            ylim=(-3, 3),
            aspect="equal",
            xlabel="first coordinate",
        )
    fig.axes[0].set_ylabel("second coordinate")


show.figure(
    clouds,
    size=(7, 3),
    alt="Three clouds of points in a plane with their two axes drawn: round, oval, and thin as a cigar.",
    caption="Clouds in two dimensions, and above each its effective number of dimensions by (1.4). Lines: the axes, two standard deviations "
    "either way. The axes lie askew, so no coordinate alone would tell.",
)

# %% [markdown]
# To find the axes, write the tokens as rows $x_1, \dots, x_N$ with mean $\bar x$, and take their covariance
#
# $$ C = \frac{1}{N-1} \sum_{n=1}^{N} (x_n - \bar x)(x_n - \bar x)^\top \in \mathbb{R}^{D \times D}. \tag{1.1} $$
#
# Its eigenvectors are the axes and its eigenvalues $\lambda_1 \ge \dots \ge \lambda_D \ge 0$ the variances along them. Only shares matter for
# the shape, so divide by the total:
#
# $$ p_i = \lambda_i \Big/ \sum_j \lambda_j, \qquad \sum_i p_i = 1. \tag{1.2} $$
#
# Now think of $p$ as a lottery. Somebody draws an axis, axis $i$ with probability $p_i$, and you learn which. How surprised are you? By an event of probability 1, not at
# all; by one of probability $1/8$ as much as by three coins in a row. The measure with these properties is $-\ln p_i$, and its mean is the *entropy*
#
# $$ H = -\sum_i p_i \ln p_i, \tag{1.3} $$
#
# in *nats*. Drawn evenly from $k$ axes, $H = \ln k$. So turn it around: whatever the $p_i$, the lottery is as uncertain as an even one
# over
#
# $$ N_{\text{eff}} = e^{H} \tag{1.4} $$
#
# axes. This is the *effective rank*, or effective number of dimensions.
#
# > **Note.** [Roy and Vetterli, 2007](https://ieeexplore.ieee.org/document/7098875), who named it, and RankMe
# > ([Garrido et al., 2023](https://arxiv.org/abs/2210.02885)) put singular values $\sigma_i \propto \sqrt{\lambda_i}$ in the place of
# > eigenvalues. Roots of shares are more even than the shares, so that version is larger on the same data. Section 4 shows by how much. In this
# > course $N_{\text{eff}}$ is on eigenvalues unless it says otherwise.
#
# ## 2. One question, many counts
#
# Why the entropy? There are other ways to count. The *participation ratio* $1/\sum p_i^2$ is the inverse of the chance that two draws of the lottery agree. The
# *stable rank* $1/p_1 = \sum_i \lambda_i / \lambda_1$ looks at the largest axis alone. All are members of one family, the exponentials of the entropies of
# Rényi:
#
# $$ R_\alpha = \Big( \sum_i p_i^{\alpha} \Big)^{1/(1-\alpha)}, \qquad
#    R_1 = N_{\text{eff}}, \quad R_2 = \frac{1}{\sum_i p_i^2}, \quad R_\infty = \frac{1}{p_1}, \tag{2.1} $$
#
# with $R_1$ as a limit, and $R_0$ the number of eigenvalues that are not zero, the rank of algebra. The larger $\alpha$, the less a small eigenvalue counts. Why do
# they always come in the same order? Write one $p_i$ apart as a weight,
#
# $$ R_\alpha = \frac{1}{M_{\alpha-1}}, \qquad M_s = \Big( \sum_i p_i \cdot p_i^{\,s} \Big)^{1/s}. \tag{2.2} $$
#
# $M_s$ is the *power mean* of order $s$ of the numbers $p_i$, weighted by themselves: at $s = 1$ their plain mean, at $s \to 0$ their geometric mean, at
# $s \to \infty$ their maximum. Power means never fall as the order grows (Jensen's inequality). So $R_\alpha$ never grows with $\alpha$,
#
# $$ 1 \;\le\; \underbrace{R_\infty}_{\text{stable rank}} \;\le\; \underbrace{R_2}_{\text{participation ratio}} \;\le\; \underbrace{R_1}_{N_{\text{eff}}}
#    \;\le\; \underbrace{R_0}_{\text{rank}} \;\le\; D, \tag{2.3} $$
#
# and two of them are equal only if all eigenvalues that are not zero are equal: then all are.
#
# > **Warning.** A table of six metrics can hold four. [Kapil and Upla, 2026](https://arxiv.org/abs/2606.19249) report effective rank, spectral entropy, stable rank, anisotropy,
# > participation ratio and flatness. But
# > $$ H = \ln N_{\text{eff}}, \qquad \text{anisotropy} = p_1 = 1/R_\infty. \tag{2.4} $$
# > That entropy rises *and* effective rank rises is one finding, and so is that stable rank rises and anisotropy falls.
#
# Move the slider. The spectrum is a power law, $\lambda_i \propto i^{-a}$, which is what photographs and many networks come close to. See how far apart the
# counts come for one and the same cloud.

# %% tags=["hide-input"]
WIDTH = 384
EXPONENTS = (0, 0.5, 1, 1.5, 2, 3)
COUNTS = {
    "effective_rank_singular": "$N_{eff}$ on singular values",
    "effective_rank": "$N_{eff}$, on eigenvalues",
    "participation_ratio": "participation ratio",
    "stable_rank": "stable rank",
}


def counted(fig, spectrum):
    """A spectrum on the left, and on the right what each metric makes of it."""
    left, right = fig.subplots(1, 2, width_ratios=(1, 1.15))
    p = np.sort(spectrum)[::-1] / np.sum(spectrum)
    left.plot(
        np.arange(1, WIDTH + 1),
        100 * p,
        drawstyle="steps-mid",
        color=show.look().colours[0],
    )
    left.set(
        xscale="log",
        yscale="log",
        ylim=(1e-4, 150),
        xlabel="axis",
        ylabel="share of the variance (%)",
        title="spectrum",
    )
    values = spectra.summary(spectrum)
    for place, name in enumerate(COUNTS):
        right.plot(
            [1, values[name]],
            [place, place],
            "-",
            lw=5,
            solid_capstyle="butt",
            color=show.look().colours[0],
        )
        right.annotate(
            f"{values[name]:.1f}",
            (values[name], place),
            (6, 0),
            textcoords="offset points",
            va="center",
        )
    right.set(
        xscale="log",
        xlim=(1, 1500),
        ylim=(3.6, -0.6),
        yticks=range(4),
        yticklabels=COUNTS.values(),
        xlabel="dimensions",
        title=f"flatness {values['flatness']:.2g}",
    )


show.interact(
    lambda fig, a: counted(fig, np.arange(1.0, WIDTH + 1) ** -a),
    values=EXPONENTS,
    label="exponent of the power law",
    size=(7, 3),
    alt="A power-law spectrum of exponent {value} on logarithmic axes, and beside it four counts of its dimensions as bars.",
    caption=f"A spectrum of {WIDTH} eigenvalues and the counts it gives. Flatness is the geometric over the arithmetic mean of the eigenvalues, with none counted "
    "below a millionth of the largest: without such a floor a single zero would make it zero.",
)

# %% [markdown]
# Power laws are not the only spectra. Let all axes but one be equal, and one take a share of its own: a *spike*. Networks have spikes for many reasons, a large
# mean among them (section 4).

# %% tags=["hide-input"]
SPIKES = (1 / WIDTH, 0.02, 0.1, 0.35, 0.7)


def spiked(share):
    """Return a spectrum in which one axis has this share and all others are equal."""
    return np.r_[share, np.full(WIDTH - 1, (1 - share) / (WIDTH - 1))]


show.interact(
    lambda fig, share: counted(fig, spiked(share)),
    values=SPIKES,
    label="share of one axis",
    text=lambda share: f"{100 * share:.2g} %",
    size=(7, 3),
    alt=lambda share: (
        f"A flat spectrum in which one axis has {100 * share:.2g} % of the variance, and beside it four counts of its dimensions as bars."
    ),
    caption=f"The same for {WIDTH} axes of which one has a share of its own; all others stay equal to one another. The stable rank sees nothing but the spike, "
    "the effective rank keeps most of the rest in view.",
)

# %% tags=["hide-input"]
tenth = spectra.summary(spiked(1 / 10))
show.say(
    f"With a tenth of the variance on one axis the stable rank of {WIDTH} dimensions is {tenth['stable_rank']:.0f}, the participation ratio "
    f"{tenth['participation_ratio']:.0f} and the effective rank {tenth['effective_rank']:.0f}. None of them is wrong. They answer different questions, and a sentence like "
    '"the rank falls in the middle layers" needs the name of the count in it.'
)

# %% [markdown]
# ## 3. Per cent of what?
#
# A number of dimensions is hard to compare between widths, so it is given in per cent: *effective dimension*, EED. There are two ways, and papers do not always
# say which they took:
#
# $$ \text{EED}_{\text{lin}} = 100\,\frac{N_{\text{eff}}}{D}, \qquad \text{EED}_{\text{log}} = 100\,\frac{H}{\ln D} = 100\,\frac{\ln N_{\text{eff}}}{\ln D}. \tag{3.1} $$
#
# Both are 100 % for an isotropic cloud, and there the agreement ends. A collapsed cloud has $N_{\text{eff}} = 1$: $100/D$ on the one, 0 on the other. In between, the
# logarithmic one is always the larger, often by a factor.

# %% tags=["hide-input"]


def two_percents(fig):
    ax = fig.add_subplot()
    dimensions = np.geomspace(1, WIDTH, 200)
    show.lines(ax, dimensions, 100 * dimensions / WIDTH, label="linear")
    show.lines(
        ax, dimensions, 100 * np.log(dimensions) / np.log(WIDTH), label="logarithmic"
    )
    ax.set(
        xscale="log",
        xlabel="effective number of dimensions",
        ylabel="EED (%)",
        ylim=(0, 105),
    )
    ax.set_xticks([1, 4, 16, 64, WIDTH], ["1", "4", "16", "64", f"{WIDTH}"])
    ax.minorticks_off()


show.figure(
    two_percents,
    size=(6, 3.2),
    alt="Effective dimension in per cent against the number of dimensions on a logarithmic axis: a straight line for the logarithmic convention, and a curve that "
    "stays low and rises steeply at the end for the linear one.",
    caption=f"The two conventions of (3.1) for D = {WIDTH}. On the logarithmic one, half way up is the square root of D.",
)

# %% tags=["hide-input"]
PUBLISHED = {
    "L0 and L1, CIFAR-100 and Tiny ImageNet": 58,
    "L2 to L4, CIFAR-100": 23,
    "L2 to L4, Tiny ImageNet": 30.5,
    "L9 to L11, Tiny ImageNet": 92.5,
    "every layer, UC Merced: more than": 90,
}
show.table(
    [
        [
            where,
            f"{per_cent:g} %",
            f"{WIDTH * per_cent / 100:.0f}",
            f"{WIDTH ** (per_cent / 100):.3g}",
        ]
        for where, per_cent in PUBLISHED.items()
    ],
    header=["layers", "as published", "dimensions, if linear", "if logarithmic"],
    caption=f"Published, not ours: per cents of effective dimension of a trained ViT-S, D = {WIDTH}, read from the text of "
    "[Awadhiya, 2025](https://arxiv.org/abs/2512.07331). The two columns on the right are what the same figure means by each of (3.1).",
)

# %% tags=["hide-input"]
THEIRS = 31.9  # effective rank of block 1 after 100 epochs, published data of TGO-I
show.say(
    f"The text does not settle which is meant. Nor does another source: the data published with [Kapil and Upla, 2026](https://arxiv.org/abs/2606.19249) have an effective "
    f"rank of {THEIRS} in the first block of a trained ViT-S/16, which is {100 * THEIRS / WIDTH:.1f} % on the linear scale and "
    f"{100 * math.log(THEIRS) / math.log(WIDTH):.1f} % on the logarithmic one. The second is strikingly close to the {PUBLISHED['L0 and L1, CIFAR-100 and Tiny ImageNet']} % above, from another data set, objective and "
    "tap; that is a hint and no proof. What hangs on it: a profile that is flat above 90 % has lost at most "
    f"{WIDTH * 0.1:.0f} of {WIDTH} dimensions by the one reading, and may have lost {WIDTH - WIDTH**0.9:.0f} by the other. And a fall from 58 to 23 % is "
    f"one by a factor of {58 / 23:.1f}, or of {WIDTH**0.35:.0f}. We report both, always named."
)

# %% [markdown]
# ## 4. What moves the number and is not dimension
#
# ### The mean
#
# Some codes leave out the centring of (1.1) and take the second moment instead. The two differ by one term,
#
# $$ \frac{1}{N} \sum_n x_n x_n^\top = \frac{N-1}{N}\, C + \bar x \bar x^\top, \tag{4.1} $$
#
# a spike along the mean. Tokens of networks often have a large mean, since biases and a common offset cost nothing. The spike takes the share
# $|\bar x|^2 / (|\bar x|^2 + \operatorname{tr} C)$ of the total, and you have seen above what a spike does. A layer whose mean grows seems to collapse, though no token has come nearer to another.
#
# ### LayerNorm
#
# Every block reads its tokens through a LayerNorm, which subtracts from each token the mean over its own features and divides by their
# standard deviation. Without its learned scale and shift,
#
# $$ \operatorname{LN}(x) = \sqrt{D}\; \frac{x - \tfrac{1}{D} \mathbf{1} \mathbf{1}^\top x}{\big| x - \tfrac{1}{D} \mathbf{1} \mathbf{1}^\top x \big|}. \tag{4.2} $$
#
# The first step projects the cloud along the direction $\mathbf 1$: one dimension is gone, exactly. The second puts all tokens on a sphere: a token ten times as long as the others counts a hundred
# times as much before, and the same after. A profile taken before the norm and one taken after it are two measurements; papers mix
# them, for instance when the last tap lies behind the final LayerNorm and all others do not.
#
# ### A few giant tokens
#
# Trained ViTs can have a few tokens of very large norm ([Darcet et al., 2024](https://arxiv.org/abs/2309.16588)). Variance is a mean of squares, so 1 % of tokens
# can own most of it. If they share a direction, they are a spike; if they do not, they count like most of the data, and the rank is that of a handful of rows.
#
# The next cell starts from one cloud with a known spectrum and does each of these to it. Its first row is the truth.

# %%
rng = np.random.default_rng(0)
dim, count = 64, 8192
axes = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
known = 1 / np.arange(1, dim + 1)
cloud = rng.standard_normal((count, dim)) * np.sqrt(known) @ axes.T
length = math.sqrt(known.sum())  # root of the mean squared length of a token
away = rng.standard_normal(dim)
away *= length / np.linalg.norm(away)
few = (np.arange(count) < count // 100)[:, None]

treated = {
    "as it is": cloud,
    "a mean added, as long as a token": cloud + away,
    "a mean added, three times as long": cloud + 3 * away,
    "1 % of tokens moved, ten lengths off": cloud + 10 * away * few,
    "1 % of tokens made 20 times longer": cloud * np.where(few, 20, 1),
}


def four_ways(X):
    """Return the effective rank centred, uncentred, on singular values, and of the tokens after LayerNorm."""
    normed = F.layer_norm(torch.from_numpy(X), X.shape[1:])
    return (
        spectra.effective_rank(spectra.eigenvalues(X)),
        spectra.effective_rank(spectra.eigenvalues(X, centred=False)),
        spectra.effective_rank_singular(spectra.singular_values(X)),
        spectra.effective_rank(spectra.eigenvalues(normed)),
    )


found = {name: four_ways(X) for name, X in treated.items()}
show.table(
    [[name, *(f"{value:.1f}" for value in row)] for name, row in found.items()],
    header=[
        "the cloud",
        "centred",
        "uncentred",
        "on singular values",
        "after LayerNorm",
    ],
    caption=f"Effective rank of one cloud of {count:,} tokens in {dim} dimensions, by four instruments, after five things that change the position or the length of tokens. "
    f"The true value in the first row and column is {spectra.effective_rank(known):.1f}.",
)

# %% tags=["hide-input"]
plain = found["as it is"]
low = min(min(row) for row in found.values())
high = max(max(row) for row in found.values())
show.say(
    f"One cloud, and anything from {low:.1f} to {high:.1f} dimensions. Centred, eigenvalues and singular values are blind to the mean; uncentred, a mean three times as long as a token leaves "
    f"{found['a mean added, three times as long'][1]:.1f} of {plain[1]:.1f}. Moving one token in a hundred far away leaves {found['1 % of tokens moved, ten lengths off'][0]:.1f} "
    f"even centred, and LayerNorm, which forgets lengths, reads {found['1 % of tokens moved, ten lengths off'][3]:.1f} there. The singular values start higher, at {plain[2]:.1f} where the eigenvalues read {plain[0]:.1f}. "
    "A statement about dimension has to say which column it is from."
)

# %% [markdown]
# ## 5. Too few rows
#
# All of this was about a spectrum that is known. In practice it is estimated from $N$ tokens, and the first thing to know is a ceiling:
#
# $$ \operatorname{rank} C \;\le\; \min(N - 1,\; D). \tag{5.1} $$
#
# A thousand class tokens in 384 dimensions are above this ceiling, so all seems well. It is not. Take a cloud that is isotropic in truth, all $\lambda_i = 1$. The
# eigenvalues of its sample covariance are *not* all 1: the sample is by chance a little longer one way and shorter another, and
# eigenvalues are found by looking for the longest way. With $\gamma = D/N$ they spread over the whole interval
#
# $$ \rho(\lambda) = \frac{\sqrt{(b - \lambda)(\lambda - a)}}{2 \pi \gamma \lambda}, \qquad a, b = \big(1 \mp \sqrt{\gamma}\,\big)^2, \tag{5.2} $$
#
# the law of Marchenko and Pastur (with a heap of zeros where $\gamma > 1$). Move the slider and watch a round cloud look less and less round.

# %% tags=["hide-input"]
ROWS = lab.choose(
    smoke=(200, 1000, 4000),
    laptop=(200, 400, 1000, 2000, 7680, 20_000),
    paper=(200, 400, 1000, 2000, 7680, 20_000),
)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    sampled = {
        rows: spectra.eigenvalues(
            np.random.default_rng(0).standard_normal((rows, WIDTH))
        )
        for rows in ROWS
    }


def marchenko_pastur(fig, rows):
    ax = fig.add_subplot()
    values = sampled[rows]
    ax.hist(
        values[values > 1e-9],
        bins=np.linspace(0, 6, 61),
        weights=np.full((values > 1e-9).sum(), 10 / WIDTH),
        color=show.look().colours[0],
        alpha=0.6,
    )
    gamma = WIDTH / rows
    a, b = (1 - math.sqrt(gamma)) ** 2, (1 + math.sqrt(gamma)) ** 2
    x = np.linspace(a, b, 400)[1:-1]
    ax.plot(
        x,
        np.sqrt((b - x) * (x - a)) / (2 * math.pi * gamma * x),
        color=show.look().ink,
        lw=1.6,
    )
    ax.axvline(1, color=show.look().muted, ls="--", lw=1.4)
    ax.annotate(
        "the truth",
        (1, 2.5),
        (6, 0),
        textcoords="offset points",
        color=show.look().muted,
    )
    ax.set(
        xlabel="eigenvalue",
        ylabel="density",
        xlim=(0, 6),
        ylim=(0, 2.8),
        title=f"{spectra.effective_rank(values):.0f} dimensions by the effective rank, {spectra.stable_rank(values):.0f} by the stable rank",
    )


show.interact(
    marchenko_pastur,
    values=ROWS,
    label="rows",
    text=lambda rows: f"{rows:,}",
    size=(7, 3.2),
    alt=lambda rows: (
        f"Histogram of the eigenvalues of an isotropic cloud in {WIDTH} dimensions sampled at {rows:,} rows, with the curve of Marchenko and Pastur through it and a dashed line at the true value 1."
    ),
    caption=f"Eigenvalues of a sample of a cloud that is isotropic in {WIDTH} dimensions: all true eigenvalues are 1. Line: (5.2). Where there are fewer rows than dimensions, "
    "eigenvalues that are zero are left out of the picture.",
)

# %% tags=["hide-input"]
show.say(
    "The course's instrument says so whenever it is asked for a spectrum from few rows: "
    f"*{warned[0].message}*"
)

# %% [markdown]
# How much is lost can be written down. Under (5.2) the mean of $\lambda \ln \lambda$ is $\gamma/2$ (for $\gamma \le 1$), and since the mean of $\lambda$ is 1, (1.3) becomes
#
# $$ H_N \approx \ln D - \frac{D}{2N} \quad (N \ge D), \qquad H_N \approx \ln N - \frac{N}{2D} \quad (N \le D), \tag{5.3} $$
#
# a formula that quantum physics knows as the entropy of a small part of a random whole ([Page, 1993](https://arxiv.org/abs/gr-qc/9305007)). The effective rank of an isotropic cloud is read as
# $D\,e^{-D/2N}$.

# %% tags=["hide-input"]
show.table(
    [
        [
            f"{rows:,}",
            f"{rows / WIDTH:.1f}",
            f"{math.exp(bias.isotropic_entropy(WIDTH, rows)):.0f}",
            f"{spectra.effective_rank(values):.0f}",
            f"{1 / (1 / WIDTH + 1 / rows):.0f}",
            f"{spectra.participation_ratio(values):.0f}",
        ]
        for rows, values in sampled.items()
    ],
    header=[
        "rows",
        "rows a dimension",
        "effective rank by (5.3)",
        "effective rank, simulated",
        "participation ratio by (5.6)",
        "participation ratio, simulated",
    ],
    caption=f"What a sample says about a cloud that has {WIDTH} dimensions in truth. At a thousand rows, the size of a usual set of class tokens, the bias is not small, "
    "and it pulls down.",
)

# %% [markdown]
# Two layers can be compared at equal $N$ if they have the same spectrum, but then there is nothing to compare: the loss depends on the spectrum. For independent
# Gaussian rows and small $D/N$ it is, to first order,
#
# $$ \operatorname{E} H_N - H \approx -\frac{1}{2N} \sum_{i \ne j} p_i p_j \, \frac{\ln p_i - \ln p_j}{p_i - p_j}, \tag{5.4} $$
#
# where the fraction is $1/p_i$ for equal $p$. (Where it comes from: chance mixes every pair of axes with variance $\lambda_i \lambda_j / N$, and the second derivative of $\lambda \ln \lambda$ says how much the
# entropy minds.) A flat spectrum loses most, a steep one little. So few rows make all profiles *flatter*: they pull down what is high.
#
# ### What can be mended exactly
#
# The participation ratio is $(\operatorname{tr} \Sigma)^2 / \operatorname{tr} \Sigma^2$, where $\Sigma$ is the true covariance. Look at rows of mean zero and write the trace of the square of the sample covariance as a double sum,
#
# $$ \operatorname{tr} S^2 = \frac{1}{N^2} \sum_{n} \sum_{m} (x_n^\top x_m)^2. \tag{5.5} $$
#
# For two *different*, independent rows the mean of $(x_n^\top x_m)^2$ is exactly $\operatorname{tr} \Sigma^2$. The trouble is all in the $N$ terms with $n = m$, which are $|x_n|^4$ and far too large. With them,
# the participation ratio is read as nearly
#
# $$ \frac{1}{R_2^{(N)}} \approx \frac{1}{R_2} + \frac{1}{N}. \tag{5.6} $$
#
# So leave them out:
#
# $$ \widehat{\operatorname{tr} \Sigma^2} = \frac{1}{N(N-1)} \sum_{n \ne m} (x_n^\top x_m)^2. \tag{5.7} $$
#
# This has no bias at all, at any $N$, for any distribution with four moments, even with fewer rows than dimensions. The unknown mean and $(\operatorname{tr} \Sigma)^2$ are treated alike: every product takes its
# factors from different rows ([Chun et al., 2025](https://arxiv.org/abs/2509.26560), do this for recordings of neurons). `bias.participation_ratio_unbiased` does it, and exercise 3 lets you do the simple case.
#
# ### What can be mended in part
#
# The entropy is no polynomial of the data, and no estimate of it is unbiased at every spectrum. But (5.4) says that its bias falls as $1/N$. So measure twice, on all and on half of the rows, and
# draw the line through both to $1/N = 0$:
#
# $$ \widehat H = \frac{N H_N - M H_M}{N - M}, \qquad M = N/2. \tag{5.8} $$
#
# `bias.entropy_extrapolated` does it, with $N - 1$ for $N$ because of the mean. It also draws the line through halves and quarters, and reports how far the two disagree, its *doubt*: where the
# bias does not fall as $1/N$ yet, they do not meet. Now the test that an instrument owes: spectra that are known, samples of all sizes.

# %%
dim = 64
KNOWN = {
    "isotropic": np.ones(dim),
    "power law": 1 / np.arange(1, dim + 1),
    "one spike": np.r_[20.0, np.ones(dim - 1)],
    "isotropic, heavy tails": np.ones(dim),
}
SIZES = (32, 64, 128, 256, 512, 1024)
REPEATS = lab.choose(smoke=3, laptop=12, paper=40)


def sample(name, rows, rng):
    """Return rows of the known covariance; of heavy tails only a little more than four moments exist."""
    X = rng.standard_normal((rows, dim)) * np.sqrt(KNOWN[name])
    if name.endswith("tails"):
        X *= np.sqrt(2.5 / rng.chisquare(4.5, (rows, 1)))
    return X


def estimates(X):
    """Return four estimates: effective rank, extrapolated, participation ratio, unbiased; and the doubt in nats."""
    entropy = bias.entropy_extrapolated(X, splits=2)
    gram = np.clip(np.linalg.eigvalsh(np.cov(X.T)), 0, None)
    return (
        math.exp(entropy.measured),
        math.exp(entropy.entropy),
        spectra.participation_ratio(gram),
        bias.participation_ratio_unbiased(X),
        entropy.doubt,
    )


tried = {
    name: np.array(
        [
            [
                estimates(sample(name, rows, np.random.default_rng(r)))
                for r in range(REPEATS)
            ]
            for rows in SIZES
        ]
    )
    for name in KNOWN
}  # of each (sizes, repeats, estimates)

# %% tags=["hide-input"]
ESTIMATES = ("measured", "extrapolated", "measured", "unbiased")


def corrected(fig):
    """Estimates over the truth, against rows a dimension: effective rank above, participation ratio below."""
    axes = fig.subplots(2, 4, sharex=True, sharey=True)
    for place, (name, spectrum) in enumerate(KNOWN.items()):
        column = axes[:, place]
        truths = (
            spectra.effective_rank(spectrum),
            spectra.participation_ratio(spectrum),
        )
        for ax, truth, pair in zip(column, truths, ((0, 1), (2, 3)), strict=True):
            for which, colour in zip(pair, show.look().colours, strict=False):
                ratio = tried[name][..., which] / truth
                show.lines(
                    ax,
                    np.array(SIZES) / dim,
                    ratio.mean(1),
                    *np.quantile(ratio, (0.1, 0.9), axis=1),
                    colour=colour,
                    label=ESTIMATES[which] if place == len(KNOWN) - 1 else None,
                )
            ax.axhline(1, color=show.look().muted, ls="--", lw=1.2, zorder=1)
            ax.set(xscale="log", ylim=(0.2, 1.6))
            ax.set_xticks([0.5, 2, 8], ["1/2", "2", "8"])
            ax.minorticks_off()
        column[0].set_title(name.replace(", ", ",\n"))
        column[1].set_xlabel("rows a dim.")
    axes[0, 0].set_ylabel("effective rank / truth")
    axes[1, 0].set_ylabel("part. ratio / truth")


show.figure(
    corrected,
    size=(8, 5),
    alt="Estimates divided by the truth against rows a dimension, for four known spectra: effective rank as measured and extrapolated in the upper row, participation ratio as measured and unbiased in the "
    "lower; a dashed line marks the truth.",
    caption=f"Four clouds in {dim} dimensions whose spectra are known, {REPEATS} samples each; bands hold the middle 80 % of them. Dashed: the truth.",
)

# %% tags=["hide-input"]


def error(name, rows, which):
    """Return the mean error of an estimate of a known spectrum in per cent of the truth."""
    measure = spectra.effective_rank if which < 2 else spectra.participation_ratio
    return 100 * (
        tried[name][SIZES.index(rows), :, which].mean() / measure(KNOWN[name]) - 1
    )


worst = max(KNOWN, key=lambda name: abs(error(name, 256, 1)))
show.table(
    [
        [
            name,
            *(
                f"{error(name, rows, which):+.0f} %"
                for rows in (32, 256)
                for which in range(4)
            ),
        ]
        for name in KNOWN
    ],
    header=[
        "spectrum",
        *(
            f"{what}, {rows} rows"
            for rows in (32, 256)
            for what in (
                "effective rank",
                "extrapolated",
                "participation ratio",
                "unbiased",
            )
        ),
    ],
    caption=f"Mean error of each estimate in {dim} dimensions, at half a row and at four rows a dimension.",
)

# %% tags=["hide-input"]
show.say(
    f"At four rows a dimension the extrapolation leaves at most {abs(error(worst, 256, 1)):.0f} % of error ({worst}), where the plain effective rank is off by up to "
    f"{max(abs(error(name, 256, 0)) for name in KNOWN):.0f} %. At half a row a dimension it fails: {error('isotropic', 32, 1):+.0f} % on the isotropic cloud. Its doubt is "
    f"{tried['isotropic'][0, :, 4].mean():.2f} nats there and {tried['isotropic'][3, :, 4].mean():.3f} at four rows a dimension. The unbiased participation ratio is off by {error('isotropic', 32, 3):+.0f} % and "
    f"{error('isotropic', 256, 3):+.0f} %"
    + (
        ": where rows are short, it is the count to trust. "
        if abs(error("isotropic", 32, 3)) < abs(error("isotropic", 32, 1))
        else ". "
    )
    + f"With heavy tails at half a row a dimension it is off by {error('isotropic, heavy tails', 32, 3):+.0f} % on the average, and its band is wide: "
    "no bias does not mean no noise, and a ratio of two unbiased numbers is not quite unbiased."
)

# %% [markdown]
# > **Warning.** Digits are a second way to lose dimensions. Tokens come in single precision. Whoever sums $x x^\top$ in single precision and subtracts $\bar x \bar x^\top$ at
# > the end takes the difference of two large numbers, and when the mean is large the difference is round-off. The next cell moves the cloud of section 4 a thousand units away, which
# > changes no dimension, and measures it both ways.

# %%
moved = (cloud + 1000).astype(np.float32)
mean = moved.mean(0)
naive = moved.T @ moved / len(moved) - np.outer(mean, mean)
values = np.clip(np.linalg.eigvalsh(naive.astype(np.float64)), 0, None)
print(f"true spectrum                     {spectra.effective_rank(known):6.2f}")
print(
    f"sample, double precision          {spectra.effective_rank(spectra.eigenvalues(cloud)):6.2f}"
)
print(f"moved, single, subtracted at last {spectra.effective_rank(values):6.2f}")
streaming = spectra.Covariance(cloud.shape[1])
streaming.update(moved)
print(
    f"moved, single, vitlab's covariance {spectra.effective_rank(streaming.eigenvalues()):5.2f}"
)

# %% [markdown]
# ## 6. Tokens of one image are not rows
#
# A ViT gives 196 tokens an image, so forty images make nearly eight thousand rows. Twenty rows a dimension, all warnings silent. But (5.7) needed *independent* rows, and the tokens of one image share its light,
# its colours and its textures. How many independent rows are they worth? Take one kind of tokens, raw patches of 4 x 4 pixels, and draw the same number of rows in two ways: one patch from each of
# many images, or all patches of few.

# %%
MANY = lab.choose(smoke=600, laptop=2000, paper=2000)
SOURCES = {
    "scenes": data.load("scenes", "train", limit=MANY, size=32, complexity=1.0),
    "textures": data.load("textures", "train", limit=MANY, size=32),
}


def patches(images, side):
    """Return the pixels of each patch of images (N, 3, H, H): (N, patches, 3 * side * side)."""
    return F.unfold(images, side, stride=side).transpose(1, 2)


tokens = {
    name: patches(s.tensor(), 4).double().numpy() for name, s in SOURCES.items()
}
whole = {
    name: spectra.effective_rank(spectra.eigenvalues(x)) for name, x in tokens.items()
}
COUNTS_OF_ROWS = (64, 128, 256, 512)
DRAWS = lab.choose(smoke=4, laptop=30, paper=30)


@torch.no_grad()
def drawn(x, rows, rng):
    """Return the effective rank of as many rows: one of each image, and all of few images."""
    images, each, width = x.shape
    one = x[rng.choice(images, rows, replace=False), rng.integers(each, size=rows)]
    all_of_few = x[rng.choice(images, rows // each, replace=False)].reshape(-1, width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows are what is asked about
        return [
            spectra.effective_rank(spectra.eigenvalues(some))
            for some in (one, all_of_few)
        ]


two_ways = {
    name: np.array(
        [
            [drawn(x, rows, np.random.default_rng(r)) for r in range(DRAWS)]
            for rows in COUNTS_OF_ROWS
        ]
    )
    for name, x in tokens.items()
}  # of each (rows, draws, 2)

# %% tags=["hide-input"]


def shared(fig):
    for ax, (name, values) in zip(
        fig.subplots(1, 2, sharey=True), two_ways.items(), strict=True
    ):
        for way, label in enumerate(("one patch an image", "all of few images")):
            ratio = 100 * values[..., way] / whole[name]
            show.lines(
                ax,
                COUNTS_OF_ROWS,
                ratio.mean(1),
                *np.quantile(ratio, (0.1, 0.9), axis=1),
                label=label,
                markers=True,
            )
        ax.axhline(100, color=show.look().muted, ls="--", lw=1.2, zorder=1)
        ax.set(xscale="log", xlabel="rows", title=name, ylim=(0, 125))
        ax.set_xticks(COUNTS_OF_ROWS, [str(n) for n in COUNTS_OF_ROWS])
        ax.minorticks_off()
    fig.axes[0].set_ylabel("effective rank (% of that of all)")


show.figure(
    shared,
    size=(8, 3.4),
    alt="Effective rank in per cent of that of all patches against the number of rows, for generated scenes and for textures: rows taken one from each image, and rows that are all patches of few images.",
    caption=f"The same number of rows, drawn in two ways, {DRAWS} times; bands hold the middle 80 %. Dashed: all patches of {MANY:,} images. Raw patches of 4 x 4 pixels, {4 * 4 * 3} numbers each.",
)

# %% [markdown]
# A number for it: count by noise. The covariance $S$ of $N$ independent Gaussian rows, centred, strays from the truth by
#
# $$ \operatorname{E} |S - \Sigma|^2 = \operatorname{E} \operatorname{tr} S^2 - \operatorname{tr} \Sigma^2 = \frac{\operatorname{tr} \Sigma^2 + (\operatorname{tr} \Sigma)^2}{N - 1}. \tag{6.1} $$
#
# Both traces can be had without bias, from products of different *images* where (5.7) has different rows. So measure the left side and solve for $N$: the number of independent rows that would have given a covariance as
# noisy as ours. `bias.equivalent_rows` does this; heavy tails lower it too, as they should.

# %% tags=["hide-input"]
worth = {name: bias.equivalent_rows(x) for name, x in tokens.items()}
some = {name: bias.equivalent_rows(x[:64]) for name, x in tokens.items()}
show.say(
    "; ".join(
        f"{x.shape[0]:,} images of {name} have {x.shape[0] * x.shape[1]:,} patches, worth {worth[name]:,.0f} independent rows, {worth[name] / x.shape[0]:.1f} an image"
        for name, x in tokens.items()
    )
    + ". This is why every correction of ours draws, halves and pairs whole images and not tokens. Our rule of twenty rows a dimension, too, should be read in such rows."
)

# %% [markdown]
# ## 7. Before any training: what the images bring
#
# Now the control. A network that has never been trained is a fixed random function, nearly linear. What dimension its tokens have must come from the images. And for the very first layer we can say which property of the
# images it is. If pictures are statistically alike at every place, the covariance of two pixels of a patch depends only on their offset, and by the theorem of Wiener and Khinchin
#
# $$ \Sigma_{ab} = r(a - b), \qquad r = \text{Fourier transform of the power spectrum}. \tag{7.1} $$
#
# So the spectrum of raw patches, and of any linear embedding of them, is decided by the *power spectrum* of the pictures alone. Forms, objects and what they mean live in the phases, and (7.1) does not see phases. This gives us
# pictures to play with:
#
# - **scrambled phases**: each picture keeps its power at every frequency, and gets the phases of noise ([Oppenheim and Lim, 1981](https://doi.org/10.1109/PROC.1981.12022)). No objects are left. If the dimension stays, it was never about objects.
# - **lost resolution**: pictures shrunk and enlarged again. This is what every small-picture data set has gone through before it reaches a network for 224 pixels, and UC Merced (256 pixels) has not.
# - **noise** whose power falls as frequency to the minus $a$: white for $a = 0$, about that of photographs for $a = 2$ ([Field, 1987](https://doi.org/10.1364/JOSAA.4.002379)).

# %%


def pictures(name, size, count, seed):
    """Return float images (N, 3, size, size): of a data set, of scenes at a dial, of noise; scrambled or from fewer pixels."""
    source, *changes = name.split("/")
    if source == "noise":
        images = scrambled.noise(count, size, float(changes.pop(0)), seed)
    elif source == "scenes":
        dial = float(changes.pop(0))
        images = data.load(
            "scenes", "train", size=size, limit=count, seed=seed, complexity=dial
        ).images
    else:
        options = {"crop": max(64, size)} if source == "textures" else {}
        images = data.load(
            source, "train", size=size, limit=count, seed=seed, **options
        ).images
    for change in changes:
        if change == "scrambled":
            images = scrambled.phases(images, seed)
        else:
            images = scrambled.upsampled(images, int(change.removeprefix("from ")))
    x = torch.tensor(images).permute(0, 3, 1, 2)
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


TEXTURE = lab.choose(smoke="textures", laptop="ucmerced", paper="ucmerced")
OBJECTS = lab.choose(
    smoke=("scenes/0.5", "scenes/1"),
    laptop=("tinyimagenet", "cifar100"),
    paper=("tinyimagenet", "cifar100"),
)
REAL = tuple(dict.fromkeys((TEXTURE, *OBJECTS, "textures")))
LABELS = {
    "ucmerced": "UC Merced",
    "tinyimagenet": "Tiny ImageNet",
    "cifar100": "CIFAR-100",
    "textures": "brick, grass, gravel",
    "scenes/0": "scenes, dial 0",
    "scenes/0.5": "scenes, dial 1/2",
    "scenes/1": "scenes, dial 1",
    "noise/0": "white noise",
    "noise/1": "noise, a = 1",
    "noise/2": "noise, a = 2",
    "noise/3": "noise, a = 3",
}


def label(name):
    """Return how a set is called on the page."""
    for known, words in LABELS.items():
        if name == known:
            return words
        if name.startswith(known + "/"):
            change = name.removeprefix(known + "/")
            return f"{words}, {change}" + (" px" if change.startswith("from") else "")
    raise KeyError(name)


# %% tags=["hide-input"]
SHOWN = (
    "textures",
    "textures/scrambled",
    "textures/from 16",
    "scenes/1",
    "scenes/1/scrambled",
    "noise/0",
    "noise/1",
    "noise/2",
)
show.images(
    [pictures(name, 64, 3, 0)[2].clip(0, 1) for name in SHOWN],
    titles=[
        "bricks",
        "scrambled",
        "from 16 px",
        "scene",
        "scrambled",
        "white noise",
        "noise, a = 1",
        "noise, a = 2",
    ],
    alt="Eight small pictures: bricks, the same with scrambled phases, the same without its fine grain, a scene of coloured shapes, the same scrambled into coloured clouds, and three kinds of noise from fine to coarse.",
    caption="Pictures of 64 pixels and what is made of them. Scrambled ones have the power spectrum of their original to the last digit, and nothing else of it.",
)

# %% [markdown]
# The networks: the small ViT of this course's coming chapters (64 wide, eight blocks, patches of 4 on 32 pixels), and ViT-S/16 as published (384 wide, twelve blocks, 224 pixels). For each seed a new
# initialisation and a new choice of images. We read the patch tokens, without the class token, at every depth: raw pixels, after the patch embedding, after positions are added, after each block.

# %%
SMALL = lab.choose(
    smoke=ViTConfig(image_size=32, patch_size=4, dim=16, depth=2, heads=2),
    laptop=ViTConfig(image_size=32, patch_size=4, dim=64, depth=8, heads=2),
    paper=ViTConfig(image_size=32, patch_size=4, dim=64, depth=8, heads=2),
)
LARGE = lab.choose(
    smoke=ViTConfig(image_size=64, patch_size=16, dim=24, depth=2, heads=2),
    laptop=ViTConfig.small(),
    paper=ViTConfig.small(),
)
LOW = {"small": 8, "large": lab.choose(smoke=16, laptop=32, paper=32)}
METRICS = (
    "effective_rank",
    "effective_rank_singular",
    "participation_ratio",
    "stable_rank",
    "uncentred",
    "normed",
    "mean_share",
)


@torch.no_grad()
def layers(model, images):
    """Yield the patch tokens (images, patches, dim) at every depth: raw pixels first, the last block last."""
    yield patches(images, model.config.patch_size)
    names = [
        "patch_embed",
        "pos_embed",
        *(f"block.{i}" for i in range(len(model.blocks))),
    ]
    device = next(model.parameters()).device
    with hooks.taps(model, names, keep="all") as seen:
        for part in images.split(50):
            model(2 * part.to(device) - 1)
    for name in names:
        yield seen[name] if name == "patch_embed" else seen[name][:, 1:]


def read(tokens):
    """Return METRICS of tokens (images, patches, dim)."""
    covariance = spectra.Covariance(tokens.shape[-1])
    covariance.update(tokens)
    values = covariance.eigenvalues()
    second = np.linalg.eigvalsh(covariance.second_moment())
    normed = spectra.eigenvalues(F.layer_norm(tokens, tokens.shape[-1:]))
    counts = spectra.summary(values)
    square = float((covariance.mean**2).sum())
    return [
        *(counts[name] for name in METRICS[:4]),
        spectra.effective_rank(np.clip(second, 0, None)),
        spectra.effective_rank(normed),
        square / (square + values.sum()),
    ]


def untrained(seed, network, sets, count):
    """Measure every set of images at every depth of a network that has just been initialised."""
    config = {"small": SMALL, "large": LARGE}[network]
    model = ViT(config).to(lab.device()).eval()
    metrics, mended = [], []
    for name in sets:
        images = pictures(name, config.image_size, count, seed)
        depths = list(layers(model, images))
        first = depths[3]  # after the first block
        extrapolated = bias.entropy_extrapolated(first, splits=2, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # how many rows there are is told on the page
            metrics.append([read(tokens) for tokens in depths])
        mended.append(
            [
                extrapolated.entropy,
                extrapolated.doubt,
                bias.participation_ratio_unbiased(first),
                1 / bias.equivalent_rows(first),
            ]
        )
    return {
        "metrics": np.array(metrics, np.float32),  # (sets, depths, METRICS)
        "mended": np.array(mended, np.float32),  # (sets, 4), after the first block
        "rows": first.shape[0] * first.shape[1],
    }


# %%
SETS_SMALL = lab.choose(
    smoke=(
        *REAL, "scenes/0", "noise/0", "noise/2",
        *(f"{name}/scrambled" for name in REAL),
        *(f"{name}/from 8" for name in REAL),
    ),
    laptop=(
        *REAL, "scenes/0", "scenes/0.5", "scenes/1", "noise/0", "noise/1", "noise/2", "noise/3",
        *(f"{name}/scrambled" for name in (*REAL, "scenes/0", "scenes/1")),
        *(f"{name}/from 8" for name in REAL),
    ),
    paper=(
        *REAL, "scenes/0", "scenes/0.5", "scenes/1", "noise/0", "noise/1", "noise/2", "noise/3",
        *(f"{name}/scrambled" for name in (*REAL, "scenes/0", "scenes/1")),
        *(f"{name}/from 8" for name in REAL),
    ),
)  # fmt: skip
SETS_LARGE = lab.choose(
    smoke=(*REAL, "scenes/0", "noise/0", f"{TEXTURE}/scrambled", f"{OBJECTS[1]}/scrambled",
           f"{TEXTURE}/from 16", f"{OBJECTS[0]}/from 16", f"{OBJECTS[1]}/from 16"),
    laptop=(*REAL, "scenes/0", "scenes/1", "noise/0", f"{TEXTURE}/scrambled",
            f"{OBJECTS[1]}/scrambled", f"{TEXTURE}/from 32", f"{OBJECTS[0]}/from 32"),
    paper=(*REAL, "scenes/0", "scenes/1", "noise/0", f"{TEXTURE}/scrambled",
           f"{OBJECTS[1]}/scrambled", f"{TEXTURE}/from 32", f"{OBJECTS[0]}/from 32"),
)  # fmt: skip

small = lab.record(
    "dimension_untrained",
    untrained,
    seeds=lab.choose(smoke=3, laptop=5, paper=5),
    network="small",
    sets=SETS_SMALL,
    count=lab.choose(smoke=32, laptop=300, paper=2000),
    rank=2,
    minutes=lab.choose(smoke=0.1, laptop=1, paper=3),
)
small

# %%
large = lab.record(
    "dimension_untrained_s16",
    untrained,
    seeds=lab.choose(smoke=3, laptop=5, paper=5),
    network="large",
    sets=SETS_LARGE,
    count=lab.choose(smoke=24, laptop=40, paper=400),
    rank=1,
    minutes=lab.choose(smoke=0.1, laptop=3, paper=5),
)
large

# %% tags=["hide-input"]
NETWORKS = {
    "small": (small, SETS_SMALL, SMALL, f"ViT, {SMALL.dim} wide"),
    "large": (
        large,
        SETS_LARGE,
        LARGE,
        "ViT-S/16" if lab.scale() != "smoke" else "ViT, 24 wide",
    ),
}


told = functools.partial(show.told, plus="")  # levels, and factors


def measured(network, name, metric="effective_rank", depth=slice(None)):
    """Return a metric of a set, each seed by itself: (seeds, depths)."""
    record, sets, _, _ = NETWORKS[network]
    return record["metrics"][
        :, sets.index(name), depth, METRICS.index(metric)
    ].astype(float)


def nats(network, name, depth=slice(None)):
    """Return the spectral entropy, whose differences are the same in both conventions up to a unit: (seeds, depths)."""
    return np.log(measured(network, name, depth=depth))


def times(network, one, other, depth):
    """Return how many times more dimensions one set has than another, with its interval over seeds."""
    of_logs = statistics.seeds_interval(
        nats(network, one, depth) - nats(network, other, depth)
    )
    return statistics.Interval(*map(np.exp, of_logs))


FIRST = 3  # depth: raw pixels, patch embedding, positions, first block
show.say(
    f"The small network is measured with {int(small['rows'][0]):,} tokens a set, {int(small['rows'][0]) / SMALL.dim:.0f} a dimension, and {len(small.seeds)} seeds; the large one with {int(large['rows'][0]):,}, "
    f"{int(large['rows'][0]) / LARGE.dim:.0f} a dimension, and {len(large.seeds)} seeds. Intervals are over seeds, that is over initialisations and choices of images at once."
)

# %% [markdown]
# ### Profiles of networks that know nothing

# %% tags=["hide-input"]
LINES = lab.choose(
    smoke=(*REAL, "noise/0"),
    laptop=(*REAL, "noise/0"),
    paper=(*REAL, "noise/0"),
)


def profiles(fig, network):
    """EED through depth in both conventions."""
    config = NETWORKS[network][2]
    linear, log = fig.subplots(1, 2)
    for place, name in enumerate(LINES):
        counts = measured(network, name)[:, 1:]  # raw pixels have another width
        x = np.arange(-1, counts.shape[1] - 1)
        for ax, values in (
            (linear, 100 * counts / config.dim),
            (log, 100 * np.log(counts) / math.log(config.dim)),
        ):
            show.lines(
                ax,
                x,
                *statistics.seeds_interval(values),
                label=label(name) if ax is log else None,
                colour=show.look().colours[place],
            )
    linear.set(
        yscale="log",
        ylim=(0.4, 110),
        ylabel="EED, linear (%)",
    )
    linear.set_yticks(
        [0.5, 1, 2, 5, 10, 20, 50, 100],
        ["0.5", "1", "2", "5", "10", "20", "50", "100"],
    )
    linear.minorticks_off()
    log.set(ylim=(0, 105), ylabel="EED, logarithmic (%)")
    for ax in (linear, log):
        blocks = config.depth
        ticks = [-1, 0, *range(2, blocks + 1, 2)]
        ax.set_xticks(ticks, ["E", "P", *map(str, ticks[2:])])
        ax.set_xlabel("depth (block)")


show.interact(
    profiles,
    values=list(NETWORKS)[::-1],
    label="network",
    text=lambda network: NETWORKS[network][3],
    size=(8, 3.8),
    alt=lambda network: (
        f"Effective dimension of the tokens of an untrained {NETWORKS[network][3]} through depth, for several sets of images and white noise, in per cent by the linear and by the logarithmic convention."
    ),
    caption="Untrained networks. E: patch embedding, P: positions added, then the blocks. Bands: 95 % intervals over seeds. The left axis is logarithmic, or the lower lines could not be told apart.",
)

# %% tags=["hide-input"]
rises = {
    name: statistics.seeds_interval(
        np.log(measured("large", name)[:, -1] / measured("large", name)[:, 2])
    )
    for name in LINES
}
show.say(
    f"From where the tokens enter the first block of {NETWORKS['large'][3]} to the last, effective rank changes by a factor of "
    + "; ".join(
        f"{label(name)} {told(map(math.exp, change), 2)}"
        for name, change in rises.items()
    )
    + ". A profile through depth is there, then, in a network that has learned nothing"
    + (
        ", and thin clouds grow rounder while the round one grows thinner. "
        if sign(rises["noise/0"]) < 0 and all(sign(rises[name]) > 0 for name in REAL)
        else ". "
    )
    + "We expect two causes: the LayerNorm in front of a block makes short tokens long, and with them the small differences that positions make, so that a random block adds something rounder than it was given; and attention averages "
    "over tokens, which takes from what differs between them. Neither was put to a test here."
)

# %% tags=["hide-input"]


def row_of(name):
    """Return the cells of a set after the first block, in both networks."""
    cells = [label(name)]
    for network, (_, sets, config, _) in NETWORKS.items():
        if name not in sets:
            cells += ["", "", ""]
            continue
        rank = measured(network, name, depth=FIRST)
        cells += [
            told(statistics.seeds_interval(rank)),
            f"{100 * rank.mean() / config.dim:.1f}",
            f"{100 * np.log(rank).mean() / math.log(config.dim):.0f}",
        ]
    return cells


show.table(
    [row_of(name) for name in dict.fromkeys((*SETS_SMALL, *SETS_LARGE))],
    header=[
        "images",
        *(
            f"{what}, {NETWORKS[network][3]}"
            for network in NETWORKS
            for what in ("effective rank", "EED lin., %", "EED log., %")
        ),
    ],
    caption="After the first block of untrained networks: effective rank with 95 % intervals over seeds, and both per cents. Empty: not measured.",
)

# %% tags=["hide-input"]


def order(network):
    """Return in words how the sets compare after the first block."""
    return ", ".join(
        f"{label(name)} {told(statistics.seeds_interval(measured(network, name, depth=FIRST)))}"
        for name in sorted(
            REAL, key=lambda name: -measured(network, name, depth=FIRST).mean()
        )
    )


dial = {
    name: measured("small", name, depth=FIRST) for name in ("scenes/0", "scenes/1")
}
dial_change = statistics.seeds_interval(np.log(dial["scenes/1"] / dial["scenes/0"]))
noisy = {network: measured(network, "noise/0") for network in NETWORKS}
show.say(
    f"After one block, untrained, the dimensions are in {NETWORKS['large'][3]}: {order('large')}; and in the small one: {order('small')}. White noise, whose raw patches fill their space, has "
    f"{noisy['large'][:, FIRST].mean():.0f} of {LARGE.dim} and {noisy['small'][:, FIRST].mean():.0f} of {SMALL.dim} (a patch of {SMALL.patch_size} x {SMALL.patch_size} pixels has only "
    f"{3 * SMALL.patch_size**2} numbers, so the {'small network could not reach its width' if 3 * SMALL.patch_size**2 < SMALL.dim else 'bound is not felt'})."
)

# %% tags=["hide-input"]
show.say(
    f"The dial of the generated scenes teaches something else. At 0 they are textures, at 1 up to six objects lie on them. From 0 to 1 the dimension changes by a factor of "
    f"{told(map(math.exp, dial_change), 2)} after the first block of the small network: "
    + {
        1: "objects *raise* it here, for sharp edges and many colours are rich in high frequencies. So objects do not as such have fewer dimensions than textures; it depends on which objects, drawn how.",
        -1: "objects lower it, as in the published order.",
        0: "no decided change.",
    }[sign(dial_change)]
)

# %% [markdown]
# ### What it is about the images

# %% tags=["hide-input"]
PAIRS = {
    network: [
        name
        for name in NETWORKS[network][1]
        if "/scrambled" in name or "/from" in name
    ]
    for network in NETWORKS
}


def kept(fig):
    """How many times the dimensions of the original each changed set has, at three depths."""
    for ax, (network, names) in zip(fig.subplots(1, 2), PAIRS.items(), strict=True):
        depth = NETWORKS[network][2].depth
        for shift, (at, marker) in zip(
            (-0.2, 0, 0.2), ((0, "s"), (FIRST, "o"), (2 + depth, "^")), strict=True
        ):
            bars = [
                times(network, name, name.rpartition("/")[0], at) for name in names
            ]
            mean, low, high = (
                np.array([getattr(b, k) for b in bars])
                for k in ("mean", "low", "high")
            )
            ax.errorbar(
                mean,
                np.arange(len(names)) + shift,
                xerr=np.stack([mean - low, high - mean]),
                fmt=marker,
                ms=4.5,
                lw=1.2,
                color=show.look().colours[{"s": 0, "o": 1, "^": 2}[marker]],
                label={"s": "raw patches", "o": "first block", "^": "last block"}[
                    marker
                ],
            )
        ax.axvline(1, color=show.look().muted, ls="--", lw=1.2, zorder=0)
        ax.set(
            xscale="log",
            xlim=(0.12, 2.2),
            yticks=range(len(names)),
            yticklabels=[label(name) for name in names],
            ylim=(len(names) - 0.4, -0.6),
            xlabel="times the original",
            title=NETWORKS[network][3],
        )
        ax.set_xticks([0.25, 0.5, 1, 2], ["1/4", "1/2", "1", "2"])
        ax.minorticks_off()
    fig.legend(
        *fig.axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )


show.figure(
    kept,
    size=(9, 5),
    alt="Dots with intervals: how many times the dimensions of the original images remain when phases are scrambled or resolution is lost, for raw patches, the first and the last block, in two untrained networks.",
    caption="What two changes of the pictures do to the effective rank. Squares: raw patches, dots: first block, triangles: last block; bars: 95 % intervals over seeds. Dashed: nothing changes.",
)

# %% tags=["hide-input"]
RAW = 0
after_scrambling = [
    times(network, name, name.rpartition("/")[0], RAW)
    for network in NETWORKS
    for name in PAIRS[network]
    if name.endswith("scrambled")
]
after_loss = [
    times(network, name, name.rpartition("/")[0], RAW)
    for network in NETWORKS
    for name in PAIRS[network]
    if "/from" in name
]
last_scrambled = [
    times(network, name, name.rpartition("/")[0], 2 + NETWORKS[network][2].depth)
    for network in NETWORKS
    for name in PAIRS[network]
    if name.endswith("scrambled")
]
show.say(
    f"Scrambling the phases destroys every object and leaves {min(r.mean for r in after_scrambling):.2f} to {max(r.mean for r in after_scrambling):.2f} times the dimensions of raw patches (and "
    f"{min(r.mean for r in last_scrambled):.2f} to {max(r.mean for r in last_scrambled):.2f} times after the last block). It need not leave exactly 1: pictures are not alike at every place, and the Fourier transform closes a picture to a ring, so that the jump at its border becomes power at all "
    f"frequencies and is spread over all patches. Losing resolution leaves {min(r.mean for r in after_loss):.2f} to {max(r.mean for r in after_loss):.2f} times."
)

# %% [markdown]
# ### The order, before training
#
# Is the texture set above the object sets? The sign of a difference of entropies is the same in both conventions, so the question can be put without choosing one: by how many times does the texture set exceed the object sets,
# with what interval? And because UC Merced comes with eight times the resolution of CIFAR-100, the same again with all pictures brought to the network from the same 32 pixels.

# %% tags=["hide-input"]
NATIVE = lab.choose(
    smoke=None, laptop="cifar100", paper="cifar100"
)  # has 32 pixels as it is


def at_low(name):
    """Return the set's name with as few pixels as the smallest has."""
    return name if name == NATIVE else f"{name}/from {LOW['large']}"


def depths(network):
    """Return the depths at which the order is asked: first, middle and last block."""
    last = 2 + NETWORKS[network][2].depth
    return {"first block": FIRST, "middle": (FIRST + last) // 2, "last block": last}


comparisons = {}  # what is compared, and at which depths
for network in NETWORKS:
    for other in OBJECTS:
        comparisons[f"{NETWORKS[network][3]}, over {label(other)}"] = [
            times(network, TEXTURE, other, at) for at in depths(network).values()
        ]
equal_pixels = {
    f"{NETWORKS['large'][3]}, all from {LOW['large']} px, over {label(other)}": [
        times("large", at_low(TEXTURE), at_low(other), at)
        for at in depths("large").values()
    ]
    for other in OBJECTS
}
without_forms = {
    f"{NETWORKS[network][3]}, all scrambled, over {label(other)}": [
        times(network, f"{TEXTURE}/scrambled", f"{other}/scrambled", at)
        for at in depths(network).values()
    ]
    for network in NETWORKS
    for other in OBJECTS
    if f"{other}/scrambled" in NETWORKS[network][1]
}
show.table(
    [
        [what, *(told(interval, 2) for interval in row)]
        for what, row in (comparisons | without_forms | equal_pixels).items()
    ],
    header=["network, compared with", *depths("large")],
    caption=f"How many times the dimensions of the object set {label(TEXTURE)} has in untrained networks; 1 is no difference. 95 % intervals over seeds.",
)

# %% tags=["hide-input"]


def decided(rows):
    """Return the signs of all comparisons, from their logarithms."""
    return [
        sign(statistics.Interval(*map(np.log, interval)))
        for row in rows
        for interval in row
    ]


signs, signs_equal = decided(comparisons.values()), decided(equal_pixels.values())
signs_scrambled = decided(without_forms.values())
share_above = [
    float(np.mean(np.array(s) > 0)) for s in (signs, signs_equal, signs_scrambled)
]  # as the sets come, with equal pixels, without forms
above = all(s > 0 for s in signs)
with_three = decided(
    [
        statistics.Interval(
            *map(
                np.exp,
                statistics.seeds_interval(
                    (nats(n, TEXTURE, at) - nats(n, other, at))[:3]
                ),
            )
        )
        for at in depths(n).values()
    ]
    for n in NETWORKS
    for other in OBJECTS
)
texture_profile = {n: measured(n, TEXTURE)[:, FIRST:].mean(0) for n in NETWORKS}
waviness = {n: p.max() / p.min() for n, p in texture_profile.items()}
show.say(
    f"As the sets come, {label(TEXTURE)} is decidedly above the object sets in {sum(s > 0 for s in signs)} of {len(signs)} comparisons and below in {sum(s < 0 for s in signs)}, "
    f"before any training. Without forms, all phases scrambled, it is above in {sum(s > 0 for s in signs_scrambled)} of {len(signs_scrambled)}. With equal pixels it is above in {sum(s > 0 for s in signs_equal)} of {len(signs_equal)} and below in {sum(s < 0 for s in signs_equal)}"
    + (
        ": part of the order is that the texture pictures have kept a fine grain which small pictures have lost. "
        if share_above[1] < share_above[0]
        else ". "
    )
    + (
        f"(With the first three seeds of each network it was above in {sum(s > 0 for s in with_three)} of {len(with_three)}. The last two seeds of {NETWORKS['large'][3]} were recorded after that was seen, which makes its intervals a little less strict than they look.) "
        if len(large.seeds) > 3
        else ""
    )
    + f"Nor are untrained profiles level: from the first block to the last, the highest effective rank of {label(TEXTURE)} is {waviness['large']:.2f} times the lowest in {NETWORKS['large'][3]} "
    f"and {waviness['small']:.2f} times in the small network, and that of {label(OBJECTS[1])} in {NETWORKS['large'][3]} is {(lambda p: p.max() / p.min())(measured('large', OBJECTS[1])[:, FIRST:].mean(0)):.2f} times."
)

# %% [markdown]
# ### Is the instrument steady here?
#
# Everything of sections 4 to 6 at once, on these very tokens after the first block: does the number survive a change of instrument?

# %% tags=["hide-input"]


def instruments(network, name):
    record, sets, _, _ = NETWORKS[network]
    entropy, doubt, ratio, noise = (
        record["mended"][:, sets.index(name)].astype(float).mean(0)
    )

    def mean(metric):
        return measured(network, name, metric, FIRST).mean()

    return [
        f"{label(name)}, {NETWORKS[network][3]}",
        f"{mean('effective_rank'):.1f}",
        f"{math.exp(entropy):.1f} ± {math.exp(entropy) * doubt:.1f}",
        f"{mean('participation_ratio'):.1f}",
        f"{ratio:.1f}",
        f"{mean('stable_rank'):.1f}",
        f"{mean('uncentred'):.1f}",
        f"{mean('normed'):.1f}",
        f"{mean('effective_rank_singular'):.1f}",
        f"{1 / noise:,.0f}" if noise > 0 else "all",
    ]


show.table(
    [
        instruments(network, name)
        for network in ("large", "small")
        for name in (*REAL, "noise/0")
    ],
    header=[
        "tokens",
        "effective rank",
        "extrapolated",
        "participation ratio",
        "unbiased",
        "stable rank",
        "effective rank, uncentred",
        "after LayerNorm",
        "on singular values",
        "worth rows",
    ],
    caption=f"After the first block, means over seeds; ± is the doubt of the extrapolation. The last column is (6.1): how many independent Gaussian rows the {int(large['rows'][0]):,} or {int(small['rows'][0]):,} tokens are worth.",
)

# %% tags=["hide-input"]
ratios = {
    name: measured("large", name, "normed", FIRST).mean()
    / measured("large", name, depth=FIRST).mean()
    for name in REAL
}
fullest, emptiest = (
    max(REAL, key=lambda n: measured("large", n, depth=FIRST).mean()),
    min(REAL, key=lambda n: measured("large", n, depth=FIRST).mean()),
)
noise_share = {
    network: 1
    / max(1e-9, float(record["mended"][:, [sets.index(n) for n in REAL], 3].max()))
    for network, (record, sets, _, _) in NETWORKS.items()
}
ranked = [
    sorted(REAL, key=lambda n, m=metric: measured("large", n, m, FIRST).mean())
    for metric in METRICS[:-1]
]
by_sigma = {
    n: measured("large", n, "effective_rank_singular", FIRST).mean()
    / measured("large", n, depth=FIRST).mean()
    for n in REAL
}
by_rows = {
    n: np.exp(float(large["mended"][:, SETS_LARGE.index(n), 0].mean()))
    / measured("large", n, depth=FIRST).mean()
    for n in REAL
}
show.say(
    f"In {NETWORKS['large'][3]} {sum(r == ranked[0] for r in ranked[1:])} of {len(ranked) - 1} other instruments put the sets into the same order as the effective rank; the numbers differ more: LayerNorm alone makes {min(ratios.values()):.2f} to {max(ratios.values()):.2f} "
    f"times as many dimensions of the same tokens, and singular values {min(by_sigma.values()):.0f} to {max(by_sigma.values()):.0f} times, for they count the long tail of tiny variances. Extrapolating to endlessly many images makes {min(by_rows.values()):.2f} to {max(by_rows.values()):.2f} times as many, although the tokens of one set can be worth as few as {noise_share['large']:,.0f} independent rows there: the steeper a spectrum, the "
    "less it minds few rows, as (5.4) says. "
    f"From {label(emptiest)} to {label(fullest)} the effective rank grows {measured('large', fullest, depth=FIRST).mean() / measured('large', emptiest, depth=FIRST).mean():.0f}-fold, in networks that have learned nothing."
)

# %% [markdown]
# > **Note.** What is confounded here. Our untrained networks have positions of width 0.02, which add a small, nearly isotropic cloud to every token; where the images' own cloud is thin, it counts (compare E and P in the profiles). Pixels are
# > scaled to run from -1 to 1 for all sets alike, not whitened set by set. Enlarging by another filter would leave other traces than ours. UC Merced's classes include objects (aeroplanes, cars, tennis courts), so "texture" is the paper's word for it, not a fact about every picture.
#
# ## 8. What was claimed, what we measured

# %% tags=["hide-input"]
exact = max(
    abs(spectra.effective_rank(np.ones(WIDTH)) - WIDTH),
    abs(spectra.effective_rank(np.r_[1.0, np.zeros(WIDTH - 1)]) - 1),
)
at_thousand = math.exp(bias.isotropic_entropy(WIDTH, 1000))
moves = max(r for r in (*ratios.values(), *(1 / r for r in ratios.values())))
show.verdict(
    claim="IB-6: the effective dimension of a layer is measured by N_eff from the spectral entropy of the tokens' covariance, near D when isotropic and near 1 when collapsed; in per cent it compares layers and data sets.",
    source="[Awadhiya, 2025](https://arxiv.org/abs/2512.07331)",
    verdict="fails"
    if exact > 1e-6
    else "holds in part"
    if moves > 1.1 or at_thousand < 0.9 * WIDTH
    else "holds",
    measured=f"The two ends are exact (largest error {exact:.0e}), on a spectrum that is known. In between it is a number only with five things beside it: the convention (58 % is {0.58 * WIDTH:.0f} dimensions or {WIDTH**0.58:.1f}); "
    f"whether tokens were centred (one cloud read {found['a mean added, three times as long'][0]:.1f} and {found['a mean added, three times as long'][1]:.1f}); on which side of a LayerNorm "
    f"(up to {moves:.1f} times, in {len(large.seeds)} untrained {NETWORKS['large'][3]} at scale {large.scale}); eigenvalues or singular values (up to {max(by_sigma.values()):.0f} times, in the same networks); and how many independent rows "
    f"(an isotropic {WIDTH} reads {at_thousand:.0f} at 1,000). The last can be mended, the others must be stated, and the paper's text does not settle all of them.",
    would_change="An account of the published figures that names all five. Then they could be compared with others.",
)

# %% tags=["hide-input"]
NATURAL = tuple(name for name in REAL if name in SETS_LARGE)
linear_high = {
    name: 100
    * statistics.seeds_interval(measured("large", name)[:, 1:]).high.max()
    / LARGE.dim
    for name in NATURAL
}
log_high = {
    name: 100
    * statistics.seeds_interval(nats("large", name)[:, 1:]).high.max()
    / math.log(LARGE.dim)
    for name in NATURAL
}
FULL = 90  # per cent from which a layer is called full here, the paper's own word for flat
not_full = [linear_high[name] < FULL and log_high[name] < FULL for name in NATURAL]
noise_log = 100 * nats("large", "noise/0").mean(0) / math.log(LARGE.dim)
noise_linear = 100 * measured("large", "noise/0").mean(0) / LARGE.dim
show.verdict(
    claim="IB-1, second half: since a ViT keeps the number and width of its tokens, it should be isotropic and of full rank everywhere, unless training makes it otherwise.",
    source="the expectation that [Awadhiya, 2025](https://arxiv.org/abs/2512.07331) sets out from, in order to refute it",
    verdict="fails"
    if all(not_full)
    else "holds in part"
    if any(not_full)
    else "undecided",
    measured=f"{len(large.seeds)} seeds of an untrained {NETWORKS['large'][3]} at scale {large.scale}. At no depth is the upper end of the interval above "
    f"{max(linear_high.values()):.0f} % of the width (linear) or {max(log_high.values()):.0f} % (logarithmic) on any of {len(NATURAL)} sets of pictures; the least full of them, {label(emptiest)}, stays below {linear_high[emptiest]:.1f} and {log_high[emptiest]:.0f} %. "
    f"The architecture would carry more: white noise has {noise_linear[1]:.0f} % and {noise_log[1]:.0f} % after the patch embedding, and {noise_linear[-1]:.0f} % and {noise_log[-1]:.0f} % after the last block. "
    + (
        "So constant width is no reason to expect full rank: pictures do not fill it, and it takes no training to see that."
        if all(not_full)
        else "So the width is nearly filled by some pictures, and not by others."
    ),
    would_change=f"An initialisation in common use under which pictures reach {FULL} % by either convention at every depth.",
)

# %% tags=["hide-input"]
show.verdict(
    claim="IB-10, as far as it explains: the profile of a texture set lies above those of object sets, and is flat, because the network has adapted to texture as the signal.",
    source="[Awadhiya, 2025](https://arxiv.org/abs/2512.07331); the trained profiles themselves are left to the chapter on the inductive bottleneck",
    # The rule of "How to read": a claim about a cause fails where a control shows the effect without the cause.
    verdict="fails" if above else "undecided",
    measured=f"{len(large.seeds)} and {len(small.seeds)} seeds at scale {large.scale}, networks that were never trained. {label(TEXTURE)} is above the object sets in {sum(s > 0 for s in signs)} of {len(signs)} comparisons of network, set and depth, below in {sum(s < 0 for s in signs)}; after the first block of "
    f"{NETWORKS['large'][3]} it has "
    + " and ".join(
        f"{told(comparisons[NETWORKS['large'][3] + ', over ' + label(other)][0], 1)} times the dimensions of {label(other)}"
        for other in OBJECTS
    )
    + ". "
    + (
        "So the order is there without training, and no adaptation is needed for it. "
        if above
        else "So the order is there without training wherever it is decided; one interval or more holds 1. "
        if not any(s < 0 for s in signs) and any(s > 0 for s in signs)
        else "So the order is not there without training. "
    )
    + f"With all phases scrambled, no forms left, it is there in {sum(s > 0 for s in signs_scrambled)} of {len(signs_scrambled)}; with all pictures from {LOW['large']} pixels, in {sum(s > 0 for s in signs_equal)} of {len(signs_equal)} "
    f"and turned round in {sum(s < 0 for s in signs_equal)}. The untrained profile of {label(TEXTURE)} varies by a factor of {waviness['large']:.2f} from its lowest to its highest block, and at its highest "
    f"it is at {100 * measured('large', TEXTURE)[:, FIRST:].mean(0).max() / LARGE.dim:.0f} % (linear) or {100 * nats('large', TEXTURE)[:, FIRST:].mean(0).max() / math.log(LARGE.dim):.0f} % (logarithmic); whether training lifts it to {FULL} % is not asked here.",
    would_change="A trained difference between textures and objects that exceeds the untrained one, with an interval that excludes zero, on sets that were matched in power spectrum and resolution.",
)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: From one per cent to the other
#
# A paper gives a linear EED. Write the function that turns it into the logarithmic one, for any width. Then use it: what must a layer of 384 dimensions read on the linear scale
# to be at 50 % on the logarithmic one, and what must a layer of 768? Is either scale fair to both widths?

# %%


def to_log(per_cent, dim): ...


check.eed_to_log(to_log)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def to_log(per_cent, dim):
#     return 100 * math.log(per_cent / 100 * dim) / math.log(dim)
#
#
# check.eed_to_log(to_log)
# ```
#
# Half way on the logarithmic scale is $N_{\text{eff}} = \sqrt D$, which is $100/\sqrt D$ % on the linear one: 5.1 % at 384 and 3.6 % at 768. Embed the same cloud isometrically in twice the width, so that nothing about it changes:
# the linear reading halves, the logarithmic one falls by the factor $\ln D / \ln 2D$, here 0.90. Neither is invariant. If two widths are to be compared, compare $N_{\text{eff}}$.
#
# </details>
#
# ### Exercise 2: A bottleneck from a single direction
#
# Let one axis hold the share $s$ of the variance and the other $D - 1$ be equal. Write $N_{\text{eff}}$ as a function of $D$ and $s$. Then find, by trying, the share at which an isotropic cloud in 384
# dimensions reads 23 % on the linear scale. How many of the other 383 directions have been compressed?

# %%


def one_direction(dim, share): ...


check.one_direction(one_direction)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def one_direction(dim, share):
#     rest = (1 - share) / (dim - 1)
#     entropy = -(dim - 1) * rest * math.log(rest) if share < 1 else 0.0
#     if share > 0:
#         entropy -= share * math.log(share)
#     return math.exp(entropy)
#
#
# check.one_direction(one_direction)
# ```
#
# At a share of about 0.35 the reading has fallen from 100 to 23 %, and nothing has happened to the other 383 directions but that somebody else has grown. A mean that was not subtracted, a few giant tokens, or one image brighter than all
# others can do that. "The network compresses" is one explanation of a fall in $N_{\text{eff}}$; a growing spike is another, and the stable rank beside it tells them apart: it would read $1/s$.
#
# </details>
#
# ### Exercise 3: Leave the diagonal out
#
# Rows of mean zero, `X` a tensor of shape `(N, D)`. Write an estimate of $\operatorname{tr} \Sigma^2$ by (5.7) that needs no loop, and that is right for two rows as well as for a thousand. The check compares it with all pairs, and
# its mean over many samples with the truth.

# %%


def trace_of_square(X): ...


check.trace_of_square(trace_of_square)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def trace_of_square(X):
#     products = (X @ X.T) ** 2
#     return (products.sum() - products.diagonal().sum()) / (len(X) * (len(X) - 1))
#
#
# check.trace_of_square(trace_of_square)
# ```
#
# For many rows and few dimensions the same comes cheaper from the other product: $\sum_{n,m} (x_n^\top x_m)^2 = \operatorname{tr}\,(X^\top X)^2$, a $D \times D$ matrix, and the diagonal is $\sum_n |x_n|^4$. So it can be gathered in one pass over
# any number of tokens. With an unknown mean two more sums are needed, over three and over four different rows, of which one is subtracted. Then the estimate can come out negative: an unbiased estimate of a positive thing may have to.
#
# </details>
#
# ## For the seminar
#
# > **Seminar.** A paper shows that the effective rank of the middle layers of a trained network falls from epoch 1 to epoch 100, on one data set, with one seed, and concludes that the network has learned to discard the background. List every
# > other explanation that this chapter has given you. For each, name the cheapest measurement that would tell it from the paper's, and say in which order you would make them. Which of them can be made from the published figure alone?
#
# ## Further reading
#
# - [Roy and Vetterli, 2007](https://ieeexplore.ieee.org/document/7098875): the effective rank, its properties and its proofs; four pages.
# - [Garrido et al., 2023](https://arxiv.org/abs/2210.02885): RankMe, which predicts from the rank of embeddings how good they are; on singular values, uncentred.
# - [Chun et al., 2025](https://arxiv.org/abs/2509.26560): the participation ratio without bias, over rows and over features.
# - [Page, 1993](https://arxiv.org/abs/gr-qc/9305007): (5.3), from the physics of black holes.
# - [Torralba and Oliva, 2003](https://doi.org/10.1088/0954-898X/14/3/302): how much of what a picture shows is told by its power spectrum.
# - [Awadhiya, 2025](https://arxiv.org/abs/2512.07331): the claims on trial, in their author's words.
