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
# # What does each remedy buy?
#
# Seven networks, seven papers, seven tables in which the newest row is the best. Each was compared with others at its own size, by its own recipe, on ImageNet's 1.28 million images. A reader who has few images, or a slow machine, or large pictures, learns little from that.
#
# This chapter puts all seven on one bench, with a plain ViT below them and a convolutional network beside them. It asks each the same questions: what do you cost, in arithmetic, time and memory, and how does it grow with the image? What do you make of 40 images, of 400, of 4,000? How far do you see, and what does a shift do to you?
# Then it asks the question behind the question. The first accounts of these networks sort several of them under *efficiency*. **Is a cheaper network a less hungry one?**
#
# **After it you can**
#
# - read a table of networks and say what each column leaves out,
# - tell a network that is cheap from one that needs few images, and measure both,
# - say from a number of held-out images and seeds which differences a table can show at all,
# - choose a network for a machine and a data set, and name what you give up.
#
# **It assumes** the four chapters before it, of which it uses the networks and not the details; [Hungry for data?](data_hunger.ipynb) for what hunger is.
#
# **It takes** three quarters of an hour to read. Run as it stands (scale `laptop`) it loads five recorded experiments and computes the rest in seconds; at scale `smoke` every cell runs in under a minute, on generated images. What recording costs is printed where a
# record is shown. Scale `paper` (all 100 classes, networks of a few million weights, 20,000 steps) is about fifty hours on one modern GPU, by estimate: [Running at full scale](../book/scale.md) says how.

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
import dataclasses
import json
import time
from pathlib import Path

import numpy as np
import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

import vitlab
from vitlab import check, data, lab, show, train
from vitlab.analysis import equivariance, receptive, statistics
from vitlab.analysis.memory import peak_bytes
from vitlab.analysis.statistics import crossed_interval as surely
from vitlab.analysis.statistics import sign
from vitlab.data import feeds, views
from vitlab.data.few import share, some_classes
from vitlab.models.coatnet import CoAtNet, CoAtNetConfig
from vitlab.models.convnet import ConvNet, ConvNetConfig
from vitlab.models.cvt import CvT, CvTConfig
from vitlab.models.deit import DeiT, DeiTConfig
from vitlab.models.focal import Focal, FocalConfig
from vitlab.models.mvit import MViT, MViTConfig
from vitlab.models.pvt import PVT, PVTConfig
from vitlab.models.swin import Swin, SwinConfig
from vitlab.models.vit import ViT, ViTConfig
from vitlab.show import told

lab.start(seed=0)

# %% [markdown]
# ## On trial
#
# (The codes are those of the [ledger of claims](../book/claims.md).)
#
# > **Claim.** HUNGER-10. What a ViT lacks can be learned from more signal or injected by architecture; each of the seven remedies feeds it
# > (the conclusion of a blog post on the seven).
#
# > **Claim.** LIT-50. Cost is not data hunger: networks that only make attention cheaper stay hungry, networks with convolutions in them are less so
# > (our reading of [Liu et al., 2021b](https://arxiv.org/abs/2106.03746), against accounts that sort the seven under efficiency).
#
# > **Claim.** LIT-51. Networks that are equal on ImageNet are not equal on few images: trained from scratch on a small data set CvT is ahead of
# > Swin ([Liu et al., 2021b](https://arxiv.org/abs/2106.03746)).
#
# A network that is *fed* must be better than a plain ViT where images are few. A network that is cheap must be so by a count and by a clock. If cheaper meant less hungry, the cheaper of two networks would be the better one on few images. All three can
# come out either way. How we decide was written down before the records of section 5 were read, when only the search for rates in section 4 was known; the rules stand in section 1.
#
# ## 1. Two questions that are easily mixed
#
# Call $A_m(n)$ the accuracy of a network $m$ that was trained on $n$ images, with the same number of steps whatever $n$. Its *hunger*, as this course measures it, is what it lacks against a convolutional network of its size on the same images:
#
# $$ H_m(n) \;=\; A_{\text{CNN}}(n) - A_m(n) . \tag{1.1} $$
#
# A remedy feeds if it lowers $H$, that is, if $A_m(n) > A_{\text{ViT}}(n)$ where $n$ is small. Nothing in this definition knows about cost. *Cost* is what one image takes, in arithmetic, time or memory; nothing in it knows about accuracy. Two rulers, and the claim that one
# follows from the other is a claim about the world.
#
# The seven differ in what they change. One account has the first four of its list (DeiT, Swin, PVT, CvT) as *the efficient ones*. DeiT, once trained, costs what a ViT costs and one token more; while it learns, its teacher has to see every image too. CvT puts convolutions before attention. We sort by what is changed, and get five groups:
#
# | group | networks | what is changed | what it is meant to bring |
# |---|---|---|---|
# | a signal | DeiT | the target: a teacher's answers beside the labels | what the teacher knows of images |
# | fewer pairs | Swin, PVT | which keys a query meets | finer maps at a bearable cost; in Swin also locality |
# | convolution | CvT, CoAtNet | the maps into attention, or whole stages | locality, and weights shared by all places |
# | pooling | MViT | keys, values, and between stages queries: on a coarser grid | a pyramid at a bearable cost |
# | near and far | Focal | a window's keys, and coarse ones from outside | reach, for a network of windows |
#
# The groups are ours, and not clean: MViT pools by depthwise convolutions of 3 x 3 and could stand with CvT, and PVT thins its keys by a convolution with a kernel as wide as its stride.
#
# In all groups but the first the map is also a *pyramid*: many narrow tokens first, few wide ones later. So no two of these networks differ in one thing alone, and a table of nine whole networks cannot say which of their parts did what. The chapters before this one take single parts away; this one compares wholes.
#
# **The rules.** *Fed* means that the 95 % interval of a network minus the ViT, on the same held-out images, lies above zero at 10 % of the images. HUNGER-10 holds if all seven are, holds in part if some are, fails if none is and one is decidedly worse, and is undecided else. Seven intervals are not corrected for being seven: a single network that is fed may be chance. LIT-50 is one planned contrast,
#
# $$ \Delta \;=\; \tfrac12\,(A_{\text{CvT}} + A_{\text{CoAtNet}}) \;-\; \tfrac12\,(A_{\text{Swin}} + A_{\text{PVT}}) , \tag{1.2} $$
#
# at 10 %, together with the hunger (1.1) that is left to Swin and PVT: it holds if both are decidedly above zero, holds in part if one is, fails if one is decidedly below. It asks for *less* hunger of the convolutions and not for none; what they leave is reported beside it. (The two pairs of networks cost about the same at our size, so (1.2) varies what the arithmetic is spent on, and not how much there is.) LIT-51 is CvT minus Swin at 1 and at 10 %, by the same rule. What else can be read off is reported, and decides nothing.
#
# ## 2. What one image costs
#
# First the bill, for the networks at their published sizes: all near 25 million weights. The convolutional network here is ResNet-50, from [timm](https://github.com/huggingface/pytorch-image-models); the rest are ours. We count multiply-adds of a forward pass (torch's counter, the products inside attention included), and measure processor
# time on one thread, in turns, and the bytes that are alive at the worst moment. Each is taken twice: for *seeing* an image, and for *learning* from one, which is a forward and a backward pass.

# %%
CLASSES = lab.choose(smoke=4, laptop=10, paper=100)
STEPS = lab.choose(smoke=8, laptop=600, paper=20_000)
BATCH = lab.choose(smoke=16, laptop=32, paper=256)
SEEDS = lab.choose(smoke=3, laptop=3, paper=5)
KINDS = ("cnn", "vit", "deit", "swin", "pvt", "cvt", "coatnet", "mvit", "focal")
STAGES = dict(  # noqa: C408
    image_size=32,
    classes=CLASSES,
    dims=lab.choose(smoke=(8, 16, 24), laptop=(24, 48, 96), paper=(64, 128, 256)),
)
EVEN = lab.choose(smoke=(1, 1, 1), laptop=(2, 2, 2), paper=(2, 4, 2))
RISING = lab.choose(smoke=(1, 1, 1), laptop=(1, 2, 2), paper=(1, 2, 6))
PLAIN = dict(  # noqa: C408
    image_size=32,
    patch_size=4,
    classes=CLASSES,
    dim=lab.choose(smoke=16, laptop=64, paper=192),
    depth=lab.choose(smoke=2, laptop=6, paper=12),
    heads=lab.choose(smoke=2, laptop=4, paper=3),
)


