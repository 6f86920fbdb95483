"""The page of a comparison in a browser: no error, no request, nothing overlaps, choosing and sorting work."""

from itertools import combinations

import numpy as np
import pytest
from recorded_run import HOSTILE, SCRIPT, make_recorded_run

import faircl


def compared(root, runs, classes, **options):
    """Runs of random quality; every second label has two runs."""
    names = ("background", *(f"class {k}" for k in range(1, classes)))
    generator = np.random.default_rng(3)
    folders, labels = [], []
    for k in range(runs):
        right = np.clip(generator.uniform(0.3, 0.8) + generator.normal(0, 0.15, classes), 0.02, 0.98)
        for seed in range(1 + k % 2):
            folder = root / f"{k}-{seed}"
            folders.append(make_recorded_run(folder, names, right=right, seed=10 * k + seed, pictures=3, **options))
            labels.append(f"method {k} with a name")
    return faircl.compare(folders, labels, root / "page").page


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    sizes = {"small": (2, 5), "middle": (5, 21), "large": (12, 150), "many": (20, 21)}
    return {name: compared(tmp_path_factory.mktemp(name), *size).as_uri() for name, size in sizes.items()}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("name", ["small", "middle", "large", "many"])
def test_pages_are_clean_and_fit(name, width, scheme, pages, open_page, axe):
    watched = open_page(pages[name], width=width, scheme=scheme)
    assert (watched.errors, watched.requests) == ([], [])
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    if name != "large" or scheme == "light":  # axe takes its time over 150 classes
        assert axe(watched.page) == []


@pytest.mark.parametrize("name", ["small", "middle", "large", "many"])
def test_texts_of_the_plots_do_not_overlap(name, pages, open_page):
    page = open_page(pages[name]).page
    boxes = page.evaluate(
        """[...document.querySelectorAll('figure > .scroll > svg')].map(svg => [...svg.querySelectorAll('text')].map(
        t => { const b = t.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom, t.textContent]; }))"""
    )
    assert len(boxes) == 2
    for texts in boxes:
        assert len(texts) > 5
        for a, b in combinations(texts, 2):
            apart = a[2] <= b[0] + 1 or b[2] <= a[0] + 1 or a[3] <= b[1] + 2 or b[3] <= a[1] + 2
            assert apart, (a, b)


def test_runs_and_images_are_chosen_and_columns_sorted(pages, open_page):
    page = open_page(pages["middle"]).page
    shown = page.locator("[data-chooser=Run] section:visible")
    assert shown.count() == 1
    page.get_by_role("combobox", name="Run").select_option("method 3 with a name")
    assert shown.locator("h3").inner_text() == "method 3 with a name minus method 0 with a name"
    pictures = page.locator("[data-chooser=Image] section:visible")
    assert pictures.locator("tbody tr").count() == 5
    assert pictures.locator("thead th").count() == 2
    page.get_by_role("combobox", name="Image").select_option("example 2")
    assert pictures.locator("h3").inner_text() == "example 2"
    assert page.evaluate("[...document.images].every(one => one.naturalWidth > 0)")
    heat = page.locator("table.heat")
    head = heat.get_by_role("button", name="method 1 with a name")
    column = "table.heat tbody td:nth-child(4)"
    head.click()
    falling = [float(text) for text in page.locator(column).all_inner_texts()]
    assert falling == sorted(falling, reverse=True)
    head.press("Enter")  # by keyboard
    rising = [float(text) for text in page.locator(column).all_inner_texts()]
    assert rising == sorted(rising)
    assert heat.locator("th[aria-sort=ascending]").count() == 1


def test_without_scripts_everything_is_there(pages, open_page):
    page = open_page(pages["middle"], java_script_enabled=False).page
    assert page.locator("[data-chooser=Run] section:visible").count() == 4
    assert page.locator("[data-chooser=Image] section:visible").count() == 3


def test_hostile_names_are_text(tmp_path, open_page, axe):
    runs = [make_recorded_run(tmp_path / f"{k}", HOSTILE, seed=k, pictures=1) for k in range(2)]
    watched = open_page(faircl.compare(runs, [SCRIPT, "=1+1"], tmp_path / "page").page.as_uri())
    alerts = []
    watched.page.on("dialog", lambda dialog: alerts.append(dialog.message))
    assert watched.page.locator("table.heat thead").get_by_text(SCRIPT, exact=True).count() == 1
    assert watched.page.locator("table.heat tbody").get_by_text(SCRIPT, exact=True).count() == 1
    assert (watched.errors, watched.requests, alerts, axe(watched.page)) == ([], [], [], [])
