"""Kitsune's dataflow: operations that run at the same time as stages of a pipeline, and pass tiles through queues.

``select`` finds what could be a pipeline, ``tiles`` says which axis a tile cuts each value along, ``pipeline`` makes
stages and queues of it. Three models know nothing of graphs: ``balance`` deals thread blocks out to stages, ``arbiter`` puts
them on SMs, ``simulate`` lets tiles flow and says how long that takes. ``price`` asks them about a
pipeline. *Kitsune* (2025), section 4.
"""
