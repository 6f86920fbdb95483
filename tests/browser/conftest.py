"""Pages in a real browser: Debian's Chromium, driven by Playwright. ``make test-browser`` installs both."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from report_runs import make_report_run

from faircl.report.page import write_run_page

playwright_api = pytest.importorskip("playwright.sync_api", reason="make test-browser installs Playwright")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-first-run", "--disable-quic"]


SIZES = {5: (3, 4, (96, 64)), 21: (6, 4, (96, 64)), 150: (6, 20, (768, 512)), 300: (2, 1, (96, 64))}
"""Number of classes to steps, images and the size of an image."""


@dataclass
class Watched:
    """A page, what it wrote to the console as errors, and every address that it asked for after the first."""

    page: playwright_api.Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser() -> Iterator[playwright_api.Browser]:
    if CHROMIUM is None:
        pytest.fail("Chromium is not installed; run: make test-browser")
    with playwright_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser) -> Iterator[Callable[..., Watched]]:
    """Return a function that opens an address in a context of its own and returns the watched page.

    It takes the width and height of the window, the colour scheme, and further options of a Playwright context.
    """
    contexts = []

    def opened(address: str, width: int = 1400, height: int = 900, scheme: str = "light", **options) -> Watched:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        contexts.append(context)
        watched = Watched(context.new_page())
        watched.page.on("console", lambda said: watched.errors.append(said.text) if said.type == "error" else None)
        watched.page.on("pageerror", lambda error: watched.errors.append(str(error)))
        watched.page.on("request", lambda request: watched.requests.append(request.url))
        watched.page.goto(address)
        watched.requests = [url for url in watched.requests if url != address and not url.startswith("data:")]
        return watched

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def axe() -> Callable[[playwright_api.Page], list[str]]:
    """Return a function that lists the serious and critical violations that axe-core finds on a page."""
    checker = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    def found(page: playwright_api.Page) -> list[str]:
        violations = checker.run(page).response["violations"]
        serious = [one for one in violations if one["impact"] in ("serious", "critical")]
        return [f"{one['id']}: {one['help']} at {one['nodes'][0]['target']}" for one in serious]

    return found


@pytest.fixture(scope="session")
def report_pages(tmp_path_factory):
    """Return a function that writes the page of a run with so many classes, once."""
    made = {}

    def page(classes):
        if classes not in made:
            steps, images, size = SIZES[classes]
            run = make_report_run(tmp_path_factory.mktemp("runs") / str(classes), classes, steps, images, size)
            made[classes] = write_run_page(run)
        return made[classes]

    return page


@pytest.fixture
def opened_report(report_pages, open_page):
    """Return a function that opens the page of a run with so many classes."""
    return lambda classes=21, **options: open_page(report_pages(classes).as_uri(), **options)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "browser":
            item.add_marker(pytest.mark.browser)
