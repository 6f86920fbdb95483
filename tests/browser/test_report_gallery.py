"""The gallery of a run's page in a real browser: masks, toggles, zoom, choice of images."""

import pytest
from report_browser import pixels, set_range, show_gallery


@pytest.fixture
def gallery(opened_report):
    """The page of 21 classes, with the first picture of its gallery drawn."""
    page = opened_report().page
    show_gallery(page)
    return page


def test_gallery_masks_toggles_opacity_and_border(gallery):
    page = gallery
    assert page.locator("#caption").inner_text().startswith("city/000000_leftImg8bit: worst image")
    shown = [pixels(page)]
    set_range(page, "#opacity", 100)
    shown.append(pixels(page))
    set_range(page, "#border", 100)
    shown.append(pixels(page))
    page.locator("#none").click()
    page.wait_for_function("![...document.querySelectorAll('#toggles input')].some(box => box.checked)")
    shown.append(pixels(page))
    page.locator("#toggles input").nth(1).check()
    page.wait_for_timeout(100)
    shown.append(pixels(page))
    assert len(set(shown)) == len(shown)
    page.locator("#toggles input").nth(1).uncheck()
    page.wait_for_timeout(100)
    assert pixels(page) == shown[3]  # the photo alone again
    page.locator("#left").select_option("0")
    page.wait_for_selector("#stage[data-ready='0/0/5']")
    page.locator("#all").click()
    page.wait_for_timeout(100)
    step0 = pixels(page)
    page.locator("#left").select_option("truth")
    page.wait_for_selector("#stage[data-ready='0/truth/5']")
    assert pixels(page) != step0


@pytest.mark.parametrize("classes", [21, 300])
def test_gallery_paints_the_colours_of_the_data(opened_report, classes):
    """At full opacity a pixel of the truth has its class's colour, and the line below the picture names it.

    300 classes take 16 bits.
    """
    page = opened_report(classes).page
    show_gallery(page)
    if classes == 300:  # VOC's colours repeat after 256 ids: such classes are striped
        assert page.evaluate("data.gallery.depth") == 2
    set_range(page, "#opacity", 100)
    set_range(page, "#border", 100)
    page.locator("#all").click()
    page.wait_for_timeout(100)
    page.locator("#stage").scroll_into_view_if_needed()
    box = page.locator("#canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    said = dict(part.split(": ", 1) for part in page.locator("#under").inner_text().split(" · "))
    colour = page.evaluate(
        "() => { const c = document.getElementById('canvas'); "
        "return [...c.getContext('2d').getImageData(c.width / 2, c.height / 2, 1, 1).data].slice(0, 3); }"
    )
    paints = {paint["name"]: paint for paint in page.evaluate("data.gallery.paints")}
    found = paints[said["truth"]]
    assert f"#{bytes(colour).hex()}" == found["colour"] or (found["hatched"] and colour in ([0] * 3, [255] * 3))


def test_gallery_zoom_by_button_keyboard_and_drag(gallery):
    page = gallery
    transform = "document.getElementById('canvas').style.transform"
    seen = [page.evaluate(transform)]
    page.locator("#closer").click()
    seen.append(page.evaluate(transform))
    assert page.locator("#zoom").inner_text() == "150 %"
    page.locator("#stage").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    seen.append(page.evaluate(transform))
    page.locator("#stage").scroll_into_view_if_needed()
    box = page.locator("#stage").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 170)
    page.mouse.up()
    seen.append(page.evaluate(transform))
    assert len(set(seen)) == len(seen)
    page.keyboard.press("0")
    assert page.evaluate(transform) == seen[0]


def test_gallery_choice_and_neighbours(gallery):
    page = gallery
    assert page.locator("#count").inner_text() == "4 of 4 images"
    page.locator("#reason").select_option(label="median image")
    assert page.locator("#thumbs li:visible").count() == 1
    page.wait_for_function("document.getElementById('caption').textContent.includes('median')")
    page.locator("#reason").select_option(index=0)
    page.locator("#next").click()
    page.wait_for_function("document.getElementById('caption').textContent.startsWith('city/000003')")
    page.locator("#stage").focus()
    page.keyboard.press("PageUp")
    page.wait_for_function("document.getElementById('caption').textContent.startsWith('city/000002')")
    page.locator("#thumbs button").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('caption').textContent.startsWith('city/000000')")
    assert page.locator("#thumbs button").first.get_attribute("aria-pressed") == "true"


def test_only_wrong_pixels_leave_right_ones_as_the_photo(gallery):
    page = gallery
    set_range(page, "#opacity", 100)
    set_range(page, "#border", 0)
    whole = pixels(page)
    page.locator("#wrong").check()
    page.wait_for_timeout(100)
    assert pixels(page) != whole
