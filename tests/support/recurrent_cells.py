"""The cells of recurrent layers, as loops over units."""


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def product(matrix, vector, bias):
    """W x + b as loops."""
    return [sum(matrix[i, j] * vector[j] for j in range(len(vector))) + bias[i] for i in range(len(bias))]


def lstm_cell(p, x, state):
    """(h, (h, c)): the rows of the matrices are those of the gates i, f, g, o, in torch's order."""
    h, c = state
    size = len(h)
    from_x, from_h = product(p.weight_ih_l0, x, p.bias_ih_l0), product(p.weight_hh_l0, h, p.bias_hh_l0)
    new_h, new_c = [], []
    for unit in range(size):
        i, f, g, o = (from_x[gate * size + unit] + from_h[gate * size + unit] for gate in range(4))
        new_c.append(sigmoid(f) * c[unit] + sigmoid(i) * g.tanh())
        new_h.append(sigmoid(o) * new_c[-1].tanh())
    return new_h, (new_h, new_c)


def gru_cell(p, x, state):
    """(h, (h,)): the rows of the matrices are those of r, z, n, in torch's order."""
    (h,) = state
    size = len(h)
    from_x, from_h = product(p.weight_ih_l0, x, p.bias_ih_l0), product(p.weight_hh_l0, h, p.bias_hh_l0)
    new_h = []
    for unit in range(size):
        r, z = (sigmoid(from_x[gate * size + unit] + from_h[gate * size + unit]) for gate in range(2))
        n = (from_x[2 * size + unit] + r * from_h[2 * size + unit]).tanh()
        new_h.append((1 - z) * n + z * h[unit])
    return new_h, (new_h,)
