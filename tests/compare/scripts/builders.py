"""Every kind of builder, and states of states."""

import dynet as dy

model = dy.ParameterCollection()
makers = [dy.LSTMBuilder, dy.GRUBuilder, dy.SimpleRNNBuilder, dy.CoupledLSTMBuilder, dy.FastLSTMBuilder]
makers.append(dy.CompactVanillaLSTMBuilder)
rnns = [maker(2, 3, 4, model) for maker in makers]
both = dy.BiRNNBuilder(1, 3, 4, model, dy.LSTMBuilder)
trainer = dy.AdamTrainer(model)
for step in range(4):
    dy.renew_cg()
    xs = [dy.inputVector([0.1 * i, 0.2, 0.3 * step]) for i in range(4)]
    outputs = [rnn.initial_state().transduce(xs)[-1] for rnn in rnns]
    outputs += [rnn.initial_state().add_inputs(xs)[-1].output() for rnn in rnns]
    outputs += both.transduce(xs)
    loss = dy.squared_norm(dy.concatenate(outputs))
    loss.value()
    loss.backward()
    trainer.update()
