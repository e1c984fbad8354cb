"""Kitsune's dataflow: operations that run at the same time as stages of a pipeline, and pass tiles through queues.

``select`` finds what could be a pipeline, ``tiles`` says which axis a tile cuts each value along, ``pipeline`` makes
stages and queues of it. Three models know nothing of graphs: ``balance`` deals thread blocks out to stages, ``arbiter`` puts
them on SMs, ``simulate`` lets tiles flow and says how long that takes. ``predict`` turns a pipeline into the models' loads and
queues, and gives each stage its blocks; ``rates`` says how deep queues must be; ``loop`` plans a CPU's tiles; ``price`` and
``sensitivity`` ask the models about a pipeline. *Kitsune* (2025), section 4.
"""
