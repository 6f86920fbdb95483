"""The configuration of a run: a typed tree, packaged recipes, published tables.

``run`` reads and validates a whole configuration (``load_config``, ``RunConfig``), ``recipes`` reads YAML files,
``overrides`` lays trees over each other, ``schema`` and ``components`` declare the settings.
"""