def build(kind):
    """Return one of the nine networks, untrained, all of about one size for images of 32 px."""
    return {
        "cnn": lambda: ConvNet(
            ConvNetConfig(
                classes=CLASSES,
                widths=lab.choose(
                    smoke=(4, 8, 16),
                    laptop=(16, 32, 64, 128),
                    paper=(68, 136, 272, 544),
                ),
            )
        ),
        "vit": lambda: ViT(ViTConfig(**PLAIN)),
        "deit": lambda: DeiT(DeiTConfig(**PLAIN)),
        "swin": lambda: Swin(
            SwinConfig(**STAGES, patch_size=2, window=4, depths=EVEN, heads=(1, 2, 4))
        ),
        "pvt": lambda: PVT(
            PVTConfig(
                **STAGES,
                patch_sizes=(2, 2, 2),
                depths=EVEN,
                heads=(1, 2, 4),
                sr_ratios=(4, 2, 1),
                mlp_ratios=(4, 4, 4),
            )
        ),
        "cvt": lambda: CvT(
            CvTConfig(
                **STAGES,
                depths=RISING,
                heads=(1, 2, 4),
                kernels=(3, 3, 3),
                strides=(2, 2, 2),
                paddings=(1, 1, 1),
            )
        ),
        "coatnet": lambda: CoAtNet(
            CoAtNetConfig(
                **STAGES,
                stages="CTT",
                depths=RISING,
                stem_dims=lab.choose(smoke=(8, 8), laptop=(16, 16), paper=(32, 32)),
                stem_stride=1,
                head_dim=lab.choose(smoke=8, laptop=24, paper=32),
            )
        ),
        "mvit": lambda: MViT(
            MViTConfig(
                **STAGES,
                patch_kernel=3,
                patch_stride=2,
                depths=RISING,
                heads=(1, 2, 4),
                kv_strides=(4, 2, 1),
            )
        ),
        "focal": lambda: Focal(
            FocalConfig(
                **STAGES,
                patch_size=2,
                window=4,
                depths=EVEN,
                heads=(1, 2, 4),
                expand=(2, 2, 2),
                focal_window=(5, 3, 1),
            )
        ),
    }[kind]()


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


def learn(model, objective, few, seed, name, rate, steps=STEPS):
    """Train a network on images shifted and mirrored."""
    train.fit(
        model,
        feeds.InMemory(few, BATCH, views.View(views.Shift(4), views.Flip()), seed),
        objective,
        train.Recipe(
            steps, BATCH, lr=rate, weight_decay=0.05, warmup=steps // 20, seed=seed
        ),
        checkpoint=lab.checkpoint(name),
    )
    return model


# %%
SIDES = lab.choose(smoke=(32, 64), laptop=(224, 448, 672), paper=(224, 448, 672, 896))
REPEATS = lab.choose(smoke=1, laptop=3, paper=10)


def sized(kind, side):
    """Return a network of its published size, 20 to 30 million parameters, for images of a side; at scale smoke a tiny one."""
    if lab.scale() == "smoke":
        tiny = build(KINDS[BIG.index(kind)])
        if isinstance(tiny, ConvNet):
            return tiny  # takes images of any side
        return type(tiny)(dataclasses.replace(tiny.config, image_size=side))
    return {
        "ResNet-50": lambda: timm.create_model("resnet50"),
        "ViT-S/16": lambda: ViT(ViTConfig.small(image_size=side)),
        "DeiT-S": lambda: DeiT(DeiTConfig.small(image_size=side)),
        "Swin-T": lambda: Swin(SwinConfig.tiny(image_size=side)),
        "PVT-Small": lambda: PVT(PVTConfig.small(image_size=side)),
        "CvT-13": lambda: CvT(CvTConfig.cvt_13(image_size=side)),
        "CoAtNet-0": lambda: CoAtNet(CoAtNetConfig.coatnet_0(image_size=side)),
        "MViTv2-T": lambda: MViT(MViTConfig.v2_tiny(image_size=side)),
        "Focal-T": lambda: Focal(FocalConfig.tiny(image_size=side)),
    }[kind]()


BIG = (
    "ResNet-50",
    "ViT-S/16",
    "DeiT-S",
    "Swin-T",
    "PVT-Small",
    "CvT-13",
    "CoAtNet-0",
    "MViTv2-T",
    "Focal-T",
)


