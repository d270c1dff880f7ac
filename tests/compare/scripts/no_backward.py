import dynet as dy

dy.renew_cg()
print(dy.tanh(dy.scalarInput(1.0)).value())
