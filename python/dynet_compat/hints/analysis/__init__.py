"""What a script does, found without running it; `script` runs the analyses in this order.

load          source files, their hashes, the script's own modules
scopes        functions, classes, loops, and where each name is bound
interpreter   what each expression may be; lists its own parts (lattice: values; facts: results)
callgraph     which function calls which; recursion
loops         what iterations take from the ones before (liveness: which names code reads first)
instances     the loop over the instances of a minibatch
independence  loops whose iterations are independent, with a proof (effects: what calls do besides)
api           names of DyNet and of Python
"""
