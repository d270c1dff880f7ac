import math

import a_module_that_nobody_has  # noqa: F401
import dynet as dy

print(math.pi, dy.__version__)
