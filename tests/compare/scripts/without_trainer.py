"""Gradients without a trainer, and the ways of reading values."""

import dynet as dy

model = dy.Model()
table = model.add_lookup_parameters((4, 3))
matrix = model.add_parameters((3, 3))
for number in range(4):
    dy.renew_cg()
    x = dy.inputTensor([[1.0, 2.0], [3.0, number]])
    y = 2.0 * table[number] + 1.0 - matrix * dy.lookup(table, 1)
    z = dy.esum([dy.sum_elems(y), dy.squared_norm(y) / 3.0])
    both = dy.values([x, y])
    z.forward()
    print(both, y.npvalue(), y.vec_value(), y[0].scalar_value(), dy.npvalues([z]))
    z.backward()
    print(matrix.grad_as_array().sum(), table.row_grad_as_array(number))
