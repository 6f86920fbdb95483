"""What a trained network is made into for use elsewhere: files of other libraries, checked against the network."""
