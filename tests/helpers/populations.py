"""A population of images with known class IoUs, from which sets are drawn to check intervals."""

import numpy as np

from faircl.fairness.record import ImageCounts

SHOWN = np.array([1, 0.9, 0.6, 0.4, 0.25, 0.15])
"""The share of images that show each class."""
LOG_SIZE = np.array([9, 8, 7.5, 7, 6.5, 6])
LOGIT_RECALL = np.array([3, 2, 1.2, 0.8, 0.2, -0.4])
FALSE_ALARMS = np.array([0.05, 0.08, 0.15, 0.2, 0.3, 0.4])
POPULATION = np.array(
    [
        [88.72, 78.32, 63.52, 54.83, 41.19, 29.34, 59.32, 20.37],
        [86.85, 76.67, 63.50, 57.12, 45.96, 35.98, 61.01, 17.26],
    ]
)
"""What ``population_measures`` returns, rounded: class IoUs, their mean and standard deviation, of both models."""


def drawn_counts(generator, images):
    """Return the counts of two models on the same drawn images; the second serves rare classes a little better.

    Sizes of regions vary by a log-normal factor, recall by an effect of the image, of image and class (both shared by
    the models) and of the model; false alarms happen in any image.
    """
    shape = (images, len(SHOWN))
    shown = generator.random(shape) < SHOWN
    sizes = np.exp(LOG_SIZE + 0.8 * generator.standard_normal(shape))
    truth = np.where(shown, np.ceil(sizes), 0).astype(np.int64)
    image = 0.5 * generator.standard_normal((images, 1))
    both = 0.6 * generator.standard_normal(shape)
    models = []
    for better in (0, 0.3):
        logit = LOGIT_RECALL + better * np.linspace(-1, 1.5, shape[1]) + image + both
        hits = generator.binomial(truth, 1 / (1 + np.exp(-logit - 0.5 * generator.standard_normal(shape))))
        noise = np.exp(0.7 * generator.standard_normal(shape) - image)
        extra = generator.poisson(FALSE_ALARMS * np.exp(LOG_SIZE) * SHOWN * noise)
        models.append(ImageCounts(hits, truth, hits + extra))
    return models


def population_measures(images=2_000_000, seed=99):
    """Return IoUs, mean and standard deviation (2, C + 2) of both models over very many images."""
    generator = np.random.default_rng(seed)
    hits, union = np.zeros((2, 2, len(SHOWN)))
    for _ in range(images // 50_000):
        for k, (right, truth, predicted) in enumerate(drawn_counts(generator, 50_000)):
            hits[k] += right.sum(axis=0)
            union[k] += (truth + predicted - right).sum(axis=0)
    ious = 100 * hits / union
    return np.concatenate([ious, ious.mean(axis=1, keepdims=True), ious.std(axis=1, keepdims=True)], axis=1)
