"""Makes the method of a run and checks that it fits the configured loss and replay memory."""

from __future__ import annotations

from faircl.config.describe import method_words
from faircl.config.run import RunConfig
from faircl.errors import UserError
from faircl.methods.balance import SOFTMAX_ONLY, Balance
from faircl.methods.base import Method
from faircl.models.segmenter import Segmenter
from faircl.registry import METHODS


def make_method(config: RunConfig, model: Segmenter) -> Method:
    """Return the configured method; raise a UserError if it cannot train with this configuration."""
    method: Method = METHODS.get(config.method.name)(config.method, model)
    if method.needs.memory and config.memory.images == 0:
        raise UserError(
            f"Method '{_full_name(method)}' trains on images of earlier steps, but memory.images is 0; set it to the "
            "number of images to keep, such as --set memory.images=100."
        )
    if method.needs.attentions and not model.has_attentions:
        raise UserError(
            f"Method '{_full_name(method)}' reads attentions, but network '{model.name}' has none; choose segformer."
        )
    if config.memory.images and config.train.batch < 2:
        raise UserError(
            "memory.images is set, but a batch of one image has no room for another; raise train.batch to at least 2."
        )
    set_balanced_loss(method, config)
    return method


def set_balanced_loss(method: Method, config: RunConfig) -> None:
    """Give the method the balanced loss that ``balance.loss`` names, if any."""
    loss = config.balance.loss
    if loss == "plain":
        return
    if method.needs.sigmoid and loss in SOFTMAX_ONLY:
        raise UserError(
            f"balance.loss {loss} needs a softmax over classes, but method '{_full_name(method)}' trains one sigmoid "
            "per class; use weighted, class_balanced, focal or tilted."
        )
    method.set_balance(Balance(config.balance))


def check_balance_used(method: Method, config: RunConfig) -> None:
    """Raise a UserError if the first update did not use the balanced loss; a third-party method may bypass it."""
    balances = [part for part in method.modules() if isinstance(part, Balance)]
    if any(len(balance.share) == 0 for balance in balances):
        raise UserError(
            f"balance.loss is {config.balance.loss}, but method '{method.name}' has not counted its classes; call "
            "super().begin_step in its begin_step."
        )
    if balances and not any(balance.used for balance in balances):
        raise UserError(
            f"balance.loss is {config.balance.loss}, but method '{method.name}' has a segmentation loss of its own; "
            "set it to plain, or call self.cross_entropy in the method's losses."
        )


def _full_name(method: Method) -> str:
    """Return the method's name with those of the methods that it wraps."""
    return method_words({"method": method.base_config.model_dump(mode="json")})
