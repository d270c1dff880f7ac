"""Small nets, as the text of programs, whose launches a GPU makes together."""

NETS = """
rng = np.random.default_rng(7)
pc = dy.ParameterCollection()
def parameters(*shape):
    return pc.parameters_from_numpy((rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32))
def inputs(n, size):
    return [dy.inputVector(x) for x in rng.normal(size=(n, size)).astype(np.float32)]
W, b = {(g, k): parameters(SIZE, SIZE) for g in "ifgou" for k in "lr"}, {g: parameters(SIZE) for g in "ifgou"}
V, c = parameters(4, SIZE), parameters(4)

def gate(g, l, r):
    return dy.affine_transform([b[g], W[g, "l"], l, W[g, "r"], r])

def tree(n, levels=2):
    '''Levels of a TreeLSTM, and a loss for each root.'''
    level = [(h, dy.tanh(h)) for h in inputs(2**levels * n, SIZE)]
    while len(level) > n:
        new = []
        for (l, cl), (r, cr) in zip(level[::2], level[1::2]):
            i, o, u = dy.logistic(gate("i", l, r)), dy.logistic(gate("o", l, r)), dy.tanh(gate("u", l, r))
            fl, fr = dy.logistic(gate("f", l, r)), dy.logistic(gate("g", l, r))
            cell = dy.cmult(i, u) + dy.cmult(fl, cl) + dy.cmult(fr, cr)
            new.append((dy.cmult(o, dy.tanh(cell)), cell))
        level = new
    return [dy.pickneglogsoftmax(dy.affine_transform([c, V, h]), i % 4) for i, (h, _) in enumerate(level)]

def gru(n):
    '''A state that is read by products and by elements.'''
    hs = inputs(n, SIZE)
    for _ in range(3):
        zs, rs = [dy.logistic(gate("i", h, h)) for h in hs], [dy.rectify(gate("f", h, h)) for h in hs]
        us = [dy.tanh(gate("u", h, dy.cmult(h, r))) for h, r in zip(hs, rs)]
        hs = [u + dy.cmult(z, h - u) for z, h, u in zip(zs, hs, us)]
    return [dy.squared_norm(h) for h in hs]

def parts(n):
    '''Parts, sums and a softmax of what a product makes, and arguments that all share.'''
    shared = dy.inputVector(rng.normal(size=SIZE).astype(np.float32))
    hs = [dy.cmult(dy.tanh(gate("u", h, h)), shared) for h in inputs(n, SIZE)]
    halves = [dy.softmax(dy.pick_range(h, 0, SIZE // 2)) + dy.pick_range(h, SIZE // 2, SIZE) for h in hs]
    return [dy.sum_elems(dy.square(h)) + dy.logsumexp([dy.pick(h, 0), dy.pick(h, 1)]) for h in halves]

def elements(n):
    '''One instance, large.'''
    x, y = inputs(2, 40 * SIZE * n)
    return [dy.sum_elems(dy.cmult(dy.tanh(x + y), dy.logistic(x - y)) * 2.0)]

builder = dy.GRUBuilder(1, SIZE, SIZE, pc)
Wx, Uh, bh = ({g: parameters(*shape) for g in "zrh"} for shape in ((SIZE, SIZE), (SIZE, SIZE), (SIZE,)))

def builders(n, steps=None):
    '''A GRU of the package over sentences, of different lengths unless all have so many steps.'''
    return [dy.squared_norm(builder.initial_state().transduce(inputs(steps or 2 + i % 3, SIZE))[-1])
            for i in range(n)]

def cell(x, h):
    z = dy.logistic(Wx["z"] * x + Uh["z"] * h + bh["z"])
    r = dy.logistic(Wx["r"] * x + Uh["r"] * h + bh["r"])
    new = dy.tanh(Wx["h"] * x + Uh["h"] * dy.cmult(r, h) + bh["h"])
    return dy.cmult(1 - z, h) + dy.cmult(z, new)

def written(n, steps=None):
    '''The same, written out.'''
    losses = []
    for i in range(n):
        h = dy.zeros(SIZE)
        for x in inputs(steps or 2 + i % 3, SIZE):
            h = cell(x, h)
        losses.append(dy.squared_norm(h))
    return losses

def crossed(n):
    '''What several products make meets, some of it twice, in two layers.'''
    hs = inputs(n, SIZE)
    for _ in range(2):
        a, b = [gate("i", h, h) for h in hs], [dy.tanh(gate("f", h, h)) for h in hs]
        c = [dy.cmult(dy.rectify(x), y) for x, y in zip(a, b)]
        d = [dy.cmult(x, x) * 0.5 - y for x, y in zip(b, c)]
        e = [-(x + 3) - y for x, y in zip(a, hs)]
        hs = [dy.cmult(dy.tanh(x - hs[0]), y) + z for x, y, z in zip(e, d, reversed(b))]
    return [dy.squared_norm(h) for h in hs]

def compute(net, n, **options):
    '''Losses and gradients as text, and counts. Other values are left in the memory before.'''
    global rng
    dy._core._device_options(**options)
    dy.renew_cg()
    rng = np.random.default_rng(3)
    dy.esum(net(n)).npvalue()
    rng = np.random.default_rng(11)
    dy.renew_cg()
    dy._core.reset_timing()
    losses = net(n)
    total = dy.esum(losses)
    made = [total.npvalue(), *(loss.npvalue() for loss in losses)]
    forward = dy._core.timing()
    total.backward()
    told = dy._core.timing()
    made += [p.grad_as_array().copy() for p in pc.parameters_list()]
    for p in pc.parameters_list():
        p.scale_gradient(0)
    counts = [of[f"device_{what}"] for of in (told, forward) for what in ("launches", "links")]
    return b"".join(np.ascontiguousarray(x).tobytes() for x in made).hex(), counts
"""
