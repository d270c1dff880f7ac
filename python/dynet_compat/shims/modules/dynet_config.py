"""What `import dynet_config` finds. See `dynet_compat.shims`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("dynet_compat.shims.dynet_config")
