"""The same rounds between machines, on Flower: messages, the data holder's node, the coordinator."""
