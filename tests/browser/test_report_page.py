"""The page of a run in a real browser: charts, gallery, tables, themes, print; small, quick, and free of errors."""

import time

import pytest
from report_runs import AWKWARD, make_report_run

from faircl.report.page import write_run_page

SIZES = {5: (3, 4, (96, 64)), 21: (6, 4, (96, 64)), 150: (6, 20, (768, 512)), 300: (2, 1, (96, 64))}
"""Number of classes to steps, images and the size of an image."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
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
def opened(pages, open_page):
    """Return a function that opens the page of a run with so many classes."""
    return lambda classes=21, **options: open_page(pages(classes).as_uri(), **options)


@pytest.fixture
def gallery(opened):
    """The page of 21 classes, with the first picture of its gallery drawn."""
    page = opened().page
    show_gallery(page)
    return page


def show_gallery(page):
    page.locator("#thumbs").scroll_into_view_if_needed()
    page.wait_for_selector("#stage[data-ready]")


def pixels(page):
    """A number that stands for what the canvas shows."""
    return page.evaluate(
        """() => {
        const canvas = document.getElementById("canvas"), context = canvas.getContext("2d");
        const found = context.getImageData(0, 0, canvas.width, canvas.height).data;
        let sum = 0;
        for (const value of found) sum = (sum * 31 + value) % 4294967291;
        return sum;
        }"""
    )


def row_texts(page, table):
    return page.locator(f"{table} tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.cells].map(c => c.innerText.trim()))"
    )


def set_range(page, selector, value):
    page.locator(selector).evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); }",
        str(value),
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("classes", [5, 21, 150])
@pytest.mark.parametrize("width", [1400, 400])
def test_no_error_no_request_no_cut_and_no_overlap(opened, classes, width, scheme):
    watched = opened(classes, width=width, scheme=scheme)
    page = watched.page
    show_gallery(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert overlapping(page) == []
    for name in AWKWARD[: classes - 2]:
        assert page.get_by_role("rowheader", name=name, exact=False).count() > 0
    assert (watched.errors, watched.requests) == ([], [])


LABELS = """h1, h2, h3, .card dt, .card dd, .bars th, .bars td.number, .heat th, .heat td, .flow th, .flow td.number,
.matrix th, .matrix td, .shares .name, .shares .values, .measures th, .measures td, .sortable th, .sortable td,
svg text, .thumbs span, .keys li"""


def overlapping(page):
    """Texts of labels in the same table, list or plot whose glyphs cover each other by more than two pixels."""
    return page.evaluate(
        """(selector) => {
        const groups = new Map();
        for (const element of document.querySelectorAll(selector)) {
          if (!element.textContent.trim() || !element.getClientRects().length) continue;
          const range = document.createRange();
          range.selectNodeContents(element);
          let box = range.getBoundingClientRect();
          const cell = element.closest("th, td, li") ?? element, own = cell.getBoundingClientRect();
          if (!(element instanceof SVGElement)) {  // what a cell cuts off is not seen
            box = new DOMRect(Math.max(box.left, own.left), Math.max(box.top, own.top),
              Math.min(box.right, own.right) - Math.max(box.left, own.left),
              Math.min(box.bottom, own.bottom) - Math.max(box.top, own.top));
          }
          if (element.closest(".hidden") || box.width <= 0) continue;
          const group = element.closest("table, svg, ul, dl, figure") ?? document.body;
          if (!groups.has(group)) groups.set(group, []);
          groups.get(group).push([box, element.textContent.trim(), element]);
        }
        const found = [];
        for (const boxes of groups.values()) {
          boxes.sort((a, b) => a[0].top - b[0].top);
          boxes.forEach((a, i) => {
            for (const b of boxes.slice(i + 1)) {
              if (b[0].top >= a[0].bottom) break;
              if (a[2].contains(b[2]) || b[2].contains(a[2])) continue;
              const across = Math.min(a[0].right, b[0].right) - Math.max(a[0].left, b[0].left);
              const down = Math.min(a[0].bottom, b[0].bottom) - Math.max(a[0].top, b[0].top);
              if (across > 2 && down > 2) found.push(`${a[1]} | ${b[1]}`);
            }
          });
        }
        return found.slice(0, 5);
        }""",
        LABELS,
    )


def test_overlaps_would_be_found(opened):
    page = opened(5).page
    page.add_style_tag(content=".heat td { position: absolute; left: 9rem; }")
    assert overlapping(page) != []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("classes", [5, 21])
def test_axe_finds_no_serious_violation(opened, axe, classes, scheme):
    page = opened(classes, scheme=scheme).page
    show_gallery(page)
    assert axe(page) == []


@pytest.mark.parametrize("width", [1400, 400])
def test_axe_on_the_largest_page(opened, axe, width):
    page = opened(150, width=width).page
    assert axe(page) == []


def test_the_largest_page_is_small_and_soon_interactive(pages, opened):
    path = pages(150)
    assert path.stat().st_size < 15e6
    start = time.perf_counter()
    page = opened(150).page
    set_range(page, "#bars-step", 0)
    page.wait_for_function("document.querySelector('#bars-step + output').textContent === 'after step 0'")
    assert time.perf_counter() - start < 2
    assert page.evaluate("performance.timing.domInteractive - performance.timing.navigationStart") < 2000


def test_the_slider_changes_bars_confusions_and_flow(opened):
    page = opened().page
    before = [row_texts(page, table) for table in ("#bars", "#matrix", "#flow")]
    page.locator("#bars-step").focus()
    page.keyboard.press("Home")  # the keyboard moves it
    after = [row_texts(page, table) for table in ("#bars", "#matrix", "#flow")]
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert page.locator("#flow-step").input_value() == "0"
    assert page.locator("#bars-step").get_attribute("aria-valuetext") == "after step 0"
    assert page.locator("#bars tr.later").count() == 11
    assert page.locator("#bars tr.later .tag").first.inner_text() == "not learned yet"
    width = page.locator("#bars tbody tr").first.locator("i").evaluate("bar => bar.style.width")
    assert f"{float(width.rstrip('%')):.1f}" == after[0][0][3]
    page.keyboard.press("End")
    assert [row_texts(page, table) for table in ("#bars", "#matrix", "#flow")] == before


def test_the_confusion_matrix_shows_a_choice_of_many_classes(opened):
    page = opened(150).page
    rows = page.locator("#matrix tbody tr")
    assert rows.count() == 25
    page.locator("#confusion-choice").select_option(label="the 25 rarest")
    assert rows.count() == 25
    page.locator("#confusion-choice").select_option(label="road and its neighbours")
    assert rows.count() == 9
    assert "road" in [row[0] for row in row_texts(page, "#matrix")]
    assert page.locator("#confusion-shown").inner_text() == "Shown: road and its neighbours, of 150."


def test_sorting_by_mouse_and_keyboard(opened):
    page = opened().page
    table = "#measures table.sortable"
    head = page.locator(f"{table} thead th")
    names = head.all_inner_texts()
    column = next(k for k, name in enumerate(names) if name.startswith("IoU after step 5"))
    button = head.nth(column).locator("button")
    button.click()
    assert head.nth(column).get_attribute("aria-sort") == "descending"
    values = [row[column] for row in row_texts(page, table)]
    assert [float(v) for v in values] == sorted((float(v) for v in values), reverse=True)
    button.focus()
    page.keyboard.press("Enter")
    assert head.nth(column).get_attribute("aria-sort") == "ascending"
    early = next(k for k, name in enumerate(names) if name.startswith("IoU after step 0"))
    for _ in range(2):  # classes without a value stay at the end both ways
        head.nth(early).locator("button").click()
        values = [row[early] for row in row_texts(page, table)]
        assert values[-11:] == ["–"] * 11
        assert "–" not in values[:-11]
    assert head.nth(column).get_attribute("aria-sort") == "none"
    head.nth(0).locator("button").click()
    found = [row[0] for row in row_texts(page, table)]
    assert head.nth(0).get_attribute("aria-sort") == "ascending"
    assert found == page.evaluate("(names) => names.sort(new Intl.Collator(undefined, {numeric: true}).compare)", found)


def test_the_theme_can_be_chosen(opened, axe):
    page = opened(5).page
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(paper) != light
    assert axe(page) == []
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(paper) == light


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
def test_gallery_paints_the_colours_of_the_data(opened, classes):
    """At full opacity a pixel of the truth has its class's colour, and the line below the picture names it.

    300 classes take 16 bits.
    """
    page = opened(classes).page
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


def test_print_opens_everything_at_the_last_step(opened):
    page = opened().page
    last = row_texts(page, "#bars")
    set_range(page, "#bars-step", 0)
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#bars tr.later").count() == 0
    assert [row[3] for row in row_texts(page, "#bars")] == [row[3] for row in last]
    assert page.locator("details pre").first.is_visible()
    cut = page.evaluate(
        """() => [...document.querySelectorAll(".region, .scroll, pre")].filter(
        (one) => getComputedStyle(one).overflowY !== "visible" && one.scrollHeight > one.clientHeight + 1).length"""
    )
    assert cut == 0
    assert not page.locator(".contents").is_visible()
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("#bars tr.later").count() == 11


def test_printed_pictures_need_not_have_been_seen_before(opened):
    page = opened().page
    photos = page.locator("#thumbs img").count()
    assert page.evaluate("window.scrollY") == 0
    assert page.pdf().count(b"/DCTDecode") == photos > 0


@pytest.mark.parametrize("classes", [5, 21, 150])
def test_nothing_is_wider_than_the_paper(opened, classes):
    page = opened(classes, width=720).page  # A4 at 96 px per inch, less its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 720


def test_the_page_reads_without_its_script(pages, open_page):
    watched = open_page(pages(21).as_uri(), java_script_enabled=False)
    text = watched.page.locator("main").inner_text()
    assert "is served worst" in text
    assert watched.page.locator("#bars tbody tr").count() == 21
    assert watched.page.locator("#matrix tbody tr").count() == 21
    assert not watched.page.locator("#bars-step").is_visible()
    assert not watched.page.locator("#viewer").is_visible()
    assert "which is turned off" in text


def test_everything_is_reached_by_the_keyboard(opened):
    page = opened(5).page
    show_gallery(page)
    page.evaluate("document.activeElement?.blur(); scrollTo(0, 0)")
    reached = set()
    for _ in range(140):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    wanted = {
        "theme",
        "bars-step",
        "confusion-choice",
        "flow-step",
        "reason",
        "left",
        "right",
        "border",
        "opacity",
        "stage",
    }
    assert wanted | {"SUMMARY", "A"} <= reached
