"""Sequence to sequence: a BiLSTM encoder, additive attention, and a decoder that learns to copy backwards."""

import data
import dynet_compat as dy

EOS = 1


def load(path=None):
    sentences = [s for s in data.load("text", path) if len(s) <= 20]
    words = data.Vocab((w for s in sentences for w in s), min_count=3)
    return [[2 + words[w] for w in s] for s in sentences], len(words) + 2


class Attention:
    def __init__(self, vocab_size, dim):
        self.pc = dy.ParameterCollection()
        self.input_lookup = self.pc.add_lookup_parameters((vocab_size, dim))
        self.output_lookup = self.pc.add_lookup_parameters((vocab_size, dim))
        self.enc_fwd = dy.LSTMBuilder(1, dim, dim, self.pc)
        self.enc_bwd = dy.LSTMBuilder(1, dim, dim, self.pc)
        self.dec = dy.LSTMBuilder(1, 3 * dim, dim, self.pc)
        self.attention_w1 = self.pc.add_parameters((dim, 2 * dim))
        self.attention_w2 = self.pc.add_parameters((dim, 2 * dim))
        self.attention_v = self.pc.add_parameters((1, dim))
        self.decoder_w = self.pc.add_parameters((vocab_size, dim))
        self.decoder_b = self.pc.add_parameters(vocab_size)
        self.dim = dim

    def encode(self, sentence):
        embedded = [self.input_lookup[w] for w in sentence]
        fwd = self.run_lstm(self.enc_fwd.initial_state(), embedded)
        bwd = self.run_lstm(self.enc_bwd.initial_state(), embedded[::-1])
        return [dy.concatenate(list(p)) for p in zip(fwd, bwd[::-1])]

    def run_lstm(self, state, inputs):
        out = []
        for x in inputs:
            state = state.add_input(x)
            out.append(state.output())
        return out

    def attend(self, input_mat, state, w1dt):
        w2dt = self.attention_w2 * dy.concatenate(list(state.s()))
        unnormalized = dy.transpose(self.attention_v * dy.tanh(dy.colwise_add(w1dt, w2dt)))
        att_weights = dy.softmax(unnormalized)
        return input_mat * att_weights

    def decode(self, vectors, output):
        input_mat = dy.concatenate_cols(vectors)
        w1dt = None
        last = self.output_lookup[EOS]
        s = self.dec.initial_state().add_input(dy.concatenate([dy.zeros(2 * self.dim), last]))
        loss = []
        for word in output:
            w1dt = w1dt or self.attention_w1 * input_mat
            vector = dy.concatenate([self.attend(input_mat, s, w1dt), last])
            s = s.add_input(vector)
            out_vector = self.decoder_w * s.output() + self.decoder_b
            last = self.output_lookup[word]
            loss.append(-dy.log(dy.pick(dy.softmax(out_vector), word)))
        return dy.esum(loss)

    def get_loss(self, sentence):
        return self.decode(self.encode(sentence + [EOS]), sentence[::-1] + [EOS])


def build(vocab_size, hidden):
    network = Attention(vocab_size, hidden)
    return network, dy.SimpleSGDTrainer(network.pc)


def train_batch(network, trainer, batch):
    dy.renew_cg()
    loss = dy.esum([network.get_loss(sentence) for sentence in batch])
    loss_value = loss.value()
    loss.backward()
    trainer.update()
    return loss_value
