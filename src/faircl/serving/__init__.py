"""A local web page on which the networks of a run segment one's own images."""
