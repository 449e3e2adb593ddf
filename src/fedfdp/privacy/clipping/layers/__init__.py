"""Layer rules: per-record gradients of an operation's parameters, measured and summed without one pass per record.

A new rule is one file here with a class derived from `Rule` (rule.py), and one line in registry.py. Nothing else lists
the kinds. The class says

- which calls it takes: `functions`, torch functions rather than modules, so that functional calls and tied weights are
  covered too; `bind` sorts the arguments of a call into input, weight, bias and options, and raises UnsupportedError
  for a call that the rule does not cover (the model then goes record by record);
- what is kept of a call during the pass (`Call`): the input, the options, and where the output's gradient will arrive;
  `leading` says which dimensions of the input are its rows, so that the proof can tell which row is whose record;
- the gradients, (B, *shape) for each parameter: `per_record`. It is what autograd gives for each record alone, and is
  used as it is for a parameter that several calls share;
- a cheaper form, if there is one: `contributions`. Its classes (contributions.py) know their norms, their weighted sums
  and how many numbers they hold, by which the size of a chunk is chosen. The default stores what `per_record` gives.

Its line in the registry says when a trial on random numbers proves that such a call keeps records apart: for most
functions `always`; for one that reads neighbouring positions, as a convolution does, `records_first`. Whoever is not
sure adds a condition to proof/conditions.py that refuses.

- factors of the gradient where it is a product (`factors`), so that several calls on one weight are measured together;
- more than one call where an operation is made of several (`take`): recurrent layers are two linear maps (recurrent.py,
  through_time.py).

An operation that is a series of such calls needs no rule: in_steps.py re-runs it call by call. And a function without a
rule still works: kept.py gives a parameter that is broadcast over the records one copy for each, or differentiates the
call again, record by record. A rule is then a matter of speed. A weight may also be made of parameters (transposed,
looked up, computed): pulled_back.py follows its gradient back to them.

Test a rule in tests/privacy/clipping/layers/ against autograd, record by record.
"""
