"""The proof that no record reaches another one in a forward pass, and the check that later passes are the proven one.

tracer.py writes down the calls of a pass. prove.py judges them one by one, with a trial on random numbers (trial.py) of
every function that such a trial can judge (functions.py, conditions.py). follower.py compares later passes with that.
calls.py and places.py are the words they share. Neither the weights nor the records at hand decide anything.
"""
