"""A local page that segments one's own images with the networks of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faircl.api.opening import RunSource, folder_path
from faircl.serving.limits import MAX_BYTES, MAX_PIXELS, Limits
from faircl.serving.listening import HOST, PORT, answer_until_stopped, check_possible, listen, page_address

if TYPE_CHECKING:
    from faircl.api.predicting import Predictor
    from faircl.data.sample import Image
    from faircl.progress import Reporter
    from faircl.serving.networks import Segmented


def serve(
    run: RunSource,
    *,
    host: str = HOST,
    port: int = PORT,
    device: str = "auto",
    max_bytes: int = MAX_BYTES,
    max_pixels: int = MAX_PIXELS,
    open_browser: bool = False,
    reporter: Reporter | None = None,
) -> None:
    """Show a page on which the networks of a run segment images that are dropped there; returns after Ctrl-C.

    Steps and versions of the run are compared side by side. The page is at 127.0.0.1, which other machines cannot
    reach, unless ``host`` is another; ``port`` 0 takes any free one. Images of more than ``max_bytes`` or
    ``max_pixels`` are refused. Nothing is written.
    """
    check_possible()
    limits = Limits(max_bytes, max_pixels)
    from faircl.progress import ConsoleReporter
    from faircl.runs.reading import EXPORTED_RUN
    from faircl.runs.versions import VersionChain

    chain = VersionChain.open(folder_path(run))
    said = reporter or ConsoleReporter()
    with listen(host, port) as listening:
        address = page_address(host, listening)
        from faircl.api.predicting import load
        from faircl.serving.app import make_app
        from faircl.serving.guard import LOCAL
        from faircl.serving.networks import Networks, find_choices
        from faircl.serving.page import make_page

        choices, current = find_choices(chain)
        networks = Networks(
            choices, lambda choice: ServedNetwork(load(chain.run, choice.step, device, version=choice.version))
        )
        networks.get(choices[current].key)  # damaged runs are found now, and the first image need not wait
        folder = chain.run.resolve()
        name = folder.parent.name if folder.name == EXPORTED_RUN else folder.name
        page = make_page(name, choices, current, limits)
        if host not in LOCAL:
            said.say(f"Warning: with --host {host}, everyone who reaches this machine can use the page.")

        def started() -> None:
            said.say(f"ready: {address} (Ctrl-C ends it)")
            if open_browser:
                import webbrowser

                webbrowser.open(address)

        def waiting() -> None:
            said.say("Stopping when the image in progress is segmented …")

        answer_until_stopped(make_app(networks, page, limits, host), listening, started, waiting)
    said.say("The page is closed.")


class ServedNetwork:
    """The network of a step as the page uses it: masks with unknown maps of the step's default score."""

    def __init__(self, predictor: Predictor) -> None:
        from faircl.deploy.unknown import default_score

        self.predictor, self.reading = predictor, predictor.reading
        self.names, self.colours, self.background = predictor.names, predictor.colours, predictor.background
        self.score = default_score(predictor.inference.step_folder)

    def segment(self, image: Image, tile: int | None) -> Segmented:
        """Segment an image (H, W, 3) uint8, in windows of ``tile`` pixels or as a whole."""
        from faircl.serving.networks import Segmented

        found = self.predictor.predict(image, tile=tile, unknown=self.score)
        assert found.unknown is not None
        return Segmented(found.mask, found.unknown)
