"""What is timed, and the plain peers it is compared with."""
