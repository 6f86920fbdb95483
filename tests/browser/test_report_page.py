"""The page of a run in a real browser: charts, tables, themes, print; small, quick, and free of errors."""

import time

import pytest
from report_browser import row_texts, set_range, show_gallery
from report_runs import AWKWARD


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("classes", [5, 21, 150])
@pytest.mark.parametrize("width", [1400, 400])
def test_no_error_no_request_no_cut_and_no_overlap(opened_report, classes, width, scheme):
    watched = opened_report(classes, width=width, scheme=scheme)
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


def test_overlaps_would_be_found(opened_report):
    page = opened_report(5).page
    page.add_style_tag(content=".heat td { position: absolute; left: 9rem; }")
    assert overlapping(page) != []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("classes", [5, 21])
def test_axe_finds_no_serious_violation(opened_report, axe, classes, scheme):
    page = opened_report(classes, scheme=scheme).page
    show_gallery(page)
    assert axe(page) == []


@pytest.mark.parametrize("width", [1400, 400])
def test_axe_on_the_largest_page(opened_report, axe, width):
    page = opened_report(150, width=width).page
    assert axe(page) == []


def test_the_largest_page_is_small_and_soon_interactive(report_pages, opened_report):
    path = report_pages(150)
    assert path.stat().st_size < 15e6
    start = time.perf_counter()
    page = opened_report(150).page
    set_range(page, "#bars-step", 0)
    page.wait_for_function("document.querySelector('#bars-step + output').textContent === 'after step 0'")
    assert time.perf_counter() - start < 2
    assert page.evaluate("performance.timing.domInteractive - performance.timing.navigationStart") < 2000


def test_the_slider_changes_bars_confusions_and_flow(opened_report):
    page = opened_report().page
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


def test_the_confusion_matrix_shows_a_choice_of_many_classes(opened_report):
    page = opened_report(150).page
    rows = page.locator("#matrix tbody tr")
    assert rows.count() == 25
    page.locator("#confusion-choice").select_option(label="the 25 rarest")
    assert rows.count() == 25
    page.locator("#confusion-choice").select_option(label="road and its neighbours")
    assert rows.count() == 9
    assert "road" in [row[0] for row in row_texts(page, "#matrix")]
    assert page.locator("#confusion-shown").inner_text() == "Shown: road and its neighbours, of 150."


def test_sorting_by_mouse_and_keyboard(opened_report):
    page = opened_report().page
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


def test_the_theme_can_be_chosen(opened_report, axe):
    page = opened_report(5).page
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(paper) != light
    assert axe(page) == []
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(paper) == light


def test_print_opens_everything_at_the_last_step(opened_report):
    page = opened_report().page
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


def test_printed_pictures_need_not_have_been_seen_before(opened_report):
    page = opened_report().page
    photos = page.locator("#thumbs img").count()
    assert page.evaluate("window.scrollY") == 0
    assert page.pdf().count(b"/DCTDecode") == photos > 0


@pytest.mark.parametrize("classes", [5, 21, 150])
def test_nothing_is_wider_than_the_paper(opened_report, classes):
    page = opened_report(classes, width=720).page  # A4 at 96 px per inch, less its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 720


def test_the_page_reads_without_its_script(report_pages, open_page):
    watched = open_page(report_pages(21).as_uri(), java_script_enabled=False)
    text = watched.page.locator("main").inner_text()
    assert "is served worst" in text
    assert watched.page.locator("#bars tbody tr").count() == 21
    assert watched.page.locator("#matrix tbody tr").count() == 21
    assert not watched.page.locator("#bars-step").is_visible()
    assert not watched.page.locator("#viewer").is_visible()
    assert "which is turned off" in text


def test_everything_is_reached_by_the_keyboard(opened_report):
    page = opened_report(5).page
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