def timed(work):
    """Return the seconds of processor time that a call takes."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def fuse(model, fused):
    """Let attention run as one kernel, or as the products it is made of."""
    for block in getattr(model, "blocks", ()):
        if hasattr(block, "attn"):
            block.attn.fused_attn = fused


def step(model, images):
    """Compute the gradients of one training step."""
    model.zero_grad(set_to_none=True)
    scores = model(images)
    scores = scores[0] if isinstance(scores, tuple) else scores
    scores.square().mean().backward()


def priced(seed, kinds, sides, repeats):
    """Measure what one image costs: multiply-adds, processor time in turns, and peak memory, seeing and learning."""
    torch.set_num_threads(1)
    seconds = np.zeros((2, len(kinds), len(sides), repeats))
    peak = np.zeros((2, len(kinds), len(sides)))
    products = np.zeros((len(kinds), len(sides)))
    sizes = np.zeros(len(kinds))
    for s, side in enumerate(sides):
        lab.seed_everything(seed)
        images = torch.randn(1, 3, side, side)
        models = [sized(kind, side) for kind in kinds]

        def look(model):
            with torch.inference_mode():
                model.eval()(images)  # noqa: B023

        def learning(model):
            step(model.train(), images)  # noqa: B023

        for k, model in enumerate(models):
            sizes[k] = sum(p.numel() for p in model.parameters())
            for way, work in enumerate((look, learning)):
                work(model)  # warms up
                peak[way, k, s] = peak_bytes(lambda: work(model))  # noqa: B023
            fuse(model, False)  # so that the products of attention are counted too
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                model.eval()(images)
            products[k, s] = counter.get_total_flops() / 2
            fuse(model, True)
        for r in range(repeats):
            for k in np.random.default_rng([seed, s, r]).permutation(len(kinds)):
                for way, work in enumerate((look, learning)):
                    seconds[way, k, s, r] = timed(lambda: work(models[k]))  # noqa: B023
    return {
        "seconds": np.median(seconds, -1),
        "peak": peak,
        "products": products,
        "parameters": sizes,
    }


prices = lab.record(
    "remedies_cost",
    priced,
    seeds=SEEDS,
    kinds=BIG,
    sides=SIDES,
    repeats=REPEATS,
    rank=5,
    minutes=lab.choose(smoke=0.2, laptop=6, paper=10),
)

prices

# %% tags=["hide-input"]
took, held = prices["seconds"], prices["peak"]  # (seeds, 2, networks, sides)
counted = prices["products"][0]
SEEING, LEARNING = 0, 1


def geometric(values):
    """Return the mean and interval over seeds of positive values, taken in logarithms."""
    return statistics.Interval(
        *(np.exp(end) for end in statistics.seeds_interval(np.log(values)))
    )


def exponent_over(values):
    """Return the exponent of the last axis, values at each side, over the number of pixels."""
    x = np.log(np.square(SIDES)) - np.log(np.square(SIDES)).mean()
    return np.log(np.asarray(values, float)) @ x / (x @ x)


def weights_of(name):
    """Return the weights of a network made for the smallest images; positions are more for larger ones."""
    with torch.device("meta"):
        return sum(p.numel() for p in sized(name, SIDES[0]).parameters())


weighed = np.array([weights_of(name) for name in BIG])
rate_of = geometric(1 / took[:, SEEING, :, 0])
lessons = geometric(1 / took[:, LEARNING, :, 0])
grows = statistics.apart(statistics.seeds_interval(exponent_over(took[:, SEEING])))
show.table(
    [
        [
            name,
            f"{weighed[k] / 1e6:.1f}",
            f"{counted[k, 0] / 1e9:.2f}",
            told([end[k] for end in rate_of], 1, plus=""),
            told([end[k] for end in lessons], 2, plus=""),
            f"{held[:, LEARNING, k, 0].mean() / 2**20:,.0f}",
        ]
        for k, name in enumerate(BIG)
    ],
    header=[
        "network",
        "weights, million",
        f"multiply-adds at {SIDES[0]} px, G",
        "images seen a second",
        "learnt from a second",
        "memory to learn, MiB",
    ],
    caption=f"One image of {SIDES[0]} px on one thread, {len(prices.seeds)} seeds: means and 95 % t-intervals of the logarithms. Memory: activations and gradients of one image, without the weights. DeiT learns here without its teacher's pass.",
)

# %% tags=["hide-input"]
fast = np.argsort(-rate_of.mean)
lean = np.argsort(counted[:, 0])
show.say(
    f"The nine lie between {counted[:, 0].min() / 1e9:.1f} and {counted[:, 0].max() / 1e9:.1f} billion multiply-adds, and between {rate_of.mean.min():.1f} and {rate_of.mean.max():.1f} images a second: "
    f"counted, the dearest is {counted[:, 0].max() / counted[:, 0].min():.2f} times the cheapest, and timed {rate_of.mean.max() / rate_of.mean.min():.2f} times. Fewest multiply-adds: {BIG[lean[0]]}, then {BIG[lean[1]]}. Fastest: "
    f"{BIG[fast[0]]}, then {BIG[fast[1]]}; slowest: {BIG[fast[-1]]}. A count says what must be multiplied. It does not say how often a tensor is cut, rolled, padded and copied on the way, and "
    "windows and rings do much of that. These are one processor's times; on another the order may be another."
)

# %% [markdown]
# At 224 px the networks were *made* to cost the same, so a comparison there shows little. Move the slider to what the image costs when it grows.

# %% tags=["hide-input"]
MEASURES = {
    "time to see (s)": lambda: took[:, SEEING],
    "time to learn (s)": lambda: took[:, LEARNING],
    "memory to see (MiB)": lambda: held[:, SEEING] / 2**20,
    "memory to learn (MiB)": lambda: held[:, LEARNING] / 2**20,
    "multiply-adds (G)": lambda: np.repeat(counted[None] / 1e9, 2, axis=0),
}


def against_resolution(fig, measure):
    left, right = fig.subplots(1, 2, sharey=True)
    values = MEASURES[measure]()
    inks = show.look().colours
    for ax, chosen in ((left, (0, 1, 3, 4)), (right, (1, 5, 6, 7, 8))):
        for number, k in enumerate(chosen):
            show.lines(
                ax,
                np.array(SIDES, float),
                geometric(values[:, k]).mean,
                label=BIG[k],
                colour=inks[number],
                dashed=k == 1,
                markers=True,
            )
        ax.set(xscale="log", yscale="log", xlabel="side of the image (px)")
        ax.set_xticks(SIDES, [str(px) for px in SIDES])
        ax.minorticks_off()
    left.set_ylabel(measure)


show.interact(
    against_resolution,
    values=list(MEASURES),
    label="measure",
    alt=lambda measure: (
        f"Two panels on logarithmic axes: {measure} of one image against its side, {SIDES[0]} to {SIDES[-1]} px, for eight networks; the ViT, dashed, stands in both."
    ),
    caption=f"What an image costs as it grows, means of {len(prices.seeds)} seeds (DeiT, which runs with the ViT's cost, is left out of the drawing). A steeper line is a cost that grows faster.",
    size=(7, 3.8),
)

# %% tags=["hide-input"]
count_grows = exponent_over(counted)
memory_grows = exponent_over(held[:, LEARNING].mean(0))
show.table(
    [
        [
            name,
            f"{count_grows[k]:.2f}",
            told(grows[k], 2, plus=""),
            f"{memory_grows[k]:.2f}",
            f"{held[:, LEARNING, k, -1].mean() / 2**20:,.0f}",
        ]
        for k, name in enumerate(BIG)
    ],
    header=[
        "network",
        "multiply-adds",
        "time to see",
        "memory to learn",
        f"MiB at {SIDES[-1]} px",
    ],
    caption=f"Exponents over the number of pixels, fitted from {SIDES[0]} to {SIDES[-1]} px: 1 is linear. Last column: memory to learn from one image of {SIDES[-1]} px.",
)

# %% tags=["hide-input"]
steep, flat = np.argmax(count_grows), np.argmin(count_grows)
show.say(
    f"By count the steepest is {BIG[steep]} ({count_grows[steep]:.2f}), the flattest {BIG[flat]} ({count_grows[flat]:.2f}). An exponent near 1 is not a proof of linear attention: it is 1 plus the share that the pairs have in the whole, "
    "where these grow with the square of the tokens (section 4 of the chapter on Swin and PVT). Memory to learn grows with exponents of "
    f"{memory_grows.min():.2f} to {memory_grows.max():.2f}. In the ViT, DeiT, PVT and CvT attention runs as one kernel that never stores its pairs. In Swin, CoAtNet, MViT and Focal a learnt bias is added to every pair, "
    "and on a processor the pairs are then stored for the way back; that is a property of these kernels as well as of the networks."
)

# %% [markdown]
# ## 3. Are these the papers' networks?
#
# A bill for a slow copy says nothing about a network. Each of the seven agrees with an independent implementation in its outputs and gradients (the tests of this course compare them with the same weights). Here is what that costs: our model file against its peer at the published size, forward, and forward with backward, in turns on
# one machine, the middle of all rounds. Above 1 ours is faster. `make bench` makes the table anew on yours.

# %% tags=["hide-input"]
bench = json.loads(
    (Path(vitlab.__file__).parents[1] / "bench" / "models.json").read_text()
)
runs = {
    (row["model"], row["peer"], row["passes"], row["precision"]): row
    for row in bench["rows"]
}
peers = list(dict.fromkeys((row["model"], row["peer"]) for row in bench["rows"]))
PASSES = [
    (way, kind)
    for way in ("forward", "forward + backward")
    for kind in ("fp32", "bf16")
]
show.table(
    [
        [
            model,
            peer,
            *(
                f"{runs[model, peer, *run]['ratio']:.2f} ({runs[model, peer, *run]['low']:.2f} to {runs[model, peer, *run]['high']:.2f})"
                for run in PASSES
            ),
            f"{runs[model, peer, 'forward + backward', 'fp32']['memory']:.2f}",
        ]
        for model, peer in peers
    ],
    header=[
        "network",
        "peer",
        *(f"{way}, {kind}" for way, kind in PASSES),
        "memory, ours / theirs",
    ],
    caption=f"Speed of ours over the peer's: median of {bench['made']['rounds']} rounds in turns (and the middle half of them), {bench['made']['batch']} images of 224 px, on {bench['made']['machine']}, {bench['made']['made']}; torch {bench['made']['torch']}, timm {bench['made']['timm']}, transformers {bench['made']['transformers']}, torchvision {bench['made']['torchvision']}.",
)

# %% tags=["hide-input"]
slower = [
    (f"{model}, {way} in {kind} ({run['ratio']:.2f})", run["high"] < 1)
    for (model, _, way, kind), run in runs.items()
    if run["ratio"] < 1
]
WHY = "CvT and PVT on the way back in bf16 have a reason that we tried: our attention is torch's one kernel, which stores no pairs, and the peer's is the products it is made of. On this processor the products are the faster there; with `fused_attn = False` ours was level in CvT (1.01) and in PVT (1.02), for more memory. "
show.say(
    f"{len(runs) - len(slower)} of {len(runs)} medians are at least 1. "
    + (
        "Below, with three quarters of the rounds and more: "
        + ("; ".join(text for text, surely_so in slower if surely_so) or "none")
        + ". "
        + (
            WHY
            if any(
                surely_so and text.startswith(("CvT", "PVT-"))
                for text, surely_so in slower
            )
            else ""
        )
        + "Below in the median, while a quarter of the rounds is not, so that the two are level: "
        + ("; ".join(text for text, surely_so in slower if not surely_so) or "none")
        + "."
        if slower
        else "None is below."
    )
    + " Focal has no peer in a library: the authors' code is a research repository, which gathers keys by rolled copies of the map as ours does."
)

# %% [markdown]
# ## 4. Nine networks of one size
#
# Now accuracy. Nobody trains nine networks of 25 million weights on a laptop, three times, at three numbers of images. So the nine are built small, for images of 32 x 32: about 0.3 million weights, the pyramids with three stages of the same widths (Swin, PVT and Focal with two blocks in each, CvT, CoAtNet and MViT with one, two and two). Ten classes of CIFAR-100. Each is trained for the same number of steps on the same images in the same order, shifted and mirrored;
# the plain recipe and nothing else, which is how hunger shows. The teacher of DeiT is the CNN of the same seed, trained on the same few images before: it has seen nothing more. A seed draws the first weights, the order, and which images are the 1 % or the 10 %; the held-out images are always the same.

# %% tags=["hide-input"]
NAMES = {
    "cnn": "CNN",
    "vit": "ViT",
    "deit": "DeiT",
    "swin": "Swin",
    "pvt": "PVT",
    "cvt": "CvT",
    "coatnet": "CoAtNet",
    "mvit": "MViT",
    "focal": "Focal",
}
REMEDIES = KINDS[2:]
AT = {kind: i for i, kind in enumerate(KINDS)}


def small_bill(kind):
    """Return the weights of a small network and the multiply-adds of its forward pass."""
    with torch.device("meta"):
        net = build(kind).eval()
        fuse(net, False)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            net(torch.zeros(1, 3, 32, 32))
    return sum(p.numel() for p in net.parameters()), counter.get_total_flops() / 2


bills = np.array([small_bill(kind) for kind in KINDS])
show.say(
    f"They have {bills[:, 0].min():,.0f} to {bills[:, 0].max():,.0f} weights. Their arithmetic differs more: {bills[:, 1].min() / 1e6:.1f} million multiply-adds an image in {NAMES[KINDS[bills[:, 1].argmin()]]}, {bills[:, 1].max() / 1e6:.1f} million in {NAMES[KINDS[bills[:, 1].argmax()]]}. Equal weights and equal steps, then, and not equal arithmetic: "
    "the ViT is not the cheap one here."
)

# %% [markdown]
# ### Were the rates fair?
#
# A network that is trained at the wrong rate looks hungry. Each was tried at three, on 30 % of the training images and half the steps, with seeds of its own, and judged on *other training images*, never on the held-out ones. (DeiT is a ViT with one token more, and takes the ViT's rate.) A rate that is best there need not be best with fewer images or all.

# %%
TRIED = (3e-4, 1e-3, 3e-3)


def tuned(seed, source, kinds, rates, fraction, steps):
    """Try learning rates on a share of the training images; judge on training images outside it."""
    everything = pictures(source, "train")
    few = share(everything, fraction, seed)
    inside = {image.tobytes() for image in few.images}
    apart = [
        i
        for i, image in enumerate(everything.images)
        if image.tobytes() not in inside
    ]
    judged = share(everything.subset(np.array(apart)), 0.5, seed)
    right = []
    for kind in kinds:
        for rate in rates:
            lab.seed_everything(seed)
            labels = train.supervised(CLASSES)
            model = learn(
                build(kind), labels, few, seed, f"{kind}-{rate:g}", rate, steps
            )
            answers = train.predict(model, seen(judged)).argmax(1).numpy()
            right.append((answers == judged.labels).mean())
    return {"right": np.array(right).reshape(len(kinds), len(rates))}


rates = lab.record(
    "remedies_rates",
    tuned,
    seeds=(100, 101),
    source="cifar100",
    kinds=tuple(kind for kind in KINDS if kind != "deit"),
    rates=TRIED,
    fraction=0.3,
    steps=lab.choose(smoke=8, laptop=300, paper=10_000),
    rank=1,
    minutes=lab.choose(smoke=0.2, laptop=11, paper=60),
)

rates

# %% [markdown]
# From here on each network is trained at the rate that was best there.

# %%
RATES = {kind: 1e-3 for kind in KINDS} | {"swin": 3e-3, "focal": 3e-3}  # noqa: C420
SHIFTS = tuple(range(1, 9))


def centre(model):
    """Return the map of features that a network ends with, and the place of the unit right of and below its middle."""
    if isinstance(model, ConvNet | CoAtNet):
        return model.forward_features, (2, 2)  # maps (batch, dim, 4, 4)
    rows, columns = last_grid(model)

    def tokens(images):
        x = model.forward_features(images)
        return x[
            :, x.shape[1] - rows * columns :
        ]  # what stands before the patches is dropped

    return tokens, (rows // 2) * columns + columns // 2


def last_grid(model):
    """Return rows and columns of the tokens that a network ends with."""
    patches = 64 if isinstance(model, ViT) else 16
    side = round(patches**0.5)
    return side, side


def field(model, images):
    """Return the effective receptive field of the unit in the middle: its radius in pixels, which holds 95 %."""
    features, unit = centre(model)
    return receptive.radius(receptive.input_gradient(features, images, unit))


def examined(model, some):
    """Return what a shift does to scores and answers, and how far the middle sees."""
    model = model.cpu().eval()
    x = seen(some)
    return {
        "errors": equivariance.logit_error(model, x, SHIFTS).mean(1),
        "flips": equivariance.prediction_flips(model, x, SHIFTS).mean(1),
        "field": field(model, x[:20]),
    }


def remedied(seed, source, kinds, fraction):
    """Train each network for the same number of steps on the same share of the images; the CNN teaches the DeiT."""
    few = share(pictures(source, "train"), fraction, seed)
    held_out = pictures(source, "held_out")
    some = share(held_out, 0.1, 0)
    out, teacher = {}, None
    right, fitted = [], []
    for kind in kinds:
        lab.seed_everything(seed)
        model = build(kind)
        before = examined(model, some)
        objective = (
            train.distillation(CLASSES, teacher)
            if kind == "deit"
            else train.supervised(CLASSES)
        )
        learn(model, objective, few, seed, kind, RATES[kind])
        if kind == "cnn":
            teacher = model
        known = share(few, min(1.0, 1000 / len(few)), seed)
        for images, into in ((held_out, right), (known, fitted)):
            answers = train.predict(model, seen(images)).argmax(1).numpy()
            into.append(answers == images.labels)
        after = examined(model, some)
        for name in after:
            out[f"{name}.{kind}"] = np.stack([before[name], after[name]])
    return out | {
        "right": np.stack(right),
        "fitted": np.stack([x.mean() for x in fitted]),
        "answers": held_out.labels,
        "images": len(few),
    }


tenth = lab.record(
    "remedies_tenth",
    remedied,
    seeds=SEEDS,
    source="cifar100",
    kinds=KINDS,
    fraction=0.1,
    rank=2,
    minutes=lab.choose(smoke=0.3, laptop=10, paper=200),
)

# %%
hundredth = lab.record(
    "remedies_hundredth",
    remedied,
    seeds=SEEDS,
    source="cifar100",
    kinds=KINDS,
    fraction=0.01,
    rank=3,
    minutes=lab.choose(smoke=0.3, laptop=10, paper=200),
)

# %%
whole = lab.record(
    "remedies_whole",
    remedied,
    seeds=SEEDS,
    source="cifar100",
    kinds=KINDS,
    fraction=1.0,
    rank=4,
    minutes=lab.choose(smoke=0.3, laptop=10, paper=200),
)

whole

# %% tags=["hide-input"]
searched = [kind for kind in KINDS if kind != "deit"]
tried = 100 * rates["right"].mean(0)  # (networks, rates)
differ_by = 100 * np.ptp(rates["right"], axis=0).max()
show.table(
    [
        [
            NAMES[kind],
            *(
                f"**{tried[i, j]:.1f}**"
                if rate == RATES[kind]
                else f"{tried[i, j]:.1f}"
                for j, rate in enumerate(TRIED)
            ),
        ]
        for i, kind in enumerate(searched)
    ],
    header=["network", *(f"rate {rate:g}" for rate in TRIED)],
    caption=f"Accuracy in per cent at each rate tried, mean of {len(rates.seeds)} seeds; bold: the rate used below.",
)

# %% tags=["hide-input"]
lost = {
    kind: tried[i].max() - tried[i, TRIED.index(RATES[kind])]
    for i, kind in enumerate(searched)
}
at_edge = [NAMES[kind] for i, kind in enumerate(searched) if tried[i].argmax() != 1]
show.say(
    (
        f"The rate used falls short of the best one tried by at most {max(lost.values()):.1f} points; "
        if max(lost.values()) > 0.05
        else "The rate used is the best one tried, in each; "
    )
    + f"two seeds of one network at one rate differ by up to {differ_by:.1f}. "
    + (
        f"For {', '.join(at_edge)} the best rate is the smallest or the largest tried, so a still better one may lie outside."
        if at_edge
        else "For none is the best rate at the edge of what was tried."
    )
)

# %% [markdown]
# ## 5. Who is fed?

# %% tags=["hide-input"]
MEALS = {"1 %": hundredth, "10 %": tenth, "all": whole}
eaten = {meal: int(found["images"][0]) for meal, found in MEALS.items()}
hits = {  # (seeds, images, networks), in per cent
    meal: 100.0 * np.moveaxis(found["right"], 1, -1) for meal, found in MEALS.items()
}
levels = {meal: statistics.apart(surely(h)) for meal, h in hits.items()}
fed = {
    meal: statistics.apart(surely(h - h[..., [AT["vit"]]]))
    for meal, h in hits.items()
}
hunger = {
    meal: fed[meal][AT["cnn"]] for meal in MEALS
}  # (1.1) of the ViT: the CNN minus it
WITH = f"{len(tenth.seeds)} seeds, {hits['10 %'].shape[1]:,} held-out images"


def three_meals(fig):
    ax = fig.add_subplot()
    inks = show.look()
    for number, meal in enumerate(MEALS):
        for k in range(len(KINDS)):
            mean, low, high = levels[meal][k]
            ax.errorbar(
                [mean],
                [len(KINDS) - 1 - k + 0.22 * (1 - number)],
                xerr=[[mean - low], [high - mean]],
                fmt="osD"[number],
                capsize=3,
                color=inks.colours[number],
                label=f"{meal} ({eaten[meal]:,} images)" if not k else None,
            )
    ax.axvline(
        100 / CLASSES, color=inks.muted, linewidth=1.4, linestyle=(0, (4, 2.5))
    )
    ax.set(
        yticks=range(len(KINDS)),
        yticklabels=[NAMES[kind] for kind in reversed(KINDS)],
        xlabel="accuracy on new images (%)",
    )
    ax.grid(False)
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.45, 1.14), ncols=3, columnspacing=1
    )


show.figure(
    three_meals,
    size=(7, 5.2),
    alt="Accuracy of nine small networks, one row each, trained on one per cent, ten per cent and all of the images, as points with intervals; a dashed line marks chance.",
    caption=f"The same steps on 1 %, 10 % and all images; 95 % intervals over seeds and images ({WITH}). Dashed: chance.",
)

# %% tags=["hide-input"]
show.table(
    [
        [NAMES[kind], *(told(levels[meal][k], 1, plus="") for meal in MEALS)]
        for k, kind in enumerate(KINDS)
    ],
    header=["network", *MEALS],
    caption=f"Accuracy in per cent ({CLASSES} classes, chance {100 / CLASSES:.0f} %), {STEPS:,} steps of {BATCH}; 95 % intervals over seeds and images, {WITH}.",
)

# %% tags=["hide-input"]
show.table(
    [
        [NAMES[kind], *(told(fed[meal][AT[kind]]) for meal in MEALS)]
        for kind in KINDS
        if kind != "vit"
    ],
    header=["minus the ViT", *MEALS],
    caption="How much better than the plain ViT, in points, on the same images.",
)

# %% tags=["hide-input"]
better = {
    meal: [NAMES[k] for k in REMEDIES if sign(fed[meal][AT[k]]) > 0] for meal in MEALS
}
worse = {
    meal: [NAMES[k] for k in REMEDIES if sign(fed[meal][AT[k]]) < 0] for meal in MEALS
}


def listed(names):
    """Write names as a list in words."""
    return (
        " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        if names
        else "none"
    )


def between(values):
    """Write the least and the greatest of some values, or the one that both are."""
    ends = [f"{end:.0f}" for end in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


widest = max(f.high - f.low for k, f in enumerate(fed["10 %"]) if k != AT["vit"])
fitted = {meal: 100 * found["fitted"].mean(0) for meal, found in MEALS.items()}
show.say(
    "Decidedly better than the ViT on the same images: "
    + "; ".join(
        f"{listed(better[meal])} {'with all images' if meal == 'all' else 'at ' + meal}"
        for meal in MEALS
    )
    + ". Decidedly worse: "
    + "; ".join(
        f"{listed(worse[meal])} {'with all images' if meal == 'all' else 'at ' + meal}"
        for meal in MEALS
    )
    + f". The widest of these intervals at 10 % spans {widest:.1f} points. These are 21 intervals, none corrected for the others; if no remedy did anything, "
    "about one of them would still be called decided. "
    f"The hunger (1.1) of the ViT itself is {told(hunger['1 %'])} points at 1 %, {told(hunger['10 %'])} at 10 % and {told(hunger['all'])} with all images. "
    f"On their own training images the nine are right in {between(fitted['1 %'])} % at 1 %, {between(fitted['10 %'])} % at 10 %, and {between(fitted['all'])} % with all: "
    "where few images are fitted completely, what differs is what is made of them; where all are not, the nine are also told apart by how fast they learn."
)

# %% [markdown]
# ## 6. Is cost hunger?
#
# The contrast (1.2) sets the two groups against each other that are easily put into one: networks that thin out the pairs, and networks that put convolutions in.

# %% tags=["hide-input"]
PAIRS, CONVOLUTION = ("swin", "pvt"), ("cvt", "coatnet")


def mean_of(h, kinds):
    """Return the mean over some networks of what each gets right, (seeds, images)."""
    return h[..., [AT[kind] for kind in kinds]].mean(-1)


def one(values):
    """Return the interval of a single contrast, (seeds, images)."""
    return statistics.apart(surely(values[..., None]))[0]


delta = {
    meal: one(mean_of(h, CONVOLUTION) - mean_of(h, PAIRS)) for meal, h in hits.items()
}
left_conv = {
    meal: one(mean_of(h, ("cnn",)) - mean_of(h, CONVOLUTION))
    for meal, h in hits.items()
}
left_over = {
    meal: one(mean_of(h, ("cnn",)) - mean_of(h, PAIRS)) for meal, h in hits.items()
}
gained = {
    (meal, group): one(mean_of(h, group) - mean_of(h, ("vit",)))
    for meal, h in hits.items()
    for group in (PAIRS, CONVOLUTION)
}


def two_groups(fig):
    axes = fig.subplots(1, 3, sharey=True, sharex=True)
    rows = (
        ("convolution\nminus pairs", lambda meal: delta[meal]),
        ("convolution\nminus ViT", lambda meal: gained[meal, CONVOLUTION]),
        ("pairs\nminus ViT", lambda meal: gained[meal, PAIRS]),
        ("CNN\nminus pairs", lambda meal: left_over[meal]),
    )
    for ax, meal in zip(axes, MEALS, strict=True):
        for number, (_, of) in enumerate(rows):
            mean, low, high = of(meal)
            ax.errorbar(
                [mean],
                [len(rows) - 1 - number],
                xerr=[[mean - low], [high - mean]],
                fmt="o",
                capsize=4,
                color=show.look().colours[number],
            )
        ax.axvline(0, color=show.look().muted, linewidth=1.4, linestyle=(0, (4, 2.5)))
        ax.set_title(meal if meal != "all" else "all images")
        ax.grid(False)
    axes[0].set(
        yticks=range(len(rows)),
        yticklabels=[name for name, _ in reversed(rows)],
        ylim=(-0.6, len(rows) - 0.4),
    )
    fig.supxlabel("difference of accuracy (points)")


show.figure(
    two_groups,
    size=(7, 3.6),
    alt="Four differences of accuracy with intervals, in three panels for one per cent, ten per cent and all images: convolution minus pairs, each minus the ViT, and the CNN minus pairs, around a dashed line at zero.",
    caption="Pairs: the mean of Swin and PVT. Convolution: the mean of CvT and CoAtNet. The top row is (1.2), the bottom row the hunger (1.1) that fewer pairs leave; 95 % intervals over seeds and images.",
)

# %% [markdown]
# And the nine together. Take two networks: the pair is *concordant* if the dearer of the two is also the better one, *discordant* if it is the worse. Kendall's
#
# $$ \tau \;=\; \frac{\text{concordant} - \text{discordant}}{\tfrac12\,k(k-1)} \tag{6.1} $$
#
# is 1 if cost and accuracy put the $k$ networks in the same order, $-1$ if in opposite orders; a tied pair counts as neither. If being cheap fed, $\tau$ would be decidedly negative. Nine networks can show little: even orders that have nothing to do with each other scatter widely about zero, and how widely is found by shuffling.

# %%


def tau(x, y):
    """Kendall's rank correlation (6.1) of two lists; a tied pair counts as neither."""
    x, y = np.asarray(x), np.asarray(y)
    agree = np.sign(x[:, None] - x) * np.sign(y[:, None] - y)
    return agree.sum() / (len(x) * (len(x) - 1))


