"""How the gradients of the usual layers are measured and summed record by record: one rule a kind of layer."""
