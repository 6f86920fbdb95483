"""The page of ``faircl serve`` in a real browser, with a really started server."""

import base64
import re

import numpy as np
import pytest
from image_files import encoded, png_bomb
from served_runs import serving

import faircl

SCRIPT = "<script>alert(1)</script>"
ODD = 'a "b", c \N{GRINNING FACE}'
MAX_BYTES = 2_000_000


@pytest.fixture(scope="module")
def served(tiny_train, tmp_path_factory):
    """A server of a run of two steps and one version, in which two classes have names that must be escaped."""
    run = tmp_path_factory.mktemp("served") / "run"
    tiny_train(run, "data.images=48", "train.epochs=15", "train.later_epochs=6", "model.width=16", "model.embedding=16")
    faircl.rename_classes(run, {"car": SCRIPT, "road": ODD}, reporter=faircl.SilentReporter())
    with serving(run, "--max-bytes", str(MAX_BYTES), "--max-pixels", "1000000") as started:
        yield started
    assert started.said() == [f"ready: {started.address} (Ctrl-C ends it)", "The page is closed."]
    assert started.process.returncode == 0


@pytest.fixture(scope="module")
def scene() -> np.ndarray:
    """A street scene of 96 × 96 pixels."""
    from faircl.readers.scenes import SceneData

    data = SceneData(4, 4, 96)
    return data.read("test", next(iter(data.ids("test")))).image


def choose(page, name, data, kind="image/png"):
    page.set_input_files("#file", {"name": name, "mimeType": kind, "buffer": data})


def wait_for_result(page, name):
    # wait_for_function would evaluate a string, which the page's Content-Security-Policy forbids.
    page.locator("#status").filter(has_text=f"{name}:").wait_for()
    page.wait_for_selector("#stage:not(.busy)")


def opened(open_page, served, scene, **options):
    """Open the page, choose the scene, and return the watched page with its result."""
    watched = open_page(served.address, **options)
    choose(watched.page, "scene.png", encoded(scene))
    wait_for_result(watched.page, "scene.png")
    return watched


def pixels(page, side="right", kind="classes"):
    """RGBA of a canvas, (H, W, 4)."""
    text = page.evaluate(
        """([side, kind]) => {
            const canvas = document.querySelector(`#${side} .${kind}`);
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return [canvas.width, canvas.height, btoa(String.fromCharCode(...data))];
        }""",
        [side, kind],
    )
    return np.frombuffer(base64.b64decode(text[2]), np.uint8).reshape(text[1], text[0], 4)


def clean(watched, served):
    """Whether nothing was written to the console and no other address was asked."""
    assert watched.errors == []
    assert [url for url in watched.requests if not url.startswith((served.address, "data:"))] == []
    return True


def test_an_image_is_chosen_and_its_result_is_what_the_network_predicts(open_page, served, scene):
    watched = opened(open_page, served, scene)
    page = watched.page
    run = served.log.parent / "run"
    for side, version in (("left", 0), ("right", 1)):
        found = faircl.load(run, device="cpu", version=version).predict(scene)
        expected = np.zeros((96, 96, 4), np.uint8)
        for id, colour in found.colours.items():
            if id != found.background:  # which is hidden at first
                expected[found.mask == id] = (*colour, 255)
        assert np.array_equal(pixels(page, side), expected)
        areas = {row.query_selector("th").inner_text().strip(): row for row in page.query_selector_all("#classes tr")}
        for name, share in found.areas().items():
            cell = areas[name].query_selector_all("td")[0 if side == "left" else 1].inner_text()
            assert cell == (f"{100 * share:.1f}" if share >= 0.0005 else "< 0.1")
    assert re.fullmatch(r"scene.png: 96 × 96 pixels, segmented in [\d.]+ and [\d.]+ s\.", page.inner_text("#status"))
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert clean(watched, served)


def test_an_image_is_dropped(open_page, served, scene):
    watched = open_page(served.address)
    page = watched.page
    transfer = page.evaluate_handle(
        """(text) => {
            const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
            return transfer;
        }""",
        base64.b64encode(encoded(scene)).decode(),
    )
    page.dispatch_event("#drop", "dragover", {"dataTransfer": transfer})
    assert "over" in page.get_attribute("#drop", "class")
    page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})
    wait_for_result(page, "dropped.png")
    assert page.is_visible("#stage")
    assert "over" not in page.get_attribute("#drop", "class")
    assert pixels(page).any()
    assert clean(watched, served)