order = np.random.default_rng(0)
by_chance = [
    tau(np.arange(len(KINDS)), order.permutation(len(KINDS))) for _ in range(5000)
]
chance_reach = float(np.quantile(np.abs(by_chance), 0.95))

# %% tags=["hide-input"]
COSTS = {
    "multiply-adds of the small networks": bills[:, 1],
    "weights of the small networks": bills[:, 0],
    "time to see, published sizes": 1 / rate_of.mean,
    "memory to learn, published sizes": held[:, LEARNING, :, 0].mean(0),
}
taus = {
    (cost, meal): [tau(values, seed.mean(0)) for seed in hits[meal]]
    for cost, values in COSTS.items()
    for meal in MEALS
}
show.table(
    [
        [
            cost,
            *(
                f"{np.mean(taus[cost, meal]):+.2f} ({min(taus[cost, meal]):+.2f} to {max(taus[cost, meal]):+.2f})"
                for meal in MEALS
            ),
        ]
        for cost in COSTS
    ],
    header=[
        "order by",
        *(
            f"and by accuracy at {meal}" if meal != "all" else "and with all images"
            for meal in MEALS
        ),
    ],
    caption=f"Kendall's τ (6.1) of nine networks: mean over seeds, and least and largest. Unrelated orders stay within ±{chance_reach:.2f} in 95 of 100 cases.",
)

