"""The loop IR: what a kernel does, before it is printed for a machine.

``ir`` says what a kernel consists of, ``memory`` and ``statements`` build these parts, ``verify``
refuses a wrong kernel, and ``text`` prints its statements. ``nests`` is what passes and models ask
of a kernel besides.
"""