def test_the_slider_moves_the_border_by_keyboard_and_by_mouse(open_page, served, scene):
    watched = opened(open_page, served, scene)
    page = watched.page

    def border():
        """Where the left side ends and the line stands, as a share of the picture."""
        stage, line = page.locator("#stage").bounding_box(), page.locator(".line").bounding_box()
        clip = page.evaluate("getComputedStyle(document.getElementById('left')).clipPath")
        assert clip.startswith("inset(")
        return round((line["x"] + line["width"] / 2 - stage["x"]) / stage["width"], 2)

    def colour(share):
        """What is seen of the picture at a share of its width, in its middle."""
        box = page.locator("#stage").bounding_box()
        place = {"x": box["x"] + share * box["width"], "y": box["y"] + 0.7 * box["height"], "width": 1, "height": 1}
        return page.screenshot(clip=place)

    page.select_option("#left-choice", "")
    page.fill("#opacity", "100")
    assert border() == 0.5
    page.focus("#split")
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    assert border() == 0.8
    alone = colour(0.7)
    page.keyboard.press("Home")
    assert border() == 0.0
    assert colour(0.7) != alone  # the network's colours have taken the place of the image
    page.keyboard.press("End")
    assert border() == 1.0
    assert colour(0.7) == alone
    box = page.locator("#stage").bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 30)
    page.mouse.up()
    assert border() == 0.25
    assert page.get_attribute("#split", "aria-valuetext") == "25 % of the width show the left side"
    assert clean(watched, served)


def test_classes_are_hidden_and_shown_again(open_page, served, scene):
    watched = opened(open_page, served, scene)
    page = watched.page
    before = pixels(page)
    rows = page.locator("#classes")
    for name in (ODD, SCRIPT):  # as text
        rows.get_by_label(name, exact=True).uncheck()
        after = pixels(page)
        gone = (before != after).any(-1)
        assert gone.any()
        assert after.any()
        assert (after[gone] == 0).all()
        assert len(np.unique(before[gone], axis=0)) == 1
        rows.get_by_label(name, exact=True).check()
        assert np.array_equal(pixels(page), before)
    assert not rows.get_by_label("background").is_checked()
    page.click("#none")
    assert not pixels(page).any()
    page.click("#all")
    assert (pixels(page)[..., 3] == 255).all()  # background too
    assert clean(watched, served)


def test_unknown_regions_are_marked_from_a_score_on(open_page, served, scene):
    watched = opened(open_page, served, scene)
    page = watched.page
    scores = faircl.load(served.log.parent / "run", device="cpu").predict(scene, unknown=True).unknown
    assert page.is_hidden("#right .unknown")
    page.check("#unknown")
    for threshold in (50, 95):
        page.fill("#threshold", str(threshold))
        known = np.rint(scores * 255) < 2.55 * threshold
        marked = pixels(page, kind="unknown")[..., 3] > 0
        assert not marked[known].any()
        assert page.inner_text("#threshold-shown") == f"{threshold / 100:.2f}"
        share = f"{100 * (1 - known.mean()):.1f}" if known.any() else "100.0"
        assert f"right {share}\u00a0%" in page.inner_text("#unknown-share")
    page.fill("#threshold", "0")
    assert 0.45 < (pixels(page, kind="unknown")[..., 3] > 0).mean() < 0.55  # stripes with gaps
    assert clean(watched, served)


def test_steps_and_versions_are_compared(open_page, served, scene):
    watched = opened(open_page, served, scene)
    page = watched.page
    assert [option.inner_text() for option in page.query_selector_all("#left-choice option")][:2] == [
        "the image alone",
        "step 0: 7 classes",
    ]
    assert page.input_value("#left-choice") == "0-1"
    assert page.input_value("#right-choice") == "1-0"
    page.select_option("#left-choice", "0-0")
    wait_for_result(page, "scene.png")
    found = faircl.load(served.log.parent / "run", 0, "cpu", version=0).predict(scene)
    known = [tuple(colour) for id, colour in found.colours.items() if id != found.background]
    shown = {tuple(colour[:3]) for colour in pixels(page, "left").reshape(-1, 4).tolist() if colour[3]}
    assert shown <= set(known)
    page.select_option("#left-choice", "")
    assert not pixels(page, "left").any()
    assert pixels(page, "right").any()
    assert clean(watched, served)