# %% tags=["hide-input"]
outside = [
    (cost, meal)
    for (cost, meal), values in taus.items()
    if min(np.abs(values)) > chance_reach and np.ptp(np.sign(values)) == 0
]
show.say(
    f"At 10 % the convolutional pair is {told(delta['10 %'])} points ahead of the pair with fewer pairs, at 1 % {told(delta['1 %'])}, with all images {told(delta['all'])}. What fewer pairs leave of the hunger is {told(left_over['10 %'])} points at 10 %, and what convolutions leave {told(left_conv['10 %'])}; "
    f"they gain {told(gained['10 %', PAIRS])} over the ViT, convolutions {told(gained['10 %', CONVOLUTION])}. "
    + (
        "In every seed outside what chance does: "
        + "; ".join(
            f"{cost} against accuracy at {meal if meal != 'all' else 'all images'} (τ = {np.mean(taus[cost, meal]):+.2f})"
            for cost, meal in outside
        )
        + ". A correlation over nine networks that differ in everything is no cause, and twelve were looked at."
        if outside
        else "No order by cost is, in every seed, closer to the order by accuracy, or to its opposite, than chance would bring it."
    )
)

# %% [markdown]
# What could be wrong with this? Four things, at least. Swin does not only thin out pairs, it is local as well; if it is fed, its windows may have fed it by what they *forbid*. All but the ViT and DeiT are pyramids whose first map has a place for every 2 pixels where the ViT has one for every 4, so that a part of any gain may be the finer map. What comes with a convolution is not the convolution alone: the CNN, CvT and CoAtNet normalise over the batch and the others do not,
# CvT and MViT have patches that overlap, and the ViT, DeiT, PVT and CvT answer from a class token where the others average. And the recipe is one for all and short, with rates that were sought at three values only. The chapter on CvT and CoAtNet takes convolutions away one at a time, that on Swin and PVT the shift and the bias: what a *part* does is decided there.
#
# ## 7. Where they look, and what a shift does
#
# Two more columns, from the networks just trained on all images. *Shift*: the image moves sideways by 1 to 8 pixels, round the border; how far do the scores move, relative to their size, and how often does the answer change? *Field*: take the gradient of a unit in the middle of the last map with respect to the pixels; the field is the radius of the disc, about the gradient's own middle, that holds 95 % of it.

