"""Models of a pipeline that know nothing of graphs. *Kitsune* (2025), section 4.

``balance`` deals thread blocks out to stages. ``rates`` gives the depths of queues. ``simulate``
gives the time.
"""
