import sys

from wainwright.sim.apiserver.process import main

sys.exit(main())
