"""What `import dynet_viz` finds. See `dynet_compat.startup.shims`."""

import sys

from dynet_compat.startup import shims

sys.modules[__name__] = shims.drawing()