# %% tags=["hide-input"]
shifted = np.stack(
    [whole[f"errors.{kind}"] for kind in KINDS], axis=1
)  # (seeds, networks, 2, shifts)
flipped = 100 * np.stack([whole[f"flips.{kind}"] for kind in KINDS], axis=1)
fields = np.stack(
    [whole[f"field.{kind}"] for kind in KINDS], axis=1
)  # (seeds, networks, 2)
moved = statistics.apart(statistics.seeds_interval(shifted.mean(-1)[..., 1]))
moved_before = shifted.mean((0, -1))[:, 0]
wide = statistics.apart(statistics.seeds_interval(fields[..., 1]))


def by_shift(fig):
    left, right = fig.subplots(1, 2, sharey=True)
    inks = show.look().colours
    for ax, chosen in ((left, (0, 1, 2, 3)), (right, (4, 5, 6, 7, 8))):
        for number, k in enumerate(chosen):
            show.lines(
                ax,
                np.array(SHIFTS, float),
                shifted[:, k, 1].mean(0),
                label=NAMES[KINDS[k]],
                colour=inks[number],
                markers=True,
            )
        ax.set(xlabel="shift (px)", xticks=SHIFTS[::2])
        ax.set_ylim(0, 1.05 * shifted[:, :, 1].mean(0).max())
    left.set_ylabel("movement of the scores (share)")


show.figure(
    by_shift,
    size=(7, 3.8),
    alt="How far the scores of nine trained networks move when the image is shifted by 1 to 8 pixels, relative to their size, in two panels.",
    caption=f"After training on all images, means of {len(whole.seeds)} seeds. 0: the shift is not noticed. Where a curve dips at every second or fourth pixel, the shift is one by whole patches.",
)

# %% tags=["hide-input"]
show.table(
    [
        [
            NAMES[kind],
            f"{moved_before[k]:.2f}",
            told(moved[k], 2, plus=""),
            f"{fields[:, k, 0].mean():.1f}",
            told(wide[k], 1, plus=""),
        ]
        for k, kind in enumerate(KINDS)
    ],
    header=[
        "network",
        "shift, untrained",
        "trained",
        "field, untrained (px)",
        "trained",
    ],
    caption=f"Mean over shifts of 1 to 8 px; intervals: 95 % t-intervals over {len(whole.seeds)} seeds. A field is a radius: a disc of radius 18 px holds the image, but for its corners.",
)

# %% tags=["hide-input"]
against_cnn = {
    kind: statistics.Interval(
        *(
            float(end)
            for end in statistics.seeds_interval(
                shifted[:, k, 1].mean(-1) - shifted[:, 0, 1].mean(-1)
            )
        )
    )
    for k, kind in enumerate(KINDS)
    if k
}
calmer = [NAMES[kind] for kind, gap in against_cnn.items() if sign(gap) < 0]
shakier = [NAMES[kind] for kind, gap in against_cnn.items() if sign(gap) > 0]
show.say(
    f"Decidedly less moved by a shift than the CNN: {listed(calmer)}; decidedly more: {listed(shakier)} (eight intervals, not corrected). "
    f"Of the answers {between(flipped[:, :, 1].mean((0, 2)))} % change. Least moved is {NAMES[KINDS[np.argmin([m.mean for m in moved])]]}, most {NAMES[KINDS[np.argmax([m.mean for m in moved])]]}. "
    "All were trained on shifted images, so a part of this is learnt: what is built in is in the first column, where nothing was learnt yet. "
    f"The field of the CNN is {wide[0].mean:.1f} px after training, that of the ViT {wide[1].mean:.1f}; the smallest of all is {min(w.mean for w in wide):.1f} ({NAMES[KINDS[np.argmin([w.mean for w in wide])]]}), the largest {max(w.mean for w in wide):.1f} ({NAMES[KINDS[np.argmax([w.mean for w in wide])]]})."
)

# %% [markdown]
# ## 8. The table
#
# The account of the seven that this part tests announces a table of trade-offs and does not give it. Here is one, in which every number but those of the last column was measured here. Read it with its two sizes in mind: costs are those of the published networks, accuracies, shifts and fields those of the small ones.

# %% tags=["hide-input"]
PUBLISHED = {  # top-1 on ImageNet-1k in per cent, by the authors of each; sources: section 9
    "cnn": 80.4,  # ResNet-50 with the recipe of 2021
    "vit": 79.8,  # DeiT-S without a teacher
    "deit": 81.2,
    "swin": 81.3,
    "pvt": 79.8,
    "cvt": 81.6,
    "coatnet": 81.6,
    "mvit": 82.3,
    "focal": 82.2,
}
GROUPS = {
    "cnn": "control",
    "vit": "control",
    "deit": "a signal",
    "swin": "fewer pairs",
    "pvt": "fewer pairs",
    "cvt": "convolution",
    "coatnet": "convolution",
    "mvit": "pooling",
    "focal": "near and far",
}


