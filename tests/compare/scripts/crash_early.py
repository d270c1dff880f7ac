import dynet as dy

dy.renew_cg()
dy.inputVector([1, 2]) + dy.inputVector([1, 2, 3])  # fails on both sides
raise ValueError("the end")
