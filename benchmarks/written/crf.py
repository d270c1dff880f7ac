"""BiLSTM-CRF: emission scores by a BiLSTM, the partition function by the forward algorithm."""

import data
import dynet_compat as dy


def load(path=None):
    sentences = [s for s in data.load("tags", path) if len(s) <= 25]
    words = data.Vocab((w for s in sentences for w, _ in s), min_count=2)
    tags = data.Vocab(t for s in sentences for _, t in s)
    return [([words[w] for w, _ in s], [tags[t] for _, t in s]) for s in sentences], (len(words), len(tags))


class CRF(object):
    def __init__(self, pc, sizes, dim):
        self.n_tags = sizes[1]
        self.start, self.stop = self.n_tags, self.n_tags + 1
        self.embed = pc.add_lookup_parameters((sizes[0], dim))
        self.bilstm = dy.BiRNNBuilder(1, dim, dim, pc, dy.VanillaLSTMBuilder)
        self.to_tags = pc.add_parameters((self.n_tags + 2, dim))
        self.bias = pc.add_parameters((self.n_tags + 2))
        self.transitions = pc.add_lookup_parameters((self.n_tags + 2, self.n_tags + 2))

    def observations(self, words):
        outputs = self.bilstm.transduce([self.embed[w] for w in words])
        return [dy.affine_transform([self.bias, self.to_tags, x]) for x in outputs]

    def score_sentence(self, observations, tags):
        score_seq = [0]
        score = dy.scalarInput(0)
        tags = [self.start] + tags
        for i, obs in enumerate(observations):
            score = score + dy.pick(self.transitions[tags[i + 1]], tags[i]) + dy.pick(obs, tags[i + 1])
            score_seq.append(score)
        return score + dy.pick(self.transitions[self.stop], tags[-1])

    def forward(self, observations):
        init = [-1e10] * (self.n_tags + 2)
        init[self.start] = 0
        for_expr = dy.inputVector(init)
        for obs in observations:
            alphas_t = []
            for next_tag in range(self.n_tags + 2):
                obs_broadcast = dy.concatenate([dy.pick(obs, next_tag)] * (self.n_tags + 2))
                next_tag_expr = for_expr + self.transitions[next_tag] + obs_broadcast
                alphas_t.append(dy.logsumexp_dim(next_tag_expr, 0))
            for_expr = dy.concatenate(alphas_t)
        terminal_expr = for_expr + self.transitions[self.stop]
        return dy.logsumexp_dim(terminal_expr, 0)

    def neg_log_loss(self, words, tags):
        observations = self.observations(words)
        return self.forward(observations) - self.score_sentence(observations, tags)


def build(sizes, hidden):
    pc = dy.ParameterCollection()
    return CRF(pc, sizes, hidden), dy.MomentumSGDTrainer(pc, 0.001)


def train_batch(model, trainer, batch):
    dy.renew_cg()
    losses = []
    for words, tags in batch:
        losses.append(model.neg_log_loss(words, tags))
    loss = dy.esum(losses)
    loss.forward()
    loss.backward()
    trainer.update()
    return loss.scalar_value()
