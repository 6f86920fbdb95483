"""The classes after a step as lines: order, change, the worst of many, means."""

from faircl.engine.class_table import MAX_CLASSES, WORST, class_table


def row(id, name, iou, learned_at, pixels=100):
    return {"id": id, "name": name, "iou": iou, "learned_at": learned_at, "pixels": pixels, "error_rate": 0.0}


def evaluated(step, rows, old, new):
    return {"kind": "eval", "step": step, "classes": rows, "miou": {"old": old, "new": new, "all": 50.0}, "std": 12.34}


def test_old_classes_come_before_new_ones_and_the_worst_first():
    before = [
        {"kind": "train", "step": 0},
        evaluated(0, [row(0, "road", 90.0, 0), row(1, "car", 70.0, 0), row(4, "lamp", None, 0, 0)], None, 80.0),
    ]
    rows = [
        row(0, "road", 80.5, 0, 500),
        row(1, "car", 72.0, 0),
        row(4, "lamp", None, 0, 0),
        row(2, "fence", 40.0, 1, 300),
        row(3, "kiosk", 10.0, 1),
    ]
    lines = class_table(1, evaluated(1, rows, 76.25, 25.0), before).splitlines()
    assert [line.split() for line in lines[1:-1]] == [
        ["car", "0", "72.0", "2.0", "10.0%"],
        ["road", "0", "80.5", "-9.5", "50.0%"],
        ["lamp", "0", "–", "–", "0.0%"],
        ["kiosk", "1", "10.0", "–", "10.0%"],
        ["fence", "1", "40.0", "–", "30.0%"],
    ]
    assert lines[0].split() == ["class", "learned", "at", "IoU", "change", "test", "pixels"]
    assert lines[-1] == "after step 1: old 76.2, new 25.0, all 50.0, STD 12.3 (IoU in percent)"


def test_a_first_step_has_no_old_classes():
    text = class_table(0, evaluated(0, [row(0, "road", 80.0, 0)], None, 80.0), [])
    assert text.endswith("\nafter step 0: new 80.0, all 50.0, STD 12.3 (IoU in percent)")


def test_of_many_classes_the_worst_are_listed():
    rows = [row(k, f"class{k}", float((7 * k) % 150), int(k >= 100)) for k in range(150)]
    lines = class_table(1, evaluated(1, rows, 1.0, 2.0), []).splitlines()
    listed = [line.split() for line in lines[1:-2]]
    assert sorted(float(words[2]) for words in listed) == [float(iou) for iou in range(WORST)]
    learned = [words[1] for words in listed]
    assert learned == sorted(learned)
    assert lines[-2] == f"the {WORST} worst; 130 more in metrics.csv"
    assert len(class_table(1, evaluated(1, rows[:MAX_CLASSES], 1.0, 2.0), []).splitlines()) == MAX_CLASSES + 2


def test_a_name_with_brackets_is_kept():
    assert "[red]" in class_table(0, evaluated(0, [row(0, "[red]", 80.0, 0)], None, 80.0), [])