def ranked(values, best=max):
    """Write values, the best of them bold."""
    return [
        f"**{text}**" if value == best(v for v, _ in values) else text
        for value, text in values
    ]


columns = [
    ranked([(counted[k, 0], f"{counted[k, 0] / 1e9:.2f}") for k in range(9)], min),
    ranked([(rate_of.mean[k], f"{rate_of.mean[k]:.1f}") for k in range(9)]),
    ranked(
        [
            (
                held[:, LEARNING, k, -1].mean(),
                f"{held[:, LEARNING, k, -1].mean() / 2**20:,.0f}",
            )
            for k in range(9)
        ],
        min,
    ),
    *(
        ranked(
            [(levels[meal][k].mean, f"{levels[meal][k].mean:.1f}") for k in range(9)]
        )
        for meal in MEALS
    ),
    ranked([(moved[k].mean, f"{moved[k].mean:.2f}") for k in range(9)], min),
    [f"*{PUBLISHED[kind]}*" for kind in KINDS],
]
show.table(
    [
        [
            f"{NAMES[kind]} ({BIG[k]})",
            GROUPS[kind],
            *(column[k] for column in columns),
        ]
        for k, kind in enumerate(KINDS)
    ],
    header=[
        "network",
        "group",
        "multiply-adds, G",
        "images a second",
        f"MiB at {SIDES[-1]} px",
        "accuracy at 1 %",
        "at 10 %",
        "all",
        "shift",
        "ImageNet, *published*",
    ],
    caption="Measured here, but for the last column, which is the authors' (section 9; ResNet-50 by its recipe of 2021, DeiT with its large teacher). The first three: published sizes (named in brackets), section 2. The others: small networks on ten classes of CIFAR-100, sections 5 and 7. Bold: the best mean of a column, which may well be a tie; intervals stand in the sections.",
)

# %% [markdown]
# One table has one order of columns, and the eye makes a ranking of it. Choose your own two instead. The network you want lies in a corner: which one depends on you.

# %% tags=["hide-input"]


def ends(intervals):
    """Return means, low and high ends of a list of intervals."""
    return {
        "values": [float(i.mean) for i in intervals],
        "low": [float(i.low) for i in intervals],
        "high": [float(i.high) for i in intervals],
    }


show.choose(
    points=[NAMES[kind] for kind in KINDS],
    axes=[
        show.Axis("accuracy at 10 % (%)", **ends(levels["10 %"])),
        show.Axis("images seen a second", **ends(statistics.apart(rate_of))),
        show.Axis("accuracy at 1 % (%)", **ends(levels["1 %"])),
        show.Axis("accuracy with all images (%)", **ends(levels["all"])),
        show.Axis("multiply-adds at 224 px (G)", (counted[:, 0] / 1e9).tolist()),
        show.Axis("images learnt from a second", **ends(statistics.apart(lessons))),
        show.Axis("exponent of time", **ends(grows)),
        show.Axis(
            f"memory at {SIDES[-1]} px (MiB)",
            (held[:, LEARNING, :, -1].mean(0) / 2**20).tolist(),
        ),
        show.Axis("movement under shifts (share)", **ends(moved)),
        show.Axis("field (px)", **ends(wide)),
        show.Axis("ImageNet, published (%)", list(PUBLISHED.values())),
    ],
    start=("images seen a second", "accuracy at 10 % (%)"),
    hollow=["CNN", "ViT"],
    alt="Nine networks as points: accuracy on few images against images a second, with intervals; two menus choose other quantities.",
    caption="Nine networks in two quantities of your choice. Costs are those of the published sizes, accuracies and shifts those of the small networks; hollow: the controls. Bars: 95 % intervals.",
)

# %% [markdown]
# ## 9. What the published numbers say
#
# Top-1 accuracy on ImageNet-1k in per cent, images of 224 px, trained on its 1.28 million images alone unless said otherwise; by the authors, one network each, no intervals. Images a second are those of one table, in the README of [Focal's authors](https://github.com/microsoft/Focal-Transformer), which names no graphics card.
#
# | network | top-1 | weights, million | multiply-adds, G | images a second | source of the accuracy |
# |---|---|---|---|---|---|
# | ResNet-50, as of 2015 | 76.2 | 25 | 4.1 | | tables of [Touvron et al., 2021](https://arxiv.org/abs/2012.12877) and [Wang et al., 2022](https://arxiv.org/abs/2106.13797) |
# | ResNet-50, recipe of 2021 (600 epochs) | 80.4 | 25 | 4.1 | | [Wightman et al., 2021](https://arxiv.org/abs/2110.00476) |
# | ViT-B/16, at 384 px | 77.9 | 86 | 55.4 | | [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929), as quoted by [Liu et al., 2021](https://arxiv.org/abs/2103.14030) |
# | DeiT-S without a teacher (a ViT-S/16) | 79.8 | 22 | 4.6 | 939 | [Touvron et al., 2021](https://arxiv.org/abs/2012.12877), table 5 |
# | DeiT-S, distilled | 81.2 | 22 | 4.6 | | the same |
# | DeiT-B without / distilled / distilled, at 384 px | 81.8 / 83.4 / 84.5 | 86 to 87 | 17.6 at 224 px | 291 | the same |
# | Swin-T | 81.3 | 29 | 4.5 | 760 | [Liu et al., 2021](https://arxiv.org/abs/2103.14030), table 1 |
# | PVT-Small | 79.8 | 24.5 | 3.8 | 794 | [Wang et al., 2021](https://arxiv.org/abs/2102.12122), repository |
# | CvT-13 | 81.6 | 20 | 4.5 | 746 | [Wu et al., 2021](https://arxiv.org/abs/2103.15808) |
# | CoAtNet-0 | 81.6 | 25 | 4.2 | | [Dai et al., 2021](https://arxiv.org/abs/2106.04803), table 4 |
# | MViT-B-16, max / convolution | 82.5 / 83.0 | 37 | 7.8 | | [Fan et al., 2021](https://arxiv.org/abs/2104.11227), table 17 |
# | MViTv2-T | 82.3 | 24 | 4.7 | | [Li et al., 2022](https://arxiv.org/abs/2112.01526) |
# | Focal-T | 82.2 | 28.9 | 4.9 | 319 | [Yang et al., 2021](https://arxiv.org/abs/2107.00641) |
# | EfficientNet-B4, at 380 px | 82.9 | 19 | 4.2 | | as quoted by [Liu et al., 2021](https://arxiv.org/abs/2103.14030) |
# | EfficientNet-B5, at 456 px | 83.6 | 30 | 9.9 | | the same |
#
# Read it with three things in mind. *The recipe is in the number*: two rows are the same ResNet-50, and lie farther apart than any two of the seven at their size. *The time is not in the multiply-adds*: Focal-T has 1.1 times those of Swin-T and takes 2.4 times as long. And *the images are all there*: the column has nothing to say of hunger. Tables that do are rare. Two:
#
# | trained from scratch | weights, million | CIFAR-10 | CIFAR-100 | ImageNet-100, 100 epochs | 300 epochs |
# |---|---|---|---|---|---|
# | CvT-13 | 20 | 89.0 | 73.5 | 85.6 | 90.2 |
# | T2T-ViT-14 | 22 | 84.2 | 65.2 | 82.7 | 87.8 |
# | Swin-T | 29 | 59.5 | 53.3 | 82.8 | 89.7 |
# | Swin-T, asked where its tokens lie as well | 29 | 83.9 | 66.2 | 84.0 | 90.3 |
#
# ([Liu et al., 2021b](https://arxiv.org/abs/2106.03746), tables 2 and 3; a hundred epochs on CIFAR.) With time Swin and CvT come together on the 127,000 images of ImageNet-100 (2.8 points apart, then 0.5); T2T-ViT stays 2.4 behind. On 50,000 small ones Swin is 30 points behind CvT on CIFAR-10 and 20 on CIFAR-100, and an additional question *to the same network* wins most of it back, which no change of cost could. But a smaller Swin with another recipe has 76.9 % on CIFAR-100 in [Lee et al.,
# 2021](https://arxiv.org/abs/2112.13492): what looks like a property of Swin is one of Swin at a size and with a recipe.
#
# | share of ImageNet-1k, as many steps | 5 % | 10 % | 30 % | 50 % | all |
# |---|---|---|---|---|---|
# | DeiT-S, without a teacher | 34.8 | 48.0 | 66.1 | 74.6 | 79.9 |
# | ConViT-S, which begins as a convolution and may unlearn it | 47.8 | 59.6 | 73.7 | 78.2 | 81.4 |
#
# ([d'Ascoli et al., 2021](https://arxiv.org/abs/2103.10697), table 2.) Two networks that differ in their bias above all (the second has a quarter more weights too): the gap is 13 points at a twentieth of the images and 1.5 with all. That is what a cure of hunger looks like.
#
# ## 10. What was claimed, what we measured

