"""A procedural street: `layout` decides what stands where, `canvas` projects it, `textures` colours it."""