BAD = {
    "oversize": (b"\x89PNG\r\n\x1a\n" + bytes(MAX_BYTES), "has 2.0 MB, and at most 2 MB are accepted"),
    "wrong type": (b"%PDF-1.7 no image", "is not an image of a known type; expected JPEG, PNG, WebP, BMP or TIFF"),
    "truncated": (None, "cannot be decoded: it is not a complete picture"),
    "bomb": (png_bomb(60_000), "at most 1,000,000 are accepted"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_image_gets_a_message_and_the_server_lives_on(open_page, served, scene, kind):
    data, words = BAD[kind]
    good = encoded(scene)
    watched = open_page(served.address)
    page = watched.page
    choose(page, f"{kind} <b>.png", good[: len(good) // 2] if data is None else data)
    page.wait_for_selector("#problem:not([hidden])")
    assert words in page.inner_text("#problem")
    assert f"{kind} <b>.png" in page.inner_text("#problem")
    assert page.get_attribute("#problem", "role") == "alert"
    assert page.is_hidden("#stage")
    choose(page, "scene.png", good)
    wait_for_result(page, "scene.png")
    assert page.is_hidden("#problem")
    assert pixels(page).any()
    # Chromium notes every refused request on the console; nothing else may be there.
    assert all("the server responded with a status of 4" in error for error in watched.errors)
    assert len(watched.errors) <= 1


def test_a_body_that_is_too_large_is_refused_by_the_server_too(open_page, served, scene):
    """The page itself does not send it; the answer must arrive nevertheless, for many times the limit."""
    page = open_page(served.address).page
    for size in (MAX_BYTES + 1, 15_000_000):
        said = page.evaluate(
            """async (size) => {
                const body = new Uint8Array(size);
                const response = await fetch("segment?choice=0-1&name=a.png", { method: "POST", body });
                return [response.status, (await response.json()).problem];
            }""",
            size,
        )
        assert said[0] == 413
        assert "has more than 2 MB" in said[1]
    assert served.process.poll() is None


def test_a_failed_upload_leaves_the_result_before_it(open_page, served, scene):
    page = opened(open_page, served, scene).page
    before = pixels(page)
    choose(page, "notes.txt", b"hello", "text/plain")
    page.wait_for_selector("#problem:not([hidden])")
    assert np.array_equal(pixels(page), before)
    assert page.evaluate("document.querySelector('.busy')") is None
    assert page.inner_text("#status") == "scene.png is still shown."


def test_a_choice_that_is_made_while_an_image_is_segmented_counts_for_that_image(open_page, served, scene):
    watched = opened(open_page, served, scene)
    page = watched.page
    choose(page, "mirrored.png", encoded(scene[:, ::-1]))
    page.select_option("#left-choice", "0-0")
    wait_for_result(page, "mirrored.png")
    run = served.log.parent / "run"
    for side, network in (("left", faircl.load(run, 0, "cpu", version=0)), ("right", faircl.load(run, device="cpu"))):
        found = network.predict(np.ascontiguousarray(scene[:, ::-1]))
        assert np.array_equal(pixels(page, side)[..., 3] > 0, found.mask != found.background)
    assert clean(watched, served)


def test_a_server_that_is_gone_is_told(open_page, served, scene):
    page = opened(open_page, served, scene).page
    page.context.set_offline(True)
    choose(page, "later.png", encoded(scene))
    page.wait_for_selector("#problem:not([hidden])")
    assert page.inner_text("#problem") == "The server does not answer. Is 'faircl serve' still running?"
    page.context.set_offline(False)
    choose(page, "later.png", encoded(scene))
    wait_for_result(page, "later.png")


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_at_any_width_and_in_both_schemes(open_page, served, scene, axe, width, scheme):
    watched = open_page(served.address, width=width, scheme=scheme)
    page = watched.page
    assert axe(page) == []
    choose(page, "scene.png", encoded(scene))
    wait_for_result(page, "scene.png")
    page.check("#unknown")
    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    choose(page, "notes.txt", b"hello", "text/plain")
    page.wait_for_selector("#problem:not([hidden])")
    assert axe(page) == []


def test_every_control_is_reached_by_keyboard(open_page, served, scene):
    page = opened(open_page, served, scene).page
    page.focus("#file")
    reached = []
    for _ in range(12):
        reached.append(page.evaluate("document.activeElement.id"))
        page.keyboard.press("Tab")
    wanted = ["file", "left-choice", "right-choice", "split", "opacity", "unknown", "threshold", "all", "none"]
    assert reached[: len(wanted)] == wanted
