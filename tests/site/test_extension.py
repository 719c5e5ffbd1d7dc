"""The parts of the book's extension, each alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from portable import assets, citations, pages

PAPERS = {
    "https://arxiv.org/abs/2010.11929": "arxiv:2010.11929",
    "https://arxiv.org/abs/2010.11929v2": "arxiv:2010.11929",
    "http://www.arxiv.org/pdf/2010.11929v1.pdf": "arxiv:2010.11929",
    "https://arxiv.org/abs/cs/0112017": "arxiv:cs/0112017",
    "https://doi.org/10.1109/CVPR.2016.90": "doi:10.1109/cvpr.2016.90",
    "https://doi.org/10.48550/arXiv.2010.11929": "arxiv:2010.11929",
    "https://arxiv.org/list/cs.CV/recent": None,
    "https://github.com/huggingface/pytorch-image-models": None,
    "glossary.html": None,
    "": None,
}


@pytest.mark.parametrize("address", PAPERS)
def test_an_address_names_a_paper(address: str) -> None:
    assert citations.paper(address) == PAPERS[address]


def test_a_bibliography_knows_a_paper_by_any_of_its_addresses(tmp_path: Path) -> None:
    file = tmp_path / "references.bib"
    file.write_text(
        "@article{a, author={van der Berg, Ann and Li, Bo}, title={{ViT} and so on}, year={2020}, doi={10.1/X}}\n"
        "@article{b, author={Li, Bo}, title={More}, year={2021}, eprint={2101.00001}}\n"
        "@article{c, author={A, A and B, B and C, C}, title={Most}, year={2022},"
        " url={https://arxiv.org/abs/2201.00001v3}}\n"
    )
    assert citations.bibliography([file]) == {
        "doi:10.1/x": "van der Berg and Li, ViT and so on, 2020",
        "arxiv:2101.00001": "Li, More, 2021",
        "arxiv:2201.00001": "A et al., Most, 2022",
    }


@pytest.mark.parametrize(
    ("html", "number"),
    [
        ('<img src="a.png" alt="A cat">', 0),
        ('<img src="a.png">', 1),
        ('<img src="a.png" alt="">', 1),
        ('<img src="../_images/a.png" alt="../_images/a.png">', 1),
        ('<figure class="vl-figure"><img alt="A" src="a.png"><figcaption>A <em>b</em></figcaption></figure>', 0),
        ('<figure class="vl-figure"><img alt="A" src="a.png"><figcaption> </figcaption></figure>', 1),
        ('<figure class="vl-figure"></figure><figure class="other"></figure>', 1),
        ("<pre>&lt;img src=x&gt;</pre>", 0),
    ],
)
def test_a_picture_without_words_is_a_fault(html: str, number: int) -> None:
    assert len(pages.faults(html)) == number


def test_an_image_that_is_not_base64_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="An embedded image is not base64"):
        pages._externalise('<img alt="A" src="data:image/png;base64,abc">', tmp_path, "_images")


def test_an_image_keeps_what_it_says_of_itself(tmp_path: Path) -> None:
    tag = '<img alt="A" width="10" loading="eager" src="data:image/svg+xml;base64,PHN2Zy8+"/>'
    done = pages._externalise(tag, tmp_path, "../_images")
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == b"<svg/>"
    assert done == f'<img alt="A" width="10" loading="eager" src="../_images/{file.name}"/>'


SCRIPT = (
    'var a={bars:[448,512,["navicon"],"f0c9","M0 96z"],"arrow-up":[384,512,[8593],"f062","M1 1z"]};'
    'var b={bars:[400,500,["navicon"],"f0c9","M2 2z"]};'
)


def test_an_icon_is_drawn_from_the_last_set_that_has_it_also_by_another_name() -> None:
    rules = assets.icon_rules({"navicon", "arrow-up"}, SCRIPT).splitlines()[1:]
    assert rules[0].startswith(".fa-arrow-up{width:0.750em;") and "M1 1z" in rules[0].replace("%3B", ";")
    assert rules[1].startswith(".fa-navicon{width:0.800em;") and "0 0 400 500" in rules[1]


def test_an_icon_that_does_not_exist_stops_the_build() -> None:
    with pytest.raises(RuntimeError, match="no icon named llama"):
        assets.icon_rules({"llama", "bars"}, SCRIPT)
