"""Attention encoder-decoder in the style of the tutorial: module-level parameters, greedy generation."""

import dynet as dy

EOS = 0
SIZE, STATE, ATT = 9, 6, 5
model = dy.Model()
enc_fwd = dy.LSTMBuilder(1, 4, STATE, model)
enc_bwd = dy.LSTMBuilder(1, 4, STATE, model)
dec = dy.LSTMBuilder(1, STATE * 2 + 4, STATE, model)
lookup = model.add_lookup_parameters((SIZE, 4))
w1 = model.add_parameters((ATT, STATE * 2))
w2 = model.add_parameters((ATT, STATE * 2))
v = model.add_parameters((1, ATT))
R = model.add_parameters((SIZE, STATE))
bias = model.add_parameters(SIZE)


def run_lstm(init_state, input_vecs):
    s = init_state
    out_vectors = []
    for vector in input_vecs:  #: recurrence s
        s = s.add_input(vector)
        out_vectors.append(s.output())
    return out_vectors


def encode(sentence):
    sentence = [lookup[c] for c in sentence]  #: map
    fwd_vectors = run_lstm(enc_fwd.initial_state(), sentence)
    bwd_vectors = list(reversed(run_lstm(enc_bwd.initial_state(), list(reversed(sentence)))))
    return [dy.concatenate(list(p)) for p in zip(fwd_vectors, bwd_vectors)]  #: map


def attend(input_mat, state, w1dt):
    w2dt = w2 * dy.concatenate(state.s())  #: region
    weights = dy.transpose(v * dy.tanh(dy.colwise_add(w1dt, w2dt)))
    return input_mat * dy.softmax(weights)


def decode(vectors, output):
    input_mat = dy.concatenate_cols(vectors)  #: region
    w1dt = w1 * input_mat
    last = lookup[EOS]
    s = dec.initial_state().add_input(dy.concatenate([dy.vecInput(STATE * 2), last]))
    loss = []
    for char in output:  #: recurrence last s  #: region
        s = s.add_input(dy.concatenate([attend(input_mat, s, w1dt), last]))
        loss.append(-dy.log(dy.pick(dy.softmax(R * s.output() + bias), char)))
        last = lookup[char]
    return dy.esum(loss)


def generate(sentence):
    vectors = encode(sentence)
    input_mat = dy.concatenate_cols(vectors)  #: region
    w1dt = w1 * input_mat
    last = lookup[EOS]
    s = dec.initial_state().add_input(dy.concatenate([dy.vecInput(STATE * 2), last]))
    out = []
    for _ in range(6):  #: recurrence last s
        s = s.add_input(dy.concatenate([attend(input_mat, s, w1dt), last]))  #: region
        probs = dy.softmax(R * s.output() + bias).vec_value()  #: read
        char = probs.index(max(probs))
        last = lookup[char]
        if char == EOS:
            break
        out.append(char)
    return out


def generate_all(sentences):
    dy.renew_cg()
    results = []
    for sentence in sentences:  #: map rewrite
        results.append(generate(sentence))
    return results


def train(pairs):
    trainer = dy.SimpleSGDTrainer(model)
    for source, target in pairs:  #: graph
        dy.renew_cg()
        loss = decode(encode(source), target)
        print(loss.value())  #: read
        loss.backward()
        trainer.update()


train([([1, 2, 3], [3, 2, 1]), ([4, 5], [5, 4, 6])])
print(generate_all([[1, 2], [3, 4, 5]]))
