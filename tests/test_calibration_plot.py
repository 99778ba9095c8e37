"""The plot of promised against actual waits that `bench/calibration.py` draws for the documentation."""

from __future__ import annotations

from xml.etree import ElementTree

from bench.calibration_plot import draw_plot
from bench.scoring import Promise, Result
from bench.simulated_days import steady_day
from qo.policy.estimates.base import base_estimate
from qo.settings import EstimateSettings

SVG = "{http://www.w3.org/2000/svg}"


def promise_of(promised: float, *, waited: float) -> Promise:
    estimate = base_estimate(position=1, active_workers=1, average_seconds=promised, settings=EstimateSettings())
    return Promise(at=0, learnt=estimate, base=estimate, task="build", waited=waited)


def drawn(number_of_jobs: int) -> ElementTree.Element:
    jobs = [promise_of(60, waited=60 if number % 4 else 200) for number in range(number_of_jobs)]
    return ElementTree.fromstring(draw_plot([Result(steady_day(1, 1), jobs, replays=1, jobs=number_of_jobs)] * 3))


def test_both_axes_the_share_and_every_sign_are_explained_in_words() -> None:
    words = [element.text for element in drawn(8).iter(f"{SVG}text")]

    assert (
        words.count("promised wait") == words.count("actual wait") == words.count("75% of 8 jobs started inside") == 3
    )
    assert {"started inside its range", "started outside of it", "exactly as promised"} <= set(words)


def test_every_job_is_a_sign_and_many_jobs_are_at_most_400_a_panel() -> None:
    def signs(plot: ElementTree.Element) -> int:
        dots, crosses = (plot.findall(f"{SVG}path[@class='{kind}']")[0].get("d", "") for kind in ("inside", "outside"))
        return dots.count("M") + crosses.count("M")

    assert signs(drawn(8)) == 8
    assert 200 <= signs(drawn(799)) <= 400


def test_nothing_lies_outside_of_the_picture() -> None:
    plot = drawn(8)
    width, height = map(float, plot.attrib["viewBox"].split()[2:])

    texts = list(plot.iter(f"{SVG}text"))
    assert texts
    for text in texts:
        assert 0 < float(text.attrib["x"]) < width
        assert 0 < float(text.attrib["y"]) < height
