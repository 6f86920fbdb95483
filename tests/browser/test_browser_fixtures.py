"""The fixtures themselves: a page that breaks every rule is found out."""

BAD = "data:text/html,<html><body><img src='http://127.0.0.1:9/x.png'><script>missing()</script></body></html>"
GOOD = "data:text/html,<html lang='en'><head><title>a</title></head><body><main><h1>a</h1></main></body></html>"


def test_errors_requests_and_violations_are_found(open_page, axe):
    bad = open_page(BAD)
    assert any("missing" in error for error in bad.errors)
    assert bad.requests == ["http://127.0.0.1:9/x.png"]
    assert any(found.startswith("image-alt") for found in axe(bad.page))


def test_a_good_page_is_clean(open_page, axe):
    good = open_page(GOOD)
    assert (good.errors, good.requests, axe(good.page)) == ([], [], [])
