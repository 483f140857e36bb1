"""Trials under Ray. Ray is imported in this package only.

Ray reads some settings from the environment when it is imported, so they are made here, before any module of this
package imports it.
"""

from harness.execution.ray import cluster

cluster.set_environment()
cluster.show_token()
