"""The web application: pages, answers, refusals, and who may ask."""

import base64
import io
import json
import re

import numpy as np
import pytest
from image_files import encoded, picture, png_bomb
from PIL import Image

GOOD = encoded(picture())


def post(client, data=GOOD, choice="0-0", name="a.png", **options):
    return client.post("/segment", params={"choice": choice, "name": name}, content=data, **options)


def array(text, dtype="u1"):
    return np.frombuffer(base64.b64decode(text), dtype)


def test_the_page_escapes_names_and_holds_its_choices(client):
    page = client.get("/").text
    assert "my &lt;run&gt;" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert re.findall(r'<option value="([^"]*)"( selected)?', page) == [
        ("", ""),
        ("0-0", " selected"),
        ("1-1", ""),
        ("", ""),
        ("0-0", ""),
        ("1-1", " selected"),
    ]
    assert "up to 200 kB and 1,000,000 pixels" in page


def test_the_style_defines_every_colour_that_it_uses(client):
    style = client.get("/page.css").text
    used = set(re.findall(r"var\((--[a-z]+)\)", style))
    assert used
    assert used <= set(re.findall(r"(--[a-z]+):", style))


def test_every_answer_carries_the_headers_that_guard_it(client):
    for path in ("/", "/page.css", "/page.js", "/missing"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
    assert client.get("/page.js").headers["content-type"].startswith("text/javascript")


def test_an_image_is_answered_with_picture_mask_unknown_map_and_areas(client):
    answer = post(client).json()
    assert (answer["width"], answer["height"], answer["shown"]) == (40, 30, [40, 30])
    shown = Image.open(io.BytesIO(base64.b64decode(answer["picture"].partition("base64,")[2])))
    assert np.array_equal(np.asarray(shown), picture())
    assert np.array_equal(array(answer["mask"]).reshape(30, 40), picture()[..., 0] // 255)
    assert np.array_equal(array(answer["unknown"]).reshape(30, 40), picture()[..., 1])
    assert (answer["background"], answer["score"], answer["threshold"], answer["bytes"]) == (0, "entropy", 0.5, 1)
    assert answer["classes"] == [
        {"id": 0, "name": "background", "colour": [0, 0, 0], "pixels": 600, "share": 0.5},
        {"id": 1, "name": "<script>alert(1)</script>", "colour": [200, 10, 10], "pixels": 600, "share": 0.5},
    ]
    assert answer["name"] == "a.png"
    assert answer["notes"] == []


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"\x89PNG" + bytes(300_000), 413, "has more than 200 kB, the most that is accepted"),
        (b"hello", 415, "is not an image of a known type"),
        (GOOD[:100], 422, "not a complete picture"),
        (png_bomb(60_000), 413, "at most 1,000,000 are accepted"),
        (b"", 422, "is an empty file"),
    ],
    ids=["oversize", "type", "truncated", "bomb", "empty"],
)
def test_a_bad_image_gets_one_sentence_and_the_next_one_an_answer(client, data, status, words):
    response = post(client, data, name="<b>.png")
    assert response.status_code == status
    assert words in response.json()["problem"]
    assert "<b>.png" in response.json()["problem"]
    assert response.headers["content-type"] == "application/json"
    assert post(client).status_code == 200


def test_the_limit_holds_whatever_the_header_says(client):
    def parts():
        for _ in range(30):
            yield bytes(10_000)

    response = post(client, parts())  # chunked: no Content-Length
    assert response.status_code == 413
    endless = iter(lambda: bytes(100_000), None)
    assert post(client, (part for part, _ in zip(endless, range(100), strict=False))).status_code == 413


@pytest.mark.parametrize("choice", ["", "0-7", "9-0", "../..", "<i>"])
def test_an_unknown_step_is_refused(client, choice):
    response = post(client, choice=choice)
    assert response.status_code == 404
    assert response.json()["problem"].endswith("choose one of 0-0, 1-1.")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[::1", "10.0.0.7"]
)
def test_another_host_is_refused(client, host):
    for response in (client.get("/", headers={"Host": host}), post(client, headers={"Host": host})):
        assert response.status_code == 403
        assert "is not one of this server" in response.json()["problem"]


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST"])
def test_this_machine_is_known_by_several_names(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 200
    assert post(client, headers={"Host": host, "Origin": f"http://{host}"}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://127.0.0.1:9999", "http://[::1"])
def test_another_origin_is_refused(client, origin):
    response = post(client, headers={"Origin": origin})
    assert response.status_code == 403
    assert "own page only" in response.json()["problem"]


def test_a_missing_origin_is_refused(client):
    del client.headers["Origin"]
    assert post(client).status_code == 403
    assert client.get("/").status_code == 200


def test_a_server_for_everyone_is_asked_by_address_and_not_by_name():
    from starlette.datastructures import Headers

    from faircl.serving.guard import Guard

    for host, name, own in (
        ("0.0.0.0", "192.168.3.4:80", True),
        ("0.0.0.0", "evil.example", False),
        ("::", "[fe80::1]:80", True),
        ("box.lan", "BOX.lan:8765", True),
        ("box.lan", "other.lan", False),
        ("192.168.3.4", "192.168.3.5", False),
    ):
        problem = Guard(None, host)._problem(Headers({"host": name}), "GET")
        assert (problem is None) is own, (host, name)


def test_other_methods_and_paths_are_refused(client):
    assert client.get("/segment").status_code == 405
    assert client.put("/segment").status_code == 405
    assert client.post("/").status_code == 405
    assert client.get("/../pyproject.toml").status_code == 404


def test_an_error_of_ours_is_told_and_the_server_lives_on(client, network, monkeypatch):
    monkeypatch.setattr(network, "segment", lambda image, tile: 1 / 0)
    response = post(client)
    assert response.status_code == 500
    assert "ZeroDivisionError" in response.json()["problem"]
    monkeypatch.undo()
    assert post(client).status_code == 200


def test_large_images_are_segmented_in_windows_and_shown_smaller(client, network, monkeypatch):
    monkeypatch.setattr("faircl.serving.app.WHOLE", 1_000)
    monkeypatch.setattr("faircl.serving.answers.SHOWN", 20)
    answer = post(client, encoded(picture(50, 30))).json()
    assert network.tiles == [1024]
    assert answer["notes"] == ["It was segmented in windows of 1024 pixels."]
    assert (answer["width"], answer["height"], answer["shown"]) == (50, 30, [20, 12])
    columns, rows = [int((k + 0.5) * 2.5) for k in range(20)], [int((k + 0.5) * 2.5) for k in range(12)]
    expected = [[int(picture(50, 30)[y, x, 0] > 127) for x in columns] for y in rows]
    assert array(answer["mask"]).reshape(12, 20).tolist() == expected
    assert [one["pixels"] for one in answer["classes"]] == [750, 750]


def test_more_than_254_classes_take_two_bytes(client, network):
    from faircl.serving.networks import Segmented

    network.names, network.colours = {0: "a", 300: "b"}, {0: (0, 0, 0), 300: (1, 2, 3)}
    network.segment = lambda image, tile: Segmented(
        np.where(image[..., 0] > 127, 300, 0).astype(np.uint16), np.zeros(image.shape[:2], np.float32)
    )
    answer = post(client).json()
    assert answer["bytes"] == 2
    assert np.array_equal(array(answer["mask"], "<u2").reshape(30, 40), (picture()[..., 0] > 127) * 300)
    assert [one["id"] for one in answer["classes"]] == [0, 300]


def test_answers_are_json_that_every_browser_reads(client):
    json.loads(post(client).text, parse_constant=lambda name: pytest.fail(name))
