"""Making a run's method, with what its configuration says about rare classes and about a memory."""

from __future__ import annotations

from faircl.config.describe import method_words
from faircl.config.run import RunConfig
from faircl.errors import UserError
from faircl.methods.balance import SOFTMAX_ONLY, Balance
from faircl.methods.base import Method
from faircl.models.segmenter import Segmenter
from faircl.registry import METHODS


def make_method(config: RunConfig, model: Segmenter) -> Method:
    """Return the configured method; a configuration that it cannot follow is refused."""
    method: Method = METHODS.get(config.method.name)(config.method, model)
    if method.needs.memory and config.memory.images == 0:
        raise UserError(
            f"Method '{_words(method)}' trains on images of earlier steps, but memory.images is 0; set it to the "
            "number of images to keep, such as --set memory.images=100."
        )
    if config.memory.images and config.train.batch < 2:
        raise UserError(
            "memory.images is set, but a batch of one image has no room for another; raise train.batch to at least 2."
        )
    balance_method(method, config)
    return method


def balance_method(method: Method, config: RunConfig) -> None:
    """Give a method the loss that the configuration asks for."""
    loss = config.balance.loss
    if loss == "plain":
        return
    if method.needs.sigmoid and loss in SOFTMAX_ONLY:
        raise UserError(
            f"balance.loss {loss} lets classes compete in a softmax, but method '{_words(method)}' trains a sigmoid "
            "for each; use weighted, class_balanced, focal or tilted."
        )
    method.set_balance(Balance(config.balance))


def _words(method: Method) -> str:
    """Name the method and what is inside it."""
    return method_words({"method": method.base_config.model_dump(mode="json")})


def check_balance(method: Method, config: RunConfig) -> None:
    """Refuse a method that has trained without its balanced loss: one from elsewhere, with a loss of its own."""
    balances = [part for part in method.modules() if isinstance(part, Balance)]
    if any(len(balance.share) == 0 for balance in balances):
        raise UserError(
            f"balance.loss is {config.balance.loss}, but method '{method.name}' has not counted its classes; let its "
            "begin_step call super().begin_step."
        )
    if balances and not any(balance.used for balance in balances):
        raise UserError(
            f"balance.loss is {config.balance.loss}, but method '{method.name}' has a segmentation loss of its own; "
            "set it to plain, or let the method call self.cross_entropy."
        )
