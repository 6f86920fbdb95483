"""Every loss once more, in plain Python loops over pixels, classes and neighbours."""

import math

import torch

from faircl.labels import IGNORE


def nested(value):
    return value.detach().double().tolist() if value.is_floating_point() else value.tolist()


def grad_ok(function, *inputs):
    """Whether float64 autograd agrees with finite differences."""
    return torch.autograd.gradcheck(function, tuple(x.detach().double().requires_grad_() for x in inputs))


def bilinear(plane, height, width):
    """Resize a list of rows; sample centres lie half a pixel inside the border, outside it the border repeats."""
    h, w = len(plane), len(plane[0])

    def axis(place, size, full):
        at = max((place + 0.5) * size / full - 0.5, 0.0)
        low = min(math.floor(at), size - 1)
        return low, min(low + 1, size - 1), at - low

    out = []
    for i in range(height):
        top, bottom, fy = axis(i, h, height)
        row = []
        for j in range(width):
            left, right, fx = axis(j, w, width)
            upper = plane[top][left] * (1 - fx) + plane[top][right] * fx
            lower = plane[bottom][left] * (1 - fx) + plane[bottom][right] * fx
            row.append(upper * (1 - fy) + lower * fy)
        out.append(row)
    return out


def cross_entropy(logits, target, class_weight=None, offset=None, pixel_weight=None, grouped=0):
    logits, target = nested(logits), nested(target)
    height, width = len(target[0]), len(target[0][0])
    total = count = 0.0
    for b, image in enumerate(logits):
        planes = [bilinear(plane, height, width) for plane in image]
        for i in range(height):
            for j in range(width):
                y = target[b][i][j]
                if y == IGNORE:
                    continue
                z = [planes[c][i][j] + (0.0 if offset is None else float(offset[c])) for c in range(len(planes))]
                p = softmax(z)
                likelihood = sum(p[:grouped]) if grouped and y == 0 else p[y]
                weight = 1.0 if class_weight is None else float(class_weight[y])
                weight *= 1.0 if pixel_weight is None else float(pixel_weight[b, i, j])
                total -= weight * math.log(likelihood)
                count += 1
    return total / count if count else 0.0


def softmax(z):
    top = max(z)
    e = [math.exp(v - top) for v in z]
    return [v / sum(e) for v in e]


def distance(a, b, order=2.0):
    return sum(abs(x - y) ** order for x, y in zip(a, b, strict=True)) ** (1 / order)


def cluster(features, labels, prototypes, active, margin, order=2.0):
    """Return (pull, push)."""
    features, labels, prototypes, active = map(nested, (features, labels, prototypes, active))
    pull, push = [], []
    for f, y in zip(features, labels, strict=True):
        if y == IGNORE or not active[y]:
            continue
        pull.append(distance(f, prototypes[y], order))
        for c, p in enumerate(prototypes):
            if c != y and active[c]:
                push.append(max(0.0, margin - distance(f, p, order)))
    return (sum(pull) / len(pull) if pull else 0.0), (sum(push) / len(push) if push else 0.0)


def histogram(logits, valid):
    logits, valid = nested(logits), nested(valid)
    classes, sums, count = len(logits[0]), [0.0] * len(logits[0]), 0
    for image, mask in zip(logits, valid, strict=True):
        for i, row in enumerate(mask):
            for j, keep in enumerate(row):
                if keep:
                    p = softmax([image[c][i][j] for c in range(classes)])
                    sums = [s + v for s, v in zip(sums, p, strict=True)]
                    count += 1
    return [s / max(count, 1) for s in sums]


def area_pool(plane, h, w):
    """Mean over the pixels that a coarse cell touches."""
    height, width = len(plane), len(plane[0])
    out = []
    for i in range(h):
        rows = plane[i * height // h : math.ceil((i + 1) * height / h)]
        out.append([])
        for j in range(w):
            cells = [v for row in rows for v in row[j * width // w : math.ceil((j + 1) * width / w)]]
            out[-1].append(sum(cells) / len(cells))
    return out


def consistency(image, logits, sigma_x, sigma_y, window=3, form="smooth"):
    """Mean over every pixel and every neighbour inside the map, so that each pair is met from both ends."""
    image, logits = nested(image), nested(logits)
    h, w, reach = len(logits[0][0]), len(logits[0][0][0]), window // 2
    values = []
    for planes, score in zip(image, logits, strict=True):
        colour = [area_pool(plane, h, w) for plane in planes]
        x = {(i, j): [c[i][j] for c in colour] for i in range(h) for j in range(w)}
        y = {(i, j): softmax([s[i][j] for s in score]) for i in range(h) for j in range(w)}
        for i, j in x:
            for di in range(-reach, reach + 1):
                for dj in range(-reach, reach + 1):
                    near = (i + di, j + dj)
                    if (di, dj) == (0, 0) or near not in x:
                        continue
                    alike = math.exp(-(distance(x[i, j], x[near]) ** 2) / (2 * sigma_x**2))
                    agree = math.exp(-(distance(y[i, j], y[near]) ** 2) / (2 * sigma_y**2))
                    values.append(alike * (1 - agree) if form == "smooth" else alike * agree)
    return sum(values) / len(values) if values else 0.0
