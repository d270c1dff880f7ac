"""What `import dynet` finds. See `dynet_compat.shims`."""

import sys

from dynet_compat import shims

sys.modules[__name__] = shims.dynet()
