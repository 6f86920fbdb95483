"""Commands that show and check results."""
