"""Models of a pipeline that know nothing of graphs: ``balance`` deals thread blocks out to stages, ``rates`` says how deep queues
must be, ``simulate`` lets tiles flow and says how long that takes. *Kitsune* (2025), section 4."""