# %% tags=["hide-input"]
TRAINED = f"{len(tenth.seeds)} seeds at scale {tenth.scale}, {CLASSES} classes of CIFAR-100 at 32 px, {STEPS:,} steps of {BATCH}. "
well = len(better["10 %"])
show.verdict(
    claim="HUNGER-10: what a ViT lacks can be learned from more signal or injected by architecture; each of the seven remedies feeds it.",
    source="the conclusion of a blog post on the seven",
    verdict="holds"
    if well == len(REMEDIES)
    else "holds in part"
    if well
    else "fails"
    if worse["10 %"]
    else "undecided",
    measured=TRAINED
    + f"Decidedly better than the ViT at 10 % of the images: {listed(better['10 %'])} ({well} of {len(REMEDIES)}); decidedly worse: {listed(worse['10 %'])}. At 1 %: better {listed(better['1 %'])}, worse {listed(worse['1 %'])}. "
    "All pyramids have finer patches than the ViT, so a gain may be the patches'; only DeiT learns from a signal, and its teacher saw no other images. "
    + f"The ViT's own hunger (1.1) is {told(hunger['10 %'])} points."
    + (
        " One of seven intervals that are not corrected may be chance."
        if well == 1
        else ""
    ),
    would_change="For a network that is not decided, more seeds; for one that is, a ViT with patches of 2 pixels that does as well.",
)

# %% tags=["hide-input"]
planned = (sign(delta["10 %"]), sign(left_over["10 %"]))
show.verdict(
    claim="LIT-50: cost is not data hunger. Networks that only make attention cheaper stay hungry; networks with convolutions in them are less so.",
    source="our reading of [Liu et al., 2021b](https://arxiv.org/abs/2106.03746), against accounts that sort the seven under efficiency",
    verdict="fails"
    if min(planned) < 0
    else "holds"
    if min(planned) > 0
    else "holds in part"
    if max(planned) > 0
    else "undecided",
    measured=TRAINED
    + f"At 10 % the two with convolutions minus the two with fewer pairs (1.2): {told(delta['10 %'])} points; the CNN minus the two with fewer pairs: {told(left_over['10 %'])}. The CNN minus the two with convolutions: {told(left_conv['10 %'])}. Against the ViT the two with fewer pairs gain {told(gained['10 %', PAIRS])} on average: PVT, which is not local, {told(fed['10 %'][AT['pvt']])}, and Swin {told(fed['10 %'][AT['swin']])}. "
    f"Order of cost (time to see) against order of accuracy at 10 %: τ = {np.mean(taus['time to see, published sizes', '10 %']):+.2f}, where chance reaches ±{chance_reach:.2f}.",
    would_change="A cheaper attention that is as wide, as global and as coarse as the full one, and feeds nevertheless; or the same contrast with other sizes and recipes, and another sign."
    + (
        f" A wider search of rates would be a beginning: the best of those tried was at the edge for {listed(at_edge)}."
        if at_edge
        else ""
    ),
)

# %% tags=["hide-input"]
cvt_swin = {
    meal: one(h[..., AT["cvt"]] - h[..., AT["swin"]]) for meal, h in hits.items()
}
both = [sign(cvt_swin[meal]) for meal in ("1 %", "10 %")]
show.verdict(
    claim="LIT-51: networks that are equal on ImageNet are not equal on few images: CvT is ahead of Swin there.",
    source="[Liu et al., 2021b](https://arxiv.org/abs/2106.03746)",
    verdict="fails"
    if min(both) < 0
    else "holds"
    if min(both) > 0
    else "holds in part"
    if max(both) > 0
    else "undecided",
    measured=TRAINED
    + f"CvT minus Swin: {told(cvt_swin['1 %'])} points at 1 %, {told(cvt_swin['10 %'])} at 10 %, {told(cvt_swin['all'])} with all {eaten['all']:,} images.",
    would_change="The sign alone decides; in the paper the gap is 20 to 30 points. Whole data sets, the published sizes and a hundred epochs, as there, would test its size too.",
)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: Who is worth a look?
#
# A network is *dominated* if another costs no more and is at least as accurate, and is strictly better in one of the two. Write a function that returns the numbers of the networks that are not dominated, from 0, in the order given.

# %%


def front(cost, accuracy): ...


check.pareto_front(front)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def front(cost, accuracy):
#     points = list(zip(cost, accuracy))
#
#     def beaten(c, a):
#         return any(c2 <= c and a2 >= a and (c2 < c or a2 > a) for c2, a2 in points)
#
#     return [i for i, point in enumerate(points) if not beaten(*point)]
#
#
# check.pareto_front(front)
# ```
#
# Two equal networks do not dominate each other, so both stay. A front of *means* is unstable: shift each network by its interval and see who comes and goes. What a front cannot do is choose on it; that takes your price for a point of accuracy.
#
# </details>
#
# ### Exercise 2: The best of a table
#
# A table has $k$ networks that are in truth all equal, and every difference of two is called decided if its 95 % interval excludes zero. Return two numbers: how many of the differences are called decided on average, and the level of the intervals (in per cent) at which Bonferroni's correction keeps the chance of even one false call at or below 5 %.

# %%


def lucky(k): ...


check.lucky_differences(lucky)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def lucky(k):
#     pairs = k * (k - 1) / 2
#     return 0.05 * pairs, 100 * (1 - 0.05 / pairs)
#
#
# check.lucky_differences(lucky)
# ```
#
# For our nine: 36 pairs, 1.8 false calls on average, and intervals at 99.86 %, which are 1.6 times as wide where many values are averaged and 6 times for three seeds. That is why section 1 names few differences beforehand and section 5 only warns. The average needs no independence; Bonferroni's level does not either, and is too careful where the differences share a network.
#
# </details>
#
# ### Exercise 3: How many images to hold out?
#
# Two networks answer the same $n$ images. They *disagree* (one right, one wrong) on a share $d$ of them, and the second is better by $g$, a share too. Return the least whole $n$ for which the half width of a 95 % interval of the difference, $1.96$ standard errors, is at most $h$. (One image gives $+1$, $0$ or $-1$.)

# %%


def images_needed(d, g, h): ...


check.images_to_hold_out(images_needed)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# import math
#
#
# def images_needed(d, g, h):
#     return math.ceil(1.96**2 * (d - g**2) / h**2)
#
#
# check.images_to_hold_out(images_needed)
# ```
#
# With $d = 0.3$, $g = 0$ and $h = 0.01$ it is 11,525: more than the whole test set of CIFAR, for one point either way. Asking the two on *different* images would replace $d - g^2$ by the two variances, $a_1(1-a_1) + a_2(1-a_2)$. At accuracies of 60 % that is 0.48, and 18,440 images for each of the two, where pairing asks 11,525 for both. And no number of images makes the spread over *seeds* smaller, which with three seeds can be the larger part of an interval.
#
# </details>
#
# ## For the seminar
#
# > **Seminar.** You are given 2,000 labelled images of 512 x 512 pixels from a microscope, one graphics card, and a week. Each group takes one of the nine networks and defends it with two numbers from this chapter; the others attack the numbers. Which of them would you not trust outside ten classes of small photographs? Then write the run
# > of one day whose outcome would make you change your network, and say which outcome.
#
# ## Further reading
#
# - [Liu et al., 2021b](https://arxiv.org/abs/2106.03746): transformers of the second generation on small data sets; read its first table before its method.
# - [d'Ascoli et al., 2021](https://arxiv.org/abs/2103.10697): accuracy against the share of ImageNet, with a locality that can be unlearned.
# - [Wightman et al., 2021](https://arxiv.org/abs/2110.00476): what a better recipe does to a network of 2015. How much of any table is recipe?
# - [Dehghani et al., 2021](https://arxiv.org/abs/2110.12894): why multiply-adds, weights and time order networks differently, and what follows for comparisons.
