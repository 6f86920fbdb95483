"""The engine: plans, trains, evaluates, saves."""
