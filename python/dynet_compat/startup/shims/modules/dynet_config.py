"""What `import dynet_config` finds. See `dynet_compat.startup.shims`."""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("dynet_compat.startup.shims.dynet_config")
