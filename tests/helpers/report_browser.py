"""What tests read from and do to the page of a run in a browser."""


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
