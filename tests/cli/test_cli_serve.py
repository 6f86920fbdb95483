"""``faircl serve`` as a process: it says when it is ready, answers, writes nothing and ends on Ctrl-C; mistakes."""

import hashlib
import signal
import socket
import time

import pytest
from image_files import encoded, picture
from served_runs import serving


def tree(folder):
    return {
        path.relative_to(folder): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_it_answers_writes_nothing_and_ends_on_ctrl_c(tiny_run, tmp_path):
    import httpx2

    before = tree(tiny_run.path)
    with serving(tiny_run.path, home=tmp_path) as served:
        origin = served.address.rstrip("/")
        for choice in ("0-0", "0-1"):
            answer = httpx2.post(
                f"{origin}/segment",
                params={"choice": choice, "name": "a.png"},
                content=encoded(picture(64, 48)),
                headers={"Origin": origin},
                timeout=60,
            )
            assert answer.status_code == 200, answer.text
            assert answer.json()["shown"] == [64, 48]
        assert httpx2.get(origin, headers={"Host": "evil.example"}).status_code == 403
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(30) == 0
    assert served.said() == [f"ready: {served.address} (Ctrl-C ends it)", "The page is closed."]
    assert tree(tiny_run.path) == before
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_it_ends_on_ctrl_c_while_an_image_arrives(tiny_run):
    with serving(tiny_run.path) as served:
        host = served.address.removeprefix("http://").rstrip("/")
        with socket.create_connection(host.split(":")) as unfinished:
            head = f"POST /segment?choice=0-0 HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
            unfinished.sendall(f"{head}Content-Length: 1000\r\n\r\nhalf".encode())
            time.sleep(0.5)
            served.process.send_signal(signal.SIGINT)
            answer = unfinished.recv(10_000)
        assert served.process.wait(30) == 0
    assert b"503 Service Unavailable" in answer
    assert served.said()[1:] == ["Stopping when the image in progress is segmented …", "The page is closed."]


def test_a_port_in_use_is_one_sentence(refused, tiny_run):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused(f"Port {port} of 127.0.0.1 is in use; choose another", "serve", tiny_run.path, "--port", port)


def test_mistakes_are_one_sentence(refused, tiny_run, tmp_path):
    refused("is not a run folder", "serve", tmp_path)
    refused("The port is 70000; expected", "serve", tiny_run.path, "--port", 70000)
    refused("max_bytes is 0; expected", "serve", tiny_run.path, "--max-bytes", 0)
    refused("max_pixels is 200000000; expected", "serve", tiny_run.path, "--max-pixels", 200_000_000)
    refused("The host 'no.such.host.invalid' is not known", "serve", tiny_run.path, "--host", "no.such.host.invalid")
    refused("Unknown device 'abacus'", "serve", tiny_run.path, "--port", 0, "--device", "abacus")


def test_a_missing_package_is_named_before_anything_else(refused, monkeypatch):
    monkeypatch.setattr("faircl.serving.listening.find_spec", lambda name: None)
    refused("pip install 'faircl[serve]'", "serve", "no-such-run")


def test_other_machines_are_warned_of(cli, tiny_run, monkeypatch):
    monkeypatch.setattr("faircl.api.serving.answer_until_stopped", lambda app, listening, started, waiting: started())
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    result = cli("serve", tiny_run.path, "--host", "0.0.0.0", "--port", 0, "--device", "cpu", "--open")
    assert result.code == 0
    warning, ready, closed = result.err.splitlines()
    assert warning.startswith("Warning: with --host 0.0.0.0, everyone who reaches this machine")
    assert ready.startswith("ready: http://127.0.0.1:")
    assert closed == "The page is closed."
    assert opened == [ready.split()[1]]


def test_a_running_event_loop_is_refused(tiny_run):
    import asyncio

    import faircl

    async def inside():
        faircl.serve(tiny_run.path)

    with pytest.raises(faircl.UserError, match="start it in a terminal"):
        asyncio.run(inside())
